"""Elements picked by tables of indices: as index expressions where one says the table, otherwise as the engine's `gather`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from syno.errors import ShapeError, shown
from syno.graph.building import Array, Builder, NotCovered, Value
from syno.graph.functions.copying import check_elements, copy, dimension, iterators, known, over
from syno.graph.functions.tables import as_index
from syno.graph.functions.views import permute, reshape

_WHOLE = ("int64", "int32")


def embedding(build: Builder, table: Value, indices: Value) -> Value:
    """Rows of `table` along dimension 0, for indices of any shape; one out of range is an error at run time."""
    return take(build, table, indices, 0, negative=False)


def index_select(build: Builder, x: Value, dim: int, indices: Array | Value) -> Value:
    """`x` at these indices of dimension `dim`; a row of indices."""
    if len(indices.shape) > 1:
        raise ShapeError(f"[graph] indices of shape {list(indices.shape)}; one dimension is needed")
    if len(indices.shape) == 0:
        indices = (
            indices.reshape(1) if isinstance(indices, np.ndarray) else reshape(build, indices, [1])
        )
    return take(build, x, indices, dim, negative=False)


def take(
    build: Builder, x: Value, indices: Array | Value, dim: int, *, negative: bool = True
) -> Value:
    """`x` at indices of any shape along dimension `dim`: their dimensions stand where it stood.

    Args:
        negative: whether negative indices count from the end.
    Raises:
        NotCovered: indices that are no whole numbers.
        ShapeError: a constant index is out of range.
    """
    d = dimension(dim, x.rank)
    if isinstance(indices, Value):
        array = build.fixed(indices)
        if array is None:
            return _rows_at(build, x, indices, d, negative)
        indices = array
    indices = _in_range(np.asarray(indices), x.shape[d], negative)
    return index(build, x, [None] * d + [indices])


def _rows_at(build: Builder, x: Value, indices: Value, d: int, negative: bool) -> Value:
    if indices.dtype not in _WHOLE:
        raise NotCovered(f"[graph] indices of type {indices.dtype}")
    check_elements(x.shape, indices.shape)
    return _rows_of(build, x, indices, d, negative)


def _rows_of(build: Builder, x: Value, indices: Value, d: int, negative: bool = False) -> Value:
    """The engine's rows of dimension `d`: in the place of that dimension those of the indices."""
    x = build.as_itself(x)
    said: dict[str, int | bool] = {"negative": True} if negative else {}
    if d:
        said["dim"] = d
    shape = [*x.shape[:d], *indices.shape, *x.shape[d + 1 :]]
    return build.call("gather", [x, indices], [(shape, x.dtype)], attributes=json.dumps(said))[0]


def _to_front(build: Builder, x: Value, dims: Sequence[int]) -> Value:
    order = [*dims, *(d for d in range(x.rank) if d not in dims)]
    return x if order == list(range(x.rank)) else permute(build, x, order)


def _in_range(indices: Array, extent: int, negative: bool = True) -> Array:
    if indices.dtype.kind not in "iu":
        raise NotCovered(f"[graph] indices of type {indices.dtype}")
    indices = indices.astype(np.int64)
    least = -extent if negative else 0
    if indices.size and (indices.min() < least or indices.max() >= extent):
        wrong = indices[(indices < least) | (indices >= extent)][0]
        raise ShapeError(f"[graph] index {wrong} of a dimension of extent {extent}")
    return np.where(indices < 0, indices + extent, indices)


