"""Optimisers and schedules of learning rates that a task can name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from syno.training.task import Task


def _sgd(task: Task, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.SGD(
        parameters,
        lr=task.learning_rate,
        momentum=task.momentum,
        weight_decay=task.weight_decay,
        nesterov=task.momentum > 0,
    )


def _adam(task: Task, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.Adam(parameters, lr=task.learning_rate, weight_decay=task.weight_decay)


def _adamw(task: Task, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.AdamW(parameters, lr=task.learning_rate, weight_decay=task.weight_decay)


OPTIMIZERS: dict[str, Callable[[Task, Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
}


def _factor(optimizer: torch.optim.Optimizer, factor: Callable[[int], float]) -> Any:
    import torch

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _one_cycle(task: Task, optimizer: torch.optim.Optimizer, total: int) -> Any:
    """Linear warm-up over the first quarter, then linear down to almost nothing."""
    peak = max(1, total // 4)

    def factor(step: int) -> float:
        if step < peak:
            return (step + 1) / peak
        return max(0.01, (total - step) / max(1, total - peak))

    return _factor(optimizer, factor)


def _cosine(task: Task, optimizer: torch.optim.Optimizer, total: int) -> Any:
    return _factor(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(1.0, step / total))))


def _constant(task: Task, optimizer: torch.optim.Optimizer, total: int) -> Any:
    return _factor(optimizer, lambda step: 1.0)


SCHEDULES: dict[str, Callable[[Task, torch.optim.Optimizer, int], Any]] = {
    "constant": _constant,
    "cosine": _cosine,
    "one_cycle": _one_cycle,
}
