"""Layers of one input as one kernel, and parts of tensors that are read where they lie."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from machines import written_machine
from torch import Tensor, nn

import syno
from syno import _core
from syno.graph import fusing, joined_layers
from syno.graph.compile import Compiling, compile_network
from syno.graph.compiled import CompiledNetwork
from syno.graph.from_torch import from_module
from syno.kernels.cache import write_entry
from syno.machines.model import fixed_kernels


class Attention(nn.Module):
    """Queries, keys and values of one input; keys and values of fewer heads where `groups` says so."""

    def __init__(self, heads: int = 4, groups: int = 4, width: int = 8) -> None:
        super().__init__()
        self.heads, self.groups, self.width = heads, groups, width
        self.q = nn.Linear(heads * width, heads * width)
        self.k = nn.Linear(heads * width, groups * width)
        self.v = nn.Linear(heads * width, groups * width)

    def forward(self, x: Tensor) -> Tensor:
        def split(made: Tensor, heads: int) -> Tensor:
            parts = made.view(*made.shape[:-1], heads, self.width).transpose(1, 2)
            return parts.repeat_interleave(self.heads // heads, 1)

        q, k, v = (
            split(self.q(x), self.heads),
            split(self.k(x), self.groups),
            split(self.v(x), self.groups),
        )
        made = nn.functional.scaled_dot_product_attention(q, k, v)
        return made.transpose(1, 2).flatten(2)


class Branches(nn.Module):
    """First convolutions of several lengths, what follows them, and all of it as one tensor."""

    def __init__(
        self, lengths: Sequence[int], rank: int = 2, taps: int = 1, groups: int = 1
    ) -> None:
        super().__init__()
        conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[rank]
        norm = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[rank]
        self.first = nn.ModuleList(
            nn.Sequential(conv(8, n, taps, groups=groups), norm(n), nn.ReLU()) for n in lengths
        )
        self.then = nn.ModuleList(conv(n, 4, 3, padding=1) for n in lengths)

    def forward(self, x: Tensor) -> Tensor:
        made = [then(first(x)) for first, then in zip(self.first, self.then, strict=True)]
        return torch.cat(made, 1).relu() + 1


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be joined is, whatever is predicted."""
    monkeypatch.setattr(joined_layers, "_LEAST_GAIN", -1e9)


def compiled(model: nn.Module, x: Tensor, **options: object) -> CompiledNetwork:
    """Compiled and compared with eager, before and after its weights change."""
    model.eval()
    fast = syno.compile(model, x, **options)
    for _ in range(2):
        with torch.no_grad():
            wanted = model(x)
            assert (fast(x) - wanted).abs().max() <= 1e-5 * wanted.abs().max()
            for parameter in model.parameters():
                parameter.mul_(1.1)
    network = fast.network
    assert isinstance(network, CompiledNetwork)
    return network


def joined(network: CompiledNetwork) -> list[str]:
    return [
        stage.name for stage in network.stages if "_joined" in stage.name and stage.kind == "kernel"
    ]


def cases() -> list[tuple[str, Callable[[], nn.Module], tuple[int, ...], int]]:
    return [
        ("attention", Attention, (1, 6, 32), 1),
        ("attention of a batch", Attention, (3, 6, 32), 1),
        ("few keys", lambda: Attention(groups=2), (1, 6, 32), 1),
        ("one token", Attention, (1, 1, 32), 1),
        ("branches", lambda: Branches([8, 4, 12]), (1, 8, 6, 6), 1),
        ("branches of a batch", lambda: Branches([8, 8, 12]), (2, 8, 6, 6), 1),
        ("branches of a sequence", lambda: Branches([8, 4], rank=1, taps=3), (1, 8, 9), 1),
        ("branches of a volume", lambda: Branches([4, 8], rank=3), (1, 8, 3, 4, 4), 1),
        ("groups", lambda: Branches([8, 8], groups=2), (1, 8, 6, 6), 1),
        ("groups of several lengths", lambda: Branches([8, 4], groups=2), (1, 8, 6, 6), 0),
        ("one branch", lambda: Branches([8]), (1, 8, 6, 6), 0),
    ]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    ("name", "made", "shape", "kinds"), cases(), ids=[each[0] for each in cases()]
)
def test_layers_of_one_input_are_one_kernel(
    name: str, made: Callable[[], nn.Module], shape: tuple[int, ...], kinds: int
) -> None:
    torch.manual_seed(0)
    network = compiled(made(), torch.randn(shape))
    assert bool(joined(network)) == bool(kinds), name


@pytest.mark.usefixtures("always")
def test_random_networks_compute_the_same() -> None:
    draw = random.Random(3)
    for seed in range(6):
        torch.manual_seed(seed)
        batch, threads = draw.randint(1, 2), draw.choice([1, 2])
        if draw.random() < 0.5:
            lengths = [draw.choice([4, 8, 12]) for _ in range(draw.randint(2, 4))]
            rank = draw.choice([1, 2])
            model: nn.Module = Branches(lengths, rank, draw.choice([1, 3]))
            x = torch.randn(batch, 8, *[7] * rank)
        else:
            heads, width = draw.choice([2, 6]), draw.choice([4, 5])
            model = nn.Sequential(
                Attention(heads, draw.choice([1, 2]), width), Attention(heads, heads, width)
            )
            x = torch.randn(batch, draw.randint(1, 9), heads * width)
        compiled(model, x, threads=threads)


