"""Graphs of TorchDynamo whose shapes hold symbols, as networks for ranges of these."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from syno.graph.calls import Imported
from syno.graph.dynamic import DynamicNetwork, Linked
from syno.graph.extents import Sizes
from syno.graph.from_torch import CannotImport, from_fx
from syno.graph.linear_layers import with_linear_layers
from syno.graph.sizes import LARGEST, MOST_NAMES, Ranges


class Symbols:
    """The symbols of a graph: where its arguments show them, and from where to where they go.

    Raises:
        CannotImport: no argument shows one by itself, or there are too many.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        self._metas = [n.meta.get("val") for n in graph.graph.nodes if n.op == "placeholder"]
        self._places: dict[Any, tuple[int, int | None]] = {}
        needed: dict[Any, None] = {}
        shape_env: Any = None
        for n, meta in enumerate(self._metas):
            for dim, extent in _extents(meta):
                if not isinstance(extent, torch.SymInt):
                    continue
                expression, shape_env = extent.node.expr, extent.node.shape_env
                needed |= dict.fromkeys(sorted(expression.free_symbols, key=str))
                if expression.is_Symbol:
                    self._places.setdefault(expression, (n, dim))
        if any(isinstance(meta, (torch.SymFloat, torch.SymBool)) for meta in self._metas):
            raise CannotImport("[dynamic] an argument of the graph is a number that is no size")
        for symbol in needed:
            if symbol not in self._places:
                raise CannotImport(f"[dynamic] no argument has {symbol} as an extent by itself")
        if not 1 <= len(needed) <= MOST_NAMES:
            raise CannotImport(f"[dynamic] {len(needed)} sizes: a network has 1 to {MOST_NAMES}")
        self._symbols = list(needed)
        bounds = [shape_env.bound_sympy(symbol) for symbol in self._symbols]
        self.least = tuple(max(2, _finite(b.lower, 2)) for b in bounds)
        self.greatest = tuple(_finite(b.upper, LARGEST) for b in bounds)
        self.names = tuple(_named(shape_env, symbol) for symbol in self._symbols)

    def of(self, args: Sequence[Any]) -> Sizes:
        """Their values in a call."""
        found = []
        for symbol in self._symbols:
            n, dim = self._places[symbol]
            found.append(int(args[n] if dim is None else args[n].shape[dim]))
        return tuple(found)

    def values(self, sizes: Sizes) -> dict[Any, Any]:
        """By symbol, as numbers of the symbols' own kind."""
        return {s: s * 0 + size for s, size in zip(self._symbols, sizes, strict=True)}

    def arguments(self, args: Sequence[Any], sizes: Sizes) -> list[Any]:
        """Those of a call, of other sizes."""
        values = self.values(sizes)

        def number(value: Any) -> int:
            if isinstance(value, torch.SymInt):
                return int(value.node.expr.xreplace(values))
            return int(value)

        made = list(args)
        for n, meta in enumerate(self._metas):
            if isinstance(meta, torch.SymInt):
                made[n] = number(meta)
            elif isinstance(meta, Tensor) and any(
                isinstance(extent, torch.SymInt) for extent in meta.shape
            ):
                shape, strides = map(number, meta.shape), map(number, meta.stride())
                made[n] = torch.empty_strided(tuple(shape), tuple(strides), dtype=args[n].dtype)
        return made


def _extents(meta: Any) -> list[tuple[int | None, Any]]:
    if isinstance(meta, torch.SymInt):
        return [(None, meta)]
    return list(enumerate(meta.shape)) if isinstance(meta, Tensor) else []


def _finite(bound: Any, otherwise: int) -> int:
    return min(int(bound), LARGEST) if getattr(bound, "is_Integer", False) else otherwise


def _named(shape_env: Any, symbol: Any) -> str:
    """`x.shape[1]`, where torch knows it."""
    try:
        source = shape_env.var_to_sources[symbol][0]
        text = str(source.name() if callable(source.name) else source.name)
    except (AttributeError, IndexError, KeyError, TypeError):
        return str(symbol)
    found = re.fullmatch(r"L\['(\w+)'\](.*)", text)
    return (found[1] + found[2] if found else text).replace(".size()", ".shape")


#: The end of a range is near where it is at most so many times what a network would be made for anyway.
_NEAR = 4


class SymbolicGraph:
    """A graph in inference, as networks for ranges of its symbols.

    Calls have all the sizes that TorchDynamo lets through; how large they become is not known. A network is made for sizes up
    to a power of two, twice the first ones or more, or up to the end of what is let through where that is near, and another
    one when larger ones come.

    Args:
        weights: names for arguments that are the model's own.
        most: the greatest size that a network is made for.
        tell: is told of each network that is made.
    Raises:
        CannotImport: as `Symbols`.
    """

    def __init__(
        self,
        graph: fx.GraphModule,
        weights: Mapping[int, str],
        settings: Mapping[str, Any],
        most: int,
        tell: Callable[[Any], None],
    ) -> None:
        self._graph = with_linear_layers(graph)
        self._weights, self._settings = dict(weights), dict(settings)
        self._most, self._tell = most, tell
        self._symbols = Symbols(graph)
        self._networks: list[DynamicNetwork] = []
        self._told: set[Sizes] = set()

    def sizes_of(self, args: Sequence[Any]) -> Sizes | None:
        """Those of a call; None where no range of a network holds them."""
        sizes = self._symbols.of(args)
        ends = zip(sizes, self._symbols.least, self._symbols.greatest, strict=True)
        return sizes if all(low <= n <= min(high, self._most) for n, low, high in ends) else None

    def at(self, sizes: Sizes, args: Sequence[Any]) -> Linked:
        """The network of these sizes."""
        network = next((each for each in self._networks if _has(each, sizes)), None)
        if network is None:
            network = self._made(sizes, args)
            self._networks.append(network)
            self._tell(network)
        linked = network.at(sizes)
        if network.by_size and sizes not in self._told:
            self._told.add(sizes)
            self._tell(linked.network)
        return linked

    def _made(self, sizes: Sizes, args: Sequence[Any]) -> DynamicNetwork:
        known = [each.ranges.greatest for each in self._networks]
        greatest = []
        for p, (size, upper) in enumerate(zip(sizes, self._symbols.greatest, strict=True)):
            held = max((each[p] for each in known), default=0)
            wanted = held if held >= size else 1 << (2 * size - 1).bit_length()
            # All of a range that ends soon; of one that ends far away calls may never come near.
            greatest.append(min(upper if upper <= _NEAR * wanted else wanted, self._most))
        ranges = Ranges(self._symbols.names, self._symbols.least, tuple(greatest))

        def record(at: Sizes) -> Imported:
            return from_fx(
                self._graph,
                self._symbols.arguments(args, at),
                weights=self._weights,
                sizes=self._symbols.values(at),
            )

        return DynamicNetwork(record, ranges, self._settings)


def _has(network: DynamicNetwork, sizes: Sizes) -> bool:
    ends = zip(network.ranges.least, sizes, network.ranges.greatest, strict=True)
    return all(low <= size <= high for low, size, high in ends)


__all__ = ["SymbolicGraph", "Symbols"]
