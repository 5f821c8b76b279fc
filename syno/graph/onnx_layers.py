"""Rows of ONNX operators with weights, over windows, and normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from syno.errors import ShapeError, shown
from syno.graph.building import NotCovered, Value
from syno.graph.functions import elementwise, norms, products, reductions, shapes, windows
from syno.graph.functions.copying import dimension
from syno.graph.functions.formulas import Tensors, float_of, pointwise, reading
from syno.graph.onnx_op import Op, Tensor, row

# Windows


def _list(op: Op, name: str, n: int, usual: int) -> list[int]:
    values = [int(v) for v in op.get(name) or [usual] * n]
    if len(values) != n:
        raise ShapeError(f"[onnx] {name} is {shown(values)} for {n} spatial dimensions")
    return values


def _paddings(
    op: Op,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> tuple[list[int], list[int]]:
    """Paddings before and behind by `pads` and `auto_pad`."""
    n, auto = len(kernel), op.get("auto_pad", "NOTSET")
    if auto in ("NOTSET", ""):
        pads = [int(p) for p in op.get("pads") or [0] * (2 * n)]
        if len(pads) != 2 * n:
            raise ShapeError(f"[onnx] pads is {shown(pads)} for {n} spatial dimensions")
        return pads[:n], pads[n:]
    if auto == "VALID":
        return [0] * n, [0] * n
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise NotCovered(f"[onnx] auto_pad {shown(auto)}")
    begin, end = [], []
    for extent, k, s, d in zip(size, kernel, stride, dilation, strict=True):
        if s < 1:
            raise ShapeError(f"[onnx] strides is {list(stride)}")
        total = max(0, (-(-extent // s) - 1) * s + d * (k - 1) + 1 - extent)
        less = total // 2
        begin.append(less if auto == "SAME_UPPER" else total - less)
        end.append(total - begin[-1])
    return begin, end


def _spatial(op: Op, least: int = 3) -> tuple[int, ...]:
    if op.rank() < least:
        raise ShapeError(f"[onnx] {op.kind} of a tensor of shape {list(op.shape())}")
    return op.shape()[2:]


def _kernel(op: Op, n: int, weights: Sequence[int]) -> list[int]:
    """The extents of windows, by the shape of the weights, which `kernel_shape` may repeat."""
    if len(weights) != n + 2:
        raise ShapeError(f"[onnx] {op.kind} with weights of shape {list(weights)}")
    kernel = op.get("kernel_shape")
    if kernel is not None and list(kernel) != list(weights[2:]):
        raise ShapeError(f"[onnx] kernel_shape is {shown(list(kernel))}")
    return list(weights[2:])


@row("Conv")
def _conv(op: Op) -> Tensor:
    return convolved(op, op.x(0), op.x(1), op.x_or_none(2))


def convolved(op: Op, x: Value, w: Value, b: Value | None) -> Value:
    """A convolution of these tensors by the attributes of a node of Conv's kind."""
    size = _spatial(op)
    n = len(size)
    kernel = _kernel(op, n, w.shape)
    stride, dilation = _list(op, "strides", n, 1), _list(op, "dilations", n, 1)
    begin, end = _paddings(op, size, kernel, stride, dilation)
    return windows.conv(op.build, x, w, b, stride, begin, end, dilation, op.get("group", 1))


