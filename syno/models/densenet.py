"""DenseNet-121 (Huang et al. 2017), layer for layer as torchvision has it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class DenseLayer(nn.Module):
    """Norm, ReLU, 1x1 to ``4 * growth``; norm, ReLU, 3x3 to ``growth``; joined to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, 4 * growth, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        new = self.conv1(self.relu(self.norm1(x)))
        new = self.conv2(self.relu(self.norm2(new)))
        return torch.cat((x, new), 1)


def _transition(inputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, inputs // 2, 1, bias=False),
        nn.AvgPool2d(2),
    )


class DenseNet(nn.Module):
    """Blocks of densely connected layers, each block but the last halved in channels and size.

    Args:
        blocks: layers of each block.
        growth: channels a layer adds.
        classes: outputs.
        channels: channels of the input images, ``[N, channels, 224, 224]``.
    """

    def __init__(
        self,
        blocks: Sequence[int] = (6, 12, 24, 16),
        growth: int = 32,
        classes: int = 1000,
        channels: int = 3,
    ) -> None:
        super().__init__()
        width = 2 * growth
        layers: list[nn.Module] = [
            nn.Conv2d(channels, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]
        for index, count in enumerate(blocks):
            for _ in range(count):
                layers.append(DenseLayer(width, growth))
                width += growth
            if index + 1 < len(blocks):
                layers.append(_transition(width))
                width //= 2
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


def densenet121(classes: int = 1000, channels: int = 3) -> DenseNet:
    """DenseNet-121 for ``[N, channels, 224, 224]``."""
    return DenseNet((6, 12, 24, 16), 32, classes, channels)
