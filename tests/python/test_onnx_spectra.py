"""Transforms of ONNX models to frequencies, against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_node import run

from syno import onnx_backend
from syno.errors import ShapeError, UnsupportedOp

RNG = np.random.default_rng(7)


def both_parts(z: Any) -> Any:
    return np.stack([z.real, z.imag], -1).astype(np.float32)


def signal(shape: tuple[int, ...], parts: int) -> tuple[Any, Any]:
    """As the model gets it, and as NumPy does."""
    x = RNG.standard_normal((*shape, parts)).astype(np.float32)
    return x, x[..., 0] if parts == 1 else x[..., 0] + 1j * x[..., 1]


@pytest.mark.parametrize("length", [None, 1, 6, 8, 13])
@pytest.mark.parametrize(
    ("shape", "axis"), [((2, 8), 1), ((2, 8), -2), ((8,), 0), ((3, 8, 5), 1), ((8, 2, 3), 0)]
)
@pytest.mark.parametrize(("parts", "half"), [(1, 0), (1, 1), (2, 0)])
def test_spectra_are_those_of_numpy(
    shape: tuple[int, ...], axis: int, length: int | None, parts: int, half: int
) -> None:
    x, z = signal(shape, parts)
    given = [x, None if length is None else np.array(length), np.array(axis)]
    (y,) = run("DFT", given, "float32", known=1, onesided=half)
    place = axis % x.ndim
    wanted = (np.fft.rfft if half else np.fft.fft)(z, n=length, axis=place)
    np.testing.assert_allclose(y, both_parts(wanted), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("window", [False, True])
@pytest.mark.parametrize(("step", "length"), [(4, 16), (5, 9), (16, 16), (1, 40), (7, 1)])
def test_spectra_of_frames(parts: int, window: bool, step: int, length: int) -> None:
    x, z = signal((2, 40), parts)
    shape = RNG.uniform(0.1, 1, length).astype(np.float32) if window else None
    given = [x, np.array(step), shape, None if window else np.array(length)]
    half = int(parts == 1)
    (y,) = run("STFT", given, "float32", known=1, rank=4, onesided=half)
    frames = np.stack([z[:, m : m + length] for m in range(0, 40 - length + 1, step)], 1)
    wanted = (np.fft.rfft if half else np.fft.fft)(frames * (1 if shape is None else shape))
    np.testing.assert_allclose(y, both_parts(wanted), rtol=1e-4, atol=1e-5)


def test_a_window_may_come_with_the_call() -> None:
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("STFT", ["x", "step", "v"], ["y"])],
        "g",
        [
            helper.make_tensor_value_info(name, kind, shape)
            for name, shape in (("x", (1, 20, 1)), ("v", (6,)))
        ],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.array(3), "step")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x, z = signal((1, 20), 1)
    v = RNG.uniform(0.1, 1, 6).astype(np.float32)
    frames = np.stack([z[:, m : m + 6] for m in range(0, 15, 3)], 1)
    (y,) = onnx_backend.prepare(model).run([x, v])
    np.testing.assert_allclose(y, both_parts(np.fft.rfft(frames * v)), rtol=1e-4, atol=1e-5)


def test_what_is_no_signal_is_refused() -> None:
    x = np.zeros((2, 8, 1), np.float32)
    z = np.zeros((2, 8, 2), np.float32)
    for given, error, said in (
        ([x, None, np.array(2)], ShapeError, "that holds the parts"),
        ([x, None, np.array(5)], ShapeError, "axis is 5"),
        ([x, np.array(0)], ShapeError, "length 0"),
        ([x[..., [0, 0, 0]]], ShapeError, "1 or 2"),
        ([z], UnsupportedOp, "half a spectrum"),
    ):
        with pytest.raises(error, match=said):
            run("DFT", given, "float32", known=1, onesided=1)
    with pytest.raises(UnsupportedOp, match="inverse"):
        run("DFT", [z], "float32", inverse=1)
    long = np.zeros((1, 3_000, 1), np.float32)
    with pytest.raises(UnsupportedOp, match="3000 places to 3000"):
        run("DFT", [long], "float32")
    for step, length, said in ((0, 4, "step"), (2, 9, "frames of 9"), (2, 0, "frames of 0")):
        with pytest.raises(ShapeError, match=said):
            run("STFT", [x, np.array(step), None, np.array(length)], "float32", known=1, rank=4)
