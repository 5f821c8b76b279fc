"""Rows of the derivatives that AOTAutograd's graphs call by name."""

from __future__ import annotations

from syno.graph.aten_rows import Arguments, Row
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions.formulas import pointwise
from syno.graph.functions.norms import softmax_backward


def _body(text: str, **names: str) -> Row:
    """A formula of each element; `names` says which argument each of its operands is."""

    def row(build: Builder, a: Arguments) -> Value:
        operands = {key: a.named[name] for key, name in names.items()}
        return pointwise(build, text, name="gradient", **operands)

    return row


def _gelu(build: Builder, a: Arguments) -> Value:
    if a.approximate != "none":
        t = "tanh(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x}))"
        slope = "(0.7978845608028654 + 0.1070322243108 * {x} * {x})"
        text = f"{{g}} * (0.5 * (1 + {t}) + 0.5 * {{x}} * (1 - {t} * {t}) * {slope})"
    else:
        density = "0.3989422804014327 * exp(-0.5 * {x} * {x})"
        text = f"{{g}} * (0.5 * (1 + erf(0.7071067811865476 * {{x}})) + {{x}} * {density})"
    return pointwise(build, text, name="gradient", g=a.grad_output, x=a["self"])


def _elu(build: Builder, a: Arguments) -> Value:
    if a.is_result or a.scale != 1 or a.input_scale != 1:
        raise NotCovered("[graph] the derivative of elu of its result")
    text = "select({y} <= 0, {g} * {alpha} * exp({y}), {g})"
    return pointwise(
        build, text, name="gradient", g=a.grad_output, y=a.self_or_result, alpha=float(a.alpha)
    )


def _softmax(build: Builder, a: Arguments) -> Value:
    return softmax_backward(build, a.grad_output, a.output, a.dim, logarithm=False)


def _log_softmax(build: Builder, a: Arguments) -> Value:
    return softmax_backward(build, a.grad_output, a.output, a.dim, logarithm=True)


BACKWARD: dict[str, Row] = {
    "threshold_backward.default": _body(
        "select({x} <= {t}, 0, {g})", g="grad_output", x="self", t="threshold"
    ),
    "sigmoid_backward.default": _body("{g} * (1 - {y}) * {y}", g="grad_output", y="output"),
    "tanh_backward.default": _body("{g} * (1 - {y} * {y})", g="grad_output", y="output"),
    "silu_backward.default": _body(
        "{g} * sigmoid({x}) * (1 + {x} * (1 - sigmoid({x})))", g="grad_output", x="self"
    ),
    "hardtanh_backward.default": _body(
        "select({x} <= {low} or {x} >= {high}, 0, {g})", g="grad_output", x="self", low="min_val", high="max_val"
    ),
    "hardsigmoid_backward.default": _body(
        "select({x} > -3 and {x} < 3, {g} / 6, 0)", g="grad_output", x="self"
    ),
    "hardswish_backward.default": _body(
        "select({x} <= -3, 0, select({x} < 3, {g} * ({x} / 3 + 0.5), {g}))", g="grad_output", x="self"
    ),
    "leaky_relu_backward.default": _body(
        "select({x} > 0, {g}, {g} * {slope})", g="grad_output", x="self", slope="negative_slope"
    ),
    "gelu_backward.default": _gelu,
    "elu_backward.default": _elu,
    "_softmax_backward_data.default": _softmax,
    "_log_softmax_backward_data.default": _log_softmax,
}  # fmt: skip
