"""Every builder computes what PyTorch computes, on random shapes including the awkward ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from kernelbench.tensors import FUNCTIONS

from syno import _core

CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
MAX_POOL = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}

examples = settings(max_examples=60, deadline=None)


def run(program: Any, seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The program's output on random inputs, and these inputs, in float64."""
    program.verify()
    assert _core.Program.parse(program.text()) == program
    rng = np.random.default_rng(seed)
    arrays = {name: rng.standard_normal(program.shape(name)) for name in program.inputs}
    (output,) = program.outputs
    result = program.interpret(arrays)[output]
    assert list(result.shape) == program.shape(output)
    return {name: torch.from_numpy(array) for name, array in arrays.items()}, torch.from_numpy(
        result
    )


def close(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert ours.shape == theirs.shape
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


def pad(x: torch.Tensor, begin: list[int], end: list[int], value: float = 0.0) -> torch.Tensor:
    sides = [side for pair in reversed(list(zip(begin, end, strict=True))) for side in pair]
    return F.pad(x, sides, value=value)


@st.composite
def windows(draw: st.DrawFn, max_rank: int = 3) -> dict[str, list[int]]:
    """in_size, kernel, stride, dilation and asymmetric padding that fit together."""
    rank = draw(st.integers(1, max_rank))

    def each(least: int, most: int) -> list[int]:
        return draw(st.lists(st.integers(least, most), min_size=rank, max_size=rank))

    window = {
        "kernel": each(1, 4),
        "stride": each(1, 3),
        "dilation": each(1, 2),
        "pad_begin": each(0, 2),
        "pad_end": each(0, 2),
    }
    slack = each(0, 4)
    window["in_size"] = [
        max(1, d * (k - 1) + 1 - b - e + more)
        for k, d, b, e, more in zip(
            window["kernel"],
            window["dilation"],
            window["pad_begin"],
            window["pad_end"],
            slack,
            strict=True,
        )
    ]
    return window


CHANNELS = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))


@examples
@given(windows(), CHANNELS, st.integers(1, 2), st.booleans(), st.integers(0, 99))
def test_conv(
    window: dict[str, list[int]], channels: tuple[int, int, int], batch: int, bias: bool, seed: int
) -> None:
    groups, per_in, per_out = channels
    program = _core.conv(
        batch=batch,
        in_channels=groups * per_in,
        out_channels=groups * per_out,
        groups=groups,
        bias=bias,
        **window,
    )
    inputs, y = run(program, seed)
    x = pad(inputs["x"], window["pad_begin"], window["pad_end"])
    conv = CONV[len(window["kernel"])]
    close(
        y,
        conv(
            x,
            inputs["w"],
            inputs.get("b"),
            stride=window["stride"],
            dilation=window["dilation"],
            groups=groups,
        ),
    )


@examples
@given(windows(), CHANNELS, st.booleans(), st.data())
def test_conv_transposed(
    window: dict[str, list[int]], channels: tuple[int, int, int], bias: bool, data: st.DataObject
) -> None:
    groups, per_in, per_out = channels
    extra = [
        data.draw(st.integers(0, max(s, d) - 1))
        for s, d in zip(window["stride"], window["dilation"], strict=True)
    ]
    arguments: dict[str, Any] = dict(
        in_channels=groups * per_in,
        out_channels=groups * per_out,
        groups=groups,
        output_padding=extra,
        bias=bias,
        **window,
    )
    extents = [
        (i - 1) * s - b - e + d * (k - 1) + o + 1
        for i, s, b, e, d, k, o in zip(
            window["in_size"],
            window["stride"],
            window["pad_begin"],
            window["pad_end"],
            window["dilation"],
            window["kernel"],
            extra,
            strict=True,
        )
    ]
    if min(extents) < 1:
        with pytest.raises(_core.ShapeError, match="output would have size"):
            _core.conv_transposed(**arguments)
        return
    inputs, y = run(_core.conv_transposed(**arguments), 0)
    whole = TRANSPOSED[len(extra)](
        inputs["x"],
        inputs["w"],
        inputs.get("b"),
        stride=window["stride"],
        dilation=window["dilation"],
        output_padding=extra,
        groups=groups,
    )
    # PyTorch pads both sides alike; cutting the unpadded result gives each side its own.
    for d, (begin, extent) in enumerate(zip(window["pad_begin"], extents, strict=True)):
        whole = whole.narrow(d + 2, begin, extent)
    close(y, whole)