@row("ConvTranspose")
def _conv_transposed(op: Op) -> Tensor:
    size = _spatial(op)
    n = len(size)
    kernel = _kernel(op, n, op.shape(1))
    stride, dilation = _list(op, "strides", n, 1), _list(op, "dilations", n, 1)
    more, wanted = _list(op, "output_padding", n, 0), op.get("output_shape")
    auto = op.get("auto_pad", "NOTSET")
    same = auto in ("SAME_UPPER", "SAME_LOWER")
    if wanted is None and same:
        wanted = [extent * s for extent, s in zip(size, stride, strict=True)]
    if wanted is not None:
        wanted = [int(w) for w in wanted][-n:]
        full = [
            (extent - 1) * s + d * (k - 1) + 1 + m
            for extent, s, d, k, m in zip(size, stride, dilation, kernel, more, strict=True)
        ]
        off = [f - w for f, w in zip(full, wanted, strict=True)]
        less = [o // 2 for o in off]
        rest = [o - low for o, low in zip(off, less, strict=True)]
        begin, end = (less, rest) if auto == "SAME_UPPER" else (rest, less)
        # Where more is wanted than there is, zeros follow.
        for k, o in enumerate(off):
            if o < 0:
                begin[k], end[k], more[k] = 0, 0, more[k] - o
    else:
        begin, end = _paddings(op, size, kernel, stride, dilation)
    return windows.conv_transposed(
        op.build,
        op.x(0),
        op.x(1),
        op.x_or_none(2),
        stride,
        begin,
        end,
        more,
        op.get("group", 1),
        dilation,
    )


@row("MaxPool", "AveragePool", "LpPool")
def _pool(op: Op) -> Tensor:
    op.only_first()
    size = _spatial(op)
    n = len(size)
    if op.get("kernel_shape") is None:
        raise ShapeError(f"[onnx] {op.kind} without kernel_shape")
    kernel = _list(op, "kernel_shape", n, 1)
    stride, dilation = _list(op, "strides", n, 1), _list(op, "dilations", n, 1)
    begin, end = _paddings(op, size, kernel, stride, dilation)
    ceil = bool(op.get("ceil_mode", 0))
    x = op.x()
    if op.kind == "MaxPool":
        numbers = op.build.cast(x, "float32") if x.dtype in ("int8", "uint8") else x
        made = windows.max_pool(op.build, numbers, kernel, stride, begin, end, dilation, ceil)
        return op.build.cast(made, x.dtype) if numbers is not x else made
    if op.kind == "LpPool":
        return windows.lp_pool(
            op.build, x, op.get("p", 2), kernel, stride, begin, end, ceil, dilation
        )
    include = bool(op.get("count_include_pad", 0))
    return windows.avg_pool(op.build, x, kernel, stride, begin, end, ceil, include, None, dilation)


@row("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global_pool(op: Op) -> Tensor:
    size = _spatial(op, 2)
    dims = list(range(2, 2 + len(size)))
    x = op.x()
    if not dims:
        return elementwise.unary("abs")(op.build, x) if op.kind == "GlobalLpPool" else x
    if op.kind == "GlobalLpPool":
        return reductions.vector_norm(op.build, x, op.get("p", 2), dims, True)
    if op.kind == "GlobalMaxPool":
        return reductions.amax(op.build, x, dims, True)
    return windows.adaptive_avg_pool(op.build, x, [1] * len(size))


# Products


@row("MatMul")
def _matmul(op: Op) -> Tensor:
    return products.matmul(op.build, op.x(0), op.x(1))


@row("Gemm")
def _gemm(op: Op) -> Tensor:
    a, b, c = op.x(0), op.x(1), op.x_or_none(2)
    if a.rank != 2 or b.rank != 2:
        raise ShapeError(f"[onnx] Gemm of {list(a.shape)} and {list(b.shape)}")
    left, right = bool(op.get("transA", 0)), bool(op.get("transB", 0))
    m, k = a.shape[::-1] if left else a.shape
    k2, n = b.shape[::-1] if right else b.shape
    if k != k2:
        raise ShapeError(f"[onnx] Gemm of {list(a.shape)} and {list(b.shape)}")
    alpha, beta = op.get("alpha", 1.0), op.get("beta", 1.0)
    tensors = Tensors(op.build, float_of(op.build, [v for v in (a, b, c) if v is not None]))
    body = f"sum[k] {tensors.key('a', a)}[{'k, m' if left else 'm, k'}]"
    body += f" * {tensors.key('b', b)}[{'n, k' if right else 'k, n'}]"
    if alpha != 1:
        body = f"({body}) * {tensors.number(alpha)}"
    if c is not None and beta != 0:
        if c.rank > 2 or any(e not in (1, w) for e, w in zip(c.shape[::-1], (n, m), strict=False)):
            raise ShapeError(f"[onnx] Gemm adds {list(c.shape)} to {[m, n]}")
        read = reading(tensors.key("c", c), c.shape, ["m", "n"], (m, n))
        body += f" + {read}" if beta == 1 else f" + {tensors.number(beta)} * {read}"
    return op.build.formula(f"y[m, n] = {body}", tensors.by_key, name="gemm", m=m, n=n, k=k)


@row("Einsum")
def _einsum(op: Op) -> Tensor:
    equation = op.get("equation")
    if not isinstance(equation, str):
        raise ShapeError("[onnx] Einsum without an equation")
    return products.einsum(op.build, equation, op.values())


@row("Attention")
def _attention(op: Op) -> list[Tensor | None]:
    """The usual case; masks that end early and states with causal masks are left to the definition."""
    build = op.build
    causal = bool(op.get("is_causal", 0))
    past = op.has(4) or op.has(5)
    if op.has(6) or op.get("softcap", 0.0) or (causal and past) or any(op.used[3:]):
        raise NotCovered("[onnx] attention of this kind")
    q, k, v = op.x(0), op.x(1), op.x(2)
    flat = q.rank == 3
    if flat:
        q = _heads(op, q, op.get("q_num_heads"))
        k, v = (_heads(op, each, op.get("kv_num_heads")) for each in (k, v))
    if {q.rank, k.rank, v.rank} != {4}:
        raise ShapeError(f"[onnx] attention of {q.rank}, {k.rank} and {v.rank} dimensions")
    if past:
        k = shapes.cat(build, [op.x(4), k], 2)
        v = shapes.cat(build, [op.x(5), v], 2)
    mask = op.x_or_none(3)
    if mask is not None and (mask.shape[-1] != k.shape[2] or causal):
        raise NotCovered("[onnx] attention with this mask")
    y = products.scaled_dot_product_attention(
        build, q, k, v, mask, 0.0, causal, op.get("scale"), q.shape[1] != k.shape[1]
    )
    if flat:
        y = shapes.permute(build, y, [0, 2, 1, 3])
        y = shapes.flatten(build, y, 2, 3)
    return [y, k, v]


def _heads(op: Op, x: Value, count: int | None) -> Value:
    if not count or x.shape[2] % count:
        raise ShapeError(f"[onnx] attention of {list(x.shape)} with {count} heads")
    split = [*x.shape[:2], count, x.shape[2] // count]
    return shapes.permute(op.build, shapes.reshape(op.build, x, split), [0, 2, 1, 3])


# Normalisations


@row("BatchNormalization")
def _batch_norm(op: Op) -> Tensor:
    if op.get("training_mode", 0):
        raise NotCovered("[onnx] batch normalisation while training")
    op.only_first()
    x, gamma, beta, mean, variance = (op.x(i) for i in range(5))
    if x.rank < 2:
        raise ShapeError(f"[onnx] BatchNormalization of a tensor of shape {list(x.shape)}")
    for each in (gamma, beta, mean, variance):
        if each.shape != (x.shape[1],):
            raise ShapeError(
                f"[onnx] a vector of shape {list(each.shape)} for {x.shape[1]} channels"
            )
    return norms.batch_norm(op.build, x, mean, variance, gamma, beta, op.get("epsilon", 1e-5))


@row("InstanceNormalization")
def _instance_norm(op: Op) -> Tensor:
    return norms.instance_norm(op.build, op.x(0), op.x(1), op.x(2), op.get("epsilon", 1e-5))


@row("LayerNormalization", "RMSNormalization")
def _layer_norm(op: Op) -> Tensor:
    op.only_first()
    x, scale, bias = op.x(0), op.x(1), op.x_or_none(2)
    axis = dimension(op.get("axis", -1), x.rank, "axis")
    over, eps = list(x.shape[axis:]), op.get("epsilon", 1e-5)
    if list(scale.shape) == over and (bias is None or list(bias.shape) == over):
        if op.kind == "RMSNormalization":
            return norms.rms_norm(op.build, x, over, scale, eps)
        return norms.layer_norm(op.build, x, over, scale, bias, eps)
    function = norms.rms_norm if op.kind == "RMSNormalization" else norms.layer_norm
    result = function(op.build, x, over, eps=eps)
    result = elementwise.mul(op.build, result, scale)
    return result if bias is None else elementwise.add(op.build, result, bias)


@row("GroupNormalization")
def _group_norm(op: Op) -> Tensor:
    x, scale, bias, groups = op.x(0), op.x(1), op.x(2), op.get("num_groups", 0)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise ShapeError(f"[onnx] {groups} groups of a tensor of shape {list(x.shape)}")
    if op.version < 21 and scale.shape == (groups,):
        each = x.shape[1] // groups
        scale = shapes.repeat_interleave(op.build, scale, each, 0)
        bias = shapes.repeat_interleave(op.build, bias, each, 0)
    return norms.group_norm(op.build, x, groups, scale, bias, op.get("epsilon", 1e-5))


@row("LRN")
def _lrn(op: Op) -> Tensor:
    x, size = op.x(), op.get("size", 0)
    if x.rank < 2 or size < 1:
        raise ShapeError(f"[onnx] LRN over {size} channels of a tensor of shape {list(x.shape)}")
    alpha, beta, bias = op.get("alpha", 1e-4), op.get("beta", 0.75), op.get("bias", 1.0)
    names = [f"i{d}" for d in range(x.rank)]
    at = [*names[:1], f"{names[1]} + k - {(size - 1) // 2}", *names[2:]]
    extents = ", ".join(f"{name}: {n}" for name, n in zip(names, x.shape, strict=True))
    tensors = Tensors(op.build, float_of(op.build, [x]))
    key, here = tensors.key("x", x), ", ".join(names)
    read = f"{key}[{', '.join(at)}]"
    base = f"({tensors.number(bias)} + {tensors.number(alpha / size)} * s[{here}])"
    return op.build.formula(
        f"s[{extents}] = sum[k: {size}] {read} * {read}; "
        f"y[{extents}] = {key}[{here}] / pow({base}, {tensors.number(beta)})",
        tensors.by_key,
        name="lrn",
    )


@row("MeanVarianceNormalization")
def _mean_variance(op: Op) -> Tensor:
    x = op.x()
    dims = [int(d) for d in op.get("axes", [0, 2, 3])]
    mean = reductions.mean(op.build, x, dims, True)
    centred = elementwise.sub(op.build, x, mean)
    variance = reductions.mean(op.build, elementwise.mul(op.build, centred, centred), dims, True)
    return pointwise(
        op.build, "{c} / (sqrt({v}) + 0.000000001)", name="normalize", c=centred, v=variance
    )
