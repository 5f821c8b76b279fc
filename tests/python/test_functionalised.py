"""In-place functions of an imported model: as PyTorch has them, whether they are seen to be alone or the exporter is asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import syno
from syno.graph.from_torch import from_module
from syno.graph.functionalised import functionalise


class Net(nn.Module):
    def __init__(self, made: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(6, 6)
        self.norm, self.drop = nn.BatchNorm2d(4), nn.Dropout()
        self.made = made

    def forward(self, x: Tensor) -> Any:
        return self.made(self, x)


def left(made: Callable[[Any, Tensor], Any]) -> int:
    """How many in-place functions of a model's graph stay; the compiled model computes what eager does."""
    torch.manual_seed(0)
    model, x = Net(made).eval(), torch.randn(2, 3, 5, 6)
    with torch.no_grad():
        program = torch.export.export(model, (x,), strict=False)
    functionalise(program.graph_module)
    fast = syno.compile(model, x)
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x.clone()), rtol=1e-5, atol=1e-5)
    return sum(
        getattr(node.target, "_schema", None) is not None and node.target._schema.is_mutable
        for node in program.graph.nodes
    )


@pytest.mark.parametrize(
    "made",
    [
        lambda m, x: F.relu(m.conv(x), inplace=True),
        lambda m, x: m.norm(m.conv(x)).relu_().mul_(2).add_(1),
        lambda m, x: m.conv(x).add_(m.conv(x.exp())),
        lambda m, x: m.conv(x).clamp_(-0.5, 0.5),
        lambda m, x: F.hardswish(m.linear(x), inplace=True),
        lambda m, x: F.silu(m.linear(x), inplace=True).sum(1),
    ],
)
def test_what_nobody_sees_is_a_new_value(made: Callable[[Any, Tensor], Any]) -> None:
    assert left(made) == 0


def seen_through_a_view(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    y[:, 1:].relu_()
    return y


def seen_before(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    part = y[0]
    y.relu_()
    return part + y


def seen_through_what_returns_it(m: Any, x: Tensor) -> Tensor:
    y = m.conv(x)
    part = y[0]
    m.drop(part).relu_()
    return y


def of_a_wider_type(m: Any, x: Tensor) -> Tensor:
    return m.conv(x).add_(torch.ones(6, dtype=torch.float64))


@pytest.mark.parametrize(
    "made", [seen_through_a_view, seen_before, seen_through_what_returns_it, of_a_wider_type]
)
def test_what_others_see_is_left_to_the_exporter(made: Callable[[Any, Tensor], Any]) -> None:
    assert left(made) >= 1


def test_random_models_that_write_in_place() -> None:
    """Values, views of them, and writes to any of them, in any order."""
    for seed in range(30):
        plan = random.Random(seed)
        steps = [
            (plan.choice(["new", "view", "write", "write", "add", "drop"]), plan.random(), plan.random()) for _ in range(7)
        ]  # fmt: skip

        def made(m: Any, x: Tensor, steps: Any = steps) -> Tensor:
            values = [m.conv(x), m.norm(m.conv(x.sin()))]
            for kind, one, other in steps:
                a = values[int(one * len(values))]
                b = values[int(other * len(values))]
                if kind == "new":
                    values.append(a.sin())
                elif kind == "view":
                    values.append(a.transpose(2, 3).transpose(2, 3))
                elif kind == "write":
                    values.append(a.relu_() if other < 0.5 else a.mul_(0.5))
                elif kind == "add":
                    values.append(a.add_(b.sin()))
                else:
                    values.append(m.drop(a))
            return torch.stack(values)

        left(made)


def test_models_without_such_functions_are_recorded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: Any, **named: Any) -> Any:
        raise AssertionError("recorded again")

    monkeypatch.setattr(torch.export.ExportedProgram, "run_decompositions", never)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(96, 5)
    )
    assert from_module(model, (torch.randn(1, 3, 5, 6),)).network.nodes
