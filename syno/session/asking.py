"""Search by ask and tell: the caller evaluates the candidates, in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError
from syno.session.config import (
    Component,
    SessionConfig,
)
from syno.session.executors import Executor
from syno.session.files import operator_path
from syno.session.loop import Loop
from syno.session.protocols import Callback, Measurement, OperatorText
from syno.session.records import COMBINED, Candidate, Score
from syno.session.spaces import propose_or_skip, skip_empty
from syno.session.store import Store
from syno.session.view import SessionView
from syno.support.files import write_whole
from syno.training.train import CurveFloor


class Trial:
    """A candidate in the hands of a caller who evaluates it: between ``ask`` and ``tell``. Made by :meth:`Asked.ask`."""

    def __init__(
        self,
        session: Asked,
        candidate: Candidate,
        floors: tuple[list[tuple[float, float]], str] = ([], ""),
    ) -> None:
        self._session = session
        self.candidate = candidate
        self._floors, self._why = floors
        self._last: tuple[int, dict[str, float]] = (0, {})
        self.total_steps = 0

    @property
    def operator(self) -> OperatorText | None:
        """What to put into the network; ``None`` for the original, which is always asked about first."""
        key = self.candidate.key
        return self._session._store.operator(key) if key else None

    def report(self, step: int, *, total_steps: int = 0, **metrics: float) -> None:
        """Records ``metrics``, by name, after ``step`` batches of ``total_steps`` (0: not known, then no curve is pruned)."""
        self._last = (step, metrics)
        self.total_steps = total_steps or self.total_steps
        store = self._session._store
        with store.transaction():
            store.add_curve_point(
                self.candidate.number, "search", self._session.config.seed, step, metrics
            )

    def should_stop(self) -> str | None:
        """A reason to give the candidate up after the last report, or ``None``.

        The metric is not finite, or the curve is below what earlier batches say it must reach.
        """
        step, metrics = self._last
        for name, value in metrics.items():
            if not math.isfinite(value):
                return f"{name} is {value} after step {step}"
        baseline = self._session.baseline
        score = baseline.score if baseline else None
        if score is None or score.metric not in metrics or not self.total_steps:
            return None
        rule = CurveFloor(self._floors, score.higher_is_better, self._why)
        return rule(step, self.total_steps, metrics[score.metric])


class Asked(SessionView):
    """A session whose candidates the caller evaluates. Made by :meth:`Session.open`, as part of what it gives."""

    def __init__(self, directory: Path, store: Store, config: SessionConfig) -> None:
        super().__init__(directory, store, config)
        self._parts: dict[str, Callable[..., Any]] = {}
        self._manual: Loop | None = None

    def _make(self, component: Component, **more: Any) -> Any:
        factory = self._parts.get(component.now_at)
        if factory is not None:
            return factory(**more, **component.options)
        return component.make(**more)

    def _loop(self, executor: Executor | None, callbacks: Sequence[Callback] = ()) -> Loop:
        return Loop(self.directory, self._store, self.config, self, executor, self._make, callbacks)

    def ask(self) -> Trial | None:
        """The next candidate to evaluate, the original first; ``None`` when the space is exhausted.

        Ask and tell in any order; a batch is complete when all of its candidates are told.
        """
        if self.config.rungs:
            raise SessionError(
                "a session with rungs trains by itself: it decides how long",
                fix="call run(), or make a session without rungs to ask and tell",
                code="R014",
            )
        loop = self._manual_loop()
        baseline = loop.baseline()
        if baseline.state == "queued":
            return self._hand_out(baseline)
        for stage in self.config.stages:
            batches = loop.open_batches(stage)
            for batch in batches:
                for candidate in loop.members(batch):
                    if candidate.state == "queued":
                        return self._hand_out(candidate)
            new = None
            if len(batches) < self.config.batches_open:
                new = propose_or_skip(loop, stage, self.config.batch_width)
            if new is not None and (members := loop.members(new)):
                return self._hand_out(members[0])
            if batches:
                count = sum(len(loop.members(batch)) for batch in batches)
                raise SessionError(
                    f"all {count} candidates of batch {batches[0].number}"
                    f"{f' to {batches[-1].number}' if len(batches) > 1 else ''} are asked but not all told",
                    fix="tell() them first, or choose a greater batch_width or lag",
                    code="R014",
                )
            if new is not None:
                loop.fold(new)
        return None

    def _manual_loop(self) -> Loop:
        if self._manual is None:
            self._manual = self._loop(None)
            skip_empty(self._manual)
        return self._manual

    def _hand_out(self, candidate: Candidate) -> Trial:
        floors = self._manual_loop().floors([candidate]).get(candidate.number, ([], ""))
        with self._store.transaction():
            self._store.set_state(candidate.number, "running")
        return Trial(self, candidate, floors)

    def tell(
        self,
        trial: Trial | Candidate | str,
        *,
        latency_us: float | None = None,
        failed: str = "",
        pruned: str = "",
        higher_is_better: bool | None = None,
        count: int = 0,
        stderr: float = 0.0,
        **metrics: float,
    ) -> None:
        """The outcome of a candidate: one metric by name and its latency, or ``failed="why"``.

        Args:
            trial: what :meth:`ask` gave, the candidate, or its id.
            latency_us: of the whole network, microseconds a call; ``None``: not timed.
            failed: why there is no metric.
            pruned: why a training was stopped early; the metric is then its last.
            higher_is_better: direction of a metric that syno does not know.
            count, stderr: examples that the metric was judged on, and its standard error.
            metrics: one, by name: ``accuracy=0.93``.
        Raises:
            SessionError: the candidate is not open, there is not exactly one metric, or it is none that syno
                knows and ``higher_is_better`` does not say its direction.
        """
        if isinstance(trial, Trial):
            number = trial.candidate.number
        elif isinstance(trial, Candidate):
            number = trial.number
        else:
            number = self.candidate(trial).number
        candidate = self._store.candidate(number)
        assert candidate is not None
        if candidate.state != "running":
            raise SessionError(
                f"{candidate.id} is {candidate.state}: it was told before, or never asked",
                fix="tell what ask() returned, once",
                code="R014",
            )
        if bool(failed) == bool(metrics) or len(metrics) > 1:
            raise SessionError(
                f"{candidate.id} was told {sorted(metrics) or 'no metric'}"
                + (f" and failed={failed!r}" if failed else ""),
                fix="tell one metric, such as accuracy=0.9, or failed='why'",
                code="R014",
            )
        name, value = next(iter(metrics.items()), ("", math.nan))
        if metrics and higher_is_better is None:
            higher_is_better = _direction(name)
        with self._store.transaction():
            self._store.execute("UPDATE candidate SET trained = 1 WHERE number = ?", number)
            if latency_us is not None:
                self._store.add_measurement(number, Measurement(latency_us=latency_us), "", 0.0)
            if failed or not math.isfinite(value):
                self._store.set_state(number, "failed", failed or f"{name} is {value}")
            else:
                steps = trial.total_steps if isinstance(trial, Trial) else 0
                told = self._told(name, value, higher_is_better, count, stderr)
                self._store.add_score(number, msgspec.structs.replace(told, total_steps=steps))
                self._store.set_state(number, "pruned" if pruned else "done", pruned)
        self._fold_complete(candidate)

    def _told(
        self, name: str, value: float, higher_is_better: bool | None, count: int, stderr: float
    ) -> Score:
        assert higher_is_better is not None, "the direction of a metric that was told is known"
        return Score(
            phase="search",
            seed=self.config.seed,
            part="validation",
            metric=name,
            higher_is_better=higher_is_better,
            value=value,
            stderr=stderr,
            count=count,
            steps=0,
            total_steps=0,
            seconds=0.0,
            examples_per_s=0.0,
            threads=self.config.threads_per_training,
        )

    def _fold_complete(self, candidate: Candidate) -> None:
        loop = self._manual_loop()
        for stage in self.config.stages:
            if stage.name != candidate.stage:
                continue
            for batch in loop.open_batches(stage):
                if any(member.state in ("queued", "running") for member in loop.members(batch)):
                    return
                loop.fold(batch)

    def enqueue(self, operator: OperatorText, *, stage: str | None = None) -> Candidate:
        """Adds an operator of the caller's to the next batch; what is known already is returned as it is.

        Args:
            operator: its key, formula and text, as a proposer gives them.
            stage: whose sites it is for; default the last.
        Raises:
            SessionError: there is no such stage.
        """
        names = [s.name for s in self.config.stages]
        chosen = stage or names[-1]
        if chosen not in names:
            raise SessionError(
                f"there is no stage {chosen!r}",
                fix=f"choose one of {', '.join(names)}",
                code="R012",
            )
        found = self._store.candidates("WHERE c.operator = ? AND c.stage = ?", operator.key, chosen)
        if found:
            return found[0]
        with self._store.transaction():
            number = self._store.add_candidate("enqueued", chosen, operator)
            write_whole(operator_path(self.directory, operator.key), operator.text)
        candidate = self._store.candidate(number)
        assert candidate is not None
        return candidate

    def warm_start(self, other: SessionView) -> list[Candidate]:
        """Enqueues the operators on another session's Pareto front, each in the stage of its name where there is one.

        Args:
            other: the session that they come from, open for reading (:func:`open_view`) or writing.
        Returns:
            The candidates here, those that were known already among them.
        """
        stages = [stage.name for stage in self.config.stages]
        found: dict[int, Candidate] = {}
        for candidate in other.pareto():
            own = other.assignment(candidate)
            if candidate.key and candidate.kind != COMBINED:
                own = {candidate.stage: candidate.key}
            for stage, key in own.items():
                made = self.enqueue(
                    other._store.operator(key), stage=stage if stage in stages else None
                )
                found.setdefault(made.number, made)
        return list(found.values())


def _direction(metric: str) -> bool:
    """Whether a metric told by name is better when higher. Raises SessionError for one nobody knows."""
    from syno.training.metrics import METRICS

    if metric not in METRICS:
        raise SessionError(
            f"is {metric!r} better when it is higher, or lower?",
            fix=f"tell it with higher_is_better=True or False; known without: {', '.join(sorted(METRICS))}",
            code="R014",
        )
    return METRICS[metric]().higher_is_better
