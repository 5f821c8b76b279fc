"""Several tensors as one, and borders around a tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syno.errors import ShapeError, shown
from syno.graph.building import Array, Builder, NotCovered, Value
from syno.graph.functions.copying import (
    check_elements,
    check_readable,
    copy,
    dimension,
    holds_truth,
    iterators,
    known,
    literal,
    over,
)
from syno.graph.functions.views import slice as sliced

#: How many tensors one program joins.
_MOST_JOINED = 64


def cat(build: Builder, xs: Sequence[Value], dim: int) -> Value:
    """Tensors one behind the other along `dim`; their other extents agree."""
    if not xs:
        raise ShapeError("[graph] no tensors to join")
    d = dimension(dim, xs[0].rank)
    # As PyTorch: a tensor of shape (0,) joins anything.
    parts = [x for x in xs if x.shape != (0,)] or [xs[0]]
    for x in parts:
        if x.rank != parts[0].rank or any(
            a != b for e, (a, b) in enumerate(zip(x.shape, parts[0].shape, strict=False)) if e != d
        ):
            raise ShapeError(
                f"[graph] tensors of shapes {shown([list(x.shape) for x in xs], 200)} cannot be "
                f"joined along dimension {dim}"
            )
    parts = [x for x in parts if x.shape[d]] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    arrays = _known(build, parts)
    if arrays is not None:
        return build.literal(np.concatenate(arrays, d), parts[0].dtype)
    while len(parts) > _MOST_JOINED:
        parts = [cat(build, parts[at : at + 32], d) for at in range(0, len(parts), 32)]
    ends = np.cumsum([x.shape[d] for x in parts]).tolist()
    i = iterators(parts[0].rank)
    reads = []
    for number, (x, end) in enumerate(zip(parts, ends, strict=True)):
        begin = end - x.shape[d]
        at = [*i[:d], f"{i[d]} - {begin}" if begin else i[d], *i[d + 1 :]]
        reads.append(f"x{number}[{', '.join(at)}]")
    extents = [*parts[0].shape[:d], ends[-1], *parts[0].shape[d + 1 :]]
    return _joined(build, parts, i, extents, _chosen(reads, ends, i[d]))


def stack(build: Builder, xs: Sequence[Value], dim: int) -> Value:
    """Tensors of one shape along a new dimension `dim`."""
    if not xs:
        raise ShapeError("[graph] no tensors to stack")
    if any(x.shape != xs[0].shape for x in xs):
        raise ShapeError(
            f"[graph] tensors of shapes {shown([list(x.shape) for x in xs], 200)} cannot be stacked"
        )
    d = dimension(dim, xs[0].rank + 1)
    arrays = _known(build, xs)
    if arrays is not None:
        return build.literal(np.stack(arrays, d), xs[0].dtype)
    if len(xs) > _MOST_JOINED:
        return cat(build, [stack(build, xs[a : a + 32], d) for a in range(0, len(xs), 32)], d)
    i = iterators(xs[0].rank + 1)
    at = ", ".join(name for e, name in enumerate(i) if e != d)
    reads = [f"x{number}[{at}]" for number in range(len(xs))]
    extents = [*xs[0].shape[:d], len(xs), *xs[0].shape[d:]]
    return _joined(build, xs, i, extents, _chosen(reads, list(range(1, len(xs) + 1)), i[d]))


def _known(build: Builder, xs: Sequence[Value]) -> list[Array] | None:
    arrays = [known(build, x) for x in xs]
    if len({x.dtype for x in xs}) > 1 or any(array is None for array in arrays):
        return None
    return [array for array in arrays if array is not None]


def _chosen(reads: Sequence[str], ends: Sequence[int], i: str) -> str:
    """The read whose part `i` is in: halves chosen between, so that few comparisons decide."""
    if len(reads) == 1:
        return reads[0]
    half = len(reads) // 2
    low, high = _chosen(reads[:half], ends[:half], i), _chosen(reads[half:], ends[half:], i)
    return f"select(index({i}) < {ends[half - 1]}, {low}, {high})"


def _joined(
    build: Builder, xs: Sequence[Value], i: Sequence[str], extents: Sequence[int], body: str
) -> Value:
    check_elements(extents)
    for x in xs:
        check_readable(build, x)
    # One tensor given twice is one input of the program.
    names: dict[str, str] = {}
    for number, x in enumerate(xs):
        first = names.setdefault(x.name, f"x{number}")
        body = body.replace(f"x{number}[", f"{first}[")
    tensors = {names[x.name]: x for x in xs}
    truth = all(holds_truth(x) for x in xs)
    return build.formula(f"y[{over(i, extents)}] = {body}", tensors, boolean=truth)


def pad(
    build: Builder,
    x: Value,
    begin: Sequence[int],
    end: Sequence[int],
    mode: str = "constant",
    value: float = 0.0,
) -> Value:
    """`x` with elements added before and behind each dimension; negative numbers take away.

    Args:
        begin, end: one number for each dimension.
        mode: what is added: `constant`, `reflect` (without the border), `replicate`, `circular`.
    """
    if len(begin) != x.rank or len(end) != x.rank:
        raise ShapeError(
            f"[graph] {len(begin)} and {len(end)} paddings of a tensor with {x.rank} dimensions"
        )
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise NotCovered(f"[graph] padding by {shown(mode)}")
    extents = [n + a + b for n, a, b in zip(x.shape, begin, end, strict=True)]
    if min(extents, default=0) < 0:
        raise ShapeError(
            f"[graph] paddings {shown(list(begin))} and {shown(list(end))} of a tensor of shape {list(x.shape)}"
        )
    if not any(begin) and not any(end):
        return x
    if mode == "constant":
        return _constant(build, x, begin, end, extents, value)
    if mode == "circular":
        # As PyTorch: what is taken away does not come back on the other side.
        stops = [n - max(0, -b) for n, b in zip(x.shape, end, strict=True)]
        x = crop(build, x, [max(0, -a) for a in begin], stops)
        begin, end = [max(0, a) for a in begin], [max(0, b) for b in end]
        return copy(
            build,
            x,
            extents,
            lambda i: [
                f"({name} + {-a % n}) % {n}" if (a, b) != (0, 0) else name
                for name, a, b, n in zip(i, begin, end, x.shape, strict=True)
            ],
            lambda array: _padded(array, begin, end, "wrap"),
        )
    for n, a, b in zip(x.shape, begin, end, strict=True):
        if mode == "reflect" and max(a, b) >= n:
            raise ShapeError(
                f"[graph] {max(a, b)} elements reflected of a dimension of extent {n}; at most {n - 1} are there"
            )
    return _mirrored(build, x, begin, end, mode)


def _constant(
    build: Builder,
    x: Value,
    begin: Sequence[int],
    end: Sequence[int],
    extents: Sequence[int],
    value: float,
) -> Value:
    fill = literal(value)
    if min(*begin, *end) < 0 and max(*begin, *end) <= 0:
        fill = ""

    def indices(i: list[str]) -> list[str]:
        return [
            f"{name} - {a}" if a > 0 else f"{name} + {-a}" if a < 0 else name
            for name, a in zip(i, begin, strict=True)
        ]

    if fill is None and known(build, x) is None:
        check_readable(build, x)
        check_elements(x.shape, extents)
        i = iterators(x.rank)
        inside = " and ".join(
            f"index({name}) >= {a} and index({name}) < {a + n}"
            for name, a, b, n in zip(i, begin, end, x.shape, strict=True)
            if (a, b) != (0, 0)
        )
        text = f"y[{over(i, extents)}] = select({inside}, x[{', '.join(indices(i))}], v[])"
        number = build.literal(value, x.dtype if x.dtype != "bool" else "")
        return build.formula(text, {"x": x, "v": number})
    return copy(
        build,
        x,
        extents,
        indices,
        lambda array: _padded(array, begin, end, "constant", constant_values=value),
        fill="" if value == 0 else fill or "",
    )


def _padded(
    array: Array, begin: Sequence[int], end: Sequence[int], mode: str, **more: float
) -> Array:
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(begin, end, strict=True)]
    padded: Array = np.pad(array, widths, mode, **more)  # type: ignore[call-overload]
    part = tuple(
        slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(begin, end, padded.shape, strict=True)
    )
    return padded[part]


def _mirrored(
    build: Builder, x: Value, begin: Sequence[int], end: Sequence[int], mode: str
) -> Value:
    """Inside, before and behind each dimension different elements are read."""
    array = known(build, x)
    if array is not None:
        numpys = {"reflect": "reflect", "replicate": "edge"}[mode]
        return build.literal(_padded(array, begin, end, numpys), x.dtype, x.name)
    check_readable(build, x)
    check_elements(x.shape)
    i = iterators(x.rank)

    def read(at: list[str]) -> str:
        """What lies at these indices of the first dimensions, whichever those of the others are."""
        d = len(at)
        if d == x.rank:
            return f"x[{', '.join(at)}]"
        n, a, b = x.shape[d], begin[d], end[d]
        before, behind = (
            (f"{a} - {i[d]}", f"{2 * n - 2 + a} - {i[d]}")
            if mode == "reflect"
            else ("0", str(n - 1))
        )
        body = read([*at, f"{i[d]} - {a}" if a > 0 else f"{i[d]} + {-a}" if a < 0 else i[d]])
        if b > 0:
            body = f"select(index({i[d]}) < {a + n}, {body}, {read([*at, behind])})"
        if a > 0:
            body = f"select(index({i[d]}) < {a}, {read([*at, before])}, {body})"
        return body

    extents = [n + a + b for n, a, b in zip(x.shape, begin, end, strict=True)]
    text = f"y[{over(i, extents)}] = {read([])}"
    return build.formula(text, {"x": x}, boolean=holds_truth(x))


def crop(build: Builder, x: Value, begin: Sequence[int], end: Sequence[int]) -> Value:
    """`x` from `begin` to `end` in each dimension."""
    for d, (a, b) in enumerate(zip(begin, end, strict=True)):
        x = sliced(build, x, d, a, b)
    return x
