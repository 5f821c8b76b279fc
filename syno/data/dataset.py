"""A data set in memory: inputs, targets, and how to normalise the inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from syno.errors import DataError


@dataclass(frozen=True)
class Dataset:
    """Examples held as arrays.

    Attributes:
        name: what it is, for messages and reports.
        inputs: ``[N, C, H, W]`` uint8 images, ``[N, F]`` float32 features or ``[N, T]`` integer tokens.
        targets: ``[N]`` int64 classes, or ``[N, T]`` int64 tokens.
        classes: the classes' names, or the vocabulary's size as that many names.
        mean, std: per channel, in units of the stored inputs; ``(input - mean) / std`` is fed to a model.
    """

    name: str
    inputs: npt.NDArray[Any]
    targets: npt.NDArray[np.int64]
    classes: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.inputs) == 0:
            raise DataError(
                f"{self.name} has no examples",
                fix="give a file or folder that holds some",
                code="D003",
            )
        if len(self.inputs) != len(self.targets):
            raise DataError(
                f"{self.name} has {len(self.inputs)} inputs but {len(self.targets)} targets",
                fix="the two files do not belong together; fetch both again",
                code="D004",
            )
        if self.targets.ndim == 1 and self.classes:
            low, high = int(self.targets.min()), int(self.targets.max())
            if low < 0 or high >= len(self.classes):
                raise DataError(
                    f"{self.name} has labels from {low} to {high}, but {len(self.classes)} classes",
                    fix="the labels belong to another data set, or the file is corrupt",
                    code="D004",
                )

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return tuple(int(extent) for extent in self.inputs.shape[1:])

    def take(self, indices: npt.NDArray[np.int64], name: str | None = None) -> Dataset:
        """The examples at ``indices``, in that order."""
        return replace(
            self, inputs=self.inputs[indices], targets=self.targets[indices], name=name or self.name
        )

    def subset(self, count: int, *, seed: int = 0) -> Dataset:
        """``count`` examples drawn without replacement; all of them when there are no more.

        The same ``seed`` gives nested subsets: the first 100 of ``subset(200)`` are ``subset(100)``.
        """
        if count < 1:
            raise DataError(
                f"a subset of {count} examples of {self.name} was asked for",
                fix="ask for at least one",
                code="D003",
            )
        order = np.random.default_rng(seed).permutation(len(self))
        return self.take(order[: min(count, len(self))])

    def split(self, count: int, *, seed: int = 0) -> tuple[Dataset, Dataset]:
        """All but ``count`` examples, and ``count`` examples drawn at random: training, validation."""
        if not 1 <= count < len(self):
            raise DataError(
                f"{count} of the {len(self)} examples of {self.name} cannot be held out",
                fix=f"hold out between 1 and {len(self) - 1}",
                code="D003",
            )
        order = np.random.default_rng(seed).permutation(len(self))
        return (
            self.take(order[count:], f"{self.name} (training part)"),
            self.take(order[:count], f"{self.name} (validation part)"),
        )


class Splits(NamedTuple):
    """The two parts a data set comes in."""

    train: Dataset
    test: Dataset


def channel_statistics(
    images: npt.NDArray[np.uint8], *, sample: int = 10_000
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of ``[N, C, H, W]`` images, over the first ``sample``."""
    part = images[:sample].astype(np.float64)
    mean = part.mean(axis=(0, 2, 3))
    std = np.maximum(part.std(axis=(0, 2, 3)), 1e-6)
    return tuple(float(m) for m in mean), tuple(float(s) for s in std)
