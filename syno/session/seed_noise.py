"""How much single trainings vary with their seed: of one network, judged by all networks that were trained on several.

Two or three seeds of one network say little of its own variance, and all networks together say more, as long as they vary
alike. Where they do not (one network that trains well or not at all, among others that differ by half a point), each is
judged by its own trainings as far as variances differ: moderated variances, by the empirical Bayes estimate of Smyth
(Linear models and empirical Bayes methods, 2004, section 6.2), asked for by Bartlett's test at 5 %.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Variances of 0 are those of values that have few digits: a chi-square of one degree is below this part of its median once
# in thirty.
_LEAST_PART = 1e-3


@dataclass(frozen=True)
class SeedNoise:
    """Deviations of trainings from the mean of their network.

    Attributes:
        shape: all of them, each over its network's standard deviation; their mean square is 1.
        variance: what a network's variance is taken for before its own trainings are seen, which count as ``prior``
            degrees of freedom; infinite where all networks vary alike.
        freedom: degrees of freedom of all networks together.
    """

    shape: Array
    variance: float
    prior: float
    freedom: int

    def of(self, values: Sequence[float]) -> tuple[float, float]:
        """The standard deviation of a training of the network whose trainings gave ``values``, and its degrees of freedom.

        Args:
            values: in units of the noise; those of one training, or none, say nothing.
        """
        if math.isinf(self.prior):
            return math.sqrt(self.variance), float(self.freedom)
        own = len(values) - 1
        if own < 1:
            return math.sqrt(self.variance), max(1.0, min(self.prior, self.freedom))
        variance = (self.prior * self.variance + own * statistics.variance(values)) / (
            self.prior + own
        )
        return math.sqrt(variance), max(1.0, min(self.prior + own, self.freedom))


def usable(groups: Sequence[Sequence[float]]) -> list[list[float]]:
    """The networks that say something: of at least two trainings, all of whose values are numbers."""
    return [list(v) for v in groups if len(v) > 1 and all(map(math.isfinite, v))]


def widest(groups: Sequence[Sequence[float]]) -> float:
    """The largest distance of two trainings of one network."""
    most = sys.float_info.max
    return min(most, max((max(v) - min(v) for v in usable(groups)), default=0.0))


def seed_noise(groups: Sequence[Sequence[float]], scale: float = 1.0) -> SeedNoise:
    """The noise of all networks.

    Args:
        groups: of each network what its trainings gave.
        scale: the unit of the noise, such that squares of distances are numbers.
    """
    rows = [np.asarray([x / scale for x in v]) for v in usable(groups)]
    if not rows:
        return SeedNoise(np.zeros(0), 0.0, math.inf, 0)
    own = np.asarray([row.var(ddof=1) for row in rows])
    degrees = np.asarray([len(row) - 1 for row in rows])
    freedom = int(degrees.sum())
    pooled = float((degrees * own).sum()) / freedom
    variance, prior = _prior(own, degrees) if _differ(own, degrees, pooled) else (pooled, math.inf)
    found = SeedNoise(np.zeros(0), variance, prior, freedom)
    shape: list[float] = []
    for row in rows:
        deviation, _ = found.of(row.tolist())
        widened = (row - row.mean()) * math.sqrt(len(row) / (len(row) - 1))
        shape += (widened / (deviation or 1.0)).tolist()
    size = math.sqrt(float(np.square(shape).mean()))
    return SeedNoise(np.asarray(shape) / (size or 1.0), variance, prior, freedom)


def _differ(own: Array, degrees: Array, pooled: float) -> bool:
    """Bartlett's test of equal variances, at 5 %; chi-square's quantile by Wilson and Hilferty."""
    most = len(own) - 1
    if most < 1 or pooled == 0:
        return False
    kept = np.maximum(own, _floor(own))
    freedom = int(degrees.sum())
    pooled = float((degrees * kept).sum()) / freedom
    size = freedom * math.log(pooled) - float((degrees * np.log(kept)).sum())
    size /= 1 + (float((1 / degrees).sum()) - 1 / freedom) / (3 * most)
    z = statistics.NormalDist().inv_cdf(0.95)
    return size > most * (1 - 2 / (9 * most) + z * math.sqrt(2 / (9 * most))) ** 3


def _floor(own: Array) -> float:
    """The least variance that is believed."""
    positive = own[own > 0]
    return max(sys.float_info.min, _LEAST_PART * float(np.median(positive)))


def _prior(own: Array, degrees: Array) -> tuple[float, float]:
    """The variance that networks have in the middle, and the degrees of freedom that it counts as."""
    half = degrees / 2
    logs = np.log(np.maximum(own, _floor(own)))
    logs = logs - np.asarray([_digamma(h) - math.log(h) for h in half])
    beyond = float(logs.var(ddof=1)) - float(np.mean([_trigamma(h) for h in half]))
    if beyond <= 0:  # they differ no more than variances of so few trainings do
        return float((degrees * own).sum()) / float(degrees.sum()), math.inf
    low, high = 1e-6, 1e6
    for _ in range(80):  # trigamma falls
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _trigamma(middle) > beyond else (low, middle)
    y = math.sqrt(low * high)
    return math.exp(float(logs.mean()) + _digamma(y) - math.log(y)), 2 * y


def _digamma(x: float) -> float:
    """The logarithmic derivative of the gamma function (Abramowitz and Stegun, 6.3.5 and 6.3.18)."""
    found = 0.0
    while x < 8:
        found -= 1 / x
        x += 1
    r = 1 / (x * x)
    return found + math.log(x) - 0.5 / x - r * (1 / 12 - r * (1 / 120 - r / 252))


def _trigamma(x: float) -> float:
    """Its derivative (Abramowitz and Stegun, 6.4.6 and 6.4.12)."""
    found = 0.0
    while x < 8:
        found += 1 / (x * x)
        x += 1
    r = 1 / (x * x)
    return found + 1 / x + r / 2 + r / x * (1 / 6 - r * (1 / 30 - r / 42))
