"""Shapes on the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syno.errors import TaskError

if TYPE_CHECKING:
    import torch


def example_tensor(text: str) -> torch.Tensor:
    """Random input of the shape ``text`` gives, like '1,3,32,32'."""
    import torch

    try:
        shape = [int(part) for part in text.split(",")]
    except ValueError:
        shape = []
    if not shape or min(shape) < 1:
        raise TaskError(f"[example] '{text}' is not a shape; write positive integers: '1,3,32,32'")
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))
