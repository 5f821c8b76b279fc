"""Networks for sizes that calls bring along: compiled for ranges, linked for the sizes of a call as they are first seen.

A network is recorded at a few sizes; what it is at others follows (`syno.graph.families`). Each of its kernels is one
machine code for a range of sizes (`syno.kernels.dynamic`), with its weights packed once; sizes that were not seen yet take no
compilation, but a plan of the memory between the steps, and addresses. What PyTorch computes, it computes at the sizes
of the call. Where a network is another one at other sizes, each size is compiled on its own.
"""

from __future__ import annotations

import copy
import itertools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from syno import _core
from syno.errors import ArgumentError, KernelError, ScheduleError, ShapeError
from syno.graph.building import Array, Network
from syno.graph.calls import Imported
from syno.graph.compile import Compiling, compile_network
from syno.graph.compiled import CompiledNetwork
from syno.graph.extents import Sizes
from syno.graph.families import told
from syno.graph.folding import Folded
from syno.graph.from_torch import CannotImport
from syno.graph.merging import merged, viewed
from syno.graph.parameters import At
from syno.graph.ranged_stages import RangedStages, SpanCode, values_at
from syno.graph.recordings import Record, Recordings, program_of
from syno.graph.shared_weights import cut_weights
from syno.graph.sizes import Ranges
from syno.graph.spans import KEPT_SIZES, Span, holds, span_text
from syno.graph.stages import Stage, kernel_stage
from syno.graph.whole_check import WholeCheck
from syno.kernels.ranged import shapes_differ
from syno.operators.operator import Operator
from syno.support.bounded import Bounded
from syno.support.notebook import Printed

