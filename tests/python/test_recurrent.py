"""Recurrent layers, unrolled: the steps of one weight read it where one copy lies, packed, and see it change."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from machines import written_machine  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import syno  # noqa: E402
from syno.graph.folding import folded  # noqa: E402
from syno.graph.from_torch import from_module  # noqa: E402
from syno.graph.functions import recurrent  # noqa: E402
from syno.machines.model import fixed_kernels  # noqa: E402

LENGTH, WIDTH = 20, 24


class Last(nn.Module):
    """A recurrent layer's outputs at every step and its last state, then one product."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer = layer
        self.out = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps, state = self.layer(x)
        return self.out(steps), state[0] if isinstance(state, tuple) else state


def _model(kind: type[nn.Module], both: bool, layers: int) -> nn.Module:
    torch.manual_seed(1)
    layer = kind(WIDTH, WIDTH, layers, bidirectional=both, batch_first=True)
    return Last(layer, WIDTH * (2 if both else 1)).eval()


def _agree(net: nn.Module, model: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        for got, wanted in zip(net(x), model(x), strict=True):
            torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "both", "layers", "batch"),
    [(nn.LSTM, True, 1, 3), (nn.GRU, False, 1, 1), (nn.RNN, False, 1, 2)],
)
def test_steps_of_a_layer_share_its_weights(
    kind: type[nn.Module], both: bool, layers: int, batch: int
) -> None:
    model = _model(kind, both, layers)
    x = torch.randn(batch, LENGTH, WIDTH)
    net = syno.compile(model, x)
    _agree(net, model, x)
    memory: dict[tuple[str, ...], set[int]] = {}
    steps = [stage for stage in net.network.stages if stage.packed is not None]
    for stage in steps:
        key = (stage.kernel.packing, *(stage.names[name] for name in stage.kernel.constants))
        for name, buffer in stage.packed.buffers.items():
            memory.setdefault((*key, name), set()).add(buffer.ctypes.data)
    assert all(len(places) == 1 for places in memory.values())
    # Kernels hold a few steps at most, and all but the first and the last are alike.
    assert len({key[:-1] for key in memory}) < len(steps)
    # All steps see other values.
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.5).add_(0.01)
    _agree(net, model, x)


def test_layers_of_equal_values_stay_apart() -> None:
    """What begins equal, as biases of zero do, need not stay equal."""
    torch.manual_seed(2)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(4))).eval()
    first = model[0][0].state_dict()
    for part in model:
        part[0].load_state_dict(first)
    x = torch.randn(6, 32)
    net = syno.compile(model, x)
    for part in range(4):
        with torch.no_grad():
            model[part][0].weight.add_(torch.randn(32, 32) * 0.1)
            model[part][0].bias.add_(part + 1.0)
            torch.testing.assert_close(net(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_bundle_holds_shared_weights_once(tmp_path) -> None:  # type: ignore[no-untyped-def]
    model = _model(nn.GRU, False, 1)
    x = torch.randn(1, LENGTH, WIDTH)
    net = syno.compile(model, x)
    path = tmp_path / "net.syno"
    syno.export(net, path, example=x)
    loaded = syno.load(path)
    with torch.no_grad():
        wanted = model(x)
    for got, exact in zip(loaded(x.numpy()), wanted, strict=True):
        torch.testing.assert_close(torch.as_tensor(got), exact, rtol=1e-4, atol=1e-5)
    assert loaded.weight_bytes <= 3 * sum(p.nbytes for p in model.parameters())


class Called(nn.Module):
    """A recurrent layer with all that it gives, from states that are inputs."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        made, last = (
            self.layer(x, states if len(states) > 1 else states[0]) if states else self.layer(x)
        )
        return (made, *(last if isinstance(last, tuple) else (last,)))


def _drawn(seed: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A layer of some kind, size and direction, and inputs for it."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    kind = draw.choice([nn.LSTM, nn.GRU, nn.RNN])
    width, size, layers = draw.randint(1, 9), draw.randint(2, 9), draw.randint(1, 3)
    options: dict[str, Any] = {
        "num_layers": layers,
        "bias": draw.random() < 0.7,
        "batch_first": draw.random() < 0.5,
        "bidirectional": draw.random() < 0.5,
        "dropout": draw.choice([0.0, 0.3]) if layers > 1 else 0.0,
        "dtype": draw.choice([torch.float32, torch.float32, torch.float64]),
    }
    if kind is nn.RNN:
        options["nonlinearity"] = draw.choice(["tanh", "relu"])
    if kind is nn.LSTM and draw.random() < 0.4:
        options["proj_size"] = draw.randint(1, size - 1)
    layer = kind(width, size, **options)
    steps, batch = draw.randint(1, 6), draw.choice([None, 1, 3])
    between = [] if batch is None else [batch]
    x = torch.randn(*([*between, steps] if options["batch_first"] else [steps, *between]), width)
    inputs = [x]
    if draw.random() < 0.5:
        count = layers * (2 if options["bidirectional"] else 1)
        inputs.append(torch.randn(count, *between, options.get("proj_size") or size))
        if kind is nn.LSTM:
            inputs.append(torch.randn(count, *between, size))
    return Called(layer).eval(), tuple(each.to(options["dtype"]) for each in inputs)


@pytest.mark.parametrize("seed", range(24))
def test_layers_of_every_kind_compute_what_pytorch_does(seed: int) -> None:
    model, inputs = _drawn(seed)
    net = syno.compile(model, inputs)
    assert net.fallbacks == {}, str(net)
    tight = 1e-5 if inputs[0].dtype == torch.float32 else 1e-12
    with torch.no_grad():
        again = tuple(torch.randn_like(each) for each in inputs)
        for got, wanted in zip(net(*again), model(*again), strict=True):
            torch.testing.assert_close(got, wanted, rtol=10 * tight, atol=tight)


def test_sequences_too_long_to_write_out_are_a_call_of_pytorch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recurrent, "MOST_STEPS", 12)
    model = Called(nn.GRU(2, 3, bidirectional=True)).eval()
    x = torch.randn(6, 1, 2)
    assert syno.compile(model, x).fallbacks == {}
    x = torch.randn(7, 1, 2)
    net = syno.compile(model, x)
    assert any("14 recurrent steps; at most 12" in reason for reason in net.fallbacks.values())
    with torch.no_grad():
        for got, wanted in zip(net(x), model(x), strict=True):
            torch.testing.assert_close(got, wanted)


def test_each_step_is_a_row_of_what_the_inputs_give_its_gates_and_its_state() -> None:
    def of_steps(count: int) -> int:
        network = from_module(nn.LSTM(6, 8).eval(), torch.randn(count, 1, 6)).network
        return len(folded(network).call.graph().cleaned().nodes)

    assert of_steps(60) - of_steps(20) == 3 * 40


def test_steps_that_read_a_large_weight_stay_apart() -> None:
    """One kernel of both would hold it twice."""
    stages = {}
    for width in (24, 128):
        layer = nn.RNN(8, width).eval()
        with fixed_kernels(written_machine().to_json()):
            net = syno.compile(layer, torch.randn(6, 1, 8), cache=False)
        stages[width] = [
            sum(name.startswith("gates") for name in stage.nodes)
            for stage in net.network.stages
            if stage.packed is not None
        ]
    assert max(stages[128]) == 1 < max(stages[24])
