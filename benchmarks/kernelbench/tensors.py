"""Reads of a scope as views of torch tensors: one dimension for each iterator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from kernelbench.scopes import (
    Affine,
    Gather,
    Index,
    NotRecognised,
    Read,
    Scope,
    iterators_of,
    table,
)

#: Tensors by name, and what makes one of them: a step of a program.
Environment = dict[str, Tensor]
Step = Callable[[Environment], Tensor]


@dataclass(frozen=True)
class Window:
    """`stride * position + dilation * tap + offset` along one dimension; either part may be missing."""

    position: str | None
    stride: int
    tap: str | None
    dilation: int
    offset: int


@dataclass(frozen=True)
class Blocks:
    """`size * block + inner`: a dimension cut into blocks."""

    block: str
    inner: str
    size: int


Dimension = str | Window | Blocks


def dimension(index: Index, size: int, scope: Scope) -> Dimension:
    """What an index of a dimension of `size` elements is. NotRecognised where it is nothing known."""
    if not isinstance(index, Affine):
        raise NotRecognised("an index that is not affine")
    extents = scope.extents
    if index.plain is not None and extents[index.plain] == size:
        return index.plain
    if any(not isinstance(term, str) or factor < 1 for term, factor in index.terms):
        raise NotRecognised(f"the index {index}")
    named = [(str(term), factor) for term, factor in index.terms]
    if len(named) == 2 and index.constant == 0:
        for (inner, one), (block, length) in (named, named[::-1]):
            covers = length * extents[block] == size
            if one == 1 and length == extents[inner] > 1 and covers:
                return Blocks(block, inner, length)
    if len(named) == 1:
        name, factor = named[0]
        if name in scope.sums:
            return Window(None, 1, name, factor, index.constant)
        return Window(name, factor, None, 1, index.constant)
    if len(named) == 2:
        inside = [item for item in named if item[0] in scope.traversal]
        rest = [item for item in named if item not in inside]
        if len(inside) == 2:  # a window whose taps are kept: the shorter one is the tap
            inside.sort(key=lambda item: -extents[item[0]])
            rest = [inside.pop()]
        if len(inside) == 1:
            (position, stride), (tap, dilation) = inside[0], rest[0]
            return Window(position, stride, tap, dilation, index.constant)
    raise NotRecognised(f"the index {index}")


def split_blocks(scope: Scope, reads: Sequence[Read]) -> tuple[Scope, list[Read], dict[str, int]]:
    """Iterators read as `o / O` or `o % O` become two, `o.0` and `o.1`; the sizes `O` by iterator.

    Indices that no view makes become gathers, with a dimension for each iterator in them.
    """
    sizes = _block_sizes(scope, reads)

    def renamed(index: Index) -> Index:
        if not isinstance(index, Affine):
            return index
        result = Affine((), index.constant)
        for term, factor in index.terms:
            name = term if isinstance(term, str) else term[0]
            if name not in sizes:
                result += Affine(((term, factor),))
            elif isinstance(term, str):
                result += Affine(((f"{name}.0", factor * sizes[name]), (f"{name}.1", factor)))
            else:
                result += Affine(((f"{name}.{0 if term[1] == '/' else 1}", factor),))
        return result

    def cut(ranges: Mapping[str, int]) -> dict[str, int]:
        result = {}
        for name, extent in ranges.items():
            if name in sizes:
                result[f"{name}.0"] = extent // sizes[name]
                result[f"{name}.1"] = sizes[name]
            else:
                result[name] = extent
        return result

    new = replace(scope, traversal=cut(scope.traversal), sums=cut(scope.sums))
    made = [
        with_gathers(Read(r.tensor, tuple(renamed(i) for i in r.indices), r.fill), new)
        for r in reads
    ]
    return new, made, sizes


def _block_sizes(scope: Scope, reads: Sequence[Read]) -> dict[str, int]:
    found: dict[str, set[int]] = {}
    general: set[str] = set()
    for index in (i for read in reads for i in read.indices):
        if isinstance(index, Affine):
            for term, _ in index.terms:
                if not isinstance(term, str):
                    found.setdefault(term[0], set()).add(term[2])
        else:
            general |= set(iterators_of(index))
    return {
        name: next(iter(sizes))
        for name, sizes in found.items()
        if name not in general and len(sizes) == 1 and scope.extents[name] % next(iter(sizes)) == 0
    }


def with_gathers(read: Read, scope: Scope) -> Read:
    """The read with gathers in the place of indices that no view makes."""
    indices: list[Index] = []
    shape: list[int] = []
    gathers = []
    for index, size in zip(read.indices, scope.shapes[read.tensor], strict=True):
        try:
            if isinstance(index, Affine) and not index.terms:
                if not 0 <= index.constant < size:
                    raise NotRecognised(f"the index {index.constant}")
            else:
                dimension(index, size, scope)
            indices.append(index)
            shape.append(size)
        except NotRecognised:
            gather = _gather(len(indices), index, size, scope)
            gathers.append(gather)
            indices += [Affine(((name, 1),)) for name in gather.iterators]
            shape += gather.extents
    return Read(read.tensor, tuple(indices), read.fill, tuple(gathers), tuple(shape))


#: Elements of an index table at most.
MOST_GATHERED = 1 << 22


def _gather(axis: int, index: Index, size: int, scope: Scope) -> Gather:
    names = tuple(iterators_of(index))
    extents = tuple(scope.extents[name] for name in names)
    if math.prod(extents) > MOST_GATHERED:
        raise NotRecognised(f"an index of {math.prod(extents)} values")
    places, valid = table(index, scope.extents)
    valid = valid & (places >= 0) & (places < size)
    if places.ndim == 1 and valid.all() and len(places) == size:
        shift = int(places[0])
        if (places == (np.arange(size) + shift) % size).all():
            return Gather(axis, names, extents, None, False, shift)
    flat = torch.from_numpy(np.where(valid, places, size).reshape(-1).copy())
    return Gather(axis, names, extents, flat, not valid.all())


def gathered(x: Tensor, read: Read) -> Tensor:
    """The tensor with the read's gathers made: dimensions as in `read.indices`."""
    for gather in read.gathers:
        if gather.places is None:
            x = torch.roll(x, -gather.shift, gather.axis)
            continue
        if gather.outside:
            x = padded(x, gather.axis, 0, 1, read.fill)
        places = gather.places if x.device == gather.places.device else gather.places.to(x.device)
        x = x.index_select(gather.axis, places).unflatten(gather.axis, gather.extents)
    return x


