"""Networks compiled for a range of sizes: as the model at every size, with code that sizes share."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from machines import written_machine
from patience import PATIENCE_S
from torch import nn

import syno
from syno.errors import ArgumentError, ShapeError, SynoError, UnknownName
from syno.graph import ranged_stages
from syno.graph.building import Builder
from syno.graph.dynamic_model import DynamicModel
from syno.graph.extents import Extent
from syno.graph.families import Numbers, TextFamily
from syno.graph.functions import shapes
from syno.graph.fusing import fused
from syno.kernels.ranged import NotTheSame, checked_at
from syno.machines.model import fixed_kernels


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.inside, self.outside = (
            heads,
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.inside(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        made = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.outside(made.permute(0, 2, 1, 3).reshape(batch, length, width))


class Along(nn.Module):
    """A convolution along the length."""

    def __init__(self, width: int, window: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, width, window, padding=window // 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.conv(x.permute(0, 2, 1))).permute(0, 2, 1)


class Words(nn.Module):
    """Words with their places, random layers, and a mean over the length."""

    def __init__(self, draw: random.Random, pooled: bool) -> None:
        super().__init__()
        width = draw.choice([8, 12, 16])
        self.words, self.places = nn.Embedding(11, width), nn.Embedding(64, width)
        kinds: list[Any] = [
            lambda: nn.Linear(width, width),
            lambda: nn.LayerNorm(width),
            lambda: nn.GELU(),
            lambda: Attention(width, draw.choice([1, 2, 4])),
            lambda: Along(width, draw.choice([1, 3, 5])),
        ]
        self.layers = nn.Sequential(*(draw.choice(kinds)() for _ in range(3)))
        self.head, self.pooled = nn.Linear(width, 3), pooled

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))[None]
        x = self.layers(x)
        return self.head(x.mean(1) if self.pooled else x)


def _same(compiled: Any, model: nn.Module, *sizes: int) -> None:
    for size in sizes:
        ids = torch.randint(0, 11, (2, size))
        with torch.no_grad():
            torch.testing.assert_close(compiled(ids), model(ids), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_a_network_is_the_model_at_every_size(seed: int) -> None:
    torch.manual_seed(seed)
    model = Words(random.Random(seed), pooled=bool(seed % 2)).eval()
    fast = syno.compile(
        model, torch.randint(0, 11, (2, 9)), dynamic={"ids": {1: ("n", 1, 24)}}, cache=False
    )
    assert isinstance(fast, DynamicModel)
    assert fast.by_size == ""
    _same(fast, model, 1, 2, 3, 8, 16, 17, 23, 24)
    assert set(fast.ready) == {((1,), (24,)), *fast.buckets}
    with torch.no_grad():  # weights that change are seen at all sizes
        model.head.weight.mul_(2)
        model.places.weight.add_(0.5)
    _same(fast, model, 3, 17, 24, 5)
    assert "24" in repr(fast)
    assert "code is there for" in str(fast)


@pytest.fixture
def cut() -> Iterator[None]:
    """On a machine whose kernels cut a range of 2 to 48 rows in buckets, others need not."""
    with fixed_kernels(written_machine().to_json()):
        yield


def test_a_size_nobody_saw_runs_at_once_while_better_code_is_made(cut: None) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    fast = syno.compile(
        model,
        torch.zeros(1, 40, 8),
        dynamic={0: {1: torch.export.Dim("n", min=2, max=48)}},
        background=True,
        cache=False,
    )
    assert fast.by_size == ""
    assert len(fast.buckets) > 1
    for _ in range(2):
        for size in (2, 20, 48):
            x = torch.randn(1, size, 8)
            with torch.no_grad():
                torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        fast.wait()
    assert set(fast.ready) == {((2,), (48,)), *fast.buckets}


def test_a_size_is_linked_once_while_better_code_is_made(
    cut: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = threading.Event()
    real = ranged_stages.RangedStages.make

    def slow(self: ranged_stages.RangedStages, bucket: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            assert waits.wait(PATIENCE_S)
        return real(self, bucket)

    monkeypatch.setattr(ranged_stages.RangedStages, "make", slow)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    fast = syno.compile(
        model, torch.zeros(1, 40, 8), dynamic={0: {1: ("n", 2, 48)}}, background=True, cache=False
    )
    x = torch.randn(1, 3, 8)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        before = fast.at(3)
        assert fast.at(3) is before
        assert fast.network.at((3,)) is fast.network.at((3,))
        model[0].weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        waits.set()
        fast.wait()
        assert fast.at(3) is not before
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
        assert fast.at(3) is fast.at(3)


@pytest.mark.parametrize("wrong", [False, True])
def test_the_largest_bucket_is_held_against_the_interpreter_at_its_own_least_size(
    wrong: bool, cut: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []

    def watched(codes: Any, programs: Any, **more: Any) -> Any:
        seen.extend(programs)
        if wrong:
            raise NotTheSame("[dynamic] the code gave something else")
        return checked_at(codes, programs, **more)

    monkeypatch.setattr(ranged_stages, "checked_at", watched)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    fast = syno.compile(model, torch.zeros(1, 40, 8), dynamic={0: {1: ("n", 2, 48)}}, cache=False)
    assert len(fast.buckets) > 1
    assert fast.buckets[-1][0] in seen
    for size in (2, 20, *(ends[0] for ends in fast.buckets[-1]), 48):
        x = torch.randn(1, size, 8)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


class Turned(nn.Module):
    """Rotates by one: an index holds the length."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.roll(x, 1, dims=1) * 2


