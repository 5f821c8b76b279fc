"""What trainings of the experiment `searched` say: intervals over seeds and paired examples, Holm's correction, ties.

Networks are paired seed by seed: the same batches in the same order, and the same first weights of all layers that were
not replaced. The interval is that of :mod:`syno.session.interval`, of the differences of such pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syno.session import SessionView
from syno.session.interval import Interval, Sample, difference, stderr_of_median
from syno.session.records import Candidate

#: One-sided 95 % of a normal error.
Z = 1.645


@dataclass(frozen=True)
class Trained:
    """A network's trainings on one part, by seed."""

    id: str
    sample: Sample
    higher_is_better: bool

    @property
    def values(self) -> dict[int, float]:
        return {score.seed: score.value for score in self.sample.scores}

    def on(self, seeds: Sequence[int]) -> Sample:
        """Those of some seeds, in their order."""
        places = {score.seed: i for i, score in enumerate(self.sample.scores)}
        chosen = [places[seed] for seed in seeds]
        rows = self.sample.examples
        return Sample(
            [self.sample.scores[i] for i in chosen],
            None if rows is None else rows[chosen],
            self.sample.transform,
        )


def trained(view: SessionView, candidate: Candidate) -> Trained:
    """The trainings that judge a network."""
    return Trained(candidate.id, view.sample(candidate), view.higher_is_better)


def compared(
    own: Trained, other: Trained, everyone: Sequence[Trained], *, tests: int = 1
) -> Interval:
    """How much better one network is than another, over the seeds that both were trained on.

    How single seeds differ is estimated from the differences of all networks to `other`, since three say little, as far
    as these vary alike (:mod:`syno.session.seed_noise`).

    Args:
        everyone: all networks of the experiment.
        tests: each end is that of a level corrected for so many tests.
    """
    seeds = sorted(set(own.values) & set(other.values))
    sign = 1.0 if own.higher_is_better else -1.0
    groups = []
    for one in everyone:
        shared = sorted(set(one.values) & set(other.values))
        if one.id != other.id and len(shared) > 1:
            groups.append([sign * (one.values[s] - other.values[s]) for s in shared])
    return difference(
        own.on(seeds),
        other.on(seeds),
        higher_is_better=own.higher_is_better,
        trained=groups,
        values=[sign * (own.values[s] - other.values[s]) for s in seeds],
        fixed=True,  # a difference of pairs has one seed's noise, that of the pair
        tests=tests,
        key=(own.id, other.id),
    )


def errors_apart(interval: Interval) -> float:
    """The difference in standard errors."""
    noise = math.hypot(interval.examples_std, interval.seeds_std)
    return abs(interval.gain) / noise if noise > 0 else math.inf if interval.gain else 0.0


def holm(
    count: int, lower: Callable[[int, int], float], size: Callable[[int], float]
) -> dict[int, int]:
    """Which of `count` one-sided tests hold together (Holm 1979): for each of those the tests it was held among.

    Args:
        lower: the lower end of a test's interval at a level corrected for so many tests; it holds above 0.
        size: its gain in standard errors: the surest is asked first.
    """
    left = sorted(range(count), key=lambda i: (-size(i), i))
    held: dict[int, int] = {}
    while left and lower(left[0], len(left)) > 0:
        held[left[0]] = len(left)
        left = left[1:]
    return held


def verdicts(
    pairs: Sequence[tuple[str, str]], everyone: Mapping[str, Trained]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Of each pair whether the first is ``"better"``, ``"worse"`` or a ``"tie"``; all tests, both ways, share one level."""
    both = [(a, b) for a, b in pairs] + [(b, a) for a, b in pairs]
    rows = list(everyone.values())
    known: dict[tuple[int, int], Interval] = {}

    def interval(test: int, tests: int) -> Interval:
        if (test, tests) not in known:
            a, b = both[test]
            known[test, tests] = compared(everyone[a], everyone[b], rows, tests=tests)
        return known[test, tests]

    def size(test: int) -> float:
        one = interval(test, 1)
        return math.copysign(errors_apart(one), one.gain)

    held = holm(len(both), lambda test, tests: interval(test, tests).lower, size)
    found = {}
    for place, pair in enumerate(pairs):
        plain = interval(place, 1)
        said = "tie"
        if place in held:
            said = "better"
        elif place + len(pairs) in held:
            said = "worse"
        found[pair] = {
            "said": said,
            "gain": plain.gain,
            "lower": plain.lower,
            "upper": plain.upper,
            "errors": size(place),
            "paired": plain.paired,
        }
    return found


@dataclass(frozen=True)
class Timed:
    """A latency and its noise: median, interquartile range, turns."""

    us: float
    iqr_us: float
    samples: int

    @property
    def stderr(self) -> float:
        return stderr_of_median(self.iqr_us, self.samples)


def faster(own: Timed, other: Timed) -> bool:
    """Whether one is proven to take less time, one-sided 95 %."""
    return other.us - own.us > Z * math.hypot(own.stderr, other.stderr)


def apart(
    found: Sequence[str],
    known: Sequence[str],
    said: Mapping[tuple[str, str], Mapping[str, Any]],
    times: Mapping[str, Timed],
) -> dict[str, dict[str, str]]:
    """Of each found operator, by known one: ``"beaten"`` where the known one is better in one thing and not worse in the
    other, ``"tie"`` where neither is better in anything, ``"stands"`` elsewhere."""
    result: dict[str, dict[str, str]] = {}
    for own, other in itertools.product(found, known):
        better = said[own, other]["said"] == "better" or faster(times[own], times[other])
        worse = said[own, other]["said"] == "worse" or faster(times[other], times[own])
        word = "stands" if better else "beaten" if worse else "tie"
        result.setdefault(own, {})[other] = word
    return result
