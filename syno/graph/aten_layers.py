"""Rows of ATen's products, normalisations, windows, attention and reductions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from syno.graph.aten_rows import Arguments, Made, Row
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import norms, products, reductions, shapes, windows
from syno.graph.functions.places import max_pool_places


def spread(value: int | Sequence[int], rank: int) -> list[int]:
    """One number for each spatial dimension."""
    given = [value] if isinstance(value, int) else list(value)
    return given * rank if len(given) == 1 else given


# Convolutions


def _convolution(build: Builder, a: Arguments) -> Value:
    rank = a.weight.rank - 2
    x: Value = a.named["input"]
    stride, dilation = spread(a.stride, rank), spread(a.dilation, rank)
    padding = a.padding
    if a.named.get("transposed"):
        return _transposed(build, a)
    begin = end = [0] * rank
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, a.weight.shape[2:], strict=True)]
        begin = [t // 2 for t in total]
        end = [t - b for t, b in zip(total, begin, strict=True)]
    elif padding != "valid":
        begin = end = spread(padding, rank)
    return windows.conv(build, x, a.weight, a.bias, stride, begin, end, dilation, a.groups)


def _transposed(build: Builder, a: Arguments) -> Value:
    rank = a.weight.rank - 2
    x: Value = a.named["input"]
    padding, more = spread(a.padding, rank), spread(a.output_padding, rank)
    stride, dilation = spread(a.stride, rank), spread(a.dilation, rank)
    return windows.conv_transposed(
        build, x, a.weight, a.bias, stride, padding, padding, more, a.groups, dilation
    )


# Pooling


def _max_pool(rank: int, indices: bool) -> Row:
    def row(build: Builder, a: Arguments) -> Made:
        kernel, padding = spread(a.kernel_size, rank), spread(a.padding, rank)
        stride = spread(a.stride, rank) if a.stride else kernel
        x: Value = a["self"]
        dilation = spread(a.dilation, rank)
        made = windows.max_pool(build, x, kernel, stride, padding, padding, dilation, a.ceil_mode)
        if not indices or 1 not in a.used:
            return (made, None) if indices else made
        return made, max_pool_places(build, x, made, kernel, stride, padding, dilation)

    return row


def _avg_pool(rank: int) -> Row:
    def row(build: Builder, a: Arguments) -> Value:
        kernel, padding = spread(a.kernel_size, rank), spread(a.padding, rank)
        stride = spread(a.stride, rank) if a.stride else kernel
        return windows.avg_pool(
            build, a["self"], kernel, stride, padding, padding, a.ceil_mode, a.count_include_pad,
            a.named.get("divisor_override"),
        )  # fmt: skip

    return row


def _adaptive(rank: int, greatest: bool) -> Row:
    def row(build: Builder, a: Arguments) -> Made:
        x: Value = a["self"]
        given = spread(a.output_size, rank)
        out = [x.shape[x.rank - rank + d] if n is None else n for d, n in enumerate(given)]
        if not greatest:
            return windows.adaptive_avg_pool(build, x, out)
        if 1 in a.used:
            raise NotCovered("[graph] the places of the greatest elements of windows")
        return windows.adaptive_max_pool(build, x, out), None

    return row


# Normalisations


def _batch_norm(build: Builder, a: Arguments) -> Value:
    x: Value = a.named["input"]
    if a.running_mean is None:
        return norms.batch_norm_of_batch(build, x, None, None, a.weight, a.bias, 0.0, a.eps)[0]
    if a.training:
        raise NotCovered("[graph] running statistics that the model writes")
    return norms.batch_norm(build, x, a.running_mean, a.running_var, a.weight, a.bias, a.eps)


def _batch_norm_no_training(build: Builder, a: Arguments) -> Made:
    if a.used - {0}:
        raise NotCovered("[graph] what batch normalisation keeps for its derivative")
    x: Value = a.named["input"]
    made = norms.batch_norm(build, x, a.running_mean, a.running_var, a.weight, a.bias, a.eps)
    return made, None, None


def _batch_norm_functional(build: Builder, a: Arguments) -> Made:
    if not a.training or a.running_mean is None:
        raise NotCovered("[graph] batch normalisation without running statistics")
    x: Value = a.named["input"]
    return norms.batch_norm_of_batch(
        build, x, a.running_mean, a.running_var, a.weight, a.bias, a.momentum, a.eps
    )


def _batch_norm_without_statistics(build: Builder, a: Arguments) -> Made:
    """What instance normalisation is in the graphs that TorchDynamo gives."""
    if not a.training:
        raise NotCovered("[graph] batch normalisation without any statistics")
    x: Value = a.named["input"]
    return norms.batch_norm_of_batch(build, x, None, None, a.weight, a.bias, 0.0, a.eps)


def _layer_norm(build: Builder, a: Arguments) -> Value:
    return norms.layer_norm(build, a.named["input"], a.normalized_shape, a.weight, a.bias, a.eps)


def _native_layer_norm(build: Builder, a: Arguments) -> Made:
    x: Value = a.named["input"]
    made = norms.layer_norm(build, x, a.normalized_shape, a.weight, a.bias, a.eps)
    if not a.used - {0}:
        return made, None, None
    dims = list(range(x.rank - len(a.normalized_shape), x.rank))
    return (
        made,
        reductions.mean(build, x, dims, True),
        norms.inverse_deviation(build, x, dims, a.eps),
    )


def _group_norm(build: Builder, a: Arguments) -> Value:
    return norms.group_norm(build, a.named["input"], a.num_groups, a.weight, a.bias, a.eps)


def _native_group_norm(build: Builder, a: Arguments) -> Made:
    x: Value = a.named["input"]
    if a.used - {0}:
        raise NotCovered("[graph] what group normalisation keeps for its derivative")
    return norms.group_norm(build, x, a.group, a.weight, a.bias, a.eps), None, None


def _instance_norm(build: Builder, a: Arguments) -> Value:
    x: Value = a.named["input"]
    if a.use_input_stats:
        return norms.instance_norm(build, x, a.weight, a.bias, a.eps)
    return norms.batch_norm(build, x, a.running_mean, a.running_var, a.weight, a.bias, a.eps)


def _rms_norm(build: Builder, a: Arguments) -> Value:
    return norms.rms_norm(build, a.named["input"], a.normalized_shape, a.weight, a.eps)


def _softmax(name: str) -> Row:
    function = getattr(norms, name)

    def row(build: Builder, a: Arguments) -> Value:
        x: Value = a["self"]
        wanted = a.dtypes[0]
        if wanted is not None and x.dtype != wanted:
            x = build.cast(x, wanted)
        made: Value = function(build, x, a.dim)
        return made

    return row


# Attention


def _attention(build: Builder, a: Arguments) -> Value:
    return products.scaled_dot_product_attention(
        build, a.query, a.key, a.value, a.attn_mask, a.dropout_p, a.is_causal, a.scale, a.enable_gqa
    )


def _attention_of_cpu(build: Builder, a: Arguments) -> Made:
    """The kernel of the CPU; it also gives the logarithm of each row's sum, for derivatives. It does not say whether heads
    share keys: their numbers do."""
    shared = min(a.query.rank, a.key.rank) > 2 and a.query.shape[-3] > a.key.shape[-3] > 1
    given = (a.query, a.key, a.value, a.attn_mask, a.dropout_p, a.is_causal, a.scale, shared)
    if 1 in a.used:
        return products.attention_with_logarithms(build, *given)
    return products.scaled_dot_product_attention(build, *given), None


# Reductions


def _dims(a: Arguments) -> Any:
    dim = a.named.get("dim")
    return None if dim is None or dim == [] else dim


def _reduction(name: str, *, empty_is_all: bool = True) -> Row:
    function = getattr(reductions, name)

    def row(build: Builder, a: Arguments) -> Value:
        x: Value = a["self"]
        wanted = a.dtypes[0]
        if wanted in ("float32", "float64") and x.dtype != wanted:
            x = build.cast(x, wanted)
        dims = _dims(a) if empty_is_all else a.named.get("dim")
        made: Value = function(build, x, dims, bool(a.named.get("keepdim")))
        return made

    return row


def _greatest(function: Any) -> Row:
    """`max` and `min` along a dimension: the elements, and where they are."""

    def row(build: Builder, a: Arguments) -> Made:
        if 1 in a.used:
            place = reductions.argmax if function is reductions.amax else reductions.argmin
            where = place(build, a["self"], a.dim, a.keepdim)
            return (function(build, a["self"], a.dim, a.keepdim) if 0 in a.used else None), where
        return function(build, a["self"], a.dim, a.keepdim), None

    return row


def _correction(a: Arguments) -> float:
    if "unbiased" in a.named:
        return 1 if a.unbiased else 0
    given = a.named.get("correction")
    return 1 if given is None else given


def _variance(name: str) -> Row:
    function = getattr(reductions, name)

    def row(build: Builder, a: Arguments) -> Value:
        keepdim = bool(a.named.get("keepdim"))
        made: Value = function(build, a["self"], _dims(a), _correction(a), keepdim)
        return made

    return row


def _with_mean(name: str) -> Row:
    function = getattr(reductions, name)

    def row(build: Builder, a: Arguments) -> Made:
        keepdim = bool(a.named.get("keepdim"))
        spread = function(build, a["self"], _dims(a), _correction(a), keepdim)
        return spread, reductions.mean(build, a["self"], _dims(a), keepdim)

    return row


def _norm(build: Builder, a: Arguments) -> Value:
    order = 2 if a.named.get("p", 2) is None else a.named.get("p", 2)
    return reductions.vector_norm(build, a["self"], order, _dims(a), bool(a.named.get("keepdim")))


def _vector_norm(build: Builder, a: Arguments) -> Value:
    return reductions.vector_norm(build, a["self"], a.ord, _dims(a), a.keepdim)


def _arg(function: Any) -> Row:
    def row(build: Builder, a: Arguments) -> Value:
        x: Value = a["self"]
        made: Value
        if a.dim is None:
            whole = shapes.reshape(build, x, [math.prod(x.shape)])
            made = function(build, whole, 0)
            return shapes.reshape(build, made, a.shapes[0]) if a.shapes[0] else made
        made = function(build, x, a.dim, a.keepdim)
        return made

    return row


def _running(function: Any) -> Row:
    def row(build: Builder, a: Arguments) -> Value:
        x: Value = a["self"]
        wanted = a.dtypes[0]
        if wanted is not None and x.dtype != wanted:
            x = build.cast(x, wanted)
        made: Value = function(build, x, a.dim)
        return made

    return row


LAYERS: dict[str, Row] = {
    **{
        f"{name}.{overload}": _convolution
        for name in ("conv1d", "conv2d", "conv3d")
        for overload in ("default", "padding")
    },
    "convolution.default": _convolution,
    "conv_transpose1d.default": _transposed,
    "conv_transpose2d.input": _transposed,
    "conv_transpose3d.input": _transposed,
    "max_pool1d.default": _max_pool(1, False),
    "max_pool2d.default": _max_pool(2, False),
    "max_pool3d.default": _max_pool(3, False),
    "max_pool1d_with_indices.default": _max_pool(1, True),
    "max_pool2d_with_indices.default": _max_pool(2, True),
    "max_pool3d_with_indices.default": _max_pool(3, True),
    "avg_pool1d.default": _avg_pool(1),
    "avg_pool2d.default": _avg_pool(2),
    "avg_pool3d.default": _avg_pool(3),
    "adaptive_avg_pool1d.default": _adaptive(1, False),
    "adaptive_avg_pool2d.default": _adaptive(2, False),
    "_adaptive_avg_pool2d.default": _adaptive(2, False),
    "adaptive_avg_pool3d.default": _adaptive(3, False),
    "_adaptive_avg_pool3d.default": _adaptive(3, False),
    "adaptive_max_pool1d.default": _adaptive(1, True),
    "adaptive_max_pool2d.default": _adaptive(2, True),
    "adaptive_max_pool3d.default": _adaptive(3, True),
    "linear.default": lambda build, a: products.linear(build, a.named["input"], a.weight, a.bias),
    "matmul.default": lambda build, a: products.matmul(build, a["self"], a.other),
    "mm.default": lambda build, a: products.mm(build, a["self"], a.mat2),
    "bmm.default": lambda build, a: products.bmm(build, a["self"], a.mat2),
    "mv.default": lambda build, a: products.mv(build, a["self"], a.vec),
    "dot.default": lambda build, a: products.dot(build, a["self"], a.tensor),
    "vdot.default": lambda build, a: products.dot(build, a["self"], a.other),
    "outer.default": lambda build, a: products.outer(build, a["self"], a.vec2),
    "addmm.default": lambda build, a: products.addmm(build, a["self"], a.mat1, a.mat2, a.beta, a.alpha),
    "addmv.default": lambda build, a: products.addmv(build, a["self"], a.mat, a.vec, a.beta, a.alpha),
    "baddbmm.default": lambda build, a: products.baddbmm(build, a["self"], a.batch1, a.batch2, a.beta, a.alpha),
    "einsum.default": lambda build, a: products.einsum(build, a.equation, a.tensors),
    "scaled_dot_product_attention.default": _attention,
    "_scaled_dot_product_flash_attention_for_cpu.default": _attention_of_cpu,
    "batch_norm.default": _batch_norm,
    "_native_batch_norm_legit_no_training.default": _batch_norm_no_training,
    "_native_batch_norm_legit_functional.default": _batch_norm_functional,
    "_native_batch_norm_legit.no_stats": _batch_norm_without_statistics,
    "layer_norm.default": _layer_norm,
    "native_layer_norm.default": _native_layer_norm,
    "group_norm.default": _group_norm,
    "native_group_norm.default": _native_group_norm,
    "instance_norm.default": _instance_norm,
    "rms_norm.default": _rms_norm,
    "softmax.int": _softmax("softmax"),
    "_softmax.default": _softmax("softmax"),
    "_safe_softmax.default": _softmax("safe_softmax"),
    "log_softmax.int": _softmax("log_softmax"),
    "_log_softmax.default": _softmax("log_softmax"),
    **{f"sum.{overload}": _reduction("sum") for overload in ("default", "dim_IntList")},
    **{f"mean.{overload}": _reduction("mean") for overload in ("default", "dim")},
    **{f"prod.{overload}": _reduction("prod") for overload in ("default", "dim_int")},
    "amax.default": _reduction("amax"),
    "amin.default": _reduction("amin"),
    "max.default": _reduction("amax"),
    "min.default": _reduction("amin"),
    "max.dim": _greatest(reductions.amax),
    "min.dim": _greatest(reductions.amin),
    **{
        f"{name}.{overload}": _reduction(name, empty_is_all=overload != "dims")
        for name in ("all", "any")
        for overload in ("default", "dim", "dims")
    },
    **{
        f"{name}.{overload}": _variance(name)
        for name in ("var", "std")
        for overload in ("default", "dim", "correction")
    },
    **{
        f"{name}_mean.{overload}": _with_mean(name)
        for name in ("var", "std")
        for overload in ("default", "dim", "correction")
    },
    "logsumexp.default": _reduction("logsumexp"),
    **{f"norm.{overload}": _norm for overload in ("Scalar", "ScalarOpt_dim")},
    "linalg_vector_norm.default": _vector_norm,
    "argmax.default": _arg(reductions.argmax),
    "argmin.default": _arg(reductions.argmin),
    "cumsum.default": _running(reductions.cumsum),
    "cumprod.default": _running(reductions.cumprod),
    "logcumsumexp.default": _running(reductions.logcumsumexp),
}  # fmt: skip
