"""Candidates are trained, as long as their curves are good enough, and what came out is recorded."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from syno.errors import SessionError, SynoError, told
from syno.session.earlier import EarlierFloors
from syno.session.executors import Call, Outcome
from syno.session.files import (
    checkpoint_path,
    checkpoints_of,
    examples_path,
    given_path,
)
from syno.session.protocols import (
    TrainRequest,
)
from syno.session.pruning import FloorsNow
from syno.session.records import Candidate, Score
from syno.session.timing_runs import TimingRun
from syno.support.files import write_whole
from syno.training.train import TrainResult


def _score(phase: str, result: TrainResult) -> Score:
    return Score(
        phase=phase,
        seed=result.seed,
        part=result.part,
        metric=result.metric,
        higher_is_better=result.higher_is_better,
        value=result.value,
        stderr=result.stderr if math.isfinite(result.stderr) else 0.0,
        count=result.count,
        steps=result.steps,
        total_steps=result.total_steps,
        seconds=result.seconds,
        examples_per_s=result.examples_per_s,
        threads=result.threads,
    )


class TrainingRun(TimingRun):
    """A run that gets to know what candidates are worth."""

    def train(self, candidates: Sequence[Candidate], baseline: Candidate | None) -> None:
        """Trains those still queued, as many at a time as the executor has workers."""
        chosen = [c for c in candidates if c.state == "queued"]
        found = {} if baseline is None else self.floors(chosen)
        phase, share = self.first_phase()
        seed = self.config.seed
        calls = []
        for candidate in chosen:
            floors, why = found.get(candidate.number, ([], ""))
            calls.append(
                self.training_call(candidate, seed, "validation", floors, why, share=share)
            )
        numbers = [c.number for c in chosen]
        for index, outcome in self.run_calls(calls, numbers, phase, seed):
            self.record_training(numbers[index], outcome, phase)

    def training_call(
        self,
        candidate: Candidate,
        seed: int,
        part: str,
        floors: list[tuple[float, float]],
        why: str,
        weights: Path | None = None,
        *,
        share: float = 1.0,
    ) -> Call:
        limit = self.config.limits.train_limit_s
        request = TrainRequest(
            candidate=candidate.number,
            assignment=self.assignment(candidate),
            seed=seed,
            part=part,
            threads=self.config.threads_per_training,
            time_limit_s=limit,
            floors=floors,
            floors_why=why,
            weights=None if weights is None else str(weights.resolve()),
            machine=self.config.predicted_on or "",
            share=share,
            checkpoint=str(checkpoint_path(self.directory, candidate.number, part, share, seed)),
            checkpoint_s=self.config.limits.checkpoint_s,
        )
        return Call("train", self.config.evaluator, request, limit)

    def floors(
        self, chosen: Sequence[Candidate]
    ) -> dict[int, tuple[list[tuple[float, float]], str]]:
        """What each curve of a batch's candidates must reach, from trainings that were told before the batch was proposed,
        and why."""
        phase, _ = self.first_phase()
        found = {}
        for candidate in chosen:
            if candidate.kind != "baseline":
                now = self.floors_before(candidate.stage, candidate.batch)
                found[candidate.number] = now.of(self.decides_by(candidate, phase))
        return found

    def floors_before(self, stage: str, batch: int | None) -> FloorsNow:
        """Of the trainings that were told when a batch was proposed; batches are asked about in their order, or anew."""
        phase, _ = self.first_phase()
        if self._floors is None or not self._floors.serves(stage, phase, batch):
            self._floors = EarlierFloors(self, stage, phase)
        return self._floors.before(batch)

    def record_training(self, number: int, outcome: Outcome, phase: str) -> None:
        """Records how a training of the search ended."""
        what = "failed"
        with self.store.transaction():
            if outcome.state == "ok":
                result = msgspec.convert(outcome.value, TrainResult)
                self.add_result(number, phase, result)
                self.store.set_state(number, result.state, result.reason)
                what = {"done": "trained", "pruned": "pruned"}.get(result.state, "failed")
                if what == "failed":
                    self.store.event(f"candidate {number} failed: {result.reason}", "warning")
            else:
                self._fail(number, outcome, "training")
            self.store.execute("UPDATE candidate SET trained = 1 WHERE number = ?", number)
            self.spend()
        self.forget_checkpoints(number)
        self.tell_callbacks(what, number)

    def forget_checkpoints(self, number: int) -> None:
        """Removes what a training was written down in, once its end is recorded."""
        for left in checkpoints_of(self.directory, number):
            with contextlib.suppress(OSError):
                left.unlink()

    def add_result(self, number: int, phase: str, result: TrainResult) -> None:
        for point in result.curve:
            self.store.add_curve_point(number, phase, result.seed, point.step, point.metrics)
        if math.isfinite(result.value):
            self.store.add_score(number, _score(phase, result))
            if phase == "final" and result.examples:
                candidate = self.store.candidate(number)
                assert candidate is not None
                path = examples_path(self.directory, candidate.files, phase, result.seed)
                self._keep_examples(path, result)

    def _keep_examples(self, path: Path, result: TrainResult) -> None:
        path.parent.mkdir(exist_ok=True)
        write_whole(path, result.examples)
        self.store.add_file(path)

    def judge_given(self, judge: Callable[[], Sequence[TrainResult]]) -> None:
        """Records what the model is worth as it was handed in, once.

        Raises:
            SessionError: it cannot be judged.
        """
        if self.store.given():
            return
        try:
            results = judge()
        except SynoError:
            raise
        except (Exception, SystemExit) as error:
            raise SessionError(
                f"the model as it was handed in cannot be judged: {told(error)}",
                fix="make the task judge the model on its own first: nothing can be compared without it",
                code="R011",
            ) from error
        with self.store.transaction():
            self.store.set_given(
                {r.part: _score("given", r) for r in results if math.isfinite(r.value)}
            )
            for result in results:
                value = f"{result.metric} {result.value:.4g} on {result.count} examples"
                self.store.event(f"the model as handed in: {value} of {result.part}")
                if result.examples:
                    self._keep_examples(given_path(self.directory, result.part), result)
            self.spend()
        self.tell_callbacks("given")