@examples
@given(windows(), st.integers(1, 2), st.integers(1, 3))
def test_max_pool(window: dict[str, list[int]], batch: int, channels: int) -> None:
    inputs, y = run(_core.pool("max", batch=batch, channels=channels, **window), 0)
    x = pad(inputs["x"], window["pad_begin"], window["pad_end"], -torch.inf)
    rank = len(window["kernel"])
    close(y, MAX_POOL[rank](x, window["kernel"], window["stride"], dilation=window["dilation"]))


@examples
@given(windows(), st.integers(1, 3), st.booleans())
def test_average_pool(window: dict[str, list[int]], channels: int, include_pad: bool) -> None:
    program = _core.pool("average", channels=channels, count_include_pad=include_pad, **window)
    inputs, y = run(program, 0)
    # As a depthwise convolution of ones, divided by the taps or by those inside.
    conv = CONV[len(window["kernel"])]
    ones = torch.ones((channels, 1, *window["kernel"]), dtype=torch.float64)

    def total(x: torch.Tensor) -> torch.Tensor:
        x = pad(x, window["pad_begin"], window["pad_end"])
        return conv(x, ones, stride=window["stride"], dilation=window["dilation"], groups=channels)

    count = total(torch.ones_like(inputs["x"]))
    if include_pad:
        count = torch.full_like(count, float(np.prod(window["kernel"])))
    defined = count > 0
    close(y[defined], (total(inputs["x"]) / count)[defined])


def test_average_pool_is_pytorchs() -> None:
    for include in (True, False):
        program = _core.pool(
            "average",
            channels=2,
            in_size=[7, 8],
            kernel=[3, 4],
            stride=[2, 3],
            pad_begin=[1, 2],
            pad_end=[1, 2],
            count_include_pad=include,
        )
        inputs, y = run(program, 0)
        close(y, F.avg_pool2d(inputs["x"], (3, 4), (2, 3), (1, 2), count_include_pad=include))


def test_pool_strides_by_its_kernel_unless_told() -> None:
    assert _core.pool("max", channels=1, in_size=[9], kernel=[3]).shape("y") == [1, 1, 3]


