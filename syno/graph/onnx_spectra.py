"""Rows of ONNX operators of frequencies: discrete Fourier transforms as products with constant matrices."""

from __future__ import annotations

import numpy as np

from syno.errors import ShapeError
from syno.graph.building import Array, NotCovered, Value
from syno.graph.functions.copying import dimension, iterators, over
from syno.graph.onnx_op import Op, Tensor, row

#: Numbers of a matrix, beyond which a fast transform would be another matter.
_MOST = 1 << 22


def _matrix(length: int, points: int, bins: int, parts: int) -> Array:
    """Of ``points`` places to ``bins`` frequencies of a transform of ``length``: ``[bins, points, parts, 2]``, what the real
    and, of two parts, the imaginary part of a place add to those of a frequency."""
    if bins * points * parts * 2 > _MOST:
        raise NotCovered(
            f"[onnx] a transform of {points} places to {bins} frequencies as one matrix"
        )
    turns = np.outer(np.arange(bins), np.arange(points)) % length
    angle = -2 * np.pi * turns / length
    real, imaginary = np.cos(angle), np.sin(angle)
    table = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], 2)
    found: Array = table[:, :, :parts]
    return found


def _parts(op: Op, x: Value) -> int:
    """1 of real signals, 2 of complex ones."""
    if x.rank < 2 or x.shape[-1] not in (1, 2):
        raise ShapeError(
            f"[onnx] {op.kind} of {list(x.shape)}: the last dimension holds the real or both parts, 1 or 2"
        )
    return x.shape[-1]


@row("DFT")
def _dft(op: Op) -> Tensor:
    x = op.x()
    parts = _parts(op, x)
    given = int(op.number(2)) if op.has(2) else int(op.get("axis", 1 if op.version < 20 else -2))
    axis = dimension(given, x.rank, "axis")
    if axis == x.rank - 1:
        raise ShapeError(f"[onnx] DFT along the dimension {axis} that holds the parts")
    length = int(op.number(1)) if op.has(1) else x.shape[axis]
    half = bool(op.get("onesided", 0))
    if op.get("inverse", 0):
        raise NotCovered("[onnx] inverse transforms")
    if length < 1:
        raise ShapeError(f"[onnx] DFT of length {length}")
    if half and parts == 2:
        raise NotCovered("[onnx] half a spectrum of complex numbers")
    bins = length // 2 + 1 if half else length
    # A shorter signal ends in zeros, of a longer one the rest is left out.
    points = min(length, x.shape[axis])
    i = iterators(x.rank)
    extents = [*x.shape[:axis], bins, *x.shape[axis + 1 : -1], 2]
    read = ", ".join("t" if d == axis else "u" if d == x.rank - 1 else n for d, n in enumerate(i))
    table = op.build.literal(_matrix(length, points, bins, parts), x.dtype, "turns")
    return op.build.formula(
        f"y[{over(i, extents)}] = sum[t: {points}, u: {parts}] x[{read}] * w[{i[axis]}, t, u, {i[-1]}]",
        {"x": x, "w": table},
    )


@row("STFT")
def _stft(op: Op) -> Tensor:
    x, step = op.x(), int(op.number(1))
    parts = _parts(op, x)
    window = op.known(2) if op.has(2) else None
    length = op.shape(2)[0] if op.has(2) else 0
    if op.has(3):
        asked = int(op.number(3))
        if length and asked != length:
            raise ShapeError(f"[onnx] STFT with a window of {length} and frames of {asked}")
        length = asked
    half = bool(op.get("onesided", 1))
    if x.rank != 3 or step < 1 or not 1 <= length <= x.shape[1]:
        raise ShapeError(
            f"[onnx] STFT of {list(x.shape)} with frames of {length} every {step}: give [batch, length, 1 or 2], a step of at "
            "least 1, and frames that fit"
        )
    if half and parts == 2:
        raise NotCovered("[onnx] half a spectrum of complex numbers")
    frames, bins = (x.shape[1] - length) // step + 1, length // 2 + 1 if half else length
    matrix = _matrix(length, length, bins, parts)
    tensors = {"x": x}
    factor = ""
    if window is not None:
        matrix = matrix * np.asarray(window, np.float64).reshape(1, length, 1, 1)
    elif op.has(2):
        tensors["v"], factor = op.x(2), " * v[t]"
    tensors["w"] = op.build.literal(matrix, x.dtype, "turns")
    return op.build.formula(
        f"y[b: {x.shape[0]}, m: {frames}, f: {bins}, z: 2] = "
        f"sum[t: {length}, u: {parts}] x[b, {step} * m + t, u] * w[f, t, u, z]{factor}",
        tensors,
    )
