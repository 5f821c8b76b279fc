"""Rows of the derivatives that AOTAutograd's graphs call by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syno.graph.aten_layers import LAYERS, spread
from syno.graph.aten_rows import Arguments, Made, Row
from syno.graph.aten_shapes import SHAPES
from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions import products, reductions, windows
from syno.graph.functions.formulas import pointwise
from syno.graph.functions.gradients import gradients
from syno.graph.functions.norms import softmax_backward
from syno.graph.functions.places import max_pool_gradient


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


def _gradients(
    build: Builder,
    a: Arguments,
    forward: Row,
    shapes: dict[str, Sequence[int]],
    given: dict[str, Value],
    wanted: Sequence[str],
) -> dict[str, Value]:
    """Gradients of what another row makes of the same attributes; `shapes` and `given` by that row's names."""
    g: Value = a.grad_output

    def run(apart: Builder, **inputs: Value) -> Value:
        call = Arguments({**a.named, **inputs}, (g.shape,), (g.dtype,), frozenset({0}))
        made = forward(apart, call)
        result = made if isinstance(made, Value) else made[0]
        assert result is not None
        return result

    inputs = {name: tuple(shape) for name, shape in shapes.items()}
    made = gradients(build, run, inputs, given, g, wanted)
    return {
        name: build.literal(np.zeros(inputs[name]), g.dtype, "zeros") if each is None else each
        for name, each in made.items()
    }


def _of_window(forward: str) -> Row:
    """The derivative of what is linear in `self`, whose values it does not need."""

    def row(build: Builder, a: Arguments) -> Value:
        shape = a.named["input_size"] if "input_size" in a.named else a["self"].shape
        return _gradients(build, a, (LAYERS | SHAPES)[forward], {"self": shape}, {}, ["self"])[
            "self"
        ]

    return row


def _adaptive(rank: int) -> Row:
    return lambda build, a: windows.adaptive_avg_pool_gradient(
        build, a.grad_output, a["self"].shape[-rank:]
    )


def _max_pool(rank: int) -> Row:
    def row(build: Builder, a: Arguments) -> Value:
        kernel, padding, dilation = (
            spread(each, rank) for each in (a.kernel_size, a.padding, a.dilation)
        )
        stride = spread(a.stride, rank) if a.stride else kernel
        size = a["self"].shape[-rank:]
        return max_pool_gradient(
            build, a.grad_output, a.indices, size, kernel, stride, padding, dilation
        )

    return row


def _attention(build: Builder, a: Arguments) -> Made:
    return products.attention_gradients(
        build,
        a.grad_out,
        a.query,
        a.key,
        a.value,
        a.out,
        a.logsumexp,
        a.attn_mask,
        a.dropout_p,
        a.is_causal,
        a.scale,
    )


def _convolution(build: Builder, a: Arguments) -> Made:
    g: Value = a.grad_output
    given = {"input": a.named["input"], "weight": a.weight}
    wanted = [name for name, asked in zip(given, a.output_mask, strict=False) if asked]
    shapes = {name: value.shape for name, value in given.items()}
    unbiased = Arguments({**a.named, "bias": None}, a.shapes, a.dtypes, a.used)
    made = _gradients(build, unbiased, LAYERS["convolution.default"], shapes, given, wanted)
    bias = None
    if a.output_mask[2]:
        rank = a.weight.rank - 2
        channels = g.rank - 1 - rank
        bias = reductions.sum(build, g, [d for d in range(g.rank) if d != channels])
    return made.get("input"), made.get("weight"), bias


#: Functions whose derivative ATen calls by their name and `_backward`, by the spatial dimensions there are.
_WINDOWS: dict[str, tuple[int, ...]] = {
    "avg_pool{}d": (2, 3),
    "reflection_pad{}d": (1, 2, 3),
    "upsample_nearest{}d": (1, 2, 3),
    "_upsample_nearest_exact{}d": (1, 2, 3),
    "upsample_linear{}d": (1,),
    "upsample_bilinear{}d": (2,),
    "upsample_bicubic{}d": (2,),
    "upsample_trilinear{}d": (3,),
}

BACKWARD: dict[str, Row] = {
    "convolution_backward.default": _convolution,
    "_scaled_dot_product_flash_attention_for_cpu_backward.default": _attention,
    "max_pool2d_with_indices_backward.default": _max_pool(2),
    "max_pool3d_with_indices_backward.default": _max_pool(3),
    "_adaptive_avg_pool2d_backward.default": _adaptive(2),
    "_adaptive_avg_pool3d_backward.default": _adaptive(3),
    **{
        f"{name.format(rank)}_backward.default": _of_window(f"{name.format(rank)}.default")
        for name, ranks in _WINDOWS.items()
        for rank in ranks
    },
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
