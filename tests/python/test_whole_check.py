"""Networks of changing sizes are held against float64 beside the making of their kernels (`syno.graph.whole_check`)."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import syno
from syno.errors import KernelError
from syno.graph import ranged_stages, whole_check
from syno.graph.dynamic_model import DynamicModel


class Rows(nn.Module):
    """Looks up as many rows of a table as it has positions, and counts its calls."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, 8)
        self.within = nn.Linear(8, 8)
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if type(x.shape[1]) is int:  # not while it is recorded with symbols
            self.seen.append(x.shape[1])
        places = torch.arange(x.shape[1])
        return torch.relu(self.within(x + self.table(places)))


def compiled(model: nn.Module, greatest: int, **settings: Any) -> DynamicModel:
    made = syno.compile(
        model, torch.randn(2, greatest, 8), dynamic={0: {1: ("n", 2, greatest)}}, **settings
    )
    assert isinstance(made, DynamicModel)
    return made


def test_a_model_is_not_run_to_learn_which_sizes_it_can_have() -> None:
    model = Rows(64).eval()
    made = compiled(model, 62)
    assert made.by_size == ""
    assert (
        model.seen == []
    )  # export proves that it is one graph at 64, too, where code for whole vectors is made
    for size in (2, 31, 62):
        x = torch.randn(2, size, 8)
        np.testing.assert_allclose(made(x), model(x).detach(), rtol=1e-5, atol=1e-6)


def test_sizes_beyond_a_table_are_not_what_code_is_made_for() -> None:
    model = Rows(
        61
    ).eval()  # whole vectors would need 64 rows, and nothing but the look-up says that there are 61
    made = compiled(model, 61)
    for size in (2, 61):
        x = torch.randn(2, size, 8)
        np.testing.assert_allclose(made(x), model(x).detach(), rtol=1e-5, atol=1e-6)


def test_weights_are_doubled_once_for_all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    doubled: list[tuple[int, ...]] = []
    original = whole_check.as_float

    def counted(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
        doubled.append(tuple(tensor.shape))
        return original(tensor, dtype)

    monkeypatch.setattr(whole_check, "as_float", counted)
    compiled(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 8)).eval(), 60)
    assert sorted(doubled) == [(8,), (8, 24), (24,), (24, 8)]


@pytest.mark.parametrize("size", [2, 60])
def test_a_network_that_computes_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    original = whole_check.sample_of

    def wrong(network: Any, arrays: Any, **named: Any) -> Any:
        sample = original(network, arrays, **named)
        if arrays[0].shape[1] == size:
            sample.expected[0].values[...] += 1
        return sample

    monkeypatch.setattr(whole_check, "sample_of", wrong)
    with pytest.raises(KernelError, match=rf"\[dynamic\] Sequential at n={size}: "):
        compiled(nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval(), 60)


def test_what_the_reference_cannot_compute_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise KernelError("[test] no reference")

    monkeypatch.setattr(whole_check, "sample_of", fails)
    before = threading.active_count()
    with pytest.raises(KernelError, match="no reference"):
        compiled(nn.Sequential(nn.Linear(8, 8)).eval(), 60)
    assert threading.active_count() == before


def test_nothing_is_computed_for_a_check_that_nobody_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(whole_check, "sample_of", never)
    compiled(nn.Sequential(nn.Linear(8, 8)).eval(), 60, verify=False)


def test_a_refusal_while_kernels_are_made_ends_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is then compiled for each size."""
    from syno.errors import ShapeError

    def refuses(*_: Any, **__: Any) -> Any:
        raise ShapeError("[test] no ranges")

    monkeypatch.setattr(ranged_stages.RangedStages, "buckets", refuses)
    before = threading.active_count()
    made = compiled(nn.Sequential(nn.Linear(8, 8)).eval(), 60)
    assert made.by_size == "[test] no ranges"
    assert threading.active_count() == before
    assert made(torch.zeros(2, 5, 8)).shape == (2, 5, 8)


def test_the_reference_is_computed_under_the_callers_autocast() -> None:
    """Its attention is PyTorch's own there, and rounds to bfloat16: how far that is from float64 sets the limit."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(24, 3, 48, batch_first=True)).eval()
    x = torch.randn(3, 99, 24)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        made = syno.compile(model, x, dynamic={0: {1: ("n", 2, 100)}})
        np.testing.assert_allclose(made(x).float(), model(x).float(), rtol=0.05, atol=0.05)
