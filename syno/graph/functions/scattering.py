"""Elements written to places that tables of indices say: the engine's `scatter`, the reverse of its `gather`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from syno.errors import ShapeError
from syno.graph.building import Array, Builder, NotCovered, Value
from syno.graph.functions.copying import check_elements, dimension, holds_truth, iterators, over
from syno.graph.functions.indexing import gather, index
from syno.graph.functions.views import expand, permute, reshape, slice

#: How what is written meets what is there: replaces it, or is added and so on, one after the other.
REDUCTIONS = ("set", "add", "mul", "max", "min")


def _scattered(build: Builder, rows: Value, places: Value, given: Value, reduce: str) -> Value:
    attributes = json.dumps({"reduce": reduce})
    return build.call(
        "scatter", [rows, places, given], [(rows.shape, rows.dtype)], attributes=attributes
    )[0]


def _scattered_along(
    build: Builder, x: Value, axis: int, indices: Value, src: Value, reduce: str
) -> Value:
    """Elements put along a dimension to places that are known in a call alone."""
    if any(a > b for e, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True)) if e != axis):
        raise ShapeError(f"[graph] indices of shape {list(indices.shape)} of {list(x.shape)}")
    if indices.dtype not in ("int64", "int32"):
        indices = build.cast(indices, "int64")
    said = json.dumps({"axis": axis, "negative": True, "reduce": reduce})
    return build.call("scatter", [x, indices, src], [(x.shape, x.dtype)], attributes=said)[0]


def _same_type(build: Builder, x: Value, values: Value, reduce: str) -> tuple[Value, Value]:
    if reduce not in REDUCTIONS:
        raise NotCovered(f"[graph] elements combined by {reduce}")
    if holds_truth(x) and reduce != "set":
        raise NotCovered("[graph] truth values combined")
    x = build.as_itself(x)
    return x, build.cast(build.as_itself(values), x.dtype)


def index_put(
    build: Builder,
    x: Value,
    indices: Sequence[Array | Value | None],
    values: Value,
    reduce: str = "set",
) -> Value:
    """`x` where `x[indices] = values`, or combined with them; indices as `index` takes them.

    Raises:
        NotCovered: truth values or no elements; a mask that is no constant.
        ShapeError: shapes that do not broadcast; a constant index out of range.
    """
    given: list[Array | Value | None] = []
    for each in indices:
        array = build.fixed(each) if isinstance(each, Value) else each
        if array is not None and array.dtype == np.bool_:
            given += [np.asarray(part) for part in np.nonzero(array)]
        else:
            given.append(each if array is None else array)
    dims = [d for d, each in enumerate(given) if each is not None]
    if len(given) > x.rank or not dims:
        raise ShapeError(f"[graph] {len(given)} indices of a tensor with {x.rank} dimensions")
    x, values = _same_type(build, x, values, reduce)
    check_elements(x.shape, values.shape)
    extents = [x.shape[d] for d in dims]
    every = np.arange(math.prod(extents)).reshape(extents)
    # Picks by a table of all places, so that an index out of range is met as it is there.
    table = build.literal(every, "int64", "places")
    places = index(build, table, [each for each in given if each is not None])
    grid, rest = list(places.shape), [d for d in range(x.rank) if d not in dims]
    check_elements(grid)
    place = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    wanted = [x.shape[d] for d in rest]
    shape = [*wanted[:place], *grid, *wanted[place:]]
    while values.rank > len(shape) and values.shape[0] == 1:
        values = reshape(build, values, values.shape[1:])
    values = expand(build, values, shape)
    order = [*range(place, place + len(grid)), *range(place), *range(place + len(grid), len(shape))]
    values = permute(build, values, order) if place else values
    rows = permute(build, x, [*dims, *rest]) if [*dims, *rest] != list(range(x.rank)) else x
    moved = list(rows.shape)
    rows = reshape(build, rows, [math.prod(extents), *wanted])
    made = reshape(build, _scattered(build, rows, places, values, reduce), moved)
    back = [[*dims, *rest].index(d) for d in range(x.rank)]
    return permute(build, made, back) if back != list(range(x.rank)) else made


def scatter(
    build: Builder, x: Value, dim: int, indices: Array | Value, src: Value, reduce: str = "set"
) -> Value:
    """`x` with elements of `src` where `indices`, along `dim`, say (`torch.scatter`).

    Raises:
        NotCovered: truth values combined; no elements.
        ShapeError: shapes that do not fit together; a constant index out of range.
    """
    if x.rank == 0 or len(indices.shape) != x.rank or src.rank != x.rank:
        raise ShapeError(
            f"[graph] indices {list(indices.shape)} and elements {list(src.shape)} of {list(x.shape)}"
        )
    x, src = _same_type(build, x, src, reduce)
    check_elements(x.shape, indices.shape, src.shape)
    axis = dimension(dim, x.rank)
    for d, extent in enumerate(indices.shape):
        if extent > src.shape[d]:
            raise ShapeError(f"[graph] indices {list(indices.shape)} of {list(src.shape)}")
        if extent < src.shape[d]:
            src = slice(build, src, d, 0, extent)
    if isinstance(indices, Value) and build.fixed(indices) is None:
        return _scattered_along(build, x, axis, indices, src, reduce)
    every = build.literal(np.arange(math.prod(x.shape)).reshape(x.shape), "int64", "places")
    places = gather(build, every, dim, indices)
    flat = reshape(build, x, [math.prod(x.shape)])
    return reshape(build, _scattered(build, flat, places, src, reduce), x.shape)


def index_add(
    build: Builder, x: Value, dim: int, indices: Array | Value, src: Value, reduce: str = "add"
) -> Value:
    """`x` with slices of `src` added, or put, where a row of indices says along `dim`."""
    d = dimension(dim, x.rank)
    return index_put(build, x, [*[None] * d, indices], src, reduce)


def embedding_gradient(
    build: Builder, gradient: Value, indices: Array | Value, rows: int, padding: int
) -> Value:
    """The gradient of a table of `rows` rows from that of what was looked up; row `padding` has none."""
    width = gradient.shape[-1]
    zeros = build.literal(np.zeros((rows, width)), gradient.dtype, "zeros")
    if 0 <= padding < rows:
        if rows >= 1 << 24 or gradient.dtype not in ("float32", "float64"):
            raise NotCovered(f"[graph] {rows} rows told apart as {gradient.dtype}")
        at = indices if isinstance(indices, Value) else build.literal(indices, "int64", "indices")
        names = iterators(gradient.rank)
        read = f"p[{', '.join(names[:-1])}]"
        gradient = build.formula(
            f"y[{over(names, gradient.shape)}] = select({read} == {padding}, 0, g[{', '.join(names)}])",
            {"g": gradient, "p": build.cast(at, gradient.dtype)},
        )
    return index_put(build, zeros, [indices], gradient, "add")


def slice_put(
    build: Builder, x: Value, src: Value, dim: int, start: int, stop: int, step: int
) -> Value:
    """`x` with every so many elements of dimension `dim` replaced, from `start` to before `stop`."""
    names = iterators(x.rank)
    place = f"(({names[dim]} - {start}) / {step})"
    read = ", ".join(place if d == dim else name for d, name in enumerate(names))
    i = f"index({names[dim]})"
    here = f"{i} >= {start} and {i} < {stop} and index(({names[dim]} - {start}) % {step}) == 0"
    text = f"y[{over(names, x.shape)}] = select({here}, s[{read}], x[{', '.join(names)}])"
    return build.formula(text, {"x": x, "s": build.cast(src, x.dtype)})
