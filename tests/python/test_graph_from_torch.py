"""PyTorch models as networks: whole models against eager in float64, the structure of calls, and what is refused."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
import torch.utils._pytree as pytree  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import syno  # noqa: E402
from syno import models  # noqa: E402
from syno.errors import ShapeError  # noqa: E402
from syno.graph.from_torch import CannotImport, Imported, from_module  # noqa: E402
from syno.graph.reference import run_reference  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def seeded(model: nn.Module) -> nn.Module:
    """In inference, with statistics that are not those of a new model."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is not None:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def run(imported: Imported, *args: Any, **kwargs: Any) -> Any:
    made = run_reference(imported.network, imported.flatten(args, kwargs), dtype=torch.float64)
    return imported.unflatten([made[value.name] for value in imported.network.outputs])


def assert_agrees(model: nn.Module, example: Any, few: float = 1e-10) -> Imported:
    """The network computes in float64 what the model does in float64."""
    imported = from_module(model, example)
    args = (
        example if isinstance(example, tuple) else () if isinstance(example, dict) else (example,)
    )
    named = example if isinstance(example, dict) else {}
    ours = run(imported, *args, **named)
    wide = copy.deepcopy(model).double()
    doubled = pytree.tree_map(
        lambda t: t.double() if isinstance(t, Tensor) and t.is_floating_point() else t,
        (args, named),
    )
    with torch.no_grad():
        theirs = wide(*doubled[0], **doubled[1])
    (a, ours_spec), (b, theirs_spec) = pytree.tree_flatten(ours), pytree.tree_flatten(theirs)
    assert ours_spec == theirs_spec
    for mine, wanted in zip(a, b, strict=True):
        if isinstance(wanted, Tensor):
            scale = (
                float(wanted.abs().max()) if wanted.is_floating_point() and wanted.numel() else 1.0
            )
            if wanted.is_floating_point():  # constants of the model are in float32 on one side
                mine, wanted = mine.double(), wanted.double()
            torch.testing.assert_close(
                mine, wanted, rtol=few, atol=few * max(scale, 1e-6), equal_nan=True
            )
        else:
            assert mine == wanted
    return imported


def on_host(imported: Imported) -> set[str]:
    return {node.function for node in imported.network.nodes if node.host is not None}


# --- whole models


@pytest.mark.parametrize(
    "name", ["cifar_resnet18", "fashion_resnet", "gpt", "mobilenet_v2", "resnet18", "resnext29"]
)
def test_models_are_programs_throughout(name: str) -> None:
    example = (
        torch.randint(50, (1, 8))
        if name == "gpt"
        else torch.randn(1, 1 if "fashion" in name else 3, 32, 32)
    )
    imported = assert_agrees(
        seeded(models.make(name)), example, 1e-6
    )  # sizes of float32 parameters stay
    assert not on_host(imported)


