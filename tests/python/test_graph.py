"""Models as plain data: the same numbers, weights, layers; nothing but functions of tensors is called."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import syno  # noqa: E402
from syno import models  # noqa: E402
from syno.errors import FormatError  # noqa: E402
from syno.support.inputs import call  # noqa: E402
from syno.torch.graph import CannotRecord, Graph, Recorded, _function, record  # noqa: E402


class Many(nn.Module):
    """In-place functions, a layer called twice, tied weights, buffers that are no state, several results."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.norm = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.3))
        self.same = nn.Conv2d(8, 8, 3, padding="same", dilation=2)
        self.reflected = nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect")
        self.head = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8, bias=False)
        self.tied.weight = self.head.weight
        self.alias = self.conv
        self.register_buffer("offset", torch.arange(8.0), persistent=False)
        self.register_buffer("scale", torch.full((8,), 0.5))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.conv(x))
        y = F.pad(self.conv(y), (1, 2, 0, 1), value=float("-inf")).amax((2, 3)) + self.offset
        z = F.gelu(self.same(self.reflected(x)), approximate="tanh").mean((2, 3))
        first, second = (self.head(y) * self.scale).chunk(2, dim=1)
        return {"a": (first, [second]), "b": self.tied(z), "c": z > 0, "d": None}


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.norm = nn.LayerNorm(16)
        self.out = nn.Linear(16, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Any, mask: Any = None) -> Any:
        x = self.norm(self.embed(tokens))
        parts = [f(x).view(*x.shape[:2], 2, 8).transpose(1, 2) for f in (self.q, self.k, self.v)]
        y = F.scaled_dot_product_attention(*parts, attn_mask=mask, is_causal=mask is None)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class Depends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        return self.layer(x) if x.sum() > 0 else x


def tokens() -> Any:
    return torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(0))


def image(channels: int = 8, extent: int = 8) -> Any:
    return torch.randn(2, channels, extent, extent, generator=torch.Generator().manual_seed(0))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "many": (Many, image),
    "attention": (Attention, tokens),
    "named": (Attention, lambda: {"tokens": tokens(), "mask": torch.ones(5, 5).tril().bool()}),
    "several": (nn.Bilinear, lambda: (torch.ones(3, 4), torch.ones(3, 5))),
    "volume": (
        lambda: nn.Sequential(nn.Conv3d(4, 8, 2, groups=2), nn.SiLU(True), nn.Flatten(1)),
        lambda: torch.ones(1, 4, 3, 3, 3),
    ),
    "transposed": (
        lambda: nn.Sequential(nn.Conv1d(8, 8, 3), nn.ConvTranspose1d(8, 4, 2, 2), nn.LSTM(4, 4)),
        lambda: torch.ones(8, 4),
    ),
    "resnet": (lambda: models.make("resnet18"), lambda: image(3, 32)),
}  # fmt: skip


def made(name: str) -> tuple[nn.Module, Any, Recorded, dict[str, Any]]:
    make, example = MODELS[name]
    torch.manual_seed(0)
    model = (nn.Bilinear(4, 5, 6) if name == "several" else make()).eval()
    inputs = example()
    content, tensors = record(model, inputs, syno.sites(model, inputs, repeats=1))
    return model, inputs, msgspec.json.decode(msgspec.json.encode(content), type=Recorded), tensors


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        for one, other in zip(a, b, strict=True):
            same(one, other)
    elif a is not None:
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", MODELS)
def test_a_recorded_model_computes_the_same_and_has_the_same_layers(name: str) -> None:
    model, inputs, content, tensors = made(name)
    graph = Graph(content, {key: tensor.clone() for key, tensor in tensors.items()})
    with torch.no_grad():
        expected = call(model, inputs)
        same(call(graph, inputs), expected)
        same(call(copy.deepcopy(graph), inputs), expected)
    assert set(graph.state_dict()) == set(model.state_dict())
    assert dict(graph.named_parameters()).keys() == dict(model.named_parameters()).keys()
    sites = [site for site in syno.sites(model, inputs, repeats=1) if not site.reason]
    its = {site.name: site for site in syno.sites(graph, inputs, repeats=1) if not site.reason}
    assert {site.name: (site.layer, site.calls) for site in sites} == {
        name: (site.layer, site.calls) for name, site in its.items()
    }
    assert not model.training


