"""ONNX models as networks: what PyTorch exports gives PyTorch's results; files that lie get a sentence."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

import syno
from syno import models
from syno.errors import FormatError, ShapeError, SynoError, UnknownName, UnsupportedOp
from syno.graph.from_onnx import OnnxModel, load_onnx
from syno.graph.reference import run_reference

HEAD = '<ir_version: 9, opset_import: ["" : 18]> '


def parsed(text: str) -> Any:
    return onnx.parser.parse_model(HEAD + text)


def results(model: OnnxModel, *inputs: Any) -> list[Any]:
    given = [torch.as_tensor(x) for x in inputs]
    feeds = {value.name: x for value, x in zip(model.inputs.values(), given, strict=True)}
    made = run_reference(model.network, feeds)
    return [made[value.name] for value in model.outputs.values()]


def exported(model: nn.Module, *example: torch.Tensor, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), example, buffer, dynamo=False, **options)
    return buffer.getvalue()


ROUND_TRIPS = {
    "mobilenet_v2": (1, 3, 64, 64),
    "cifar_resnet18": (2, 3, 32, 32),
    "resnext29": (1, 3, 32, 32),
    "densenet121": (1, 3, 64, 64),
    "efficientnet_v2_s": (1, 3, 64, 64),
}


#: Of which the others have all that they have.
LONG = {"densenet121", "efficientnet_v2_s"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.nightly) if name in LONG else name
        for name in sorted(ROUND_TRIPS)
    ],
)
def test_exported_models_give_the_same(name: str) -> None:
    torch.manual_seed(0)
    model = models.make(name).eval()
    x = torch.randn(ROUND_TRIPS[name])
    loaded = load_onnx(exported(model, x, input_names=["image"], output_names=["scores"]))
    assert list(loaded.inputs) == ["image"]
    assert list(loaded.outputs) == ["scores"]
    assert [v.name for v in loaded.network.outputs] == ["scores"]
    with torch.no_grad():
        expected = model(x)
    (y,) = results(loaded, x)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)


def test_an_exported_language_model_gives_the_same() -> None:
    torch.manual_seed(0)
    model = models.make("gpt", layers=2, context=16, width=32, heads=4, vocabulary=50).eval()
    x = torch.randint(0, 50, (2, 16))
    with torch.no_grad():
        expected = model(x)
    for version in (14, 18):
        (y,) = results(load_onnx(exported(model, x, opset_version=version)), x)
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-5)


def test_layers_of_many_kinds_exported_give_the_same() -> None:
    torch.manual_seed(1)

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before = nn.Conv2d(4, 8, 3, padding="same", padding_mode="reflect")
            self.norm = nn.GroupNorm(2, 8)
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)
            self.transposed = nn.ConvTranspose2d(8, 4, 3, 2, 1, 1)
            self.lstm = nn.LSTM(4, 6, bidirectional=True, batch_first=True)
            self.gru = nn.GRU(12, 5, batch_first=True)
            self.act = nn.PReLU(8)
            self.attend = nn.MultiheadAttention(5, 1, batch_first=True)

        def forward(self, x: torch.Tensor) -> Any:
            y = self.act(self.norm(self.before(x)))
            y = self.transposed(nn.functional.avg_pool2d(self.up(y), 3, 2, 1, ceil_mode=True))
            y = torch.cat([y[:, ::2], y.flip(2)[:, 1:3]], 1).roll(1, 3)
            rows = y.flatten(2).transpose(1, 2)[:, :7]
            h, _ = self.lstm(rows)
            h, last = self.gru(h)
            h = self.attend(h, h, h, need_weights=False)[0]
            picked = torch.where(h > 0, h, h * 0.1).cumsum(1).clamp(-2, 2)
            return picked, last.squeeze(0).softmax(-1), y.amax((2, 3)).log_softmax(-1)

    model, x = Mixed().eval(), torch.randn(2, 4, 6, 6)
    with torch.no_grad():
        expected = model(x)
    made = results(load_onnx(exported(model, x, opset_version=17)), x)
    for y, wanted in zip(made, expected, strict=True):
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)


def test_the_newer_exporter_gives_the_same(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    torch.manual_seed(2)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.AdaptiveAvgPool2d((2, 2)), nn.Flatten(), nn.LayerNorm(16)
    ).eval()  # fmt: skip
    x = torch.randn(1, 3, 8, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (x,), tmp_path / "m.onnx", dynamo=True, verbose=False)
    (y,) = results(load_onnx(tmp_path / "m.onnx"), x)
    with torch.no_grad():
        torch.testing.assert_close(y, model(x), rtol=1e-4, atol=1e-5)


def test_shapes_are_computed_while_importing() -> None:
    model = parsed(
        """g (float[2, 6] x) => (float[3, 4] y) <int64[1] three = {3}, int64[1] rest = {-1}> {
            s = Shape(x)
            n = ReduceProd<keepdims = 1>(s)
            m = Div(n, three)
            t = Concat<axis = 0>(three, m)
            r = Reshape(x, t)
            y = Relu(r)
        }"""
    )
    loaded = load_onnx(model)
    assert len(loaded.network.nodes) == 2
    x = torch.randn(2, 6)
    torch.testing.assert_close(results(loaded, x)[0], x.reshape(3, 4).relu())
    assert repr(loaded).startswith("OnnxModel(g: x float32[2, 6] -> y float32[3, 4]")


def test_open_dimensions_need_shapes() -> None:
    model = parsed("g (float[batch, 3, width] x) => (float[batch, 3, width] y) { y = Relu(x) }")
    for use in (lambda m: m.network, lambda m: m.compile(), lambda m: m.at(), syno.compile):
        with pytest.raises(ShapeError, match=r"open dimensions batch, width by shapes=\{'x'"):
            use(load_onnx(model))
    nameless = parsed("g (float[?, 3] x) => (float[?, 3] y) { y = Relu(x) }")
    with pytest.raises(ShapeError, match=r"open dimensions \? by shapes=\{'x'"):
        load_onnx(nameless)
    assert load_onnx(model, shapes={"x": [2, 3, 4]}).outputs["y"].shape == (2, 3, 4)
    with pytest.raises(ShapeError, match=r"\[batch, 3, width\]; shapes gives \[2, 4, 4\]"):
        load_onnx(model, shapes={"x": [2, 4, 4]})
    with pytest.raises(UnknownName, match="'z'"):
        load_onnx(model, shapes={"z": [1]})
    taken = parsed("g (float[4] x, int64[K] s) => (float[M, L] y) { y = Reshape(x, s) }")
    fixed = load_onnx(taken, constants={"s": np.array([2, 2])})
    assert fixed.outputs["y"].shape == (2, 2)
    assert list(fixed.inputs) == ["x"]


def test_all_operators_that_are_not_covered_are_listed() -> None:
    model = parsed(
        """g (float[4] x) => (float[4] y, int64[N, M] z) {
            z = NonZero(x)
            i, j = Unique(x)
            y = Relu(x)
        }"""
    )
    with pytest.raises(UnsupportedOp) as caught:
        load_onnx(model)
    assert set(caught.value.operators) >= {"NonZero", "Unique"}
    assert "Relu" not in caught.value.operators
    assert "cannot be computed" in str(caught.value)


def test_conditions_and_loops_that_are_known_are_followed() -> None:
    model = parsed(
        """g (float[3] x) => (float[3] y, float[4, 3] z) <int64 four = {4}, bool yes = {1}, float[1] two = {2}> {
            y = If(yes) <
                then_branch = t () => (float[3] a) { a = Mul(x, two) },
                else_branch = e () => (float[3] b) { b = Neg(x) }
            >
            last, z = Loop(four, yes, x) <
                body = step (int64 i, bool c, float[3] s) => (bool k, float[3] n, float[3] o) {
                    k = Identity(c)
                    n = Add(s, x)
                    o = Identity(n)
                }
            >
        }"""
    )
    x = torch.randn(3)
    y, z = results(load_onnx(model), x)
    torch.testing.assert_close(y, 2 * x)
    torch.testing.assert_close(z, torch.stack([x * k for k in (2, 3, 4, 5)]))
    unknown = parsed(
        """g (float[3] x, bool c) => (float[3] y) {
            y = If(c) <
                then_branch = t () => (float[3] a) { a = Neg(x) },
                else_branch = e () => (float[3] b) { b = Abs(x) }
            >
        }"""
    )
    with pytest.raises(UnsupportedOp, match="If: a condition that only the run gives"):
        load_onnx(unknown)


def test_indices_and_whole_numbers_of_the_input() -> None:
    model = parsed(
        """g (float[4, 5] x, int64[2, 3] at, int64[4, 2] each) =>
            (float[2, 3, 5] rows, float[4, 2] picked, float[4, 2, 5] hot, bool[4, 2] same, int64[2, 4] turned)
            <int64 five = {5}, float[2] pair = {0, 2}, int64 three = {3}> {
            rows = Gather(x, at)
            picked = GatherElements<axis = 1>(x, each)
            hot = OneHot(each, five, pair)
            same = Equal(each, three)
            turned = Transpose(each)
        }"""
    )
    x = torch.randn(4, 5)
    at, each = (
        torch.tensor([[0, -1, 2], [3, -4, 1]]),
        torch.tensor([[0, -1], [3, 4], [-5, 2], [1, 1]]),
    )
    rows, picked, hot, same, turned = results(load_onnx(model), x, at, each)
    torch.testing.assert_close(rows, x[at])
    torch.testing.assert_close(picked, x.gather(1, each % 5))
    torch.testing.assert_close(hot, 2.0 * nn.functional.one_hot(each % 5, 5))
    assert torch.equal(same, each == 3)
    assert torch.equal(turned, each.T)
    far = torch.full((4, 2), 2**53 + 1)
    assert torch.equal(results(load_onnx(parsed(
        "g (int64[4, 2] x) => (bool[4, 2] y) <int64 k = {9007199254740991}> { y = Equal(x, k) }"
    )), far)[0], far == 2**53 - 1)  # fmt: skip
    with pytest.raises(UnsupportedOp):  # double precision cannot tell these two numbers apart
        load_onnx(
            parsed(
                "g (int64[2] x) => (bool[2] y) <int64 k = {9007199254740992}> { y = Equal(x, k) }"
            )
        )


@pytest.mark.parametrize(
    ("batch", "shape", "indices"),
    [
        (0, (3, 4, 5), (2, 2)),
        (1, (3, 4, 5), (3, 2, 1)),
        (0, (3, 4, 5), (2, 6, 3)),
        (1, (2, 3, 4), (2, 2)),
        (0, (6,), (3, 1)),
    ],
)
def test_elements_at_computed_places(
    batch: int, shape: tuple[int, ...], indices: tuple[int, ...]
) -> None:
    from onnx.reference import ReferenceEvaluator

    depth = indices[-1]
    info = helper.make_tensor_value_info
    made = [*indices[:-1], *shape[batch + depth :]]
    graph = helper.make_graph(
        [helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=batch)],
        "places",
        [info("x", TensorProto.FLOAT, shape), info("i", TensorProto.INT64, indices)],
        [info("y", TensorProto.FLOAT, made)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    rng = np.random.default_rng(len(shape) + batch)
    x = rng.standard_normal(shape).astype(np.float32)
    at = [rng.integers(0, shape[batch + d], indices[:-1]) for d in range(depth)]
    places = np.stack(at, -1)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x, "i": places})
    (result,) = results(load_onnx(model), x, places)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("backward", [0, 1])
def test_scans_are_written_out(backward: int) -> None:
    model = parsed(
        """g (float[2] s, float[3, 5, 2] x) => (float[2] last, float[3, 2, 5] all) {
            last, all = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [2],
                scan_input_directions = [BACKWARD], scan_output_directions = [BACKWARD],
                body = step (float[2] a, float[3, 2] b) => (float[2] c, float[3, 2] d) {
                    m = ReduceMean<axes = [0], keepdims = 0>(b)
                    c = Add(a, m)
                    d = Mul(b, c)
                }
            >(s, x)
        }""".replace("BACKWARD", str(backward))
    )
    model.opset_import[0].version = 17
    s, x = torch.randn(2), torch.randn(3, 5, 2)
    last, everything = results(load_onnx(model), s, x)
    parts, state = [], s
    for t in reversed(range(5)) if backward else range(5):
        state = state + x[:, t].mean(0)
        parts.append(x[:, t] * state)
    torch.testing.assert_close(last, state)
    torch.testing.assert_close(everything, torch.stack(parts[::-1] if backward else parts, 2))


def test_outputs_that_are_inputs_or_constants_and_names_that_collide() -> None:
    model = parsed(
        """g (float[2] x, float[2] y_2) => (float[2] y, float[2] x_out, float[2] c) <float[2] c = {1, 2}> {
            y = Add(x, y_2)
            x_out = Identity(x)
        }"""
    )
    loaded = load_onnx(model)
    x, z = torch.randn(2), torch.randn(2)
    y, same, c = results(loaded, x, z)
    torch.testing.assert_close(y, x + z)
    torch.testing.assert_close(same, x)
    torch.testing.assert_close(c, torch.tensor([1.0, 2.0]))
    assert list(loaded.outputs) == ["y", "x_out", "c"]
    assert {v.name for v in loaded.network.outputs} == {"y", "x_out", "c"}


def with_external(folder: Path, location: str, offset: int, length: int) -> Any:
    model = parsed("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    (tensor,) = model.graph.initializer
    raw = numpy_helper.to_array(tensor).tobytes()
    tensor.ClearField("float_data")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(b"\0" * 8 + raw)
    (folder.parent / "outside.bin").write_bytes(b"\0" * 8 + raw)
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_weights_in_other_files_are_read_from_the_model_s_folder_only(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = with_external(folder, "weights.bin", 8, 8)
    (y,) = results(load_onnx(path), torch.zeros(2))
    torch.testing.assert_close(y, torch.tensor([1.0, 2.0]))
    with pytest.raises(FormatError):
        load_onnx(path.read_bytes())
    for location, offset, length in (
        ("../outside.bin", 8, 8),
        (str(tmp_path / "outside.bin"), 8, 8),
        ("missing.bin", 8, 8),
        ("weights.bin", 8, 4),
        ("weights.bin", 12, 8),
        ("weights.bin", -8, 8),
        ("weights.bin", 8, 1 << 40),
        ("", 8, 8),
        (".", 0, 8),
    ):
        with pytest.raises(FormatError, match=r"^\[onnx\]"):
            load_onnx(with_external(folder, location, offset, length))
    (folder / "weights.bin").unlink()
    (folder / "link.bin").symlink_to(tmp_path / "outside.bin")
    with pytest.raises(FormatError):
        load_onnx(with_external(folder, "link.bin", 8, 8))


def lying() -> dict[str, Any]:
    """Models that cannot be what they say."""
    usual = "g (float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}> { a = Add(x, w) y = Relu(a) }"
    made = {}

    def changed(name: str) -> Any:
        made[name] = parsed(usual)
        return made[name].graph

    changed("short").initializer[0].dims[0] = 4
    changed("huge").initializer[0].dims[0] = 1 << 50
    changed("negative").initializer[0].dims[0] = -3
    graph = changed("cycle")
    graph.node[0].input[0] = "y"
    graph = changed("missing")
    graph.node[0].input[0] = "nothing"
    graph = changed("twice")
    graph.initializer.append(graph.initializer[0])
    graph = changed("same output")
    graph.node[1].output[0] = "a"
    graph = changed("output shape")
    graph.output[0].type.tensor_type.shape.dim[0].dim_value = 5
    graph = changed("output type")
    graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    graph = changed("inner shape")
    graph.value_info.append(helper.make_tensor_value_info("a", 1, [2, 4]))
    graph = changed("no nodes")
    del graph.node[:]
    made["no graph"] = onnx.ModelProto(ir_version=9, opset_import=[helper.make_opsetid("", 18)])
    made["version"] = parsed(usual)
    made["version"].opset_import[0].version = 4000
    made["wrong rank"] = parsed("g (float[3] x, float[4] z) => (float[3] y) { y = Add(x, z) }")
    made["wrong sizes"] = parsed(
        "g (float[3, 4] x, float[5, 2] z) => (float[3, 2] y) { y = MatMul(x, z) }"
    )
    made["channels"] = parsed(
        "g (float[1, 3, 8, 8] x, float[4, 2, 3, 3] w) => (float[1, 4, 6, 6] y) { y = Conv(x, w) }"
    )
    made["pads"] = parsed(
        "g (float[1, 1, 8] x) => (float[1, 1, 8] y) { y = MaxPool<kernel_shape = [3], pads = [1]>(x) }"
    )
    made["strides"] = parsed(
        "g (float[1, 1, 8] x) => (float[1, 1, 8] y) { y = MaxPool<kernel_shape = [3], strides = [0]>(x) }"
    )
    made["parts"] = parsed(
        "g (float[4] x) => (float[2] y, float[2] z) { y, z = Split<num_outputs = 4611686018427387904>(x) }"
    )
    made["huge output"] = parsed(
        "g () => (float[N] y) <int64[2] n = {1099511627776, 4096}> { y = ConstantOfShape(n) }"
    )
    return made


@pytest.mark.parametrize("name", sorted(lying()))
def test_models_that_lie_get_a_sentence(name: str) -> None:
    with pytest.raises(SynoError, match=r"^\[(onnx|O000|graph)\]") as caught:
        load_onnx(lying()[name])
    assert len(str(caught.value)) < 1000


def test_what_is_no_model_gets_a_sentence(tmp_path: Path) -> None:
    for content in (b"", b"nothing", bytes(range(256)), b"\x08\x09"):
        with pytest.raises(FormatError):
            load_onnx(content)
    with pytest.raises(FormatError, match="cannot be read"):
        load_onnx(tmp_path / "missing.onnx")
    with pytest.raises(FormatError):
        load_onnx(tmp_path)


def seeds_of_models() -> list[bytes]:
    torch.manual_seed(3)
    small = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)
    )  # fmt: skip
    texts = [
        "g (float[2, 6] x) => (float[3, 4] y) <int64[2] s = {3, 4}> { r = Reshape(x, s) y = Softmax<axis = 1>(r) }",
        'g (float[1, 2, 4, 4] x) => (float[1, 2, 8, 8] y) <float[4] k = {1, 1, 2, 2}> { y = Resize<mode = "linear">(x, , k) }',
        "g (float[2, 5] x) => (float[2, 2] y) <int64[1] a = {0}, int64[1] b = {4}, int64[1] c = {1}, int64[1] d = {2}> "
        "{ y = Slice(x, a, b, c, d) }",
    ]
    return [
        exported(small, torch.zeros(1, 2, 6, 6)),
        *(parsed(t).SerializeToString() for t in texts),
    ]


@pytest.mark.parametrize("seed", range(6))
def test_damaged_files_give_typed_errors_or_networks(seed: int) -> None:
    rng, refused = np.random.default_rng(seed), 0
    for content in seeds_of_models():
        for _ in range(25):
            damaged = bytearray(content)
            kind = int(rng.integers(4))
            at = int(rng.integers(len(damaged)))
            if kind == 0:
                damaged[at] ^= 1 << int(rng.integers(8))
            elif kind == 1:
                damaged[at] = int(rng.integers(256))
            elif kind == 2:
                del damaged[at : at + int(rng.integers(1, 9))]
            else:
                damaged[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 5))).tolist())
            try:
                assert load_onnx(bytes(damaged)).network.outputs
            except SynoError:
                refused += 1
    assert 0 < refused < 100


def fields_changed(model: Any, rng: np.random.Generator) -> None:
    """One number, name or list of a model set to something else."""
    node = model.graph.node[int(rng.integers(len(model.graph.node)))]
    kind = int(rng.integers(6))
    if kind == 0 and len(node.attribute):
        attribute = node.attribute[int(rng.integers(len(node.attribute)))]
        number = int(rng.choice([-(1 << 62), -7, -1, 0, 1, 2, 99, 1 << 62]))
        if len(attribute.ints):
            attribute.ints[int(rng.integers(len(attribute.ints)))] = number
        elif attribute.type == onnx.AttributeProto.INT:
            attribute.i = number
        else:
            attribute.name = "axis"
    elif kind == 1 and len(node.input):
        names = [name for each in model.graph.node for name in (*each.input, *each.output)]
        node.input[int(rng.integers(len(node.input)))] = str(rng.choice(names))
    elif kind == 2:
        node.op_type = str(
            rng.choice(
                [
                    "Conv",
                    "Gather",
                    "Split",
                    "LSTM",
                    "Loop",
                    "Einsum",
                    "Pad",
                    "TopK",
                    "Squeeze",
                    "Tile",
                ]
            )
        )
    elif kind == 3 and len(model.graph.initializer):
        tensor = model.graph.initializer[int(rng.integers(len(model.graph.initializer)))]
        values = numpy_helper.to_array(tensor).copy()
        if values.size:
            flat = values.reshape(-1)
            flat[int(rng.integers(flat.size))] = rng.choice([-9, -1, 0, 3, 1 << 30])
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    elif kind == 4:
        dims = model.graph.input[0].type.tensor_type.shape.dim
        dims[int(rng.integers(len(dims)))].dim_value = int(rng.choice([-1, 0, 1, 3, 7]))
    else:
        model.graph.input[0].type.tensor_type.elem_type = int(rng.integers(0, 24))


@pytest.mark.parametrize("seed", range(6))
def test_changed_fields_give_typed_errors_or_networks(seed: int) -> None:
    rng, refused = np.random.default_rng(100 + seed), 0
    for content in seeds_of_models():
        for _ in range(25):
            model = onnx.load_model_from_string(content)
            fields_changed(model, rng)
            try:
                assert load_onnx(model).network.outputs
            except SynoError:
                refused += 1
    assert 0 < refused < 100


def test_outputs_whose_shapes_are_not_told_are_read(tmp_path: Path) -> None:
    branches = [
        onnx.helper.make_graph(
            [onnx.helper.make_node(name, ["x"], [name])], name, [],
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)],
        )
        for name in ("Relu", "Neg")
    ]  # fmt: skip
    nodes = [
        onnx.helper.make_node("If", ["yes"], ["y"], then_branch=branches[0], else_branch=branches[1]),
        onnx.helper.make_node("MatMul", ["y", "w"], ["z"]),
    ]  # fmt: skip
    weight = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = onnx.helper.make_graph(
        nodes,
        "untold",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])],
        [onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.array(True), "yes"), onnx.numpy_helper.from_array(weight, "w")],
    )  # fmt: skip
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9
    )
    path = tmp_path / "untold.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    x = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
    made = load_onnx(path).compile()(x)
    np.testing.assert_allclose(made, np.maximum(x, 0) @ weight)
    (tmp_path / "w.bin").write_bytes(b"")
    with pytest.raises(FormatError, match="bytes"):
        load_onnx(path)