class Block(nn.Module):
    """ConvNeXt's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depth(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.narrow(F.gelu(self.wide(y)))).permute(0, 3, 1, 2)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.b = nn.Sequential(nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.SiLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.end = nn.Conv2d(24, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        wide = F.interpolate(a[..., ::2, ::2], scale_factor=2, mode="bilinear", align_corners=False)
        return self.end(torch.cat([a, self.up(b), wide], 1)).sigmoid()


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 16, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 16))
        self.place = nn.Parameter(torch.randn(1, 17, 16))
        layer = nn.TransformerEncoderLayer(
            16, 4, 32, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.place
        return self.head(self.blocks(x)[:, 0])


MODELS: dict[str, tuple[Any, Any]] = {
    "convnext": (lambda: nn.Sequential(nn.Conv2d(3, 8, 4, 4), Block(8), Block(8)), lambda: torch.randn(2, 3, 16, 16)),
    "unet": (UNet, lambda: torch.randn(1, 3, 16, 16)),
    "vit": (ViT, lambda: torch.randn(2, 3, 16, 16)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 4, 32), lambda: torch.randn(5, 2, 16)),
    "decoder": (
        lambda: nn.TransformerDecoderLayer(16, 4, 32, batch_first=True),
        lambda: (torch.randn(2, 5, 16), torch.randn(2, 7, 16)),
    ),
    "attention": (lambda: nn.MultiheadAttention(16, 4), lambda: (torch.randn(5, 2, 16),) * 3),
    "lstm": (lambda: nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True), lambda: torch.randn(2, 5, 6)),
    "gru": (lambda: nn.GRU(6, 8, 2), lambda: torch.randn(5, 2, 6)),
    "rnn": (lambda: nn.RNN(6, 8), lambda: torch.randn(5, 2, 6)),
    "lstm cell": (lambda: nn.LSTMCell(6, 8), lambda: torch.randn(2, 6)),
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(3, 8, 5, padding="same"), nn.PReLU(8), nn.AdaptiveAvgPool1d(3), nn.Flatten(), nn.Linear(24, 2)),
        lambda: torch.randn(2, 3, 20),
    ),
    "conv3d": (
        lambda: nn.Sequential(nn.Conv3d(2, 4, 3), nn.BatchNorm3d(4), nn.ELU(), nn.MaxPool3d(2, ceil_mode=True)),
        lambda: torch.randn(1, 2, 7, 7, 7),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_layers_and_small_models_are_programs_throughout(name: str) -> None:
    make, example = MODELS[name]
    torch.manual_seed(1)
    imported = assert_agrees(seeded(make()), example(), 1e-6)
    assert not on_host(imported)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.table(tokens))


def test_tied_weights_are_one_and_keep_the_models_memory() -> None:
    model = Tied().eval()
    imported = assert_agrees(model, torch.randint(11, (2, 5)), 1e-6)
    assert len(imported.network.weights) == 1
    (name,) = imported.network.sources
    assert imported.network.sources[name] in ("table.weight", "head.weight")
    assert np.shares_memory(imported.network.weights[name], model.table.weight.detach().numpy())


# --- calls


class Odd(nn.Module):
    """Arguments by name, and results of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6))
        self.register_buffer("places", torch.arange(6) % 3)

    def forward(
        self, x: Tensor, y: dict[str, Tensor] | None = None, *, scale: int = 2
    ) -> dict[str, Any]:
        mask = torch.arange(x.shape[-1]) < torch.tensor(3)
        kept = x.masked_fill(~mask, -1e9).softmax(-1)
        if y is not None:
            kept = kept + y["more"][..., self.places]
        return {
            "kept": (kept, None, 3), "input": x, "weight": self.weight, "constant": torch.ones(2),
            "order": x.sort(-1).indices, "large": x * scale > 1, "spectrum": torch.fft.fft(x).abs(),
            "twice": kept, "mask": mask,
        }  # fmt: skip


def test_arguments_and_results_keep_their_structure() -> None:
    model, x = Odd().eval(), torch.randn(4, 6)
    more = {"more": torch.randn(4, 3)}
    imported = assert_agrees(model, {"x": x, "y": more, "scale": 3}, 1e-6)
    assert on_host(imported) == {"aten.sort.default", "aten.abs.default"}
    assert any("there is no row" in note for note in imported.network.notes)
    by_place = run(imported, x, more, scale=3)
    assert torch.equal(by_place["input"].float(), x)
    bare = assert_agrees(model, x, 1e-6)
    assert torch.equal(run(bare, x=x)["large"], x * 2 > 1)


def test_calls_that_differ_from_the_example_are_refused() -> None:
    imported = from_module(Odd().eval(), {"x": torch.randn(4, 6), "scale": 3})
    with pytest.raises(ShapeError, match=r"expected float32 \[4, 6\].*got float32 \[5, 6\]"):
        imported.flatten((), {"x": torch.randn(5, 6), "scale": 3})
    with pytest.raises(ShapeError, match=r"expected float32 \[4, 6\].*got float64 \[4, 6\]"):
        imported.flatten((), {"x": torch.randn(4, 6).double(), "scale": 3})
    with pytest.raises(ShapeError, match="expected 3"):
        imported.flatten((), {"x": torch.randn(4, 6), "scale": 4})
    with pytest.raises(ShapeError):
        imported.flatten((), {"x": torch.randn(4, 6), "y": {"more": torch.randn(4, 3)}, "scale": 3})
    with pytest.raises(ShapeError):
        imported.flatten((), {})


