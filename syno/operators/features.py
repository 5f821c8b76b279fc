"""Structural features of a synthesised operator: numbers a search can learn from without training.

An operator is linear in its data input. Its matrix, for random weights, tells what it can do and hides how it
was derived: which inputs an output element sees (receptive field), how many filters it has, whether it
treats all positions alike. Everything is read off a few rows of that matrix at the spec's cheapest
valuation, in milliseconds: a row costs what it is made of, however large the images are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from syno.errors import ShapeError

if TYPE_CHECKING:
    from syno import _core
    from syno.operators.operator import Operator

_Matrix: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
_Indices: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

#: Output channels whose rows are looked at; the rows of others follow the same formula.
_PROBES = 8

#: A value below this share of the greatest counts as zero.
_ZERO = 1e-9


@dataclass(frozen=True)
class Features:
    """What is known of an operator before it is trained.

    An output element's *row* has one entry for each input element; a *position* is what remains of an input
    element without its channels (``h, w`` of an image). Logarithms are natural.

    Attributes:
        window_max, window_min: extents of the receptive field along the position axis where it is greatest
            and where it is least (3 and 3 of a 3x3 convolution, 1 and 1 of a 1x1).
        positions: distinct positions that a row reads (9 of a 3x3 convolution).
        holes: share of the receptive field's box that is not read; above 0 for dilated windows.
        displacement: distance from an output's position to the middle of what it reads, in positions.
        channels_read: share of the input channels that a row reads (1/g of a grouped convolution).
        channels_reached: share that any output channel reads.
        rank: rank of the rows over their number; below 1 when output channels repeat each other.
        effective_rank: exponential of the entropy of the rows' singular values, over their number
            (Roy and Vetterli 2007).
        filters: log of the rank of all (output channel, input channel) kernels over positions: 1 kernel for
            a 1x1 or a pooled operator, 9 for a 3x3 convolution.
        kernel_rank: mean over output channels of the log rank of a row as a channels x positions matrix; 0
            where all channels share one kernel.
        weighted_channels, weighted_window: share of distinct values along the channels and along the
            positions of a row; below 1 where a sum has no weight of its own (pooling).
        equivariance: 1 where shifting the input shifts the output, less where positions are mixed or
            weights depend on them.
        sharing: log of the nonzero entries of all rows at one position, over the weight elements.
        weights, steps: tensors of weights, and steps of the derivation.
        log_flops, log_params: of all valuations together.
    """

    window_max: float
    window_min: float
    positions: float
    holes: float
    displacement: float
    channels_read: float
    channels_reached: float
    rank: float
    effective_rank: float
    filters: float
    kernel_rank: float
    weighted_channels: float
    weighted_window: float
    equivariance: float
    sharing: float
    weights: float
    steps: float
    log_flops: float
    log_params: float

    def to_dict(self) -> dict[str, float]:
        """By name."""
        return asdict(self)

    def vector(self) -> _Matrix:
        """In the order of :data:`NAMES`, ``[F]`` float64."""
        return np.array([getattr(self, name) for name in NAMES], dtype=np.float64)


#: Names of the features, in order.
NAMES: tuple[str, ...] = tuple(field.name for field in fields(Features))


def features(graph: _core.PGraph) -> Features:
    """The features of a complete pGraph; the same on every call and, to 6 digits, on every machine.

    Raises:
        ShapeError: the operator has no data input of its own.
    """
    from syno.operators.operator import Operator

    symbolic = Operator.from_pgraph(graph)
    valuation = min(
        range(symbolic.valuation_count), key=lambda i: (symbolic.program.cost(i).flops, i)
    )
    operator = symbolic.at(valuation)
    if not operator.data:
        raise ShapeError(f"[features] {operator.expr} reads no data, only weights")
    axes = _Axes.of(graph, operator.shapes[operator.data[0]], operator.shapes[operator.outputs[0]])
    rows, moved = _rows(operator, axes)
    parameters = max(1, operator.params)
    found: dict[str, float] = {
        **_receptive_field(rows, axes),
        **_channels(rows.values),
        **_ranks(rows.values),
        **_weighted(rows.values),
        "equivariance": _equivariance(axes, rows, moved),
        "sharing": math.log(
            max(1, int(np.count_nonzero(rows.values))) * axes.probe_scale / parameters
        ),
        "weights": float(len(operator.weights)),
        "steps": float(len(graph.steps)),
        "log_flops": math.log(max(1, symbolic.flops)),
        "log_params": math.log(max(1, symbolic.params)),
    }
    return Features(**{name: round(float(found[name]), 6) for name in NAMES})


@dataclass(frozen=True)
class _Axes:
    """Which axes of input and output are batch, channels and positions."""

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    input_channels: tuple[int, ...]
    input_positions: tuple[int, ...]
    output_channels: tuple[int, ...]
    output_positions: tuple[int, ...]

    @classmethod
    def of(
        cls, graph: _core.PGraph, input_shape: Sequence[int], output_shape: Sequence[int]
    ) -> _Axes:
        signature = graph.signature
        fixed = signature["fixed"]

        def split(side: str, batch: set[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
            dims = [
                (i, dim["unordered"]) for i, dim in enumerate(signature[side]) if i not in batch
            ]
            return (
                tuple(i for i, unordered in dims if unordered),
                tuple(i for i, unordered in dims if not unordered),
            )

        channels_in, positions_in = split("input", {pair[1] for pair in fixed})
        channels_out, positions_out = split("output", {pair[0] for pair in fixed})
        return cls(
            tuple(input_shape),
            tuple(output_shape),
            channels_in,
            positions_in,
            channels_out,
            positions_out,
        )

    def center(self) -> list[int]:
        """Index of the output's middle, its channels 0."""
        index = [0] * len(self.output_shape)
        for axis in self.output_positions:
            index[axis] = (self.output_shape[axis] - 1) // 2
        return index

    def probes(self) -> list[tuple[int, ...]]:
        """Some of the output's channel indices, spread evenly."""
        extents = [self.output_shape[axis] for axis in self.output_channels]
        count = math.prod(extents)
        flat = np.unique(np.linspace(0, count - 1, min(count, _PROBES)).round().astype(int))
        return [
            tuple(int(i) for i in np.unravel_index(f, extents)) if extents else () for f in flat
        ]

    @property
    def probe_scale(self) -> float:
        """Output channels for each one looked at."""
        count = math.prod(self.output_shape[axis] for axis in self.output_channels)
        return count / len(self.probes())

    @property
    def strides(self) -> list[int] | None:
        """Input positions for each output position, axis by axis; None where the axes do not match."""
        if len(self.input_positions) != len(self.output_positions):
            return None
        pairs = zip(self.input_positions, self.output_positions, strict=True)
        return [max(1, self.input_shape[i] // self.output_shape[o]) for i, o in pairs]


@dataclass(frozen=True)
class _Rows:
    """Rows of an operator's matrix at those input positions that any of them reads.

    Attributes:
        values: ``[probes, channels, positions]``.
        positions: ``[positions, axes]``, ascending; one of no axes where the input has none.
    """

    values: _Matrix
    positions: _Indices

    @classmethod
    def of(cls, rows: Sequence[tuple[_Indices, _Matrix]], axes: _Axes) -> _Rows:
        """Of each row's places in the input and what stands there; sums over the batch."""
        shape = axes.input_shape
        places = [np.unravel_index(offsets, shape) for offsets, _ in rows]
        channels = tuple(shape[axis] for axis in axes.input_channels)
        extents = tuple(shape[axis] for axis in axes.input_positions)

        def flat(place: tuple[_Indices, ...], axes: tuple[int, ...]) -> _Indices:
            if not axes:
                return np.zeros(len(place[0]), dtype=np.int64)
            return np.ravel_multi_index(
                [place[axis] for axis in axes], tuple(shape[axis] for axis in axes)
            )

        read = [flat(place, axes.input_positions) for place in places]
        positions, columns = np.unique(np.concatenate(read), return_inverse=True)
        values = np.zeros((len(rows), math.prod(channels), len(positions)))
        first = 0
        for row, (place, (offsets, found)) in enumerate(zip(places, rows, strict=True)):
            last = first + len(offsets)
            # Along the batch only the output's own element differs from zero.
            np.add.at(values[row], (flat(place, axes.input_channels), columns[first:last]), found)
            first = last
        values[np.abs(values) <= _ZERO * np.abs(values).max(initial=0.0)] = 0.0
        kept = values.any(axis=(0, 1))
        indices = np.unravel_index(positions[kept], extents) if extents else ()
        return cls(
            values[:, :, kept],
            np.array(indices, dtype=np.int64).reshape(len(extents), int(kept.sum())).T,
        )


def _rows(operator: Operator, axes: _Axes) -> tuple[_Rows, _Rows]:
    """At the middle of the output, and one position on."""
    import torch

    generator = torch.Generator().manual_seed(1)
    shapes = operator.shapes
    values = {
        name: torch.randn(shapes[name], generator=generator, dtype=torch.float64).numpy()
        for name in operator.weights
    }
    values |= {name: np.ones(shapes[name]) for name in operator.data[1:]}
    points = []
    for shift in (0, 1):
        index = axes.center()
        for axis in axes.output_positions:
            index[axis] = (index[axis] + shift) % axes.output_shape[axis]
        for probe in axes.probes():
            for axis, i in zip(axes.output_channels, probe, strict=True):
                index[axis] = i
            points.append(tuple(index))
    program = operator.program
    rows = program.linear_rows(values, operator.outputs[0], operator.data[0], points)
    half = len(rows) // 2
    return _Rows.of(rows[:half], axes), _Rows.of(rows[half:], axes)


def _receptive_field(rows: _Rows, axes: _Axes) -> dict[str, float]:
    extents, holes, displaced, positions = [], [], [], []
    strides = axes.strides
    center = axes.center()
    for row in rows.values:
        read = rows.positions[row.any(axis=0)]
        positions.append(float(len(read)))
        if not read.size:
            extents.append([1.0] * max(1, read.shape[1]))
            holes.append(0.0)
            displaced.append(0.0)
            continue
        # Around the middle, so that a window that runs over the border stays one window.
        spans = read.max(axis=0) - read.min(axis=0) + 1
        distinct = np.array([len(np.unique(column)) for column in read.T])
        extents.append([float(n) for n in distinct])
        holes.append(1.0 - len(read) / float(np.prod(spans)))
        if strides is not None:
            middle = np.array(
                [s * center[a] for s, a in zip(strides, axes.output_positions, strict=True)]
            )
            displaced.append(
                float(np.linalg.norm((read.min(axis=0) + read.max(axis=0)) / 2 - middle))
            )
    per_axis = np.mean(np.array(extents), axis=0)
    return {
        "window_max": float(per_axis.max()),
        "window_min": float(per_axis.min()),
        "positions": float(np.mean(positions)),
        "holes": float(np.mean(holes)),
        "displacement": float(np.mean(displaced)) if displaced else 0.0,
    }


def _channels(rows: _Matrix) -> dict[str, float]:
    reads = rows.any(axis=2)
    return {
        "channels_read": float(reads.mean()),
        "channels_reached": float(reads.any(axis=0).mean()),
    }


def _matrix_rank(matrix: _Matrix) -> int:
    if not matrix.size:
        return 0
    values = np.linalg.svd(matrix, compute_uv=False)
    return int(np.count_nonzero(values > 1e-8 * max(values.max(initial=0.0), 1e-300)))


def _ranks(rows: _Matrix) -> dict[str, float]:
    count, channels, _ = rows.shape
    flat = rows.reshape(count, -1)
    norms = np.linalg.norm(flat, axis=1, keepdims=True)
    flat = flat / np.where(norms > 0, norms, 1.0)
    values = np.linalg.svd(flat, compute_uv=False)
    shares = values / max(values.sum(), 1e-300)
    shares = shares[shares > 1e-12]
    kernels = rows.reshape(count * channels, -1)
    return {
        "rank": _matrix_rank(flat) / count,
        "effective_rank": math.exp(-float((shares * np.log(shares)).sum())) / count,
        "filters": math.log(max(1, _matrix_rank(kernels))),
        "kernel_rank": float(np.mean([math.log(max(1, _matrix_rank(row))) for row in rows])),
    }


def _distinct(values: _Matrix) -> float:
    """Share of distinct ones among the nonzero values."""
    values = values[values != 0]
    return len(np.unique(values.round(9))) / len(values) if len(values) else 1.0


def _weighted(rows: _Matrix) -> dict[str, float]:
    along_channels, along_positions = [], []
    for flat in rows:
        used = np.flatnonzero(flat.any(axis=0))
        along_channels += [_distinct(flat[:, p]) for p in used[:4]]
        used = np.flatnonzero(flat.any(axis=1))
        along_positions += [_distinct(flat[c]) for c in used[:4]]
    return {
        "weighted_channels": float(np.mean(along_channels)) if along_channels else 1.0,
        "weighted_window": float(np.mean(along_positions)) if along_positions else 1.0,
    }


def _equivariance(axes: _Axes, rows: _Rows, moved: _Rows) -> float:
    """How well rows one position further are the rows, moved by the stride; borders count as equal."""
    strides = axes.strides
    if strides is None:
        return 0.0
    if not strides:
        return 1.0
    inside = np.array([axes.input_shape[axis] for axis in axes.input_positions]) - strides

    def clear(positions: _Indices) -> Any:
        return ((positions >= 0) & (positions < inside)).all(axis=1)

    here, back = rows.positions, moved.positions - np.array(strides)
    first, second = clear(here), clear(back)
    ours, theirs = rows.values[:, :, first], moved.values[:, :, second]
    norm = float(np.linalg.norm(ours))
    if norm == 0:
        return 1.0
    places, columns = np.unique(
        np.concatenate([here[first], back[second]]), axis=0, return_inverse=True
    )
    columns = columns.reshape(-1)
    difference = np.zeros((*ours.shape[:2], len(places)))
    difference[:, :, columns[: ours.shape[2]]] += ours
    difference[:, :, columns[ours.shape[2] :]] -= theirs
    return max(0.0, 1.0 - float(np.linalg.norm(difference)) / (math.sqrt(2) * norm))


__all__ = ["NAMES", "Features", "features"]
