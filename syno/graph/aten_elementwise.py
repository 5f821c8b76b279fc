"""Rows of ATen's functions of each element."""

from __future__ import annotations

from typing import Any

from syno.graph.aten_rows import Arguments, Row
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import elementwise as f
from syno.graph.functions import shapes
from syno.graph.functions.formulas import is_truth, pointwise


def _of_self(name: str) -> Row:
    function = f.unary(name)
    return lambda build, a: function(build, a["self"])


def _of_two(function: Any) -> Row:
    return lambda build, a: function(build, a["self"], a.other)


def _of_alpha(function: Any) -> Row:
    return lambda build, a: function(build, a["self"], a.other, a.alpha)


def _div_mode(build: Builder, a: Arguments) -> Value:
    return f.div(build, a["self"], a.other, a.rounding_mode)


def _power(build: Builder, a: Arguments) -> Value:
    return f.pow(build, a["self"], a.exponent)


def _clamp(build: Builder, a: Arguments) -> Value:
    return f.clamp(build, a["self"], a.named.get("min"), a.named.get("max"))


def _gelu(build: Builder, a: Arguments) -> Value:
    return f.gelu(build, a["self"], a.approximate)


def _where(build: Builder, a: Arguments) -> Value:
    return f.where(build, a.condition, a["self"], a.other)


def _masked_fill(build: Builder, a: Arguments) -> Value:
    return f.masked_fill(build, a["self"], a.mask, a.value)


def _cast(build: Builder, a: Arguments) -> Value:
    """To another element type; a copy where it is the same."""
    x: Value = a["self"]
    wanted = a.dtypes[0]
    if wanted is None:
        raise NotCovered("[graph] a conversion to what no tensor of a graph holds")
    if wanted == "bool":
        return x if is_truth(x) else f.comparison("ne")(build, x, 0)
    if x.dtype == wanted and not x.boolean:
        return x
    if x.boolean and wanted == x.dtype:  # what stands for truth values are numbers
        return pointwise(build, "{x}", name="cast", whole="truth", x=x)
    return build.cast(x, wanted)


def _same(build: Builder, a: Arguments) -> Value:
    value: Value = a["self"]
    return value


def _copied(build: Builder, a: Arguments) -> Value:
    """`src`, as a tensor of the shape and type of `self`."""
    src: Value = a.src
    shape = list(a.shapes[0] or ())
    made = src if list(src.shape) == shape else shapes.expand(build, src, shape)
    return _cast(build, Arguments({"self": made}, a.shapes, a.dtypes, a.used))


def _dropout(build: Builder, a: Arguments) -> Value:
    if a.train and a.p:
        raise NotCovered("[graph] dropout in training")
    value: Value = a.input
    return value


def _truth(value: Any) -> Any:
    if isinstance(value, Value) and not is_truth(value):
        raise NotCovered(f"[graph] bits of numbers of type {value.dtype}")
    return value


def _bitwise(word: str) -> Row:
    function = f.comparison(f"logical_{word}")
    return lambda build, a: function(build, _truth(a["self"]), _truth(a.other))


