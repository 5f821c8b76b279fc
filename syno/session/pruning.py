"""When a candidate is given up: by what is known before training, and by its learning curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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
    """What the curves of one batch must reach: :func:`curve_floors` for many candidates, in the time of one.

    What finished trainings gained after each point of the curve is the same for all; who costs no more than a candidate
    is found in all of them at once.
    """

    def __init__(self, finished: Sequence[Training], baseline: Candidate, prune: Prune) -> None:
        self._usable = [f for f in finished if f.candidate.score is not None and f.curve]
        self._baseline, self._prune = baseline, prune
        if baseline.score is None or len(self._usable) < prune.after:
            self._usable = []
            return
        self._sign = 1.0 if baseline.score.higher_is_better else -1.0
        self._costs = numpy.array([_costs(f.candidate) for f in self._usable])
        self._values = numpy.array([self._sign * _value(f.candidate) for f in self._usable])
        self._numbers = numpy.array([f.candidate.number for f in self._usable])
        self._gains = self._most_gained()

    def _most_gained(self) -> list[tuple[float, float]]:
        """At each share of the steps, the most that any training gained after it, where enough were seen there."""
        gains: dict[float, list[float]] = {}
        for other, value in zip(self._usable, self._values, strict=True):
            last = {round(share, 6): metric for share, metric in other.curve if share < 1}
            for share, metric in last.items():
                gains.setdefault(share, []).append(float(value) - self._sign * metric)
        enough = {s: own for s, own in gains.items() if len(own) >= self._prune.after}
        return [(share, max(enough[share])) for share in sorted(enough)]

    def of(self, candidate: Candidate) -> tuple[list[tuple[float, float]], str]:
        """See :func:`curve_floors`."""
        score = self._baseline.score
        if not self._usable or score is None:
            return [], ""
        prune, sign = self._prune, self._sign
        allowed = allowed_drop(prune.max_drop, score.value, higher_is_better=sign > 0)
        target, stderr = sign * score.value - allowed, score.stderr
        why = f"it cannot come within {prune.max_drop:g} of the original"
        own = numpy.array(_costs(candidate))
        known = ~numpy.isnan(self._costs) & ~numpy.isnan(own)
        with numpy.errstate(invalid="ignore"):
            cheaper = ((self._costs <= own) | ~known).all(axis=1) & known.any(axis=1)
        values = numpy.where(cheaper & (self._numbers != candidate.number), self._values, -math.inf)
        best = int(numpy.nanargmax(values)) if not numpy.isnan(values).all() else 0
        if values[best] > target:
            other = self._usable[best].candidate
            assert other.score is not None
            target, stderr = float(values[best]), other.score.stderr
            why = f"{other.id} costs no more and is better"
        if not math.isfinite(target):
            return [], ""
        return [
            (share, sign * (target - gain - prune.margin * stderr)) for share, gain in self._gains
        ], why


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
    return Floors(finished, baseline, prune).of(candidate)


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
    floors = []
    for share in sorted({round(share, 6) for curve in curves for share, _ in curve if share < 1}):
        seen = [sign * v for curve in curves for s, v in curve if abs(s - share) < 1e-6]
        if len(seen) >= after:
            best = sorted(seen, reverse=True)[max(1, math.floor(keep * len(seen))) - 1]
            floors.append((share, sign * best))
    return floors
