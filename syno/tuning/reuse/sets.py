"""Operators of public networks, for which the paper gives counts (ETO, table 2).

Sources: He et al., CVPR 2016 (ResNet-50, stride in the first 1×1); Sandler et al., CVPR 2018 (MobileNetV2);
Zhang et al., 2020 (ResNeSt-50); Tran et al., CVPR 2018 (R(2+1)D-18); Radford et al., 2015 (DCGAN);
Devlin et al., 2018 (BERT); the 1-D Inception-ResNet-v2 that the paper cites (github.com/hanxuh-hub/1D-Inception-ResNet-V2-Model,
after Szegedy et al., AAAI 2017); Liu et al., ECCV 2016, on ResNet-50 as GluonCV has it (SSD).
"""

from __future__ import annotations

from syno.errors import unknown_name
from syno.tuning.reuse.operators import Operator


def _conv(out: int, size: int, channels: int, kernel: int, stride: int = 1, n: int = 1) -> Operator:
    return Operator("conv2d", (n, out, size, size, channels, kernel, kernel), stride=stride)


def resnet50(n: int = 1) -> list[Operator]:
    """ResNet-50 of 224 × 224 images; `n` of them."""
    made = [_conv(64, 112, 3, 7, 2, n)]
    channels = 64
    for stage, (width, size) in enumerate(((64, 56), (128, 28), (256, 14), (512, 7))):
        stride = 2 if stage else 1
        made += [
            _conv(width, size, channels, 1, stride, n),
            _conv(width, size, width, 3, 1, n),
            _conv(4 * width, size, width, 1, 1, n),
            _conv(4 * width, size, channels, 1, stride, n),
            _conv(width, size, 4 * width, 1, 1, n),
        ]
        channels = 4 * width
    return made


def mobilenet_v2() -> list[Operator]:
    """MobileNetV2 of one 224 × 224 image; the classifier is a convolution."""
    from syno.models.mobilenet import STAGES  # brings torch

    made = [_conv(32, 112, 3, 3, 2)]
    size, channels = 112, 32
    for expand, out, repeats, stride in STAGES:
        for block in range(repeats):
            step = 1 if block else stride
            hidden = channels * expand
            if expand > 1:
                made.append(_conv(hidden, size, channels, 1))
            size //= step
            made.append(Operator("depthwise_conv2d", (1, hidden, size, size, 3, 3), stride=step))
            made.append(_conv(out, size, hidden, 1))
            channels = out
    return [*made, _conv(1280, size, channels, 1), _conv(1000, 1, 1280, 1)]