ELEMENTWISE: dict[str, Row] = {
    **{
        f"{name}.default": _of_self(name)
        for name in (*f.UNARY, *f.UNARY_OF_FLOATS, *f.ROUNDING, *f.TESTS)
        if name not in ("softsign", "tanhshrink")
    },
    "special_expm1.default": _of_self("expm1"),
    "special_exp2.default": _of_self("exp2"),
    "special_log1p.default": _of_self("log1p"),
    "special_erf.default": _of_self("erf"),
    "special_expit.default": _of_self("sigmoid"),
    "sgn.default": _of_self("sign"),
    "positive.default": _same,
    "copy.default": _copied,
    **{
        f"{name}.{overload}": _of_two(f.comparison(name))
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for overload in ("Tensor", "Scalar")
    },
    **{f"{name}.default": _of_two(f.comparison(name)) for name in ("logical_and", "logical_or", "logical_xor")},
    **{
        f"bitwise_{word}.{overload}": _bitwise(word)
        for word in ("and", "or", "xor")
        for overload in ("Tensor", "Scalar")
    },
    "bitwise_not.default": lambda build, a: f.unary("logical_not")(build, _truth(a["self"])),
    **{f"add.{overload}": _of_alpha(f.add) for overload in ("Tensor", "Scalar")},
    **{f"sub.{overload}": _of_alpha(f.sub) for overload in ("Tensor", "Scalar")},
    **{f"rsub.{overload}": _of_alpha(f.rsub) for overload in ("Tensor", "Scalar")},
    **{f"mul.{overload}": _of_two(f.mul) for overload in ("Tensor", "Scalar")},
    **{f"div.{overload}": _of_two(f.div) for overload in ("Tensor", "Scalar")},
    "true_divide.Tensor": _of_two(f.div),
    **{f"div.{overload}": _div_mode for overload in ("Tensor_mode", "Scalar_mode")},
    **{f"floor_divide.{overload}": _of_two(f.floor_divide) for overload in ("default", "Scalar")},
    **{f"fmod.{overload}": _of_two(f.fmod) for overload in ("Tensor", "Scalar")},
    **{f"remainder.{overload}": _of_two(f.remainder) for overload in ("Tensor", "Scalar", "Scalar_Tensor")},
    "atan2.default": _of_two(f.atan2),
    "round.decimals": lambda build, a: f.round_to(build, a["self"], a.decimals),
    "special_round.default": lambda build, a: f.round_to(build, a["self"], a.decimals),
    "maximum.default": _of_two(f.maximum),
    "minimum.default": _of_two(f.minimum),
    "max.other": _of_two(f.maximum),
    "min.other": _of_two(f.minimum),
    "fmax.default": _of_two(f.fmax),
    "fmin.default": _of_two(f.fmin),
    "logaddexp.default": _of_two(f.logaddexp),
    **{f"xlogy.{overload}": _of_two(f.xlogy) for overload in ("Tensor", "Scalar_Other", "Scalar_Self")},
    "heaviside.default": lambda build, a: f.heaviside(build, a["self"], a["values"]),
    **{f"pow.{overload}": _power for overload in ("Tensor_Tensor", "Tensor_Scalar", "Scalar")},
    "where.self": _where,
    "where.ScalarOther": _where,
    "where.ScalarSelf": _where,
    "where.Scalar": _where,
    "masked_fill.Scalar": _masked_fill,
    "masked_fill.Tensor": _masked_fill,
    "clamp.default": _clamp,
    "clamp.Tensor": _clamp,
    "clamp_min.default": _clamp,
    "clamp_min.Tensor": _clamp,
    "clamp_max.default": _clamp,
    "clamp_max.Tensor": _clamp,
    "hardtanh.default": lambda build, a: f.hardtanh(build, a["self"], a.min_val, a.max_val),
    "threshold.default": lambda build, a: f.threshold(build, a["self"], a.threshold, a.value),
    "leaky_relu.default": lambda build, a: f.leaky_relu(build, a["self"], a.negative_slope),
    "_prelu_kernel.default": lambda build, a: f.prelu(build, a["self"], a.weight),
    "prelu.default": lambda build, a: f.prelu(build, a["self"], a.weight),
    "elu.default": lambda build, a: f.elu(build, a["self"], a.alpha, a.scale, a.input_scale),
    "celu.default": lambda build, a: f.celu(build, a["self"], a.alpha),
    "gelu.default": _gelu,
    "softplus.default": lambda build, a: f.softplus(build, a["self"], a.beta, a.threshold),
    "softshrink.default": lambda build, a: f.softshrink(build, a["self"], a.lambd),
    "hardshrink.default": lambda build, a: f.hardshrink(build, a["self"], a.lambd),
    "logit.default": lambda build, a: f.logit(build, a["self"], a.eps),
    "special_logit.default": lambda build, a: f.logit(build, a["self"], a.eps),
    "nan_to_num.default": lambda build, a: f.nan_to_num(build, a["self"], a.nan, a.posinf, a.neginf),
    "lerp.Scalar": lambda build, a: f.lerp(build, a["self"], a.end, a.weight),
    "lerp.Tensor": lambda build, a: f.lerp(build, a["self"], a.end, a.weight),
    "addcmul.default": lambda build, a: f.addcmul(build, a["self"], a.tensor1, a.tensor2, a.value),
    "addcdiv.default": lambda build, a: f.addcdiv(build, a["self"], a.tensor1, a.tensor2, a.value),
    "glu.default": lambda build, a: f.glu(build, a["self"], a.dim),
    # What gives its argument again: graphs have no memory that is shared or not.
    **{
        f"{name}.default": _same
        for name in ("clone", "alias", "detach", "lift_fresh", "lift_fresh_copy", "contiguous", "detach_copy")
    },
    "native_dropout.default": lambda build, a: (_dropout(build, a), None),
    "dropout.default": _dropout,
    "feature_dropout.default": _dropout,
    "alpha_dropout.default": _dropout,
    "_to_copy.default": _cast,
    "to.dtype": _cast,
    "to.dtype_layout": _cast,
    "type_as.default": _cast,
}  # fmt: skip
