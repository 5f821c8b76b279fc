"""Functions of each element, named and defined as in `torch`; operands broadcast, numbers may stand for tensors.

They give what PyTorch gives for what is no number, for infinities, and where a textbook formula would cancel or
overflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from syno.errors import ShapeError
from syno.graph.building import FLOATS, Builder, NotCovered, Value
from syno.graph.functions.formulas import (
    Number,
    Operand,
    Tensors,
    axes,
    dim_of,
    float_of,
    formula_of,
    is_truth,
    pointwise,
    sizes_of,
)

# Accurate forms. Each writes its argument several times: one expression is computed once.


def _log1p(e: str) -> str:
    """Kahan's: the error of log(u) is that of u - 1, which is exact."""
    u = f"(1 + {e})"
    return f"select({u} == 1, {e}, select({u} == inf, {u}, log({u}) * ({e} / ({u} - 1))))"


def _expm1(e: str) -> str:
    return f"(tanh(0.5 * {e}) * (exp({e}) + 1))"


def _softplus(e: str) -> str:
    """log(1 + exp(e)), which overflows for no number."""
    return f"(max({e}, 0) + {_log1p(f'exp(-abs({e}))')})"


_SINH_FAR = "(0.5 * exp(0.5 * abs({x})) * exp(0.5 * abs({x})) - 0.5 * exp(-abs({x})))"
_SINH_NEAR = "(2 * tanh(0.5 * {x}) / (1 - tanh(0.5 * {x}) * tanh(0.5 * {x})))"
_ASINH = _log1p("(abs({x}) + {x} * {x} / (1 + sqrt(1 + {x} * {x})))")

#: Functions of one tensor without attributes; whole numbers become floating point ones.
UNARY: dict[str, str] = {
    "exp": "exp({x})",
    "exp2": "pow(2, {x})",
    "expm1": _expm1("{x}"),
    "log": "log({x})",
    "log2": "log({x}) * 1.4426950408889634",
    "log10": "log({x}) * 0.4342944819032518",
    "log1p": _log1p("{x}"),
    "sqrt": "sqrt({x})",
    "rsqrt": "rsqrt({x})",
    "reciprocal": "1 / {x}",
    "erf": "erf({x})",
    "sin": "sin({x})",
    "cos": "cos({x})",
    "tan": "sin({x}) / cos({x})",
    "asin": "atan({x} / sqrt((1 - {x}) * (1 + {x})))",
    "acos": "2 * atan(sqrt((1 - {x}) / (1 + {x})))",
    "atan": "atan({x})",
    "sinc": "select({x} == 0, 1, sin(3.141592653589793 * {x}) / (3.141592653589793 * {x}))",
    "sigmoid": "sigmoid({x})",
    "tanh": "tanh({x})",
    "sinh": f"select(abs({{x}}) < 1, {_SINH_NEAR}, select({{x}} < 0, -{_SINH_FAR}, {_SINH_FAR}))",
    "cosh": "0.5 * exp(0.5 * abs({x})) * exp(0.5 * abs({x})) + 0.5 * exp(-abs({x}))",
    "asinh": f"select(abs({{x}}) < 100000000, select({{x}} < 0, -{_ASINH}, {_ASINH}), "
    "select({x} < 0, -(log(-{x}) + 0.6931471805599453), log({x}) + 0.6931471805599453))",
    "acosh": f"select({{x}} < 1, log({{x}} - 1), select({{x}} < 100000000, {_log1p('({x} - 1 + sqrt(({x} - 1) * ({x} + 1)))')}, "
    "log({x}) + 0.6931471805599453))",
    "atanh": f"0.5 * {_log1p('(2 * {x} / (1 - {x}))')}",
    "silu": "{x} * sigmoid({x})",
    "mish": "select({x} > 20, {x}, {x} * (exp({x}) * (exp({x}) + 2) / (exp({x}) * (exp({x}) + 2) + 2)))",
    "hardswish": "{x} * min(max({x} + 3, 0), 6) / 6",
    "hardsigmoid": "min(max({x} + 3, 0), 6) / 6",
    "log_sigmoid": f"min({{x}}, 0) - {_log1p('exp(-abs({x}))')}",
    "softsign": "{x} / (1 + abs({x}))",
    "tanhshrink": "{x} - tanh({x})",
    "selu": "1.0507009873554805 * select({x} > 0, {x}, 1.6732632423543772 * " + _expm1("{x}") + ")",
    "deg2rad": "{x} * 0.017453292519943295",
    "rad2deg": "{x} * 57.29577951308232",
}  # fmt: skip

