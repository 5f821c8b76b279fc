"""Rows of ONNX operators that change the resolution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from syno.errors import ShapeError, shown
from syno.graph.building import Array, NotCovered, Value
from syno.graph.functions.copying import dimension, iterators, over
from syno.graph.functions.upsampling import Taps, keeps, resample, within
from syno.graph.onnx_op import Op, Tensor, row
from syno.graph.onnx_shapes import check_size


@dataclass(frozen=True)
class Axis:
    """A dimension's old and new extent and their ratio; the part of it that is taken."""

    extent: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def _half_pixel(a: Axis, k: Array) -> Array:
    return (k + 0.5) / a.scale - 0.5


def _symmetric(a: Axis, k: Array) -> Array:
    centre = a.extent / 2
    return centre * (1 - a.out / (a.scale * a.extent)) + (k + 0.5) / a.scale - 0.5


def _pytorch(a: Axis, k: Array) -> Array:
    return np.full(len(k), -0.5) if a.out == 1 else _half_pixel(a, k)


def _asymmetric(a: Axis, k: Array) -> Array:
    return k / a.scale


def _corners(a: Axis, k: Array) -> Array:
    width = a.scale * a.extent
    return np.zeros(len(k)) if a.out == 1 or width == 1 else k * (a.extent - 1) / (width - 1)


def _crop(a: Axis, k: Array) -> Array:
    part, last = a.end - a.start, a.extent - 1
    if a.out == 1:
        return np.full(len(k), (a.start + a.end) * last / 2)
    return k * part * last / (a.scale * a.extent - 1) + a.start * last


_COORDINATES: dict[str, Callable[[Axis, Array], Array]] = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _pytorch,
    "asymmetric": _asymmetric,
    "align_corners": _corners,
    "tf_crop_and_resize": _crop,
}

_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def _linear(x: Array) -> Array:
    result: Array = np.clip(1 - np.abs(x), 0, 1)
    return result


def _cubic(a: float) -> Callable[[Array], Array]:
    """Keys' convolution."""

    def function(x: Array) -> Array:
        x = np.abs(x)
        near = (a + 2) * x**3 - (a + 3) * x**2 + 1
        far = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        result: Array = np.where(x <= 1, near, np.where(x < 2, far, 0.0))
        return result

    return function


def _taps(op: Op, axis: Axis, mode: str, positions: Array) -> Taps:
    if mode == "nearest":
        rule = op.get("nearest_mode", "round_prefer_floor")
        if rule not in _NEAREST:
            raise NotCovered(f"[onnx] the nearest element by {shown(rule)}")
        # What rounding errors move off a half or a whole number goes back.
        nearby = np.round(positions * 2) / 2
        positions = np.where(np.abs(nearby - positions) < 1e-6, nearby, positions)
        at = _NEAREST[rule](positions).astype(np.int64)
        return Taps(np.clip(at, 0, axis.extent - 1))
    reach, kernel = (
        (1, _linear) if mode == "linear" else (2, _cubic(op.get("cubic_coeff_a", -0.75)))
    )
    squeeze = min(axis.scale, 1.0) if op.get("antialias", 0) else 1.0
    floor = np.floor(positions).astype(np.int64)
    begin = math.floor(-reach / squeeze) + 1
    offsets = (
        np.arange(begin, 2 - begin)[:, None]
        if squeeze < 1
        else np.arange(1 - reach, reach + 1)[:, None]
    )
    weights = kernel((offsets - (positions - floor)) * squeeze)
    if squeeze < 1:
        weights = weights / weights.sum(0)
    first = floor + int(offsets[0, 0])
    if op.get("exclude_outside", 0):
        at = first + np.arange(len(weights))[:, None]
        weights = np.where((at >= 0) & (at < axis.extent), weights, 0)
        weights = weights / weights.sum(0)
    return within(first, weights, axis.extent)


