"""Modules whose calls in inference a compiled network answers: when it does, when the layers do, and what both compute."""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import syno
from syno.graph.from_torch import CannotImport
from syno.graph.model import CompiledModel
from syno.graph.serving import compiled_of, compiled_or_why, serve_compiled, withdraw
from syno.torch import Op, replace, sites


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(4, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.drop(torch.relu(self.norm(self.first(x))))
        made: Tensor = self.head(y.mean((2, 3)))
        return made


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who answered each call."""
    found: list[str] = []
    run = CompiledModel.run

    def noting(self: CompiledModel, *args: Any, **named: Any) -> Any:
        found.append("compiled")
        return run(self, *args, **named)

    monkeypatch.setattr(CompiledModel, "run", noting)
    return found


def made() -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x = Small().eval(), torch.randn(2, 4, 6, 6)
    assert model.norm.running_mean is not None
    model.norm.running_mean.uniform_(-0.5, 0.5)
    (group,) = [g for g in sites(model, x).groups() if "first" in {s.name for s in g.sites}]
    (operator,) = syno.sample(group.space(max_steps=6), 1, seed=0)
    model = replace(model, dict.fromkeys(group.sites, operator))
    serve_compiled(model, x)
    return model, x


def layers(model: nn.Module, *args: Any) -> Any:
    """What the layers give."""
    return model._call_impl(*args)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_call_in_inference_is_answered_by_the_compiled_network(runs: list[str]) -> None:
    model, x = made()
    assert isinstance(model, Small) and compiled_of(model) is not None
    assert set(model.state_dict()) >= {"first.weight", "norm.running_mean", "head.bias"}
    with torch.no_grad():
        close(model(x), layers(model, x))
    with torch.inference_mode():
        close(model(x), layers(model, x))
    assert runs == ["compiled"] * 2
    withdraw(model)
    with torch.no_grad():
        model(x)
    assert runs == ["compiled"] * 2 and compiled_of(model) is None


def _train_mode(model: Any, x: Tensor) -> Any:
    model.train()
    return x


def _part_in_train_mode(model: Any, x: Tensor) -> Any:
    model.drop.train()
    return x


def _hook(model: Any, x: Tensor) -> Any:
    model.head.register_forward_hook(lambda module, args, result: result + 1)
    return x


def _own_hook(model: Any, x: Tensor) -> Any:
    model.register_forward_pre_hook(lambda module, args: (2 * args[0],))
    return x


def _other_head(model: Any, x: Tensor) -> Any:
    model.head = nn.Linear(8, 7)
    return x


def _other_shape(model: Any, x: Tensor) -> Any:
    return torch.randn(3, 4, 6, 6)


def _other_type(model: Any, x: Tensor) -> Any:
    model.double()
    return x.double()


def _other_shape_of_weights(model: Any, x: Tensor) -> Any:
    model.head.weight = nn.Parameter(torch.randn(2, 8))
    model.head.bias = nn.Parameter(torch.randn(2))
    return x


CHANGES: list[Callable[[Any, Tensor], Any]] = [
    _train_mode, _part_in_train_mode, _hook, _own_hook, _other_head, _other_shape, _other_type, _other_shape_of_weights,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__.strip("_"))
def test_what_the_network_was_not_compiled_for_runs_in_the_layers(
    change: Callable[[Any, Tensor], Any], runs: list[str]
) -> None:
    model, x = made()
    x = change(model, x)
    torch.manual_seed(1)
    with torch.no_grad():
        ours = model(x)
    torch.manual_seed(1)
    twin = copy.deepcopy(model)  # copies have the layers alone
    assert compiled_of(twin) is None
    with torch.no_grad():
        close(ours, twin(x) if change is not _train_mode else ours)
    assert runs == []


def test_gradients_are_those_of_the_layers(runs: list[str]) -> None:
    model, x = made()
    model(x).sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    x.requires_grad_()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    model(x).sum().backward()
    assert x.grad is not None and runs == []
    model(x.detach())
    assert runs == ["compiled"]  # nobody asks for a gradient


def test_autocast_and_transforms_see_the_layers(runs: list[str]) -> None:
    model, x = made()
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            assert model(x).dtype == torch.bfloat16
        many = torch.func.vmap(model)(x[None].repeat(2, 1, 1, 1, 1))
        close(many[0], layers(model, x))
        jit = torch.jit.trace(model, (x,), check_trace=False)
        close(jit(x), layers(model, x))
    assert runs == []


def test_the_exporter_records_the_layers(runs: list[str]) -> None:
    model, x = made()
    program = torch.export.export(model, (x,), strict=False)
    assert any("syno" in str(node.target) for node in program.graph.nodes)
    assert runs == []
    with torch.no_grad():
        close(syno.compile(model, x)(x), layers(model, x))


def test_trained_weights_are_seen_however_they_were_written(runs: list[str]) -> None:
    model, x = made()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model.train()
        model(x).square().mean().backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            close(model(x), layers(model, x))
    model.train()
    model(x)
    for parameter in model.parameters():
        parameter.data.mul_(0.5)  # which no version counts
    model.eval()
    with torch.no_grad():
        close(model(x), layers(model, x))
        model.load_state_dict({k: torch.zeros_like(v) for k, v in model.state_dict().items()})
        close(model(x), layers(model, x))
    assert runs == ["compiled"] * 4


def test_what_stays_of_it_in_copies_is_the_module(runs: list[str]) -> None:
    model, x = made()
    again = pickle.loads(pickle.dumps(model))
    with torch.no_grad():
        close(again(x), layers(model, x))
    assert runs == [] and compiled_of(again) is None
    assert any(isinstance(m, Op) for m in again.modules())


class Deciding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        return y if y.sum() > 0 else -y


def test_a_model_that_cannot_be_compiled_says_why_and_runs_as_it_is(runs: list[str]) -> None:
    model, x = Deciding().eval(), torch.randn(2, 4)
    why = compiled_or_why(model, x)
    assert isinstance(why, str) and "Deciding" in why
    with torch.no_grad():
        close(model(x), layers(model, x))
    assert runs == [] and compiled_of(model) is None


def test_hooks_and_parameters_that_cannot_be_watched_are_refused() -> None:
    model, x = Small().eval(), torch.randn(2, 4, 6, 6)
    model.head.register_forward_hook(lambda module, args, result: result)
    with pytest.raises(CannotImport, match="head has hooks"):
        serve_compiled(model, x)
    with torch.inference_mode():
        made_there = Small().eval()
    with pytest.raises(CannotImport, match="inference mode"):
        serve_compiled(made_there, x)


def test_a_model_that_stops_fitting_is_left_to_its_layers(
    runs: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("order", torch.tensor([2, 0, 1]))

        def forward(self, x: Tensor) -> Tensor:
            return 2 * x[:, self.order]

    model, x = Table().eval(), torch.randn(2, 3)
    serve_compiled(model, x)
    with torch.no_grad():
        close(model(x), layers(model, x))
        assert model.order is not None
        model.order.copy_(torch.tensor([0, 1, 2]))
        with caplog.at_level(logging.WARNING, "syno"):
            close(model(x), 2 * x)
            close(model(x), 2 * x)
