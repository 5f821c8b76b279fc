"""Candidates are timed, or their latencies predicted, and those that cost too much are ruled out."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from syno.session.config import Stage
from syno.session.executors import Call, Outcome
from syno.session.jobs import Job, run_jobs
from syno.session.protocols import (
    AS_TIMED,
    ORIGINAL,
    Measurement,
    MeasureRequest,
    Predicted,
    PredictRequest,
)
from syno.session.pruning import not_worth_training
from syno.session.records import Candidate
from syno.session.running import Running


class TimingRun(Running):
    """A run that gets to know what candidates cost."""

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

    def measure_trained(self, stage: Stage) -> None:
        """Times the candidates of a stage that were trained to their end, those that are not timed yet: it decides nothing of
        what came before. Of rungs only the last counts: what was trained short is timed by nobody."""
        if self.config.measurer is None:
            return
        done = self.store.candidates("WHERE c.state = 'done' AND c.stage = ?", stage.name)
        for candidate in done:
            if not candidate.measured and self.was_whole(candidate):
                self._measure_one(candidate)

    def _measure_one(self, candidate: Candidate) -> None:
        """It stays what it is, unless it computes the wrong values."""
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
