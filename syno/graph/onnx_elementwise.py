"""Rows of ONNX operators on each element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from syno.graph.building import FLOATS, Builder, NotCovered, Value
from syno.graph.functions import elementwise
from syno.graph.functions.formulas import is_truth, pointwise
from syno.graph.onnx_file import type_name
from syno.graph.onnx_op import Op, Tensor, ones, row

#: Operators of one tensor by the names of functions.
UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSwish": "hardswish", "IsNaN": "isnan", "Log": "log", "Mish": "mish", "Neg": "neg", "Not": "logical_not",
    "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip

#: Operators of two tensors that give truth values.
COMPARISONS = {
    "Equal": "eq", "Greater": "gt", "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le", "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor",
}  # fmt: skip

BINARY: dict[str, Callable[..., Value]] = {
    "Add": elementwise.add,
    "Sub": elementwise.sub,
    "Mul": elementwise.mul,
}

#: Operators with attributes: the formula, and the attributes' usual values.
FORMULAS: dict[str, tuple[str, dict[str, float]]] = {
    "Elu": ("select({x} > 0, {x}, {alpha} * (tanh(0.5 * {x}) * (exp({x}) + 1)))", {"alpha": 1.0}),
    "LeakyRelu": ("select({x} < 0, {alpha} * {x}, {x})", {"alpha": 0.01}),
    "HardSigmoid": ("max(0, min(1, {alpha} * {x} + {beta}))", {"alpha": 0.2, "beta": 0.5}),
    "Selu": (
        "{gamma} * select({x} > 0, {x}, {alpha} * (tanh(0.5 * {x}) * (exp({x}) + 1)))",
        {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    ),
    "Celu": (
        "max(0, {x}) + min(0, {alpha} * (tanh(0.5 * ({x} / {alpha})) * (exp({x} / {alpha}) + 1)))",
        {"alpha": 1.0},
    ),
    "Shrink": (
        "select({x} < -{lambd}, {x} + {bias}, select({x} > {lambd}, {x} - {bias}, 0))",
        {"bias": 0.0, "lambd": 0.5},
    ),
    "Swish": ("{x} * sigmoid({alpha} * {x})", {"alpha": 1.0}),
    "ThresholdedRelu": ("select({x} > {alpha}, {x}, 0)", {"alpha": 1.0}),
}


def _unary(op: Op) -> Tensor:
    return elementwise.unary(UNARY[op.kind])(op.build, op.x())


def _comparison(op: Op) -> Tensor:
    x, y = _exact(op, op.x(0)), _exact(op, op.x(1))
    return elementwise.comparison(COMPARISONS[op.kind])(op.build, x, y)


#: Types of whole numbers that double precision holds exactly.
_HELD = ("int8", "uint8", "int16", "int32")


def _exact(op: Op, x: Value) -> Value:
    """Whole numbers as double precision has them, if comparing these is comparing the numbers themselves."""
    if not any(each.dtype in (*_HELD, "int64") for each in (op.x(0), op.x(1))):
        return x
    array = op.build.fixed(x)
    small = array is not None and bool((np.abs(array.astype(np.float64)) < 2**53).all())
    other = op.x(1) if x.name == op.x(0).name else op.x(0)
    known = op.build.fixed(other)
    near = known is not None and bool((np.abs(known.astype(np.float64)) < 2**53).all())
    # What double precision rounds is beyond 2^53 and stays there: beside a smaller constant that is exact.
    if x.dtype in _HELD or small or (x.dtype == "int64" and near):
        return op.build.cast(x, "float64")
    return x


def _binary(op: Op) -> Tensor:
    x, y = op.x(0), op.x(1)
    kind = x.dtype
    if kind not in _BITS or y.dtype != kind or is_truth(x):
        return BINARY[op.kind](op.build, x, y)
    if op.kind == "Mul" and kind == "int32":
        raise NotCovered("[onnx] products of int32: double precision does not hold them")
    wide = [op.build.cast(each, "float64") for each in (x, y)]
    return op.build.cast(_wrapped(op.build, BINARY[op.kind](op.build, *wide), kind), kind)


#: Types of whole numbers whose sums double precision holds exactly, and their bits.
_BITS = {"int8": 8, "uint8": 8, "int16": 16, "int32": 32}


def _wrapped(build: Builder, x: Value, kind: str) -> Value:
    """Whole numbers as two's complement of so many bits keeps them."""
    numbers = {"turn": 2 ** _BITS[kind], "low": 0 if kind == "uint8" else -(2 ** (_BITS[kind] - 1))}
    body = "{x} - {turn} * floor(({x} - {low}) / {turn})"
    return pointwise(build, body, name="wrapped", x=x, **numbers)


