"""Tensors at another resolution: each position a weighted sum of few neighbours, dimension by dimension."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from syno.errors import ShapeError, shown
from syno.graph.building import Array, Builder, NotCovered, Value
from syno.graph.functions.copying import check_elements, check_readable, iterators, over
from syno.graph.functions.indexing import index
from syno.graph.functions.tables import as_index

#: The modes by the number of spatial dimensions that PyTorch has them for.
MODES = ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic")


@dataclass(frozen=True)
class Taps:
    """Along one dimension: result[k] = sum over t of weights[t, k] * x[first[k] + t], what is outside counting nothing."""

    first: Array
    weights: Array | None = None
    """None: one neighbour each, as it is."""

    @property
    def count(self) -> int:
        return 1 if self.weights is None else len(self.weights)

    @staticmethod
    def of(positions: Array, weights: Array, extent: int) -> Taps:
        """From positions of neighbours that do not decrease, (t, k), each counted within 0..extent - 1 by the caller."""
        first = positions.min(0)
        count = int((positions - first).max()) + 1
        table = np.zeros((count, positions.shape[1]))
        columns = np.arange(positions.shape[1])
        for position, weight in zip(positions, weights, strict=True):
            np.add.at(table, (position - first, columns), weight)
        assert first.min() >= 0 and positions.max() < extent
        return Taps(first, table)


def resample(build: Builder, x: Value, taps: Mapping[int, Taps]) -> Value:
    """`x` with dimensions replaced by weighted sums of their neighbours: one program where index expressions say which.

    Raises:
        NotCovered: whole numbers.
    """
    check_readable(build, x)
    check_elements(x.shape)
    single = {d: each for d, each in taps.items() if each.weights is None}
    if single and len(single) == len(taps):  # copies
        tables: list[Array | None] = [None] * x.rank
        for d, each in single.items():
            tables[d] = each.first.reshape([-1] + [1] * sum(e > d for e in single))
        return _orthogonal(build, x, tables)
    i = iterators(x.rank)
    said = {d: as_index(each.first, i[d]) for d, each in taps.items()}
    formulas = {d: index for d, index in said.items() if index is not None}
    if formulas:
        x = _weighted(build, x, {d: (index, taps[d]) for d, index in formulas.items()})
    for d, each in taps.items():
        if d not in formulas:  # the neighbours side by side
            at = each.first + np.arange(each.count)[:, None]
            picked = np.clip(at, 0, x.shape[d] - 1).T.reshape(-1)
            apart = index(build, x, [None] * d + [picked])
            x = _weighted(build, apart, {d: (f"{each.count} * {i[d]}", each)})
    return x


def _weighted(build: Builder, x: Value, taps: Mapping[int, tuple[str, Taps]]) -> Value:
    """A scope a dimension: sums of elements at an index and behind it."""
    extents = list(x.shape)
    i = iterators(x.rank)
    source, scopes, tensors = "x", [], {"x": x}
    for d, (first, each) in taps.items():
        extents[d] = len(each.first)
        terms = []
        for t in range(each.count):
            at = ", ".join([*i[:d], f"{first} + {t}" if t else first, *i[d + 1 :]])
            read = f"{source}[{at}]"
            if each.weights is not None:
                name = f"w{d}_{t}"
                tensors[name] = build.literal(each.weights[t], x.dtype, "interpolation")
                read = f"{name}[{i[d]}] * {read}"
            terms.append(read)
        source = f"y{d}"
        scopes.append(f"{source}[{over(i, extents)}] = {' + '.join(terms)}")
    return build.formula("; ".join(scopes), tensors)


def _orthogonal(build: Builder, x: Value, tables: list[Array | None]) -> Value:
    """One dimension after the other where a table is no index expression, otherwise at once."""
    picked = [d for d, table in enumerate(tables) if table is not None]
    adjacent = picked == list(range(picked[0], picked[-1] + 1))
    if adjacent and all(_is_formula(table) for table in tables if table is not None):
        return index(build, x, tables)
    for d, table in enumerate(tables):
        if table is not None:
            x = index(build, x, [None] * d + [table.reshape(-1)])
    return x


def _is_formula(table: Array) -> bool:
    return as_index(table.reshape(-1), "i") is not None


def upsample(
    build: Builder,
    x: Value,
    size: Sequence[int],
    mode: str,
    align_corners: bool | None = None,
    scales: Sequence[float | None] | None = None,
) -> Value:
    """`x` (batch, channels, *spatial) with another spatial size, as `torch.nn.functional.interpolate`.

    Args:
        mode: one of `MODES`.
        align_corners: whether corners stay where they are (linear modes and `bicubic`).
        scales: factors that positions are computed with in place of the sizes' ratios.
    Raises:
        NotCovered: another mode.
    """
    n = x.rank - 2
    if mode not in MODES:
        raise NotCovered(f"[graph] up-sampling by {shown(mode)}")
    if n < 1 or len(size) != n or min(size) < 1 or (scales is not None and len(scales) != n):
        raise ShapeError(
            f"[graph] spatial size {shown(list(size))} of a tensor of shape {list(x.shape)}"
        )
    check_elements(x.shape)
    taps = {}
    for k, out in enumerate(size):
        extent, scale = x.shape[2 + k], scales[k] if scales is not None else None
        if mode.startswith("nearest"):
            each = Taps(nearest(extent, out, scale, exact=mode == "nearest-exact"))
        else:
            positions = _positions(extent, out, bool(align_corners), scale)
            each = (
                cubic(positions, extent, -0.75) if mode == "bicubic" else linear(positions, extent)
            )
        if not keeps(each, extent):
            taps[2 + k] = each
    return resample(build, x, taps) if taps else x


def keeps(taps: Taps, extent: int) -> bool:
    """Whether every position is its own only neighbour."""
    if len(taps.first) != extent:
        return False
    if taps.weights is None:
        return bool((taps.first == np.arange(extent)).all())
    dense = np.zeros((extent, extent + taps.count))
    for t in range(taps.count):
        dense[np.arange(extent), taps.first + t] += taps.weights[t]
    return bool((dense[:, :extent] == np.eye(extent)).all())


def nearest(extent: int, out: int, scale: float | None, *, exact: bool) -> Array:
    """The neighbours that PyTorch takes, in its single precision."""
    k = np.arange(out)
    if not exact and out == extent:
        return k
    if not exact and out == 2 * extent:
        return k // 2
    if scale is not None and scale > 0:
        step = np.float32(1.0 / scale)
    else:
        step = np.float32(extent) / np.float32(out)
    at = k.astype(np.float32) + np.float32(0.5) if exact else k.astype(np.float32)
    result: Array = np.minimum(np.floor(at * step), extent - 1).astype(np.int64)
    return result


def _positions(extent: int, out: int, align_corners: bool, scale: float | None) -> list[Fraction]:
    """Where the centres of the new elements lie among the old ones, exactly."""
    if align_corners:
        step = Fraction(extent - 1, out - 1) if out > 1 else Fraction(0)
        return [step * k for k in range(out)]
    if scale is not None and scale > 0:
        step = 1 / Fraction(scale).limit_denominator(1 << 12)
    else:
        step = Fraction(extent, out)
    return [step * (k + Fraction(1, 2)) - Fraction(1, 2) for k in range(out)]


def linear(positions: Sequence[Fraction], extent: int) -> Taps:
    """Weights of the two neighbours of each position; outside, the border's."""
    first = np.array([math.floor(each) for each in positions], np.int64)
    part = np.array([float(each - math.floor(each)) for each in positions])
    return within(first, np.stack([1 - part, part]), extent)