def test_a_network_whose_indices_hold_the_size_has_kernels_for_each() -> None:
    model = Turned().eval()
    fast = syno.compile(model, torch.randn(1, 6, 4), dynamic={"x": {1: ("n", 2, 8)}}, cache=False)
    for size in (2, 5, 8):
        x = torch.randn(1, size, 4)
        torch.testing.assert_close(fast(x), model(x))


@pytest.mark.parametrize(
    ("dynamic", "error", "says"),
    [
        ({}, ArgumentError, "by argument, by dimension"),
        ([1], ArgumentError, "by argument, by dimension"),
        ({"y": {1: ("n", 1, 8)}}, UnknownName, "y"),
        ({1: {1: ("n", 1, 8)}}, UnknownName, "1"),
        ({"x": 1}, ArgumentError, "dimensions of a tensor"),
        ({"x": {3: ("n", 1, 8)}}, ShapeError, "at most 2"),
        ({"x": {1: (1, 8)}}, ArgumentError, "no size with its range"),
        ({"x": {1: ("n", 0, 8)}}, ShapeError, "at least 1"),
        ({"x": {1: ("n", 8, 1)}}, ShapeError, "least value is above"),
        ({"x": {0: ("n", 1, 8), 1: ("n", 1, 9)}}, ShapeError, "one size has one range"),
        ({"x": {}}, ArgumentError, "dimensions of a tensor"),
    ],
)
def test_sizes_that_are_none_get_a_sentence(
    dynamic: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        syno.compile(Turned(), torch.zeros(1, 6, 4), dynamic=dynamic)


def test_calls_and_options_that_do_not_fit_get_a_sentence() -> None:
    model = nn.Linear(4, 4).eval()
    given: Any = {"input": {0: ("n", 2, 8)}}
    with pytest.raises(ArgumentError, match="chosen for one size"):
        syno.compile(model, torch.zeros(3, 4), dynamic=given, derive=True)
    fast = syno.compile(model, torch.zeros(3, 4), dynamic=given, cache=False)
    for shape, says in (
        ((1, 4), "n=1"),
        ((9, 4), "n=9"),
        ((0, 4), "n=0"),
        ((), "dimension 0 gives n"),
    ):
        with pytest.raises(ShapeError, match=says):
            fast(torch.zeros(shape))
    with pytest.raises(ShapeError, match="expected"):
        fast(torch.zeros(4, 5))
    with pytest.raises(ShapeError, match="n"):
        fast.at(9)
    assert tuple(fast.at(5)(torch.zeros(5, 4)).shape) == (5, 4)
    assert tuple(fast(input=torch.zeros(6, 4)).shape) == (6, 4)


def _recorded(function: Any, base: tuple[int, ...], least: tuple[int, ...]) -> tuple[Any, int]:
    """A formula through a function's values, with as many of them as it takes."""
    values = {base: function(base)}

    def record(sizes: tuple[int, ...]) -> None:
        values[sizes] = function(sizes)

    for p, (low, high) in enumerate(zip(least, base, strict=True)):
        for size in (low, (low + high) // 2 | 1, high - 1):
            record((*base[:p], size, *base[p + 1 :]))
    record(least)
    record(tuple((low + high) // 2 | 1 for low, high in zip(least, base, strict=True)))
    while True:
        numbers = Numbers([f"n{p}" for p in range(len(base))], base)
        formula = numbers.formula(values, "a number")
        further = numbers.undecided(least)
        if not further:
            return formula, len(values)
        for sizes in further:
            record(sizes)


def test_numbers_follow_one_size_to_the_last_row() -> None:
    draw = random.Random(0)
    for _ in range(60):
        by = draw.choice([1, 2, 3, 4, 8, 14, 16, 32])
        of, power = draw.choice([(1, 1), (3, 1), (64, 1), (1, 2), (5, 2)])
        beside = draw.randint(0, 3) if power == 2 else draw.randint(0, of)
        wanted = Extent(1, draw.randint(-by, by), by, of, beside, power)
        formula, count = _recorded(lambda s, wanted=wanted: wanted.at(s[0]), (256,), (64,))
        assert all(formula.at((size,)) == wanted.at(size) for size in range(64, 257)), wanted
        assert count <= 16


@pytest.mark.parametrize(
    "function",
    [
        lambda s: s[0] * s[1] * s[2],
        lambda s: s[0] + s[1] + 3 * s[2],
        lambda s: s[0] * (s[1] + s[2] + 1),
        lambda s: 12 * s[0] * ((s[1] + 1) // 2) * ((s[2] - 3) // 4 + 1),
        lambda s: s[0] * ((s[1] // 16) ** 2 + 1) * s[2],
        lambda s: (s[1] - 1) // 32 + 1,
    ],
)
def test_numbers_follow_several_sizes(function: Any) -> None:
    formula, _ = _recorded(function, (8, 256, 250), (2, 33, 32))
    draw = random.Random(0)
    for _ in range(300):
        sizes = (draw.randint(2, 8), draw.randint(33, 256), draw.randint(32, 250))
        assert formula.at(sizes) == function(sizes)


def test_numbers_that_follow_no_size_get_a_sentence() -> None:
    for function in (lambda s: s[0] ** 3 + s[1] * 7 % 5, lambda s: (s[0] * s[1]) // 7):
        with pytest.raises(ShapeError, match="no sum or product"):
            _recorded(function, (64, 40), (5, 5))


def test_texts_differ_in_numbers_alone() -> None:
    texts = {(size,): f"x[{size}, 4] = y[{2 * size + 1}] * 0.25" for size in (9, 7, 4, 8)}
    assert TextFamily(texts, Numbers(["n"], (9,))).at((100,)) == "x[100, 4] = y[201] * 0.25"
    for other, says in (
        ("x[5, 4] = y[11] + 0.25", "not the one at n=9"),
        ("x[25, 4] = y[11] * 0.25", "no sum"),
    ):
        with pytest.raises(ShapeError, match=says):
            TextFamily({**texts, (5,): other}, Numbers(["n"], (9,)))


class Images(nn.Module):
    """Strides, borders, joins, means and, with `flat`, positions as rows."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.second, self.third = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(16, 12, 5, 3)
        self.flat, self.head = flat, nn.Linear(12, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.first(x)))
        x = nn.functional.max_pool2d(x, 3, 2, 1)
        x = self.third(torch.cat([x, self.second(x)], 1))
        if self.flat:
            return torch.softmax(self.head(x.flatten(2).transpose(1, 2)), 1)
        return self.head(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


@pytest.mark.parametrize("flat", [False, True])
def test_a_network_has_several_sizes(flat: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Without `flat` images become so small that one window holds them: another graph."""
    torch.manual_seed(0)
    model = Images(flat).eval()
    least = 40 if flat else 24
    with caplog.at_level(logging.INFO, "syno.graph"):
        fast = syno.compile(
            model,
            torch.randn(2, 3, 48, 48),
            dynamic={"x": {0: ("batch", 1, 4), 2: ("h", least, 70), 3: ("w", 40, 64)}},
            cache=False,
        )
    assert fast.by_size == ""
    alone = [each for each in caplog.messages if "compiled for each size" in each]
    # Rows of positions behind a transposition are read at i / width and i % width, whatever they are joined with.
    assert len(alone) == flat, alone
    for shape in ((1, least, 41), (1, 51, 64), (4, 70, 64), (3, least + 1, 47), (2, 70, 40)):
        x = torch.randn(shape[0], 3, *shape[1:])
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    for shape, says in (
        ((5, 3, 40, 40), "batch=5"),
        ((1, 3, 23, 40), "h=23"),
        ((1, 3, 50, 65), "w=65"),
    ):
        with pytest.raises(ShapeError, match=says):
            fast(torch.zeros(shape))
    assert fast.at(batch=2, h=45, w=44).verify()
    with pytest.raises(UnknownName, match="height"):
        fast.at(height=3)
    with pytest.raises(ShapeError, match="w is missing"):
        fast.at(2, 45)


class Asking(nn.Module):
    """Another graph from twelve rows on, and where their number is odd."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] > 11:
            x = torch.relu(x) * 2
        if x.shape[1] % 2:
            return x - x.mean(1, keepdim=True)
        return x + x.amax(1, keepdim=True)


def test_a_model_that_asks_for_a_size_is_right_on_both_sides() -> None:
    model = Asking().eval()
    fast = syno.compile(
        model, torch.randn(2, 8, 3), dynamic={"x": {0: ("b", 1, 3), 1: ("n", 2, 16)}}, cache=False
    )
    for batch in (1, 3):
        for n in (2, 3, 10, 11, 12, 13, 16):
            x = torch.randn(batch, n, 3)
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


class OnlyEven(nn.Module):
    """Halves its input, and puts it together again: no odd number of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose1d(4, 4, 2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.up(nn.functional.max_pool1d(x, 2))], 1)


def test_a_model_of_even_sizes_is_right_at_them_and_refuses_others() -> None:
    torch.manual_seed(0)
    model = OnlyEven().eval()
    fast = syno.compile(model, torch.randn(1, 4, 8), dynamic={"x": {2: ("n", 4, 20)}}, cache=False)
    for n in (4, 10, 20):
        x = torch.randn(1, 4, n)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(SynoError, match="cannot record"):
        fast(torch.zeros(1, 4, 7))


class Sorting(nn.Module):
    """Steps that PyTorch computes, with a number and an extent that follow the size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        best = torch.topk(x * 2, x.shape[1] // 2 + 1, 1).values
        return torch.sort(best + 1, 1).values


def test_pytorch_computes_its_steps_at_the_size_of_the_call() -> None:
    model = Sorting().eval()
    fast = syno.compile(model, torch.randn(2, 9), dynamic={"x": {1: ("n", 4, 30)}}, cache=False)
    assert fast.by_size == ""
    assert fast.fallbacks
    for n in (4, 5, 17, 30):
        x = torch.randn(2, n)
        torch.testing.assert_close(fast(x), model(x))


def test_nodes_are_not_joined_where_a_size_would_stand_in_an_index() -> None:
    def graph(batch: int, rows: int) -> Any:
        build = Builder("g")
        x = build.input("x", (batch * rows, 8))
        y = build.formula("y[i,k] = max(x[i,k], 0)", {"x": x})
        parts = shapes.reshape(build, y, [batch, rows, 8])
        doubled = build.formula("y[b,n,k] = x[b,n,k] * 2", {"x": parts})
        return build.network([build.formula("y[b,n,k] = x[b,n,k] + 1", {"x": doubled})]).graph()

    def cost(program: Any, constants: Any) -> float:
        return 1.0 / len(program.tensors)  # joined is better

    of_one, _, _ = fused(graph(4, 6), cost)
    assert len(of_one.nodes) == 1
    of_all, _, decisions = fused(graph(4, 6), cost, alike=[graph(3, 5)])
    assert len(of_all.nodes) == 3
    assert [of_all.is_view(node.name) for node in of_all.nodes] == [False, True, False]
    assert len(decisions) == 1


class _Positions(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[1]
        steps = torch.arange(n, dtype=x.dtype) / (2 * n + 1)
        return torch.relu(x + steps[:, None])


class _Similar(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cosine_similarity(x, x.flip(1), dim=2)


@pytest.mark.parametrize(("model", "again"), [(_Positions(), False), (_Similar(), True)])
def test_what_is_made_of_sizes_is_recorded_once(
    model: nn.Module, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_apart = []
    real = torch.export.ExportedProgram.run_decompositions

    def noting(program: Any, *given: Any) -> Any:
        taken_apart.append(program)
        return real(program, *given)

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", noting)
    fast = syno.compile(model, torch.randn(2, 9, 4), dynamic={0: {1: ("n", 3, 12)}})
    assert bool(taken_apart) == again
    for n in (3, 7, 12):
        x = torch.randn(2, n, 4)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


class Picked(nn.Module):
    """Elements of places that a call names, out of as many as the image has."""

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return (x * 2).flatten(2).gather(2, places).cumsum(-1)


def test_indices_of_the_example_need_not_fit_the_other_sizes() -> None:
    torch.manual_seed(0)
    model = Picked().eval()
    x, places = torch.randn(2, 3, 30, 11), torch.randint(300, 330, (2, 3, 17))
    net = syno.compile(model, (x, places), dynamic={"x": {2: ("h", 8, 40)}})
    for height in (8, 19, 30, 40):
        x = torch.randn(2, 3, height, 11)
        places = torch.randint(0, height * 11, (2, 3, 17))
        torch.testing.assert_close(net(x, places), model(x, places))
    with pytest.raises(ShapeError, match="index 330 is outside"):
        net(torch.randn(2, 3, 30, 11), torch.full((2, 3, 17), 330))
