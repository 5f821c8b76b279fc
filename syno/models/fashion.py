"""A small residual network for 28x28 images, made to be trained in seconds on one core."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from syno.errors import TaskError


class ResidualBlock(nn.Module):
    """``relu(x + bn(conv(relu(bn(conv(x))))))`` with two 3x3 convolutions of equal width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        return functional.relu(x + self.norm2(self.conv2(inner)))


class FashionResNet(nn.Module):
    """Stem, then stages of residual blocks with a strided 3x3 convolution between two stages.

    Args:
        widths: channels of each stage; each stage halves the resolution of the one before.
        blocks: residual blocks a stage.
        channels: channels of the input images.
        classes: outputs.
        stem_stride: stride of the first convolution; 2 makes everything after it four times cheaper.
    """

    def __init__(
        self,
        widths: Sequence[int] = (32, 64, 128),
        blocks: int = 1,
        channels: int = 1,
        classes: int = 10,
        stem_stride: int = 1,
    ) -> None:
        super().__init__()
        if not widths or min(widths) < 1 or blocks < 1 or channels < 1 or classes < 1:
            raise TaskError(
                f"widths={tuple(widths)}, blocks={blocks}, channels={channels}, classes={classes}",
                fix="every one must be at least 1, and there must be a width",
                code="T003",
            )
        self.stem = nn.Sequential(
            nn.Conv2d(channels, widths[0], 3, stride=stem_stride, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        )
        stages: list[nn.Module] = []
        for index, width in enumerate(widths):
            layers: list[nn.Module] = []
            if index:
                layers += [
                    nn.Conv2d(widths[index - 1], width, 3, stride=2, padding=1, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
            layers += [ResidualBlock(width) for _ in range(blocks)]
            stages.append(nn.Sequential(*layers))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x))
        logits: Tensor = self.head(torch.mean(x, dim=(2, 3)))
        return logits


def fashion_resnet(
    widths: Sequence[int] = (32, 64, 128),
    blocks: int = 1,
    channels: int = 1,
    classes: int = 10,
    stem_stride: int = 1,
) -> FashionResNet:
    """:class:`FashionResNet` with random weights; input ``[N, channels, H, W]``, output ``[N, classes]``."""
    return FashionResNet(tuple(widths), blocks, channels, classes, stem_stride)
