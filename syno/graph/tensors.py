"""Tensors of PyTorch and arrays of NumPy that share their memory."""

from __future__ import annotations

import torch
from torch import Tensor

from syno.graph.building import DTYPES, Array
from syno.torch import native

#: PyTorch's element types by the graph's names.
TYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in DTYPES}


def array_of(tensor: Tensor) -> Array:
    """A tensor's memory as an array."""
    plain = tensor.detach()
    if plain.dtype == torch.bfloat16:
        made: Array = plain.view(torch.int16).numpy().view(DTYPES["bfloat16"])
        return made
    return plain.numpy()


def tensor_of(array: Array) -> Tensor:
    """An array's memory as a tensor; a copy of what may not be written."""
    return native.tensor_of(array if array.flags.writeable else array.copy())
