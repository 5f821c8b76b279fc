"""How long trainings took: each is read from the database once, however often a budget of time is asked about."""

from __future__ import annotations

import collections
from bisect import insort

from syno.session.store import Store


class Durations:
    """Seconds of a session's trainings by phase, beside those recorded since the last question."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._phases: dict[str, _Phase] = {}

    def median_s(self, phase: str, *, original: bool = False) -> float | None:
        """The lower median; ``None`` where nothing was trained. ``original``: the original counts, too."""
        found = self._of(phase)
        seconds = found.all if original else found.candidates
        return seconds[(len(seconds) - 1) // 2] if seconds else None

    def count(self, phase: str, stage: str) -> int:
        """Candidates of a stage that were trained in a phase."""
        return self._of(phase).stages[stage]

    def _of(self, phase: str) -> _Phase:
        found = self._phases.setdefault(phase, _Phase())
        rows = self._store.execute(
            "SELECT s.rowid, s.candidate, s.seconds, c.stage, c.kind FROM score s"
            " JOIN candidate c ON c.number = s.candidate WHERE s.rowid > ? AND s.phase = ?"
            " ORDER BY s.rowid",
            found.last,
            phase,
        )
        for row, number, seconds, stage, kind in rows:
            found.last = row
            if number in found.numbers:
                continue
            found.numbers.add(number)
            insort(found.all, seconds)
            if kind != "baseline":
                insort(found.candidates, seconds)
                found.stages[stage] += 1
        return found


class _Phase:
    def __init__(self) -> None:
        self.last = 0
        self.numbers: set[int] = set()
        self.all: list[float] = []
        self.candidates: list[float] = []
        self.stages: collections.Counter[str] = collections.Counter()


__all__ = ["Durations"]
