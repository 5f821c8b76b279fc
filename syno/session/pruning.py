"""When a candidate is given up: by what is known before training, and by its learning curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

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


def dominated_cost(candidate: Candidate, other: Candidate) -> bool:
    """Whether ``other`` costs no more than ``candidate`` in all that is known before training."""
    pairs = [
        (candidate.latency_us, other.latency_us),
        (candidate.flops, other.flops),
        (candidate.params, other.params),
    ]
    known = [(own, its) for own, its in pairs if own is not None and its is not None]
    return bool(known) and all(its <= own for own, its in known)


def curve_floors(
    candidate: Candidate, finished: Sequence[Training], baseline: Candidate, prune: Prune
) -> tuple[list[tuple[float, float]], str]:
    """Points of the curve below which a training cannot end well, and why; none while too little is known.

    A candidate must get past the best finished one that costs no more than it in latency, FLOPs and
    parameters (else it is dominated), and to within ``max_drop`` of the baseline. What it may still gain
    after a point of the curve is taken as the most that any finished training gained after it.
    """
    usable = [f for f in finished if f.candidate.score is not None and f.curve]
    if len(usable) < prune.after or baseline.score is None:
        return [], ""
    sign = 1.0 if baseline.score.higher_is_better else -1.0
    reference = baseline.score.value
    allowed = allowed_drop(prune.max_drop, reference, higher_is_better=sign > 0)
    target = sign * reference - allowed
    stderr = baseline.score.stderr
    why = f"it cannot come within {prune.max_drop:g} of the original"
    for other in usable:
        score = other.candidate.score
        if score is None or other.candidate.number == candidate.number:
            continue
        if dominated_cost(candidate, other.candidate) and sign * score.value > target:
            target, stderr = sign * score.value, score.stderr
            why = f"{other.candidate.id} costs no more and is better"
    if not math.isfinite(target):
        return [], ""
    shares = sorted({round(share, 6) for f in usable for share, _ in f.curve if share < 1})
    floors = []
    for share in shares:
        gains = []
        for other in usable:
            at = [value for s, value in other.curve if abs(s - share) < 1e-6]
            if at and other.candidate.score is not None:
                gains.append(sign * (other.candidate.score.value - at[-1]))
        if len(gains) >= prune.after:
            floors.append((share, sign * (target - max(gains) - prune.margin * stderr)))
    return floors, why


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
