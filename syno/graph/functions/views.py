"""Tensors in another shape or order, or parts of them: one read at an index expression each.

Semantics are NumPy's, and PyTorch's where NumPy has no such function; negative dimensions count from the end.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from syno.errors import ShapeError, shown
from syno.graph.building import Array, Builder, Value
from syno.graph.functions.copying import (
    check_elements,
    check_readable,
    copy,
    dimension,
    dimensions,
    holds_truth,
    iterators,
    known,
    over,
)


def reshape(build: Builder, x: Value, shape: Sequence[int]) -> Value:
    """The elements of `x`, row-major, in another shape; one extent may be -1."""
    extents = with_inferred(x.shape, shape)
    return copy(
        build, x, extents, lambda i: reshaped(i, extents, x.shape), lambda a: a.reshape(extents)
    )


def with_inferred(source: Sequence[int], shape: Sequence[int]) -> list[int]:
    """A shape whose -1, if it has one, is what the number of elements leaves.

    Raises:
        ShapeError: another number of elements; more than one -1.
    """
    extents = [int(extent) for extent in shape]
    count = math.prod(source)
    unknown = [position for position, extent in enumerate(extents) if extent == -1]
    rest = math.prod(extent for extent in extents if extent != -1)
    if len(unknown) == 1 and rest > 0 and count % rest == 0:
        extents[unknown[0]] = count // rest
    if min(extents, default=0) < 0 or math.prod(extents) != count:
        raise ShapeError(
            f"[graph] a tensor of shape {list(source)} cannot be reshaped to {shown(list(shape))}"
        )
    return extents


def reshaped(i: Sequence[str], target: Sequence[int], source: Sequence[int]) -> list[str]:
    """Indices into `source` for the element at indices `i` of `target`, which has as many elements.

    Dimensions are taken together only as far as they mix, so that each index stays short.
    """
    result = ["0"] * len(source)
    here = [d for d, extent in enumerate(source) if extent != 1]
    there = [d for d, extent in enumerate(target) if extent != 1]
    a = b = 0
    while a < len(here):
        first_a, first_b = a, b
        ours, theirs = source[here[a]], target[there[b]]
        a, b = a + 1, b + 1
        while ours != theirs:
            if ours < theirs:
                ours, a = ours * source[here[a]], a + 1
            else:
                theirs, b = theirs * target[there[b]], b + 1
        flat = _flat([i[d] for d in there[first_b:b]], [target[d] for d in there[first_b:b]])
        group = here[first_a:a]
        for position, d in enumerate(group):
            stride = math.prod(source[e] for e in group[position + 1 :])
            index = flat if stride == 1 else f"({flat}) / {stride}"
            if position > 0:
                index = f"({index}) % {source[d]}"
            result[d] = index
    return result


def _flat(i: Sequence[str], extents: Sequence[int]) -> str:
    if len(i) == 1:
        return i[0]
    terms = []
    for position, name in enumerate(i):
        stride = math.prod(extents[position + 1 :])
        terms.append(f"({name})" if stride == 1 else f"{stride} * ({name})")
    return " + ".join(terms)


def permute(build: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Dimension k of the result is dimension dims[k] of `x`."""
    order = dimensions(dims, x.rank)
    if len(order) != x.rank:
        raise ShapeError(
            f"[graph] dims are {shown(list(dims))}, but the tensor has {x.rank} dimensions"
        )

    def indices(i: list[str]) -> list[str]:
        return [i[order.index(d)] for d in range(x.rank)]

    extents = [x.shape[d] for d in order]
    return copy(build, x, extents, indices, lambda a: a.transpose(order))


def transpose(build: Builder, x: Value, first: int, second: int) -> Value:
    """`x` with two dimensions swapped."""
    order = list(range(x.rank))
    a, b = dimension(first, x.rank), dimension(second, x.rank)
    order[a], order[b] = b, a
    return permute(build, x, order)


