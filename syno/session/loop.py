"""The search loop: batches of candidates, proposed together, measured, trained, told in ticket order.

Batch-synchronous: nothing that happens inside a batch decides what is proposed or stopped in it, so that
the candidates are the same for any number of workers and any order of their answers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from syno.errors import SessionError
from syno.session.batches import BatchRun
from syno.session.budget import Budget
from syno.session.config import Stage
from syno.session.flow import Flow
from syno.session.records import Candidate, StageEnd
from syno.session.rungs import climb_cost_s, phases, score_at
from syno.session.spaces import is_empty, propose_or_skip


class Loop(BatchRun):
    """One run of a session. Everything it decides is in the database before it acts on it."""

    # --- a whole run

    def start_baseline(self) -> Candidate:
        """Measures and trains the original; nothing can be judged without it.

        Raises:
            SessionError: it cannot be measured or trained.
        """
        baseline = self.baseline()
        steps = phases(self.config, self.view.rung_state)
        if baseline.state != "done" or any(score_at(baseline, phase) is None for phase, _ in steps):
            with self.store.transaction():
                self.store.set_state(baseline.number, "queued")
            for work in (self.predict, self.measure, self._train_baseline):
                work([self.baseline()])
                baseline = self.baseline()
                if baseline.state not in ("queued", "done"):
                    raise SessionError(
                        f"the original network: {baseline.reason}",
                        fix="make the task train on its own first: nothing can be compared without it",
                        code="R011",
                    )
        return baseline

    def _train_baseline(self, rows: Sequence[Candidate]) -> None:
        """The original at every length that candidates are trained at, those it has not been trained at yet."""
        seed = self.config.seed
        for number, phase, share in (
            (c.number, phase, share)
            for c in rows
            for phase, share in phases(self.config, self.view.rung_state)
        ):
            baseline = self.baseline()
            if baseline.state not in ("queued", "done") or score_at(baseline, phase):
                continue
            call = self.training_call(baseline, seed, "validation", [], "", share=share)
            for _, outcome in self.run_calls([call], [number], phase, seed):
                self.record_training(number, outcome, phase)

    def search(self, stage: Stage, budget: Budget, most_candidates: int | None) -> str:
        """Searches a stage until its budget is used up or its space is exhausted; returns which, and keeps it."""
        before = self.view.stage_ends.get(stage.name)
        why = self._search(stage, budget, most_candidates)
        if why == "empty":
            return why
        with self.store.transaction():
            self.store.set_stage_end(stage.name, StageEnd(why=why))
            new = before is None or before.why != why
            if new and why == "exhausted":
                count = self.proposed(stage)
                self.store.event(f"stage {stage.name}: its space ran out after {count} operators")
        if new and why == "exhausted":
            self.tell_callbacks("exhausted")
        return why

    def _search(self, stage: Stage, budget: Budget, most_candidates: int | None) -> str:
        baseline = self.start_baseline()
        self._floors = None  # rungs may have changed what is known of earlier candidates
        if self.config.lag is not None:
            return Flow(self, stage, budget, most_candidates, baseline).run()
        while True:
            batch = next(iter(self.open_batches(stage)), None)
            if batch is None:
                width = self.config.batch_width
                if most_candidates is not None:
                    width = min(width, most_candidates - self.used(stage))
                self.time_up = width >= 1 and self.out_of_time(budget, stage)
                if width < 1 or self.time_up:
                    return "budget"
                if self.proposed(stage) >= 20 * (most_candidates or 1 << 30):
                    return "hardly any candidate is worth training"
                batch = propose_or_skip(self, stage, width)
                if batch is None:
                    return "empty" if is_empty(self.view, stage) else "exhausted"
                if not self.members(batch):
                    self.fold(batch)  # the proposer has only what is known already
                    return "exhausted"
            for work in self.costs(baseline):
                work(self.members(batch))
            self.train(self.members(batch), baseline)
            self.fold(batch)

    def costs(self, baseline: Candidate) -> list[Callable[[Sequence[Candidate]], None]]:
        """How costs become known and rule candidates out; what is predicted, before anything is timed."""

        def prune(candidates: Sequence[Candidate]) -> None:
            self.prune(candidates, baseline)

        if self.config.predicted_on is None:
            return [self.measure, prune]
        return [self.predict, prune, self.measure]

    def is_open(self, stage: Stage) -> bool:
        """Whether the stage is searched, or will be."""
        row = self.store.execute("SELECT state FROM stage WHERE name = ?", stage.name).fetchone()
        return bool(row[0] == "open")

    def used(self, stage: Stage) -> int:
        """Candidates of a stage whose training was started."""
        row = self.store.execute(
            "SELECT count(*) FROM candidate WHERE stage = ? AND trained = 1", stage.name
        ).fetchone()
        return int(row[0])

    def proposed(self, stage: Stage) -> int:
        """Candidates of a stage."""
        return self.store.count_of(stage.name)

    def width(self) -> int:
        """Calls that run at the same time."""
        return max(1, int(getattr(self.executor, "count", 1)))

    def out_of_time(self, budget: Budget, stage: Stage, waiting: int = 0) -> bool:
        """Whether a further batch, with what waits before it, would take longer than there is."""
        if budget.time_s is None:
            return False
        self.spend()
        left = budget.time_s - self.view.elapsed_s
        left -= climb_cost_s(self, stage)
        phase, _ = self.first_phase()
        one = self.durations.median_s(phase)
        if one is None:
            return left <= 0
        return left < one * math.ceil((waiting + self.config.batch_width) / self.width())

    def choose(self, stage: Stage) -> None:
        """Ends a stage: its best candidate serves its sites from now on, if it beats the original's layer."""
        baseline = self.decides_by(self.baseline())
        reference = self.reward(baseline, baseline)
        done = self.store.candidates("WHERE c.state = 'done' AND c.stage = ?", stage.name)
        better = [c for c in done if (c.reward or 0.0) > reference and self.was_whole(c)]
        chosen = (
            min(better, key=lambda c: (-(c.reward or 0.0), c.number)).number if better else None
        )
        with self.store.transaction():
            self.store.execute(
                "UPDATE stage SET state = 'closed', chosen = ? WHERE name = ?", chosen, stage.name
            )
            self.store.event(
                f"stage {stage.name} ends with "
                + (f"candidate {chosen}" if chosen is not None else "the original layers")
            )