#: The same where whole numbers stay whole, which no program computes.
UNARY_OF_FLOATS: dict[str, str] = {
    "neg": "-{x}",
    "abs": "abs({x})",
    "relu": "relu({x})",
    "relu6": "min(max({x}, 0), 6)",
    "square": "{x} * {x}",
    "sign": "({x} > 0) - ({x} < 0)",
    "frac": "{x} - trunc({x})",
}

#: Whole numbers next to numbers; of whole ones, themselves.
ROUNDING: dict[str, str] = {
    "floor": "floor({x})",
    "ceil": "ceil({x})",
    "round": "round({x})",
    "trunc": "trunc({x})",
}

#: Truth values of one tensor.
TESTS: dict[str, str] = {
    "isnan": "{x} != {x}",
    "isinf": "abs({x}) == inf",
    "isfinite": "abs({x}) < inf",
    "isposinf": "{x} == inf",
    "isneginf": "{x} == -inf",
    "logical_not": "{x} == 0",
}

#: Truth values of two tensors, or of one and a number.
COMPARISONS: dict[str, str] = {
    "eq": "{x} == {y}",
    "ne": "{x} != {y}",
    "lt": "{x} < {y}",
    "le": "{x} <= {y}",
    "gt": "{x} > {y}",
    "ge": "{x} >= {y}",
    "logical_and": "{x} != 0 and {y} != 0",
    "logical_or": "{x} != 0 or {y} != 0",
    "logical_xor": "({x} != 0) != ({y} != 0)",
}

Unary = Callable[[Builder, Value], Value]
Binary = Callable[[Builder, Operand, Operand], Value]


def unary(name: str) -> Unary:
    """The function of a name of `UNARY`, `UNARY_OF_FLOATS`, `ROUNDING` or `TESTS`."""

    def function(build: Builder, x: Value) -> Value:
        if name in TESTS:
            return pointwise(build, TESTS[name], name=name, boolean=True, whole="truth", x=x)
        if name in UNARY:
            return pointwise(build, UNARY[name], name=name, whole="float", x=x)
        if name in ROUNDING:
            whole = "int" in x.dtype and not is_truth(x)
            return x if whole else pointwise(build, ROUNDING[name], name=name, x=x)
        return pointwise(build, UNARY_OF_FLOATS[name], name=name, x=x)

    function.__name__ = name
    return function


def comparison(name: str) -> Binary:
    """The function of a name of `COMPARISONS`."""

    def function(build: Builder, x: Operand, y: Operand) -> Value:
        return pointwise(build, COMPARISONS[name], name=name, boolean=True, whole="truth", x=x, y=y)

    function.__name__ = name
    return function


def add(build: Builder, x: Operand, y: Operand, alpha: Number = 1) -> Value:
    body = "{x} + {y}" if alpha == 1 else "{x} + {alpha} * {y}"
    return pointwise(build, body, name="add", x=x, y=y, **_unless(1, alpha=alpha))


def sub(build: Builder, x: Operand, y: Operand, alpha: Number = 1) -> Value:
    body = "{x} - {y}" if alpha == 1 else "{x} - {alpha} * {y}"
    return pointwise(build, body, name="sub", x=x, y=y, **_unless(1, alpha=alpha))


def rsub(build: Builder, x: Operand, y: Operand, alpha: Number = 1) -> Value:
    return sub(build, y, x, alpha)


def mul(build: Builder, x: Operand, y: Operand) -> Value:
    return pointwise(build, "{x} * {y}", name="mul", x=x, y=y)


def div(build: Builder, x: Operand, y: Operand, rounding_mode: str | None = None) -> Value:
    if rounding_mode == "floor":
        return floor_divide(build, x, y)
    if rounding_mode == "trunc":
        return pointwise(build, "trunc({x} / {y})", name="div", x=x, y=y)
    if rounding_mode is not None:
        raise NotCovered(f"[graph] division rounded to {rounding_mode}")
    return pointwise(build, "{x} / {y}", name="div", whole="float", x=x, y=y)


_FMOD = "fmod({x}, {y})"
#: Whether the remainder is not 0 and of the other sign than the divisor.
_OTHER_SIGN = f"({_FMOD} != 0 and ({{y}} < 0) != ({_FMOD} < 0))"
#: Of what is left without the remainder, nearly a whole number.
_WITHOUT = f"(({{x}} - {_FMOD}) / {{y}} - {_OTHER_SIGN})"


def fmod(build: Builder, x: Operand, y: Operand) -> Value:
    return pointwise(build, _FMOD, name="fmod", x=x, y=y)