def index(build: Builder, x: Value, indices: Sequence[Array | Value | None]) -> Value:
    """`x[indices]` as in NumPy: None takes a whole dimension; constant arrays of whole numbers or truth values pick,
    and whole numbers that the network computes, of which one that is out of range is an error at run time.

    Raises:
        ShapeError: a constant index out of range; shapes that do not broadcast.
        NotCovered: a tensor without elements; a mask that is no constant.
    """
    given: list[Array | None] = []
    for each in indices:
        array = build.fixed(each) if isinstance(each, Value) else each
        if array is None and each is not None:
            return _at_computed(build, x, indices)
        given.append(array)
    arrays = _of_whole_numbers(x, given)
    picked = [d for d, array in enumerate(arrays) if array is not None]
    if not picked:
        return x
    try:
        grid = np.broadcast_shapes(*(array.shape for array in arrays if array is not None))
    except ValueError:
        shapes = [list(array.shape) for array in arrays if array is not None]
        raise ShapeError(f"[graph] indices of shapes {shown(shapes)} do not broadcast") from None
    adjacent = picked == list(range(picked[0], picked[-1] + 1))
    place = picked[0] if adjacent else 0
    rest = [d for d in range(x.rank) if d not in picked]
    before = [d for d in rest if d < place]
    behind = [d for d in rest if d >= place]
    extents = [*(x.shape[d] for d in before), *grid, *(x.shape[d] for d in behind)]
    whole = {d: array for d, array in enumerate(arrays) if array is not None}
    if known(build, x) is None:
        check_elements(x.shape, extents)

    names = [f"i{k}" for k in range(len(extents))]
    of_grid = names[len(before) : len(before) + len(grid)]
    found = {d: _expression(array, grid, of_grid) for d, array in whole.items()}
    if known(build, x) is None and any(each is None for each in found.values()):
        return _gathered(build, x, whole, grid, place)
    kept = dict(
        zip(
            [*before, *behind],
            [*names[: len(before)], *names[len(before) + len(grid) :]],
            strict=True,
        )
    )

    def at(i: list[str]) -> list[str]:
        assert i == names
        return [kept[d] if d in kept else str(found[d]) for d in range(x.rank)]

    key = tuple(slice(None) if array is None else array for array in arrays)
    return copy(build, x, extents, at, lambda a: a[key])


def _of_whole_numbers(x: Value, indices: Sequence[Array | None]) -> list[Array | None]:
    result: list[Array | None] = []
    for each in indices:
        if each is None:
            result.append(None)
            continue
        array = np.asarray(each)
        d = len(result)
        if array.dtype == np.bool_:
            if d + array.ndim > x.rank or array.shape != x.shape[d : d + array.ndim]:
                raise ShapeError(f"[graph] a mask of shape {list(array.shape)} of {list(x.shape)}")
            result += [np.asarray(part) for part in np.nonzero(array)]
        else:
            if d >= x.rank:
                raise ShapeError(f"[graph] more indices than the tensor has dimensions: {x.rank}")
            result.append(_in_range(array, x.shape[d]))
    if len(result) > x.rank:
        raise ShapeError(f"[graph] {len(result)} indices of a tensor with {x.rank} dimensions")
    return result


def _expression(array: Array, grid: Sequence[int], names: Sequence[str]) -> str | None:
    """The indices as a formula of the grid's iterators: one of each added up, or of all as one number."""
    if array.size == 0:
        return "0"
    full = np.broadcast_to(array, grid) if grid else array
    if full.ndim == 0:
        return str(int(full))
    corner = int(full[(0,) * full.ndim])
    lines, parts = np.full((1,) * full.ndim, corner, np.int64), []
    for axis, name in enumerate(names):
        at = tuple(slice(None) if a == axis else 0 for a in range(full.ndim))
        line = full[at]
        if (line == corner).all():
            continue
        lines = lines + (line - corner).reshape([-1 if a == axis else 1 for a in range(full.ndim)])
        parts.append((name, line))
    if (lines == full).all():
        if not parts:
            return str(corner)
        written = [
            as_index(line if k == 0 else line - corner, name)
            for k, (name, line) in enumerate(parts)
        ]
        if all(each is not None for each in written):
            return " + ".join(f"({each})" for each in written)
    if full.ndim > 1 and full.size <= 1 << 16:
        strides = [math.prod(grid[a + 1 :]) for a in range(full.ndim)]
        flat = " + ".join(f"{stride} * {name}" for stride, name in zip(strides, names, strict=True))
        return as_index(full.reshape(-1), f"({flat})")
    return None


def _gathered(
    build: Builder, x: Value, indices: dict[int, Array], grid: Sequence[int], place: int
) -> Value:
    dims = list(indices)
    extents = [x.shape[d] for d in dims]
    flat = np.zeros(tuple(grid), np.int64)
    for d, extent in zip(dims, extents, strict=True):
        flat = flat * extent + indices[d]
    rows = _joined_dims(build, x, dims)
    return _rows_of(build, rows, build.literal(flat, "int64", "indices"), place)


def _joined_dims(build: Builder, x: Value, dims: Sequence[int]) -> Value:
    """These dimensions as one, in their place where they follow each other, otherwise in front."""
    place = dims[0] if list(dims) == list(range(dims[0], dims[-1] + 1)) else 0
    if len(dims) == 1:
        return x
    if place == 0:
        x = _to_front(build, x, dims)
    count = math.prod(x.shape[place : place + len(dims)])
    return reshape(build, x, [*x.shape[:place], count, *x.shape[place + len(dims) :]])


