"""Rows of ATen's functions of shapes: views, joins, borders, elements by index, up-sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from syno.graph.aten_rows import Arguments, Made, Row
from syno.graph.building import Array, Builder, NotCovered, Value
from syno.graph.functions import elementwise, sampling, scattering, shapes
from syno.graph.functions.copying import copy
from syno.graph.functions.formulas import is_truth


def _to_shape(function: Any) -> Row:
    """Views whose result's shape says all."""

    def row(build: Builder, a: Arguments) -> Value:
        made: Value = function(build, a["self"], list(a.shapes[0] or ()))
        return made

    return row


def _slice(build: Builder, a: Arguments) -> Value:
    x: Value = a["self"]
    extent = x.shape[a.dim]
    start, stop = (_place(n, extent, usual) for n, usual in ((a.start, 0), (a.end, extent)))
    if stop <= start:
        raise NotCovered("[graph] a tensor without elements")
    return shapes.slice(build, x, a.dim, start, stop, a.step)


def _place(given: int | None, extent: int, usual: int) -> int:
    """A bound of a slice as one between 0 and the extent."""
    if given is None:
        return usual
    return min(max(given + extent if given < 0 else given, 0), extent)


def _split(build: Builder, a: Arguments) -> Made:
    sizes = a.named.get("split_size", a.named.get("split_sizes"))
    return _pieces(build, a["self"], [s[a.dim] for s in a.shapes if s is not None], a.dim, sizes)


def _chunk(build: Builder, a: Arguments) -> Made:
    return _pieces(build, a["self"], [s[a.dim] for s in a.shapes if s is not None], a.dim, None)


def _pieces(build: Builder, x: Value, sizes: Sequence[int], dim: int, given: Any) -> Made:
    if 0 in sizes:
        raise NotCovered("[graph] a tensor without elements")
    return shapes.split(build, x, list(sizes), dim)


def _unbind(build: Builder, a: Arguments) -> Made:
    x: Value = a["self"]
    return [shapes.select(build, x, a.dim, n) for n in range(x.shape[a.dim])]


def _cat(build: Builder, a: Arguments) -> Value:
    tensors = [t for t in a.tensors if t.shape != (0,)]  # which torch.cat skips
    return shapes.cat(build, tensors, a.dim)


def _transpose(build: Builder, a: Arguments) -> Value:
    return shapes.transpose(build, a["self"], a.dim0, a.dim1)


def _matrix_transpose(build: Builder, a: Arguments) -> Value:
    x: Value = a["self"]
    return x if x.rank < 2 else shapes.transpose(build, x, -2, -1)


def _pad(build: Builder, a: Arguments) -> Value:
    x: Value = a["self"]
    value = a.named.get("value")
    return _padded(
        build, x, a.named["pad"], a.named.get("mode", "constant"), 0.0 if value is None else value
    )


def _border(mode: str) -> Row:
    return lambda build, a: _padded(build, a["self"], a.padding, mode, 0.0)


