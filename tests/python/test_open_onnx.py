"""ONNX models with names for open dimensions, compiled for ranges of them."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import onnx.parser
import pytest
import torch
from torch import nn

import syno
from syno.errors import ArgumentError, ShapeError, UnknownName
from syno.graph.dynamic_onnx import DynamicOnnxModel
from syno.graph.from_onnx import OnnxModel
from syno.graph.open_onnx import OpenOnnxModel

HEAD = '<ir_version: 9, opset_import: ["" : 18]> '
ROWS = HEAD + (
    "g (float[batch, n, 4] x, float[batch, m, 4] y) => (float[batch, k, 4] z, float[batch, n, 4] s) "
    "{ z = Concat<axis = 1>(x, y) s = Softmax<axis = 1>(x) }"
)


def exported(model: nn.Module, example: torch.Tensor, axes: dict[int, str]) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(), (example,), buffer, dynamo=False, input_names=["image"], output_names=["scores"],
            dynamic_axes={"image": axes},
        )  # fmt: skip
    return buffer.getvalue()


def test_an_exported_network_has_the_sizes_that_its_file_names() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 4, 3, padding=1), nn.Sigmoid()
    )  # fmt: skip
    content = exported(model, torch.randn(2, 3, 32, 32), {0: "batch", 2: "height"})
    loaded = syno.load_onnx(content)
    assert isinstance(loaded, OpenOnnxModel)
    assert loaded.names == ("batch", "height")
    assert "image [batch, 3, height, 32]" in repr(loaded)
    assert isinstance(loaded.at(batch=2, height=20), OnnxModel)
    fast = loaded.compile(dynamic={"batch": (1, 4), "height": (16, 40)}, cache=False)
    assert isinstance(fast, DynamicOnnxModel)
    assert fast.network.by_size == ""
    assert fast.outputs == ("scores",)
    for batch, height in ((1, 16), (4, 40), (3, 21), (2, 38)):
        x = torch.randn(batch, 3, height, 32)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(fast(x.numpy()), model(x).numpy(), rtol=1e-4, atol=1e-5)
    assert "batch 1 to 4" in repr(fast)
    assert "code is there for" in str(fast)
    assert fast.at(batch=2, height=30).inputs["image"][0] == (2, 3, 30, 32)
    same = syno.compile(loaded, dynamic={"batch": (2, 4), "height": 32}, cache=False)
    assert same.shapes == {"image": ("batch", 3, 32, 32)}
    assert tuple(same(torch.zeros(3, 3, 32, 32)).shape) == (3, 4, 8, 8)


def test_sizes_are_joined_and_shared_between_inputs() -> None:
    fast = syno.load_onnx(onnx.parser.parse_model(ROWS)).compile(
        dynamic={"batch": (2, 3), "n": (2, 9), "m": (3, 7)}, cache=False
    )
    for batch, n, m in ((2, 2, 3), (3, 9, 7), (2, 4, 7)):
        x, y = (
            np.random.default_rng(0).standard_normal((batch, k, 4)).astype(np.float32)
            for k in (n, m)
        )
        z, s = fast(x, y)
        np.testing.assert_array_equal(z, np.concatenate([x, y], 1))
        np.testing.assert_allclose(s.sum(1), np.ones((batch, 4)), rtol=1e-5)
    for shapes, says in (
        (((2, 4, 4), (3, 4, 4)), r"y is \[3, 4, 4\]; the network takes \[batch, m, 4\] with batch=2"),
        (((2, 4, 4), (2, 4)), r"y is \[2, 4\]; the network takes \[batch, m, 4\]"),
        (((2, 4, 5), (2, 4, 4)), r"the network takes \[batch, n, 4\]"),
        (((2, 10, 4), (2, 4, 4)), "n is 10, and the network was compiled for 2 to 9"),
        (((2, 4, 4),), "1 arrays for 2 inputs: x, y"),
    ):  # fmt: skip
        with pytest.raises(ShapeError, match=says):
            fast(*(np.zeros(shape, np.float32) for shape in shapes))
    with pytest.raises(ShapeError, match="m is missing"):
        fast.at(batch=2, n=3)


@pytest.mark.parametrize(
    ("dynamic", "options", "error", "says"),
    [
        (None, {}, ShapeError, r"open dimensions batch, n, m by shapes=\{'x'.*dynamic=\{'batch': \(1, 64\)"),
        ({"batch": (1, 4)}, {}, ShapeError, "open dimensions n, m"),
        ({"length": (1, 4)}, {}, UnknownName, "length"),
        ({"batch": (4, 1), "n": 2, "m": 2}, {}, ShapeError, "least value is above"),
        ({"batch": 0, "n": (1, 2), "m": 2}, {}, ShapeError, "at least 1"),
        ({"batch": "4", "n": (1, 2), "m": 2}, {}, ShapeError, "least and the greatest"),
        ({"batch": 2, "n": 2, "m": 2}, {}, ArgumentError, "0 ranges"),
        ([1], {}, ArgumentError, "by name"),
        ({"batch": (1, 2), "n": 2, "m": 2}, {"derive": True}, ArgumentError, "one size"),
        ({"batch": (1, 2), "n": 2, "m": 2}, {"thread": 2}, UnknownName, "thread"),
        ({"batch": (1, 2), "n": 2, "m": 2}, {"example": [np.zeros(3)]}, ArgumentError, "leave it out"),
    ],
)  # fmt: skip
def test_ranges_that_do_not_fit_the_file_get_a_sentence(
    dynamic: Any, options: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        syno.load_onnx(onnx.parser.parse_model(ROWS)).compile(dynamic=dynamic, **options)


def test_a_model_without_open_dimensions_takes_no_ranges() -> None:
    model = syno.load_onnx(
        onnx.parser.parse_model(HEAD + "g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }")
    )
    for use in (model.compile, lambda **options: syno.compile(model, **options)):
        with pytest.raises(ArgumentError, match="no open dimensions"):
            use(dynamic={"batch": (1, 2)})
