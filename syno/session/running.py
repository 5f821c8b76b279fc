"""What a run of a session has: its parts, its clock, who is told, and the calls that its executor makes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from syno.session.callbacks import name_of
from syno.session.config import SessionConfig, Stage
from syno.session.durations import Durations
from syno.session.earlier import EarlierFloors
from syno.session.executors import Call, Executor, Outcome
from syno.session.jobs import Job, run_jobs
from syno.session.protocols import (
    Callback,
    OperatorText,
    Proposer,
    Reward,
)
from syno.session.records import Candidate
from syno.session.rungs import WHOLE, at_phase, phases
from syno.session.store import Store
from syno.session.view import SessionView
from syno.session.worker import describe

#: Key of what a session records of who trains: what the executor says of itself.
EXECUTOR = "executor"


class Running:
    """One run of a session. Everything it decides is in the database before it acts on it."""

    def __init__(
        self,
        directory: Path,
        store: Store,
        config: SessionConfig,
        view: SessionView,
        executor: Executor | None,
        make: Callable[..., Any],
        callbacks: Sequence[Callback] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory, self.store, self.config, self.view = directory, store, config, view
        self._executor = executor
        self._make = make
        self._callbacks = list(callbacks)
        self._clock = clock
        self._since = clock()
        self._proposers: dict[str, Proposer] = {}
        self._replayed: set[int] = set()
        self._kept = -math.inf
        self._floors: EarlierFloors | None = None
        self.durations = Durations(store)
        self.time_up = False
        """Whether the latest search of a stage ended for its time."""
        reward: Reward = make(config.reward)
        self.reward = reward

    @property
    def executor(self) -> Executor:
        assert self._executor is not None
        return self._executor

    def tell_callbacks(self, what: str, number: int | None = None) -> None:
        listening = [one for one in self._callbacks if not getattr(one, "silent", False)]
        if not listening:
            return
        candidate = None if number is None else self.store.candidate(number)
        for callback in listening:
            try:
                callback(what, candidate, self.view)
            except Exception as error:
                about = "" if candidate is None else f" of {candidate.id}"
                self.store.event(
                    f"the callback {name_of(callback)} failed at {what!r}{about}: {describe(error)}", "error"
                )  # fmt: skip
                raise

    def spend(self) -> None:
        """Adds the time since the last call to the session's account."""
        moment = self._clock()
        total = self.view.elapsed_s + moment - self._since
        self._since = moment
        self.store.set_meta("elapsed_s", f"{total:.3f}")

    def rest(self) -> None:
        """The time since the last account is nobody's."""
        self._since = self._clock()

    def proposer(self, stage: Stage) -> Proposer:
        """The stage's proposer, in the state it had after the last complete batch."""
        if stage.name not in self._proposers:
            made: Proposer = self._make(stage.proposer, seed=self.config.seed)
            row = self.store.execute(
                "SELECT proposer_state FROM stage WHERE name = ?", stage.name
            ).fetchone()
            if row is not None and row[0] is not None:
                made.restore(row[0])
            self._proposers[stage.name] = made
        return self._proposers[stage.name]

    def baseline(self) -> Candidate:
        """The original network."""
        found = self.view.baseline
        assert found is not None
        return found

    def assignment(self, candidate: Candidate) -> dict[str, OperatorText]:
        keys = self.view.assignment(candidate)
        return {stage: self.store.operator(key) for stage, key in keys.items()}

    def decides_by(self, candidate: Candidate, phase: str = WHOLE) -> Candidate:
        """What may decide which candidates are proposed, pruned and chosen: what trainings of a phase gave, and nothing
        that a clock said, where latencies are predicted."""
        known = at_phase(candidate, phase)
        return known if self.config.predicted_on is None else known.without_timings()

    def was_whole(self, candidate: Candidate) -> bool:
        """Whether it was trained as a whole, where others were trained short."""
        return not self.config.rungs or candidate.score is not None

    def first_phase(self) -> tuple[str, float]:
        """How candidates are trained first: the phase, and its share of a whole training's steps."""
        return phases(self.config, self.view.rung_state)[0]

    def run_calls(
        self,
        calls: Sequence[Call],
        numbers: Sequence[int],
        phase: str = "search",
        seed: int = 0,
        seeds: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        """Place and outcome of calls for the candidates ``numbers``, see :func:`syno.session.jobs.run_jobs`."""
        own = seeds if seeds is not None else [seed] * len(calls)
        jobs = [
            Job(number, call, phase, one)
            for number, call, one in zip(numbers, calls, own, strict=True)
        ]
        places = {id(job): place for place, job in enumerate(jobs)}
        for job, outcome in run_jobs(self, jobs):
            yield places[id(job)], outcome

    def keep_executor(self, *, every_s: float = 0.0) -> None:
        """Records what the executor says of itself, for readers; not before ``every_s`` seconds have gone by."""
        describe = getattr(self._executor, "describe", None)
        now = self._clock()
        if describe is None or now - self._kept < every_s:
            return
        self._kept = now
        with self.store.transaction():
            self.store.set_meta(EXECUTOR, msgspec.json.encode(describe()).decode())

    def _fail(self, number: int, outcome: Outcome, doing: str) -> None:
        state = "lost" if outcome.state in ("lost", "node") else "failed"
        reason = f"{outcome.state} while {doing}: {outcome.reason}"
        self.store.set_state(number, state, reason)
        self.store.event(f"candidate {number} {state}: {reason}", "warning", candidate=number)
