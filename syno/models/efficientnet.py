"""EfficientNetV2-S (Tan and Le 2021), layer for layer as torchvision has it, stochastic depth left out."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from syno.models.units import unit

# fused, expansion, stride of the first, inputs, outputs, repeats
_STAGES = (
    (True, 1, 1, 24, 24, 2),
    (True, 4, 2, 24, 48, 4),
    (True, 4, 2, 48, 64, 4),
    (False, 4, 2, 64, 128, 6),
    (False, 6, 1, 128, 160, 9),
    (False, 6, 2, 160, 256, 15),
)
_LAST = 1280


_unit = partial(unit, activation=partial(nn.SiLU, inplace=True), eps=1e-3)


class SqueezeExcitation(nn.Module):
    """Scales every channel by a number from 0 to 1 that depends on all channels' means."""

    def __init__(self, width: int, squeezed: int) -> None:
        super().__init__()
        self.fc1 = nn.Conv2d(width, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, width, 1)
        self.activation = nn.SiLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.activation(self.fc1(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.fc2(scale))


class MBConv(nn.Module):
    """Inverted residual; fused, its expansion and depthwise convolution are one 3x3 convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int, fused: bool) -> None:
        super().__init__()
        hidden = inputs * expansion
        if fused and expansion == 1:
            layers: list[nn.Module] = [_unit(inputs, outputs, 3, stride)]
        elif fused:
            layers = [
                _unit(inputs, hidden, 3, stride),
                _unit(hidden, outputs, 1, activation=None),
            ]
        else:
            layers = [
                _unit(inputs, hidden, 1),
                _unit(hidden, hidden, 3, stride, groups=hidden),
                SqueezeExcitation(hidden, max(1, inputs // 4)),
                _unit(hidden, outputs, 1, activation=None),
            ]
        self.block = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.block(x)
        return x + y if self.residual else y


class EfficientNetV2(nn.Module):
    """EfficientNetV2-S; input ``[N, channels, H, W]``, trained by its authors at up to 384."""

    def __init__(self, classes: int = 1000, channels: int = 3) -> None:
        super().__init__()
        layers: list[nn.Module] = [_unit(channels, _STAGES[0][3], 3, 2)]
        for fused, expansion, stride, inputs, outputs, repeats in _STAGES:
            for index in range(repeats):
                first = index == 0
                layers.append(
                    MBConv(
                        inputs if first else outputs,
                        outputs,
                        stride if first else 1,
                        expansion,
                        fused,
                    )
                )
        layers.append(_unit(_STAGES[-1][4], _LAST, 1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(_LAST, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x).mean((2, 3)))
        return logits


def efficientnet_v2_s(classes: int = 1000, channels: int = 3) -> EfficientNetV2:
    """EfficientNetV2-S for ``[N, channels, 224, 224]`` or larger."""
    return EfficientNetV2(classes, channels)
