"""Rows of ONNX operators on quantised numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from syno.errors import ShapeError
from syno.graph.building import FLOATS, NotCovered, Value
from syno.graph.functions.formulas import pointwise
from syno.graph.functions.products import matmul
from syno.graph.functions.shapes import permute, reshape
from syno.graph.onnx_file import type_name
from syno.graph.onnx_layers import convolved
from syno.graph.onnx_op import ROWS, Op, Tensor, row

#: Quantised numbers, which single precision holds exactly.
_TYPES = ("int8", "uint8", "int16")
#: Those that numbers are made of, too: the biases of quantised layers, rounded to 24 bits as the result is.
_READ = (*_TYPES, "int32")


def _along(rank: int, axis: int | None, shape: tuple[int, ...]) -> list[int]:
    """The shape in which a scale or zero point of `shape` broadcasts: one for all, or one for each place of an axis."""
    if math.prod(shape) == 1:
        return []
    if len(shape) == 1:
        if axis is None:
            raise NotCovered(f"[onnx] {shape[0]} scales or zero points where one is asked for")
        return [shape[0] if d == axis % rank else 1 for d in range(rank)]
    return list(shape)


def _scaled(op: Op, value: Value, like: Value) -> Value:
    """A scale or zero point so that it broadcasts against the tensor it is of."""
    if op.get("block_size", 0):
        raise NotCovered("[onnx] numbers quantised in blocks")
    axis = op.get("axis", 1) if like.rank else None
    return reshape(op.build, value, _along(like.rank, axis, value.shape))


def _in_steps(op: Op, body: str, zero: Value | None, kind: str, **operands: Any) -> Value:
    """A formula rounded, halves to the even number, moved by a zero point, and within the ends of its type."""
    ends = np.iinfo(kind)
    body = f"round({body})"
    if zero is not None:
        body += " + {z}"
        operands["z"] = zero
    made = pointwise(
        op.build,
        f"min(max({body}, {{low}}), {{high}})",
        name="quantize",
        low=int(ends.min),
        high=int(ends.max),
        **operands,
    )
    return op.build.cast(made, kind)


@row("DequantizeLinear")
def _dequantize(op: Op) -> Tensor:
    x, scale = op.x(0), op.x(1)
    if x.dtype not in _READ or scale.dtype not in FLOATS:
        raise NotCovered(f"[onnx] quantised numbers of type {x.dtype}")
    operands: dict[str, Any] = {
        "x": op.build.cast(x, scale.dtype),
        "s": _scaled(op, scale, x),
    }
    body = "{x} * {s}"
    if op.has(2):
        operands["z"] = _scaled(op, op.build.cast(op.x(2), scale.dtype), x)
        body = "({x} - {z}) * {s}"
    return pointwise(op.build, body, name="dequantize", **operands)


@row("QuantizeLinear")
def _quantize(op: Op) -> Tensor:
    """Halves round to the even number; what the type does not hold becomes its end."""
    x, scale = op.x(0), op.x(1)
    zero = op.x(2) if op.has(2) else None
    wanted = zero.dtype if zero is not None else type_name(op.get("output_dtype", 0)) or "uint8"
    if wanted not in _TYPES or x.dtype not in FLOATS or scale.dtype != x.dtype:
        raise NotCovered(f"[onnx] numbers of type {x.dtype} quantised to {wanted}")
    moved = None if zero is None else _scaled(op, op.build.cast(zero, x.dtype), x)
    return _in_steps(op, "{x} / {s}", moved, wanted, x=x, s=_scaled(op, scale, x))


# Products and convolutions of quantised numbers

#: Whole numbers of 8 bits, less a zero point, have products of at most 16 bits; single precision holds sums of so many.
_EXACT_TERMS = 1 << 8
#: Sums of products by the scales of both sides and of the result.
_SUMS = "{x} * ({a} * {b} / {s})"


def _centred(op: Op, i: int, zero: int, dtype: str, axis: int | None) -> Value:
    """Quantised numbers less their zero point."""
    x = op.x(i)
    if x.dtype not in ("int8", "uint8"):
        raise NotCovered(f"[onnx] quantised numbers of type {x.dtype}")
    if not op.has(zero):
        return op.build.cast(x, dtype)
    about = op.x(zero)
    shape = _along(x.rank, axis, about.shape)
    numbers, known = op.known(i), op.known(zero)
    if known is not None and not known.any():
        return op.build.cast(x, dtype)
    if numbers is not None and known is not None:
        apart = numbers.astype(np.float64) - known.astype(np.float64).reshape(shape)
        return op.build.literal(apart, dtype, f"{x.name}_centred")
    off = reshape(op.build, op.build.cast(about, dtype), shape)
    return pointwise(op.build, "{x} - {z}", name="centred", x=op.build.cast(x, dtype), z=off)


def _scale(op: Op, i: int, rank: int, axis: int | None) -> Value:
    value = op.x(i)
    if value.dtype not in (*FLOATS, "float16"):
        raise NotCovered(f"[onnx] scales of type {value.dtype}")
    return reshape(op.build, op.build.cast(value, "float32"), _along(rank, axis, value.shape))


def _requantised(
    op: Op, body: str, out: int, axis: int | None, usual: str = "", **operands: Value
) -> Tensor:
    """A formula of `{s}`, the scale that input `out` is, in numbers of the zero point behind it; `usual` is the type without one."""
    zero = op.x(out + 1) if op.has(out + 1) or not usual else None
    kind = zero.dtype if zero is not None else usual
    if kind not in ("int8", "uint8"):
        raise NotCovered(f"[onnx] sums quantised to {kind}")
    rank = operands["x"].rank
    operands["s"] = _scale(op, out, rank, axis)
    if zero is not None:
        shape = _along(rank, axis, zero.shape)
        zero = reshape(op.build, op.build.cast(zero, "float32"), shape)
    return _in_steps(op, body, zero, kind, **operands)


def _exact(terms: int) -> str:
    """The element type in which sums of so many products of 8-bit numbers are exact."""
    return "float32" if terms <= _EXACT_TERMS else "float64"


@row("MatMulInteger")
def _matmul_integer(op: Op) -> Tensor:
    """Exact: where single precision does not hold the sums, they are computed in double precision."""
    dtype = _exact(op.shape(0)[-1] if op.rank(0) else 1)
    a = _centred(op, 0, 2, dtype, -2 if op.rank(0) > 1 else None)
    b = _centred(op, 1, 3, dtype, -1 if op.rank(1) > 1 else None)
    return op.build.cast(matmul(op.build, a, b), "int32")


@row("QLinearMatMul")
def _qlinear_matmul(op: Op) -> Tensor:
    """Sums in single precision, as after DequantizeLinear; halves round to the even number."""
    if op.rank(0) < 2 or op.rank(3) < 2:
        raise NotCovered("[onnx] QLinearMatMul of vectors")
    a, b = _centred(op, 0, 2, "float32", -2), _centred(op, 3, 5, "float32", -1)
    sums = matmul(op.build, a, b)
    a, b = _scale(op, 1, sums.rank, -2), _scale(op, 4, sums.rank, -1)
    return _requantised(op, _SUMS, 6, -2, x=sums, a=a, b=b)


@row("ConvInteger")
def _conv_integer(op: Op) -> Tensor:
    """Exact, as MatMulInteger; the border is the zero point."""
    dtype = _exact(math.prod(op.shape(1)[1:]))
    x, w = _centred(op, 0, 2, dtype, None), _centred(op, 1, 3, dtype, 0)
    return op.build.cast(convolved(op, x, w, None), "int32")


@row("QLinearConv")
def _qlinear_conv(op: Op) -> Tensor:
    """Sums in single precision, as after DequantizeLinear; the border is the zero point."""
    x, w = _centred(op, 0, 2, "float32", None), _centred(op, 3, 5, "float32", 0)
    bias = op.build.cast(op.x(8), "float32") if op.has(8) else None
    sums = convolved(op, x, w, bias)
    a, b = _scale(op, 1, sums.rank, None), _scale(op, 4, sums.rank, 1)
    return _requantised(op, _SUMS, 6, 1, x=sums, a=a, b=b)


# ONNX Runtime's operators on quantised numbers: those of the standard, on the numbers that are meant

_RUNTIME = "com.microsoft"
#: The standard's operator by ONNX Runtime's, each of whose tensors is three inputs: numbers, scale, zero point.
_STANDARD = {
    "QLinearAdd": "Add",
    "QLinearAveragePool": "AveragePool",
    "QLinearConcat": "Concat",
    "QLinearGlobalAveragePool": "GlobalAveragePool",
    "QLinearLeakyRelu": "LeakyRelu",
    "QLinearMul": "Mul",
    "QLinearReduceMean": "ReduceMean",
    "QLinearSigmoid": "Sigmoid",
    "QLinearSoftmax": "Softmax",
}


def _meant(op: Op, i: int) -> Value:
    """The numbers that inputs `i` to `i + 2` stand for."""
    x = _centred(op, i, i + 2, "float32", None)
    return pointwise(op.build, "{x} * {s}", name="meant", x=x, s=_scale(op, i + 1, x.rank, None))


@row(*_STANDARD, domain=_RUNTIME)
def _of_the_numbers_meant(op: Op) -> Tensor:
    """Computed in single precision on the numbers meant, and quantised."""
    kind = _STANDARD[op.kind]
    if op.get("channels_last", 0):
        raise NotCovered(f"[onnx] {op.kind} with the channels last")
    joins = kind == "Concat"  # its result's scale and zero point come first
    count = 6 if kind in ("Add", "Mul") else 3
    places = range(2, len(op.inputs), 3) if joins else range(0, count, 3)
    values = [_meant(op, place) for place in places]
    old = kind == "Softmax" and op.get("opset", 13) < 13
    if old and op.get("axis", -1) % values[0].rank != values[0].rank - 1:
        raise NotCovered("[onnx] QLinearSoftmax over several axes, as before operator set 13")
    plain = replace(
        op, kind=kind, version=13, names=[""] * len(values), inputs=values, outputs=1, used=[True]
    )
    made = ROWS["", kind](plain)
    assert isinstance(made, Value)
    usual = op.x(places[0]).dtype
    return _requantised(op, "{x} / {s}", 0 if joins else count, None, usual, x=made)


@row("QGemm", domain=_RUNTIME)
def _qgemm(op: Op) -> Tensor:
    """alpha (A B + C), A and B less their zero points; C has the scale of both and of alpha."""
    if op.rank(0) != 2 or op.rank(3) != 2:
        raise ShapeError(f"[onnx] QGemm of {list(op.shape(0))} and {list(op.shape(3))}")
    left, right = bool(op.get("transA", 0)), bool(op.get("transB", 0))
    a = _centred(op, 0, 2, "float32", None)
    b = _centred(op, 3, 5, "float32", 0 if right else 1)
    a, b = (permute(op.build, x, [1, 0]) if way else x for x, way in ((a, left), (b, right)))
    sums = matmul(op.build, a, b)
    if op.has(6):
        sums = pointwise(
            op.build, "{x} + {c}", name="sums", x=sums, c=op.build.cast(op.x(6), "float32")
        )
    alpha = op.build.literal(np.float32(op.get("alpha", 1.0)), "float32", "alpha")
    scales: dict[str, Any] = {"a": _scale(op, 1, 2, None), "b": _scale(op, 4, 2, 1), "alpha": alpha}
    if op.has(7):
        usual = op.x(0).dtype
        return _requantised(op, "{x} * ({alpha} * {a} * {b} / {s})", 7, 1, usual, x=sums, **scales)
    return pointwise(op.build, "{x} * ({alpha} * {a} * {b})", name="scaled", x=sums, **scales)
