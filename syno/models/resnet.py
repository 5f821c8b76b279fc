"""ResNet-18 and -34 (He et al. 2015), for 224x224 images and for 32x32 ones.

Layer for layer and name for name as torchvision has them, so that its ``state_dict`` loads.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside an identity, or beside a strided 1x1 where the shape changes."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        y: Tensor = self.relu(self.bn2(self.conv2(x)) + identity)
        return y


class ResNet(nn.Module):
    """The residual network of ``blocks`` basic blocks a stage.

    Args:
        blocks: blocks in each of the four stages.
        classes: outputs.
        channels: channels of the input images.
        small_images: a 3x3 stem without stride and pooling, as is usual for 32x32 images.
        width: channels of the first stage; each later one has twice as many.
    """

    def __init__(
        self,
        blocks: Sequence[int],
        classes: int = 1000,
        channels: int = 3,
        small_images: bool = False,
        width: int = 64,
    ) -> None:
        super().__init__()
        kernel, stride, padding = (3, 1, 1) if small_images else (7, 2, 3)
        self.conv1 = nn.Conv2d(channels, width, kernel, stride, padding, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.Identity() if small_images else nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(width, width, blocks[0], 1)
        self.layer2 = _stage(width, 2 * width, blocks[1], 2)
        self.layer3 = _stage(2 * width, 4 * width, blocks[2], 2)
        self.layer4 = _stage(4 * width, 8 * width, blocks[3], 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * width, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


def _stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inputs, width, stride)
    return nn.Sequential(first, *(BasicBlock(width, width, 1) for _ in range(blocks - 1)))


def resnet18(classes: int = 1000, channels: int = 3) -> ResNet:
    """ResNet-18 for ``[N, channels, 224, 224]``."""
    return ResNet((2, 2, 2, 2), classes, channels)


def resnet34(classes: int = 1000, channels: int = 3) -> ResNet:
    """ResNet-34 for ``[N, channels, 224, 224]``."""
    return ResNet((3, 4, 6, 3), classes, channels)


def cifar_resnet18(classes: int = 10, channels: int = 3, width: int = 64) -> ResNet:
    """ResNet-18 for small images, ``[N, channels, 32, 32]``."""
    return ResNet((2, 2, 2, 2), classes, channels, small_images=True, width=width)
