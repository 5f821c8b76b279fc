"""The search of a stage without a barrier: batches overlap, so that no worker waits for the slowest training of a batch.

What decides is the order of tickets alone. A batch is proposed when every batch at least a lag before it was told, batches are
told in their order, and after each the next are proposed before another is told: what a proposer is asked and told, and
what curves are compared with, is the same for any durations, any number of workers, and after any kill.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from syno.session.budget import Budget
from syno.session.config import Stage
from syno.session.executors import Outcome
from syno.session.jobs import Job, run_jobs
from syno.session.pruning import FloorsNow
from syno.session.records import Candidate
from syno.session.spaces import is_empty, propose_or_skip

if TYPE_CHECKING:
    from syno.session.batches import Batch
    from syno.session.loop import Loop


@dataclass
class _Open:
    """A batch under way: who has not ended yet, and what its curves must reach."""

    batch: Batch
    size: int
    left: set[int]
    floors: FloorsNow


class Flow:
    """Searches one stage until its budget is used up or its space is exhausted.

    ``most`` counts candidates whose training was started; all of a batch under way count, whatever has become of them: what
    has ended by now depends on clocks.
    """

    def __init__(
        self, loop: Loop, stage: Stage, budget: Budget, most: int | None, baseline: Candidate
    ) -> None:
        self._loop, self._stage, self._budget, self._most = loop, stage, budget, most
        self._reference = loop.decides_by(baseline)
        self._phase, self._share = loop.first_phase()
        self._open: deque[_Open] = deque()
        self._place: dict[int, _Open] = {}
        self._ready: list[Job] = []
        self._why = ""
        self._told = self._trained_and_told()
        self._proposed = loop.proposed(stage)
        self._waits = False
        """Whether nothing may be proposed before a further batch is told."""

    def run(self) -> str:
        """Why it ended, as :meth:`syno.session.loop.Loop.search` says it."""
        for batch in self._loop.open_batches(self._stage):
            self._enter(batch)
        for job, outcome in run_jobs(self._loop, [], self._more):
            if job.call.kind == "predict":
                self._predicted(job.number, outcome)
            else:
                self._loop.record_training(job.number, outcome, self._phase)
                self._ended(job.number)
        return self._why

    # --- batches

    def _more(self) -> list[Job]:
        """Tells what is complete and proposes what may be, in the one order that there is; the jobs of both."""
        while True:
            self._propose()
            if not self._open or self._open[0].left:
                break
            batch = self._open.popleft().batch
            self._loop.fold(batch)
            self._told += self._trained_and_told(batch)
            self._waits = False
        ready, self._ready = self._ready, []
        return ready

    def _propose(self) -> None:
        loop, config = self._loop, self._loop.config
        while (
            not self._waits
            and len(self._open) < config.batches_open
            and self._why in ("", "budget")
        ):
            self._waits = True
            width = config.batch_width
            if self._most is not None:
                width = min(width, self._most - self._told - sum(one.size for one in self._open))
            if width < 1:
                # What was ruled out before its training may leave some of it, once that is told.
                self._why = "budget"
                return
            waiting = sum(len(one.left) for one in self._open)
            loop.time_up = loop.out_of_time(self._budget, self._stage, waiting)
            if loop.time_up:
                self._why = "budget"
                return
            if self._proposed >= 20 * (self._most or 1 << 30):
                self._why = "hardly any candidate is worth training"
                return
            batch = propose_or_skip(loop, self._stage, width)
            if batch is None:
                if not self._open:  # else what is told next may lead to further ones
                    empty = is_empty(loop.view, self._stage)
                    self._why = "empty" if empty else "exhausted"
                return
            self._why, self._waits = "", False
            self._proposed += self._enter(batch)
            if not self._open[-1].size:
                self._why = "exhausted"  # the proposer has only what is known already

    def _trained_and_told(self, batch: Batch | None = None) -> int:
        """Candidates whose training was started, of a batch or of all batches of the stage that were told."""
        row = self._loop.store.execute(
            "SELECT count(*) FROM candidate WHERE trained = 1 AND batch = ?"
            if batch is not None
            else "SELECT count(*) FROM candidate c JOIN batch b ON b.number = c.batch"
            " WHERE c.trained = 1 AND c.stage = ? AND b.state = 'folded'",
            self._stage.name if batch is None else batch.number,
        ).fetchone()
        return int(row[0])

    def _enter(self, batch: Batch) -> int:
        """Takes a batch up; how many candidates were proposed for it."""
        members = self._loop.members(batch)
        left = {c.number for c in members if c.state in ("queued", "running")}
        floors = self._loop.floors_before(self._stage.name, batch.number)
        one = _Open(batch, len(members), left, floors)
        self._open.append(one)
        for candidate in members:
            if candidate.number in left:
                self._place[candidate.number] = one
                self._go_on(candidate)
        return sum(candidate.kind == "proposed" for candidate in members)

    # --- candidates

    def _go_on(self, candidate: Candidate) -> None:
        """What comes next for a candidate: its prediction, its training, or its end."""
        loop = self._loop
        predicts = loop.config.predicted_on is not None and loop.config.measurer is not None
        if predicts and candidate.predicted_us is None:
            self._ready.append(Job(candidate.number, loop.predicting_call(candidate)))
            return
        if loop.prune_one(candidate, self._reference):
            self._ended(candidate.number)
            return
        floors, why = self._place[candidate.number].floors.of(
            loop.decides_by(candidate, self._phase)
        )
        seed = loop.config.seed
        call = loop.training_call(candidate, seed, "validation", floors, why, share=self._share)
        self._ready.append(Job(candidate.number, call, self._phase, seed))

    def _predicted(self, number: int, outcome: Outcome) -> None:
        self._loop.record_prediction(number, outcome)
        candidate = self._loop.store.candidate(number)
        assert candidate is not None
        if candidate.state == "queued":
            self._go_on(candidate)
        else:
            self._ended(number)

    def _ended(self, number: int) -> None:
        self._place.pop(number).left.discard(number)