def remainder(build: Builder, x: Operand, y: Operand) -> Value:
    """Python's: of the divisor's sign."""
    body = f"select({_OTHER_SIGN}, {_FMOD} + {{y}}, {_FMOD})"
    return pointwise(build, body, name="remainder", x=x, y=y)


def floor_divide(build: Builder, x: Operand, y: Operand) -> Value:
    """Python's: by the exact remainder, for the quotient may round up to a whole number."""
    whole = f"floor({_WITHOUT}) + ({_WITHOUT} - floor({_WITHOUT}) > 0.5)"
    body = (
        f"select({{y}} == 0, {{x}} / {{y}}, select({_WITHOUT} == 0, 0 * ({{x}} / {{y}}), {whole}))"
    )
    return pointwise(build, body, name="floor_divide", x=x, y=y)


def atan2(build: Builder, x: Operand, y: Operand) -> Value:
    """The angle of the point (y, x): `torch.atan2(x, y)`."""
    ratio = "select({x} == 0 and {y} == 0, 0, select(abs({x}) == inf and abs({y}) == inf, 1, abs({x}) / abs({y})))"
    angle = f"select({_NEGATIVE.format(v='{y}')}, 3.141592653589793 - atan({ratio}), atan({ratio}))"
    body = f"select({_NEGATIVE.format(v='{x}')}, -{angle}, {angle})"
    return pointwise(build, body, name="atan2", whole="float", x=x, y=y)


#: Also zero with a sign.
_NEGATIVE = "({v} < 0 or ({v} == 0 and 1 / {v} < 0))"


def round_to(build: Builder, x: Value, decimals: int) -> Value:
    """Rounded in the decimal system, by powers of ten as PyTorch does it."""
    if decimals == 0 or x.dtype not in FLOATS:
        return unary("round")(build, x)
    body = "round({x} * {ten}) / {ten}" if decimals > 0 else "round({x} / {ten}) * {ten}"
    return pointwise(build, body, name="round", x=x, ten=float(10 ** abs(decimals)))


def maximum(build: Builder, x: Operand, y: Operand) -> Value:
    return pointwise(build, "max({x}, {y})", name="maximum", x=x, y=y)


def minimum(build: Builder, x: Operand, y: Operand) -> Value:
    return pointwise(build, "min({x}, {y})", name="minimum", x=x, y=y)


def fmax(build: Builder, x: Operand, y: Operand) -> Value:
    body = "select({x} != {x}, {y}, select({y} != {y}, {x}, max({x}, {y})))"
    return pointwise(build, body, name="fmax", x=x, y=y)


def fmin(build: Builder, x: Operand, y: Operand) -> Value:
    body = "select({x} != {x}, {y}, select({y} != {y}, {x}, min({x}, {y})))"
    return pointwise(build, body, name="fmin", x=x, y=y)


#: Powers that are written out.
_POWERS: dict[float, str] = {
    0: "1 + 0 * select({x} != {x}, 0, select(abs({x}) == inf, 0, {x}))",
    0.5: "sqrt({x})",
    1: "{x} * 1",
    2: "{x} * {x}",
    3: "{x} * {x} * {x}",
    -0.5: "rsqrt({x})",
    -1: "1 / {x}",
    -2: "1 / ({x} * {x})",
}


def pow(build: Builder, x: Operand, y: Operand) -> Value:
    if isinstance(y, (int, float)) and y in _POWERS and isinstance(x, Value):
        dtype = float_of(build, [x, y])
        return formula_of(build, _POWERS[y], {"x": x}, dtype=dtype, name="pow")
    return pointwise(build, "pow({x}, {y})", name="pow", x=x, y=y)


def logaddexp(build: Builder, x: Operand, y: Operand) -> Value:
    body = "select({x} == {y}, {x} + 0.6931471805599453, max({x}, {y}) + %s)"
    return pointwise(build, body % _log1p("exp(-abs({x} - {y}))"), name="logaddexp", x=x, y=y)


def xlogy(build: Builder, x: Operand, y: Operand) -> Value:
    body = "select({y} != {y}, {y}, select({x} == 0, 0, {x} * log({y})))"
    return pointwise(build, body, name="xlogy", whole="float", x=x, y=y)


def heaviside(build: Builder, x: Operand, y: Operand) -> Value:
    return pointwise(build, "select({x} == 0, {y}, {x} > 0)", name="heaviside", x=x, y=y)


