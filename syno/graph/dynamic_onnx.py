"""ONNX models compiled for ranges of their open dimensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from syno.errors import ShapeError, SynoError
from syno.graph.calls import Given, Imported
from syno.graph.dynamic import DynamicNetwork
from syno.graph.extents import Sizes
from syno.graph.open_onnx import OpenOnnxModel, Shape, told
from syno.graph.sizes import Ranges
from syno.support.inputs import described
from syno.support.notebook import Printed

if TYPE_CHECKING:
    from syno.graph.compiled import CompiledNetwork


class DynamicOnnxModel(Printed):
    """An ONNX model for ranges of its open dimensions. Thread-safe; `load_onnx(…).compile(dynamic=…)` makes it.

    Attributes:
        shapes: of the inputs: numbers, and names of open dimensions.
        network: what it is compiled to.
    """

    def __init__(
        self,
        model: OpenOnnxModel,
        ranges: Mapping[str, tuple[int, int]],
        fixed: Mapping[str, int],
        settings: Mapping[str, Any],
        *,
        background: bool,
    ) -> None:
        self.name, self.fixed = model.name, dict(fixed)
        self.shapes: dict[str, Shape] = {
            name: tuple(fixed.get(e, e) if isinstance(e, str) else e for e in shape)
            for name, shape in model.shapes.items()
        }
        self.ranges = Ranges(
            tuple(ranges), tuple(low for low, _ in ranges.values()), tuple(high for _, high in ranges.values())
        )  # fmt: skip
        self._model = model
        self.network = DynamicNetwork(
            self._record,
            self.ranges,
            settings,
            proven=lambda sizes: not model.chooses,
            fits=self._builds,
            background=background,
        )

    def __call__(self, *arrays: Any, out: Any = None, num_threads: int | None = None) -> Any:
        """The model's outputs; arguments and results as of `CompiledNetwork`.

        Raises:
            ShapeError: an array is missing, has a size outside of its range, or of another shape.
            KernelError: of another element type or device, or requires a gradient while torch records them.
        """
        return self._at(self._sizes_of(arrays))(*arrays, out=out, num_threads=num_threads)

    def at(self, **sizes: int) -> CompiledNetwork:
        """The network at these sizes, ready to be called.

        Raises:
            ShapeError: a size is missing, or outside of its range.
            UnknownName: of a size that there is not.
        """
        return self._at(self.ranges.checked(sizes))

    def wait(self) -> None:
        """Until no better code is being made in the background."""
        self.network.wait()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Their names in the file, in order."""
        return tuple(self._at(self.ranges.greatest).outputs)

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {told(shape)}" for name, shape in self.shapes.items())
        return f"<DynamicOnnxModel {self.name}: {inputs}; {repr(self.network)[1:-1].partition(': ')[2]}>"

    def __str__(self) -> str:
        return "\n".join([repr(self), *str(self.network).splitlines()[1:]])

    def _at(self, sizes: Sizes) -> CompiledNetwork:
        return self.network.at(sizes).network

    def _sizes_of(self, arrays: Sequence[Any]) -> Sizes:
        if len(arrays) != len(self.shapes):
            raise ShapeError(
                f"[dynamic] {len(arrays)} arrays for {len(self.shapes)} inputs: {', '.join(self.shapes)}"
            )
        found: dict[str, int] = {}
        for array, (name, shape) in zip(arrays, self.shapes.items(), strict=True):
            given = tuple(getattr(array, "shape", ()))
            fits = len(given) == len(shape) and all(
                found.setdefault(wanted, int(n)) == n if isinstance(wanted, str) else wanted == n
                for n, wanted in zip(given, shape, strict=True)
            )
            if not fits:
                sizes = ", ".join(f"{each}={n}" for each, n in found.items())
                raise ShapeError(
                    f"[dynamic] {name} is {_shown(array)}; the network takes {told(shape)}"
                    + (f" with {sizes}" if sizes else "")
                )
        ranges = self.ranges
        for name, low, high in zip(ranges.names, ranges.least, ranges.greatest, strict=True):
            if not low <= found[name] <= high:
                raise ShapeError(
                    f"[dynamic] {name} is {found[name]}, and the network was compiled for {low} to {high}; pass a size "
                    "within, or compile for a wider range"
                )
        return tuple(found[name] for name in ranges.names)

    def _record(self, sizes: Sizes) -> Imported:
        made = self._model.at(**self.fixed, **dict(zip(self.ranges.names, sizes, strict=True)))
        network = made.network
        given = [Given(v.name, v.shape, getattr(torch, v.dtype)) for v in network.inputs]
        count = len(network.outputs)
        return Imported(network, given, list(range(count)), [None] * count)

    def _builds(self, sizes: Sizes) -> bool:
        try:
            self._record(sizes)
        except SynoError:
            return False
        return True


def _shown(array: Any) -> str:
    shape = getattr(array, "shape", None)
    return described(array) if shape is None else str(list(shape))


__all__ = ["DynamicOnnxModel"]
