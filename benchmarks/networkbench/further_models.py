"""Networks of kinds that the others are not: channels shuffled, few channels squeezed, recurrent layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from syno.models.units import unit


class Fire(nn.Module):
    """1x1, then 1x1 beside 3x3 (Iandola et al. 2016)."""

    def __init__(self, inputs: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU())
        self.narrow = nn.Sequential(nn.Conv2d(squeezed, expanded, 1), nn.ReLU())
        self.wide = nn.Sequential(nn.Conv2d(squeezed, expanded, 3, padding=1), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x)
        return torch.cat([self.narrow(x), self.wide(x)], 1)


def squeezenet() -> nn.Module:
    """SqueezeNet 1.1."""
    body: list[nn.Module] = [nn.Conv2d(3, 64, 3, 2), nn.ReLU()]
    inputs = 64
    for pairs in (((16, 64),) * 2, ((32, 128),) * 2, ((48, 192),) * 2 + ((64, 256),) * 2):
        body.append(nn.MaxPool2d(3, 2, ceil_mode=True))
        for squeezed, expanded in pairs:
            body.append(Fire(inputs, squeezed, expanded))
            inputs = 2 * expanded
    return nn.Sequential(
        *body, nn.Conv2d(inputs, 1000, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


class Shuffled(nn.Module):
    """Half of the channels through 1x1, depthwise 3x3, 1x1, then channels of both halves in turns (Ma et al. 2018)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        read = inputs if stride > 1 else inputs // 2
        self.through = nn.Sequential(
            unit(read, half, 1, activation=nn.ReLU),
            unit(half, half, 3, stride, groups=half),
            unit(half, half, 1, activation=nn.ReLU),
        )
        self.beside = (
            nn.Sequential(
                unit(inputs, inputs, 3, stride, groups=inputs),
                unit(inputs, half, 1, activation=nn.ReLU),
            )
            if stride > 1
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.beside is None:
            first, second = x.chunk(2, 1)
        else:
            first, second = self.beside(x), x
        both = torch.stack([first, self.through(second)], 2)
        return both.flatten(1, 2)


def shufflenet_v2() -> nn.Module:
    """ShuffleNet V2 1.0x."""
    body: list[nn.Module] = [unit(3, 24, 3, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    inputs = 24
    for outputs, blocks in ((116, 4), (232, 8), (464, 4)):
        for block in range(blocks):
            body.append(Shuffled(inputs, outputs, 2 if block == 0 else 1))
            inputs = outputs
    return nn.Sequential(
        *body,
        unit(464, 1024, 1, activation=nn.ReLU),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1024, 1000),
    )


class _Every(nn.Module):
    """What a recurrent layer gives at every step."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        steps: Tensor = self.layer(x)[0]
        return steps


def lstm_tagger() -> nn.Module:
    """Words to tags by an LSTM in both directions (the network of Huang et al. 2015 without its CRF)."""
    layer = nn.LSTM(128, 128, bidirectional=True, batch_first=True)
    return nn.Sequential(nn.Embedding(1000, 128), _Every(layer), nn.Linear(256, 20))


def gru_frames() -> nn.Module:
    """Log probabilities of 29 characters for each frame of 40 features, as speech is read."""
    layer = nn.GRU(40, 96, 2, batch_first=True)
    return nn.Sequential(_Every(layer), nn.Linear(96, 29), nn.LogSoftmax(-1))