def movedim(
    build: Builder, x: Value, source: int | Sequence[int], destination: int | Sequence[int]
) -> Value:
    """`x` with dimensions `source` at `destination`, the others in their order."""
    sources = dimensions([source] if isinstance(source, int) else source, x.rank)
    places = dimensions([destination] if isinstance(destination, int) else destination, x.rank)
    if len(sources) != len(places):
        raise ShapeError(f"[graph] {len(sources)} dimensions cannot move to {len(places)} places")
    order: list[int] = [-1] * x.rank
    for d, place in zip(sources, places, strict=True):
        order[place] = d
    rest = iter(d for d in range(x.rank) if d not in sources)
    return permute(build, x, [next(rest) if d < 0 else d for d in order])


def expand(build: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` repeated along dimensions of extent 1 and in front; -1 keeps an extent."""
    new = len(shape) - x.rank
    old = [1] * max(new, 0) + list(x.shape)
    extents = [
        old[d] if extent == -1 and d >= new else int(extent)
        for d, extent in enumerate(shape[: len(old)])
    ]
    if (
        new < 0
        or min(extents, default=0) < 0
        or any(a not in (1, b) for a, b in zip(old, extents, strict=True))
    ):
        raise ShapeError(
            f"[graph] a tensor of shape {list(x.shape)} cannot be expanded to {shown(list(shape))}"
        )

    def indices(i: list[str]) -> list[str]:
        return [name if extent > 1 else "0" for name, extent in zip(i[new:], x.shape, strict=True)]

    return copy(build, x, extents, indices, lambda a: np.broadcast_to(a, extents))


def unsqueeze(build: Builder, x: Value, dims: int | Sequence[int]) -> Value:
    """`x` with dimensions of extent 1 that are `dims` of the result."""
    wanted = [dims] if isinstance(dims, int) else list(dims)
    rank = x.rank + len(wanted)
    new = dimensions(wanted, rank)
    old = iter(x.shape)
    return reshape(build, x, [1 if d in new else next(old) for d in range(rank)])


def squeeze(build: Builder, x: Value, dims: int | Sequence[int] | None = None) -> Value:
    """`x` without those of `dims` (None: of all dimensions) that have extent 1."""
    if dims is None:
        gone = list(range(x.rank))
    else:
        gone = dimensions([dims] if isinstance(dims, int) else dims, x.rank)
    return reshape(
        build, x, [extent for d, extent in enumerate(x.shape) if d not in gone or extent != 1]
    )


def flatten(build: Builder, x: Value, start: int = 0, end: int = -1) -> Value:
    """`x` with dimensions `start` to `end` as one."""
    if x.rank == 0:
        return reshape(build, x, [1])
    a, b = dimension(start, x.rank, "start"), dimension(end, x.rank, "end")
    if a > b:
        raise ShapeError(f"[graph] dimension {start} is behind {end}")
    return reshape(build, x, [*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :]])


def rearrange(
    build: Builder,
    x: Value,
    split: Sequence[int],
    order: Sequence[int],
    shape: Sequence[int],
) -> Value:
    """`x` reshaped to `split`, permuted by `order`, reshaped to `shape`: one copy."""
    apart = with_inferred(x.shape, split)
    between = [apart[d] for d in order]
    extents = with_inferred(between, shape)

    def indices(i: list[str]) -> list[str]:
        moved = reshaped(i, extents, between)
        return reshaped(
            [f"({moved[list(order).index(d)]})" for d in range(len(apart))], apart, x.shape
        )

    return copy(
        build,
        x,
        extents,
        indices,
        lambda a: a.reshape(apart).transpose(order).reshape(extents),
    )


def along(
    build: Builder,
    x: Value,
    dim: int,
    extent: int,
    index: Callable[[str], str],
    values: Callable[[Array], Any],
    *,
    fill: str = "",
) -> Value:
    """`x` read at another index of one dimension."""
    extents = [*x.shape[:dim], extent, *x.shape[dim + 1 :]]

    def indices(i: list[str]) -> list[str]:
        return [*i[:dim], index(i[dim]), *i[dim + 1 :]]

    return copy(build, x, extents, indices, values, fill=fill)


def slice(
    build: Builder, x: Value, dim: int, start: int | None, stop: int | None, step: int = 1
) -> Value:
    """`x[start:stop:step]` of dimension `dim`, as in Python; None: from the begin, to the end."""
    d = dimension(dim, x.rank)
    if step == 0:
        raise ShapeError("[graph] the step of a slice is 0")
    part = builtins.slice(start, stop, step)
    positions = range(x.shape[d])[part]
    first, n = positions.start, len(positions)
    if (first, n, step) == (0, x.shape[d], 1):
        return x
    at = (builtins.slice(None),) * d + (part,)
    return along(build, x, d, n, lambda i: multiple(step, i, first), lambda a: a[at])


def multiple(step: int, i: str, first: int) -> str:
    """`step * i + first`."""
    product = i if step == 1 else f"{step} * {i}"
    return (
        product if first == 0 else f"{product} + {first}" if first > 0 else f"{product} - {-first}"
    )


def select(build: Builder, x: Value, dim: int, index: int) -> Value:
    """`x` at one index of dimension `dim`, which goes."""
    d = dimension(dim, x.rank)
    at = dimension(index, x.shape[d], "index")
    return copy(
        build,
        x,
        [*x.shape[:d], *x.shape[d + 1 :]],
        lambda i: [*i[:d], str(at), *i[d:]],
        lambda a: a.take(at, d),
    )


def split(build: Builder, x: Value, sizes: int | Sequence[int], dim: int) -> list[Value]:
    """Parts of `x` along `dim`: of these sizes, or of this size (the last may be smaller)."""
    d = dimension(dim, x.rank)
    extent = x.shape[d]
    if isinstance(sizes, int):
        if sizes <= 0:
            raise ShapeError(f"[graph] parts of size {sizes}")
        sizes = [min(sizes, extent - begin) for begin in range(0, extent, sizes)]
    if sum(sizes) != extent or min(sizes, default=0) < 0:
        raise ShapeError(
            f"[graph] parts of sizes {shown(list(sizes))} of a dimension of extent {extent}"
        )
    ends = np.cumsum(sizes).tolist()
    return [slice(build, x, d, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def flip(build: Builder, x: Value, dims: Sequence[int]) -> Value:
    """`x` with the order of elements along `dims` reversed."""
    turned = dimensions(dims, x.rank)

    def indices(i: list[str]) -> list[str]:
        return [
            f"{extent - 1} - {name}" if d in turned else name
            for d, (name, extent) in enumerate(zip(i, x.shape, strict=True))
        ]

    return copy(build, x, x.shape, indices, lambda a: np.flip(a, tuple(turned)))


def roll(
    build: Builder, x: Value, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Value:
    """`x` rotated by `shifts` along `dims`; without `dims`, of all its elements in a row."""
    by = [shifts] if isinstance(shifts, int) else list(shifts)
    if dims is None or (not isinstance(dims, int) and not dims):
        flat = roll(build, flatten(build, x), by, [0])
        return reshape(build, flat, x.shape)
    of = [dimension(d, x.rank) for d in ([dims] if isinstance(dims, int) else dims)]
    if len(by) != len(of):
        raise ShapeError(f"[graph] {len(by)} shifts of {len(of)} dimensions")
    total = [0] * x.rank
    for d, shift in zip(of, by, strict=True):
        total[d] += shift

    def indices(i: list[str]) -> list[str]:
        return [
            f"({name} + {-shift % extent}) % {extent}" if extent and shift % extent else name
            for name, extent, shift in zip(i, x.shape, total, strict=True)
        ]

    return copy(build, x, x.shape, indices, lambda a: np.roll(a, total, tuple(range(x.rank))))


def repeat(build: Builder, x: Value, times: Sequence[int]) -> Value:
    """`x` tiled, `times[k]` times along dimension k of the result."""
    new = len(times) - x.rank
    if new < 0 or min(times, default=1) < 0:
        raise ShapeError(
            f"[graph] a tensor with {x.rank} dimensions repeated {shown(list(times))} times"
        )
    old = [1] * new + list(x.shape)
    extents = [extent * number for extent, number in zip(old, times, strict=True)]

    def indices(i: list[str]) -> list[str]:
        return [
            "0" if extent == 1 else name if number == 1 else f"{name} % {extent}"
            for name, extent, number in zip(i[new:], x.shape, times[new:], strict=True)
        ]

    return copy(build, x, extents, indices, lambda a: np.tile(a, times))


def repeat_interleave(build: Builder, x: Value, times: int, dim: int | None = None) -> Value:
    """`x` with every element along `dim` repeated; without `dim`, of all its elements in a row."""
    if dim is None:
        x, dim = flatten(build, x), 0
    d = dimension(dim, x.rank)
    if times < 0:
        raise ShapeError(f"[graph] elements repeated {times} times")
    return along(
        build, x, d, x.shape[d] * times, lambda i: f"{i} / {times}", lambda a: a.repeat(times, d)
    )


def unfold(build: Builder, x: Value, dim: int, size: int, step: int) -> Value:
    """Windows of `size` elements along `dim`, every `step`; a window's elements are the last dimension."""
    if x.rank == 0:
        x = reshape(build, x, [1])
    d = dimension(dim, x.rank)
    if not 0 <= size <= x.shape[d] or step <= 0:
        raise ShapeError(
            f"[graph] windows of {size} elements every {step} of a dimension of extent {x.shape[d]}"
        )
    extents = [*x.shape[:d], (x.shape[d] - size) // step + 1, *x.shape[d + 1 :], size]

    def values(a: Array) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(a, size, d)
        return windows[(builtins.slice(None),) * d + (builtins.slice(None, None, step),)]

    def indices(i: list[str]) -> list[str]:
        return [*i[:d], f"{multiple(step, i[d], 0)} + {i[-1]}", *i[d + 1 : -1]]

    return copy(build, x, extents, indices, values)


def tril(build: Builder, x: Value, diagonal: int = 0) -> Value:
    """The last two dimensions' lower triangle, zero above the diagonal."""
    return _triangle(build, x, f"index(K) <= index(R) + {int(diagonal)}", np.tril, diagonal)


def triu(build: Builder, x: Value, diagonal: int = 0) -> Value:
    """The last two dimensions' upper triangle, zero below the diagonal."""
    return _triangle(build, x, f"index(K) >= index(R) + {int(diagonal)}", np.triu, diagonal)


def _triangle(
    build: Builder, x: Value, kept: str, values: Callable[..., Any], diagonal: int
) -> Value:
    if x.rank < 2:
        raise ShapeError(
            f"[graph] the triangle of a tensor with {x.rank} dimensions; it needs at least 2"
        )
    array = known(build, x)
    if array is not None:
        return build.literal(values(array, diagonal), x.dtype, x.name)
    check_readable(build, x)
    check_elements(x.shape)
    i = iterators(x.rank)
    condition = kept.replace("R", i[-2]).replace("K", i[-1])
    text = f"y[{over(i, x.shape)}] = select({condition}, x[{', '.join(i)}], 0)"
    return build.formula(text, {"x": x}, boolean=holds_truth(x))


def pixel_shuffle(build: Builder, x: Value, factor: int) -> Value:
    """Channels (third dimension from the end) as blocks of `factor` x `factor` pixels."""
    if x.rank < 3 or factor < 1 or x.shape[-3] % factor**2:
        raise ShapeError(f"[graph] blocks of {factor} pixels of a tensor of shape {list(x.shape)}")
    *lead, c, h, w = x.shape
    r, n = factor, len(lead)
    order = [*range(n), n, n + 3, n + 1, n + 4, n + 2]
    return rearrange(
        build, x, [*lead, c // r**2, r, r, h, w], order, [*lead, c // r**2, h * r, w * r]
    )


def pixel_unshuffle(build: Builder, x: Value, factor: int) -> Value:
    """Blocks of `factor` x `factor` pixels as channels (third dimension from the end)."""
    if x.rank < 3 or factor < 1 or x.shape[-1] % factor or x.shape[-2] % factor:
        raise ShapeError(f"[graph] blocks of {factor} pixels of a tensor of shape {list(x.shape)}")
    *lead, c, h, w = x.shape
    r, n = factor, len(lead)
    order = [*range(n), n, n + 2, n + 4, n + 1, n + 3]
    return rearrange(
        build, x, [*lead, c, h // r, r, w // r, r], order, [*lead, c * r**2, h // r, w // r]
    )
