"""The search loop: batches of candidates, proposed together, measured, trained, told in ticket order.

Batch-synchronous: nothing that happens inside a batch decides what is proposed or stopped in it, so that
the candidates are the same for any number of workers and any order of their answers.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError, SynoError, told
from syno.session.budget import Budget
from syno.session.callbacks import name_of
from syno.session.config import SessionConfig, Stage
from syno.session.durations import Durations
from syno.session.earlier import EarlierFloors
from syno.session.executors import Call, Executor, Outcome
from syno.session.files import (
    checkpoint_path,
    checkpoints_of,
    examples_path,
    given_path,
    operator_path,
)
from syno.session.flow import Flow
from syno.session.jobs import Job, run_jobs
from syno.session.protocols import (
    AS_TIMED,
    ORIGINAL,
    Callback,
    Gains,
    Measurement,
    MeasureRequest,
    OperatorText,
    Predicted,
    PredictRequest,
    Proposal,
    Proposer,
    Reward,
    TrainRequest,
)
from syno.session.pruning import FloorsNow, not_worth_training
from syno.session.records import Candidate, Score, StageEnd
from syno.session.rewards import gains_of
from syno.session.rungs import WHOLE, at_phase, climb_cost_s, phases, score_at
from syno.session.spaces import is_empty, propose_or_skip
from syno.session.store import Store
from syno.session.view import SessionView
from syno.session.worker import describe
from syno.support.files import write_whole
from syno.training.train import TrainResult

#: Key of what a session records of who trains: what the executor says of itself.
EXECUTOR = "executor"

_MOST_ASKS = 64  # of one batch, while all that is proposed is known already


@dataclass
class Batch:
    number: int
    stage: Stage
    asks: list[int]
    tickets: list[tuple[int, int, str]] = field(default_factory=list)  # ticket, candidate, hash


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


class Loop:
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

    # --- bookkeeping

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

    # --- batches

    def open_batches(self, stage: Stage) -> list[Batch]:
        """The stage's unfinished batches in their order, its proposer brought to where it was after the last of them."""
        rows = self.store.execute(
            "SELECT * FROM batch WHERE stage = ? AND state = 'open' ORDER BY number", stage.name
        ).fetchall()
        return [self._opened(stage, row) for row in rows]

    def _opened(self, stage: Stage, row: Any) -> Batch:
        batch = Batch(row["number"], stage, msgspec.json.decode(row["asks"], type=list[int]))
        batch.tickets = [
            (t["ticket"], t["candidate"], t["hash"])
            for t in self.store.execute(
                "SELECT * FROM ticket WHERE stage = ? AND batch = ? ORDER BY ticket",
                stage.name,
                batch.number,
            )
        ]
        # What was proposed before the proposer's state was kept is part of it.
        kept = self.store.asked().get(stage.name, -1)
        if batch.number not in self._replayed and batch.number > kept:
            self._ask_again(batch)
        self._replayed.add(batch.number)
        return batch

    def _ask_again(self, batch: Batch) -> None:
        """Repeats a batch's asks after a restart: the proposer's state was kept before them."""
        proposer = self.proposer(batch.stage)
        given = [
            (proposal.ticket, proposal.operator.key)
            for count in batch.asks
            for proposal in proposer.ask(count)
        ]
        recorded = [(ticket, key) for ticket, _, key in batch.tickets]
        if sorted(given) != recorded:
            raise SessionError(
                f"{self.directory}: the proposer of stage {batch.stage.name!r} no longer proposes what it did "
                f"in batch {batch.number} ({given[:2]}… instead of {recorded[:2]}…)",
                fix="continue with the version of syno that made the session, or start a new one",
                code="R007",
            )

    def propose(self, stage: Stage, width: int) -> Batch | None:
        """A new batch: enqueued candidates first, then proposals; ``None`` when there is nothing left."""
        proposer = self.proposer(stage)
        if self.store.execute(
            "SELECT proposer_state IS NULL FROM stage WHERE name = ?", stage.name
        ).fetchone()[0]:
            # The state before the first ask, so that a restart begins where this run did.
            self.store.execute(
                "UPDATE stage SET proposer_state = ? WHERE name = ?", proposer.state(), stage.name
            )
        waiting = [
            int(row[0])
            for row in self.store.execute(
                "SELECT number FROM candidate WHERE kind = 'enqueued' AND batch IS NULL AND stage = ?"
                " ORDER BY number LIMIT ?",
                stage.name,
                width,
            )
        ]
        known: dict[str, int] = {}
        asks: list[int] = []
        proposals: list[Proposal] = []
        fresh: set[str] = set()
        while len(waiting) + len(fresh) < width and len(asks) < _MOST_ASKS:
            count = width - len(waiting) - len(fresh)
            found = list(proposer.ask(count))
            asks.append(count)
            if not found:
                break
            proposals += found
            for key in {p.operator.key for p in found} - known.keys() - fresh:
                number = self.store.number_of(key, stage.name)
                if number is None:
                    fresh.add(key)
                else:
                    known[key] = number
        if not waiting and not proposals:
            return None
        with self.store.transaction():
            cursor = self.store.execute(
                "INSERT INTO batch(stage, asks, state) VALUES(?, ?, 'open')",
                stage.name,
                msgspec.json.encode(asks).decode(),
            )
            assert cursor.lastrowid is not None
            batch = Batch(cursor.lastrowid, stage, asks)
            for number in waiting:
                self.store.execute(
                    "UPDATE candidate SET batch = ? WHERE number = ?", batch.number, number
                )
            for proposal in sorted(proposals, key=lambda p: p.ticket):
                key = proposal.operator.key
                if key not in known:
                    known[key] = self.store.add_candidate(
                        "proposed",
                        stage.name,
                        proposal.operator,
                        batch=batch.number,
                        proposal=proposal,
                    )
                    if proposal.known:
                        self.store.name_known(key, proposal.known)
                    write_whole(operator_path(self.directory, key), proposal.operator.text)
                self.store.execute(
                    "INSERT INTO ticket VALUES(?, ?, ?, ?, ?)",
                    stage.name,
                    proposal.ticket,
                    batch.number,
                    known[key],
                    key,
                )
                batch.tickets.append((proposal.ticket, known[key], key))
            self.store.event(
                f"batch {batch.number} of stage {stage.name}: {len(waiting) + len(fresh)} candidates"
            )
            self.spend()
        self._replayed.add(batch.number)
        return batch

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

    def predict(self, candidates: Sequence[Candidate]) -> None:
        """Predicts the latencies of those that have none yet."""
        if self.config.predicted_on is None or self.config.measurer is None:
            return
        open_ones = [c for c in candidates if c.state == "queued" and c.predicted_us is None]
        calls = [self.predicting_call(candidate) for candidate in open_ones]
        for index, outcome in self.run_calls(calls, [c.number for c in open_ones]):
            self.record_prediction(open_ones[index].number, outcome)

    def predicting_call(self, candidate: Candidate) -> Call:
        assert self.config.predicted_on is not None and self.config.measurer is not None
        request = PredictRequest(
            candidate=candidate.number,
            assignment=self.assignment(candidate),
            threads=self.config.threads_per_measurement,
            machine=self.config.predicted_on,
        )
        return Call("predict", self.config.measurer, request, self.config.limits.measure_limit_s)

    def record_prediction(self, number: int, outcome: Outcome) -> None:
        """Records a predicted latency, or why there is none."""
        with self.store.transaction():
            if outcome.state == "ok":
                found = msgspec.convert(outcome.value, Predicted)
                self.store.add_prediction(number, found, self.config.threads_per_measurement)
                self.store.set_state(number, "queued")
            else:
                self._fail(number, outcome, "predicting")
            self.spend()

    def members(self, batch: Batch) -> list[Candidate]:
        return self.store.candidates("WHERE c.batch = ?", batch.number)

    def measure(self, candidates: Sequence[Candidate]) -> None:
        """Times those not yet timed, one after the other, while no training runs."""
        if self.config.measurer is None:
            return
        open_ones = [c for c in candidates if c.state == "queued" and not c.measured]
        for candidate in open_ones:
            call = self.measuring_call(candidate)
            for _, outcome in self.run_calls([call], [candidate.number]):
                self._record_measurement(candidate.number, outcome)

    def measuring_call(self, candidate: Candidate) -> Call:
        """Times a candidate's network, wherever it runs."""
        assert self.config.measurer is not None
        limit = self.config.limits.measure_limit_s
        request = MeasureRequest(
            candidate=candidate.number,
            assignment=self.assignment(candidate),
            threads=self.config.threads_per_measurement,
            time_limit_s=limit,
        )
        return Call("measure", self.config.measurer, request, limit)

    def _add_measurement(self, number: int, outcome: Outcome) -> None:
        from syno.support.machine import cpu_model

        found = self._on_one_scale(number, msgspec.convert(outcome.value, Measurement))
        self.store.add_measurement(number, found, cpu_model(), os.getloadavg()[0])

    def _not_timed(self, number: int, outcome: Outcome) -> None:
        # How long it took, or who killed it, says nothing that decides; it goes on without a latency.
        self.store.event(f"candidate {number} is not timed: {outcome.reason}", "warning")

    def _record_measurement(self, number: int, outcome: Outcome) -> None:
        with self.store.transaction():
            if outcome.state == "ok":
                self._add_measurement(number, outcome)
                self.store.set_state(number, "queued")
            elif (
                outcome.state in ("limit", "lost", "node") and self.config.predicted_on is not None
            ):
                self.store.set_state(number, "queued")
                self._not_timed(number, outcome)
            else:
                self._fail(number, outcome, "measuring")
            self.spend()
        state = self.store.candidates("WHERE c.number = ?", number)[0].state
        self.tell_callbacks("measured" if state == "queued" else "failed", number)

    def measure_trained(self, candidate: Candidate) -> None:
        """Times one that was trained already: it stays what it is, unless it computes the wrong values."""
        job = Job(candidate.number, self.measuring_call(candidate), "")
        for _, outcome in run_jobs(self, [job]):
            with self.store.transaction():
                if outcome.state == "ok":
                    self._add_measurement(candidate.number, outcome)
                elif outcome.state in ("limit", "lost", "node"):
                    self._not_timed(candidate.number, outcome)
                else:
                    self._fail(candidate.number, outcome, "measuring")
                self.spend()
            self.tell_callbacks("measured" if outcome.state == "ok" else "failed", candidate.number)

    def _on_one_scale(self, number: int, found: Measurement) -> Measurement:
        """The latency as if the original had run as fast as it is recorded to, where both were timed in turns: what the
        machine did meanwhile slowed both."""
        baseline = self.baseline()
        return self.scaled(found, None if number == baseline.number else baseline.latency_us)

    @staticmethod
    def scaled(found: Measurement, recorded_us: float | None) -> Measurement:
        """A latency as if the original, in turns with it, had taken what is recorded of it; as it is where nothing is."""
        original = found.peers_us.get(ORIGINAL)
        if original is None or recorded_us is None:
            return found
        scale = recorded_us / original
        return msgspec.structs.replace(
            found,
            latency_us=found.latency_us * scale,
            iqr_us=found.iqr_us * scale,
            peers_us={**found.peers_us, AS_TIMED: found.latency_us},
        )

    def _fail(self, number: int, outcome: Outcome, doing: str) -> None:
        state = "lost" if outcome.state in ("lost", "node") else "failed"
        reason = f"{outcome.state} while {doing}: {outcome.reason}"
        self.store.set_state(number, state, reason)
        self.store.event(f"candidate {number} {state}: {reason}", "warning", candidate=number)

    def prune(self, candidates: Sequence[Candidate], baseline: Candidate) -> None:
        """Gives up those whose cost alone rules them out."""
        reference = self.decides_by(baseline)
        for candidate in candidates:
            if candidate.state == "queued":
                self.prune_one(candidate, reference)

    def prune_one(self, candidate: Candidate, reference: Candidate) -> bool:
        """Whether a cost rules a candidate out beside the original; it is given up then."""
        reason = not_worth_training(self.decides_by(candidate), reference, self.config.prune)
        if reason is None:
            return False
        with self.store.transaction():
            self.store.set_state(candidate.number, "pruned", f"before training: {reason}")
        self.tell_callbacks("pruned", candidate.number)
        return True

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

    def fold(self, batch: Batch) -> None:
        """Tells the rewards in ticket order and keeps the proposer's new state, all in one transaction."""
        phase, _ = self.first_phase()
        baseline = self.decides_by(self.baseline(), phase)
        proposer = self.proposer(batch.stage)
        told: dict[int, tuple[float, Gains]] = {}
        with self.store.transaction():
            for row in self.members(batch):
                member = self.decides_by(row, phase)
                reward = self.reward(member, baseline)
                self.store.execute(
                    "UPDATE candidate SET reward = ? WHERE number = ?", reward, member.number
                )
                told[member.number] = (reward, gains_of(member, baseline, self.config.prune))
            for ticket, number, _ in batch.tickets:
                if number not in told:  # proposed before, in an earlier batch
                    earlier = self.store.candidate(number)
                    assert earlier is not None
                    known = self.decides_by(earlier, phase)
                    gains = gains_of(known, baseline, self.config.prune)
                    told[number] = (earlier.reward or 0.0, gains)
                proposer.tell(ticket, *told[number])
            self.store.execute(
                "UPDATE stage SET proposer_state = ? WHERE name = ?",
                proposer.state(),
                batch.stage.name,
            )
            last = self.store.execute(
                "SELECT max(number) FROM batch WHERE stage = ?", batch.stage.name
            ).fetchone()[0]
            self.store.set_asked({**self.store.asked(), batch.stage.name: int(last)})
            self.store.execute("UPDATE batch SET state = 'folded' WHERE number = ?", batch.number)
            self.spend()
        self.tell_callbacks("folded")

    # --- running calls

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
