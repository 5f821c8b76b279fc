"""Where in its window the greatest element is, and what of a gradient goes there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions.copying import iterators, over
from syno.graph.functions.windows import window_lists, with_batch

#: Whole numbers that every float32 below them can hold.
_MOST = 2**24


def max_pool_places(
    build: Builder,
    x: Value,
    y: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Value:
    """The places of `max_pool`'s results `y` in a channel of `x`, counted row-major, as int64; of equal ones the first.

    Raises:
        NotCovered: a channel has more elements than numbers of the type tell apart.
    """
    kernel, stride, padding, _, dilation = window_lists(kernel, stride, padding, padding, dilation)
    batched, x = with_batch(build, x, len(kernel))
    _, best = with_batch(build, y, len(kernel))
    n, size = len(kernel), x.shape[2:]
    _check_places(size, x.dtype)
    i, r = iterators(2 + n), iterators(n, "r")
    at = [
        f"{s} * {i[2 + d]} + {dil} * {r[d]} - {a}"
        for d, (s, dil, a) in enumerate(zip(stride, dilation, padding, strict=True))
    ]
    read = f"(x[{', '.join([*i[:2], *at])}] fill -inf)"
    inside = [
        f"index({where}) >= 0 and index({where}) < {extent}"
        for d, (where, extent) in enumerate(zip(at, size, strict=True))
        if padding[d]
        or (best.shape[2 + d] - 1) * stride[d] + dilation[d] * (kernel[d] - 1) >= extent
    ]
    found = f"({read} == y[{', '.join(i)}] or {read} != {read})"
    text = (
        f"p[{over(i, best.shape)}] = min[{over(r, kernel)}] "
        f"select({' and '.join([*inside, found])}, index({_flat(at, size)}), inf)"
    )
    return batched(build.cast(build.formula(text, {"x": x, "y": best}, name="places"), "int64"))


def max_pool_gradient(
    build: Builder,
    gradient: Value,
    places: Value,
    in_size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Value:
    """The gradient of `max_pool` in its argument of spatial extents `in_size`: all of it goes to `places`."""
    kernel, stride, padding, _, dilation = window_lists(kernel, stride, padding, padding, dilation)
    n = len(kernel)
    batched, g = with_batch(build, gradient, n)
    _, at_places = with_batch(build, places, n)
    _check_places(in_size, g.dtype)
    i, t = iterators(2 + n), iterators(n, "t")
    # The windows that hold an element: so many, ending with the last one that begins before it. Elements
    # h = stride * b + e - padding of one phase e have theirs side by side: phases lie apart, rows of blocks along lanes.
    counts = [d * (k - 1) // s + 1 for d, k, s in zip(dilation, kernel, stride, strict=True)]
    blocks = [(h + a - 1) // s + 1 for h, a, s in zip(in_size, padding, stride, strict=True)]
    b, e = iterators(n, "b"), iterators(n, "e")
    at = ", ".join([*i[:2], *(f"{b[d]} - {t[d]}" for d in range(n))])
    place = _flat([f"{stride[d]} * {b[d]} + {e[d]} - {padding[d]}" for d in range(n)], in_size)
    phases = [*b[:-1], *e, b[-1]]
    extents = [*g.shape[:2], *blocks[:-1], *stride, blocks[-1]]
    block = [f"({i[2 + d]} + {padding[d]}) / {stride[d]}" for d in range(n)]
    phase = [f"({i[2 + d]} + {padding[d]}) % {stride[d]}" for d in range(n)]
    text = (
        f"z[{over([*i[:2], *phases], extents)}] = sum[{over(t, counts)}] "
        f"select((p[{at}] fill -1) == index({place}), g[{at}], 0); "
        f"y[{over(i, [*g.shape[:2], *in_size])}] = z[{', '.join([*i[:2], *block[:-1], *phase, block[-1]])}]"
    )
    tensors = {"p": build.cast(at_places, g.dtype), "g": g}
    return batched(build.formula(text, tensors, name="gradient"))


def _check_places(size: Sequence[int], dtype: str) -> None:
    if dtype not in ("float32", "float64") or math.prod(size) > _MOST:
        raise NotCovered(
            f"[graph] places among {math.prod(size)} elements as numbers of type {dtype}"
        )


def _flat(at: Sequence[str], size: Sequence[int]) -> str:
    """The row-major place of indices."""
    steps = [math.prod(size[d + 1 :]) for d in range(len(size))]
    return " + ".join(f"{step} * ({where})" for step, where in zip(steps, at, strict=True))
