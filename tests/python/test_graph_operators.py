"""Networks with operators in them as graphs: their programs become nodes, forward and backward, and nothing falls back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import syno
from syno import nn as syno_nn
from syno.graph.from_torch import from_module
from syno.graph.operator_rows import operator_row
from syno.support.inputs import unwrapped
from syno.torch import Op, replace, sites
from syno.torch.ops import function_named


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def images() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 16, 12),
    )  # fmt: skip
    return model, torch.randn(2, 8, 8, 8)


def signals() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Conv1d(8, 16, 5, padding=2), nn.GELU(), nn.Conv1d(16, 8, 3)), (
        torch.randn(3, 8, 20)
    )


def tokens() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8)), (
        torch.randn(2, 6, 16)
    )


MODELS = [images, signals, tokens]


def operators_of(model: nn.Module, x: Tensor, seed: int, native: bool = True) -> nn.Module:
    """The model with a random operator in the place of each group of layers that has a space."""
    found = sites(model, x)
    chosen = {}
    for group in found.groups():
        (operator,) = syno.sample(group.space(max_steps=6), 1, seed=seed)
        chosen |= dict.fromkeys(group.sites, operator)
    assert chosen
    made = replace(model, chosen, native=native).eval()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.uniform_(-0.5, 0.5)
            module.running_var.uniform_(0.5, 2)
    return made


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("make", MODELS)
def test_programs_of_operators_become_nodes(make: Any, seed: int) -> None:
    model = operators_of(*make(), seed)
    _, x = make()
    fast = syno.compile(model, x)
    assert fast.fallbacks == {}
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    # What stands behind an operator is computed in its kernel, not by a step of its own.
    assert len(fast.network.stages) < len(from_module(model, x).network.nodes)


def test_operators_that_train_as_emitted_functions_are_imported_as_programs() -> None:
    model, x = images()
    native = operators_of(model, x, 0)
    emitted = operators_of(model, x, 0, native=False)
    kinds = [
        [n.program is not None and str(n.program.text()) for n in from_module(m, x).network.nodes]
        for m in (native, emitted)
    ]
    assert kinds[0] == kinds[1]
    assert not any(m.native for m in emitted.modules() if isinstance(m, Op))


def test_packed_and_layered_operators_are_imported_alike() -> None:
    model, x = images()
    made = operators_of(model, x, 0)
    for module in made.modules():
        if isinstance(module, Op):
            module.prepack = True
    fast = syno.compile(made, x)
    assert fast.fallbacks == {}
    with torch.no_grad():
        torch.testing.assert_close(fast(x), made(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", MODELS)
def test_the_backend_trains_operators_without_fall_backs(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syno.graph import backend

    model, x = make()
    model = operators_of(model, x, 0).train()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.eval()
    notes: list[str] = []
    graphs: list[bool] = []

    class Noting(backend.CompiledRunner):
        def __init__(self, imported: Any, *others: Any) -> None:
            graphs.append(True)
            notes.extend(n for n in imported.network.notes if "syno" in n)
            super().__init__(imported, *others)

    monkeypatch.setattr(backend, "CompiledRunner", Noting)
    fast = torch.compile(model, backend="syno")
    y = model(x)
    cotangent = torch.randn_like(y)
    y.backward(cotangent)
    wanted = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    ours = fast(x)
    ours.backward(cotangent)
    found = [p.grad for p in unwrapped(fast).parameters() if p.grad is not None]
    assert len(graphs) == 2 and notes == []
    torch.testing.assert_close(ours, y, rtol=1e-4, atol=1e-5)
    assert len(found) == len(wanted)
    for ours_, wanted_ in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours_, wanted_, rtol=1e-3, atol=1e-4)


def test_the_backend_sees_packed_operators_in_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    from syno.graph import backend

    model, x = images()
    made = operators_of(model, x, 0)
    for module in made.modules():
        if isinstance(module, Op):
            module.prepack = True
    notes: list[str] = []

    class Noting(backend.CompiledRunner):
        def __init__(self, imported: Any, *others: Any) -> None:
            notes.extend(imported.network.notes)
            super().__init__(imported, *others)

    monkeypatch.setattr(backend, "CompiledRunner", Noting)
    with torch.no_grad():
        torch.testing.assert_close(
            torch.compile(made, backend="syno")(x), made(x), rtol=1e-4, atol=1e-5
        )
    assert notes == []


def test_names_lead_to_functions_and_their_gradients() -> None:
    op = syno_nn.Op(syno.Operator.parse("y[n,o] = sum[c] x[n,c] * k[o,c]", n=2, c=3, o=4))
    name = op.function.name
    assert function_named(name) == (op.function, None)
    assert function_named(f"{name}_by_owner") == (op.function, None)
    assert function_named(f"{name}_d1") == (op.function.derivative(1), None)
    assert function_named(f"{name}_d0_1") == (op.function, (0, 1))
    assert function_named("op_0123456789abcdef") is None
    assert operator_row("aten.add.Tensor") is None
    assert operator_row("syno.op_0123456789abcdef.default") is None


def test_numbers_that_no_program_computes_in_stay_with_pytorch() -> None:
    model, x = images()
    made = operators_of(model, x, 0).half()
    fast = syno.compile(made, x.half(), verify=False)
    assert any(name.startswith("op_") for name in fast.fallbacks), fast.fallbacks
    with torch.no_grad():
        torch.testing.assert_close(fast(x.half()), made(x.half()), rtol=1e-2, atol=1e-2)
