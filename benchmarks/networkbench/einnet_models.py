"""The networks that EINNET's end-to-end experiment runs beside ResNet-18 (Zheng et al., OSDI 2023, section 7.1), with the
published shapes of their layers and random weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from syno.models.units import unit


def _generator(layers: Sequence[tuple[int, int, int, int, int]]) -> nn.Module:
    """Transposed convolutions ``(inputs, outputs, taps, stride, padding)``, normalised, the last one an image."""
    body: list[nn.Module] = []
    for inputs, outputs, taps, stride, padding in layers[:-1]:
        convolution = nn.ConvTranspose2d(inputs, outputs, taps, stride, padding, bias=False)
        body += [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*body, nn.ConvTranspose2d(*layers[-1], bias=False), nn.Tanh())


def infogan() -> nn.Module:
    """The generator for 32x32 images of a noise ``[N, 228, 1, 1]`` (Chen et al. 2016)."""
    widths = (448, 256, 128, 64, 3)
    doubled = [(a, b, 4, 2, 1) for a, b in pairwise(widths)]
    return _generator([(228, 448, 2, 1, 0), *doubled])


def dcgan() -> nn.Module:
    """The generator for 64x64 images of a noise ``[N, 100, 1, 1]`` (Radford et al. 2015)."""
    widths = (512, 256, 128, 64, 3)
    doubled = [(a, b, 4, 2, 1) for a, b in pairwise(widths)]
    return _generator([(100, 512, 4, 1, 0), *doubled])


def fsrcnn() -> nn.Module:
    """FSRCNN(56, 12, 4) (Dong et al. 2016); its last layer as EINNET's experiment has it, with stride 1."""
    layers: list[nn.Module] = [nn.Conv2d(1, 56, 5, padding=2), nn.PReLU(56)]
    layers += [nn.Conv2d(56, 12, 1), nn.PReLU(12)]
    for _ in range(4):
        layers += [nn.Conv2d(12, 12, 3, padding=1), nn.PReLU(12)]
    layers += [nn.Conv2d(12, 56, 1), nn.PReLU(56), nn.ConvTranspose2d(56, 1, 9, 1, 3)]
    return nn.Sequential(*layers)


class _GlobalConvolution(nn.Module):
    """A ``k x k`` window as the sum of ``k x 1`` behind ``1 x k`` and the reverse."""

    def __init__(self, inputs: int, classes: int, k: int) -> None:
        super().__init__()
        across, along = (0, k // 2), (k // 2, 0)
        self.left = nn.Sequential(
            nn.Conv2d(inputs, classes, (k, 1), padding=along),
            nn.Conv2d(classes, classes, (1, k), padding=across),
        )
        self.right = nn.Sequential(
            nn.Conv2d(inputs, classes, (1, k), padding=across),
            nn.Conv2d(classes, classes, (k, 1), padding=along),
        )

    def forward(self, x: Tensor) -> Tensor:
        joined: Tensor = self.left(x) + self.right(x)
        return joined


class _Refined(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(classes, classes, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(classes, classes, 3, padding=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        refined: Tensor = x + self.body(x)
        return refined


class GlobalConvolutionalNetwork(nn.Module):
    """GCN: segmentation by large windows over every stage of a ResNet-50 (Peng et al. 2017).

    Args:
        block: makes a residual block of (inputs, width, stride); its outputs are four times its width.
    """

    def __init__(
        self, block: Callable[[int, int, int], nn.Module], classes: int = 21, k: int = 7
    ) -> None:
        super().__init__()
        self.stem = nn.Sequential(unit(3, 64, 7, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.ModuleList()
        inputs = 64
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            stage: list[nn.Module] = []
            for number in range(blocks):
                stage.append(block(inputs, width, stride if number == 0 else 1))
                inputs = 4 * width
            self.stages.append(nn.Sequential(*stage))
        widths = (256, 512, 1024, 2048)
        self.wide = nn.ModuleList(_GlobalConvolution(w, classes, k) for w in widths)
        self.refine = nn.ModuleList(_Refined(classes) for _ in range(2 * len(widths) + 1))
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(classes, classes, 4, 2, 1) for _ in range(len(widths) + 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        wide = []
        for number, stage in enumerate(self.stages):
            x = stage(x)
            wide.append(self.refine[number](self.wide[number](x)))
        y = self.up[0](wide.pop())
        for number, beside in enumerate(reversed(wide)):
            y = self.up[number + 1](self.refine[4 + number](y + beside))
        labels: Tensor = self.refine[-1](self.up[-1](self.refine[-2](y)))
        return labels


def csrnet() -> nn.Module:
    """VGG-16's first ten convolutions and six dilated ones (Li et al. 2018); the latter see an eighth of the image."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, convolutions in ((64, 2), (128, 2), (256, 3), (512, 3)):
        if inputs != 3:
            layers.append(nn.MaxPool2d(2))
        for _ in range(convolutions):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
            inputs = width
    for width in (512, 512, 512, 256, 128, 64):
        layers += [nn.Conv2d(inputs, width, 3, padding=2, dilation=2), nn.ReLU()]
        inputs = width
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return nn.Sequential(*layers, nn.Conv2d(inputs, 1, 1))


class BandedAttention(nn.Module):
    """Longformer's attention with a sliding, dilated window (Beltagy et al. 2020, section 3.1).

    Args:
        around: tokens that a token attends to on either side.
    """

    def __init__(self, width: int, heads: int, around: int, dilation: int) -> None:
        super().__init__()
        self.heads, self.around, self.dilation = heads, around, dilation
        self.projections = nn.ModuleList(nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        query, key, value = (
            self.projections[number](x).view(count, length, self.heads, -1).transpose(1, 2)
            for number in range(3)
        )
        query = query * query.shape[-1] ** -0.5
        outside = torch.zeros(length, dtype=x.dtype, device=x.device)
        scores = torch.einsum("bhmk,bhmkw->bhmw", query, self._band(key))
        inside = self._band((outside + 1)[None, None, :, None])[0, 0, :, 0]
        scores = scores.masked_fill(inside == 0, -torch.inf).softmax(-1)
        mixed = torch.einsum("bhmw,bhmkw->bhmk", scores, self._band(value))
        attended: Tensor = self.projections[3](mixed.transpose(1, 2).reshape(count, length, width))
        return attended

    def _band(self, x: Tensor) -> Tensor:
        """``[..., M, K]`` to ``[..., M, K, W]``: what lies around each row, zeros outside."""
        far = self.around * self.dilation
        padded = nn.functional.pad(x, (0, 0, far, far))
        return padded.unfold(-2, 2 * far + 1, 1)[..., :: self.dilation]


class LongformerLayer(nn.Module):
    def __init__(self, width: int, heads: int, around: int, dilation: int) -> None:
        super().__init__()
        self.attention = BandedAttention(width, heads, around, dilation)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](x + self.attention(x))
        y: Tensor = self.norms[1](x + self.contract(nn.functional.gelu(self.expand(x))))
        return y


def longformer() -> nn.Module:
    """Two layers of width 512 with 8 heads, windows of 301 tokens, one layer dense and one dilated by 4; over 1,000 tokens.
    EINNET's experiment has windows of 2,001 over 10,000 tokens: what PyTorch lays out of them is 40 GB."""
    return nn.Sequential(LongformerLayer(512, 8, 150, 1), LongformerLayer(512, 8, 150, 4))