def where(build: Builder, condition: Value, x: Operand, y: Operand) -> Value:
    if isinstance(x, (int, float)) and isinstance(y, (int, float)):
        dtype = float_of(build, [x, y])
    else:
        dtype = float_of(build, [x, y], whole="truth" if _all_truth(x, y) else "")
    body = "select({c} != 0, {x}, {y})"
    operands = {"c": condition, "x": x, "y": y}
    boolean = _all_truth(x, y)
    return formula_of(build, body, operands, dtype=dtype, name="where", boolean=boolean)


def masked_fill(build: Builder, x: Value, mask: Value, value: Operand) -> Value:
    dtype = float_of(build, [x], whole="truth" if is_truth(x) and _is_zero_or_one(value) else "")
    operands = {"mask": mask, "value": value, "x": x}
    body = "select({mask} != 0, {value}, {x})"
    return formula_of(build, body, operands, dtype=dtype, name="masked_fill", boolean=is_truth(x))


def clamp(
    build: Builder, x: Value, low: Operand | None = None, high: Operand | None = None
) -> Value:
    body = "{x}" if low is None else "max({x}, {low})"
    body = body if high is None else f"min({body}, {{high}})"
    if low is None and high is None:
        raise ShapeError("[graph] clamp takes a bound: min, max or both")
    bounds = {key: bound for key, bound in (("low", low), ("high", high)) if bound is not None}
    nans = [v for v in bounds.values() if isinstance(v, float) and math.isnan(v)]
    operands: dict[str, Any] = {"x": x, **({"bound": nans[0]} if nans else bounds)}
    return pointwise(build, "{bound} + 0 * {x}" if nans else body, name="clamp", **operands)


def hardtanh(build: Builder, x: Value, min_val: Number = -1.0, max_val: Number = 1.0) -> Value:
    return clamp(build, x, min_val, max_val)


def threshold(build: Builder, x: Value, threshold: Number, value: Number) -> Value:
    body = "select({x} <= {threshold}, {value}, {x})"
    return pointwise(build, body, name="threshold", x=x, threshold=threshold, value=value)


def leaky_relu(build: Builder, x: Value, negative_slope: Number = 0.01) -> Value:
    body = "select({x} > 0, {x}, {slope} * {x})"
    return pointwise(build, body, name="leaky_relu", x=x, slope=negative_slope)


def prelu(build: Builder, x: Value, weight: Value) -> Value:
    """The slope is one number, or one for each channel (dimension 1)."""
    body = "select({x} > 0, {x}, {w} * {x})"
    slopes = math.prod(weight.shape)
    if weight.rank <= 1 and slopes != 1 and x.rank > 1:
        dtype = float_of(build, [x, weight])
        tensors = Tensors(build, dtype)
        iterators = axes(x.rank)
        x_at = f"{tensors.key('x', x)}[{','.join(iterators)}]"
        w_at = f"{tensors.key('w', weight)}[{iterators[1]}]"
        return build.formula(
            f"y[{','.join(iterators)}] = {body.format(x=x_at, w=w_at)}",
            tensors.by_key,
            name="prelu",
        )
    return pointwise(build, body, name="prelu", x=x, w=weight)


def elu(
    build: Builder, x: Value, alpha: Number = 1.0, scale: Number = 1.0, input_scale: Number = 1.0
) -> Value:
    inner = "{x}" if input_scale == 1 else "({rate} * {x})"
    body = f"select({{x}} > 0, {{positive}} * {{x}}, {{negative}} * {_expm1(inner)})"
    if scale == 1:
        body = body.replace("{positive} * ", "")
    numbers: dict[str, Any] = {
        "negative": float(alpha * scale),
        "rate": input_scale,
        "positive": scale,
    }
    return pointwise(build, body, name="elu", x=x, **_used(body, numbers))


def selu(build: Builder, x: Value) -> Value:
    return unary("selu")(build, x)


def celu(build: Builder, x: Value, alpha: Number = 1.0) -> Value:
    return elu(build, x, alpha, 1.0, 1.0 / alpha)


def gelu(build: Builder, x: Value, approximate: str = "none") -> Value:
    if approximate == "none":
        return pointwise(build, "gelu({x})", name="gelu", x=x)
    # x (1 + tanh u) / 2 = x sigmoid(2 u), which does not cancel
    body = "{x} * sigmoid(1.5957691216057308 * ({x} + 0.044715 * {x} * {x} * {x}))"
    return pointwise(build, body, name="gelu", x=x)


