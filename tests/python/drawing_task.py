"""A task that draws from every random generator there is, as code of users does: a training takes a moment."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from syno import Task
from syno.data import BatchLoader
from syno.data import Dataset as Arrays

ALL = np.random.default_rng()  # seeded by the system, as it stands in many scripts


class Images(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Two kinds of noise, with augmentation from six generators."""

    def __init__(self, count: int) -> None:
        self.inputs = torch.randn(count, 8, 6, 6)
        self.targets = torch.from_numpy(np.random.randint(0, 2, count))
        self.inputs[self.targets == 1, :4] += 0.4
        self.own = random.Random()
        self.array = np.random.RandomState()
        self.tensor = torch.Generator()

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        noise = random.random() + self.own.random() + np.random.randn() + self.array.randn()
        noise += ALL.random() + float(torch.rand(1)) + float(torch.rand(1, generator=self.tensor))
        return self.inputs[index] + 0.1 * noise, self.targets[index]


class Drawing(nn.Module):
    """A network that draws when it is made and when it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.full((8, 1, 1), 1 + 0.1 * random.random()))
        self.head = nn.Linear(8, 2)
        self.own = np.random.default_rng()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.first(x)) * self.scale
        hidden = nn.functional.dropout(hidden, 0.2, self.training)
        if self.training:
            hidden = hidden + 0.01 * (np.random.rand() + self.own.random())
        return self.head(torch.relu(self.second(hidden)).mean((2, 3)))


def make(steps: int = 6, metric: str = "accuracy") -> Task:
    """Loaders with the global generator, and with one of their own that goes on from epoch to epoch."""
    data = Images(64)
    return Task(
        name="drawing",
        model=Drawing,
        train=DataLoader(data, 16, shuffle=True, generator=torch.Generator().manual_seed(0)),
        validation=DataLoader(data, 32, shuffle=True),
        steps=steps,
        evaluations=2,
        learning_rate=0.05,
        metric=metric,
    )


def persistent(steps: int = 6) -> Task:
    """Loaders whose processes go on from epoch to epoch, and with them what they draw."""
    task = make(steps)
    data = task.train.dataset
    kept: dict[str, Any] = {"num_workers": 1, "persistent_workers": True}
    return task.but(
        train=DataLoader(data, 16, shuffle=True, **kept),
        validation=DataLoader(data, 32, **kept),
    )


def counting(steps: int = 6) -> Task:
    """A loader that counts its epochs: where it stands depends on what was trained with it before."""
    task = make(steps)
    arrays = Arrays(
        "arrays", task.train.dataset.inputs.numpy(), task.train.dataset.targets.numpy(), ("a", "b")
    )
    return task.but(train=BatchLoader(arrays, batch=16, seed=3))
