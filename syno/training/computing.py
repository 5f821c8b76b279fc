"""Where and in what a task's model computes: device, memory format, autocast."""

from __future__ import annotations

import contextlib
from typing import Any

from syno.support.inputs import mapped, moved
from syno.training.task import Task


def computing(task: Task) -> contextlib.AbstractContextManager[Any]:
    """A block in which a task's model and loss compute: under autocast where the task says so.

    Args:
        task: whose ``autocast`` and ``device`` count.
    """
    import torch

    if task.autocast is None:
        return contextlib.nullcontext()
    kind = torch.device(task.device).type
    return torch.autocast(kind, dtype=getattr(torch, task.autocast))


def placed(inputs: Any, task: Task) -> Any:
    """Inputs on the task's device; images channels-last on a CUDA device where the weights are.

    Args:
        inputs: a tensor, or several in a tuple, list or dictionary.
        task: whose ``device`` and ``channels_last`` count.
    """
    import torch

    there = moved(inputs, task.device)
    if not task.channels_last or torch.device(task.device).type != "cuda":
        return there

    def lay(leaf: Any) -> Any:
        image = isinstance(leaf, torch.Tensor) and leaf.dim() == 4
        return leaf.contiguous(memory_format=torch.channels_last) if image else leaf

    return mapped(there, lay)


def widened(leaf: Any) -> Any:
    """What autocast computed, for metrics."""
    import torch

    narrow = isinstance(leaf, torch.Tensor) and leaf.dtype in (torch.bfloat16, torch.float16)
    return leaf.float() if narrow else leaf


def scaler_of(task: Task) -> Any:
    """Keeps small gradients of float16 from becoming 0; of other dtypes they are as they are.

    Args:
        task: whose ``autocast`` says the dtype, and ``device`` where.
    Returns:
        A ``torch.amp.GradScaler``, switched off but for float16.
    """
    import torch

    return torch.amp.GradScaler(torch.device(task.device).type, enabled=task.autocast == "float16")