def _formula(op: Op) -> Tensor:
    text, usual = FORMULAS[op.kind]
    numbers: dict[str, Any] = {name: float(op.get(name, value)) for name, value in usual.items()}
    return pointwise(op.build, text, name=op.kind.lower(), x=op.x(), **numbers)


row(*UNARY)(_unary)
row(*COMPARISONS)(_comparison)
row(*BINARY)(_binary)
row(*FORMULAS)(_formula)


def _divisor(op: Op, y: Value) -> Value:
    """Zeros as ones: what a whole number by zero is, nobody says, and no whole number holds what floats say."""
    wide = op.build.cast(y, "float64")
    return pointwise(op.build, "select({y} == 0, 1, {y})", name="divisor", y=wide)


@row("Div")
def _div(op: Op) -> Tensor:
    x, y = op.x(0), op.x(1)
    if x.dtype in _BITS and y.dtype == x.dtype and not is_truth(x):
        # Rounding keeps quotients of such numbers on their side of the next whole one.
        wide = op.build.cast(x, "float64")
        whole = pointwise(op.build, "trunc({x} / {y})", name="div", x=wide, y=_divisor(op, y))
        return op.build.cast(_wrapped(op.build, whole, x.dtype), x.dtype)
    if x.dtype not in FLOATS:
        raise NotCovered(f"[onnx] quotients of whole numbers ({x.dtype})")
    return elementwise.div(op.build, x, y)


@row("Mod")
def _mod(op: Op) -> Tensor:
    x, y, kind = op.x(0), op.x(1), op.x(0).dtype
    function = elementwise.fmod if op.get("fmod", 0) else elementwise.remainder
    if kind in FLOATS:
        return function(op.build, x, y)
    if kind not in _BITS or y.dtype != kind:
        raise NotCovered(f"[onnx] remainders of numbers of type {kind}")
    wide = op.build.cast(x, "float64")
    return op.build.cast(function(op.build, wide, _divisor(op, y)), kind)


@row("Softplus")
def _softplus(op: Op) -> Tensor:
    return elementwise.softplus(op.build, op.x(), threshold=float("inf"))


@row("Gelu")
def _gelu(op: Op) -> Tensor:
    return elementwise.gelu(op.build, op.x(), op.get("approximate", "none"))


@row("PRelu")
def _prelu(op: Op) -> Tensor:
    body = "select({x} < 0, {w} * {x}, {x})"
    return pointwise(op.build, body, name="prelu", x=op.x(0), w=op.x(1))


@row("Pow")
def _pow(op: Op) -> Tensor:
    x, y, power = op.x(0), op.tensor(1), op.known(1)
    if x.dtype not in FLOATS:
        raise NotCovered(f"[onnx] powers of whole numbers ({x.dtype})")
    if power is not None and power.size == 1 and power.ndim <= x.rank:
        return elementwise.pow(op.build, x, float(power.reshape(-1)[0]))
    if isinstance(y, Value) and y.dtype not in FLOATS:
        return elementwise.pow(op.build, x, op.build.cast(y, x.dtype))
    return elementwise.pow(op.build, x, op.build.cast(op.x(1), x.dtype))


