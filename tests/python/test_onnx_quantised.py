"""Products and convolutions of quantised numbers in ONNX: whole results to the last digit, quantised ones to one step."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_node import run as node
from torch import nn
from torch.nn import functional as F

import syno
from syno.errors import ShapeError, UnsupportedOp

KINDS = {"int8": np.int8, "uint8": np.uint8}


def drawn(random: np.random.Generator, kind: str, shape: tuple[int, ...] | list[int]) -> Any:
    ends = np.iinfo(KINDS[kind])
    return random.integers(ends.min, ends.max + 1, shape).astype(KINDS[kind])


def run(op: str, inputs: list[Any], kind: str, *, fixed: int = 0, **how: Any) -> Any:
    """One node's result; the inputs from number `fixed` on, if any, are the model's own."""
    (result,) = node(op, inputs, kind, known=fixed or None, **how)
    return np.asarray(result)


def quantised(sums: Any, scale: Any, zero: Any, kind: str) -> Any:
    ends = np.iinfo(KINDS[kind])
    return np.clip(np.rint(sums * scale) + zero, ends.min, ends.max)


def assert_quantised(result: Any, sums: Any, scale: Any, zero: Any, kind: str) -> None:
    """It is what the exact sums give; where these lie at a half, it may be the step beside."""
    apart = np.abs(result.astype(np.int64) - quantised(sums, scale, zero, kind).astype(np.int64))
    steps = np.asarray(sums * scale)
    half = np.abs(np.abs(steps - np.trunc(steps)) - 0.5) <= 1e-5 * (1 + np.abs(steps))
    assert (apart <= half).all(), (apart, steps)


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kinds=st.tuples(*[st.sampled_from(sorted(KINDS))] * 2),
    batch=st.sampled_from([(), (2,), (2, 3)]),
    m=st.integers(1, 5),
    k=st.sampled_from([1, 3, 256, 257, 3000]),
    n=st.integers(1, 5),
    by_row=st.booleans(),
    zeros=st.booleans(),
    fixed=st.booleans(),
)
def test_whole_products_are_exact(
    seed: int,
    kinds: Any,
    batch: Any,
    m: int,
    k: int,
    n: int,
    by_row: bool,
    zeros: bool,
    fixed: bool,
) -> None:
    random = np.random.default_rng(seed)
    a, b = drawn(random, kinds[0], [*batch, m, k]), drawn(random, kinds[1], [k, n])
    za = drawn(random, kinds[0], [m] if by_row else []) if zeros else None
    zb = drawn(random, kinds[1], [n] if by_row else []) if zeros else None
    inputs = [a, b, za, zb] if zeros else [a, b]
    result = run("MatMulInteger", inputs, "int32", fixed=int(fixed))
    left = a.astype(np.int64) - (0 if za is None else za.astype(np.int64)[..., None])
    right = b.astype(np.int64) - (0 if zb is None else zb.astype(np.int64))
    np.testing.assert_array_equal(result, left @ right)


def test_sums_beyond_single_precision_are_exact() -> None:
    a, b = np.full((1, 3001), 255, np.uint8), np.full((3001, 2), 253, np.uint8)
    a[0, 0], b[-1, 1] = 254, 252
    exact = a.astype(np.int64) @ b.astype(np.int64)
    assert (exact.astype(np.float32) != exact).any()
    np.testing.assert_array_equal(run("MatMulInteger", [a, b], "int32"), exact)
    x, w = a.reshape(1, 3001, 1), b.T.reshape(2, 3001, 1).copy()
    whole = run("ConvInteger", [x, w], "int32")
    np.testing.assert_array_equal(whole.reshape(1, 2), exact)


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kinds=st.tuples(*[st.sampled_from(sorted(KINDS))] * 3),
    rank=st.integers(1, 2),
    groups=st.sampled_from([1, 2]),
    stride=st.integers(1, 2),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 2),
    by_channel=st.booleans(),
    bias=st.booleans(),
    fixed=st.booleans(),
)
def test_convolutions_are_those_of_the_numbers_meant(
    seed: int, kinds: Any, rank: int, groups: int, stride: int, dilation: int, padding: int,
    by_channel: bool, bias: bool, fixed: bool,
) -> None:  # fmt: skip
    random = np.random.default_rng(seed)
    inside, out = 3 * groups, 2 * groups
    x = drawn(random, kinds[0], [2, inside, *[7] * rank])
    w = drawn(random, kinds[1], [out, inside // groups, *[3] * rank])
    zx = drawn(random, kinds[0], [])
    zw = drawn(random, kinds[1], [out] if by_channel else [])
    b = random.integers(-5000, 5000, out).astype(np.int32) if bias else None
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    convolution: Any = F.conv1d if rank == 1 else F.conv2d

    def centred(values: Any, zero: Any) -> torch.Tensor:
        zero = zero.astype(float).reshape([-1, *[1] * (values.ndim - 1)] if zero.ndim else [])
        return torch.from_numpy(values.astype(float) - zero)

    exact = convolution(centred(x, zx), centred(w, zw), **how).numpy()
    attributes = {
        "strides": [stride] * rank,
        "dilations": [dilation] * rank,
        "pads": [padding] * (2 * rank),
        "group": groups,
    }
    own = 3 if fixed else 0
    if zw.ndim == 0:  # ConvInteger's weights have one zero point in the standard's own evaluator
        whole = run("ConvInteger", [x, w, zx, zw], "int32", fixed=1 if fixed else 0, **attributes)
        np.testing.assert_array_equal(whole, exact)

    sx = np.float32(random.uniform(0.01, 0.1))
    sw = random.uniform(0.01, 0.1, [out] if by_channel else []).astype(np.float32)
    sy, zy = np.float32(random.uniform(1, 4)), drawn(random, kinds[2], [])
    inputs = [x, np.asarray(sx), zx, w, sw, zw, np.asarray(sy), zy, b]
    result = run("QLinearConv", inputs, kinds[2], fixed=own, **attributes)
    channels = [1, -1, *[1] * rank]
    sums = exact + (0 if b is None else b.reshape(channels))
    scale = sx.astype(float) * (sw.astype(float).reshape(channels) if sw.ndim else sw) / sy
    assert_quantised(result, sums, scale, zy.astype(float), kinds[2])


@settings(max_examples=6, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    kinds=st.tuples(*[st.sampled_from(sorted(KINDS))] * 3),
    k=st.sampled_from([1, 5, 700]),
    apart=st.booleans(),
)
def test_products_are_quantised_by_row_and_column(
    seed: int, kinds: Any, k: int, apart: bool
) -> None:
    random = np.random.default_rng(seed)
    m, n = 3, 4
    a, b = drawn(random, kinds[0], [2, m, k]), drawn(random, kinds[1], [k, n])
    za, zb = (drawn(random, kinds[i], [s] if apart else []) for i, s in ((0, m), (1, n)))
    sa, sb = (random.uniform(0.01, 0.1, [s] if apart else []).astype("f4") for s in (m, n))
    sy, zy = np.asarray(np.float32(k**0.5)), drawn(random, kinds[2], [])
    result = run("QLinearMatMul", [a, sa, za, b, sb, zb, sy, zy], kinds[2])
    left = a.astype(float) - za.astype(float)[..., None]
    sums = left @ (b.astype(float) - zb)
    scale = sa.astype(float)[..., None] * sb.astype(float) / float(sy)
    assert_quantised(result, sums, scale, zy.astype(float), kinds[2])


def test_the_greatest_of_quantised_numbers_is_one_of_them() -> None:
    for kind in KINDS:
        x = drawn(np.random.default_rng(1), kind, [1, 2, 6, 6])
        result = run("MaxPool", [x], kind, kernel_shape=[2, 2], strides=[2, 2])
        np.testing.assert_array_equal(result, x.reshape(1, 2, 3, 2, 3, 2).max((3, 5)))


def meant(numbers: Any, scale: Any, zero: Any) -> torch.Tensor:
    zero = 0.0 if zero is None else zero.astype(float)
    return torch.from_numpy((numbers.astype(float) - zero) * float(scale))


#: What ONNX Runtime's operator is of the numbers meant, and its attributes.
RUNTIME: dict[str, tuple[Any, dict[str, Any]]] = {
    "QLinearAdd": (torch.add, {}),
    "QLinearMul": (torch.mul, {}),
    "QLinearConcat": (lambda *x: torch.cat(x, 1), {"axis": 1}),
    "QLinearGlobalAveragePool": (lambda x: x.mean((2, 3), keepdim=True), {}),
    "QLinearAveragePool": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    ),
    "QLinearReduceMean": (lambda x: x.mean(1), {"axes": [1], "keepdims": 0}),
    "QLinearSigmoid": (torch.sigmoid, {}),
    "QLinearLeakyRelu": (lambda x: F.leaky_relu(x, 0.25), {"alpha": 0.25}),
    "QLinearSoftmax": (lambda x: torch.softmax(x, -1), {"opset": 13, "axis": -1}),
}
TENSORS = {"QLinearAdd": 2, "QLinearMul": 2, "QLinearConcat": 3}


@pytest.mark.parametrize("op", RUNTIME)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zeros", [True, False])
def test_operators_of_onnx_runtime_compute_on_the_numbers_meant(
    op: str, kind: str, zeros: bool
) -> None:
    random = np.random.default_rng(len(op))
    function, attributes = RUNTIME[op]
    tensors: list[Any] = []
    values = []
    for _ in range(TENSORS.get(op, 1)):
        x, zero = drawn(random, kind, [2, 3, 5, 4]), drawn(random, kind, []) if zeros else None
        scale = np.asarray(random.uniform(0.005, 0.02), np.float32)
        tensors += [x, scale, zero]
        values.append(meant(x, scale, zero))
    exact = function(*values).numpy()
    sy = np.asarray(max(1e-3, np.abs(exact).max() / 98.37), np.float32)  # few halves
    zy = drawn(random, kind, []) if zeros else None
    given = [sy, zy, *tensors] if op == "QLinearConcat" else [*tensors, sy, zy]
    result = run(op, given, kind, rank=exact.ndim, domain="com.microsoft", **attributes)
    zero = 0 if zy is None else zy.astype(float)
    assert_quantised(result, exact, 1 / float(sy), zero, kind)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("kind", ["int8", "float32"])
def test_a_general_product_of_onnx_runtime(turned: bool, biased: bool, kind: str) -> None:
    random = np.random.default_rng(7)
    a, b = drawn(random, "uint8", [3, 40]), drawn(random, "int8", [40, 5])
    za, zb = drawn(random, "uint8", []), drawn(random, "int8", [5])
    sa, sb = np.asarray(0.02, np.float32), random.uniform(0.01, 0.03, 5).astype(np.float32)
    c = random.integers(-3000, 3000, 5).astype(np.int32) if biased else None
    sums = (a.astype(float) - za) @ (b.astype(float) - zb) + (0 if c is None else c)
    out = [np.asarray(0.7, np.float32), drawn(random, "int8", [])] if kind == "int8" else []
    left, right = (a.T.copy(), b.T.copy()) if turned else (a, b)
    inputs = [left, sa, za, right, sb, zb, c, *out]
    how = {"transA": int(turned), "transB": int(turned), "alpha": 0.5}
    result = run("QGemm", inputs, kind, domain="com.microsoft", **how)
    scale = 0.5 * sa.astype(float) * sb.astype(float)
    if kind == "float32":
        np.testing.assert_allclose(result, sums * scale, 1e-5, 1e-5)
    else:
        assert_quantised(result, sums, scale / np.float64(out[0]), out[1].astype(float), kind)


@pytest.mark.parametrize("form", ["QOperator", "QDQ", "dynamic"])
def test_what_onnx_runtime_quantises_gives_its_results(form: str, tmp_path: Any) -> None:
    runtime = pytest.importorskip("onnxruntime")
    tools = pytest.importorskip("onnxruntime.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 12, 3, 2, 1, groups=2), nn.LeakyReLU(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 5),
    ).eval()  # fmt: skip
    x = torch.randn(1, 3, 12, 12)
    plain, small = str(tmp_path / "plain.onnx"), str(tmp_path / "small.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), plain, dynamo=False, input_names=["x"], opset_version=17)

    class Reader(tools.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.left = [{"x": torch.randn(1, 3, 12, 12).numpy()} for _ in range(4)]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    if form == "dynamic":
        tools.quantize_dynamic(plain, small)
    else:
        tools.quantize_static(
            plain, small, Reader(), quant_format=tools.QuantFormat[form], per_channel=True
        )
    options = runtime.SessionOptions()  # optimised, its own results lie several steps from these
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (expected,) = runtime.InferenceSession(small, options).run(None, {"x": x.numpy()})
    result = np.asarray(syno.compile(syno.load_onnx(small))(x))
    np.testing.assert_allclose(result, expected, atol=0.02 * np.abs(expected).max())


def test_what_has_no_quantised_product_is_refused() -> None:
    random = np.random.default_rng(2)
    a, b = drawn(random, "uint8", [3, 4]), drawn(random, "uint8", [4, 2])
    with pytest.raises(UnsupportedOp, match="type int16"):
        run("MatMulInteger", [a.astype(np.int16), b], "int32")
    x, w = drawn(random, "uint8", [1, 2, 5]), drawn(random, "uint8", [3, 2, 3])
    two = drawn(random, "uint8", [2])
    with pytest.raises(UnsupportedOp, match="2 scales or zero points where one"):
        run("ConvInteger", [x, w, two], "int32")
    with pytest.raises((ShapeError, UnsupportedOp)):
        run("ConvInteger", [x, w], "int32", kernel_shape=[2])
