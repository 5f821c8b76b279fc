"""All candidates of a session by their numbers alone, so that few have to be read: fronts, seeds, who may lead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from syno.session.records import Candidate, mean_of
from syno.session.store import Store

Floats = npt.NDArray[np.float64]


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

    numbers: npt.NDArray[np.int64]
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
        rows = store.execute(
            "SELECT number, kind = 'baseline', flops FROM candidate WHERE state = 'done' ORDER BY number"
        ).fetchall()
        numbers = np.array([row[0] for row in rows], dtype=np.int64)
        times = latencies(store, "syno")
        finals: dict[int, list[float]] = {}
        for number, value in store.execute(
            "SELECT candidate, value FROM score WHERE phase = 'final' ORDER BY candidate, seed"
        ):
            finals.setdefault(number, []).append(value)
        scores = store.execute(
            "SELECT candidate, value, stderr FROM score WHERE phase = 'search' ORDER BY candidate, seed"
        ).fetchall()
        first: dict[int, tuple[float, float]] = {}
        for number, value, stderr in scores:
            first.setdefault(number, (value, stderr))
        none = (np.nan, np.nan)
        both = np.array([first.get(row[0], none) for row in rows]).reshape(-1, 2)
        return cls(
            numbers=numbers,
            original=np.array([row[1] for row in rows], dtype=bool),
            flops=np.array([np.nan if row[2] is None else row[2] for row in rows], dtype=float),
            latency_us=_of(numbers, times),
            validation=both[:, 0],
            stderr=both[:, 1],
            test=_of(numbers, {number: mean_of(values) for number, values in finals.items()}),
            finals=finals,
            timed=bool(times),
        )

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


def latencies(store: Store, runner: str) -> dict[int, float]:
    """Of whole networks, as one runner timed them."""
    rows = store.execute(
        "SELECT candidate, median_us FROM timing WHERE site = '' AND runner = ?", runner
    )
    return {row[0]: row[1] for row in rows}


def costs_of(store: Store, overview: Overview, runner: str | None) -> Floats:
    """What fronts weigh the metric against: a runner's latencies; without one the session's own, else multiply-adds."""
    if runner is not None:
        return _of(overview.numbers, latencies(store, runner))
    return overview.latency_us if overview.timed else overview.flops


def _of(numbers: npt.NDArray[np.int64], values: dict[int, float]) -> Floats:
    return np.array([values.get(int(number), np.nan) for number in numbers], dtype=float)


def by_numbers(store: Store, numbers: Sequence[int]) -> list[Candidate]:
    """Candidates in the order of ``numbers``; no others are read."""
    text = msgspec.json.encode(list(numbers)).decode()
    found = {
        c.number: c
        for c in store.candidates("WHERE c.number IN (SELECT value FROM json_each(?))", text)
    }
    return [found[number] for number in numbers]


__all__ = ["Overview", "by_numbers", "costs_of", "latencies"]