@row("Max", "Min", "Sum", "Mean")
def _of_many(op: Op) -> Tensor:
    functions = {"Max": elementwise.maximum, "Min": elementwise.minimum}
    values = op.values()
    if len(values) == 1:
        return values[0]
    kind = values[0].dtype
    if op.kind in functions and kind in _HELD and all(v.dtype == kind for v in values):
        wide = [op.build.cast(value, "float64") for value in values]
        best = functools.reduce(lambda x, y: functions[op.kind](op.build, x, y), wide)
        return op.build.cast(best, kind)
    result = functools.reduce(
        lambda x, y: functions.get(op.kind, elementwise.add)(op.build, x, y), values
    )
    if op.kind == "Mean":
        return elementwise.div(op.build, result, float(len(values)))
    return result


@row("Clip")
def _clip(op: Op) -> Tensor:
    x = op.x()
    low, high = op.x_or_none(1), op.x_or_none(2)
    if low is None and high is None:
        return x
    body = "{x}" if low is None else "max({x}, {low})"
    body = body if high is None else f"min({body}, {{high}})"
    bounds: dict[str, Any] = {
        name: v for name, v in (("low", low), ("high", high)) if v is not None
    }
    kind = x.dtype
    if kind in _BITS and all(v.dtype == kind for v in bounds.values()):
        wide: dict[str, Any] = {
            name: op.build.cast(v, "float64") for name, v in {"x": x, **bounds}.items()
        }
        return op.build.cast(pointwise(op.build, body, name="clip", **wide), kind)
    return pointwise(op.build, body, name="clip", x=x, **bounds)


@row("Where")
def _where(op: Op) -> Tensor:
    condition, x, y = op.x(0), op.x(1), op.x(2)
    kind = x.dtype
    if kind in _BITS and y.dtype == kind and not (is_truth(x) or is_truth(y)):
        wide = [op.build.cast(each, "float64") for each in (x, y)]
        return op.build.cast(elementwise.where(op.build, condition, *wide), kind)
    return elementwise.where(op.build, condition, x, y)


@row("IsInf")
def _is_inf(op: Op) -> Tensor:
    above, below = op.get("detect_positive", 1), op.get("detect_negative", 1)
    tests = {(1, 1): "abs({x}) == inf", (1, 0): "{x} == inf", (0, 1): "{x} == -inf"}
    body = tests.get((above, below), "{x} != {x} and {x} == {x}")
    return pointwise(op.build, body, name="isinf", boolean=True, x=op.x())


@row("Identity")
def _identity(op: Op) -> Tensor:
    return op.tensor(0)


@row("Dropout")
def _dropout(op: Op) -> tuple[Tensor, Tensor]:
    training = op.has(2) and bool(op.constant(2).any())
    ratio = op.number(1) if op.has(1) and training else 0.0
    if training and ratio != 0:
        raise NotCovered("[onnx] dropout while training")
    return op.tensor(0), ones(op.shape(), "bool")


@row("Cast", "CastLike")
def _cast(op: Op) -> Tensor:
    x = op.x()
    if op.kind == "Cast":
        wanted = type_name(op.get("to", 0))
    else:
        like = op.tensor(1)
        wanted = like.dtype if isinstance(like, Value) else str(like.dtype)
        wanted = "bool" if isinstance(like, Value) and like.boolean else wanted
    if wanted is None:
        raise NotCovered("[onnx] a cast to an element type that graphs have not")
    return cast(op.build, x, wanted)


def cast(build: Builder, x: Value, wanted: str) -> Value:
    """The elements in another type: towards zero where they become whole, truth where they are not 0."""
    if wanted == ("bool" if is_truth(x) else x.dtype):
        return x
    if wanted == "bool":
        return pointwise(build, "{x} != 0", name="cast", boolean=True, whole="truth", x=x)
    if {x.dtype, wanted} & {"float16"} and {x.dtype, wanted} & {"int8", "uint8", "int16"}:
        raise NotCovered(f"[onnx] a cast from {x.dtype} to {wanted}")
    return build.cast(x, wanted)
