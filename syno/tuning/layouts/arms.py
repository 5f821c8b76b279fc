"""The loops of one layout, explored: candidates by mutation, picked by a cost model, with what they took."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from syno import _core
from syno.tuning.cost_model import CostModel
from syno.tuning.layouts.instance import Instance
from syno.tuning.layouts.space import LoopSpace
from syno.tuning.records import Record

_CHILDREN, _PARENTS = 32, 8
#: What begins a layout's exploration is predicted to take at most this many times what is predicted to be fastest.
_FAR_BEHIND = 3.0


@dataclass(frozen=True)
class Trial:
    """A measured schedule."""

    candidate: _core.Candidate
    schedule: _core.Schedule
    record: Record

    @property
    def ran(self) -> bool:
        return self.record.outcome == "ok"


Picked = tuple[_core.Candidate, _core.Schedule, str]


@dataclass
class Arm:
    """One layout. Its trials are in the order in which they were measured."""

    choice: Instance | None
    """None: as the program has it."""
    layouts: dict[str, str]
    space: LoopSpace
    trials: list[Trial] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return "as it lies" if self.choice is None else str(self.choice)

    def ranked(self) -> list[Trial]:
        return sorted((t for t in self.trials if t.ran), key=lambda t: t.record.median_us)

    @property
    def best_us(self) -> float:
        return min((t.record.median_us for t in self.trials if t.ran), default=math.inf)

    def predicted_us(self, model: CostModel) -> float:
        """The least of its beginnings, corrected by what was learned."""
        starts = self._near()
        if not starts:
            return math.inf
        scores = _scores(starts, model)
        return float(2.0 ** scores.min() * 1e6)

    def beginnings(self, most: int) -> list[Picked]:
        made: list[Picked] = []
        for candidate in self._near():
            if len(made) == most:
                break
            one = self._new(candidate, "counted")
            if one is not None:
                made.append(one)
        return made

    def _near(self) -> list[_core.Candidate]:
        if not hasattr(self, "_starts"):
            starts = self.space.starts()
            least = min((c.predicted_s for c in starts), default=0.0)
            self._starts = [c for c in starts if c.predicted_s <= _FAR_BEHIND * least]
        return self._starts

    def pick(
        self, count: int, model: CostModel, epsilon: float, random: np.random.Generator
    ) -> list[Picked]:
        """The best by the model, some by chance; none that was tried."""
        pool: dict[str, tuple[_core.Candidate, str]] = {}
        for candidate, origin in self._children(random):
            text = str(candidate.schedule.text())
            if text not in self.seen:
                pool.setdefault(text, (candidate, origin))
        members = list(pool.values())
        if not members:
            return []
        scores = _scores([candidate for candidate, _ in members], model)
        order = [int(i) for i in np.argsort(scores, kind="stable")]
        picked: list[Picked] = []
        while len(picked) < count and order:
            at = int(random.integers(len(order))) if random.random() < epsilon else 0
            one = self._new(*members[order.pop(at)])
            if one is not None:
                picked.append(one)
        return picked

    def _new(self, candidate: _core.Candidate, origin: str) -> Picked | None:
        text = str(candidate.schedule.text())
        if text in self.seen:
            return None
        self.seen.add(text)
        schedule = self.space.whole(candidate.schedule)
        return None if schedule is None else (candidate, schedule, origin)

    def _children(self, random: np.random.Generator) -> Iterator[tuple[_core.Candidate, str]]:
        parents = [trial.candidate for trial in self.ranked()[:_PARENTS]] or self._near()[:1]

        def seed() -> int:
            return int(random.integers(2**62))

        for _ in range(_CHILDREN):
            draw = random.random()
            if not parents or draw < 0.3:
                made, origin = self.space.sample(seed()), "sampled"
            elif draw < 0.9:
                parent = parents[int(random.integers(len(parents)))]
                made, origin = self.space.mutate(parent, seed()), "mutated"
            else:
                one, other = (parents[int(random.integers(len(parents)))] for _ in range(2))
                made, origin = self.space.cross(one, other, seed()), "crossed"
            if made is not None:
                yield made, origin


def learn(model: CostModel, trials: list[Trial]) -> None:
    """One model for all layouts: what loops are like is what its features say, whatever the layout."""
    ran = [trial for trial in trials if trial.ran]
    if not ran:
        return
    features = np.array([trial.candidate.features for trial in ran])
    targets = np.log2(
        [t.record.median_us * 1e-6 / max(t.candidate.predicted_s, 1e-12) for t in ran]
    )
    model.fit(features, targets)


def _scores(
    candidates: list[_core.Candidate], model: CostModel
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    features = np.array([candidate.features for candidate in candidates])
    predicted = np.log2([max(candidate.predicted_s, 1e-12) for candidate in candidates])
    return np.asarray(predicted + model.predict(features))
