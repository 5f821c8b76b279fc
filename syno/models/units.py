"""The convolution with normalisation and activation that convolutional networks are made of."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def unit(
    inputs: int,
    outputs: int,
    kernel: int,
    stride: int = 1,
    *,
    groups: int = 1,
    activation: Callable[[], nn.Module] | None = None,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Convolution that keeps ``[H, W]`` at stride 1, batch normalisation with ``eps``, activation if any."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=eps),
    ]
    return nn.Sequential(*layers) if activation is None else nn.Sequential(*layers, activation())


__all__ = ["unit"]