def _at_computed(build: Builder, x: Value, indices: Sequence[Array | Value | None]) -> Value:
    """As `index`, where some indices are computed: rows at places that a program adds up, exactly, in double
    precision."""
    given: list[Array | Value | None] = []
    for each in indices:
        if isinstance(each, np.ndarray) and each.dtype == np.bool_:
            given += [np.asarray(part) for part in np.nonzero(each)]
        else:
            given.append(each)
    if len(given) > x.rank:
        raise ShapeError(f"[graph] {len(given)} indices of a tensor with {x.rank} dimensions")
    picked: dict[int, Value] = {}
    for d, each in enumerate(given):
        if isinstance(each, Value):
            if each.dtype not in _WHOLE:
                raise NotCovered(f"[graph] indices of type {each.dtype} that are no constants")
            picked[d] = each
        elif each is not None:
            picked[d] = build.literal(_in_range(each, x.shape[d]), "int64", "indices")
    dims = list(picked)
    try:
        grid = np.broadcast_shapes(*(value.shape for value in picked.values()))
    except ValueError:
        shapes = [list(value.shape) for value in picked.values()]
        raise ShapeError(f"[graph] indices of shapes {shown(shapes)} do not broadcast") from None
    place = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    if len(dims) == 1:
        return _rows_at(build, x, picked[dims[0]], dims[0], negative=True)
    check_elements(x.shape, grid)
    extents = [x.shape[d] for d in dims]
    names = iterators(max(len(grid), 1))
    flat, inside = "0", []
    for d, value in picked.items():
        lead = len(grid) - value.rank
        at = [name if value.shape[k] > 1 else "0" for k, name in enumerate(names[lead : len(grid)])]
        read = f"p{d}[{', '.join(at or ['0'])}]"
        flat = f"({flat}) * {x.shape[d]} + select({read} < 0, {read} + {x.shape[d]}, {read})"
        inside.append(f"{read} >= {-x.shape[d]} and {read} < {x.shape[d]}")
    # What is out of range stays so, and is an error at run time.
    text = f"y[{over(names, grid or [1])}] = select({' and '.join(inside)}, {flat}, {math.prod(extents)})"
    tensors = {
        f"p{d}": build.cast(value if value.rank else reshape(build, value, [1]), "float64")
        for d, value in picked.items()
    }
    places = build.cast(build.formula(text, tensors, dtype="float64"), "int64")
    made = _rows_of(build, _joined_dims(build, x, dims), places, place)
    return made if grid else reshape(build, made, [*made.shape[:place], *made.shape[place + 1 :]])


def gather(build: Builder, x: Value, dim: int, indices: Array | Value) -> Value:
    """The element of `x` at every index of `indices`, which replaces the position along `dim` (`torch.gather`).

    Raises:
        ShapeError: shapes that do not fit together; a constant index that is out of range.
    """
    if x.rank == 0 or len(indices.shape) != x.rank:
        raise ShapeError(
            f"[graph] indices with {len(indices.shape)} dimensions of a tensor with {x.rank}"
        )
    d = dimension(dim, x.rank)
    if any(a > b for e, (a, b) in enumerate(zip(indices.shape, x.shape, strict=True)) if e != d):
        raise ShapeError(f"[graph] indices of shape {list(indices.shape)} of {list(x.shape)}")
    if isinstance(indices, Value):
        array = build.fixed(indices)
        if array is None:
            return _elements_at(build, x, d, indices)
        indices = array
    positions: list[Array | None] = list(np.indices(indices.shape, sparse=True))
    positions[d] = _in_range(indices, x.shape[d])
    return index(build, x, positions)


def _elements_at(build: Builder, x: Value, d: int, indices: Value) -> Value:
    """Elements along a dimension, at places that are known in a call alone."""
    if indices.dtype not in _WHOLE:
        raise NotCovered(f"[graph] indices of type {indices.dtype}")
    check_elements(x.shape, indices.shape)
    if indices.dtype not in ("int64", "int32"):
        indices = build.cast(indices, "int64")
    x = build.as_itself(x)
    said = json.dumps({"axis": d, "negative": True})
    return build.call("gather", [x, indices], [(indices.shape, x.dtype)], attributes=said)[0]
