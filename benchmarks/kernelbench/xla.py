"""XLA as a peer: the graph that `torch.export` makes of a form, operator by operator in jax."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import Tensor, nn

from kernelbench.peers import Call, Unavailable, first_line
from syno.kernels.arrays import view_of


def _array(tensor: Tensor) -> Any:
    return jnp.asarray(view_of(tensor.detach().contiguous()))


def start() -> None:
    """Begins jax's client with its threads, unless there is one."""
    jax.devices()


def compile_form(form: nn.Module, tensors: Sequence[Tensor]) -> Call:
    """A compiled call on jax's own copies of the tensors, constants folded in.

    Raises:
        Unavailable: an operator without a row in `TABLE`.
    """
    with torch.inference_mode(False), torch.no_grad():
        program = torch.export.export(form, tuple(tensors), strict=False)
    constants = {
        **{name: _array(t) for name, t in program.state_dict.items()},
        **{name: _array(t) for name, t in program.constants.items() if isinstance(t, Tensor)},
    }
    held: dict[str, Any] = {}
    given: list[str] = []
    for spec in program.graph_signature.input_specs:
        if spec.target is not None:
            held[spec.arg.name] = constants[spec.target]
        else:
            given.append(spec.arg.name)
    nodes = list(program.graph.nodes)
    for node in nodes:
        if node.op == "call_function" and _name(node.target) not in TABLE:
            raise Unavailable(f"XLA: no row for {_name(node.target)}")

    def run(*arrays: Any) -> Any:
        values: dict[Any, Any] = {}
        data = dict(zip(given, arrays, strict=True))
        for node in nodes:
            if node.op == "placeholder":
                values[node] = data[node.name] if node.name in data else held[node.name]
            elif node.op == "call_function":
                arguments = torch.fx.node.map_arg(node.args, lambda n: values[n])
                keywords = torch.fx.node.map_arg(node.kwargs, lambda n: values[n])
                values[node] = TABLE[_name(node.target)](*arguments, **keywords)
            else:
                return torch.fx.node.map_arg(node.args[0], lambda n: values[n])[0]
        raise AssertionError("an exported graph ends with an output")

    arrays = [_array(t) for t in tensors]
    try:
        compiled = jax.jit(run).lower(*arrays).compile()
        compiled(*arrays).block_until_ready()
    except Unavailable:
        raise
    except Exception as error:  # jax raises many types
        raise Unavailable(f"XLA: {first_line(error)}") from error
    return lambda: compiled(*arrays).block_until_ready()


def _name(target: Any) -> str:
    """An operator's; what is done in place computes the same."""
    if target is operator.getitem:
        return "getitem"
    name = str(target).removeprefix("aten.").split(".")[0]
    return name if name in TABLE else name.removesuffix("_")


def _each(value: Sequence[int], rank: int) -> list[int]:
    """One value for each of the dimensions, as aten's lists of one mean."""
    return list(value) * rank if len(value) == 1 else list(value)


def _biased(y: Any, bias: Any) -> Any:
    return y if bias is None else y + bias.reshape(-1, *[1] * (y.ndim - 2))


def _convolution(
    x: Any,
    k: Any,
    bias: Any = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    groups: int = 1,
) -> Any:
    steps, pads, dilations = (_each(v, x.ndim - 2) for v in (stride, padding, dilation))
    y = jax.lax.conv_general_dilated(
        x, k, steps, [(p, p) for p in pads], rhs_dilation=dilations, feature_group_count=groups
    )
    return _biased(y, bias)


def _transposed(
    x: Any,
    k: Any,
    bias: Any = None,
    stride: Sequence[int] = (1,),
    padding: Sequence[int] = (0,),
    output_padding: Sequence[int] = (0,),
    groups: int = 1,
    dilation: Sequence[int] = (1,),
) -> Any:
    rank = x.ndim - 2
    if groups != 1:
        raise Unavailable("XLA: no row for transposed convolutions in groups")
    s, p, extra, d = (_each(v, rank) for v in (stride, padding, output_padding, dilation))
    flipped = jnp.flip(jnp.swapaxes(k, 0, 1), tuple(range(2, 2 + rank)))
    around = [d[i] * (k.shape[2 + i] - 1) - p[i] for i in range(rank)]
    y = jax.lax.conv_general_dilated(
        x,
        flipped,
        [1] * rank,
        [(a, a + e) for a, e in zip(around, extra, strict=True)],
        lhs_dilation=s,
        rhs_dilation=d,
    )
    return _biased(y, bias)


