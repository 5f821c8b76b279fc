"""MobileNetV2 (Sandler et al. 2018), layer for layer as torchvision has it."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from syno.models.units import unit

#: Expansion, channels, repeats, stride of the first (Table 2 of the paper).
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


_unit = partial(unit, activation=partial(nn.ReLU6, inplace=True))


class InvertedResidual(nn.Module):
    """1x1 expansion, depthwise 3x3, 1x1 projection; added to its input where the shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        layers: list[nn.Module] = [] if expansion == 1 else [_unit(inputs, hidden, 1)]
        layers += [
            _unit(hidden, hidden, 3, stride, groups=hidden),
            nn.Conv2d(hidden, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        ]
        self.conv = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.conv(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """MobileNetV2 of width multiplier 1; input ``[N, channels, 224, 224]``."""

    def __init__(self, classes: int = 1000, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = [_unit(channels, 32, 3, stride=2)]
        inputs = 32
        for expansion, outputs, repeats, stride in STAGES:
            for index in range(repeats):
                layers.append(
                    InvertedResidual(inputs, outputs, stride if index == 0 else 1, expansion)
                )
                inputs = outputs
        layers.append(_unit(inputs, 1280, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, 0.0, 0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(torch.mean(self.features(x), dim=(2, 3)))
        return logits


def mobilenet_v2(classes: int = 1000, channels: int = 3) -> MobileNetV2:
    """:class:`MobileNetV2` with random weights."""
    return MobileNetV2(classes, channels)
