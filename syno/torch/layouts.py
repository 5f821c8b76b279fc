"""How tensors lie in memory, and which format a result gets.

A result is channels-last where the tensor it follows is: an operator's where its first data input of the same rank
is, a gradient where its input is, as PyTorch's layers do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from syno.operators.operator import Operator

#: Of each tensor, its dimensions from the outermost in memory to the innermost; None: row-major.
Orders = tuple["tuple[int, ...] | None", ...]

#: By rank: channels-last as PyTorch names it, and its order.
_CHANNELS_LAST = {
    4: (torch.channels_last, (0, 2, 3, 1)),
    5: (torch.channels_last_3d, (0, 2, 3, 4, 1)),
}


def memory_format(tensor: Tensor) -> torch.memory_format:
    """What PyTorch's `suggest_memory_format` says: channels-last for strides of that kind, whether or not
    the tensor fills its memory, contiguous for all others and where both could be meant."""
    if tensor.dim() not in _CHANNELS_LAST:
        return torch.contiguous_format
    shape, strides = tensor.shape, tensor.stride()
    format, order = _CHANNELS_LAST[tensor.dim()]
    least = 0
    if strides[1] == 0:
        return torch.contiguous_format
    for d in reversed(order):
        if shape[d] == 0 or strides[d] < least:
            return torch.contiguous_format
        if d == 0 and least == strides[1]:
            return torch.contiguous_format  # one channel step for every image: nothing tells
        least = strides[d]
        if shape[d] > 1:
            least *= shape[d]
    return format


def channels_last(rank: int) -> torch.memory_format:
    """The format of this name for tensors of 4 or 5 dimensions."""
    return _CHANNELS_LAST[rank][0]


def order_of(format: torch.memory_format, rank: int) -> tuple[int, ...] | None:
    """The order of dimensions that a memory format stands for; None for row-major."""
    return None if format == torch.contiguous_format else _CHANNELS_LAST[rank][1]


def follows(operator: Operator) -> str | None:
    """The data input whose format the operator's only result gets: the first of its rank."""
    shapes = operator.at(0).shapes
    rank = len(shapes[operator.outputs[0]])
    return next((name for name in operator.data if len(shapes[name]) == rank), None)


def in_format(tensor: Tensor, format: torch.memory_format) -> Tensor:
    """The same values in exactly the strides that a new tensor of this format has."""
    new = torch.empty_like(tensor, memory_format=format)
    return tensor if tensor.stride() == new.stride() else new.copy_(tensor)


def dense_order(tensor: Tensor) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor is row-major, where that is another one than its own.

    None for a row-major tensor and for one that does not fill its memory.
    """
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    return tuple(order) if tensor.permute(order).is_contiguous() else None


@dataclass(frozen=True)
class Layout:
    """How the tensors of a call lie: inputs as they are given, results as they are wanted."""

    orders: Orders
    """Of each input, of `dense_order`, or channels-last where a copy in that order is the shortest way."""
    dense: tuple[bool, ...]
    """Whether each input fills its memory in its order (else it is copied in every case)."""
    formats: tuple[torch.memory_format, ...]
    """Of each result."""


def layout_of(tensors: Sequence[Tensor], follows: Sequence[int | None]) -> Layout:
    """The layout of a call.

    Args:
        follows: by result, the tensor that it follows; None: it is contiguous.
    """
    orders, dense = [], []
    for tensor in tensors:
        order = dense_order(tensor)
        dense.append(order is not None or tensor.is_contiguous())
        orders.append(order if dense[-1] else order_of(memory_format(tensor), tensor.dim()))
    formats = (torch.contiguous_format if i is None else memory_format(tensors[i]) for i in follows)
    return Layout(tuple(orders), tuple(dense), tuple(formats))


def tells(shape: Sequence[int]) -> bool:
    """Whether a row-major tensor of this shape cannot be channels-last as well."""
    return len(shape) not in _CHANNELS_LAST or (shape[1] != 1 and math.prod(shape[2:]) != 1)
