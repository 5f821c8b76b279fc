"""ResNeXt for 32x32 images (Xie et al. 2016, section 5.2): three stages of three grouped bottlenecks."""

from __future__ import annotations

from torch import Tensor, nn

from syno.errors import TaskError


class GroupedBottleneck(nn.Module):
    """1x1, grouped 3x3, 1x1; beside an identity, or a 1x1 where the shape changes."""

    def __init__(self, inputs: int, inner: int, outputs: int, groups: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.relu(self.bn2(self.conv2(x)))
        y: Tensor = self.relu(self.bn3(self.conv3(x)) + identity)
        return y


class ResNeXt(nn.Module):
    """The network of the paper's Table 7; input ``[N, channels, 32, 32]``.

    Args:
        cardinality: groups of every 3x3 convolution.
        group_width: channels of a group in the first stage; each later stage doubles it.
        blocks: blocks a stage; 3 make 29 layers.
    Raises:
        TaskError: a number is below 1.
    """

    def __init__(
        self,
        cardinality: int = 2,
        group_width: int = 64,
        blocks: int = 3,
        classes: int = 10,
        channels: int = 3,
    ) -> None:
        super().__init__()
        if min(cardinality, group_width, blocks, classes, channels) < 1:
            raise TaskError(
                f"cardinality={cardinality}, group_width={group_width}, blocks={blocks}, "
                f"classes={classes}, channels={channels}",
                fix="every one must be at least 1",
                code="T003",
            )
        self.stem = nn.Sequential(
            nn.Conv2d(channels, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
        )
        stages: list[nn.Module] = []
        inputs = 64
        for stage in range(3):
            inner, outputs = cardinality * group_width << stage, 256 << stage
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(GroupedBottleneck(inputs, inner, outputs, cardinality, stride))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.stages(self.stem(x)).mean((2, 3))
        logits: Tensor = self.head(x)
        return logits


def resnext29(
    cardinality: int = 2, group_width: int = 64, classes: int = 10, channels: int = 3
) -> ResNeXt:
    """ResNeXt-29 (cardinality x group_width d) for ``[N, channels, 32, 32]``."""
    return ResNeXt(cardinality, group_width, 3, classes, channels)
