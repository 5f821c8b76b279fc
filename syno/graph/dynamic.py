"""Networks for sizes that calls bring along: compiled for ranges, linked for the sizes of a call as they are first seen.

A network is recorded at a few sizes; what it is at others follows (`syno.graph.families`). Each of its kernels is one
machine code for a range of sizes (`syno.kernels.dynamic`), with its weights packed once; sizes that were not seen yet take no
compilation, but a plan of the memory between the steps, and addresses. What PyTorch computes, it computes at the sizes
of the call. Where a network is another one at other sizes, each size is compiled on its own.
"""

from __future__ import annotations

import copy
import functools
import itertools
import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from syno import _core
from syno.errors import ArgumentError, KernelError, ScheduleError, ShapeError
from syno.graph.buckets import Predicted, cut, looked_at
from syno.graph.building import Array, Network
from syno.graph.calls import Imported
from syno.graph.compile import Compiling, _main_type, compile_network
from syno.graph.compiled import CompiledNetwork
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
from syno.graph.fusing import Joined, PredictedCost, constants_of, fused, fused_alike
from syno.graph.host import HostCall
from syno.graph.host_sizes import call_through
from syno.graph.merging import columns_merged, merged, pairs_of, viewed
from syno.graph.parameters import At, parameters
from syno.graph.sizes import Ranges
from syno.graph.stages import ENGINE, Packings, Stage, call_stage, kernel_stage, view_stage
from syno.graph.whole_check import WholeCheck
from syno.kernels.cache import usable_cache
from syno.kernels.kernel import Verification
from syno.kernels.prepack import PrepackedKernel
from syno.kernels.ranged import (
    Asked,
    NotTheSame,
    Range,
    RangedKernels,
    checked_at,
    make_together,
    neutral_names,
    ranged_kernels,
    shapes_differ,
)
from syno.operators.operator import Operator
from syno.support.bounded import Bounded
from syno.support.notebook import Printed

_log = logging.getLogger("syno.graph")

#: Sizes of which linked networks are kept; each takes its plan and, while it runs, the memory between its steps.
KEPT_SIZES = 64

_VECTOR = 16

#: Times that a network is recorded again because what is known leaves open what it is at other sizes.
_MOST_ROUNDS = 12

#: Of a size, values at which extents are compared with what code makes of them: spread over a bucket, and the last ones.
_SAMPLES = 48

Span = tuple[Sizes, Sizes]
"""Least and greatest sizes."""


@dataclass
class _Made:
    """What a bucket's machine code is made into at each size."""

    span: Span
    stages: list[Stage | None]
    """None: of each size alone, by `kernel_stage`."""
    general: dict[str, tuple[RangedKernels, tuple[At, ...]]] = field(default_factory=dict)
    """By stage: code with extents as its parameters, and where the stage's program has these."""
    packings: Packings = field(default_factory=Packings)


@dataclass(frozen=True)
class _Wanted:
    """A node's kernel for a bucket, and where its program has the extents that are its parameters."""

    asked: Asked
    places: tuple[At, ...]


@dataclass(frozen=True)
class Linked:
    """A network at some sizes, ready to be called."""

    sizes: Sizes
    network: CompiledNetwork
    imported: Imported
    parts: Folded


class _AtSize(CompiledNetwork):
    """A network at some sizes, with weights that it shares with the others."""

    def __init__(
        self,
        graph: _core.Graph,
        stages: Sequence[Stage],
        weights: Mapping[str, Array],
        shared: dict[str, Array],
        threads: int,
    ) -> None:
        self._shared = shared
        super().__init__(graph, stages, _cut(graph, weights), threads=threads)

    def _argument(self, name: str) -> tuple[str, int]:
        place = self._storage.places[name]
        if place.kind == "fixed" and place.name not in self._kept:
            array = self._weights[place.name]
            known = self._shared.get(place.name)
            if known is None or known.shape != array.shape:
                known = np.array(array, order="C")
                self._shared.setdefault(place.name, known)
            self._kept[place.name] = known
        return super()._argument(name)

    def update_weights(self, weights: Mapping[str, Array]) -> None:
        super().update_weights(_cut(self.graph, weights))