def _padded(build: Builder, x: Value, pads: Sequence[int], mode: str, value: float) -> Value:
    """Pads as PyTorch has them: before and behind, from the last dimension on."""
    begin, end = [0] * x.rank, [0] * x.rank
    for n in range(len(pads) // 2):
        begin[-1 - n], end[-1 - n] = pads[2 * n], pads[2 * n + 1]
    return shapes.pad(build, x, begin, end, mode, float(value))


def _indices(build: Builder, value: Value) -> Array | Value:
    """Constants as such; what is computed as it is. Truth values that are computed pick as many as are true."""
    array = build.fixed(value)
    if array is not None:
        return array if array.dtype == np.bool_ else array.astype(np.int64)
    if value.dtype == "bool" or value.boolean:
        raise NotCovered("[graph] elements where a mask is true that is no constant")
    return value


def _index(build: Builder, a: Arguments) -> Value:
    picked = [None if value is None else _indices(build, value) for value in a.indices]
    return shapes.index(build, a["self"], picked)


def _index_select(build: Builder, a: Arguments) -> Value:
    return shapes.index_select(build, a["self"], a.dim, _indices(build, a.index))


def _gather(build: Builder, a: Arguments) -> Value:
    return shapes.gather(build, a["self"], a.dim, _indices(build, a.index))


def _embedding(build: Builder, a: Arguments) -> Value:
    return shapes.embedding(build, a.weight, a.named["indices"])


def _roll(build: Builder, a: Arguments) -> Value:
    x: Value = a["self"]
    if not a.dims:
        flat = shapes.roll(build, shapes.flatten(build, x), a.shifts[0], 0)
        return shapes.reshape(build, flat, x.shape)
    return shapes.roll(build, x, list(a.shifts), list(a.dims))


def _diagonal(build: Builder, a: Arguments) -> Value:
    x: Value = a["self"]
    first, second = a.dim1 % x.rank, a.dim2 % x.rank
    moved = shapes.movedim(build, x, [first, second], [-2, -1])
    count = (a.shapes[0] or (0,))[-1]
    if not count:
        raise NotCovered("[graph] a tensor without elements")
    steps = np.arange(count)
    rows, columns = steps + max(0, -a.offset), steps + max(0, a.offset)
    return shapes.index(build, moved, [None] * (x.rank - 2) + [rows, columns])


def _scattered(build: Builder, a: Arguments, start: int, stop: int, src: Value) -> Value:
    """`self` with what is between two places along a dimension replaced."""
    x: Value = a["self"]
    dim, extent = a.dim % x.rank, x.shape[a.dim % x.rank]
    parts = []
    if start > 0:
        parts.append(shapes.slice(build, x, dim, 0, start))
    parts.append(src)
    if stop < extent:
        parts.append(shapes.slice(build, x, dim, stop, extent))
    return shapes.cat(build, parts, dim) if len(parts) > 1 else src


def _as_strided(build: Builder, a: Arguments) -> Value:
    """Places in memory: known where the tensor lies row-major there."""
    x: Value = a["self"]
    if not a.row_major:
        raise NotCovered("[graph] places in the memory of a tensor that does not lie row-major")
    extents, strides, begin = list(a.size), list(a.stride), int(a.named.get("storage_offset") or 0)

    def places(i: list[str]) -> list[str]:
        parts = [f"{stride} * {name}" for stride, name in zip(strides, i, strict=True)]
        return [" + ".join([str(begin), *parts])]

    def elements(array: Array) -> Array:
        size = array.itemsize
        return np.lib.stride_tricks.as_strided(
            array[begin:], extents, [stride * size for stride in strides], writeable=False
        )

    last = begin + sum(stride * (n - 1) for stride, n in zip(strides, extents, strict=True))
    if 0 in extents or not 0 <= last < math.prod(x.shape):
        raise NotCovered(f"[graph] {extents} elements at {strides} from {begin}")
    return copy(build, shapes.flatten(build, x), extents, places, elements)


def _select_scatter(build: Builder, a: Arguments) -> Value:
    x: Value = a["self"]
    at = a.index % x.shape[a.dim]
    return _scattered(build, a, at, at + 1, shapes.unsqueeze(build, a.src, a.dim % x.rank))


def _slice_scatter(build: Builder, a: Arguments) -> Value:
    x: Value = a["self"]
    extent = x.shape[a.dim]
    start, stop = (_place(n, extent, usual) for n, usual in ((a.start, 0), (a.end, extent)))
    if stop <= start:
        return x
    dim, count = a.dim % x.rank, -(-(stop - start) // a.step)
    src = shapes.expand(build, a.src, [count if d == dim else n for d, n in enumerate(x.shape)])
    if a.step != 1:
        return scattering.slice_put(build, x, src, dim, start, stop, a.step)
    return _scattered(build, a, start, stop, src)


def _index_put(build: Builder, a: Arguments) -> Value:
    x: Value = a["self"]
    mask = a.indices[0] if len(a.indices) == 1 else None
    one = math.prod(a["values"].shape) == 1
    if isinstance(mask, Value) and build.fixed(mask) is None and is_truth(mask):
        if not one or a.accumulate or mask.rank > x.rank:
            raise NotCovered("[graph] elements written where a mask is true that is no constant")
        mask = shapes.reshape(build, mask, [*mask.shape, *[1] * (x.rank - mask.rank)])
        return elementwise.where(build, mask, shapes.reshape(build, a["values"], []), x)
    picked = [None if value is None else _indices(build, value) for value in a.indices]
    reduce = "add" if a.accumulate else "set"
    return scattering.index_put(build, x, picked, a["values"], reduce)


def _scatter(reduce: str) -> Row:
    def row(build: Builder, a: Arguments) -> Value:
        x: Value = a["self"]
        at = _indices(build, a.index)
        src = a.named.get("src")
        if src is None:
            src = build.literal(np.full(at.shape, a.value), x.dtype, "value")
        return scattering.scatter(build, x, a.dim, at, src, reduce)

    return row


_BY_NAME = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


def _scatter_reduce(build: Builder, a: Arguments) -> Made:
    if not a.include_self or a.reduce not in _BY_NAME:
        raise NotCovered(f"[graph] elements combined by {a.reduce}, or without those there are")
    made: Made = _scatter(_BY_NAME[a.reduce])(build, a)
    return made


def _index_add(reduce: str) -> Row:
    def row(build: Builder, a: Arguments) -> Value:
        src: Value = a.source
        if a.named.get("alpha", 1) != 1:
            src = elementwise.mul(build, src, a.alpha)
        return scattering.index_add(build, a["self"], a.dim, _indices(build, a.index), src, reduce)

    return row


def _embedding_gradient(build: Builder, a: Arguments) -> Value:
    if a.scale_grad_by_freq:
        raise NotCovered("[graph] gradients of a table by how often a row is used")
    at = _indices(build, a.named["indices"])
    return scattering.embedding_gradient(build, a.grad_output, at, a.num_weights, a.padding_idx)


def _grid_sampler(build: Builder, a: Arguments) -> Value:
    mode = sampling.MODES[a.interpolation_mode]
    padding = sampling.PADDINGS[a.padding_mode]
    return sampling.grid_sample(build, a.named["input"], a.grid, mode, padding, a.align_corners)


def _upsample(mode: str) -> Row:
    def row(build: Builder, a: Arguments) -> Value:
        x: Value = a.named["input"] if "input" in a.named else a["self"]
        size = list((a.shapes[0] or ())[2:])
        named = ("scales_d", "scales_h", "scales_w", "scales")
        scales = a.named.get("scale_factors")
        if scales is None:
            scales = [a.named[name] for name in named if name in a.named]
        given = list(scales) if scales is not None and any(s is not None for s in scales) else None
        return shapes.upsample(build, x, size, mode, a.named.get("align_corners"), given)

    return row


_MODES = {
    "upsample_nearest{}d": ("nearest", (1, 2, 3)),
    "_upsample_nearest_exact{}d": ("nearest-exact", (1, 2, 3)),
    "upsample_linear{}d": ("linear", (1,)),
    "upsample_bilinear{}d": ("bilinear", (2,)),
    "upsample_trilinear{}d": ("trilinear", (3,)),
    "upsample_bicubic{}d": ("bicubic", (2,)),
}

SHAPES: dict[str, Row] = {
    **{
        name: _to_shape(shapes.reshape)
        for name in (
            "view.default", "reshape.default", "_unsafe_view.default", "_reshape_copy.default", "squeeze.default",
            "squeeze.dim", "squeeze.dims", "unsqueeze.default", "flatten.using_ints", "unflatten.int",
            "view_copy.default", "ravel.default", "_reshape_alias.default", "view_as.default",
        )
    },
    **{name: _to_shape(shapes.expand) for name in ("expand.default", "expand_as.default", "broadcast_to.default", "expand_copy.default")},
    "permute.default": lambda build, a: shapes.permute(build, a["self"], list(a.dims)),
    "permute_copy.default": lambda build, a: shapes.permute(build, a["self"], list(a.dims)),
    "transpose.int": _transpose,
    "swapaxes.default": lambda build, a: shapes.transpose(build, a["self"], a.axis0, a.axis1),
    "t.default": _matrix_transpose,
    "numpy_T.default": lambda build, a: shapes.permute(build, a["self"], list(range(a["self"].rank))[::-1]),
    "mT.default": _matrix_transpose,
    "movedim.intlist": lambda build, a: shapes.movedim(build, a["self"], list(a.source), list(a.destination)),
    "movedim.int": lambda build, a: shapes.movedim(build, a["self"], [a.source], [a.destination]),
    "slice.Tensor": _slice,
    "narrow.default": lambda build, a: shapes.slice(build, a["self"], a.dim, a.start, a.start + a.length),
    "select.int": lambda build, a: shapes.select(build, a["self"], a.dim, a.index),
    "split.Tensor": _split,
    "split_with_sizes.default": _split,
    "chunk.default": _chunk,
    "unbind.int": _unbind,
    "cat.default": _cat,
    "stack.default": lambda build, a: shapes.stack(build, a.tensors, a.dim),
    "pad.default": _pad,
    "constant_pad_nd.default": _pad,
    **{f"reflection_pad{n}d.default": _border("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d.default": _border("replicate") for n in (1, 2, 3)},
    "flip.default": lambda build, a: shapes.flip(build, a["self"], list(a.dims)),
    "roll.default": _roll,
    "repeat.default": lambda build, a: shapes.repeat(build, a["self"], list(a.repeats)),
    "tile.default": lambda build, a: shapes.repeat(build, a["self"], _leading(a["self"], a.dims)),
    "repeat_interleave.self_int": lambda build, a: shapes.repeat_interleave(build, a["self"], a.repeats, a.dim),
    "unfold.default": lambda build, a: shapes.unfold(build, a["self"], a.dimension, a.size, a.step),
    "tril.default": lambda build, a: shapes.tril(build, a["self"], a.diagonal),
    "triu.default": lambda build, a: shapes.triu(build, a["self"], a.diagonal),
    "pixel_shuffle.default": lambda build, a: shapes.pixel_shuffle(build, a["self"], a.upscale_factor),
    "pixel_unshuffle.default": lambda build, a: shapes.pixel_unshuffle(build, a["self"], a.downscale_factor),
    "index.Tensor": _index,
    "_unsafe_index.Tensor": _index,
    "index_select.default": _index_select,
    "gather.default": _gather,
    "embedding.default": _embedding,
    "diagonal.default": _diagonal,
    "as_strided.default": _as_strided,
    "select_scatter.default": _select_scatter,
    "slice_scatter.default": _slice_scatter,
    "index_put.default": _index_put,
    "_unsafe_index_put.default": _index_put,
    "scatter.src": _scatter("set"),
    "scatter.value": _scatter("set"),
    "scatter_add.default": _scatter("add"),
    "scatter_reduce.two": _scatter_reduce,
    "index_add.default": _index_add("add"),
    "index_copy.default": _index_add("set"),
    "embedding_dense_backward.default": _embedding_gradient,
    **{f"grid_sampler{kind}.default": _grid_sampler for kind in ("", "_2d", "_3d")},
    **{
        f"{name.format(rank)}.{overload}": _upsample(mode)
        for name, (mode, ranks) in _MODES.items()
        for rank in ranks
        for overload in ("default", "vec")
    },
}  # fmt: skip


def _leading(x: Value, times: Sequence[int]) -> list[int]:
    return [1] * (x.rank - len(times)) + list(times)
