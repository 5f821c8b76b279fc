"""Whole networks, compiled, against other systems that run them.

    python benchmarks/networks.py --json
    python benchmarks/networks.py --networks resnet18,conv1d --peers eager,onnxruntime --threads 2 -o mine.json

Each network is compiled by us and made ready by each peer in its fair form, everybody's outputs are compared with
float64, and all take turns. `ratio_to_best_peer` above 1: ours is faster than the fastest peer.

The networks, which other benchmarks look at, too, are the package's models and some more, each with an example input.
Those defined here have the published shapes of their layers and random weights; they are there for their shapes,
not to be trained.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from networkbench.einnet_models import (
    GlobalConvolutionalNetwork,
    csrnet,
    dcgan,
    fsrcnn,
    infogan,
    longformer,
)
from networkbench.further_models import gru_frames, lstm_tagger, shufflenet_v2, squeezenet
from torch import Tensor, nn

from syno import models
from syno.errors import unknown_name
from syno.models.gpt import GPTBlock
from syno.models.resnet import ResNet
from syno.models.units import unit


class Bottleneck(nn.Module):
    """ResNet-50's block: 1x1, 3x3, 1x1 (He et al. 2015)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            unit(inputs, width, 1, activation=nn.ReLU),
            unit(width, width, 3, stride, activation=nn.ReLU),
            unit(width, outputs, 1),
        )
        same = stride == 1 and inputs == outputs
        self.beside = nn.Identity() if same else unit(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.beside(x))


def resnet50() -> nn.Module:
    layers: list[nn.Module] = [unit(3, 64, 7, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class ConvNeXtBlock(nn.Module):
    """7x7 depthwise, then two linear layers over channels-last (Liu et al. 2022)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.contract(nn.functional.gelu(self.expand(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext_t() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4)]
    widths = (96, 192, 384, 768)
    for stage, (width, blocks) in enumerate(zip(widths, (3, 3, 9, 3), strict=True)):
        if stage:
            layers.append(nn.Conv2d(widths[stage - 1], width, 2, 2))
        layers += [ConvNeXtBlock(width) for _ in range(blocks)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 1000))


class Encoder(nn.Module):
    """Layers of ``models.gpt``'s block without the mask's causality: what ViT and BERT stack."""

    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        layer = [
            nn.ModuleDict(
                {
                    "qkv": nn.Linear(width, 3 * width),
                    "projection": nn.Linear(width, width),
                    "expand": nn.Linear(width, 4 * width),
                    "contract": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        ]
        self.layers = nn.ModuleList(layer)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        for layer in self.layers:
            parts = layer["qkv"](x).view(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
            x = x + layer["projection"](mixed.transpose(1, 2).reshape(count, length, width))
            x = x + layer["contract"](nn.functional.gelu(layer["expand"](x)))
        return x


class Patches(nn.Module):
    """Images to tokens ``[N, T, width]``, 16x16 pixels each."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Conv2d(3, width, 16, 16)

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.projection(x).flatten(2).transpose(1, 2)
        return tokens


def vit_s() -> nn.Module:
    return nn.Sequential(Patches(384), Encoder(384, 6, 12), nn.Linear(384, 1000))


def bert_base() -> nn.Module:
    return nn.Sequential(nn.Embedding(1000, 768), Encoder(768, 12, 12))


def bert_tiny() -> nn.Module:
    return nn.Sequential(nn.Embedding(1000, 128), Encoder(128, 2, 2))


def conv1d() -> nn.Module:
    """A small network for signals: strided and plain convolutions along time."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in (
        (1, 32, 1),
        (32, 64, 2),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
    ):
        layers += [nn.Conv1d(inputs, outputs, 9, stride, 4), nn.BatchNorm1d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 10))


class Block3d(nn.Module):
    """R3D's basic block: two 3x3x3 convolutions (Tran et al. 2018)."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(inputs, width, 3, stride, 1, bias=False),
            nn.BatchNorm3d(width),
            nn.ReLU(),
            nn.Conv3d(width, width, 3, 1, 1, bias=False),
            nn.BatchNorm3d(width),
        )
        same = stride == 1 and inputs == width
        self.beside = nn.Identity() if same else nn.Conv3d(inputs, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.beside(x))


def r3d_18() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)]
    inputs = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block3d(inputs, width, stride), Block3d(width, width, 1)]
        inputs = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, 400))