_log = logging.getLogger("syno.graph")


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
        super().__init__(graph, stages, cut_weights(graph, weights), threads=threads)

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
        super().update_weights(cut_weights(self.graph, weights))


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
        self._made: dict[Span, SpanCode] = {}
        self._busy: dict[Span, threading.Thread] = {}
        self._shared: dict[str, Array] = {}
        self._single: dict[tuple[int, ...], DynamicNetwork] = {}
        self.by_size = ""
        self.whole: Span = ranges.whole
        self.buckets: tuple[Span, ...] = (self.whole,)
        try:
            with torch.no_grad():
                self._recordings = Recordings(
                    record, ranges, self._compiling, proven=proven, fits=fits
                )
                self._code = RangedStages(self._recordings)
                with WholeCheck(self._to_check(), values) as check:
                    made = self._made_of(self.whole)
                    # Weights that are read as they are get memory of their own when a network is first linked.
                    copied = check.do(self._network, made, ranges.greatest)
                    self.buckets = self._code.buckets()
                    # Its code is made for the same largest sizes.
                    self._made[self.buckets[-1]] = made
                    self._code.check_beginning(made, self.buckets[-1])
                    copied.result()
                    self._check(check)
        except (ShapeError, ScheduleError, CannotImport) as error:
            self.by_size = str(error)
            self.at(ranges.greatest)

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
            if not self._recordings.is_regular(sizes):
                return self._linked_at.setdefault(sizes, self._alone(sizes))
            bucket = next(each for each in self.buckets if holds(each, sizes))
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
        ready = "; ".join(map(span_text, self.ready))
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
            if size == 1 and self.ranges.greatest[p] > 1 and p not in self._recordings.plain_ones
        )

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

    def single_positions(self) -> list[tuple[int, ...]]:
        """Positions of sizes that make another network together where they are one."""
        can = [
            p
            for p, (low, high) in enumerate(zip(*self.whole, strict=True))
            if low == 1 < high and p not in self._recordings.plain_ones
        ]
        return [each for n in range(1, len(can) + 1) for each in itertools.combinations(can, n)]

    def regular_span(self, bucket: Span) -> Span | None:
        """The sizes of a bucket at which the network is that of most; None where there are none.

        Raises:
            ArgumentError: some others are each compiled on their own.
        """
        least = self._recordings.least_of(bucket)
        for p, (low, first) in enumerate(zip(bucket[0], least, strict=True)):
            alone = range(low + (low == 1), min(first, bucket[1][p] + 1))
            if alone:
                raise ArgumentError(
                    f"[export] the network is another one at each {self.ranges.names[p]} from {alone[0]} to {alone[-1]}",
                    fix=f"compile it for {self.ranges.names[p]} from {alone[-1] + 1} on, and export that",
                )
        ends = zip(bucket[0], bucket[1], strict=True)
        if any(
            low == high == 1
            and p not in self._recordings.plain_ones
            and self.ranges.greatest[p] > 1
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
            return self._recordings.is_regular(sizes)

    def made_of(self, bucket: Span) -> SpanCode:
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
        nodes = self._recordings.family.at(bucket[1]).nodes
        return [
            node
            for node, stage in zip(nodes, self.made_of(bucket).stages, strict=True)
            if stage is None
        ]

    def values_of(self, linked: Linked, name: str, places: tuple[At, ...]) -> list[int]:
        """What the parameters of a step's code are in a network."""
        program = program_of(next(n for n in linked.network.graph.nodes if n.name == name))
        return values_at(
            self._code.merged(name, program.renamed(self._recordings.names_of(name))), places
        )

    def _make_beside(self, bucket: Span) -> None:
        if bucket not in self._busy:
            self._busy[bucket] = threading.Thread(
                target=self._make_quietly, args=(bucket,), daemon=True
            )
            self._busy[bucket].start()

    def _make_quietly(self, bucket: Span) -> None:
        try:
            with torch.no_grad():
                made = self._code.make(bucket)
            with self._lock:
                self._made[bucket] = made
                self._meanwhile = Bounded(KEPT_SIZES)
        except Exception as error:  # whoever calls goes on with what there is
            _log.warning("no better code for the sizes %s: %s", span_text(bucket), error)

    def _made_of(self, bucket: Span) -> SpanCode:
        with self._lock:
            if bucket not in self._made:
                self._made[bucket] = self._code.make(bucket)
            return self._made[bucket]

    def _linked(self, bucket: Span, sizes: Sizes) -> Linked:
        """The network at sizes of a bucket, by its machine code."""
        network = self._network(self._made_of(bucket), sizes)
        return Linked(sizes, network, self._recordings.imported_at(sizes), self._recordings.parts)

    def _network(self, made: SpanCode, sizes: Sizes) -> CompiledNetwork:
        graph = self._recordings.family.at(sizes)
        stages = []
        codes: dict[tuple[int, tuple[int, ...]], _core.Kernel] = {}  # equal layers share them
        for node, stage in zip(graph.nodes, made.stages, strict=True):
            if stage is not None and node.name in made.general:
                program = program_of(node).renamed(self._recordings.names_of(node.name))
                kernels, places = made.general[node.name]
                pairs = self._code.pairs.get(node.name, ())
                stage = _sized(stage, program, pairs, kernels.call, places, codes)
            elif stage is not None and node.name in self._recordings.hosts:
                host = self._recordings.hosts[node.name](sizes)
                stage = replace(stage, host=host, attributes=node.attributes)
            elif stage is not None and stage.kind in ("engine", "view"):
                stage = replace(stage, attributes=node.attributes)
            if stage is None:
                stage = kernel_stage(
                    graph,
                    node,
                    cut_weights(graph, self._recordings.weights),
                    (node.name,),
                    threads=self._compiling.threads,
                    cache=self._compiling.cache,
                )
            stages.append(stage)
        return _AtSize(
            graph, stages, self._recordings.weights, self._shared, self._compiling.threads
        )

    def _to_check(self) -> dict[Sizes, Imported]:
        """The network at the sizes that it was recorded at, as far as the code for the whole range is for these."""
        if not self._compiling.verify:
            return {}
        regular = self._recordings.least_of(self.whole), self.whole[1]
        return {
            sizes: each
            for sizes, each in self._recordings.imported.items()
            if holds(regular, sizes)
        }

    def _check(self, check: WholeCheck) -> None:
        """The whole network against float64, by the code for the whole range."""
        made = self._made[self.whole]
        for sizes in check.sizes:
            found = check.judged(self._network(made, sizes), sizes)
            if not found:
                name = self._recordings.imported[sizes].network.name
                raise KernelError(f"[dynamic] {name} at {told(self.ranges.names, sizes)}: {found}")


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
        key = id(call), tuple(values_at(merged(program, pairs), places))
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


__all__ = ["DynamicNetwork", "Linked"]
