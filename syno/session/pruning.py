"""When a candidate is given up: by what is known before training, and by its learning curve."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy

from syno.session.config import Prune
from syno.session.records import Candidate, allowed_drop

Curve = Sequence[tuple[float, float]]  # (share of the steps done, metric), ascending


@dataclass(frozen=True)
class Training:
    """A training to compare with, as far as it went."""

    candidate: Candidate
    curve: Curve
    finished: bool = True


def not_worth_training(candidate: Candidate, baseline: Candidate, prune: Prune) -> str | None:
    """A reason to skip the training altogether, or ``None``: a cost beyond its limit."""
    for name, ratio, own, reference in (
        ("latency", prune.max_latency_ratio, candidate.latency_us, baseline.latency_us),
        ("FLOPs", prune.max_flops_ratio, candidate.flops, baseline.flops),
        ("parameters", prune.max_params_ratio, candidate.params, baseline.params),
    ):
        if ratio is None or own is None or not reference:
            continue
        if own > ratio * reference:
            return f"{name} {own / reference:.2f} times the original's, limit {ratio:g}"
    return None


class Floors:
    """What curves must reach, as more and more trainings are known: :func:`curve_floors` for many candidates, in the time
    of one, and :func:`halving_floors` where ``prune`` asks for it.

    A training is added once, and :meth:`now` costs nothing for those that were added before.
    """

    def __init__(self, known: Sequence[Training], baseline: Candidate, prune: Prune) -> None:
        self._baseline, self._prune = baseline, prune
        score = baseline.score
        self._sign = 1.0 if score is None or score.higher_is_better else -1.0
        self._count = 0
        self._costs = numpy.empty((64, 3))
        self._values = numpy.empty(64)
        self._candidates: list[Candidate] = []
        self._front: list[int] = []  # places that no earlier one makes superfluous
        self._gains: dict[
            float, tuple[float, int]
        ] = {}  # the most gained after a share, of how many
        self._passed: dict[float, list[float]] = {}  # values there of all trainings, ascending
        self._curves = 0
        for training in known:
            self.add(training)

    def add(self, training: Training) -> None:
        """One more training to compare with."""
        if training.candidate.kind != "baseline":
            self._curves += 1
            _pass(self._passed, training.curve, self._sign)
        if not training.finished or training.candidate.score is None or not training.curve:
            return
        if self._count == len(self._values):  # those given away by now() stay as they are
            self._costs = numpy.concatenate([self._costs, numpy.empty_like(self._costs)])
            self._values = numpy.concatenate([self._values, numpy.empty_like(self._values)])
        value = self._sign * _value(training.candidate)
        self._costs[self._count] = _costs(training.candidate)
        self._values[self._count] = value
        self._candidates.append(training.candidate)
        self._keep_on_front(self._count)
        self._count += 1
        last = {round(share, 6): metric for share, metric in training.curve if share < 1}
        for share, metric in last.items():
            gain = value - self._sign * metric
            most, seen = self._gains.get(share, (gain, 0))
            self._gains[share] = (max(most, gain), seen + 1)

    def _keep_on_front(self, place: int) -> None:
        """Takes a training among those that can be the best of all that cost no more than some candidate: of those with the
        same costs known, nobody is as cheap and as good. Who has become superfluous is taken off."""
        value, costs = self._values[place], self._costs[place]
        if math.isnan(value):
            return
        others, values = self._costs[self._front], self._values[self._front]
        unknown = numpy.isnan(costs)
        alike = (numpy.isnan(others) == unknown).all(axis=1)
        with numpy.errstate(invalid="ignore"):
            cheaper = ((others <= costs) | unknown).all(axis=1)
            dearer = ((others >= costs) | unknown).all(axis=1)
        if (alike & cheaper & (values >= value)).any():
            return
        kept = ~(alike & dearer & (values < value))
        self._front = [one for one, keep in zip(self._front, kept, strict=True) if keep]
        self._front.append(place)

    def now(self) -> FloorsNow:
        """What follows from the trainings added so far; those that come later change nothing of it."""
        prune, enough = self._prune, self._count >= self._prune.after
        gains = [
            (share, most)
            for share, (most, seen) in sorted(self._gains.items())
            if enough and seen >= prune.after
        ]
        halved: list[tuple[float, float]] = []
        if prune.keep is not None and self._baseline.score is not None:
            halved = _halved(self._passed, prune.keep, prune.after, self._sign)
        return FloorsNow(
            self._costs[: self._count],
            self._values[: self._count],
            self._candidates,
            numpy.array(self._front, dtype=int),
            gains if enough else None,
            halved,
            self._curves,
            self._baseline,
            prune,
        )

    def of(self, candidate: Candidate) -> tuple[list[tuple[float, float]], str]:
        """See :func:`curve_floors`."""
        return self.now().of(candidate)


@dataclass(frozen=True)
class FloorsNow:
    """What curves must reach after certain trainings: values ``[n]`` and costs ``[n, 3]`` of those that finished, in the
    order they became known, places of those that can be the best (``front``), what was gained after each share of the steps,
    and what the better ones had there."""

    costs: Any
    values: Any
    candidates: Sequence[Candidate]
    front: Any
    gains: Sequence[tuple[float, float]] | None
    halved: Sequence[tuple[float, float]]
    curves: int
    baseline: Candidate
    prune: Prune

    def of(self, candidate: Candidate) -> tuple[list[tuple[float, float]], str]:
        """Floors of a candidate's curve, and why."""
        floors, why = self._within_reach(candidate)
        if self.prune.keep is None or self.baseline.score is None:
            return floors, why
        best = f"not among the best {self.prune.keep:.0%} of {self.curves} earlier ones there"
        higher = self.baseline.score.higher_is_better
        strict = stricter(floors, self.halved, higher_is_better=higher)
        return strict, f"{best}, or {why}" if floors else best

    def _within_reach(self, candidate: Candidate) -> tuple[list[tuple[float, float]], str]:
        score = self.baseline.score
        if not self.gains or score is None:
            return [], ""
        prune, sign = self.prune, 1.0 if score.higher_is_better else -1.0
        allowed = allowed_drop(prune.max_drop, score.value, higher_is_better=sign > 0)
        target, stderr = sign * score.value - allowed, score.stderr
        why = f"it cannot come within {prune.max_drop:g} of the original"
        best = self._best_as_cheap(candidate)
        if best is not None and self.values[best] > target:
            other = self.candidates[best]
            assert other.score is not None
            target, stderr = float(self.values[best]), other.score.stderr
            why = f"{other.id} costs no more and is better"
        if not math.isfinite(target):
            return [], ""
        return [
            (share, sign * (target - gain - prune.margin * stderr)) for share, gain in self.gains
        ], why

    def _best_as_cheap(self, candidate: Candidate) -> int | None:
        """The place of the best one that costs no more, of those that have a cost in common with a candidate."""
        best = self._best_among(self.front, candidate)
        if best is None or self.candidates[best].number != candidate.number:
            return best
        # The candidate itself: another may be superfluous only beside it.
        numbers = [one.number for one in self.candidates[: len(self.values)]]
        others = [place for place, number in enumerate(numbers) if number != candidate.number]
        return self._best_among(numpy.array(others, dtype=int), candidate)

    def _best_among(self, places: Any, candidate: Candidate) -> int | None:
        own, costs = numpy.array(_costs(candidate)), self.costs[places]
        known = ~numpy.isnan(costs) & ~numpy.isnan(own)
        with numpy.errstate(invalid="ignore"):
            cheaper = ((costs <= own) | ~known).all(axis=1) & known.any(axis=1)
        found = self.values[places]
        values = numpy.where(cheaper & ~numpy.isnan(found), found, -math.inf)
        if not values.size or values[best := int(numpy.argmax(values))] == -math.inf:
            return None
        return int(places[best])


