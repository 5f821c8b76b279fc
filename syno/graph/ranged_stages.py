"""Machine code of a network's nodes for ranges of its sizes: which ranges, with what as parameters, held against the interpreter."""

from __future__ import annotations

import functools
import itertools
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from syno import _core
from syno.errors import ScheduleError, ShapeError
from syno.graph.buckets import Predicted, cut, looked_at
from syno.graph.extents import Formula, Sizes
from syno.graph.fusing import constants_of
from syno.graph.merging import columns_merged, merged, pairs_of
from syno.graph.parameters import At, parameters
from syno.graph.recordings import Recordings, program_of
from syno.graph.shared_weights import cut_weights
from syno.graph.spans import Span, rounded, with_size
from syno.graph.stages import ENGINE, Packings, Stage, call_stage, kernel_stage, view_stage
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
    ranged_kernels,
)
from syno.operators.operator import Operator

_log = logging.getLogger("syno.graph")

#: Of a size, values at which extents are compared with what code makes of them: spread over a bucket, and the last ones.
_SAMPLES = 48


@dataclass
class SpanCode:
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


class RangedStages:
    """Makes the code of a network for spans of its sizes.

    Attributes:
        pairs: by node, neighbouring dimensions that are one to its code.
    """

    def __init__(self, recordings: Recordings) -> None:
        self.recordings = recordings
        self.whole: Span = recordings.ranges.whole
        self.pairs: dict[str, tuple[At, ...]] = {}

    def samples(self, bucket: Span) -> tuple[list[Sizes], int]:
        """Sizes of a bucket, the largest first, which code for it is made for; how many of them are always looked at."""
        low, high = self.recordings.least_of(bucket), bucket[1]
        largest = tuple(
            min(rounded(n), max(m, n)) for n, m in zip(high, self.recordings.base, strict=True)
        )
        middle = tuple((n + m) // 2 for n, m in zip(low, largest, strict=True))
        sizes = [largest, high, low, middle]
        for position, ends in enumerate(zip(low, middle, largest, strict=True)):
            sizes += [
                with_size(largest, position, size)
                for size in (*ends[:2], max(ends[2] - 1, ends[0]))
            ]
        known = list(dict.fromkeys(sizes))
        for position, (least, most) in enumerate(zip(low, largest, strict=True)):
            steps = range(least, most + 1, max(1, (most - least) // _SAMPLES))
            last = range(max(least, most - _SAMPLES), most + 1)
            sizes += [with_size(largest, position, size) for size in (*steps, *last)]
        return list(dict.fromkeys(sizes)), len(known)

    def buckets(self) -> tuple[Span, ...]:
        """Buckets of which the code loses little at all of their sizes, by prediction: cuts of each size, the others being
        at their greatest."""
        predicted = Predicted()
        greatest = self.whole[1]
        wanted = self.wanted(self.whole)
        predicted.together(
            (self.neutral(with_size(greatest, position, max(size, least)), name), each.asked)
            for position, (ends, least) in enumerate(
                zip(
                    zip(*self.whole, strict=True), self.recordings.least_of(self.whole), strict=True
                )
            )
            for size in looked_at(*ends)
            for name, each in wanted.items()
            if each is not None
        )

        def loss(position: int, high: int, low: int) -> float:
            low = max(low, self.recordings.least_of(self.whole)[position])
            if low >= high:
                return 0.0
            span = self.whole[0], with_size(greatest, position, high)
            return self._loss(predicted, span, with_size(greatest, position, low))

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
            (self.neutral(sizes, name), wanted)
            for name, wanted in self.wanted(span).items()
            if wanted is not None
        ]
        predicted.together([(program, wanted.asked) for program, wanted in every])
        for program, wanted in every:
            own = predicted.alone(program, wanted.asked)
            found = predicted.shared(wanted.asked, values_at(program, wanted.places))
            alone += own
            shared += own if found is None else found
        return shared / alone - 1 if alone > 0 else 0.0

    def wanted(self, bucket: Span) -> dict[str, _Wanted | None]:
        """Of the nodes that change with sizes, the kernels for a bucket; None where each size needs its own."""
        samples, known = self.samples(bucket)
        columns: dict[Formula, list[int]] = {}

        def column(formula: Formula) -> list[int]:
            if formula not in columns:
                columns[formula] = [formula.at(sizes) for sizes in samples]
            return columns[formula]

        graph = self.recordings.family.at(samples[0])
        wanted: dict[str, _Wanted | None] = {}
        for node in graph.nodes:
            if node.program is None or graph.is_view(node.name):
                continue
            if all(
                _text_of(self.recordings.node(s, node.name)) == _text_of(node)
                for s in samples[:known]
            ):
                continue
            names = self.recordings.names_of(node.name)
            values = {
                (names[name], dim): column(formula)
                for (name, dim), formula in self.recordings.extents(node.name).items()
            }
            wanted[node.name] = None
            settled = node.name in self.pairs  # by code that is made already
            found = self._pairs_of(node.name, samples[0], values)
            for pairs in (found,) if settled or not found else (found, ()):
                self.pairs[node.name] = pairs
                try:
                    wanted[node.name] = self._asked(bucket, graph, node, samples, known, values)
                    break
                except ShapeError as error:
                    if settled or not pairs:
                        _log.info("%s is compiled for each size: %s", node.name, error)
        return wanted

    def make(self, bucket: Span) -> SpanCode:
        wanted = self.wanted(bucket)
        graph = self.recordings.family.at(self.samples(bucket)[0][0])
        make_together(each.asked for each in wanted.values() if each is not None)
        made = SpanCode(bucket, [])
        for node in graph.nodes:
            if node.program is None:
                reason = "" if node.function in ENGINE else self.recordings.reason(node)
                made.stages.append(call_stage(node, None, reason))
            elif graph.is_view(node.name):
                made.stages.append(view_stage(node, (node.name,)))
            elif node.name not in wanted:
                made.stages.append(
                    kernel_stage(
                        graph,
                        node,
                        cut_weights(graph, self.recordings.weights),
                        (node.name,),
                        threads=self.recordings.compiling.threads,
                        cache=self.recordings.compiling.cache,
                    )
                )
            else:
                each = wanted[node.name]
                stage = None if each is None else self._general_stage(made, node, each)
                made.stages.append(stage)
        return made

    def check_beginning(self, made: SpanCode, bucket: Span) -> None:
        """Holds code that is made for more than a bucket against the interpreter at the bucket's own least sizes, too; a node
        whose code computes something else there is compiled for each size."""
        sizes = self.recordings.least_of(bucket)
        outcomes: dict[tuple[int, str], bool] = {}
        for place, stage in enumerate(made.stages):
            if stage is None or stage.name not in made.general:
                continue
            kernels, places = made.general[stage.name]
            program = self.neutral(sizes, stage.name)
            key = id(kernels), str(program.text())  # equal layers share them
            if key not in outcomes:
                try:
                    checked_at(
                        kernels.codes,
                        {tuple(values_at(program, places)): program},
                        about=(str(kernels.schedule.text()),),
                        directory=usable_cache() if self.recordings.compiling.cache else None,
                    )
                    outcomes[key] = True
                except NotTheSame as error:
                    _log.info("%s is compiled for each size: %s", stage.name, error)
                    outcomes[key] = False
            if not outcomes[key]:
                made.stages[place] = None
                del made.general[stage.name]

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
        pairs = self.pairs[node.name]
        at, enough = parameters(columns_merged(extents, pairs), range(known))
        names = self.recordings.names_of(node.name)
        programs = {
            samples[n]: self.neutral(samples[n], node.name)
            for n in (*range(known), *enough[known:])
        }
        largest = programs[samples[0]]
        low, high = self.recordings.least_of(span), span[1]
        draw = random.Random(repr((low, high)))
        between = [
            tuple(draw.randint(*ends) for ends in zip(low, high, strict=True)) for _ in range(2)
        ]
        checks = {}
        for sizes in dict.fromkeys([low, high, *between]):
            program = self.neutral(sizes, node.name)
            checks[tuple(values_at(program, at))] = program
        instances = [(tuple(values_at(each, at)), each) for each in programs.values()]
        if pairs:
            names_of_sizes = [f"size_{n + 1}" for n in range(len(at))]
            _core.with_live_ends([(list(sizes), each) for sizes, each in instances], names_of_sizes)
        ends = zip(values_at(programs[low], at), values_at(programs[high], at), strict=True)
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
                self.recordings.compiling.threads,
                self.recordings.compiling.cache,
            ),
            at,
        )

    def _pairs_of(
        self, name: str, largest: Sizes, extents: Mapping[At, Sequence[int]]
    ) -> tuple[At, ...]:
        """Neighbouring dimensions of a node that are one to its code."""
        if name not in self.pairs:
            programs = [self._unmerged(sizes, name) for sizes in (largest, *self.recordings.graphs)]
            self.pairs[name] = pairs_of(programs, extents)
        return self.pairs[name]

    def neutral(self, sizes: Sizes, name: str) -> _core.Program:
        """A node's program as its code has it."""
        return self.merged(name, self._unmerged(sizes, name))

    def _unmerged(self, sizes: Sizes, name: str) -> _core.Program:
        return program_of(self.recordings.node(sizes, name)).renamed(self.recordings.names_of(name))

    def merged(self, name: str, program: _core.Program) -> _core.Program:
        return merged(program, self.pairs.get(name, ()))

    def _general_stage(
        self, made: SpanCode, node: _core.GraphNode, wanted: _Wanted
    ) -> Stage | None:
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
            packed=made.packings.pack(kernel, held, self.recordings.weights),
            operator=operator,
            names=held,
            flops=operator.flops,
        )


def _text_of(node: _core.GraphNode) -> str:
    return str(program_of(node).text())


def values_at(program: _core.Program, places: Sequence[At]) -> list[int]:
    """The extents that a program has at places."""
    return [int(program.shape(name)[dim]) for name, dim in places]


__all__ = ["RangedStages", "SpanCode", "values_at"]