@row("Resize", "Upsample")
def _resize(op: Op) -> Tensor:
    x = op.x()
    scales: Array | None
    sizes: Array | None = None
    roi: Array | None = None
    if op.kind == "Upsample":
        scales = op.constant(1)
    else:
        roi = (
            op.constant(1)
            if op.has(1) and op.get("coordinate_transformation_mode") == "tf_crop_and_resize"
            else None
        )
        scales = op.constant(2) if op.has(2) else None
        sizes = op.constant(3) if op.has(3) else None
        scales = None if scales is not None and scales.size == 0 else scales
    axes = [dimension(int(d), x.rank, "axis") for d in op.get("axes") or range(x.rank)]
    found = _axes(op, x, axes, scales, sizes, roi)
    mode = op.get("mode", "nearest")
    if mode not in ("nearest", "linear", "cubic"):
        raise NotCovered(f"[onnx] another resolution by {shown(mode)}")
    usual = "asymmetric" if op.kind == "Upsample" else "half_pixel"
    rule = op.get("coordinate_transformation_mode", usual)
    if rule not in _COORDINATES:
        raise NotCovered(f"[onnx] coordinates by {shown(rule)}")
    if op.kind == "Upsample":
        op.attributes["nearest_mode"] = "floor"
    check_size([axis.out for axis in found.values()])
    taps, outside = {}, {}
    for d, axis in found.items():
        positions = _COORDINATES[rule](axis, np.arange(axis.out, dtype=np.float64))
        each = _taps(op, axis, mode, positions)
        if not keeps(each, axis.extent):
            taps[d] = each
        if rule == "tf_crop_and_resize":
            outside[d] = (positions >= 0) & (positions <= axis.extent - 1)
    y = resample(op.build, x, taps) if taps else x
    if outside and not all(inside.all() for inside in outside.values()):
        y = _extrapolated(op, y, outside)
    return y


def _axes(
    op: Op,
    x: Value,
    axes: Sequence[int],
    scales: Array | None,
    sizes: Array | None,
    roi: Array | None,
) -> dict[int, Axis]:
    given = scales if scales is not None else sizes
    if given is None or given.size != len(axes):
        raise ShapeError(f"[onnx] {op.kind} needs a scale or a size of {len(axes)} dimensions")
    if roi is not None and roi.size != 2 * len(axes):
        raise ShapeError(f"[onnx] a region of {roi.size} numbers for {len(axes)} dimensions")
    old = [x.shape[d] for d in axes]
    if scales is not None:
        factors = [float(s) for s in scales.reshape(-1)]
        if not all(0 < f < 1 << 20 for f in factors):
            raise ShapeError(f"[onnx] scales {shown(factors)}")
        # A scale is a number of single precision: 3 * (5/3) is 5.
        out = [math.floor(n * f * (1 + 1e-7)) for n, f in zip(old, factors, strict=True)]
    else:
        assert sizes is not None
        out = [int(s) for s in sizes.reshape(-1)]
        factors = [s / n if n else 1.0 for s, n in zip(out, old, strict=True)]
        policy = op.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            factor = min(factors) if policy == "not_larger" else max(factors)
            factors = [factor] * len(old)
            out = [math.floor(n * factor + 0.5) for n in old]
    result = {}
    for k, d in enumerate(axes):
        start, end = (0.0, 1.0) if roi is None else (float(roi[k]), float(roi[len(axes) + k]))
        if out[k] < 1:
            raise NotCovered("[onnx] a resolution without elements")
        result[d] = Axis(old[k], out[k], factors[k], start, end)
    return result


def _extrapolated(op: Op, y: Value, inside: dict[int, Array]) -> Value:
    i = iterators(y.rank)
    tensors = {"x": y}
    conditions = []
    for d, each in inside.items():
        tensors[f"m{d}"] = op.build.literal(each, y.dtype, "inside")
        conditions.append(f"m{d}[{i[d]}] != 0")
    tensors["v"] = op.build.literal(op.get("extrapolation_value", 0.0), y.dtype)
    text = f"y[{over(i, y.shape)}] = select({' and '.join(conditions)}, x[{', '.join(i)}], v[])"
    return op.build.formula(text, tensors)