def _costs(candidate: Candidate) -> list[float]:
    costs = (candidate.latency_us, candidate.flops, candidate.params)
    return [math.nan if cost is None else float(cost) for cost in costs]


def _value(candidate: Candidate) -> float:
    assert candidate.score is not None
    return candidate.score.value


def curve_floors(
    candidate: Candidate, finished: Sequence[Training], baseline: Candidate, prune: Prune
) -> tuple[list[tuple[float, float]], str]:
    """Points of the curve below which a training cannot end well, and why; none while too little is known.

    A candidate must get past the best finished one that costs no more than it in latency, FLOPs and
    parameters (else it is dominated), and to within ``max_drop`` of the baseline. What it may still gain
    after a point of the curve is taken as the most that any finished training gained after it.
    """
    alone = msgspec.structs.replace(prune, keep=None)
    return Floors(finished, baseline, alone).of(candidate)


def stricter(
    one: Sequence[tuple[float, float]],
    other: Sequence[tuple[float, float]],
    *,
    higher_is_better: bool,
) -> list[tuple[float, float]]:
    """Floors that a curve keeps when it keeps both; a floor holds until the next of its kind."""
    sign = 1.0 if higher_is_better else -1.0
    merged = []
    for share in sorted({share for share, _ in (*one, *other)}):
        holding = [[value for at, value in floors if at <= share][-1:] for floors in (one, other)]
        merged.append((share, sign * max(sign * value for values in holding for value in values)))
    return merged


def halving_floors(
    curves: Sequence[Curve], keep: float, after: int, *, higher_is_better: bool
) -> list[tuple[float, float]]:
    """Points that only the best share ``keep`` of earlier trainings passed: asynchronous successive halving.

    Of the n curves that have a point, a training must reach the value of the ``floor(keep * n)``-th best
    (Li et al., *A System for Massively Parallel Hyperparameter Tuning*, 2020). Trainings that were stopped
    count up to where they came, so that each point sees those that passed the points before it.

    Args:
        curves: of every earlier training, stopped ones too.
        after: curves that must have a point before it stops anyone.
    """
    sign = 1.0 if higher_is_better else -1.0
    passed: dict[float, list[float]] = {}
    for curve in curves:
        _pass(passed, curve, sign)
    return _halved(passed, keep, after, sign)


def _pass(passed: dict[float, list[float]], curve: Curve, sign: float) -> None:
    """Adds a curve's values to those of others, by the share of the steps, ascending with what is better."""
    for share, value in curve:
        if share < 1:
            insort(passed.setdefault(round(share, 6), []), sign * value)


def _halved(
    passed: dict[float, list[float]], keep: float, after: int, sign: float
) -> list[tuple[float, float]]:
    return [
        (share, sign * values[-max(1, math.floor(keep * len(values)))])
        for share, values in sorted(passed.items())
        if len(values) >= after
    ]
