"""Which candidates a session has, and what was recorded of each."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import unknown_name
from syno.session.config import SessionConfig
from syno.session.interval import Interval
from syno.session.overview import Overview, by_numbers, numbered
from syno.session.records import (
    Candidate,
)
from syno.session.store import Store

if TYPE_CHECKING:
    pass


class CandidatesView:
    """The candidates of a session. Numbers are as recorded; nothing is measured or trained.

    Made by :func:`syno.session.open_view`, as part of what it gives.
    """

    def __init__(self, directory: Path, store: Store, config: SessionConfig) -> None:
        self.directory = directory
        self.config = config
        self._store = store
        self._intervals: dict[Any, Interval] = {}
        self._overview: tuple[tuple[int, int], Overview] | None = None

    def close(self) -> None:
        """Closes the database."""
        self._store.close()

    def one_moment(self) -> contextlib.AbstractContextManager[None]:
        """A context in which all answers are of one moment, though the session runs: for those that belong together."""
        return self._store.one_moment()

    def candidates(self, among: Collection[int] | None = None) -> list[Candidate]:
        """All candidates but the baseline, in the order they were proposed.

        Args:
            among: numbers; then those of them alone, and no others are read.
        """
        found = self._store.everyone() if among is None else numbered(self._store, among)
        return [c for c in found if c.kind != "baseline"]

    def trained_again(self) -> list[Candidate]:
        """Those that have trainings on the finalists' seeds, in the order they were proposed; no others are read."""
        return self._store.trained_again()

    @property
    def baseline(self) -> Candidate | None:
        """The original network, once it is part of the session."""
        return self._store.baseline()

    def candidate(self, id: str | int) -> Candidate:
        """One candidate by id or by the beginning of its operator's hash.

        Args:
            id: ``"c7"``, ``7`` or ``"baseline"``; or at least four digits of the hash.
        Raises:
            UnknownName: there is none, or more than one.
        """
        text = str(id)
        number = text.removeprefix("c")
        if number.isascii() and number.isdecimal() and len(number) < 18:
            one = self._store.candidate(int(number))
            if one is not None and text in (one.id, str(one.number)):
                return one
        everyone = self._store.names()
        found = [n for n, id, _ in everyone if text in (id, str(n))]
        if not found and len(text) >= 4:
            found = [n for n, _, key in everyone if key.startswith(text)]
        if len(found) != 1:
            raise unknown_name("candidate", text, [id for _, id, _ in everyone])
        return self.chosen(found)[0]

    @property
    def higher_is_better(self) -> bool:
        """Direction of the metric; true until something was trained."""
        row = self._store.execute("SELECT higher_is_better FROM score LIMIT 1").fetchone()
        return bool(row[0]) if row else True

    @property
    def metric(self) -> str:
        """What trainings are judged by: the original's, else the first candidate's; empty until something was trained."""
        baseline = self.baseline
        if baseline is not None and baseline.score is not None:
            return baseline.score.metric
        row = self._store.execute(
            "SELECT metric FROM score WHERE phase = 'search' ORDER BY candidate, seed LIMIT 1"
        ).fetchone()
        return "" if row is None else str(row[0])

    def overview(self) -> Overview:
        """Numbers of all candidates that were trained to the end; read once while nothing changes."""
        stamp = self._store.stamp()
        if self._overview is None or self._overview[0] != stamp:
            self._overview = (stamp, Overview.read(self._store))
        return self._overview[1]

    def chosen(self, numbers: Sequence[int]) -> list[Candidate]:
        """Candidates by number, in that order; no others are read.

        Args:
            numbers: of candidates, 7 for ``"c7"``; 0 is the original.
        """
        return by_numbers(self._store, numbers)

    def latest(self, count: int, state: str = "") -> list[Candidate]:
        """The candidates with the greatest numbers, the last first; no others are read.

        Args:
            count: at most so many.
            state: of those in a state alone; empty: of all.
        """
        rows = self._store.execute(
            "SELECT number FROM candidate WHERE kind != 'baseline' AND (? = '' OR state = ?)"
            " ORDER BY number DESC LIMIT ?",
            state,
            state,
            count,
        )
        return self.chosen([row[0] for row in rows])

    def rewards(self, state: str = "") -> tuple[Any, Any]:
        """Numbers and rewards of all candidates, two arrays in the order they were proposed; no more of them is read. A reward
        that is not known is 0.

        Args:
            state: of those in a state alone; empty: of all.
        """
        return self._store.rewards(state)

    def disturbances(self) -> list[tuple[str, str]]:
        """What may have disturbed latencies, and the id of whose: the original's first, then in the order of the search."""
        return [
            (what, "baseline" if kind == "baseline" else f"c{number}")
            for kind, number, what in self._store.disturbances()
        ]

    def ends(self) -> list[tuple[str, int]]:
        """How candidates ended that were not trained to the end, and how many each, the most frequent first."""
        rows = self._store.execute(
            "SELECT state, count(*) FROM candidate WHERE kind != 'baseline' AND state IN ('pruned', 'failed', 'lost')"
            " GROUP BY state ORDER BY count(*) DESC, min(number)"
        )
        return [(str(row[0]), int(row[1])) for row in rows]

    def known_numbers(self) -> list[tuple[int, str]]:
        """Candidates that are known operators, with their names."""
        return self._store.known_numbers()

    def curve(
        self, candidate: Candidate, phase: str = "search", seed: int | None = None
    ) -> list[tuple[int, dict[str, float]]]:
        """Steps and metrics of a training, as far as it is.

        Args:
            candidate: whose training it is.
            phase: ``"search"``, ``"final"``, or of a short training ``"rung1"`` and so on.
            seed: of one of several trainings of the phase; default all of them.
        """
        return self._store.curve(candidate.number, phase, seed)

    def record_file(self, path: Path) -> None:
        """Records what a file of the session holds now, for :meth:`check_file`; the writer's alone.

        Args:
            path: of a file in the session's directory that was just written.
        """
        self._store.add_file(path)

    def check_file(self, path: Path) -> None:
        """Compares a file of the session with what was recorded when it was written.

        Args:
            path: of a file in the session's directory; one that was never recorded passes.
        Raises:
            SessionError: it is not as the session wrote it, or cannot be read.
        """
        self._store.check_file(path)

    def weights(self, candidate: Candidate) -> dict[int, Path]:
        """Files of trained weights (safetensors) by seed, the finalists' only.

        Args:
            candidate: of this session, or the original; empty where it was no finalist.
        """
        from syno.session.files import weights_path

        found = {}
        for score in candidate.finals:
            path = weights_path(self.directory, candidate.files, score.seed)
            if path.exists():
                found[score.seed] = path
        return found