def test_the_model_stays_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    model.train()
    model[1].eval()
    before = copy.deepcopy(model.state_dict())
    imported = from_module(model, torch.randn(3, 4))
    assert [m.training for m in model.modules()] == [True, True, False, True]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    model.eval()
    x = torch.randn(3, 4)
    torch.testing.assert_close(run(imported, x).float(), model(x))


def test_inputs_of_any_layout_in_memory() -> None:
    model = seeded(nn.Conv2d(3, 4, 3))
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    assert_agrees(model.to(memory_format=torch.channels_last), x, 1e-6)


def test_writes_within_the_model_and_hooks_are_part_of_it() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            x = x + 1
            x.relu_()
            x[:, 0] = 3
            x[1:, 2] += x[:-1, 3]
            return x.view(-1, 2).mean(0, keepdim=True)

    model = nn.Sequential(Writes(), nn.Linear(2, 2))
    model[0].register_forward_hook(lambda module, args, result: result * 2)
    assert_agrees(model.eval(), torch.randn(4, 6), 1e-6)


def test_whole_numbers_of_the_model_become_constants_and_are_watched() -> None:
    model = Odd().eval()
    imported = from_module(model, {"x": torch.randn(4, 6), "y": {"more": torch.randn(4, 3)}})
    assert imported.stale() is None
    model.places[0] = 2
    assert imported.stale() == "places"


# --- what is refused


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.calls


class Overwrites(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mul_(2)


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x


class Selects(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x[x > 0]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Counts(), "its buffer calls"),
        (Overwrites(), "its input x"),
        (Branches(), "torch.export"),
        (Selects(), "shapes of networks are fixed|torch.export"),
        (nn.Linear(3, 2, device="meta"), "meta"),
        (nn.Linear(4, 2), "torch.export"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, nn.Module) else "",
)
def test_what_no_network_is_has_a_sentence(model: nn.Module, said: str) -> None:
    with pytest.raises(CannotImport, match=said) as caught:
        from_module(model, torch.randn(2, 3))
    assert str(caught.value).startswith("[import] ") and "\n" not in str(caught.value)


def test_empty_tensors_and_batches_are_run_by_pytorch() -> None:
    assert_agrees(nn.Linear(3, 2).eval(), torch.randn(0, 3), 1e-6)


class Running(torch.nn.Module):
    """Running sums of everything that PyTorch adds up, over lengths of both sides of any limit."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x.cumsum(1) * 2,
            x.flip(1).cumsum(1).flip(1),
            torch.cumprod(x * 0.1 + 1, -1),
            x.logcumsumexp(0),
            x.cumsum(-1, dtype=torch.float64),
            mask.cumsum(-1) - 1,
            (mask > 0).cumsum(0),
            mask.int().cumsum(1, dtype=torch.int32),
        )


@pytest.mark.parametrize("length", [1, 3, 33, 700])
def test_running_sums_take_the_engine(length: int) -> None:
    torch.manual_seed(length)
    x, mask = torch.randn(3, length, 5), (torch.rand(3, length) > 0.3).long()
    model = Running().eval()
    net = syno.compile(model, (x, mask))
    made, wanted = net(x, mask), model(x, mask)
    for a, b in zip(made, wanted, strict=True):
        assert a.dtype == b.dtype
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert not any("running" in reason for reason in net.fallbacks.values())
    assert sum("cumsum" in name or "cumprod" in name for name in net.fallbacks) == 0


def test_running_sums_have_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(4, 50, 3, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x.cumsum(1).sin() * torch.cumprod(x * 0.1 + 1, 1)).sum()

    loss(x).backward()
    wanted, x.grad = x.grad, None
    torch.compile(loss, backend="syno")(x).backward()
    assert x.grad is not None and wanted is not None
    torch.testing.assert_close(x.grad, wanted, rtol=1e-4, atol=1e-4)