@pytest.mark.usefixtures("always")
def test_bundles_hold_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for number, (model, x) in enumerate(
        [(Attention(), torch.randn(1, 6, 32)), (Branches([16, 16]), torch.randn(1, 8, 4, 4))]
    ):
        fast = syno.compile(model.eval(), x)
        syno.export(fast, tmp_path / f"{number}.syno", example=x)
        read = syno.load(tmp_path / f"{number}.syno")
        assert torch.equal(read(x), fast(x))
        assert read.verify()


def test_what_is_predicted_decides() -> None:
    """A cost by the number of kernels alone joins, one by what they read does not."""
    torch.manual_seed(0)
    network = from_module(Attention().eval(), (torch.randn(1, 6, 32),)).network

    def each_the_same(program: _core.Program, constants: Sequence[str]) -> float:
        return 1e-3

    def grows(program: _core.Program, constants: Sequence[str]) -> float:
        return float(program.cost(0).flops) ** 2

    for cost, wanted in ((each_the_same, True), (grows, False)):
        made, _ = compile_network(network, cost=cost)
        assert any("_joined" in stage.name for stage in made.stages) == wanted
    alone, _ = compile_network(network, settings=Compiling(fuse=False))
    assert not any("_joined" in stage.name for stage in alone.stages)


def test_decisions_are_kept_and_foreign_ones_are_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path))
    torch.manual_seed(0)
    model, x = Branches([16, 8]).eval(), torch.randn(1, 8, 4, 4)
    for gain in (-1e9, 1e9):  # all that can be joined, nothing
        monkeypatch.setattr(joined_layers, "_LEAST_GAIN", gain)
        first = str(syno.compile(model, x).network.graph.text())
        (path,) = tmp_path.glob("*.layers")

        def never(*_: object, **__: object) -> float:
            raise AssertionError("asked again")

        with monkeypatch.context() as context:
            context.setattr(fusing.PredictedCost, "__call__", never)
            assert str(syno.compile(model, x).network.graph.text()) == first
        for content in ("{", "[1]", '["no such kind"]', '{"a": 1}'):
            write_entry(path, content.encode())
            assert str(syno.compile(model, x).network.graph.text()) == first
        path.unlink()


# Parts that are read where they lie


class Net(nn.Module):
    def __init__(self, made: Callable[[Net, Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.c = nn.Conv2d(8, 8, 1)
        self.made = made

    def forward(self, x: Tensor) -> Tensor:
        return self.made(self, x)


def parts(
    made: Callable[[Net, Tensor], Tensor], batch: int = 1, extent: int = 8, alone: str | None = None
) -> int:
    """The slices without work of a compiled network, which is compared with eager; of one node, if it is said."""
    torch.manual_seed(0)
    network = compiled(Net(made), torch.randn(batch, 3, extent, extent))
    return sum(
        stage.kind == "view"
        and len(stage.inputs) == 1
        and not network.graph.is_view(stage.name)
        and stage.name == (alone or stage.name)
        for stage in network.stages
    )


def halves(m: Net, x: Tensor) -> Tensor:
    one, other = m.a(x).chunk(2, 1)
    return m.b(one) + m.c(other)


def test_parts_of_one_image_are_read_where_they_lie() -> None:
    assert parts(halves) == 2

    def middle(m: Net, x: Tensor) -> Tensor:
        made = m.a(x)
        return m.b(made[:, 4:12]).exp() + made.sum(1, keepdim=True)

    assert parts(middle) == 1
    # Parts of parts, and other shapes of them.

    def nested(m: Net, x: Tensor) -> Tensor:
        most = m.a(x)[:, 4:]
        return m.b(most.view(1, 12, 64)[:, 4:].view(1, 8, 8, 8)) + most.exp().sum(1, keepdim=True)

    assert parts(nested) >= 1


def test_parts_between_which_others_lie_are_not() -> None:
    assert parts(halves, batch=2) == 0
    # The second begins within a line of the cache, as images lie on this machine; the first, where another kernel joins
    # the second, is read where it lies.
    with fixed_kernels(written_machine().to_json()):
        assert parts(halves, extent=3, alone="y_3") == 0
    assert parts(lambda m, x: m.b(m.a(x)[:, 4:12, :, 1:].exp())) == 0


def test_what_the_caller_gives_or_gets_is_read_as_it_was() -> None:
    assert parts(lambda m, x: m.c(x.repeat(1, 8, 1, 1)[:, :8]) + m.a(x)[:, :8]) <= 1
    torch.manual_seed(0)

    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            made = self.a(x)
            return made, made[:, 8:], self.b(made[:, :8])

    model, x = Returns().eval(), torch.randn(1, 3, 8, 8)
    fast = syno.compile(model, x)
    with torch.no_grad():
        for one, other in zip(fast(x), model(x), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
