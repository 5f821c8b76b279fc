"""How much worse a network may be than another: the lower end of a one-sided interval of the difference of their metrics.

Two things vary: which examples a network is judged on, and the seed it was trained with. Both networks answer the same examples,
so that the differences example by example are resampled (the pairs' bootstrap); where a metric is no mean over examples, its
standard errors are added instead. The seeds' part is resampled from how single trainings differ from the mean of
their network, over all networks that were trained on several (:mod:`syno.session.seed_noise`); it is widened by Student's t for
their small number.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syno.session.records import Score, mean_of
from syno.session.seed_noise import seed_noise, widest
from syno.support.streams import seed_of

Array = npt.NDArray[Any]

LEVEL = 0.95
_DRAWS = 2_000
_MOST_RESAMPLED = 2_000  # examples; a mean of more is normal, whatever they are

# Squares of numbers between these, and sums of many, are numbers; others are brought there first.
_TINY, _HUGE = 1e-100, 1e100
_MOST_EXPONENT = 230.0  # of e, for the same


@dataclass(frozen=True)
class Sample:
    """A network's trainings on one part; ``examples`` ``[seeds, N]`` where the metric is the mean of their values, or
    the exponential of it (``transform`` is then ``"exp"``)."""

    scores: Sequence[Score]
    examples: Array | None = None
    transform: str = ""

    @property
    def value(self) -> float:
        return mean_of([score.value for score in self.scores])


@dataclass(frozen=True)
class Interval:
    """Of ``gain``, by how much a network is better than another (negative: worse), in units of the metric.

    ``lower`` and ``upper`` are ends of one-sided intervals; ``examples_std`` and ``seeds_std`` the parts of its standard error;
    ``seed_std`` that of one training. ``paired`` says whether examples were compared one by one.
    """

    gain: float
    lower: float
    upper: float
    examples_std: float
    seeds_std: float
    seed_std: float
    paired: bool


def student_t(level: float, freedom: float) -> float:
    """Quantile of Student's t (Hill's expansion about the normal one; within 2 % from two degrees on, between the exact one of
    one degree and that of two within 5 %)."""
    z = statistics.NormalDist().inv_cdf(level)
    if freedom < 1:
        return math.inf
    if freedom < 2:
        part = 2 / freedom - 1
        one, two = math.tan(math.pi * (level - 0.5)), student_t(level, 2)
        return math.copysign(abs(one) ** part * abs(two) ** (1 - part), z)
    v = freedom
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def stderr_of_median(iqr: float, count: int) -> float:
    """Of ``count`` values with that interquartile range, taken as normal; 0 where there are none."""
    return 1.2533 * iqr / 1.349 / math.sqrt(count) if count > 0 else 0.0


def difference(
    own: Sample,
    other: Sample,
    *,
    higher_is_better: bool,
    trained: Sequence[Sequence[float]],
    values: Sequence[float] | None = None,
    fixed: bool = False,
    tests: int = 1,
    key: tuple[object, ...] = (),
) -> Interval:
    """The interval of how much better ``own`` is than ``other``; the same for the same numbers.

    Of values that are no numbers nothing is known: the interval has no end then.

    Args:
        trained: of every network that was trained on several seeds what its trainings gave; they say how much seeds matter.
        values: what vary with the seed of ``own``; default its scores.
        fixed: ``other`` is one network, not what a training gives: no seed of it varies.
        tests: of how many candidates this one may be the luckiest; each end is that of a level corrected for it.
        key: what the draws follow from.
    """
    sign = 1.0 if higher_is_better else -1.0
    gain = sign * (own.value - other.value)
    paired = _pairs(own, other)
    scale = _scale(own, other, widest(trained), paired)
    if not math.isfinite(scale) or not math.isfinite(gain):
        ends = {"lower": -math.inf, "upper": math.inf}
        stds = dict.fromkeys(("examples_std", "seeds_std", "seed_std"), math.inf)
        return Interval(gain=gain, paired=paired is not None, **ends, **stds)
    draw = np.random.default_rng(seed_of("interval", *key))
    if paired is None:
        errors = [mean_of([s.stderr / scale for s in one.scores]) for one in (own, other)]
        noise = math.hypot(*errors) * draw.standard_normal(_DRAWS)
    else:
        noise = sign * _resampled(*paired, own.transform, draw, scale)
    examples_std = float(noise.std())
    seeds = seed_noise(trained, scale)
    seed_std = seeds_std = 0.0
    if len(seeds.shape):
        groups = [[score.value for score in own.scores] if values is None else list(values)]
        groups += [] if fixed else [[score.value for score in other.scores]]
        found = np.zeros(_DRAWS)
        for group in groups:
            deviation, freedom = seeds.of([value / scale for value in group])
            wider = student_t(LEVEL, freedom) / statistics.NormalDist().inv_cdf(LEVEL)
            means = draw.choice(seeds.shape, (_DRAWS, len(group))).mean(1)
            found += wider * deviation * means
            seed_std += deviation**2 / len(groups)
        seed_std = math.sqrt(seed_std)
        seeds_std = float(found.std())
        noise = noise + found
    tail = (1 - LEVEL) / tests
    if tail * _DRAWS >= 20:
        low, high = map(float, np.quantile(noise, [tail, 1 - tail]))
    else:  # too far out for so many draws
        high = statistics.NormalDist().inv_cdf(1 - tail) * float(noise.std())
        low = -high
    return Interval(
        gain=gain,
        lower=gain + low * scale,
        upper=gain + high * scale,
        examples_std=examples_std * scale,
        seeds_std=seeds_std * scale,
        seed_std=seed_std * scale,
        paired=paired is not None,
    )


def _scale(own: Sample, other: Sample, apart: float, paired: tuple[Array, Array] | None) -> float:
    """What everything is divided by before it is squared: a power of two, 1 for numbers of a usual size; infinite or none
    where one of them is."""

    def sizes() -> Iterator[float]:
        for one in (own, other):
            for score in one.scores:
                yield from (abs(score.value), abs(score.stderr))
        yield apart
        if paired is not None and own.transform != "exp":
            yield from (float(np.abs(rows).max(initial=0.0)) for rows in paired)

    found = list(sizes())
    if not all(map(math.isfinite, found)):
        return math.inf
    most = max(found)
    if most == 0 or _TINY < most < _HUGE:
        return 1.0
    return math.ldexp(1.0, max(-1_000, math.frexp(most)[1] - 1))


def _pairs(own: Sample, other: Sample) -> tuple[Array, Array] | None:
    """Each example's value in either network, the mean over its seeds."""
    if own.examples is None or other.examples is None or own.transform != other.transform:
        return None
    if own.examples.shape[1] != other.examples.shape[1]:
        return None
    return own.examples.mean(0, dtype=float), other.examples.mean(0, dtype=float)


