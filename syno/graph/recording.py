"""Models recorded at some of their sizes: at once for all of them where `torch.export` proves that they are one graph."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from syno.graph.axes import Axes, by_place, resized
from syno.graph.calls import Imported
from syno.graph.exporting import check_devices, exported
from syno.graph.extents import Sizes
from syno.graph.from_torch import CannotImport, Importer, from_module
from syno.support.inputs import arguments, unwrapped

_log = logging.getLogger("syno.graph")


class Recorder:
    """What a model is at its sizes.

    `torch.export` records it with symbols for its sizes, and guards that say for which of them it is this graph; where it
    cannot, or elsewhere, it is recorded size by size.
    """

    def __init__(
        self, model: nn.Module, axes: Axes, args: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        self._model, self._axes, self._args, self._named = unwrapped(model), axes, args, named
        self._program: Any = None
        self._symbols: dict[Any, int] = {}
        self._guards: list[Any] = []
        check_devices(self._model)
        try:
            self._export()
            self.at(self._sample())
        except Exception as error:  # torch's own, of many kinds; recorded size by size, it may go
            _log.info("recorded size by size: %s", str(error).strip().splitlines()[:1])
            self._program = None

    def proves(self, sizes: Sizes) -> bool:
        """Whether it is known that the model is at these sizes what `at` says: it may branch on a size anywhere."""
        if self._program is None or 1 in self._free(sizes):
            return False
        values = self._values(sizes)
        return all(
            guard.xreplace(values) == True  # noqa: E712 (of symbols)
            for guard in self._guards
        )

    def given(self, sizes: Sizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of these sizes."""
        return arguments(self._model, resized(self._axes, self._args, self._named, sizes))

    def at(self, sizes: Sizes) -> Imported:
        """The network at sizes.

        Raises:
            CannotImport: the model cannot have them, or is no network.
        """
        if not self.proves(sizes):
            return self.plain(sizes)
        args, named = self.given(sizes)
        importer = Importer(type(self._model).__name__, self._values(sizes))
        return importer.of_program(self._model, self._program, args, named)

    def plain(self, sizes: Sizes) -> Imported:
        """The same, recorded at these sizes alone."""
        return from_module(self._model, resized(self._axes, self._args, self._named, sizes))

    # With symbols

    def _free(self, sizes: Sizes) -> list[int]:
        ranges = self._axes.ranges
        ends = zip(sizes, ranges.least, ranges.greatest, strict=True)
        return [size for size, low, high in ends if low < high]

    def _sample(self) -> Sizes:
        """Sizes within the ranges, none of them one: torch takes those for good."""
        ranges = self._axes.ranges
        return tuple(
            min(max((low + high) // 2, 2), high)
            for low, high in zip(ranges.least, ranges.greatest, strict=True)
        )

    def _export(self) -> None:
        ranges, places = self._axes.ranges, self._axes.places
        args, named = self.given(self._sample())
        everything = by_place(args, named)
        shapes: dict[int | str, Any] = {
            place: {} if isinstance(value, Tensor) else None for place, value in everything.items()
        }
        for position, (low, high) in enumerate(zip(ranges.least, ranges.greatest, strict=True)):
            if low < high:
                for argument, dim in places[position]:
                    shapes[argument][dim] = torch.export.Dim.AUTO
        if named:
            spec: Any = {name: shapes[name] for name in named}
        else:
            spec = tuple(shapes[n] for n in range(len(args)))
        self._program = exported(self._model, args, named, spec)
        leaves = pytree.tree_leaves((args, named))
        inputs = [n for n in self._program.graph.nodes if n.op == "placeholder"][-len(leaves) :]
        guards: list[Any] = []
        for position, (low, high) in enumerate(zip(ranges.least, ranges.greatest, strict=True)):
            if low == high:
                continue
            for argument, dim in places[position]:
                at = next(n for n, leaf in enumerate(leaves) if leaf is everything[argument])
                extent = inputs[at].meta["val"].shape[dim]
                if not isinstance(extent, torch.SymInt) or not extent.node.expr.is_Symbol:
                    raise CannotImport(
                        f"[import] dimension {dim} of {argument} is {extent}, whatever is asked for"
                    )
                self._symbols[extent.node.expr] = position
                guards = extent.node.shape_env.guards
        self._guards = [guard.expr for guard in guards]

    def _values(self, sizes: Sizes) -> dict[Any, Any]:
        # As numbers of the symbols' own kind.
        return {symbol: symbol * 0 + sizes[p] for symbol, p in self._symbols.items()}


__all__ = ["Recorder"]