def cubic(positions: Sequence[Fraction], extent: int, a: float, *, inside: bool = False) -> Taps:
    """Weights of the four neighbours of each position by Keys' convolution; outside, the border's.

    Args:
        a: its parameter.
        inside: whether what is outside counts nothing, the other weights making up for it.
    """
    first = np.array([math.floor(each) for each in positions], np.int64) - 1
    part = np.array([float(each - math.floor(each)) for each in positions])

    def near(d: Array) -> Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Array) -> Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    weights = np.stack([far(part + 1), near(part), near(1 - part), far(2 - part)])
    if inside:
        at = first + np.arange(4)[:, None]
        weights = np.where((at >= 0) & (at < extent), weights, 0)
        weights = weights / weights.sum(0)
    return within(first, weights, extent)


def within(first: Array, weights: Array, extent: int) -> Taps:
    """Taps at `first` and behind it, the weights of those outside given to the border's elements.

    `first` stays as it is as long as the border is among the taps, so that one expression says it everywhere.
    """
    count = len(weights)
    shifted = np.clip(first, -(count - 1), extent - 1)
    table = np.zeros_like(weights)
    columns = np.arange(len(first))
    for t, weight in enumerate(weights):
        at = np.clip(first + t, 0, extent - 1)
        np.add.at(table, (at - shifted, columns), weight)
    return Taps(shifted, table)