def softplus(build: Builder, x: Value, beta: Number = 1.0, threshold: Number = 20.0) -> Value:
    inner, body = ("{x}", _softplus("{x}")) if beta == 1 else ("({x} * {beta})", "")
    body = body or f"{_softplus(inner)} / {{beta}}"
    body = f"select({inner} > {{threshold}}, {{x}}, {body})"
    numbers: dict[str, Any] = {"beta": beta, "threshold": threshold}
    return pointwise(build, body, name="softplus", x=x, **_used(body, numbers))


def softshrink(build: Builder, x: Value, lambd: Number = 0.5) -> Value:
    body = "select({x} > {l}, {x} - {l}, select({x} < -{l}, {x} + {l}, {x} * 0))"
    return pointwise(build, body, name="softshrink", x=x, l=lambd)


def hardshrink(build: Builder, x: Value, lambd: Number = 0.5) -> Value:
    body = "select({x} >= -{l} and {x} <= {l}, 0, {x})"
    return pointwise(build, body, name="hardshrink", x=x, l=lambd)


def logit(build: Builder, x: Value, eps: Number | None = None) -> Value:
    if eps is None or eps < 0:
        return pointwise(build, "log({x} / (1 - {x}))", name="logit", whole="float", x=x)
    z = "min(max({x}, {low}), {high})"
    body = f"log({z} / (1 - {z}))"
    bounds: dict[str, Any] = {"low": eps, "high": 1 - eps}
    return pointwise(build, body, name="logit", whole="float", x=x, **bounds)


def nan_to_num(
    build: Builder,
    x: Value,
    nan: Number | None = None,
    posinf: Number | None = None,
    neginf: Number | None = None,
) -> Value:
    dtype = float_of(build, [x])
    greatest = 3.3895313892515355e38 if dtype == "bfloat16" else float(np.finfo(dtype).max)
    numbers: dict[str, Any] = {
        "nan": 0.0 if nan is None else nan,
        "most": greatest if posinf is None else posinf,
        "least": -greatest if neginf is None else neginf,
    }
    body = (
        "select({x} != {x}, {nan}, select({x} == inf, {most}, select({x} == -inf, {least}, {x})))"
    )
    return pointwise(build, body, name="nan_to_num", x=x, **numbers)


def lerp(build: Builder, start: Value, end: Value, weight: Operand) -> Value:
    body = "select(abs({w}) < 0.5, {x} + {w} * ({y} - {x}), {y} - ({y} - {x}) * (1 - {w}))"
    return pointwise(build, body, name="lerp", x=start, y=end, w=weight)


def addcmul(build: Builder, x: Value, y: Value, z: Value, value: Number = 1) -> Value:
    body = "{x} + {y} * {z}" if value == 1 else "{x} + {value} * {y} * {z}"
    return pointwise(build, body, name="addcmul", x=x, y=y, z=z, **_unless(1, value=value))


def addcdiv(build: Builder, x: Value, y: Value, z: Value, value: Number = 1) -> Value:
    body = "{x} + {y} / {z}" if value == 1 else "{x} + {value} * {y} / {z}"
    return pointwise(build, body, name="addcdiv", x=x, y=y, z=z, **_unless(1, value=value))


def glu(build: Builder, x: Value, dim: int = -1) -> Value:
    """The first half along `dim` times the sigmoid of the second."""
    dim = dim_of(dim, x.rank)
    if not x.rank or x.shape[dim] % 2:
        raise ShapeError(f"[graph] glu halves dimension {dim} of {list(x.shape)}")
    dtype = float_of(build, [x])
    tensors = Tensors(build, dtype)
    half = x.shape[dim] // 2
    iterators = axes(x.rank)
    gate = [f"{name}+{half}" if d == dim else name for d, name in enumerate(iterators)]
    key = tensors.key("x", x)
    extents = [half if d == dim else extent for d, extent in enumerate(x.shape)]
    return build.formula(
        f"y[{','.join(iterators)}] = {key}[{','.join(iterators)}] * sigmoid({key}[{','.join(gate)}])",
        tensors.by_key,
        name="glu",
        **sizes_of(iterators, extents),
    )


def _unless(usual: Number, **numbers: Number) -> dict[str, Any]:
    return {key: number for key, number in numbers.items() if number != usual}


def _used(body: str, numbers: dict[str, Any]) -> dict[str, Any]:
    return {key: number for key, number in numbers.items() if "{" + key + "}" in body}


def _is_zero_or_one(value: Operand) -> bool:
    return is_truth(value) if isinstance(value, Value) else value in (0, 1)


def _all_truth(*operands: Operand) -> bool:
    return all(
        is_truth(operand) if isinstance(operand, Value) else isinstance(operand, bool)
        for operand in operands
    )