def _resampled(
    own: Array, other: Array, transform: str, draw: np.random.Generator, scale: float
) -> Array:
    """Draws of the error of the difference of the means, in units of ``scale``."""
    count = len(own)
    rows = np.stack([own, other], 1).astype(float)
    function = _identity
    if transform == "exp":
        unit = math.log(scale)

        def function(mean: Array) -> Array:
            return np.exp(np.clip(mean - unit, -_MOST_EXPONENT, _MOST_EXPONENT))

    else:
        rows = rows / scale
    binary = bool(np.isin(rows, (0.0, 1.0)).all())
    widest = 1.0 if binary else float(np.abs(rows[:, 0] - rows[:, 1]).max(initial=0.0))
    # One more example each way (Agresti and Min, 2005): where networks never differed, they may all the same.
    middle = rows.mean(0)
    apart = np.array([widest / 2, -widest / 2])
    rows = np.concatenate([rows, [middle + apart, middle - apart]])
    if count > _MOST_RESAMPLED:
        cov = np.cov(rows.T) / len(rows)
        means = draw.multivariate_normal(rows.mean(0), cov, _DRAWS)
    else:
        parts = []
        for _ in range(0, _DRAWS, 250):
            chosen = draw.integers(0, len(rows), (250, len(rows)))
            parts.append(rows[chosen].mean(1))
        means = np.concatenate(parts)
    at = function(means)
    centre = function(rows.mean(0))
    return np.asarray((at[:, 0] - at[:, 1]) - (centre[0] - centre[1]))


def _identity(mean: Array) -> Array:
    return mean