def _pad(x: Any, amounts: Sequence[int], mode: str = "constant", value: float | None = 0.0) -> Any:
    config = [(0, 0, 0)] * x.ndim
    for i in range(len(amounts) // 2):
        config[x.ndim - 1 - i] = (amounts[2 * i], amounts[2 * i + 1], 0)
    return jax.lax.pad(x, jnp.asarray(value or 0.0, x.dtype), config)


def _unfold(x: Any, dim: int, size: int, step: int) -> Any:
    dim %= x.ndim
    count = (x.shape[dim] - size) // step + 1
    slices = [
        jax.lax.slice_in_dim(x, i, i + (count - 1) * step + 1, step, dim) for i in range(size)
    ]
    return jnp.stack(slices, axis=-1)


def _pool(x: Any, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], start: float, function: Any) -> Any:  # fmt: skip
    rank = x.ndim - 2
    each = [list(v) * rank if len(v) == 1 else list(v) for v in (kernel, stride, padding, dilation)]
    return jax.lax.reduce_window(
        x,
        start,
        function,
        (1, 1, *each[0]),
        (1, 1, *each[1]),
        [(0, 0), (0, 0), *((p, p) for p in each[2])],
        window_dilation=(1, 1, *each[3]),
    )


def _max_pool(
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Any:
    start = -jnp.inf
    return _pool(x, kernel, stride or kernel, padding, dilation, start, jax.lax.max)


def _avg_pool(
    x: Any, kernel: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0,)
) -> Any:
    total = _pool(x, kernel, stride or kernel, padding, (1,), 0.0, jax.lax.add)
    rank = x.ndim - 2
    count = math.prod(list(kernel) * rank if len(kernel) == 1 else list(kernel))
    return total / count


def _unflatten(x: Any, dim: int, sizes: Sequence[int]) -> Any:
    dim %= x.ndim
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + 1 :])


def _flatten(x: Any, start: int = 0, end: int = -1) -> Any:
    start, end = start % x.ndim, end % x.ndim
    return x.reshape(*x.shape[:start], -1, *x.shape[end + 1 :])


def _slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    index = [slice(None)] * x.ndim
    index[dim] = slice(start, None if end is None or end >= x.shape[dim] else end, step)
    return x[tuple(index)]


def _chunks(x: Any, count: int, dim: int) -> Any:
    width = -(-x.shape[dim] // count)
    return jnp.split(x, list(range(width, x.shape[dim], width)), axis=dim)


def _layer_norm(
    x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, *_: Any
) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    centred = x - x.mean(axes, keepdims=True)
    y = centred * jax.lax.rsqrt((centred * centred).mean(axes, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
    **_: Any,
) -> Any:
    scores = (q @ jnp.swapaxes(k, -1, -2)) * (
        1 / math.sqrt(q.shape[-1]) if scale is None else scale
    )
    if causal:
        mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf) if mask.dtype == bool else scores + mask
    return jax.nn.softmax(scores) @ v


def _batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, _: float, eps: float, *__: Any
) -> Any:  # fmt: skip
    if training:
        raise Unavailable("XLA: no row for batch normalisation in training")
    factor = jax.lax.rsqrt(variance + eps) * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - mean * factor
    places = [1] * (x.ndim - 2)
    return x * factor.reshape(-1, *places) + shift.reshape(-1, *places)


