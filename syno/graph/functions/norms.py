"""Normalisations and the softmax family, named and defined as in `torch.nn.functional`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from syno.errors import ShapeError
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import reductions
from syno.graph.functions.formulas import Tensors, axes, dim_of, float_of, pointwise, sizes_of
from syno.graph.functions.reductions import Reduced


def batch_norm(
    build: Builder,
    x: Value,
    running_mean: Value,
    running_var: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """In inference: a factor and a summand for each channel (dimension 1), each a node of the weights alone."""
    given = [v for v in (running_mean, running_var, weight, bias) if v is not None]
    dtype = float_of(build, [x])
    kind = float_of(build, given)
    factor = Tensors(build, kind)
    spread = f"rsqrt({factor.key('v', running_var)}[c] + {factor.number(eps)})"
    gamma = f"{factor.key('g', weight)}[c] * " if weight is not None else ""
    scale = build.formula(f"y[c] = {gamma}{spread}", factor.by_key, name="scale")
    summand = Tensors(build, kind)
    beta = f"{summand.key('b', bias)}[c]" if bias is not None else "0"
    shifted = f"{summand.key('m', running_mean)}[c] * {summand.key('s', scale)}[c]"
    shift = build.formula(f"y[c] = {beta} - {shifted}", summand.by_key, name="shift")
    tensors = Tensors(build, dtype)
    at = axes(x.rank)
    if x.rank < 2:
        raise ShapeError(f"[graph] batch_norm of {list(x.shape)}: channels are dimension 1")
    read = f"{tensors.key('x', x)}[{','.join(at)}]"
    body = f"{read} * {tensors.key('s', scale)}[{at[1]}] + {tensors.key('t', shift)}[{at[1]}]"
    return build.formula(f"y[{','.join(at)}] = {body}", tensors.by_key, name="batch_norm")


def batch_norm_of_batch(
    build: Builder,
    x: Value,
    running_mean: Value | None,
    running_var: Value | None,
    weight: Value | None,
    bias: Value | None,
    momentum: float,
    eps: float,
) -> list[Value]:
    """In training: the result, the batch's mean and inverse deviation, and, where they are kept, the running mean and
    variance after it."""
    dims = [d for d in range(x.rank) if d != 1]
    count = math.prod(x.shape[d] for d in dims)
    if x.rank < 2 or count < 2:
        raise NotCovered("[graph] the variance of one element a channel")
    mean = reductions.mean(build, x, dims)
    variance = reductions.var(build, x, dims, 0)
    spread = pointwise(build, "rsqrt({v} + {eps})", name="inverse_deviation", v=variance, eps=eps)
    tensors = Tensors(build, float_of(build, [x]))
    at = axes(x.rank)
    read = f"{tensors.key('x', x)}[{','.join(at)}]"
    body = f"({read} - {tensors.key('m', mean)}[{at[1]}]) * {tensors.key('s', spread)}[{at[1]}]"
    body += _affine(tensors, weight, bias, at[1])
    made = build.formula(f"y[{','.join(at)}] = {body}", tensors.by_key, name="batch_norm")
    if running_mean is None or running_var is None:
        return [made, mean, spread]
    step = "{new} * {momentum} + {old} * {rest}"
    numbers: dict[str, Any] = {"momentum": momentum, "rest": 1 - momentum}
    after = pointwise(build, step, name="running_mean", new=mean, old=running_mean, **numbers)
    numbers["momentum"] = momentum * count / (count - 1)  # the running variance is unbiased
    kept = pointwise(build, step, name="running_var", new=variance, old=running_var, **numbers)
    return [made, mean, spread, after, kept]


def layer_norm(
    build: Builder,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    outer, at, inner = _split(x, normalized_shape)
    tensors = Tensors(build, float_of(build, [v for v in (x, weight, bias) if v is not None]))
    over = ",".join(inner)
    row, whole = ",".join(outer), ",".join(at)
    if not inner:
        raise NotCovered("[graph] a normalisation over no dimension")
    read = f"{tensors.key('x', x)}[{whole}]"
    body = f"centred[{whole}] * rsqrt(variance[{row}] + {tensors.number(eps)})"
    body += _affine(tensors, weight, bias, over)
    return build.formula(
        f"middle[{row}] = mean[{over}] {read}; centred[{whole}] = {read} - middle[{row}]; "
        f"variance[{row}] = mean[{over}] centred[{whole}] * centred[{whole}]; y[{whole}] = {body}",
        tensors.by_key,
        name="layer_norm",
    )


def rms_norm(
    build: Builder,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    eps: float | None = None,
) -> Value:
    outer, at, inner = _split(x, normalized_shape)
    dtype = float_of(build, [v for v in (x, weight) if v is not None])
    if eps is None:
        eps = 2.0**-7 if dtype == "bfloat16" else float(np.finfo(dtype).eps)
    tensors = Tensors(build, dtype)
    over, row, whole = ",".join(inner), ",".join(outer), ",".join(at)
    if not inner:
        raise NotCovered("[graph] a normalisation over no dimension")
    read = f"{tensors.key('x', x)}[{whole}]"
    body = f"{read} * rsqrt(square[{row}] + {tensors.number(eps)})"
    body += _affine(tensors, weight, None, over)
    return build.formula(
        f"square[{row}] = mean[{over}] {read} * {read}; y[{whole}] = {body}",
        tensors.by_key,
        name="rms_norm",
    )


def inverse_deviation(build: Builder, x: Value, dims: Sequence[int], eps: float) -> Value:
    """1 / sqrt(variance + eps) over dimensions, which stay with extent 1."""
    reduced = Reduced(build, x, dims, True)
    before, middle = reduced.stage("middle", reduced.reduce("mean", reduced.x))
    away = f"({reduced.x} - {middle})"
    body = f"rsqrt({reduced.reduce('mean', f'{away} * {away}')} + {reduced.number(eps)})"
    return reduced.node(body, name="inverse_deviation", before=before)


def _split(x: Value, normalized_shape: Sequence[int]) -> tuple[list[str], list[str], list[str]]:
    count = len(normalized_shape)
    if tuple(normalized_shape) != x.shape[x.rank - count :]:
        raise ShapeError(f"[graph] {list(x.shape)} does not end with {list(normalized_shape)}")
    at = axes(x.rank)
    return at[: x.rank - count], at, at[x.rank - count :]


def _affine(tensors: Tensors, weight: Value | None, bias: Value | None, at: str) -> str:
    text = "" if weight is None else f" * {tensors.key('g', weight)}[{at}]"
    return text if bias is None else f"{text} + {tensors.key('b', bias)}[{at}]"


def group_norm(
    build: Builder,
    x: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """Channels are dimension 1."""
    if x.rank < 2 or x.shape[1] % num_groups:
        raise ShapeError(f"[graph] {list(x.shape)} has no {num_groups} groups of channels")
    tensors = Tensors(build, float_of(build, [v for v in (x, weight, bias) if v is not None]))
    members = x.shape[1] // num_groups
    key = tensors.key("x", x)
    space = axes(x.rank - 2)
    over = ",".join(["d", *space])
    rest = "".join(f",{name}" for name in space)
    channel = f"{members}*g+d" if members > 1 else "g"
    group = f"c/{members}" if members > 1 else "c"
    away = f"({key}[n,{channel}{rest}] - middle[n,g])"
    body = f"({key}[n,c{rest}] - middle[n,{group}]) * spread[n,{group}]"
    body += _affine(tensors, weight, bias, "c")
    return build.formula(
        f"middle[n,g] = mean[{over}] {key}[n,{channel}{rest}]; "
        f"spread[n,g] = rsqrt((mean[{over}] {away} * {away}) + {tensors.number(eps)}); "
        f"y[n,c{rest}] = {body}",
        tensors.by_key,
        name="group_norm",
        g=num_groups,
        d=members,
        c=x.shape[1],
    )


def instance_norm(
    build: Builder,
    x: Value,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """Of each channel (dimension 1) of each example by its own mean and variance."""
    if x.rank < 3:
        raise ShapeError(f"[graph] instance_norm of {list(x.shape)}: channels are dimension 1")
    return group_norm(build, x, x.shape[1], weight, bias, eps)


def local_response_norm(
    build: Builder, x: Value, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Value:
    """Over `size` channels (dimension 1) around each; those outside are 0 and count."""
    if x.rank < 3:
        raise ShapeError(
            f"[graph] local_response_norm of {list(x.shape)}: channels are dimension 1"
        )
    tensors = Tensors(build, float_of(build, [x]))
    at = axes(x.rank)
    key = tensors.key("x", x)
    near = f"{key}[{','.join([at[0], f'{at[1]}+r-{size // 2}', *at[2:]])}]"
    whole = ",".join(at)
    scale, power = tensors.number(alpha / size), tensors.number(beta)
    return build.formula(
        f"near[{whole}] = sum[r] {near} * {near}; "
        f"y[{whole}] = {key}[{whole}] / pow(near[{whole}] * {scale} + {tensors.number(k)}, {power})",
        tensors.by_key,
        name="local_response_norm",
        r=size,
        **sizes_of(at, x.shape),
    )


def softmax(build: Builder, x: Value, dim: int) -> Value:
    return _softmax(build, x, dim, "softmax")


def safe_softmax(build: Builder, x: Value, dim: int) -> Value:
    """As softmax; 0 where all elements are minus infinity."""
    return _softmax(build, x, dim, "safe_softmax")


def softmin(build: Builder, x: Value, dim: int) -> Value:
    return _softmax(build, x, dim, "softmin")


def log_softmax(build: Builder, x: Value, dim: int) -> Value:
    return _softmax(build, x, dim, "log_softmax")


def _softmax(build: Builder, x: Value, dim: int, name: str) -> Value:
    dim = dim_of(dim, x.rank)
    tensors = Tensors(build, float_of(build, [x]))
    key = tensors.key("x", x)
    if not x.rank:
        body = f"{key}[] - {key}[]"
        return build.formula(
            f"y[] = {body if name == 'log_softmax' else f'exp({body})'}", tensors.by_key, name=name
        )
    at = axes(x.rank)
    whole, row = ",".join(at), ",".join(at[:dim] + at[dim + 1 :])
    read = f"-{key}[{whole}]" if name == "softmin" else f"{key}[{whole}]"
    over = at[dim]
    if name == "safe_softmax":
        power = f"select({read} == -inf, 0, exp({read} - greatest[{row}]))"
        return build.formula(
            f"greatest[{row}] = max[{over}] {read}; powers[{whole}] = {power}; "
            f"total[{row}] = sum[{over}] powers[{whole}]; "
            f"y[{whole}] = select(total[{row}] == 0, 0, powers[{whole}] / total[{row}])",
            tensors.by_key,
            name=name,
        )
    away = f"{read} - greatest[{row}]"
    first = f"greatest[{row}] = max[{over}] {read}; "
    if name == "log_softmax":
        rest = f"total[{row}] = log(sum[{over}] exp({away})); y[{whole}] = {away} - total[{row}]"
    else:
        rest = (
            f"powers[{whole}] = exp({away}); total[{row}] = sum[{over}] powers[{whole}]; "
            f"y[{whole}] = powers[{whole}] / total[{row}]"
        )
    return build.formula(first + rest, tensors.by_key, name=name)


def softmax_backward(
    build: Builder, gradient: Value, output: Value, dim: int, *, logarithm: bool
) -> Value:
    """The derivative of (log) softmax by its argument, of its result and the result's gradient."""
    dim = dim_of(dim, output.rank)
    if not output.rank:
        raise NotCovered("[graph] the derivative of a softmax of one number")
    tensors = Tensors(build, float_of(build, [gradient, output]))
    at = axes(output.rank)
    whole, row = ",".join(at), ",".join(at[:dim] + at[dim + 1 :])
    g, y = f"{tensors.key('g', gradient)}[{whole}]", f"{tensors.key('y', output)}[{whole}]"
    if logarithm:
        text = f"total[{row}] = sum[{at[dim]}] {g}; y[{whole}] = {g} - exp({y}) * total[{row}]"
    else:
        text = f"total[{row}] = sum[{at[dim]}] {g} * {y}; y[{whole}] = {y} * ({g} - total[{row}])"
    return build.formula(text, tensors.by_key, name="gradient")
