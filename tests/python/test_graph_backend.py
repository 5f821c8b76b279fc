"""`torch.compile(backend="syno")`: inference, training, graph breaks, other shapes, changed weights."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from syno import _core  # noqa: E402
from syno.errors import SynoError  # noqa: E402
from syno.graph import backend, remembering  # noqa: E402
from syno.graph import compile as compiling  # noqa: E402
from syno.graph.building import Builder  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not hasattr(_core, "Graph"):  # an engine without networks: node by node in PyTorch
        monkeypatch.setattr(
            backend, "CompiledRunner", lambda imported, settings: backend.Runner(imported)
        )
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64, 5),
    )


def compiled(model: Any, **options: Any) -> Any:
    return torch.compile(model, backend="syno", options=options or None)


def close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("grad", [False, True])
def test_inference_agrees_with_eager(grad: bool) -> None:
    model, x = network().eval(), torch.randn(2, 1, 8, 8)
    with torch.set_grad_enabled(grad):
        close(compiled(model)(x), model(x))


def test_the_networks_are_used(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    whole = backend.compile_imported
    monkeypatch.setattr(backend, "compile_imported", lambda i, *s: made.append(i) or whole(i, *s))
    with torch.no_grad(), caplog.at_level(logging.WARNING, "syno.graph"):
        compiled(network().eval())(torch.randn(2, 1, 8, 8))
    (imported,) = made
    assert imported.network.weights
    assert [value.shape for value in imported.network.inputs] == [(2, 1, 8, 8)]
    assert not [node for node in imported.network.nodes if node.host is not None]
    assert not caplog.records


def test_weights_that_change_are_seen() -> None:
    model, x = network().eval(), torch.randn(2, 1, 8, 8)
    fast = compiled(model)
    with torch.no_grad():
        close(fast(x), model(x))
        model[0].weight.mul_(2)
        close(fast(x), model(x))
        model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()})
        close(fast(x), model(x))


def test_other_shapes_and_numbers() -> None:
    def function(x: Tensor, k: int) -> Tensor:
        return F.softmax(x * k, -1) + x.shape[0]

    fast = compiled(function)
    for rows, k in ((2, 1), (3, 2), (5, 7), (3, 2), (1, 4)):
        x = torch.randn(rows, 4)
        close(fast(x, k), function(x, k))


def test_graph_breaks_and_control_flow() -> None:
    def function(x: Tensor) -> Tensor:
        y = torch.tanh(x) * 2
        if y.sum() > 0:
            return y.exp()
        return y - 1

    fast = compiled(function)
    for sign in (1, -1):
        x = sign * torch.rand(3, 3)
        close(fast(x), function(x))


def test_inputs_that_are_written_to() -> None:
    def function(x: Tensor) -> Tensor:
        x.add_(1)
        return x.view(-1) * 2

    a, b = torch.ones(2, 3), torch.ones(2, 3)
    close(compiled(function)(a), function(b))
    close(a, b)


def test_a_training_step_agrees_with_eager() -> None:
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.BatchNorm2d(4),
        nn.GELU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(36),
        nn.Linear(36, 5),
    )
    twin = copy.deepcopy(model)
    fast = compiled(model)
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, twin)]
    for _ in range(3):
        x, y = torch.randn(4, 1, 8, 8), torch.randint(5, (4,))
        for run, optimizer in ((fast, optimizers[0]), (twin, optimizers[1])):
            optimizer.zero_grad()
            F.cross_entropy(run(x), y).backward()
            optimizer.step()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        close(ours, theirs)
        close(ours.grad, theirs.grad)
    close(model[1].running_mean, twin[1].running_mean)


def test_a_passed_check_of_a_network_is_remembered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path))
    looked: list[str] = []
    whole = compiling.expected

    def counted(network: Any, *args: Any) -> Any:
        looked.append(network.name)
        return whole(network, *args)

    monkeypatch.setattr(compiling, "expected", counted)

    def trained(bias: float) -> tuple[Tensor, int]:
        looked.clear()
        torch._dynamo.reset()
        model = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(48, 2))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.25)
        x = torch.arange(144.0).reshape(2, 2, 6, 6) % 7 + bias
        compiled(model)(x).square().sum().backward()
        return next(model.parameters()).grad, len(looked)

    one, first = trained(0.0)
    assert first == 2  # forward and backward
    _, second = trained(
        1.0
    )  # other data: what training graphs are checked on are numbers of their own
    assert second == 0
    # With another constant argument it is another network.
    model = nn.Sequential(
        nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3, eps=1e-3), nn.Flatten(), nn.Linear(48, 2)
    )
    compiled(model)(torch.randn(2, 2, 6, 6)).square().sum().backward()
    assert looked
    # Inference has weights of its own, which count.
    looked.clear()
    for seed in (1, 1, 2):
        torch._dynamo.reset()
        torch.manual_seed(seed)
        with torch.no_grad():
            compiled(nn.Linear(3, 4).eval())(torch.ones(2, 3))
    assert len(looked) == 2
    # A damaged entry, or none, is checked anew.
    for entry in tmp_path.glob("*.verified"):
        entry.write_bytes(b"{}")
    assert trained(0.0)[1] == 2
    close(one, trained(0.0)[0])


def test_a_function_that_says_nothing_of_itself_is_checked_anew() -> None:
    build = Builder("own")
    x = build.input("x", (2, 3))
    made = build.call("own", [x], [((2, 3), "float32")], host=lambda t: t + 1)
    network: Any = None
    assert remembering._about(network, build.network(list(made)), []) is None


def test_batch_normalisation_trains_as_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    whole = backend.compile_imported
    monkeypatch.setattr(backend, "compile_imported", lambda i, *s: made.append(i) or whole(i, *s))
    model = nn.BatchNorm2d(3, momentum=0.3)
    twin = copy.deepcopy(model)
    x = torch.randn(2, 3, 4, 5) * 2 + 1
    close(compiled(model)(x), twin(x))
    close(model.running_mean, twin.running_mean)
    close(model.running_var, twin.running_var)
    functions = {node.function for each in made for node in each.network.nodes if node.host}
    assert functions <= {"aten.add.Tensor"}  # which counts the batches


def test_what_trains_is_checked_on_numbers() -> None:
    """A variance that is drawn at random is negative half of the time, and all that is behind it no number: nothing was
    compared then, and a border that reads no such weight counted as wrong."""
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1)
    ).eval()
    fast = torch.compile(model, backend="syno", options={"cache": False})
    x = torch.randn(2, 3, 9, 9, requires_grad=True)
    with backend.graphs_compiled() as made:
        close(torch.autograd.grad(fast(x).square().sum(), [x, *model.parameters()]),
              torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()]))  # fmt: skip
    assert len(made) == 2
    for each in made:
        assert not isinstance(each, str), each
        assert each.sample is not None
        assert all(np.isfinite(one.values).all() for one in each.sample.expected)


def test_attention_trains() -> None:
    model = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, activation="gelu")
    twin = copy.deepcopy(model)
    x = torch.randn(2, 5, 16)
    compiled(model)(x).square().mean().backward()
    twin(x).square().mean().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        close(ours.grad, theirs.grad)


def test_what_no_network_is_runs_in_pytorch(caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.fft.fft(x)

    x = torch.randn(4)
    with caplog.at_level(logging.WARNING, "syno.graph"):
        close(compiled(function)(x), function(x))
    assert "runs in PyTorch" in caplog.text


@pytest.mark.parametrize("options", [{"thread": 1}, {"threads": "1"}, {"derive": 1}])
def test_options_that_are_none_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(SynoError):
        backend.syno_backend(torch.fx.symbolic_trace(nn.ReLU()), [torch.ones(1)], options=options)


class Recurrent(nn.Module):
    def __init__(self, kind: str, **how: Any) -> None:
        super().__init__()
        how = {"batch_first": True, **how}
        self.steps: Any = getattr(nn, kind)(6, 8, **how)
        self.last = nn.Linear(16 if how.get("bidirectional") else 8, 3)

    def forward(self, x: Tensor) -> Any:
        y, state = self.steps(x)
        return self.last(y), state


@pytest.mark.parametrize(
    ("kind", "how", "training"),
    [
        ("LSTM", {"bidirectional": True}, True),
        ("LSTM", {"num_layers": 2, "bias": False}, False),
        ("GRU", {}, True),
        ("RNN", {"nonlinearity": "relu", "bidirectional": True}, False),
    ],
)
def test_recurrences_are_compiled_where_dynamo_gives_them(
    kind: str, how: dict[str, Any], training: bool
) -> None:
    model, x = Recurrent(kind, **how).train(training), torch.randn(3, 2, 6)
    ours = copy.deepcopy(model)
    enabled = torch._C._get_mkldnn_enabled()
    with torch._dynamo.config.patch(allow_rnn=True), backend.graphs_compiled() as graphs:
        with torch.set_grad_enabled(training):
            result, wanted = compiled(ours)(x), model(x)
            close(result, wanted)
        if training:
            for made in (result, wanted):
                made[0].square().mean().backward()
            for a, b in zip(ours.parameters(), model.parameters(), strict=True):
                close(a.grad, b.grad)
    assert torch._C._get_mkldnn_enabled() == enabled
    assert len(graphs) == (2 if training else 1)
    for graph in graphs:
        assert not isinstance(graph, str), graph
        assert not graph.fallbacks and sum(s.kind == "kernel" for s in graph.stages) > 2
