"""The network, the recipes and the space of the table."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from syno import data
from syno.models.fashion import ResidualBlock
from syno.training.task import Task


class ProxyNet(nn.Module):
    """A residual network whose every 3x3 convolution can be replaced.

    Patches of 2x2 pixels, then a residual block a stage, with a convolution (after average pooling, the first
    time) between two stages, and the mean over the image. Only the operators in the place of the 3x3
    convolutions see beyond a patch and a pooling window, so that what they can do shows.

    Args:
        widths: channels of each stage, for images ``[N, 1, 28, 28]``.
    """

    def __init__(self, widths: Sequence[int] = (16, 32, 64), classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(1, widths[0], 2, stride=2, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        ]
        for index, width in enumerate(widths):
            if index == 1:
                layers.append(nn.AvgPool2d(2))
            if index:
                layers += [
                    nn.Conv2d(widths[index - 1], width, 3, padding=1, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
            layers.append(ResidualBlock(width))
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(functional.adaptive_avg_pool2d(self.body(x), 1).flatten(1))
        return logits


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How long an operator is trained: ``examples`` images, ``epochs`` times."""

    examples: int
    epochs: int = 1


#: ``table`` made the table; ``long`` is five times as long, to see whether ``table`` ranks.
RECIPES = {"table": Recipe(3_200), "long": Recipe(16_000)}

#: Layers that an operator serves: all 3x3 convolutions of the network.
SITES = "conv2d 3x3"

#: The space: what the layers' own multiply-adds allow, and the most steps.
SPACE = {"flops_ratio": 0.9, "min_flops_ratio": 0.05, "max_steps": 7}

#: Limits of promise, judged at every layer: the table was trained for these.
THRESHOLDS = {"min_matched_reduce": 8, "max_matched_reduce": 8, "promising_share": 1}

#: Off in the space, so that it is large enough to tell searches apart: parts of one Merge matched by two weights,
#: and products of two weights as large as the one weight that they are.
DISABLED_RULES = [
    "weights-match-adjacent",
    "weights-without-bottleneck",
    "weights-larger-than-product",
]


def task(path: str | None = None, *, recipe: str = "table") -> Task:
    """Fashion-MNIST with :class:`ProxyNet`: trained on the first images, judged on the last 4,000 of the 60,000."""
    splits = data.fashion_mnist(path)
    rest, validation = splits.train.split(4_000)
    length = RECIPES[recipe]
    train = rest.subset(length.examples)
    return Task(
        name="opbench",
        model=ProxyNet,
        train=lambda seed: data.BatchLoader(train, batch=32, seed=seed, drop_last=True),
        validation=data.BatchLoader(validation, batch=100, shuffle=False),
        test=data.BatchLoader(splits.test, batch=100, shuffle=False),
        optimizer="adamw",
        learning_rate=3e-3,
        weight_decay=0.01,
        epochs=length.epochs,
        evaluations=3,
        curve_batches=10,
    )
