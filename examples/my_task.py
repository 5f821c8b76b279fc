"""A task of your own: a model, its data and its recipe, in a function that returns a syno.Task.

    syno search examples/my_task.py:make_task -o runs/mine --budget 10min -O width=32

Workers call the function in processes of their own: everything it needs is made or read inside it.
"""

import torch
from torch import nn

import syno


class Net(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(8, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        self.head = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        return self.head(x.mean((2, 3)))


def batches(count: int, seed: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Noise with a bright spot in one of the four quarters of the image; which one is the class."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 32, 8, 16, 16, generator=generator)
    quarters = torch.randint(0, 4, (count, 32), generator=generator)
    for batch, classes in zip(images, quarters, strict=True):
        for image, quarter in zip(batch, classes.tolist(), strict=True):
            row, column = 8 * (quarter // 2) + 2, 8 * (quarter % 2) + 2
            image[quarter, row : row + 4, column : column + 4] += 2.0
    return list(zip(images, quarters, strict=True))


def make_task(width: int = 16) -> syno.Task:
    """The task; its arguments are what ``-O name=value`` sets."""
    return syno.Task(
        name="quarters",
        model=lambda: Net(width),
        train=lambda seed: batches(40, seed),  # another order, or other examples, for every seed
        validation=batches(10, 1_000_000),  # candidates are chosen on it
        test=batches(10, 2_000_000),  # finalists are judged on it
        optimizer="adamw",
        learning_rate=3e-3,
        epochs=2,
    )
