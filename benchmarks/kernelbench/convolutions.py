"""Convolutions recognised in a scope: data with windows and a weight, or a gather where a stride divides."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from kernelbench.scopes import (
    Affine,
    NotRecognised,
    Read,
    Scope,
    Transposed,
    iterators_of,
)
from kernelbench.tensors import (
    Blocks,
    Dimension,
    Environment,
    Step,
    Window,
    arranged,
    dimension,
    gathered,
    merged,
    opened,
    padded,
    split_blocks,
)


@dataclass
class Convolution:
    """One `F.convNd` with the views around it; a bias along the output channels may be added."""

    scope: Scope
    x: Read
    k: Read
    sizes: Mapping[str, int]
    scale: float
    spatial: list[Window] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    channels: list[str] = field(default_factory=list)
    out: list[str] = field(default_factory=list)
    dimensions: list[Dimension] = field(default_factory=list)
    """Of the data, in order."""
    bias: str | None = None

    @property
    def kept_taps(self) -> list[str]:
        """Taps that the output keeps: channels of their own, one weight in `taps` of them not zero."""
        return [w.tap for w in self.spatial if w.tap in self.scope.traversal and w.tap]

    def __call__(self, values: Environment) -> Tensor:
        extents = self.scope.extents
        x, k = self._input(values[self.x.tensor]), self._weight(values[self.k.tensor])
        padding, stride, dilation = [], [], []
        for i, window in enumerate(self.spatial):
            positions = extents[window.position] if window.position else 1
            taps = extents[window.tap] if window.tap else 1
            size, pad = x.shape[2 + i], -window.offset
            made = (size + 2 * pad - (taps - 1) * window.dilation - 1) // window.stride + 1
            if pad < 0 or made != positions:
                reach = (positions - 1) * window.stride + (taps - 1) * window.dilation + 1
                x, pad = padded(x, 2 + i, pad, reach - pad - size, 0.0), 0
            padding.append(pad)
            stride.append(window.stride)
            dilation.append(window.dilation)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[len(self.spatial) - 1]
        groups = math.prod(extents[name] for name in self.groups)
        bias = values[self.bias] if self.bias else None
        y = convolve(x, k, bias, stride, padding, dilation, groups)
        names = [*self.free, *self.groups, *self.out, *self.kept_taps]
        names += [w.position for w in self.spatial if w.position]
        y = y.reshape([extents[name] for name in names])
        y = y.permute([names.index(name) for name in self.scope.traversal])
        y = merged(y, self.scope, self.sizes)
        return y if self.scale == 1 else y * self.scale

    def _input(self, x: Tensor) -> Tensor:
        x = gathered(x, self.x)
        extents = self.scope.extents
        names: list[object] = []
        axis = 0
        for found in self.dimensions:
            if isinstance(found, Blocks):
                x = x.unflatten(axis, (extents[found.block], found.size))
                names += [found.block, found.inner]
                axis += 1
            else:
                names.append(found)
            axis += 1
        # A plain dimension stands for the window of one tap that was made of it.
        place = {name: i for i, name in enumerate(names)}
        order = [place[name] for name in (*self.free, *self.groups, *self.channels)]
        order += [place[w] if w in place else place[w.position] for w in self.spatial]
        x = x.permute(order)
        count = len(self.spatial)
        shape = [
            math.prod(extents[name] for name in self.free),
            math.prod(extents[name] for name in (*self.groups, *self.channels)),
            *x.shape[x.dim() - count :],
        ]
        return x.reshape(shape)

    def _weight(self, k: Tensor) -> Tensor:
        extents = self.scope.extents
        k, names = opened(k, self.k, self.scope)
        taps = [w.tap for w in self.spatial]
        order = [*self.groups, *self.out, *self.channels, *(tap for tap in taps if tap)]
        k = arranged(k, names, order).expand([extents[name] for name in order])
        for i, tap in enumerate(self.kept_taps):  # the output's own copy of it, before the channels
            kept, place = len(self.groups) + len(self.out) + i, order.index(tap)
            k = torch.diag_embed(k.movedim(place, -1)).movedim((-2, -1), (kept, place + 1))
            order.insert(kept, f"kept {tap}")
        rows = (*self.groups, *self.out, *self.kept_taps)
        return k.reshape(
            math.prod(extents[name] for name in rows),
            math.prod(extents[name] for name in self.channels),
            *(extents[tap] if tap else 1 for tap in taps),
        )

    @property
    def output_channel(self) -> str | None:
        """The traversal iterator that a bias would have."""
        whole = {name.split(".")[0] for name in (*self.groups, *self.out)}
        return whole.pop() if len(whole) == 1 and not self.kept_taps else None

    @property
    def call(self) -> str:
        return f"conv{len(self.spatial)}d"


def convolution(scope: Scope) -> Convolution:
    """A sum over a product of data and weight, with windows on the data."""
    if scope.reduction != "sum":
        raise NotRecognised("no sum")
    reads, scale = scope.product()
    if len(reads) != 2:
        raise NotRecognised(f"{len(reads)} factors")
    reason = NotRecognised("nothing to convolve")
    for x, k in (reads, reads[::-1]):
        try:
            return _convolution(scope, x, k, scale)
        except NotRecognised as error:
            reason = error
    raise reason


def _convolution(scope: Scope, x: Read, k: Read, scale: float) -> Convolution:
    scope, (x, k), sizes = split_blocks(scope, (x, k))
    if x.fill or any(not isinstance(i, Affine) for i in (*x.indices, *k.indices)):
        raise NotRecognised("no convolution")
    names = [name for index in x.indices for name in iterators_of(index)]
    if len(set(names)) < len(names):
        raise NotRecognised(f"an iterator twice in the read of {x.tensor}")
    weight: set[str] = set()
    for index, size in zip(k.indices, k.shape, strict=True):
        found = dimension(index, size, scope)
        if isinstance(found, Window):
            raise NotRecognised("a window on the weight")
        names = {found} if isinstance(found, str) else {found.block, found.inner}
        if names & weight:
            raise NotRecognised("a diagonal of the weight")
        weight |= names
    result = Convolution(scope, x, k, sizes, scale)
    plain: list[str] = []
    for index, size in zip(x.indices, x.shape, strict=True):
        found = dimension(index, size, scope)
        if isinstance(found, Blocks) and found.inner in scope.sums and found.block not in weight:
            found = Window(found.block, found.size, found.inner, 1, 0)  # patches side by side
        result.dimensions.append(found)
        if isinstance(found, Window):
            if (found.tap and found.tap not in weight) or found.position in weight:
                raise NotRecognised("taps without weights")
            if found.position is None:
                raise NotRecognised("taps without positions")
            result.spatial.append(found)
            plain.append("")  # its place among the free dimensions
            continue
        for name in (found,) if isinstance(found, str) else (found.block, found.inner):
            if name not in weight and name in scope.traversal:
                plain.append(name)
            elif name in weight and name in scope.traversal:
                result.groups.append(name)
            elif name in weight:
                result.channels.append(name)
            else:
                raise NotRecognised(f"{name} is summed without a weight")
    # Dimensions that only pass through: the first is the batch, further ones are spatial with one tap.
    room = 3 - len(result.spatial)
    passing = [name for name in plain if name]
    keep = max(len(passing) - room, 1)
    if not result.spatial and len(passing) < 2:
        raise NotRecognised("no spatial dimension")
    result.free = passing[:keep]
    windows = iter(result.spatial)
    result.spatial = [
        Window(name, 1, None, 1, 0) if name else next(windows)
        for name in plain
        if name not in result.free
    ]
    read = [*result.free, *result.groups, *result.channels]
    read += [w.position for w in result.spatial if w.position]
    read += [w.tap for w in result.spatial if w.tap]
    known = set(read)
    if len(known) < len(read):
        raise NotRecognised("a diagonal of the data")
    result.out = [name for name in scope.traversal if name not in known]
    summed = {*result.channels, *(w.tap for w in result.spatial if w.tap)}
    if not set(scope.sums) <= summed or not set(result.out) <= weight:
        raise NotRecognised("an iterator that no convolution has")
    return result


def transposed_convolution(scope: Scope) -> tuple[str, Step]:
    """A gather of inputs where the stride divides: `x[n,c,(h+p-r)/s where s divides]`."""
    if scope.reduction != "sum":
        raise NotRecognised("no sum")
    reads, scale = scope.product()
    reads.sort(key=lambda read: not any(isinstance(i, Transposed) for i in read.indices))
    if len(reads) != 2 or not any(isinstance(i, Transposed) for i in reads[0].indices):
        raise NotRecognised("no transposed convolution")
    x, k = reads
    stride, padding, dilation, taps, free, channels, positions = [], [], [], [], [], [], []
    for index in x.indices:
        if not isinstance(index, Transposed):
            if not isinstance(index, Affine) or index.plain is None:
                raise NotRecognised("a window beside a transposed index")
            (free if index.plain in scope.traversal else channels).append(index.plain)
            continue
        terms = dict(index.inner.terms)
        tap = next((str(t) for t in terms if t in scope.sums), None)
        place = next((str(t) for t in terms if t in scope.traversal), None)
        if len(terms) != 2 or tap is None or place is None or terms[place] != 1 or terms[tap] > -1:
            raise NotRecognised("no transposed convolution")
        stride.append(index.stride)
        padding.append(index.inner.constant)
        dilation.append(-terms[tap])
        taps.append(tap)
        positions.append(place)
    weights = [index.plain for index in k.indices if isinstance(index, Affine)]
    out = [name for name in weights if name in scope.traversal]
    order = [*free, *out, *positions]
    good = len(free) == 1 and len(channels) == 1 and len(out) == 1 and len(taps) <= 3
    if not good or list(scope.traversal) != order or min(padding) < 0:
        raise NotRecognised("no transposed convolution")
    rows = [channels[0], out[0], *taps]
    if sorted(map(str, weights)) != sorted(rows):
        raise NotRecognised("no transposed convolution")
    extents = scope.extents
    call = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(taps) - 1]
    axes = [axis for axis, index in enumerate(x.indices) if isinstance(index, Transposed)]
    places = [weights.index(name) for name in rows]
    # Output extents that no input pixel reaches by itself.
    lacking = [
        extents[name] - (dilation[i] * (extents[taps[i]] - 1) + 1) + 2 * padding[i]
        for i, name in enumerate(positions)
    ]
    data_name, weight_name = x.tensor, k.tensor

    def run(values: Environment) -> Tensor:
        data = values[data_name]
        extra = [n - (data.shape[a] - 1) * s for n, a, s in zip(lacking, axes, stride, strict=True)]
        weight = values[weight_name].permute(places)
        y = call(data, weight, None, stride, padding, extra, 1, dilation)
        return y if scale == 1 else y * scale

    return f"conv_transpose{len(taps)}d", run
