"""The level of the machine that a network's weights are read from."""

from __future__ import annotations

import random

import pytest
import torch
from machines import written_machine
from torch import nn

from syno.graph.from_torch import from_module
from syno.graph.weights_read import _usual_distance, level_of_weights
from syno.machines.model import fixed_kernels


def level(model: nn.Module, *inputs: torch.Tensor) -> int:
    """Of a machine with caches of 32 KiB, 512 KiB, and 16 MiB that two cores share."""
    with fixed_kernels(written_machine().to_json()):
        return level_of_weights(from_module(model.eval(), inputs).network.graph())


@pytest.mark.parametrize(
    ("width", "expected"), [(8, 0), (128, 1), (600, 2), (1800, 3)], ids=["L1", "L2", "L3", "memory"]
)
def test_weights_come_from_the_level_that_holds_all_of_them(width: int, expected: int) -> None:
    model = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4)))
    assert level(model, torch.zeros(1, width)) == expected


def test_rows_picked_from_a_table_are_not_the_table() -> None:
    model = nn.Sequential(nn.Embedding(100_000, 64), nn.Linear(64, 64))
    assert level(model, torch.zeros(1, 5, dtype=torch.int64)) == 0


class Recurrent(nn.Module):
    """One cell step by step, then layers of which each is met once."""

    def __init__(self, width: int, after: int) -> None:
        super().__init__()
        self.cell = nn.RNNCell(width, width)
        self.after = nn.Sequential(*(nn.Linear(width, width) for _ in range(after)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x[0]
        for step in range(x.shape[0]):
            state = self.cell(x[step], state)
        return torch.as_tensor(self.after(state))


def test_what_is_read_step_by_step_stays_near() -> None:
    """A cell of 128 KiB for a while, and 2 MiB of others once."""
    x = torch.zeros(40, 1, 128)
    assert level(Recurrent(128, 32), x) == 1
    assert level(Recurrent(128, 32), x[:2]) == 2


def test_the_distance_is_what_a_stack_says() -> None:
    """Against a list of what was read last, as a cache that drops what was not read longest keeps it."""
    draw = random.Random(3)
    for _ in range(200):
        size = {f"w{i}": draw.randint(1, 50) for i in range(draw.randint(1, 6))}
        read = [draw.choice(list(size)) for _ in range(draw.randint(1, 12))]
        stack: list[str] = []
        found: list[tuple[int, int]] = []
        for turn in range(2):
            for name in read:
                if turn:
                    depth = stack.index(name)
                    found.append((sum(size[other] for other in stack[: depth + 1]), size[name]))
                if name in stack:
                    stack.remove(name)
                stack.insert(0, name)
        usual = _usual_distance([(name, size[name]) for name in read])
        total = sum(own for _, own in found)
        assert sum(own for distance, own in found if distance <= usual) >= total / 2
        assert sum(own for distance, own in found if distance < usual) < total / 2
    assert _usual_distance([]) == 0
