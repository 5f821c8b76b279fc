"""Recurrent layers, unrolled: the steps of one weight read it where one copy lies, packed, and see it change."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402

import syno  # noqa: E402

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
