"""Schedules for a program from records of its neighbours: pruned by their features, ranked by the machine model.

The CPU reading of ETO: a candidate has the sketch of a parent, its ratios of tasks, register tiles and packed bytes
to the parent's lie in [r1, r2], [1, r2] and [1, r2]. Several parents give the union of what each allows. Beyond the paper,
every second candidate is what the model ranks first whatever its sketch: where another sketch is better at the new
sizes, no parent leads to it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from syno import _core
from syno.errors import ShapeError, SynoError
from syno.kernels.construct import construct
from syno.machines.model import MachineModel, machine_model
from syno.support.notebook import Printed
from syno.tuning.records import Record
from syno.tuning.reuse.cpu_features import Features, features_of
from syno.tuning.reuse.names import renamed, sketch_of
from syno.tuning.reuse.shapes import Distance, Shape, comparable, distance, shape_of
from syno.tuning.reuse.transplant import transplanted

#: How much slower than the fastest known schedule the best candidate may be predicted to be.
GUARD = 0.10
#: By this factor a ratio may lie outside its range: tails make tiles and tasks uneven.
_SLACK = 1.25
#: Schedules drawn from the space and changed from its starts, of which those of a parent's sketch are looked at.
_DRAWN = 256


@dataclass(frozen=True)
class Parent:
    """A record that is reused, as it looks from the new program."""

    record: Record
    distance: Distance
    features: Features
    sketch: str
    schedule: _core.Schedule
    """In the names of the new program."""


@dataclass(frozen=True)
class Candidate:
    """A schedule worth measuring."""

    schedule: _core.Schedule
    predicted_s: float
    features: Features
    outside: float
    """How far its features lie outside a parent's ranges, in doublings; 0 inside."""
    origin: str
    """"transplanted", "reused", or "predicted": of another sketch than the parents'."""


@dataclass(frozen=True)
class Candidates(Printed):
    """What a reuse would measure, the most promising first."""

    ranked: tuple[Candidate, ...]
    parents: tuple[Parent, ...]
    gap: float
    """Predicted time of the best one / that of the fastest schedule known without measuring, - 1."""
    guard: float

    @property
    def search(self) -> bool:
        """Whether nothing here promises enough: a search should take its place."""
        return not self.ranked or self.gap > self.guard

    def __str__(self) -> str:
        head = f"{len(self.ranked)} candidates of {len(self.parents)} parents, {100 * self.gap:.1f} % behind"
        if self.search:
            head += ": search instead"
        return "\n".join(
            [head]
            + [
                f"  {c.predicted_s * 1e6:.3g} us predicted, {c.features.tasks} tasks, {c.features.tiles} tiles, "
                f"{c.features.packed_bytes} bytes packed ({c.origin})"
                for c in self.ranked
            ]
        )


def outside(distance: Distance, ratios: Sequence[float]) -> float:
    """How far ratios of tasks, tiles and packed bytes lie outside the ranges of a distance, in doublings."""
    far = 0.0
    for ratio, near in zip(ratios, (distance.r1, Fraction(1), Fraction(1)), strict=True):
        low, high = sorted((float(near), float(distance.r2)))
        far = max(far, math.log2(low / ratio / _SLACK), math.log2(ratio / high / _SLACK))
    return far


def candidates_for(
    program: _core.Program,
    records: Sequence[Record],
    *,
    threads: int = 1,
    dtype: str = "float32",
    machine: MachineModel | None = None,
    limit: int = 16,
    guard: float = GUARD,
    seed: int = 0,
) -> Candidates:
    """Candidates for a program from records of programs of its type.

    Args:
        program: a concrete one.
        records: of this machine; those of other types, or that do not compare with it, are left out.
        limit: candidates that are kept.
        guard: see `GUARD`.
        seed: of what is drawn; the result depends on the arguments only.
    Raises:
        ShapeError: `limit` < 1.
    """
    if limit < 1:
        raise ShapeError(f"[reuse] limit={limit}; at least one candidate has to be kept")
    machine = machine or machine_model()
    here = shape_of(program)
    parents = [p for p in (_parent(r, program, here, machine, threads) for r in records) if p]
    space = _core.ScheduleSpace(program, machine, dtype=dtype, threads=threads)
    made = construct(program, threads=threads, dtype=dtype, machine=machine, explain=False)
    least = made.predicted_s
    found: dict[str, Candidate] = {}
    drawn: dict[str, tuple[float, _core.Schedule]] = {}
    for schedule, predicted_s, origin in _pool(space, parents, program, here, seed):
        least = min(least, predicted_s)
        text = str(schedule.text())
        if origin == "sampled":
            origin = "reused"
            drawn.setdefault(text, (predicted_s, schedule))
        if text in found:
            continue
        sketch = sketch_of(schedule)
        alike = [p for p in parents if p.sketch == sketch or origin == "transplanted"]
        if not alike:
            continue
        try:
            features = features_of(program, schedule, machine, threads)
        except SynoError:  # of a nest that no model takes
            continue
        far = min(outside(p.distance, features.ratios(p.features)) for p in alike)
        found[text] = Candidate(schedule, predicted_s, features, max(0.0, far), origin)
    # What was measured to be good elsewhere comes before what is only predicted to be; whole doublings count.
    ranked = sorted(
        found.items(), key=lambda one: (math.ceil(one[1].outside), one[1].predicted_s, one[0])
    )
    reused = [candidate for _, candidate in ranked]
    kept = _with_one_moved(reused[:limit], reused)
    # The guard asks what the parents are good for.
    best = min((c.predicted_s for c in kept), default=math.inf)
    if kept:
        kept = _in_turns(kept, _predicted(drawn, found, program, machine, threads, limit), limit)
    return Candidates(tuple(kept), tuple(parents), max(0.0, best / least - 1), guard)


