"""Rows of ONNX operators that move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from syno.errors import ShapeError, shown
from syno.graph.building import FLOATS, Array, NotCovered, Value
from syno.graph.functions import sampling, scattering, shapes
from syno.graph.functions.copying import dimension, iterators, over
from syno.graph.onnx_file import MOST_ELEMENTS, bad
from syno.graph.onnx_op import Op, Tensor, row
from syno.graph.onnx_reductions import place_of_greatest


@row("Shape")
def _shape(op: Op) -> Tensor:
    extents = op.shape()
    part = slice(op.get("start", 0), op.get("end", None))
    return np.array(extents[part], np.int64)


@row("Size")
def _size(op: Op) -> Tensor:
    return np.array(math.prod(op.shape()), np.int64)


@row("Reshape")
def _reshape(op: Op) -> Tensor:
    wanted, old = op.ints(1), op.shape()
    if not op.get("allowzero", 0):
        if any(extent == 0 and d >= len(old) for d, extent in enumerate(wanted)):
            raise ShapeError(f"[onnx] a shape {wanted} that keeps dimensions of {list(old)}")
        wanted = [old[d] if extent == 0 else extent for d, extent in enumerate(wanted)]
    return shapes.reshape(op.build, op.x(), wanted)


@row("Flatten")
def _flatten(op: Op) -> Tensor:
    old, axis = op.shape(), op.get("axis", 1)
    if not -len(old) <= axis <= len(old):
        raise ShapeError(f"[onnx] axis is {axis}, but the tensor has {len(old)} dimensions")
    axis += len(old) if axis < 0 else 0
    return shapes.reshape(op.build, op.x(), [math.prod(old[:axis]), math.prod(old[axis:])])


@row("Squeeze")
def _squeeze(op: Op) -> Tensor:
    dims, old = op.dims(1), op.shape()
    for d in dims or []:
        if old[dimension(d, len(old))] != 1:
            raise ShapeError(f"[onnx] dimension {d} of {list(old)} has no extent 1")
    return shapes.squeeze(op.build, op.x(), dims)


@row("Unsqueeze")
def _unsqueeze(op: Op) -> Tensor:
    return shapes.unsqueeze(op.build, op.x(), op.ints(1))


@row("Transpose")
def _transpose(op: Op) -> Tensor:
    return shapes.permute(op.build, op.x(), op.get("perm", list(range(op.rank()))[::-1]))


@row("Expand")
def _expand(op: Op) -> Tensor:
    wanted = op.ints(1)
    try:
        extents = np.broadcast_shapes(op.shape(), tuple(wanted))
    except ValueError:
        raise ShapeError(
            f"[onnx] shapes {list(op.shape())} and {shown(wanted)} do not broadcast"
        ) from None
    check_size(extents)
    return shapes.expand(op.build, op.x(), extents)


def check_size(extents: Any) -> None:
    """Raises: FormatError: more elements than any tensor may have."""
    if math.prod(extents) > MOST_ELEMENTS:
        raise bad(
            f"a tensor of shape {shown(list(extents))}; at most {MOST_ELEMENTS} elements are computed"
        )


@row("Tile")
def _tile(op: Op) -> Tensor:
    times = op.ints(1)
    if len(times) != op.rank():
        raise ShapeError(f"[onnx] {len(times)} repetitions of {op.rank()} dimensions")
    check_size([n * t for n, t in zip(op.shape(), times, strict=True)])
    return shapes.repeat(op.build, op.x(), times)


@row("Concat")
def _concat(op: Op) -> Tensor:
    if "axis" not in op.attributes:
        raise ShapeError("[onnx] Concat needs an axis")
    return shapes.cat(op.build, op.values(), op.get("axis"))


@row("Split")
def _split(op: Op) -> list[Value]:
    axis, x = op.get("axis", 0), op.x()
    extent = x.shape[dimension(axis, x.rank, "axis")]
    sizes = op.dims(1, "split")
    if sizes is None:
        count = op.get("num_outputs", op.outputs)
        if count != op.outputs:
            raise ShapeError(f"[onnx] {count} parts as {op.outputs} outputs")
        size = -(-extent // count)
        sizes = [min(size, max(0, extent - size * k)) for k in range(count)]
    return shapes.split(op.build, x, sizes, axis)


@row("Slice")
def _slice(op: Op) -> Tensor:
    starts, ends = op.ints(1), op.ints(2)
    axes = op.ints(3) if op.has(3) else list(range(len(starts)))
    steps = op.ints(4) if op.has(4) else [1] * len(starts)
    if len({len(starts), len(ends), len(axes), len(steps)}) > 1:
        raise ShapeError(
            f"[onnx] {len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps"
        )
    x = op.x()
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        extent = x.shape[dimension(axis, x.rank, "axis")]
        begin: int | None = start + extent if start < 0 else start
        stop: int | None = end + extent if end < 0 else end
        # Bounds are clamped, so that what is before the first element is not counted from the end.
        assert begin is not None and stop is not None
        if step < 0:
            begin, stop = min(max(begin, 0), extent - 1), max(stop, -1)
            stop = None if stop == -1 else stop
        else:
            begin, stop = max(begin, 0), max(stop, 0)
        x = shapes.slice(op.build, x, axis, begin, stop, step)
    return x


@row("Gather")
def _gather(op: Op) -> Tensor:
    x, axis = op.x(), op.get("axis", 0)
    array = op.known(1)
    if array is not None:
        return shapes.take(op.build, x, array, axis)
    indices = op.x(1)
    if indices.dtype not in ("int64", "int32"):
        raise NotCovered(f"[onnx] indices of type {indices.dtype}")
    return shapes.take(op.build, x, indices, axis)


@row("GatherElements")
def _gather_elements(op: Op) -> Tensor:
    array = op.known(1)
    at = op.x(1) if array is None else array
    return shapes.gather(op.build, op.x(), op.get("axis", 0), at)


@row("OneHot")
def _one_hot(op: Op) -> Tensor:
    places, depth, values = op.x(0), int(op.number(1)), op.tensor(2)
    if tuple(values.shape) != (2,) or depth < 1 or depth >= 1 << 24:
        raise ShapeError(
            f"[onnx] OneHot of {depth} classes with values of shape {list(values.shape)}"
        )
    axis = dimension(op.get("axis", -1), places.rank + 1, "axis")
    build, pair = op.build, op.x(2)
    if pair.dtype not in FLOATS or places.dtype not in ("int64", "int32", "float32"):
        raise NotCovered(f"[onnx] OneHot of {places.dtype} with values of type {pair.dtype}")
    # Whole numbers below 2^24 are exact in single precision, and larger ones stay above every class.
    p = build.cast(build.cast(places, "float32"), pair.dtype)
    names = iterators(places.rank)
    out = [*names[:axis], "k", *names[axis:]]
    extents = [*places.shape[:axis], depth, *places.shape[axis:]]
    check_size(extents)
    read = f"p[{', '.join(names)}]"
    text = (
        f"y[{over(out, extents)}] = "
        f"select({read} == index(k) or {read} + {depth} == index(k), v[1], v[0])"
    )
    return build.formula(text, {"p": p, "v": pair})


def _indices(op: Op, i: int) -> Array:
    array = op.constant(i)
    if array.dtype.kind not in "iu":
        raise ShapeError(f"[onnx] indices of type {array.dtype}")
    return array


@row("GatherND")
def _gather_nd(op: Op) -> Tensor:
    computed = op.known(1) is None
    indices: Array | Tensor = op.x(1) if computed else _indices(op, 1)
    old, batch, shape = op.shape(), op.get("batch_dims", 0), tuple(indices.shape)
    if not shape or not 0 <= batch < min(len(shape), len(old)):
        raise ShapeError(f"[onnx] indices of shape {list(shape)} of {list(old)}")
    depth, lead = shape[-1], shape[:-1]
    if batch + depth > len(old) or shape[:batch] != tuple(old[:batch]):
        raise ShapeError(f"[onnx] indices of shape {list(shape)} of {list(old)}")
    given: list[Array | Tensor | None] = [
        np.arange(lead[d]).reshape([-1 if e == d else 1 for e in range(len(lead))])
        for d in range(batch)
    ]
    given += [
        indices[..., d]
        if isinstance(indices, np.ndarray)
        else shapes.select(op.build, indices, -1, d)
        for d in range(depth)
    ]
    return shapes.index(op.build, op.x(), given)


_COMBINED = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


@row("ScatterElements")
def _scatter_elements(op: Op) -> Tensor:
    array = op.known(1)
    at = op.x(1) if array is None else _indices(op, 1)
    reduce = _COMBINED[op.get("reduction", "none")]
    return scattering.scatter(op.build, op.x(0), op.get("axis", 0), at, op.x(2), reduce)


@row("ScatterND")
def _scatter_nd(op: Op) -> Tensor:
    computed = op.known(1) is None
    indices: Array | Tensor = op.x(1) if computed else _indices(op, 1)
    depth, rank = (tuple(indices.shape) or (0,))[-1], op.rank()
    if not 1 <= depth <= rank:
        raise ShapeError(f"[onnx] indices of shape {list(indices.shape)} of {list(op.shape())}")
    picked: list[Array | Tensor | None] = [
        indices[..., d]
        if isinstance(indices, np.ndarray)
        else shapes.select(op.build, indices, -1, d)
        for d in range(depth)
    ]
    reduce = _COMBINED[op.get("reduction", "none")]
    return scattering.index_put(op.build, op.x(0), picked, op.x(2), reduce)


@row("GridSample")
def _grid_sample(op: Op) -> Tensor:
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    mode = op.get("mode", "linear")
    padding, align = op.get("padding_mode", "zeros"), bool(op.get("align_corners", 0))
    return sampling.grid_sample(op.build, op.x(0), op.x(1), modes.get(mode, mode), padding, align)


@row("Pad")
def _pad(op: Op) -> Tensor:
    x, pads = op.x(), op.ints(1)
    axes = op.ints(3) if op.has(3) else list(range(x.rank))
    if len(pads) != 2 * len(axes):
        raise ShapeError(f"[onnx] {len(pads)} paddings of {len(axes)} dimensions")
    begin, end = [0] * x.rank, [0] * x.rank
    for k, axis in enumerate(axes):
        d = dimension(axis, x.rank, "axis")
        begin[d], end[d] = pads[k], pads[len(axes) + k]
    mode = op.get("mode", "constant")
    modes = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    if mode not in modes:
        raise NotCovered(f"[onnx] padding by {shown(mode)}")
    check_size([n + max(a, 0) + max(b, 0) for n, a, b in zip(x.shape, begin, end, strict=True)])
    value = op.number(2) if op.has(2) and mode == "constant" else 0.0
    return shapes.pad(op.build, x, begin, end, modes[mode], value)


@row("DepthToSpace")
def _depth_to_space(op: Op) -> Tensor:
    x, r = op.x(), op.get("blocksize", 0)
    if x.rank != 4 or r < 1 or x.shape[1] % (r * r):
        raise ShapeError(f"[onnx] blocks of {r} of a tensor of shape {list(x.shape)}")
    b, c, h, w = x.shape
    out = [b, c // (r * r), h * r, w * r]
    if op.get("mode", "DCR") == "DCR":
        return shapes.rearrange(op.build, x, [b, r, r, c // (r * r), h, w], [0, 3, 4, 1, 5, 2], out)
    return shapes.rearrange(op.build, x, [b, c // (r * r), r, r, h, w], [0, 1, 4, 2, 5, 3], out)


@row("SpaceToDepth")
def _space_to_depth(op: Op) -> Tensor:
    x, r = op.x(), op.get("blocksize", 0)
    if x.rank != 4 or r < 1 or x.shape[2] % r or x.shape[3] % r:
        raise ShapeError(f"[onnx] blocks of {r} of a tensor of shape {list(x.shape)}")
    if op.get("mode", "DCR") != "DCR":
        raise NotCovered(f"[onnx] SpaceToDepth by {shown(op.get('mode'))}")
    b, c, h, w = x.shape
    split = [b, c, h // r, r, w // r, r]
    return shapes.rearrange(op.build, x, split, [0, 3, 5, 1, 2, 4], [b, c * r * r, h // r, w // r])


@row("Trilu")
def _trilu(op: Op) -> Tensor:
    k = int(op.number(1)) if op.has(1) else 0
    function = shapes.triu if op.get("upper", 1) else shapes.tril
    return function(op.build, op.x(), k)


@row("Compress")
def _compress(op: Op) -> Tensor:
    kept, x, axis = op.constant(1), op.x(), op.get("axis", None)
    if axis is None:
        x, axis = shapes.flatten(op.build, x), 0
    at = np.flatnonzero(kept)
    return shapes.take(op.build, x, at, axis)


@row("ReverseSequence")
def _reverse_sequence(op: Op) -> Tensor:
    x, lengths = op.x(), op.ints(1)
    time, batch = op.get("time_axis", 0), op.get("batch_axis", 1)
    if x.rank < 2 or {time, batch} != {0, 1} or len(lengths) != x.shape[batch]:
        raise ShapeError(f"[onnx] sequences of lengths {shown(lengths)} in {list(x.shape)}")
    t = np.arange(x.shape[time])[:, None]
    n = np.array(lengths, np.int64)[None, :]
    at = np.where(t < n, n - 1 - t, t)
    other = np.arange(x.shape[batch])[None, :]
    pair: list[Array | None] = [at, other] if time == 0 else [other.T, at.T]
    return shapes.index(op.build, x, pair)


@row("ConstantOfShape", "Range", "EyeLike", "NonZero", "Unique")
def _constant(op: Op) -> Tensor:
    """What is folded where its inputs are known."""
    if op.kind == "EyeLike":
        raise NotCovered("[onnx] EyeLike of a tensor that is not a constant")
    for i in range(len(op.inputs)):
        op.constant(i)
    raise NotCovered(f"[onnx] {op.kind} of these constants")


@row("Hardmax")
def _hardmax(op: Op) -> Tensor:
    x, axis = op.x(), dimension(op.get("axis", -1), op.rank(), "axis")
    place = place_of_greatest(op.build, x, axis, last=False, keepdim=True)
    names = [f"i{d}" for d in range(x.rank)]
    read = ", ".join("0" if d == axis else name for d, name in enumerate(names))
    extents = ", ".join(f"{name}: {n}" for name, n in zip(names, x.shape, strict=True))
    return op.build.formula(
        f"y[{extents}] = select(p[{read}] == index({names[axis]}), 1, 0)", {"p": place}
    )
