"""Functions of PyTorch within a compiled network: on its memory, without copies of what they read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from syno.errors import KernelError
from syno.graph.stages import Stage
from syno.graph.tensors import tensor_of

#: Where a tensor lies, and whether it was made for inference alone: such a one cannot be written elsewhere.
_Place = tuple[int, bool]


class HostStep:
    """A step that PyTorch computes. Calls that find their tensors where the call before did make them once."""

    def __init__(self, stage: Stage, kinds: Sequence[tuple[list[int], str]]) -> None:
        """
        Args:
            kinds: shapes and element types of the inputs, then of the outputs.
        """
        assert stage.host is not None
        self._host, self._what, self._inputs = stage.host, stage.what, len(stage.inputs)
        self._kinds = list(kinds)
        self._last: list[tuple[_Place, torch.Tensor] | None] = [None] * len(self._kinds)

    def run(self, addresses: Sequence[int]) -> None:
        """Calls the function on the tensors at these addresses (inputs, then outputs) and writes what it returns.

        Raises:
            KernelError: it returned something else than what was recorded of it.
        """
        inference = torch.is_inference_mode_enabled()
        tensors = [self._tensor_at(n, (a, inference)) for n, a in enumerate(addresses)]
        places = tensors[self._inputs :]
        with torch.no_grad():
            made: Any = self._host(*tensors[: self._inputs])
            results = list(made) if isinstance(made, (tuple, list)) else [made]
            if len(results) != len(places):
                raise KernelError(
                    f"[network] {self._what} returned {len(results)} tensors, not {len(places)}"
                )
            for place, result in zip(places, results, strict=True):
                if place.shape != result.shape or place.dtype != result.dtype:
                    raise KernelError(
                        f"[network] {self._what} returned {result.dtype} {list(result.shape)}; on the example it was "
                        f"{place.dtype} {list(place.shape)}"
                    )
                place.copy_(result)

    def _tensor_at(self, position: int, place: _Place) -> torch.Tensor:
        # Another thread may have other places: it then makes its own, and this one its own again.
        last = self._last[position]
        if last is not None and last[0] == place:
            return last[1]
        from syno.graph.compiled import memory_at

        tensor = tensor_of(memory_at(place[0], *self._kinds[position]))
        self._last[position] = (place, tensor)
        return tensor