def _predicted(
    drawn: Mapping[str, tuple[float, _core.Schedule]],
    found: Mapping[str, Candidate],
    program: _core.Program,
    machine: MachineModel,
    threads: int,
    limit: int,
) -> list[Candidate]:
    """What the model ranks first of what was drawn at random, whatever its sketch: of changes to one schedule, all may be
    predicted wrongly alike."""
    first = sorted(drawn, key=lambda text: (drawn[text][0], text))[:limit]
    made = []
    for text in first:
        if text in found:
            made.append(found[text])
            continue
        predicted_s, schedule = drawn[text]
        try:
            features = features_of(program, schedule, machine, threads)
        except SynoError:  # of a nest that no model takes
            continue
        made.append(Candidate(schedule, predicted_s, features, 0.0, "predicted"))
    return made


def _in_turns(
    reused: Sequence[Candidate], predicted: Sequence[Candidate], limit: int
) -> list[Candidate]:
    """One of each in turn, none twice."""
    turns = [c for pair in itertools.zip_longest(reused, predicted) for c in pair if c is not None]
    kept = list({str(c.schedule.text()): c for c in turns}.values())[:limit]
    return _with_one_moved(kept, reused)


def _with_one_moved(kept: list[Candidate], reused: Sequence[Candidate]) -> list[Candidate]:
    """With the first transplanted one, if any, for the last that is merely reused."""
    moved = [c for c in reused if c.origin == "transplanted"]
    if moved and not any(c.origin == "transplanted" for c in kept):
        less = [place for place, c in enumerate(kept) if c.origin == "reused"]
        kept[less[-1] if less else -1] = moved[0]
    return kept


def _parent(
    record: Record, program: _core.Program, here: Shape, machine: MachineModel, threads: int
) -> Parent | None:
    try:
        theirs = _core.Program.parse(record.program)
        there = shape_of(theirs)
        if record.outcome != "ok" or not comparable(here, there):
            return None
        schedule = record.trace()
        features = features_of(theirs, schedule, machine, threads)
        mine = renamed(schedule, there, here)
    except SynoError:  # a record may be damaged, or of another version
        return None
    return Parent(record, distance(here, there), features, sketch_of(mine), mine)


def _seed(seed: int, number: int) -> int:
    """Of what is drawn, within what the engine takes."""
    return (seed * _DRAWN + number) % (1 << 62)


def _pool(
    space: _core.ScheduleSpace,
    parents: Sequence[Parent],
    program: _core.Program,
    here: Shape,
    seed: int,
) -> Iterator[tuple[_core.Schedule, float, str]]:
    for parent in parents:
        there = shape_of(_core.Program.parse(parent.record.program))
        moved = transplanted(parent.record.trace(), there, here, program)
        if moved is not None and (candidate := space.candidate(moved)) is not None:
            yield candidate.schedule, candidate.predicted_s, "transplanted"
            for i in range(_DRAWN // 4):
                changed = space.mutate(candidate, _seed(seed, i))
                if changed is not None:
                    yield changed.schedule, changed.predicted_s, "reused"
    starts = space.starts()
    for start in starts:
        yield start.schedule, start.predicted_s, "reused"
    for i in range(_DRAWN):
        drawn = space.sample(_seed(seed, i))
        if drawn is not None:
            yield drawn.schedule, drawn.predicted_s, "sampled"
    sketches = {parent.sketch for parent in parents}
    alike = [start for start in starts if sketch_of(start.schedule) in sketches]
    for start in alike:
        for i in range(_DRAWN // len(alike)):
            changed = space.mutate(start, _seed(seed, i))
            if changed is not None:
                yield changed.schedule, changed.predicted_s, "reused"