def resnest50() -> list[Operator]:
    """ResNeSt-50 of one 224 × 224 image: radix 2, one cardinal group, a deep stem, pooled shortcuts."""
    made = [_conv(32, 112, 3, 3, 2), _conv(32, 112, 32, 3), _conv(64, 112, 32, 3)]
    channels, size = 64, 56
    for width, repeats in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(repeats):
            made.append(_conv(width, size, channels, 1))
            split = Operator("group_conv2d", (1, 2 * width, size, size, width // 2, 3, 3), groups=2)
            made.append(split)  # the average pooling behind it halves the image
            if block == 0 and width > 64:
                size //= 2
            made.append(_conv(max(width // 2, 32), 1, width, 1))
            made.append(_conv(2 * width, 1, max(width // 2, 32), 1))
            made.append(_conv(4 * width, size, width, 1))
            if block == 0:
                made.append(_conv(4 * width, size, channels, 1))
            channels = 4 * width
    return made


def inception_resnet_1d() -> list[Operator]:
    """Inception-ResNet-v2 of one signal of 299 values and three channels, its convolutions along that one dimension."""

    def conv(out: int, length: int, channels: int, kernel: int = 1, stride: int = 1) -> Operator:
        return Operator("conv1d", (1, out, length, channels, kernel), stride=stride)

    def branch(length: int, channels: int, *layers: tuple[int, int]) -> list[Operator]:
        """Layers one behind the other, each (channels out, kernel)."""
        before = [channels, *(out for out, _ in layers)]
        return [conv(out, length, c, k) for c, (out, k) in zip(before, layers, strict=False)]

    def block(length: int, channels: int, *branches: tuple[tuple[int, int], ...]) -> list[Operator]:
        """Branches side by side, and a convolution that makes as many channels of theirs as there were."""
        made = [each for layers in branches for each in branch(length, channels, *layers)]
        return [*made, conv(channels, length, sum(layers[-1][0] for layers in branches))]

    stem = [
        conv(32, 149, 3, 3, 2), conv(32, 147, 32, 3), conv(64, 147, 32, 3),
        conv(80, 73, 64), conv(192, 71, 80, 3),
    ]  # fmt: skip
    mixed_5b = [
        *branch(35, 192, (96, 1)),
        *branch(35, 192, (48, 1), (64, 5)),
        *branch(35, 192, (64, 1), (96, 3), (96, 3)),
        *branch(35, 192, (64, 1)),
    ]
    block_35 = block(35, 320, ((32, 1),), ((32, 1), (32, 3)), ((32, 1), (48, 3), (64, 3)))
    mixed_6a = [
        conv(384, 17, 320, 3, 2), *branch(35, 320, (256, 1), (256, 3)), conv(384, 17, 256, 3, 2),
    ]  # fmt: skip
    block_17 = block(17, 1088, ((192, 1),), ((128, 1), (160, 7), (192, 1)))
    mixed_7a = [
        *branch(17, 1088, (256, 1)), conv(384, 8, 256, 3, 2), conv(288, 8, 256, 3, 2),
        *branch(17, 256, (288, 3)), conv(320, 8, 288, 3, 2),
    ]  # fmt: skip
    block_8 = block(8, 2080, ((192, 1),), ((192, 1), (224, 3), (256, 1)))
    return [
        *stem, *mixed_5b, *block_35, *mixed_6a, *block_17, *mixed_7a, *block_8, conv(1536, 8, 2080),
    ]  # fmt: skip


def ssd_resnet50(size: int = 224) -> list[Operator]:
    """The convolutions of SSD on ResNet-50 that make feature maps: the backbone's and the four smaller maps'.

    Those of its section 4 are "a set of convolutions of SSD ResNet50", of which neither the paper nor its code says
    more; its code gives images of 224 × 224 to every network.
    """
    made = []
    for each in resnet50():
        _, out, rows, _, channels, kernel, _ = each.extents
        made.append(_conv(out, max(1, rows * size // 224), channels, kernel, each.stride))
    channels, extent = 2048, size // 32
    for width in (512, 512, 256, 256):
        made.append(_conv(width, extent, channels, 1))
        channels, extent = width, (extent + 1) // 2
        made.append(_conv(width, extent, width, 3, 2))
    return made


def r2plus1d_18() -> list[Operator]:
    """R(2+1)D-18 of one clip of 16 frames of 112 × 112."""

    def conv(
        out: int, frames: int, size: int, channels: int, kernel: tuple[int, int], stride: int = 1
    ) -> Operator:
        time, space = kernel
        extents = (1, out, frames, size, size, channels, time, space, space)
        return Operator("conv3d", extents, stride=stride)

    made = [conv(45, 16, 56, 3, (1, 7), 2), conv(64, 16, 56, 45, (3, 1))]
    channels, frames, size = 64, 16, 56
    for out in (64, 128, 256, 512):
        for block in range(2):
            stride = 2 if block == 0 and out > 64 else 1
            after, smaller = frames // stride, size // stride
            middle = channels * out * 27 // (channels * 9 + 3 * out)
            made.append(conv(middle, frames, smaller, channels, (1, 3), stride))
            made.append(conv(out, after, smaller, middle, (3, 1), stride))
            if stride > 1:
                made.append(conv(out, after, smaller, channels, (1, 1), stride))
            # The second convolution of a block has as many channels between its halves as the first.
            made.append(conv(middle, after, smaller, out, (1, 3)))
            made.append(conv(out, after, smaller, middle, (3, 1)))
            channels, frames, size = out, after, smaller
    return made


def dcgan() -> list[Operator]:
    """The generator of DCGAN: 100 numbers to a 64 × 64 image."""
    channels = (100, 1024, 512, 256, 128, 3)
    return [
        Operator(
            "transposed_conv2d", (1, out, size, size, before, 4, 4), stride=1 if size == 4 else 2
        )
        for before, out, size in zip(channels, channels[1:], (4, 8, 16, 32, 64), strict=False)
    ]


def bert(n: int = 1, length: int = 128, width: int = 768, heads: int = 12) -> list[Operator]:
    """BERT's matrix products: projections, scores, values, and the two of the feed-forward part."""
    rows, head = n * length, width // heads
    return [
        Operator("batch_matmul", extents)
        for extents in (
            (1, rows, width, width),
            (n * heads, length, length, head),
            (n * heads, length, head, length),
            (1, rows, 4 * width, width),
            (1, rows, width, 4 * width),
        )
    ]


def _berts() -> list[Operator]:
    return [
        operator
        for n in (1, 16)
        for length in (64, 128)
        for width, heads in ((768, 12), (1024, 16))
        for operator in bert(n, length, width, heads)
    ]


_SETS = {
    "ResNet50": resnet50,
    "ResNet50(L)": lambda: resnet50(1) + resnet50(16),
    "MobileNetV2": mobilenet_v2,
    "ResNeSt50": resnest50,
    "1D-IR": inception_resnet_1d,
    "R(2+1)D": r2plus1d_18,
    "DCGAN": dcgan,
    "BERT-Base": bert,
    "BERT(L)": _berts,
    "SSD-ResNet50": ssd_resnet50,
}

#: Names of the operator sets.
SETS = tuple(_SETS)


def operator_set(name: str) -> tuple[Operator, ...]:
    """The distinct operators of a set, in the order of the network.

    Raises:
        UnknownName: not one of `SETS`.
    """
    if name not in _SETS:
        raise unknown_name("operator set", name, SETS)
    return tuple(dict.fromkeys(_SETS[name]()))


def groups(
    operators: tuple[Operator, ...],
) -> dict[tuple[str, tuple[str, ...]], tuple[Operator, ...]]:
    """Operators by type and sketches."""
    found: dict[tuple[str, tuple[str, ...]], list[Operator]] = {}
    for operator in operators:
        found.setdefault(operator.group, []).append(operator)
    return {group: tuple(members) for group, members in found.items()}
