"""Batch normalisation and other factors that weights give, moved into the weights of the layers before them."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor, nn

import syno
from syno.graph.folding import folded, scaled
from syno.graph.from_torch import from_module


def _norm(norm: nn.Module) -> nn.Module:
    with torch.no_grad():
        norm.running_mean.uniform_(-1, 1)
        norm.running_var.uniform_(0.3, 3)
        if norm.weight is not None:
            norm.weight.uniform_(-2, 2)
            norm.bias.uniform_(-1, 1)
    return norm


class LayerScale(nn.Module):
    def __init__(self, shape: tuple[int, ...], divided: bool = False) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.rand(shape) + 0.5)
        self.divided = divided

    def forward(self, x: Tensor) -> Tensor:
        return x / self.gamma if self.divided else x * self.gamma


def _layer(rng: random.Random, rank: int, channels: int) -> tuple[nn.Module, int]:
    """A layer with a norm or a scale behind it."""
    out = rng.choice([channels, 2 * channels])
    groups = rng.choice([1, 2, channels])
    bias = rng.random() < 0.5
    kinds = {1: (nn.Conv1d, nn.ConvTranspose1d, nn.BatchNorm1d)}
    kinds[2] = (nn.Conv2d, nn.ConvTranspose2d, nn.BatchNorm2d)
    conv, transposed, norm = kinds[rank]
    if rng.random() < 0.3:
        layer = transposed(channels, out, 2, stride=2, groups=groups, bias=bias)
    else:
        layer = conv(channels, out, 3, rng.choice([1, 2]), padding=1, groups=groups, bias=bias)
    behind = rng.choice(
        [
            _norm(norm(out)),
            _norm(norm(out, affine=False)),
            LayerScale((out,) + (1,) * rank, divided=rng.random() < 0.3),
            nn.Sequential(_norm(norm(out)), LayerScale((1,))),
        ]
    )
    return nn.Sequential(layer, behind, rng.choice([nn.ReLU(), nn.Tanh(), nn.Identity()])), out


def _random_network(seed: int) -> tuple[nn.Module, Tensor]:
    rng = random.Random(seed)
    torch.manual_seed(seed)
    rank = rng.choice([1, 2])
    channels = 4
    layers: list[nn.Module] = []
    for _ in range(rng.randint(1, 3)):
        layer, channels = _layer(rng, rank, channels)
        layers.append(layer)
    return nn.Sequential(*layers).eval(), torch.randn(2, 4, *[8] * rank)


def _multiplications_of_weights(model: nn.Module, x: Tensor) -> int:
    """Nodes that are computed in every call and that the rewrite would still change."""
    from syno import _core

    graph = folded(from_module(model, (x,)).network).call.graph()
    return len(_core.graph_sites(graph, "scales"))


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_compute_the_same_also_with_other_weights(seed: int) -> None:
    model, x = _random_network(seed)
    fast = syno.compile(model, x)
    assert _multiplications_of_weights(model, x) == 0
    with torch.no_grad():
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
        for p in model.parameters():
            p.add_(torch.rand_like(p) * 0.1)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)


def test_a_convolution_with_a_norm_has_no_factor_left_and_all_its_weights() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), _norm(nn.BatchNorm2d(8))).eval()
    network = from_module(model, (torch.randn(1, 3, 8, 8),)).network
    made = scaled(network)
    assert set(made.weights) == set(network.weights)
    assert [v.name for v in made.outputs] == [v.name for v in network.outputs]
    parts = folded(network)
    assert [node.name for node in parts.call.nodes] == [
        node.name for node in network.nodes if node.name not in ("scale", "shift")
    ]
    (factor,) = [name for name in parts.call.weights if name.endswith("_scaled")]
    expected = (
        model[0].weight
        * (model[1].weight / (model[1].running_var + 1e-5).sqrt())[:, None, None, None]
    )
    torch.testing.assert_close(torch.from_numpy(parts.call.weights[factor]), expected.detach())


def test_weights_that_two_layers_share_are_scaled_for_each() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(4, 4, 3, padding=1)
            self.first, self.second = _norm(nn.BatchNorm2d(4)), _norm(nn.BatchNorm2d(4))

        def forward(self, x: Tensor) -> Tensor:
            return self.second(self.layer(self.first(self.layer(x)).relu())) + self.layer(x)

    torch.manual_seed(1)
    model, x = Tied().eval(), torch.randn(1, 4, 6, 6)
    fast = syno.compile(model, x)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)


def test_what_several_read_or_the_model_returns_keeps_its_factor() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.norm = nn.Conv2d(4, 4, 3), _norm(nn.BatchNorm2d(4))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = self.layer(x)
            return y, self.norm(y)

    torch.manual_seed(2)
    model, x = Both().eval(), torch.randn(1, 4, 6, 6)
    network = from_module(model, (x,)).network
    assert scaled(network) is network
    for made, expected in zip(syno.compile(model, x)(x), model(x), strict=True):
        torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-4)


def test_a_norm_that_starts_at_zero_and_one_without_variance() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    nn.init.zeros_(model[1].weight)
    nn.init.zeros_(model[1].running_var)
    x = torch.randn(1, 3, 6, 6)
    torch.testing.assert_close(syno.compile(model, x)(x), model(x))
