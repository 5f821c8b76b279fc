"""Rows of ONNX operators on quantised numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from syno.graph.building import FLOATS, NotCovered, Value
from syno.graph.functions.formulas import pointwise
from syno.graph.functions.shapes import reshape
from syno.graph.onnx_file import type_name
from syno.graph.onnx_op import Op, Tensor, row

#: Quantised numbers, which single precision holds exactly.
_TYPES = ("int8", "uint8", "int16")


def _scaled(op: Op, value: Value, like: Value) -> Value:
    """A scale or zero point so that it broadcasts against the tensor it is of."""
    if op.get("block_size", 0):
        raise NotCovered("[onnx] numbers quantised in blocks")
    shape = [1] * like.rank
    if value.rank == 1 and value.shape != (1,):
        shape[op.get("axis", 1) % like.rank if like.rank else 0] = value.shape[0]
    return reshape(op.build, value, shape if value.rank else [])


@row("DequantizeLinear")
def _dequantize(op: Op) -> Tensor:
    x, scale = op.x(0), op.x(1)
    if x.dtype not in _TYPES or scale.dtype not in FLOATS:
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
    ends = np.iinfo(wanted)
    operands: dict[str, Any] = {
        "x": x,
        "s": _scaled(op, scale, x),
        "low": ends.min,
        "high": ends.max,
    }
    body = "round({x} / {s})"
    if zero is not None:
        operands["z"] = _scaled(op, op.build.cast(zero, x.dtype), x)
        body += " + {z}"
    made = pointwise(op.build, f"min(max({body}, {{low}}), {{high}})", name="quantize", **operands)
    return op.build.cast(made, wanted)