def _cut(graph: _core.Graph, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights as long as a graph has them: of those that a size is an extent of, the beginnings."""
    made = dict(weights)
    for name in graph.weights:
        if name in made:
            shape = tuple(graph.tensor(name)[0])
            if made[name].shape != shape:
                made[name] = np.ascontiguousarray(_beginning(made[name], shape))
    return made


def _beginning(array: Array, shape: Sequence[int]) -> Array:
    """Of an array, so much of each dimension; of one without dimensions, all, as an array."""
    at: tuple[Any, ...] = (*map(slice, shape), ...)
    part: Array = array[at]
    return part


Record = Callable[[Sizes], Imported]
"""The network at sizes."""
Values = Callable[[Sizes, Imported], "Sequence[Any] | None"]
"""Of its inputs there, for checks; None: random ones."""


class DynamicNetwork(Printed):
    """A network for ranges of its sizes. Thread-safe.

    Args:
        record: the network at sizes, with the same nodes under the same names wherever it is one.
        ranges: of the sizes.
        settings: of `Compiling`.
        proven: whether it is known that the network is one graph at sizes; else it is looked at first.
        values: inputs that it is checked on.
        fits: whether it can have sizes beyond its ranges, which code for whole vectors is made for.
        background: run a new size from the code for all sizes, while better code is made.
    Attributes:
        by_size: why each size is compiled on its own; empty where code serves ranges.
    """

    def __init__(
        self,
        record: Record,
        ranges: Ranges,
        settings: Mapping[str, Any],
        *,
        proven: Callable[[Sizes], bool] = lambda sizes: True,
        values: Values = lambda sizes, imported: None,
        fits: Callable[[Sizes], bool] = lambda sizes: True,
        background: bool = False,
    ) -> None:
        self.ranges = ranges
        self._record_at, self._values, self._fits = record, values, fits
        self._settings, self._compiling = dict(settings), Compiling(**settings)
        self._background, self._proven = background, proven
        self._lock = threading.RLock()
        self._linked_at: Bounded[Sizes, Linked] = Bounded(KEPT_SIZES)
        self._meanwhile: Bounded[Sizes, Linked] = Bounded(KEPT_SIZES)
        self._made: dict[Span, _Made] = {}
        self._busy: dict[Span, threading.Thread] = {}
        self._shared: dict[str, Array] = {}
        self._nodes: Bounded[Sizes, dict[str, _core.GraphNode]] = Bounded(KEPT_SIZES)
        self._names: dict[str, dict[str, str]] = {}
        self._pairs: dict[str, tuple[At, ...]] = {}
        self._single: dict[tuple[int, ...], DynamicNetwork] = {}
        self.by_size = ""
        self.whole: Span = (ranges.least, ranges.greatest)
        self.buckets: tuple[Span, ...] = (self.whole,)
        try:
            with torch.no_grad():
                self._record_near(ranges.greatest)
                with WholeCheck(self._to_check(), values) as check:
                    made = self._made_of(self.whole)
                    # Weights that are read as they are get memory of their own when a network is first linked.
                    copied = check.do(self._network, made, ranges.greatest)
                    self.buckets = self._cut()
                    # Its code is made for the same largest sizes.
                    self._made[self.buckets[-1]] = made
                    self._check_beginning(made, self.buckets[-1])
                    copied.result()
                    self._check(check)
        except (ShapeError, ScheduleError, CannotImport) as error:
            self.by_size = str(error)
            self.at(ranges.greatest)

    # Sizes

    def at(self, sizes: Sizes) -> Linked:
        """The network at sizes within the ranges.

        Raises:
            CannotImport: it cannot have these.
        """
        found = self._linked_at.get(sizes)
        if found is not None:
            return found
        with self._lock, torch.no_grad():
            if self.by_size:
                return self._linked_at.setdefault(sizes, self._alone(sizes))
            single = self._singles(sizes)
            if single:
                return self._of_single(single, sizes)
            if not self._is_regular(sizes):
                return self._linked_at.setdefault(sizes, self._alone(sizes))
            bucket = next(each for each in self.buckets if _holds(each, sizes))
            if self._background and bucket not in self._made:
                self._make_beside(bucket)
                meanwhile = self._meanwhile.get(sizes)
                if meanwhile is None:  # kept until there is the better one
                    meanwhile = self._linked(self.whole, sizes)
                    meanwhile = self._meanwhile.setdefault(sizes, meanwhile)
                return meanwhile
            return self._linked_at.setdefault(sizes, self._linked(bucket, sizes))

    def is_kept(self, linked: Linked) -> bool:
        """Whether later calls of these sizes get the same."""
        return self._linked_at.get(linked.sizes) is linked

    @property
    def ready(self) -> tuple[Span, ...]:
        """Spans of which the machine code is there."""
        return tuple(sorted(self._made))

    def wait(self) -> None:
        """Until no better code is being made in the background."""
        for worker in list(self._busy.values()):
            worker.join()
        for each in list(self._single.values()):
            each.wait()

    def to_dict(self) -> dict[str, Any]:
        """Ranges of the sizes, and what has code of its own, for JSON."""
        return {
            "sizes": dict(zip(self.ranges.names, zip(*self.whole, strict=True), strict=True)),
            "buckets": [[list(end) for end in span] for span in self.buckets],
            "ready": [[list(end) for end in span] for span in self.ready],
            "by_size": self.by_size,
        }

    def __repr__(self) -> str:
        how = f"each size alone: {self.by_size}" if self.by_size else f"{len(self.buckets)} buckets"
        return f"<DynamicNetwork: {self.ranges}, {how}>"

    def __str__(self) -> str:
        """With the spans that code is there for, and the steps that PyTorch computes."""
        ready = "; ".join(map(_span_text, self.ready))
        lines = [repr(self), f"  code is there for: {ready or 'none'}"]
        if not self.by_size:
            steps = self._linked(self.whole, self.ranges.greatest).network.fallbacks
            lines += [f"  PyTorch computes {name}: {why}" for name, why in steps.items()]
        return "\n".join(lines)

    def _alone(self, sizes: Sizes) -> Linked:
        """Compiled for these sizes and no others."""
        imported = self._record_at(sizes)
        values = self._values(sizes, imported)
        network, parts = compile_network(imported.network, values, settings=self._compiling)
        return Linked(sizes, network, imported, parts)

    def _singles(self, sizes: Sizes) -> tuple[int, ...]:
        """Positions of sizes of one, where the network is another one for them: PyTorch drops such dimensions."""
        return tuple(
            p
            for p, size in enumerate(sizes)
            if size == 1 and self.ranges.greatest[p] > 1 and p not in self._plain_ones
        )

    def _is_regular(self, sizes: Sizes) -> bool:
        """Whether the network at these sizes is that of most."""
        ends = enumerate(zip(self._regular, sizes, strict=True))
        if any(size < least and p not in self._plain_ones for p, (least, size) in ends):
            return False
        return self._proven(sizes) or self._is_alike(sizes)

    def _of_single(self, single: tuple[int, ...], sizes: Sizes) -> Linked:
        rest = tuple(size for p, size in enumerate(sizes) if p not in single)
        within = self.without(single)
        if within is None:
            return self._linked_at.setdefault(sizes, self._alone(sizes))
        found = within.at(rest)
        made = replace(found, sizes=sizes)
        return self._linked_at.setdefault(sizes, made) if within.is_kept(found) else made

    def without(self, single: tuple[int, ...]) -> DynamicNetwork | None:
        """The network in which the sizes at these positions are one; None where there is no other size."""
        if len(single) == len(self.ranges.names):
            return None
        if single not in self._single:

            def full(few: Sizes) -> Sizes:
                left = iter(few)
                count = len(self.ranges.names)
                return tuple(1 if p in single else next(left) for p in range(count))

            self._single[single] = DynamicNetwork(
                lambda few: self._record_at(full(few)),
                self.ranges.without(single),
                self._settings,
                values=lambda few, imported: self._values(full(few), imported),
                fits=lambda few: self._fits(full(few)),
                proven=lambda few: self._proven(full(few)),
                background=self._background,
            )
        return self._single[single]

    # What it is made of

    def single_positions(self) -> list[tuple[int, ...]]:
        """Positions of sizes that make another network together where they are one."""
        can = [
            p
            for p, (low, high) in enumerate(zip(*self.whole, strict=True))
            if low == 1 < high and p not in self._plain_ones
        ]
        return [each for n in range(1, len(can) + 1) for each in itertools.combinations(can, n)]

    def regular_span(self, bucket: Span) -> Span | None:
        """The sizes of a bucket at which the network is that of most; None where there are none.

        Raises:
            ArgumentError: some others are each compiled on their own.
        """
        least = self._least_of(bucket)
        for p, (low, first) in enumerate(zip(bucket[0], least, strict=True)):
            alone = range(low + (low == 1), min(first, bucket[1][p] + 1))
            if alone:
                raise ArgumentError(
                    f"[export] the network is another one at each {self.ranges.names[p]} from {alone[0]} to {alone[-1]}",
                    fix=f"compile it for {self.ranges.names[p]} from {alone[-1] + 1} on, and export that",
                )
        ends = zip(bucket[0], bucket[1], strict=True)
        if any(
            low == high == 1 and p not in self._plain_ones and self.ranges.greatest[p] > 1
            for p, (low, high) in enumerate(ends)
        ):
            return None
        return least, bucket[1]

    def is_proven(self, sizes: Sizes) -> bool:
        """Whether it is known that the network at sizes is what it follows to be."""
        return self._proven(sizes)

    def is_as_recorded(self, sizes: Sizes) -> bool:
        """Whether the network at sizes of a `regular_span` is what it follows to be."""
        with torch.no_grad():
            return self._is_regular(sizes)

    def made_of(self, bucket: Span) -> _Made:
        """The machine code of a bucket."""
        with torch.no_grad():
            return self._made_of(bucket)

    def original_at(self, sizes: Sizes) -> Network:
        """The network at sizes as it is imported, by which it is checked."""
        with torch.no_grad():
            return self._record_at(sizes).network

    def linked(self, bucket: Span, sizes: Sizes) -> Linked:
        """The network at sizes of a bucket, by its machine code; not kept."""
        with torch.no_grad():
            return self._linked(bucket, sizes)

    def nodes_by_size(self, bucket: Span) -> list[_core.GraphNode]:
        """Those whose kernels are compiled for each size of a bucket."""
        nodes = self._family.at(bucket[1]).nodes
        return [
            node
            for node, stage in zip(nodes, self.made_of(bucket).stages, strict=True)
            if stage is None
        ]

    def values_of(self, linked: Linked, name: str, places: tuple[At, ...]) -> list[int]:
        """What the parameters of a step's code are in a network."""
        program = _program(next(n for n in linked.network.graph.nodes if n.name == name))
        return _values_at(self._merged(name, program.renamed(self._names_of(name))), places)

    def _make_beside(self, bucket: Span) -> None:
        if bucket not in self._busy:
            self._busy[bucket] = threading.Thread(
                target=self._make_quietly, args=(bucket,), daemon=True
            )
            self._busy[bucket].start()

    def _make_quietly(self, bucket: Span) -> None:
        try:
            with torch.no_grad():
                made = self._make(bucket)
            with self._lock:
                self._made[bucket] = made
                self._meanwhile = Bounded(KEPT_SIZES)
        except Exception as error:  # whoever calls goes on with what there is
            _log.warning("no better code for the sizes %s: %s", _span_text(bucket), error)

    # Recording

    def _record_near(self, greatest: Sizes) -> None:
        """Records it with sizes rounded up to whole vectors as the largest, or with these themselves, where it is another network
        beyond them: a window of attention may begin there, and whoever gave the ranges need not say why they end."""
        self._beyond: dict[Sizes, tuple[Imported, Folded]] = {}
        rounded = self._representative(greatest)
        try:
            self._record(rounded)
        except (ShapeError, CannotImport):
            if rounded == greatest:
                raise
            self._record(greatest)

    def _record(self, base: Sizes) -> None:
        ranges = self.ranges
        self._imported: dict[Sizes, Imported] = {}
        self._folded: dict[Sizes, Folded] = {}
        self._graphs: dict[Sizes, _core.Graph] = {}
        self._base = base
        self._decisions: list[Joined] = []
        self._add(base)
        self._regular = least = self._least_regular()
        middle = tuple((n + m) // 2 | 1 for n, m in zip(least, base, strict=True))
        middle = tuple(min(n, m) for n, m in zip(middle, base, strict=True))
        for position in range(len(base)):
            for size in (least[position], middle[position], base[position] - 1):
                if least[position] <= size < base[position]:
                    self._add(_with(base, position, size))
        if len(base) > 1:
            self._add(least)
            self._add(middle)
        for _ in range(_MOST_ROUNDS):
            self._numbers = Numbers(ranges.names, base)
            TextFamily({s: str(g.text()) for s, g in self._graphs.items()}, self._numbers)
            further = [s for s in self._numbers.undecided(least) if s not in self._graphs]
            if not further:
                break
            for sizes in further:
                self._add(sizes)
        self._beyond.clear()
        self._family = GraphFamily(self._graphs, self._numbers)
        self._parts = self._folded[base]
        self._weights = dict(self._parts.call.weights)
        for sizes, each in self._folded.items():
            _check_weights(self._weights, each.call.weights, told(ranges.names, sizes))
        self._outside()
        self._host_calls()
        self._look_at_ones(least)

    def _least_regular(self) -> Sizes:
        """The least sizes, each with the others at their largest, at which the network has the nodes that it has there.

        A single row makes another graph of many a network, as do images so small that all of one is in one window.
        """
        wanted = structure(str(self._graphs[self._base].text()))
        found = []
        for position, (low, high) in enumerate(
            zip(self.ranges.least, self.ranges.greatest, strict=True)
        ):

            def is_so(size: int, position: int = position) -> bool:
                sizes = _with(self._base, position, size)
                try:
                    self._add(sizes)
                except (ShapeError, CannotImport):
                    return False
                if structure(str(self._graphs[sizes].text())) == wanted:
                    return True
                for kept in (self._imported, self._folded, self._graphs):
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
        if sizes in self._graphs:
            return
        known = sizes in self._beyond
        imported, parts = self._beyond.pop(sizes) if known else self._recorded(sizes)
        self._graphs[sizes] = self._joined(parts.call.graph().cleaned(), sizes)
        self._imported[sizes], self._folded[sizes] = imported, parts

    def _joined(self, graph: _core.Graph, sizes: Sizes) -> _core.Graph:
        """With the nodes joined that are joined at the largest sizes."""
        if not self._compiling.fuse:
            return graph
        if sizes == self._base:
            self._dtype = _main_type(graph)
            graph, _, self._decisions = fused(
                graph,
                PredictedCost(self._dtype, self._compiling.threads),
                dtype=self._dtype,
                threads=self._compiling.threads,
                directory=usable_cache() if self._compiling.cache else None,
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
                for n, least in zip(self._base, self.ranges.least, strict=True)
            )
            try:
                other = folded(self._record_at(sizes).network).call.graph().cleaned()
            except (ShapeError, CannotImport):
                continue
            if [node.name for node in other.nodes] == names:
                return [other]
        return []

    def _outside(self) -> None:
        """What calls bring and get, at all sizes."""
        base = self._imported[self._base]
        self._given: dict[str, tuple[Formula, ...]] = {}
        for place, given in enumerate(base.given):
            shapes = {sizes: each.given[place].shape for sizes, each in self._imported.items()}
            self._given[given.name] = shape_through(shapes, self._numbers, f"input {given.name}")
        self._returned: list[Any] = []
        for place, constant in enumerate(base.constants):
            values = {sizes: each.constants[place] for sizes, each in self._imported.items()}
            if type(constant) is int and any(value != constant for value in values.values()):
                self._returned.append(self._numbers.formula(values, "a number that is returned"))
            elif any(value != constant for value in values.values()):
                raise ShapeError("[dynamic] the model returns something else at other sizes")
            else:
                self._returned.append(None)
        self._fixed: list[Any] = []
        for place, given in enumerate(base.given):
            values = {sizes: each.given[place].constant for sizes, each in self._imported.items()}
            follows = type(given.constant) is int and len(set(values.values())) > 1
            self._fixed.append(self._numbers.formula(values, given.name) if follows else None)
        for other in self._imported.values():
            if other.returned != base.returned:
                raise ShapeError("[dynamic] the model returns something else at other sizes")

    def imported_at(self, sizes: Sizes) -> Imported:
        """How a call at these sizes becomes one of the network."""
        base = self._imported[self._base]
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
        self._hosts: dict[str, Callable[[Sizes], HostCall]] = {}
        for node in self._graphs[self._base].nodes:
            if node.program is not None or node.function in ENGINE:
                continue
            calls: dict[Sizes, HostCall] = {}
            for sizes, imported in self._imported.items():
                host = next(n.host for n in imported.network.nodes if n.name == node.name)
                if not isinstance(host, HostCall):
                    raise ShapeError(
                        f"[dynamic] {node.function} ({node.name}) is computed outside of kernels, for one size"
                    )
                calls[sizes] = host
            self._hosts[node.name] = call_through(calls, self._numbers)

    def _look_at_ones(self, least: Sizes) -> None:
        """Which sizes may be one and leave the network what it is."""
        self._plain_ones: set[int] = set()
        for position, (low, high) in enumerate(
            zip(self.ranges.least, self.ranges.greatest, strict=True)
        ):
            if low > 1 or high == 1:
                continue
            if all(
                self._is_alike(_with(sizes, position, 1))
                for sizes in dict.fromkeys((self._base, least))
            ):
                self._plain_ones.add(position)
        if len(self._plain_ones) > 1:
            ones = tuple(1 if p in self._plain_ones else n for p, n in enumerate(self._base))
            if not self._is_alike(ones):
                self._plain_ones.clear()

    def _is_alike(self, sizes: Sizes) -> bool:
        """Whether the network at these sizes is what it follows to be there."""
        try:
            imported = self._record_at(sizes)
            parts = folded(imported.network)
            graph = self._joined(parts.call.graph().cleaned(), sizes)
            _check_weights(self._weights, parts.call.weights, "")
            expected = self.imported_at(sizes)
            return (
                self._family.is_at(sizes, graph)
                and imported.given == expected.given
                and imported.returned == expected.returned
                and not self._hosts
            )
        except (ShapeError, CannotImport):
            return False

    def _representative(self, greatest: Sizes) -> Sizes:
        """Sizes that code for sizes up to these is made for: whole vectors, where the network can have them."""
        found = greatest
        for position, size in enumerate(greatest):
            rounded = _with(found, position, _rounded(size))
            if rounded != found and self._can_be(rounded):
                found = rounded
        return found

    def _can_be(self, sizes: Sizes) -> bool:
        """Whether the network can have sizes beyond its ranges."""
        if self._proven(sizes):
            try:
                self._beyond[sizes] = self._recorded(sizes)
                return True
            except Exception as error:  # of what is computed once: an index beyond a table, say
                _log.debug("at %s: %s", told(self.ranges.names, sizes), error)
        return self._fits(sizes)

    def _recorded(self, sizes: Sizes) -> tuple[Imported, Folded]:
        imported = self._record_at(sizes)
        return imported, folded(imported.network)

    # Making

    def _made_of(self, bucket: Span) -> _Made:
        with self._lock:
            if bucket not in self._made:
                self._made[bucket] = self._make(bucket)
            return self._made[bucket]

    def _least_of(self, bucket: Span) -> Sizes:
        """The least sizes that a bucket's code has to know of: none of one that makes another network."""
        return tuple(
            low if p in self._plain_ones else min(max(low, least), high)
            for p, (low, high, least) in enumerate(zip(*bucket, self._regular, strict=True))
        )

    def _samples(self, bucket: Span) -> tuple[list[Sizes], int]:
        """Sizes of a bucket, the largest first, which code for it is made for; how many of them are always looked at."""
        low, high = self._least_of(bucket), bucket[1]
        largest = tuple(min(_rounded(n), max(m, n)) for n, m in zip(high, self._base, strict=True))
        middle = tuple((n + m) // 2 for n, m in zip(low, largest, strict=True))
        sizes = [largest, high, low, middle]
        for position, ends in enumerate(zip(low, middle, largest, strict=True)):
            sizes += [
                _with(largest, position, size) for size in (*ends[:2], max(ends[2] - 1, ends[0]))
            ]
        known = list(dict.fromkeys(sizes))
        for position, (least, most) in enumerate(zip(low, largest, strict=True)):
            steps = range(least, most + 1, max(1, (most - least) // _SAMPLES))
            last = range(max(least, most - _SAMPLES), most + 1)
            sizes += [_with(largest, position, size) for size in (*steps, *last)]
        return list(dict.fromkeys(sizes)), len(known)

    def _cut(self) -> tuple[Span, ...]:
        """Buckets of which the code loses little at all of their sizes, by prediction: cuts of each size, the others being
        at their greatest."""
        predicted = Predicted()
        greatest = self.whole[1]
        wanted = self._wanted(self.whole)
        predicted.together(
            (self._neutral(_with(greatest, position, max(size, least)), name), each.asked)
            for position, (ends, least) in enumerate(
                zip(zip(*self.whole, strict=True), self._least_of(self.whole), strict=True)
            )
            for size in looked_at(*ends)
            for name, each in wanted.items()
            if each is not None
        )

        def loss(position: int, high: int, low: int) -> float:
            low = max(low, self._least_of(self.whole)[position])
            if low >= high:
                return 0.0
            span = self.whole[0], _with(greatest, position, high)
            return self._loss(predicted, span, _with(greatest, position, low))

        rows = [
            cut(*ends, functools.partial(loss, position))
            for position, ends in enumerate(zip(*self.whole, strict=True))
        ]
        return tuple(
            (tuple(low for low, _ in each), tuple(high for _, high in each))
            for each in itertools.product(*rows)
        )

    def _loss(self, predicted: Predicted, span: Span, sizes: Sizes) -> float:
        """By how much the kernels for a span are slower at sizes than those for them alone, as a part of their time."""
        shared = alone = 0.0
        every = [
            (self._neutral(sizes, name), wanted)
            for name, wanted in self._wanted(span).items()
            if wanted is not None
        ]
        predicted.together([(program, wanted.asked) for program, wanted in every])
        for program, wanted in every:
            own = predicted.alone(program, wanted.asked)
            found = predicted.shared(wanted.asked, _values_at(program, wanted.places))
            alone += own
            shared += own if found is None else found
        return shared / alone - 1 if alone > 0 else 0.0

    def _wanted(self, bucket: Span) -> dict[str, _Wanted | None]:
        """Of the nodes that change with sizes, the kernels for a bucket; None where each size needs its own."""
        samples, known = self._samples(bucket)
        columns: dict[Formula, list[int]] = {}

        def column(formula: Formula) -> list[int]:
            if formula not in columns:
                columns[formula] = [formula.at(sizes) for sizes in samples]
            return columns[formula]

        graph = self._family.at(samples[0])
        wanted: dict[str, _Wanted | None] = {}
        for node in graph.nodes:
            if node.program is None or graph.is_view(node.name):
                continue
            if all(_text(self._node(s, node.name)) == _text(node) for s in samples[:known]):
                continue
            names = self._names_of(node.name)
            values = {
                (names[name], dim): column(formula)
                for (name, dim), formula in self._extents(node.name).items()
            }
            wanted[node.name] = None
            settled = node.name in self._pairs  # by code that is made already
            found = self._pairs_of(node.name, samples[0], values)
            for pairs in (found,) if settled or not found else (found, ()):
                self._pairs[node.name] = pairs
                try:
                    wanted[node.name] = self._asked(bucket, graph, node, samples, known, values)
                    break
                except ShapeError as error:
                    if settled or not pairs:
                        _log.info("%s is compiled for each size: %s", node.name, error)
        return wanted

    def _make(self, bucket: Span) -> _Made:
        wanted = self._wanted(bucket)
        graph = self._family.at(self._samples(bucket)[0][0])
        make_together(each.asked for each in wanted.values() if each is not None)
        made = _Made(bucket, [])
        for node in graph.nodes:
            if node.program is None:
                reason = "" if node.function in ENGINE else self._reason(node)
                made.stages.append(call_stage(node, None, reason))
            elif graph.is_view(node.name):
                made.stages.append(view_stage(node, (node.name,)))
            elif node.name not in wanted:
                made.stages.append(
                    kernel_stage(
                        graph,
                        node,
                        _cut(graph, self._weights),
                        (node.name,),
                        threads=self._compiling.threads,
                        cache=self._compiling.cache,
                    )
                )
            else:
                each = wanted[node.name]
                stage = None if each is None else self._general_stage(made, node, each)
                made.stages.append(stage)
        return made

    def _check_beginning(self, made: _Made, bucket: Span) -> None:
        """Holds code that is made for more than a bucket against the interpreter at the bucket's own least sizes, too; a node
        whose code computes something else there is compiled for each size."""
        sizes = self._least_of(bucket)
        outcomes: dict[tuple[int, str], bool] = {}
        for place, stage in enumerate(made.stages):
            if stage is None or stage.name not in made.general:
                continue
            kernels, places = made.general[stage.name]
            program = self._neutral(sizes, stage.name)
            key = id(kernels), str(program.text())  # equal layers share them
            if key not in outcomes:
                try:
                    checked_at(
                        kernels.codes,
                        {tuple(_values_at(program, places)): program},
                        about=(str(kernels.schedule.text()),),
                        directory=usable_cache() if self._compiling.cache else None,
                    )
                    outcomes[key] = True
                except NotTheSame as error:
                    _log.info("%s is compiled for each size: %s", stage.name, error)
                    outcomes[key] = False
            if not outcomes[key]:
                made.stages[place] = None
                del made.general[stage.name]

    def _node(self, sizes: Sizes, name: str) -> _core.GraphNode:
        found = self._nodes.get(sizes)
        if found is None:
            made = {node.name: node for node in self._family.at(sizes).nodes}
            found = self._nodes.setdefault(sizes, made)
        return found[name]

    def _extents(self, name: str) -> dict[At, Formula]:
        """A program's extents that are not the same at all sizes."""
        found: dict[At, Formula] = {}
        programs = {
            sizes: _program(next(node for node in graph.nodes if node.name == name))
            for sizes, graph in self._graphs.items()
        }
        first = programs[self._base]
        for tensor in first.tensors:
            for dim in range(len(first.shape(tensor))):
                values = {sizes: int(each.shape(tensor)[dim]) for sizes, each in programs.items()}
                if len(set(values.values())) > 1:
                    what = f"the extent {dim} of {tensor} in {name}"
                    found[tensor, dim] = self._numbers.formula(values, what)
        return found

    def _reason(self, node: _core.GraphNode) -> str:
        for note in self._imported[self._base].network.notes:
            if note.startswith(node.function):
                return note.removeprefix(node.function).lstrip(": ")
        return "no row"

    def _asked(
        self,
        span: Span,
        graph: _core.Graph,
        node: _core.GraphNode,
        samples: Sequence[Sizes],
        known: int,
        extents: Mapping[At, Sequence[int]],
    ) -> _Wanted:
        """The kernel of a node for all sizes of a bucket.

        Raises:
            ShapeError: its extents follow from none of them.
        """
        pairs = self._pairs[node.name]
        at, enough = parameters(columns_merged(extents, pairs), range(known))
        names = self._names_of(node.name)
        programs = {
            samples[n]: self._neutral(samples[n], node.name)
            for n in (*range(known), *enough[known:])
        }
        largest = programs[samples[0]]
        low, high = self._least_of(span), span[1]
        draw = random.Random(repr((low, high)))
        between = [
            tuple(draw.randint(*ends) for ends in zip(low, high, strict=True)) for _ in range(2)
        ]
        checks = {}
        for sizes in dict.fromkeys([low, high, *between]):
            program = self._neutral(sizes, node.name)
            checks[tuple(_values_at(program, at))] = program
        instances = [(tuple(_values_at(each, at)), each) for each in programs.values()]
        if pairs:
            names_of_sizes = [f"size_{n + 1}" for n in range(len(at))]
            _core.with_live_ends([(list(sizes), each) for sizes, each in instances], names_of_sizes)
        ends = zip(_values_at(programs[low], at), _values_at(programs[high], at), strict=True)
        constants = {names[name] for name in constants_of(graph, node)}
        return _Wanted(
            Asked(
                instances,
                [Range(f"size_{n + 1}", *each) for n, each in enumerate(ends)],
                checks,
                tuple(
                    name
                    for name in largest.inputs
                    if name in constants
                    and all(each.shape(name) == largest.shape(name) for each in programs.values())
                ),
                str(graph.tensor(node.outputs[0])[1]),
                self._compiling.threads,
                self._compiling.cache,
            ),
            at,
        )

    def _names_of(self, name: str) -> dict[str, str]:
        """Of a node's program, those that equal layers share; the same ones at all sizes."""
        found = self._names.get(name)
        if found is None:
            program = _program(self._node(self._base, name))
            found = self._names.setdefault(name, neutral_names(program))
        return found

    def _pairs_of(
        self, name: str, largest: Sizes, extents: Mapping[At, Sequence[int]]
    ) -> tuple[At, ...]:
        """Neighbouring dimensions of a node that are one to its code."""
        if name not in self._pairs:
            programs = [self._unmerged(sizes, name) for sizes in (largest, *self._graphs)]
            self._pairs[name] = pairs_of(programs, extents)
        return self._pairs[name]

    def _neutral(self, sizes: Sizes, name: str) -> _core.Program:
        """A node's program as its code has it."""
        return self._merged(name, self._unmerged(sizes, name))

    def _unmerged(self, sizes: Sizes, name: str) -> _core.Program:
        return _program(self._node(sizes, name)).renamed(self._names_of(name))

    def _merged(self, name: str, program: _core.Program) -> _core.Program:
        return merged(program, self._pairs.get(name, ()))

    def _general_stage(self, made: _Made, node: _core.GraphNode, wanted: _Wanted) -> Stage | None:
        """A kernel for all sizes of a bucket; None where each size needs its own."""
        asked, largest = wanted.asked, wanted.asked.instances[0][1]
        most = [each.greatest for each in asked.ranges]
        try:
            kernels = ranged_kernels(asked)
        except (ShapeError, ScheduleError, NotTheSame) as error:
            _log.info("%s is compiled for each size: %s", node.name, error)
            return None
        operator = Operator(largest)
        kernel = PrepackedKernel(
            operator,
            tuple(asked.constants),
            asked.dtype,
            asked.threads,
            kernels.schedule,
            kernels.prepack,
            kernels.call.at(most),
            Verification(**vars(kernels.outcome), operator=operator, dtype=asked.dtype),
        )
        held = dict(zip(largest.inputs, node.inputs, strict=True))
        held |= zip(largest.outputs, node.outputs, strict=True)
        made.general[node.name] = (kernels, wanted.places)
        return Stage(
            node.name,
            "kernel",
            tuple(node.inputs),
            tuple(node.outputs),
            (node.name,),
            str(largest.short_text()),
            kernel=kernel,
            packed=made.packings.pack(kernel, held, self._weights),
            operator=operator,
            names=held,
            flops=operator.flops,
        )

    # Linking

    def _linked(self, bucket: Span, sizes: Sizes) -> Linked:
        """The network at sizes of a bucket, by its machine code."""
        network = self._network(self._made_of(bucket), sizes)
        return Linked(sizes, network, self.imported_at(sizes), self._parts)

    def _network(self, made: _Made, sizes: Sizes) -> CompiledNetwork:
        graph = self._family.at(sizes)
        stages = []
        codes: dict[tuple[int, tuple[int, ...]], _core.Kernel] = {}  # equal layers share them
        for node, stage in zip(graph.nodes, made.stages, strict=True):
            if stage is not None and node.name in made.general:
                program = _program(node).renamed(self._names_of(node.name))
                kernels, places = made.general[node.name]
                pairs = self._pairs.get(node.name, ())
                stage = _sized(stage, program, pairs, kernels.call, places, codes)
            elif stage is not None and node.name in self._hosts:
                host = self._hosts[node.name](sizes)
                stage = replace(stage, host=host, attributes=node.attributes)
            elif stage is not None and stage.kind in ("engine", "view"):
                stage = replace(stage, attributes=node.attributes)
            if stage is None:
                stage = kernel_stage(
                    graph,
                    node,
                    _cut(graph, self._weights),
                    (node.name,),
                    threads=self._compiling.threads,
                    cache=self._compiling.cache,
                )
            stages.append(stage)
        return _AtSize(graph, stages, self._weights, self._shared, self._compiling.threads)

    def _to_check(self) -> dict[Sizes, Imported]:
        """The network at the sizes that it was recorded at, as far as the code for the whole range is for these."""
        if not self._compiling.verify:
            return {}
        regular = self._least_of(self.whole), self.whole[1]
        return {sizes: each for sizes, each in self._imported.items() if _holds(regular, sizes)}

    def _check(self, check: WholeCheck) -> None:
        """The whole network against float64, by the code for the whole range."""
        made = self._made[self.whole]
        for sizes in check.sizes:
            found = check.judged(self._network(made, sizes), sizes)
            if not found:
                name = self._imported[sizes].network.name
                raise KernelError(f"[dynamic] {name} at {told(self.ranges.names, sizes)}: {found}")


def _program(node: _core.GraphNode) -> _core.Program:
    assert node.program is not None
    return node.program


def _text(node: _core.GraphNode) -> str:
    return str(_program(node).text())


def _with(sizes: Sizes, position: int, size: int) -> Sizes:
    return (*sizes[:position], size, *sizes[position + 1 :])


def _holds(span: Span, sizes: Sizes) -> bool:
    return all(low <= size <= high for low, size, high in zip(span[0], sizes, span[1], strict=True))


def _span_text(span: Span) -> str:
    return ", ".join(f"{low}-{high}" for low, high in zip(*span, strict=True))


def _rounded(size: int) -> int:
    """Up to whole vectors; to halves, quarters of them and so on, where that would be more than a sixteenth larger."""
    unit = _VECTOR
    while -(-size // unit) * unit > size + size // _VECTOR:
        unit //= 2
    return -(-size // unit) * unit


def _sized(
    stage: Stage,
    program: _core.Program,
    pairs: Sequence[At],
    call: _core.Kernel,
    places: tuple[At, ...],
    codes: dict[tuple[int, tuple[int, ...]], _core.Kernel],
) -> Stage | None:
    """A stage at the sizes of a program; None where its code is not for what its node is there. `codes` are those made so
    far, by the code for all sizes and what its parameters are."""
    kernel = copy.copy(stage.kernel)
    assert kernel is not None
    try:
        key = id(call), tuple(_values_at(merged(program, pairs), places))
        if key not in codes:
            codes[key] = call.at(list(key[1]))
        kernel._call = viewed(codes[key], program) if pairs else codes[key]
    except ShapeError as error:
        _log.info("%s is compiled for this size: %s", stage.name, error)
        return None
    if shapes_differ(kernel._call, program):
        _log.info("%s is compiled for this size: its code has other shapes there", stage.name)
        return None
    kernel.operator = Operator(program)
    return replace(
        stage,
        kernel=kernel,
        operator=kernel.operator,
        what=str(program.short_text()),
        flops=kernel.operator.flops,
    )


def _values_at(program: _core.Program, places: Sequence[At]) -> list[int]:
    return [int(program.shape(name)[dim]) for name, dim in places]


def _check_weights(largest: Mapping[str, Array], others: Mapping[str, Array], where: str) -> None:
    """That weights are the beginnings of those of the largest sizes."""
    for name, array in others.items():
        held = largest.get(name)
        whole_of = (
            held is not None
            and held.ndim == array.ndim
            and all(n <= most for n, most in zip(array.shape, held.shape, strict=True))
        )
        begin = _beginning(held, array.shape) if held is not None and whole_of else None
        same = begin is not None and (
            _same_memory(begin, array)
            or np.array_equal(begin, array, equal_nan=array.dtype.kind == "f")
        )
        if not same:
            raise ShapeError(f"[dynamic] {name} at {where} is no part of what it is at the largest")


def _same_memory(one: Array, other: Array) -> bool:
    """Of two arrays of one shape."""
    return (
        one.dtype == other.dtype
        and one.strides == other.strides
        and one.ctypes.data == other.ctypes.data
    )


__all__ = ["DynamicNetwork", "Linked"]
