"""Networks at changing image sizes: of 1x1 convolutions and what is computed by elements, height and width are one loop."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import syno
from syno.graph.dynamic import DynamicNetwork
from syno.kernels.ranged import RangedKernels


class Branch(nn.Module):
    """Adds what its part makes of its input."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: Tensor) -> Tensor:
        return x + self.part(x)


def layers(draw: random.Random, channels: int) -> tuple[nn.Module, int]:
    """A random layer for so many channels, and how many it leaves."""
    more = draw.choice([channels, 2 * channels, 12])
    kind = draw.choice(
        ["point", "point", "strided", "depthwise", "window", "branch", "elements", "pool"]
    )
    if kind == "point":
        return nn.Conv2d(channels, more, 1, bias=draw.random() < 0.5), more
    if kind == "strided":
        return nn.Conv2d(channels, more, 1, stride=2), more
    if kind == "depthwise":
        stride = draw.choice([1, 2])
        return nn.Conv2d(channels, channels, 3, stride, 1, groups=channels), channels
    if kind == "window":
        return nn.Conv2d(channels, more, 3, padding=draw.choice([0, 1])), more
    if kind == "branch":
        part = nn.Sequential(nn.Conv2d(channels, more, 1), nn.ReLU6(), nn.Conv2d(more, channels, 1))
        return Branch(part), channels
    if kind == "pool":
        return nn.MaxPool2d(3, 2, 1), channels
    return draw.choice([nn.Hardswish(), nn.GELU(), nn.BatchNorm2d(channels)]), channels


def network(seed: int) -> nn.Module:
    draw = random.Random(seed)
    torch.manual_seed(seed)
    channels, parts, strides = 4, [nn.Conv2d(3, 4, 1), nn.ReLU()], 0
    for _ in range(draw.randint(3, 6)):
        layer, channels = layers(draw, channels)
        strides += any(getattr(m, "stride", 1) in (2, (2, 2)) for m in layer.modules())
        if strides > 2:
            break
        parts += [layer, draw.choice([nn.ReLU(), nn.Identity()])]
    if draw.random() < 0.5:
        parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)]
    model = nn.Sequential(*parts).eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2)
    return model


@pytest.mark.parametrize("seed", range(8))
def test_a_network_of_points_and_windows_is_the_model_at_every_size(
    seed: int, tmp_path: Path
) -> None:
    draw = random.Random(seed + 100)
    model = network(seed)
    several = draw.random() < 0.5
    sizes = {2: ("h", 20, 44), 3: ("w" if several else "h", 20, 44)}
    if draw.random() < 0.5:
        sizes[0] = ("batch", 1, 3)
    fast = syno.compile(model, torch.randn(1, 3, 30, 30), dynamic={0: sizes}, cache=False)
    path = tmp_path / "net"
    exported = seed % 4 == 0 and fast.by_size == ""
    if exported:
        syno.export(fast, path)
    loaded = syno.load(path) if exported else None
    for _ in range(4):
        height, width = draw.randint(20, 44), draw.randint(20, 44)
        batch = draw.randint(1, 3) if 0 in sizes else 1
        x = torch.randn(batch, 3, height, width if several else height)
        with torch.no_grad():
            wanted = model(x)
        torch.testing.assert_close(fast(x), wanted, rtol=1e-4, atol=1e-4)
        if loaded is not None:
            torch.testing.assert_close(
                torch.tensor(loaded(x.numpy())), wanted, rtol=1e-4, atol=1e-4
            )


def kernels_of(fast: object) -> dict[str, tuple[RangedKernels, DynamicNetwork]]:
    network: DynamicNetwork = fast.network  # type: ignore[attr-defined]
    made = network.made_of(network.buckets[-1])
    return {name: (kernels, network) for name, (kernels, _) in made.general.items()}


def test_a_point_convolution_has_one_loop_over_height_and_width() -> None:
    """Their product ends it: as a loop of height times the largest width, it asked at each place whether there is one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(32, 192, 1), nn.ReLU6()).eval()
    fast = syno.compile(
        model,
        torch.randn(1, 32, 28, 28),
        dynamic={0: {2: ("n", 12, 28), 3: ("n", 12, 28)}},
        cache=False,
    )
    ((kernels, _),) = kernels_of(fast).values()
    nest = str(kernels.call.nest.text())
    assert "parameter size_1 in 144..785" in nest, nest
    assert not re.search(r"% 28|/ 28", nest), nest


def test_a_point_convolution_stays_apart_from_the_window_behind_it() -> None:
    """At one size they may be one kernel; for a range height and width would be two loops in it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(24, 144, 1), nn.ReLU6(), nn.Conv2d(144, 144, 3, 1, 1, groups=144), nn.ReLU6()
    ).eval()
    fast = syno.compile(
        model,
        torch.randn(1, 24, 56, 56),
        dynamic={0: {2: ("n", 28, 56), 3: ("n", 28, 56)}},
        cache=False,
    )
    products = [
        str(kernels.call.nest.text())
        for kernels, _ in kernels_of(fast).values()
        if "f32[144, 24, 1, 1]" in str(kernels.call.nest.text())
        or "_pack" in str(kernels.call.nest.text())
    ]
    assert products
    assert all("in 784..3137" in nest for nest in products), products