def padded(x: Tensor, axis: int, before: int, after: int, fill: float) -> Tensor:
    """`fill` before and after along one axis; negative amounts crop."""
    if before == after == 0:
        return x
    amounts = [0, 0] * (x.dim() - axis)
    amounts[-2:] = [before, after]
    return F.pad(x, amounts, value=fill)


def unfolded(
    x: Tensor, axis: int, window: Window, extents: Mapping[str, int], fill: float
) -> Tensor:
    """The window's positions at `axis`, its taps (when it has any) at the end."""
    positions = extents[window.position] if window.position else 1
    taps = extents[window.tap] if window.tap else 1
    reach = (taps - 1) * window.dilation + 1
    last = (positions - 1) * window.stride + reach - 1 + window.offset
    x = padded(x, axis, -window.offset, last + 1 - x.shape[axis], fill)
    x = x.unfold(axis, reach, window.stride)
    if window.dilation > 1:
        x = x[..., :: window.dilation]
    return x if window.tap else x.squeeze(-1)


def opened(x: Tensor, read: Read, scope: Scope) -> tuple[Tensor, list[str]]:
    """A view with one dimension for each iterator of the read, and their names."""
    x = gathered(x, read)
    extents = scope.extents
    names: list[str | None] = []
    taps: list[str] = []
    axis = 0
    for index in read.indices:
        if not isinstance(index, Affine):
            raise NotRecognised("an index that is neither affine nor gathered")
        if not index.terms:
            x = x.select(axis, index.constant)
            continue
        found = dimension(index, x.shape[axis], scope)
        if isinstance(found, str):
            names.append(found)
        elif isinstance(found, Blocks):
            x = x.unflatten(axis, (extents[found.block], found.size))
            names += [found.block, found.inner]
            axis += 1
        else:
            x = unfolded(x, axis, found, extents, read.fill)
            names.append(found.position)
            if found.tap:
                taps.append(found.tap)
            if found.position is None:
                x = x.squeeze(axis)
                names.pop()
                axis -= 1
        axis += 1
    kept = [name for name in names if name is not None] + taps
    if len(set(kept)) != len(kept):
        raise NotRecognised(f"an iterator twice in the read of {read.tensor}")
    return x, kept


def arranged(x: Tensor, names: Sequence[str], order: Sequence[str]) -> Tensor:
    """Dimensions in `order`, of extent 1 where the tensor has no such iterator."""
    x = x.permute([names.index(name) for name in order if name in names])
    for axis, name in enumerate(order):
        if name not in names:
            x = x.unsqueeze(axis)
    return x


def merged(x: Tensor, scope: Scope, sizes: Mapping[str, int]) -> Tensor:
    """Undoes `split_blocks` on a result that has the split traversal's dimensions."""
    if not sizes:
        return x
    shape: list[int] = []
    for name, extent in scope.traversal.items():
        stem, _, part = name.rpartition(".")
        if part == "1" and stem in sizes:
            shape[-1] *= extent
        else:
            shape.append(extent)
    return x.reshape(shape)


FUNCTIONS = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "erf": torch.erf,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "abs": torch.abs,
    "gelu": F.gelu,
    "neg": torch.neg,
}
