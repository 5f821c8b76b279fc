"""The check of a whole network at several of its sizes: what float64 says is computed while its kernels are made.

Making kernels leaves cores idle, between one decision and the next; the reference needs nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from syno.graph.beside import Beside
from syno.graph.building import Array, Network
from syno.graph.calls import Imported
from syno.graph.checking import Check, Sample
from syno.graph.compile import arrays_for, judged_on, sample_of
from syno.graph.compiled import CompiledNetwork
from syno.graph.extents import Sizes
from syno.graph.reference import as_float
from syno.graph.tensors import tensor_of


class WholeCheck(Beside):
    """What networks should compute, by a thread that begins at once, and then does what else it is asked.

    Args:
        networks: by sizes.
        values: of the inputs of each; None: random ones.
    """

    def __init__(
        self,
        networks: Mapping[Sizes, Imported],
        values: Callable[[Sizes, Imported], Sequence[Any] | None],
    ) -> None:
        self._networks = dict(networks)
        self._values = values
        self._doubled = _Doubled()
        super().__init__("syno-reference")
        self._samples = {sizes: self.do(self._sample, sizes) for sizes in self._networks}

    @property
    def sizes(self) -> list[Sizes]:
        """Those that are checked, in order."""
        return list(self._networks)

    def judged(self, network: CompiledNetwork, sizes: Sizes) -> Check:
        """What a network that was compiled computes at sizes, against what it should."""
        return judged_on(network, self._networks[sizes].network, self._samples[sizes].result())

    def _sample(self, sizes: Sizes) -> Sample:
        imported = self._networks[sizes]
        network = imported.network
        values = self._values(sizes, imported)
        arrays = arrays_for(network, values)
        doubled = self._doubled(network)
        try:
            return sample_of(network, arrays, doubled=doubled, going=self.going)
        except IndexError:
            if values is None:
                raise
        # The example's indices into what has fewer elements at these sizes: others, which everything has.
        others = arrays_for(network, None)
        arrays = [
            other if np.issubdtype(array.dtype, np.integer) else array
            for array, other in zip(arrays, others, strict=True)
        ]
        return sample_of(network, arrays, doubled=doubled, going=self.going)


class _Doubled:
    """Weights in float64, made once for networks that share their memory."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[Array, Tensor]] = {}

    def __call__(self, network: Network) -> dict[str, Tensor]:
        return {name: self._of(array) for name, array in network.weights.items()}

    def _of(self, array: Array) -> Tensor:
        key = (array.ctypes.data, array.shape, array.strides, array.dtype)
        if key not in self._made:  # kept with the array: its memory is nobody else's meanwhile
            self._made[key] = (array, as_float(tensor_of(array), torch.float64))
        return self._made[key][1]


__all__ = ["WholeCheck"]