def test_weights_of_the_model_are_weights_of_the_record() -> None:
    model, inputs, content, tensors = made("many")
    graph = Graph(content, tensors)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
        graph.load_state_dict(model.state_dict())
        same(call(graph, inputs), call(model, inputs))
        assert graph.tied.weight is graph.head.weight and graph.alias is graph.conv
        same(call(graph.double(), inputs.double())["c"], call(model.double(), inputs.double())["c"])


def test_what_depends_on_data_is_not_recorded_and_says_why() -> None:
    model = Depends()
    with pytest.raises(CannotRecord, match=r"torch\.export: "):
        record(model, torch.ones(1, 8), syno.sites(model, torch.ones(1, 8), repeats=1))
    assert model.training


def test_functions_reach_nothing_but_tensors() -> None:
    """Of all of ATen: none takes the name of a file, keeps a reference, or changes what memory a tensor has."""
    allowed = []
    for packet in dir(torch.ops.aten):
        for overload in getattr(getattr(torch.ops.aten, packet), "overloads", list)():
            name = f"{packet}.{overload}"
            try:
                found = _function(name)
            except FormatError:
                continue
            assert str(found) == f"aten.{name}"
            allowed.append(found)
    words = {
        argument.name
        for function in allowed
        for argument in function._schema.arguments
        if "str" in str(argument.type)
    }
    assert words <= {
        "approximate", "rounding_mode", "mode", "equation", "reduce", "indexing", "padding", "side"
    }  # fmt: skip
    names = {str(function).split(".")[1] for function in allowed}
    assert len(names) > 300
    assert not names & {
        "from_file", "save", "set_", "resize_", "set_data", "data_ptr", "record_stream", "_print", "warn", "to_here"
    }  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "from_file.default", "save.default", "set_.source_Tensor", "resize_.default", "__class__.mro", "relu", "",
        "relu.default.default", "relu.__call__", "op.default", "nothing.default", "_print.default", "x" * 9999,
        "prims.add", "relu.overloads", "name.default",
    ],
)  # fmt: skip
def test_other_functions_are_refused(name: str) -> None:
    with pytest.raises(FormatError, match="no function that a kept network may call"):
        _function(name)


def test_what_does_not_fit_together_is_refused() -> None:
    _, _, content, tensors = made("volume")
    plain = msgspec.to_builtins(content)

    def refused(**changes: Any) -> None:
        changed = msgspec.convert({**plain, **changes}, Recorded)
        with pytest.raises(FormatError, match="graph"):
            Graph(changed, tensors)

    steps = plain["steps"]
    refused(version=2)
    refused(steps=[])
    refused(steps=[{}])
    refused(steps=[{"input": 0, "weight": "0.bias"}])
    refused(steps=[{"input": 0}, {"function": "relu.default", "args": [{"step": 1}]}])
    refused(steps=[{"input": 0}, {"function": "relu.default", "args": [{"code": "x"}]}])
    refused(steps=[*steps, {"weight": "forward"}], output={"tensor": 0})
    refused(steps=[*steps, {"layer": "0._modules"}], output={"tensor": 0})
    refused(output={"tensor": 99})
    refused(layers={**plain["layers"], "9": {**plain["layers"]["0"], "kind": "conv9d"}})
    refused(layers={**plain["layers"], "9": plain["layers"]["0"]})  # no weights
    refused(layers={"forward": plain["layers"]["0"]})
    refused(same={"a": "b"})
