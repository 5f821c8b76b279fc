"""Networks compiled for a range of sizes: as the model at every size, with code that sizes share."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn

import syno
from syno.errors import ArgumentError, ShapeError, UnknownName
from syno.graph.dynamic import DynamicModel
from syno.graph.families import Extent, TextFamily, extent_through


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
    assert set(fast.ready) == {(1, 24), *fast.buckets}
    with torch.no_grad():  # weights that change are seen at all sizes
        model.head.weight.mul_(2)
        model.places.weight.add_(0.5)
    _same(fast, model, 3, 17, 24, 5)
    assert "24" in repr(fast)
    assert "code is there for" in str(fast)


def test_a_size_nobody_saw_runs_at_once_while_better_code_is_made() -> None:
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
    assert set(fast.ready) == {(2, 48), *fast.buckets}


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
        ({"x": {0: ("b", 1, 8), 1: ("n", 1, 8)}}, ArgumentError, "one size"),
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


def test_numbers_of_a_text_follow_the_size() -> None:
    draw = random.Random(0)
    for _ in range(300):
        by = draw.randint(1, 6)
        wanted = Extent(draw.randint(0, 3 * by), draw.randint(0, 20), by)
        sizes = [5, 6, 40, 63, 64] + [draw.randint(5, 64) for _ in range(8)]
        found = extent_through({size: wanted.at(size) for size in sizes})
        assert found is not None
        assert all(found.at(size) == wanted.at(size) for size in sizes)
    texts = {size: f"x[{size}, 4] = y[{2 * size + 1}] * 0.25" for size in (4, 7, 9)}
    assert TextFamily(texts).at(100) == "x[100, 4] = y[201] * 0.25"
    for other in ("x[5, 4] = y[11] + 0.25", "x[25, 4] = y[11] * 0.25"):
        with pytest.raises(ShapeError, match=r"\[dynamic\]"):
            TextFamily({**texts, 5: other})