def vgg16() -> nn.Module:
    """Configuration D (Simonyan and Zisserman 2014), drawn as its activations keep their size."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(convolutions):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    layers += [nn.Flatten(), nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Linear(4096, 4096)]
    layers += [nn.ReLU(), nn.Linear(4096, 1000)]
    for layer in layers:
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Pairs of 3x3 convolutions down and up again, each level joined with its counterpart (Ronneberger et al. 2015)."""

    def __init__(self, width: int = 32, levels: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(levels)]
        self.down = nn.ModuleList(
            self._pair(a, b) for a, b in zip([3, *widths], widths, strict=False)
        )
        self.lowest = self._pair(widths[-1], 2 * widths[-1])
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in widths)
        self.joined = nn.ModuleList(self._pair(2 * w, w) for w in widths)
        self.pool = nn.MaxPool2d(2)
        self.head = nn.Conv2d(width, classes, 1)

    @staticmethod
    def _pair(inputs: int, width: int) -> nn.Sequential:
        first = unit(inputs, width, 3, activation=nn.ReLU)
        return nn.Sequential(first, unit(width, width, 3, activation=nn.ReLU))

    def forward(self, x: Tensor) -> Tensor:
        beside = []
        for pair in self.down:
            x = pair(x)
            beside.append(x)
            x = self.pool(x)
        x = self.lowest(x)
        for level in reversed(range(len(beside))):
            x = self.joined[level](torch.cat([beside[level], self.up[level](x)], 1))
        labels: Tensor = self.head(x)
        return labels


def cifar_resnet34() -> nn.Module:
    return ResNet((3, 4, 6, 3), 10, 3, small_images=True)


def _images(size: int, channels: int = 3) -> Tensor:
    return torch.zeros(1, channels, size, size)


def _tokens(length: int) -> Tensor:
    return torch.zeros(1, length, dtype=torch.int64)


def _model(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: models.make(name, **options)


_NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "fashion_resnet": (_model("fashion_resnet"), lambda: _images(28, 1)),
    "cifar_resnet18": (_model("cifar_resnet18"), lambda: _images(32)),
    "cifar_resnet34": (cifar_resnet34, lambda: _images(32)),
    "resnet18": (_model("resnet18"), lambda: _images(224)),
    "resnet34": (_model("resnet34"), lambda: _images(224)),
    "resnet50": (resnet50, lambda: _images(224)),
    "resnext29": (_model("resnext29"), lambda: _images(32)),
    "densenet121": (_model("densenet121"), lambda: _images(224)),
    "efficientnet_v2_s": (_model("efficientnet_v2_s"), lambda: _images(224)),
    "mobilenet_v2": (_model("mobilenet_v2"), lambda: _images(224)),
    "convnext_t": (convnext_t, lambda: _images(224)),
    "vit_s": (vit_s, lambda: _images(224)),
    "bert_base": (bert_base, lambda: _tokens(128)),
    "bert_tiny": (bert_tiny, lambda: _tokens(128)),
    "gpt2": (
        _model("gpt", vocabulary=1000, context=128, width=768, heads=12, layers=12),
        lambda: _tokens(128),
    ),
    "gpt2_block": (lambda: GPTBlock(768, 12), lambda: torch.zeros(1, 128, 768)),
    "vgg16": (vgg16, lambda: _images(224)),
    "unet": (UNet, lambda: _images(128)),
    "conv1d": (conv1d, lambda: torch.zeros(1, 1, 1024)),
    "r3d_18": (r3d_18, lambda: torch.zeros(1, 3, 8, 56, 56)),
    "infogan": (infogan, lambda: torch.zeros(1, 228, 1, 1)),
    "dcgan": (dcgan, lambda: torch.zeros(1, 100, 1, 1)),
    "fsrcnn": (fsrcnn, lambda: _images(32, 1)),
    "gcn": (lambda: GlobalConvolutionalNetwork(Bottleneck), lambda: _images(224)),
    "csrnet": (csrnet, lambda: _images(112)),
    "longformer": (longformer, lambda: torch.zeros(1, 1000, 512)),
    "squeezenet": (squeezenet, lambda: _images(224)),
    "shufflenet_v2": (shufflenet_v2, lambda: _images(224)),
    "lstm_tagger": (lstm_tagger, lambda: _tokens(40)),
    "gru_frames": (gru_frames, lambda: torch.zeros(1, 50, 40)),
}


def names() -> list[str]:
    """The networks that :func:`make` knows."""
    return list(_NETWORKS)


def make(name: str) -> tuple[nn.Module, Tensor]:
    """A network with random weights, and an example for it, one image, clip, signal or text.

    Raises:
        UnknownName: no network of that name.
    """
    if name not in _NETWORKS:
        raise unknown_name("network", name, _NETWORKS)
    model, example = _NETWORKS[name]
    return model(), example()


def main() -> int:
    """Runs the benchmark; its exit code."""
    from networkbench.command import main as run

    return run(__doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
