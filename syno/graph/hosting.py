"""Functions of PyTorch within a compiled network: on its memory, without copies of what they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syno.errors import KernelError
from syno.graph.stages import Stage
from syno.graph.tensors import tensor_of


def run_on_host(
    stage: Stage, kinds: Sequence[tuple[list[int], str]], addresses: Sequence[int]
) -> None:
    """Calls the function on the tensors at these addresses (inputs, then outputs) and writes what it returns.

    Raises:
        KernelError: it returned something else than what was recorded of it.
    """
    tensors = [_tensor_at(a, *kind) for a, kind in zip(addresses, kinds, strict=True)]
    count = len(stage.inputs)
    assert stage.host is not None
    with torch.no_grad():
        made: Any = stage.host(*tensors[:count])
        results = list(made) if isinstance(made, (tuple, list)) else [made]
        if len(results) != len(tensors) - count:
            raise KernelError(
                f"[network] {stage.what} returned {len(results)} tensors, not {len(tensors) - count}"
            )
        for place, result in zip(tensors[count:], results, strict=True):
            if place.shape != result.shape or place.dtype != result.dtype:
                raise KernelError(
                    f"[network] {stage.what} returned {result.dtype} {list(result.shape)}; on the example it was "
                    f"{place.dtype} {list(place.shape)}"
                )
            place.copy_(result)


def _tensor_at(address: int, shape: Sequence[int], dtype: str) -> torch.Tensor:
    from syno.graph.compiled import memory_at

    array = memory_at(address, shape, dtype)
    return tensor_of(array)
