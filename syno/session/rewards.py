"""Rewards: one number from a metric and a recorded latency."""

from __future__ import annotations

import math

import msgspec

from syno.session.config import Prune
from syno.session.protocols import Gains
from syno.session.records import Candidate

#: Limits of what is worth having where a session sets none: drop of the metric, latency against the original's.
DROP, LATENCY_RATIO = 0.10, 1.2


class QualityTimesSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """``quality * speed``, each in 0 … 1; the original has 1 * 1/2.

    ``quality = exp(-drop / tolerance)`` where the metric is worse than the original's by ``drop`` (a share
    of the original's value for metrics without an upper end, such as loss), 1 where it is not;
    ``speed = b / (b + l)`` for latencies ``b`` of the original and ``l`` of the candidate, or their FLOPs
    where nothing is timed. A candidate that failed, or was pruned before training, has 0.
    """

    tolerance: float = 0.03

    def __call__(self, candidate: Candidate, baseline: Candidate) -> float:
        score, reference = candidate.score, baseline.score
        if candidate.state not in ("done", "pruned") or score is None or reference is None:
            return 0.0
        if not math.isfinite(score.value):
            return 0.0
        if score.higher_is_better:
            drop = reference.value - score.value
        else:
            drop = _share(score.value - reference.value, reference.value)
        quality = math.exp(-max(0.0, drop) / self.tolerance)
        return quality * self.speed(candidate, baseline)

    def speed(self, candidate: Candidate, baseline: Candidate) -> float:
        """The latency's half of the reward."""
        if candidate.latency_us is not None and baseline.latency_us is not None:
            own, reference = candidate.latency_us, baseline.latency_us
        elif candidate.flops is not None and baseline.flops is not None:
            own, reference = float(candidate.flops), float(baseline.flops)
        else:
            return 0.5
        return reference / (reference + own) if reference + own > 0 else 0.5


def gains_of(candidate: Candidate, baseline: Candidate, prune: Prune) -> Gains:
    """Quality and speed above the limits of ``prune``, or the usual ones where it sets none."""
    score, reference = candidate.score, baseline.score
    quality = None
    if score is not None and reference is not None and math.isfinite(score.value):
        drop = prune.max_drop if math.isfinite(prune.max_drop) else DROP
        if reference.higher_is_better:
            quality = score.value - reference.value + drop
        else:
            quality = _share(reference.value - score.value, reference.value) + drop
    if candidate.latency_us is not None and baseline.latency_us:
        speed = 1 - candidate.latency_us / (
            (prune.max_latency_ratio or LATENCY_RATIO) * baseline.latency_us
        )
    elif candidate.flops is not None and baseline.flops:
        speed = 1 - candidate.flops / ((prune.max_flops_ratio or LATENCY_RATIO) * baseline.flops)
    else:
        speed = None
    return Gains(quality=quality, speed=speed)


_MOST_SHARE = 1e12  # a surrogate squares it


def _share(difference: float, reference: float) -> float:
    """A difference as a share of what it is from, whatever unit both are in."""
    if difference == 0:
        return 0.0
    share = difference / abs(reference) if reference else math.copysign(math.inf, difference)
    return max(-_MOST_SHARE, min(share, _MOST_SHARE))