def _adaptive_avg_pool(x: Any, sizes: Sequence[int]) -> Any:
    places = x.shape[x.ndim - len(sizes) :]
    if any(place % size for place, size in zip(places, sizes, strict=True)):
        raise Unavailable(f"XLA: no row for windows of {places} that are not alike")
    window = [place // size for place, size in zip(places, sizes, strict=True)]
    return _avg_pool(x, window)


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    y = x @ weight.T
    return y if bias is None else y + bias


def _expand(x: Any, sizes: Sequence[int], **_: Any) -> Any:
    lead = len(sizes) - x.ndim
    shape = [x.shape[i - lead] if n == -1 else n for i, n in enumerate(sizes)]
    return jnp.broadcast_to(x, shape)


def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return jnp.diagonal(x, offset, dim1, dim2)


def _diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    y = x[..., None] * jnp.eye(x.shape[-1], dtype=x.dtype)
    return jnp.moveaxis(y, (-2, -1), (dim1, dim2))


def _squeeze(x: Any, dim: int | Sequence[int] | None = None) -> Any:
    dims = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return x.squeeze(tuple(d for d in dims if x.shape[d] == 1))


def _movedim(x: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> Any:
    return jnp.moveaxis(x, source, destination)


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
        axes = tuple(dim) if isinstance(dim, (list, tuple)) else dim
        return function(x, axis=axes, keepdims=keepdim)

    return run


#: Functions by the name of the aten operator they stand for.
TABLE: dict[str, Callable[..., Any]] = {
    "conv1d": _convolution,
    "conv2d": _convolution,
    "conv3d": _convolution,
    "conv_transpose1d": _transposed,
    "conv_transpose2d": _transposed,
    "conv_transpose3d": _transposed,
    "matmul": jnp.matmul,
    "mm": jnp.matmul,
    "bmm": jnp.matmul,
    "einsum": lambda text, arrays, *_, **__: jnp.einsum(text, *arrays),
    "pad": _pad,
    "constant_pad_nd": lambda x, amounts, value=0.0: _pad(x, amounts, "constant", value),
    "unfold": _unfold,
    "unflatten": _unflatten,
    "flatten": _flatten,
    "reshape": lambda x, shape: x.reshape(shape),
    "view": lambda x, shape: x.reshape(shape),
    "permute": lambda x, order: jnp.transpose(x, order),
    "transpose": jnp.swapaxes,
    "movedim": _movedim,
    "unsqueeze": lambda x, dim: jnp.expand_dims(x, dim),
    "squeeze": _squeeze,
    "expand": _expand,
    "narrow": lambda x, dim, start, n: jax.lax.slice_in_dim(x, start, start + n, axis=dim),
    "slice": _slice,
    "select": lambda x, dim, i: jax.lax.index_in_dim(x, i, dim, keepdims=False),
    "index_select": lambda x, dim, index: jnp.take(x, index, axis=dim),
    "roll": lambda x, shifts, dims=(): jnp.roll(x, shifts, tuple(dims)),
    "flip": lambda x, dims: jnp.flip(x, dims),
    "contiguous": lambda x, **_: x,
    "clone": lambda x, **_: x,
    "diagonal": _diagonal,
    "diag_embed": _diag_embed,
    "max_pool1d": _max_pool,
    "max_pool2d": _max_pool,
    "max_pool3d": _max_pool,
    "avg_pool1d": _avg_pool,
    "avg_pool2d": _avg_pool,
    "avg_pool3d": _avg_pool,
    "softmax": lambda x, dim, *_: jax.nn.softmax(x, axis=dim),
    "layer_norm": _layer_norm,
    "scaled_dot_product_attention": _attention,
    "sum": _reduce(jnp.sum),
    "mean": _reduce(jnp.mean),
    "amax": _reduce(jnp.max),
    "amin": _reduce(jnp.min),
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "pow": jnp.power,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "neg": jnp.negative,
    "exp": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "erf": jax.scipy.special.erf,
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "relu": jax.nn.relu,
    "abs": jnp.abs,
    "gelu": lambda x, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "clamp_min": lambda x, low: jnp.maximum(x, low),
    "clamp_max": lambda x, high: jnp.minimum(x, high),
    "batch_norm": _batch_norm,
    "adaptive_avg_pool1d": _adaptive_avg_pool,
    "adaptive_avg_pool2d": _adaptive_avg_pool,
    "adaptive_avg_pool3d": _adaptive_avg_pool,
    "linear": _linear,
    "embedding": lambda table, index, *_: jnp.take(table, index, axis=0),
    "cat": lambda arrays, dim=0: jnp.concatenate(arrays, axis=dim),
    "stack": lambda arrays, dim=0: jnp.stack(arrays, axis=dim),
    "chunk": lambda x, count, dim=0: _chunks(x, count, dim),
    "getitem": lambda values, index: values[index],
    "silu": jax.nn.silu,
    "hardtanh": lambda x, low=-1.0, high=1.0: jnp.clip(x, low, high),
    "prelu": lambda x, weight: jnp.where(x > 0, x, x * weight.reshape(-1, *[1] * (x.ndim - 2))),
    "log_softmax": lambda x, dim, *_: jax.nn.log_softmax(x, axis=dim),
    "dropout": lambda x, *_: x,
    "full": lambda shape, value, **_: jnp.full(shape, value),
}
