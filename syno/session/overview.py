"""All candidates of a session by their numbers alone, so that few have to be read: fronts, seeds, who may lead."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from syno.session.records import Candidate, mean_of
from syno.session.store import Store

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Overview:
    """Of the candidates that were trained to the end, the original among them, in the order of their numbers; what is not
    known is NaN.

    Attributes:
        numbers: ``[n]``; ``flops`` and ``latency_us`` beside them.
        validation, stderr: the metric of the search's own training, and its standard error.
        test: the mean of the finalists' seeds.
        finals: these by candidate, of all candidates that have any.
        timed: whether any candidate's network was timed.
    """

    numbers: Numbers
    original: npt.NDArray[np.bool_]
    flops: Floats
    latency_us: Floats
    validation: Floats
    stderr: Floats
    test: Floats
    finals: dict[int, list[float]]
    timed: bool

    @classmethod
    def read(cls, store: Store) -> Overview:
        """From three tables, once through each."""
        numbers, flops = store.columns(
            "SELECT number, flops FROM candidate WHERE state = 'done' ORDER BY number",
            (np.int64, float),
        )
        original = store.execute(
            "SELECT number FROM candidate WHERE kind = 'baseline' LIMIT 1"
        ).fetchone()
        finals: dict[int, list[float]] = {}
        for number, value in store.execute(
            "SELECT candidate, value FROM score WHERE phase = 'final' ORDER BY candidate, seed"
        ):
            finals.setdefault(number, []).append(value)
        judged = np.array(list(finals), dtype=np.int64)
        test = np.array([mean_of(values) for values in finals.values()], dtype=float)
        scored, seeds, values, stderrs = store.columns(
            "SELECT candidate, seed, value, stderr FROM score WHERE phase = 'search'",
            (np.int64, np.int64, float, float),
        )
        by_seed = np.lexsort((seeds, scored))
        scored, values, stderrs = scored[by_seed], values[by_seed], stderrs[by_seed]
        timed, times = latencies(store, "syno")
        return cls(
            numbers=numbers,
            original=numbers == (-1 if original is None else original[0]),
            flops=flops,
            latency_us=_of(numbers, timed, times),
            validation=_of(numbers, scored, values),
            stderr=_of(numbers, scored, stderrs),
            test=_of(numbers, judged, test),
            finals=finals,
            timed=len(timed) > 0,
        )

    @functools.cached_property
    def finals_text(self) -> str:
        """The values of :attr:`finals`, by which what is computed of them is remembered."""
        return str(list(self.finals.values()))

    @property
    def value(self) -> Floats:
        """As :attr:`Candidate.value`."""
        return np.where(np.isnan(self.test), self.validation, self.test)

    def front(self, cost: Floats, value: Floats, *, higher_is_better: bool) -> list[int]:
        """Numbers of those that no other beats in both, the cheapest first."""
        signed = value if higher_is_better else -value
        known = np.flatnonzero(~np.isnan(cost) & ~np.isnan(signed))
        order = known[np.lexsort((self.numbers[known], -signed[known], cost[known]))]
        best = np.maximum.accumulate(np.concatenate([[-np.inf], signed[order]]))[:-1]
        return [int(number) for number in self.numbers[order[signed[order] > best]]]


def latencies(store: Store, runner: str) -> tuple[Numbers, Floats]:
    """Of whole networks, as one runner timed them: numbers of candidates, ascending, and microseconds."""
    numbers, times = store.columns(
        "SELECT candidate, median_us FROM timing WHERE site = '' AND runner = ?",
        (np.int64, float),
        runner,
    )
    order = np.argsort(numbers)  # of each there is one
    return numbers[order], times[order]


def costs_of(store: Store, overview: Overview, runner: str | None) -> Floats:
    """What fronts weigh the metric against: a runner's latencies; without one the session's own, else multiply-adds."""
    if runner is not None:
        return _of(overview.numbers, *latencies(store, runner))
    return overview.latency_us if overview.timed else overview.flops


def _of(numbers: Numbers, known: Numbers, values: Floats) -> Floats:
    """The first value of each number among those ``known``, which ascend; NaN where there is none."""
    found = np.full(len(numbers), np.nan)
    places = np.searchsorted(known, numbers)
    there = places < len(known)
    there[there] = known[places[there]] == numbers[there]
    found[there] = values[places[there]]
    return found


def numbered(store: Store, numbers: Collection[int]) -> list[Candidate]:
    """Candidates among ``numbers``, as far as there are such, in the order of their numbers; no others are read."""
    text = msgspec.json.encode(list(numbers)).decode()
    return store.candidates("WHERE c.number IN (SELECT value FROM json_each(?))", text)


def by_numbers(store: Store, numbers: Sequence[int]) -> list[Candidate]:
    """Candidates in the order of ``numbers``; no others are read."""
    found = {c.number: c for c in numbered(store, numbers)}
    return [found[number] for number in numbers]


__all__ = ["Overview", "by_numbers", "costs_of", "latencies", "numbered"]
