"""What a network is at each of its sizes, from recordings at a few of them (`syno.graph.families`)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from syno import _core
from syno.errors import ShapeError
from syno.graph.calls import Imported
from syno.graph.compile import Compiling, _main_type
from syno.graph.extents import Formula, Sizes
from syno.graph.families import (
    GraphFamily,
    Numbers,
    TextFamily,
    shape_through,
    structure,
    told,
)
from syno.graph.folding import Folded, folded
from syno.graph.from_torch import CannotImport
from syno.graph.fusing import Joined, PredictedCost, fused, fused_alike
from syno.graph.host import HostCall
from syno.graph.host_sizes import call_through
from syno.graph.parameters import At
from syno.graph.shared_weights import check_weights
from syno.graph.sizes import Ranges
from syno.graph.spans import KEPT_SIZES, Span, rounded, with_size
from syno.graph.stages import ENGINE
from syno.kernels.cache import usable_cache
from syno.kernels.ranged import neutral_names
from syno.support.bounded import Bounded

_log = logging.getLogger("syno.graph")

#: Times that a network is recorded again because what is known leaves open what it is at other sizes.
_MOST_ROUNDS = 12

Record = Callable[[Sizes], Imported]
"""The network at sizes."""


class Recordings:
    """A network at all sizes of its ranges at which it is one graph.

    Args:
        record: the network at sizes, with the same nodes under the same names wherever it is one.
        ranges: of the sizes.
        compiling: how its nodes are joined.
        proven: whether it is known that the network is one graph at sizes; else it is looked at first.
        fits: whether it can have sizes beyond its ranges, which code for whole vectors is made for.
    Attributes:
        base: the largest sizes it was recorded at.
        regular: the least sizes at which it has the nodes it has there.
        graphs: by sizes it was recorded at.
        imported: the same, as they were imported.
        family: its graph at any sizes.
        parts: what is computed once and in each call, at the largest sizes.
        weights: of the largest sizes; others have their beginnings.
        hosts: by node, what PyTorch computes at sizes.
        plain_ones: positions of sizes that may be one and leave the network what it is.
    Raises:
        ShapeError: it is no one network at these sizes.
        CannotImport: it cannot be recorded at the greatest ones.
    """

    def __init__(
        self,
        record: Record,
        ranges: Ranges,
        compiling: Compiling,
        *,
        proven: Callable[[Sizes], bool],
        fits: Callable[[Sizes], bool],
    ) -> None:
        self.record, self.ranges, self.compiling = record, ranges, compiling
        self.proven, self._fits = proven, fits
        self._nodes: Bounded[Sizes, dict[str, _core.GraphNode]] = Bounded(KEPT_SIZES)
        self._names: dict[str, dict[str, str]] = {}
        self._record_near(ranges.greatest)

    def _record_near(self, greatest: Sizes) -> None:
        """Records it with sizes rounded up to whole vectors as the largest, or with these themselves, where it is another network
        beyond them: a window of attention may begin there, and whoever gave the ranges need not say why they end."""
        self._beyond: dict[Sizes, tuple[Imported, Folded]] = {}
        whole = self._representative(greatest)
        try:
            self._record(whole)
        except (ShapeError, CannotImport):
            if whole == greatest:
                raise
            self._record(greatest)

    def _record(self, base: Sizes) -> None:
        ranges = self.ranges
        self.imported: dict[Sizes, Imported] = {}
        self._folded: dict[Sizes, Folded] = {}
        self.graphs: dict[Sizes, _core.Graph] = {}
        self.base = base
        self._decisions: list[Joined] = []
        self._add(base)
        self.regular = least = self._least_regular()
        middle = tuple((n + m) // 2 | 1 for n, m in zip(least, base, strict=True))
        middle = tuple(min(n, m) for n, m in zip(middle, base, strict=True))
        for position in range(len(base)):
            for size in (least[position], middle[position], base[position] - 1):
                if least[position] <= size < base[position]:
                    self._add(with_size(base, position, size))
        if len(base) > 1:
            self._add(least)
            self._add(middle)
        for _ in range(_MOST_ROUNDS):
            self._numbers = Numbers(ranges.names, base)
            TextFamily({s: str(g.text()) for s, g in self.graphs.items()}, self._numbers)
            further = [s for s in self._numbers.undecided(least) if s not in self.graphs]
            if not further:
                break
            for sizes in further:
                self._add(sizes)
        self._beyond.clear()
        self.family = GraphFamily(self.graphs, self._numbers)
        self.parts = self._folded[base]
        self.weights = dict(self.parts.call.weights)
        for sizes, each in self._folded.items():
            check_weights(self.weights, each.call.weights, told(ranges.names, sizes))
        self._outside()
        self._host_calls()
        self._look_at_ones(least)

    def _least_regular(self) -> Sizes:
        """The least sizes, each with the others at their largest, at which the network has the nodes that it has there.

        A single row makes another graph of many a network, as do images so small that all of one is in one window.
        """
        wanted = structure(str(self.graphs[self.base].text()))
        found = []
        for position, (low, high) in enumerate(
            zip(self.ranges.least, self.ranges.greatest, strict=True)
        ):

            def is_so(size: int, position: int = position) -> bool:
                sizes = with_size(self.base, position, size)
                try:
                    self._add(sizes)
                except (ShapeError, CannotImport):
                    return False
                if structure(str(self.graphs[sizes].text())) == wanted:
                    return True
                for kept in (self.imported, self._folded, self.graphs):
                    del kept[sizes]
                return False

            least = max(low, min(2, high))
            if least < high and not is_so(least):
                no, yes = least, high
                while yes - no > 1:
                    size = (no + yes) // 2
                    no, yes = (no, size) if is_so(size) else (size, yes)
                least = yes
            found.append(least)
        return tuple(found)

    def _add(self, sizes: Sizes) -> None:
        if sizes in self.graphs:
            return
        known = sizes in self._beyond
        imported, parts = self._beyond.pop(sizes) if known else self._recorded(sizes)
        self.graphs[sizes] = self._joined(parts.call.graph().cleaned(), sizes)
        self.imported[sizes], self._folded[sizes] = imported, parts

    def _joined(self, graph: _core.Graph, sizes: Sizes) -> _core.Graph:
        """With the nodes joined that are joined at the largest sizes."""
        if not self.compiling.fuse:
            return graph
        if sizes == self.base:
            self._dtype = _main_type(graph)
            graph, _, self._decisions = fused(
                graph,
                PredictedCost(self._dtype, self.compiling.threads),
                dtype=self._dtype,
                threads=self.compiling.threads,
                directory=usable_cache() if self.compiling.cache else None,
                alike=self._companions(graph),
            )
            return graph
        joined = fused_alike(graph, self._decisions)
        if joined is None:
            raise ShapeError(
                f"[dynamic] the network at {told(self.ranges.names, sizes)} has other nodes"
            )
        return joined

    def _companions(self, graph: _core.Graph) -> list[_core.Graph]:
        """The graph at other sizes, where it has the same nodes there: at three quarters, so that extents deep within, such as
        those of an image that was halved five times, are others, too; else at those beside."""
        names = [node.name for node in graph.nodes]
        for part in (4, None):
            sizes = tuple(
                max(min(2, n), min(n - 1, max(least, n - n // part)) if part else n - 1)
                for n, least in zip(self.base, self.ranges.least, strict=True)
            )
            try:
                other = folded(self.record(sizes).network).call.graph().cleaned()
            except (ShapeError, CannotImport):
                continue
            if [node.name for node in other.nodes] == names:
                return [other]
        return []

    def _outside(self) -> None:
        """What calls bring and get, at all sizes."""
        base = self.imported[self.base]
        self._given: dict[str, tuple[Formula, ...]] = {}
        for place, given in enumerate(base.given):
            shapes = {sizes: each.given[place].shape for sizes, each in self.imported.items()}
            self._given[given.name] = shape_through(shapes, self._numbers, f"input {given.name}")
        self._returned: list[Any] = []
        for place, constant in enumerate(base.constants):
            values = {sizes: each.constants[place] for sizes, each in self.imported.items()}
            if type(constant) is int and any(value != constant for value in values.values()):
                self._returned.append(self._numbers.formula(values, "a number that is returned"))
            elif any(value != constant for value in values.values()):
                raise ShapeError("[dynamic] the model returns something else at other sizes")
            else:
                self._returned.append(None)
        self._fixed: list[Any] = []
        for place, given in enumerate(base.given):
            values = {sizes: each.given[place].constant for sizes, each in self.imported.items()}
            follows = type(given.constant) is int and len(set(values.values())) > 1
            self._fixed.append(self._numbers.formula(values, given.name) if follows else None)
        for other in self.imported.values():
            if other.returned != base.returned:
                raise ShapeError("[dynamic] the model returns something else at other sizes")

    def imported_at(self, sizes: Sizes) -> Imported:
        """How a call at these sizes becomes one of the network."""
        base = self.imported[self.base]
        given = [
            replace(each, shape=tuple(n.at(sizes) for n in self._given[each.name]))
            if each.dtype is not None
            else (each if follows is None else replace(each, constant=follows.at(sizes)))
            for each, follows in zip(base.given, self._fixed, strict=True)
        ]
        constants = [
            constant if follows is None else follows.at(sizes)
            for constant, follows in zip(base.constants, self._returned, strict=True)
        ]
        return replace(base, given=given, constants=constants)

    def _host_calls(self) -> None:
        """What PyTorch computes, at all sizes."""
        self.hosts: dict[str, Callable[[Sizes], HostCall]] = {}
        for node in self.graphs[self.base].nodes:
            if node.program is not None or node.function in ENGINE:
                continue
            calls: dict[Sizes, HostCall] = {}
            for sizes, imported in self.imported.items():
                host = next(n.host for n in imported.network.nodes if n.name == node.name)
                if not isinstance(host, HostCall):
                    raise ShapeError(
                        f"[dynamic] {node.function} ({node.name}) is computed outside of kernels, for one size"
                    )
                calls[sizes] = host
            self.hosts[node.name] = call_through(calls, self._numbers)

    def _look_at_ones(self, least: Sizes) -> None:
        """Which sizes may be one and leave the network what it is."""
        self.plain_ones: set[int] = set()
        for position, (low, high) in enumerate(
            zip(self.ranges.least, self.ranges.greatest, strict=True)
        ):
            if low > 1 or high == 1:
                continue
            if all(
                self.is_alike(with_size(sizes, position, 1))
                for sizes in dict.fromkeys((self.base, least))
            ):
                self.plain_ones.add(position)
        if len(self.plain_ones) > 1:
            ones = tuple(1 if p in self.plain_ones else n for p, n in enumerate(self.base))
            if not self.is_alike(ones):
                self.plain_ones.clear()

    def is_alike(self, sizes: Sizes) -> bool:
        """Whether the network at these sizes is what it follows to be there."""
        try:
            imported = self.record(sizes)
            parts = folded(imported.network)
            graph = self._joined(parts.call.graph().cleaned(), sizes)
            check_weights(self.weights, parts.call.weights, "")
            expected = self.imported_at(sizes)
            return (
                self.family.is_at(sizes, graph)
                and imported.given == expected.given
                and imported.returned == expected.returned
                and not self.hosts
            )
        except (ShapeError, CannotImport):
            return False

    def _representative(self, greatest: Sizes) -> Sizes:
        """Sizes that code for sizes up to these is made for: whole vectors, where the network can have them."""
        found = greatest
        for position, size in enumerate(greatest):
            whole = with_size(found, position, rounded(size))
            if whole != found and self._can_be(whole):
                found = whole
        return found

    def _can_be(self, sizes: Sizes) -> bool:
        """Whether the network can have sizes beyond its ranges."""
        if self.proven(sizes):
            try:
                self._beyond[sizes] = self._recorded(sizes)
                return True
            except Exception as error:  # of what is computed once: an index beyond a table, say
                _log.debug("at %s: %s", told(self.ranges.names, sizes), error)
        return self._fits(sizes)

    def _recorded(self, sizes: Sizes) -> tuple[Imported, Folded]:
        imported = self.record(sizes)
        return imported, folded(imported.network)

    def least_of(self, bucket: Span) -> Sizes:
        """The least sizes that a bucket's code has to know of: none of one that makes another network."""
        return tuple(
            low if p in self.plain_ones else min(max(low, least), high)
            for p, (low, high, least) in enumerate(zip(*bucket, self.regular, strict=True))
        )

    def node(self, sizes: Sizes, name: str) -> _core.GraphNode:
        """A node of its graph at any sizes."""
        found = self._nodes.get(sizes)
        if found is None:
            made = {node.name: node for node in self.family.at(sizes).nodes}
            found = self._nodes.setdefault(sizes, made)
        return found[name]

    def extents(self, name: str) -> dict[At, Formula]:
        """A program's extents that are not the same at all sizes."""
        found: dict[At, Formula] = {}
        programs = {
            sizes: program_of(next(node for node in graph.nodes if node.name == name))
            for sizes, graph in self.graphs.items()
        }
        first = programs[self.base]
        for tensor in first.tensors:
            for dim in range(len(first.shape(tensor))):
                values = {sizes: int(each.shape(tensor)[dim]) for sizes, each in programs.items()}
                if len(set(values.values())) > 1:
                    what = f"the extent {dim} of {tensor} in {name}"
                    found[tensor, dim] = self._numbers.formula(values, what)
        return found

    def reason(self, node: _core.GraphNode) -> str:
        """Why PyTorch computes a node."""
        for note in self.imported[self.base].network.notes:
            if note.startswith(node.function):
                return note.removeprefix(node.function).lstrip(": ")
        return "no row"

    def names_of(self, name: str) -> dict[str, str]:
        """Of a node's program, those that equal layers share; the same ones at all sizes."""
        found = self._names.get(name)
        if found is None:
            program = program_of(self.node(self.base, name))
            found = self._names.setdefault(name, neutral_names(program))
        return found

    def is_regular(self, sizes: Sizes) -> bool:
        """Whether the network at these sizes is that of most."""
        ends = enumerate(zip(self.regular, sizes, strict=True))
        if any(size < least and p not in self.plain_ones for p, (least, size) in ends):
            return False
        return self.proven(sizes) or self.is_alike(sizes)


def program_of(node: _core.GraphNode) -> _core.Program:
    """Of a node that has one."""
    assert node.program is not None
    return node.program


__all__ = ["Record", "Recordings", "program_of"]