@examples
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 5),
    st.lists(st.integers(1, 3), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_matmul(m: int, n: int, k: int, batch: list[int], ta: bool, tb: bool) -> None:
    program = _core.matmul(m=m, n=n, k=k, batch=batch, transpose_a=ta, transpose_b=tb)
    inputs, y = run(program, 0)
    a = inputs["a"].mT if ta else inputs["a"]
    b = inputs["b"].mT if tb else inputs["b"]
    close(y, a @ b)


@examples
@given(
    st.integers(1, 2), st.integers(1, 7), st.integers(1, 4), st.integers(0, 3), st.integers(1, 3)
)
def test_g2bmm(batch: int, length: int, features: int, width: int, dilation: int) -> None:
    program = _core.g2bmm(
        batch=batch, length=length, features=features, width=width, dilation=dilation
    )
    inputs, y = run(program, 0)
    full = inputs["a"] @ inputs["c"].mT
    expected = torch.zeros(batch, length, 2 * width + 1, dtype=torch.float64)
    for m in range(length):
        for w in range(2 * width + 1):
            row = m + dilation * (w - width)
            if 0 <= row < length:
                expected[:, m, w] = full[:, m, row]
    close(y, expected)


SHAPE = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@examples
@given(SHAPE, st.data())
def test_softmax(shape: list[int], data: st.DataObject) -> None:
    dim = data.draw(st.integers(0, len(shape) - 1))
    inputs, y = run(_core.softmax(shape=shape, dim=dim), 0)
    close(y, torch.softmax(inputs["x"], dim))


def test_softmax_keeps_large_values_finite() -> None:
    program = _core.softmax(shape=[3], dim=0)
    assert np.allclose(program.interpret({"x": [1000.0, 0.0, -1000.0]})["y"], [1, 0, 0])


@examples
@given(SHAPE, st.data(), st.booleans(), st.sampled_from([1e-5, 1e-12, 0.5]))
def test_layer_norm(shape: list[int], data: st.DataObject, affine: bool, epsilon: float) -> None:
    dims = data.draw(st.integers(1, len(shape)))
    # One element would be divided by its own spread of zero: only epsilon is left.
    program = _core.layer_norm(shape=shape, normalized_dims=dims, epsilon=epsilon, affine=affine)
    inputs, y = run(program, 0)
    normalized = shape[len(shape) - dims :]
    close(
        y, F.layer_norm(inputs["x"], normalized, inputs.get("gamma"), inputs.get("beta"), epsilon)
    )


BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "max": torch.maximum,
    "min": torch.minimum,
    "pow": torch.pow,
    "less": torch.lt,
    "less_equal": torch.le,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "and": torch.logical_and,
    "or": torch.logical_or,
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_unary(name: str) -> None:
    inputs, y = run(_core.elementwise(name, a=[3, 40]), 0)
    torch.testing.assert_close(
        y, FUNCTIONS[name](inputs["a"]), rtol=1e-12, atol=1e-12, equal_nan=True
    )


@pytest.mark.parametrize("name", BINARY)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_binary_broadcasts_as_numpy(name: str, data: st.DataObject) -> None:
    full = data.draw(st.lists(st.integers(1, 3), max_size=3))

    def operand() -> list[int]:
        first = data.draw(st.integers(0, len(full)))
        return [data.draw(st.sampled_from([1, extent])) for extent in full[first:]]

    a, b = operand(), operand()
    inputs, y = run(_core.elementwise(name, a=a, b=b), 0)
    expected = BINARY[name](inputs["a"], inputs["b"]).to(torch.float64)
    torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


def conv_arguments(**changes: Any) -> dict[str, Any]:
    return dict(in_channels=4, out_channels=4, in_size=[5, 5], kernel=[3, 3]) | changes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": 3}, "groups 3 must divide"),
        ({"kernel": [3]}, "kernel has 1 values for 2"),
        ({"kernel": [7, 3]}, "reaches over 7 elements of dimension 0, but the padded input has 5"),
        ({"stride": [0, 1]}, "stride is"),
        ({"dilation": [1, 1, 1]}, "dilation has 3 values"),
        ({"pad_begin": [-1, 0]}, "pad_begin is"),
        ({"in_size": []}, "in_size is empty"),
        ({"batch": 0}, "batch is 0"),
    ],
)
def test_attributes_that_do_not_fit_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(_core.ShapeError, match=message):
        _core.conv(**conv_arguments(**changes))


def test_other_wrong_arguments_are_named() -> None:
    with pytest.raises(_core.ShapeError, match=r"output_padding 2 .* stride 2"):
        _core.conv_transposed(**conv_arguments(stride=[2, 2], output_padding=[2, 0]))
    with pytest.raises(_core.UnknownName, match="maximum"):
        _core.pool("maximum", channels=1, in_size=[3], kernel=[2])
    with pytest.raises(_core.ShapeError, match="dim 2"):
        _core.softmax(shape=[2, 3], dim=2)
    with pytest.raises(_core.ShapeError, match="normalized_dims is 3"):
        _core.layer_norm(shape=[2, 3], normalized_dims=3)
    with pytest.raises(_core.ShapeError, match="epsilon"):
        _core.layer_norm(shape=[2, 3], epsilon=float("nan"))
    with pytest.raises(_core.ShapeError, match="do not broadcast"):
        _core.elementwise("add", a=[2], b=[3])
    with pytest.raises(_core.ShapeError, match="one operand"):
        _core.elementwise("exp", a=[2], b=[2])
    with pytest.raises(_core.UnknownName, match="gelu"):
        _core.elementwise("gelo", a=[2])
    with pytest.raises(_core.ShapeError, match="m is 0"):
        _core.matmul(m=0, n=1, k=1)
