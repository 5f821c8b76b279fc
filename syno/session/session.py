"""A search session: create or resume, run, ask and tell, and read what was found."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError, SynoError, shown, unknown_name
from syno.machines.model import fixed_kernels
from syno.session.asking import Asked
from syno.session.budget import Budget
from syno.session.combining import combine, combine_in_time, trained_combinations
from syno.session.config import (
    Component,
    Limits,
    Prune,
    Rung,
    SessionConfig,
    Stage,
)
from syno.session.elsewhere import Context, RemoteExecutor
from syno.session.executors import Executor, ProcessExecutor
from syno.session.finals import chosen_seeds, finals_cost_s, train_chosen, train_finalists
from syno.session.lock import SessionLock
from syno.session.loop import Loop
from syno.session.making import create, make_directories, resume
from syno.session.nodes import class_difference, numeric_class
from syno.session.progress import make_progress
from syno.session.protocols import Callback
from syno.session.records import Candidate
from syno.session.recovery import recover
from syno.session.rungs import climb
from syno.session.running import EXECUTOR
from syno.session.spaces import is_empty, skip_empty
from syno.session.store import Store
from syno.session.targets import Lent, Targets, check_names
from syno.session.verdict import Verdict
from syno.session.view_whole import MACHINES
from syno.support.arguments import checked
from syno.support.notebook import Printed
from syno.training.train import TrainResult


@dataclass(frozen=True)
class RunSummary(Printed):
    """How a run ended.

    ``why``: ``"budget"``, ``"exhausted"`` (no operators left), ``"interrupted"`` (Ctrl-C), or another
    sentence. ``notes`` say which stages were skipped and which ran out of operators. ``best`` is the fastest
    candidate that is not worse than the original, if there is one.
    """

    why: str
    notes: list[str]
    trained: int
    elapsed_s: float
    baseline: Candidate | None
    best: Candidate | None
    pareto: list[Candidate]
    verdict: Verdict | None = None

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run; running again continues it."""
        return self.why == "interrupted"

    def __str__(self) -> str:
        best = "the original" if self.best is None else f"{self.best.id}: {self.best.expr}"
        lines = [
            f"ended by {self.why}: {self.trained} trained in {self.elapsed_s:.0f} s; best: {best}"
        ]
        said = [self.verdict.sentence] if self.verdict is not None else []
        return "\n".join([*lines, *said, *self.notes])

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "why": self.why,
            "notes": self.notes,
            "trained": self.trained,
            "elapsed_s": self.elapsed_s,
            "baseline": self.baseline.to_dict() if self.baseline else None,
            "best": self.best.to_dict() if self.best else None,
            "verdict": None if self.verdict is None else msgspec.to_builtins(self.verdict),
            "pareto": [candidate.id for candidate in self.pareto],
        }


class Session(Asked):
    """A session open for writing: one process at a time; readers are welcome. Made by :meth:`open`."""

    def __init__(
        self, directory: Path, store: Store, config: SessionConfig, lock: SessionLock
    ) -> None:
        super().__init__(directory, store, config)
        self._lock = lock

    @classmethod
    @checked()
    def open(
        cls,
        directory: str | Path,
        *,
        proposer: Component | str | None = None,
        stages: Sequence[Stage] | None = None,
        evaluator: Component | str | None = None,
        measurer: Component | str | None = None,
        reward: Component | str | None = None,
        seed: int | None = None,
        batch_width: int | None = None,
        lag: int | None = None,
        threads_per_training: int | None = None,
        threads_per_measurement: int | None = None,
        prune: Prune | None = None,
        rungs: Sequence[Rung] | None = None,
        combine: float | None = None,
        space: Mapping[str, Any] | None = None,
        predicted_on: str | None = None,
        limits: Limits | None = None,
        note: str | None = None,
        machine: str | None = None,
        targets: Mapping[str, str] | None = None,
        parts: Mapping[str, Callable[..., Any]] | None = None,
        trust: bool = False,
    ) -> Session:
        """Creates a session, or resumes the one that is there; what is left out is as it was, or default.

        Args:
            directory: made when it does not exist.
            proposer: the search policy of a session with one stage; give ``stages`` for several.
            stages: search spaces with their proposers, searched in order; see :class:`SessionConfig`.
            evaluator, measurer, reward: parts by name, see :class:`SessionConfig`.
            seed: of the search's trainings and of the proposers; default 0.
            batch_width: candidates proposed together, which decides the search; default 4.
            lag: candidates that may be under way while further ones are proposed; default none, a batch is told before the
                next is proposed. See :class:`SessionConfig`.
            threads_per_training, threads_per_measurement: torch and kernel threads of each; default 1.
            prune: when a candidate is given up early; default :class:`Prune`'s own limits.
            rungs, combine: short trainings before whole ones, and networks with the best operators of several stages; see
                :class:`SessionConfig`.
            space: what describes the search space in words and numbers; a session goes on with an equal one alone.
            predicted_on: machine file (JSON) that latencies are predicted from, see :class:`SessionConfig`.
            limits: workers, seconds of a call, repetitions; these may change when a session goes on.
            note: free text that the session keeps, such as the command that made it; may change as well.
            machine: machine file (JSON) of a deterministic session, see :class:`SessionConfig`.
            targets: further machines, see :class:`SessionConfig`; those that a session has stay in it.
            parts: factories for references that are no importable names; for parts of the coordinator
                (proposers and reward), and for others with an :class:`InlineExecutor`.
            trust: what a session names is imported though it was made by somebody else, or by an older syno;
                says what that is, and signs the session.

        Raises:
            TrustError: the session was not made by this user (see ``trust``).
            SessionError: the directory cannot be used, is in use, holds a damaged or newer session, or was
                made with another value of a field that may not change (named).
        """
        path = Path(directory)
        check_names(targets)
        if proposer is not None and stages is not None:
            raise SessionError(
                "both proposer and stages were given", fix="give one of them", code="R008"
            )
        if proposer is not None:
            stages = [Stage(name="all", proposer=Component.of(proposer))]
        asked: dict[str, Any] = {
            "stages": None if stages is None else tuple(stages),
            "evaluator": None if evaluator is None else Component.of(evaluator),
            "measurer": None if measurer is None else Component.of(measurer),
            "reward": None if reward is None else Component.of(reward),
            "seed": seed,
            "batch_width": batch_width,
            "lag": lag,
            "threads_per_training": threads_per_training,
            "threads_per_measurement": threads_per_measurement,
            "prune": prune,
            "rungs": None if rungs is None else tuple(rungs),
            "combine": combine,
            "space": None if space is None else dict(space),
            "predicted_on": predicted_on,
            "limits": limits,
            "note": None if note is None else note.encode("utf-8", "backslashreplace").decode(),
            "machine": machine,
            "targets": None if targets is None else dict(targets),
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        make_directories(path)
        lock = SessionLock(path)
        store: Store | None = None
        try:
            if (path / "session.sqlite").exists():
                store, config = resume(path, asked, trust)
            else:
                store, config = create(path, asked)
            session = cls(path, store, config, lock)
            session._parts = dict(parts or {})
            recover(path, store, config)
            return session
        except BaseException:
            if store is not None:
                store.close()
            lock.release()
            raise

    def __enter__(self) -> Session:
        return self

    def close(self) -> None:
        """Closes the database and lets the next writer in."""
        super().close()
        self._lock.release()

    def record_recipe(self, recipe: Mapping[str, str]) -> None:
        """Keeps how trainings go, for people: :attr:`recipe` and the report show it.

        Args:
            recipe: words by what they are about, such as ``{"optimizer": "sgd, learning rate 0.1"}``; replaces what was kept.
        """
        with self._store.transaction():
            self._store.set_recipe(dict(recipe))

    def record_words(self, words: Mapping[str, str]) -> None:
        """Keeps operators in plain sentences, beside those that are there; :attr:`words` gives them.

        Args:
            words: a sentence by the operator's key.
        """
        with self._store.transaction():
            self._store.set_words({**self._store.words(), **words})

    # --- running

    @property
    def running(self) -> bool:
        """It is this process that has it open."""
        return True

    @checked()
    def run(
        self,
        *,
        budget: str | int | Budget,
        finalists: int | Mapping[str, int | Sequence[int]] = 0,
        final_seeds: int | Sequence[int] = 3,
        executor: Executor | None = None,
        callbacks: Sequence[Callback] = (),
        progress: str = "auto",
        given: Callable[[], Sequence[TrainResult]] | None = None,
        compare: Callable[[], None] | None = None,
        targets: Mapping[str, Any] | None = None,
    ) -> RunSummary:
        """Searches until the budget is used up, then trains the best ``finalists`` on fresh seeds.

        Running again with the same budget finishes what an interruption left; with a greater one it goes on.
        Ctrl-C ends the workers and returns what there is.

        Args:
            budget: in total over all runs of the session; see :meth:`Budget.parse`.
            finalists: candidates trained again, beside the original, to be judged on the test part: how many of the
                best, or which, each with how many seeds or which: ``{"c7": 8, "c3": 3, "baseline": 8}``.
            final_seeds: how many seeds, beginning after the session's, or which; of the best.
            executor: left out, ``limits.workers`` processes.
            callbacks: told of each event in turn, see :data:`syno.session.callbacks.EVENTS`; what they raise ends the run.
            progress: ``"auto"``, ``"bar"``, ``"log"`` or ``"off"``.
            given: judges the model as it was handed in, before anything is trained, on each part that candidates
                are judged on; called once in a session.
            compare: the last measurement, of finalists and original in turns; called before the run ends, so that what is
                said at its end counts it.
            targets: who lends which of the session's further machines in this run: an executor each, as :mod:`syno.executors`
                makes it, and closed by whoever made it. All networks that were trained to the end are timed there before
                the finalists are trained.

        Raises:
            SessionError: the original cannot be measured or trained, or the disk is full.
            BudgetError: the budget is not understood.
            UnknownName: a finalist that is named is not there, or the session has no such target.
        """
        allowed = Budget.parse(budget)
        if isinstance(final_seeds, int):
            final_seeds = [self.config.seed + 1 + i for i in range(final_seeds)]
        asked = finalists if isinstance(finalists, Mapping) else None
        count = len(finalists) if isinstance(finalists, Mapping) else finalists
        planned = len(final_seeds)
        if asked is not None:
            planned = max(map(len, chosen_seeds(self, asked).values()), default=0)
        limits = self.config.limits
        own = executor is None
        runner: Executor = executor or ProcessExecutor(
            limits.workers,
            threads=self.config.threads_per_training,
            start_limit_s=limits.start_limit_s,
            logs=self.directory / "logs",
        )
        lent = self._lent(targets or {})
        self._prepare(runner)
        shown = make_progress(progress, allowed)
        loop = self._loop(runner, [*callbacks, shown])
        with self._store.transaction():
            self._store.set_meta("run_ended", "running")
            self._store.set_meta("finals_planned", str(planned if count else 0))
            self._store.event(f"run begins: {allowed}")
        try:
            with fixed_kernels(self.config.machine), shown:
                if given is not None:
                    loop.judge_given(given)
                why = self._search(loop, allowed, count, planned)
                lent.measure(loop)
                if asked:
                    train_chosen(loop, asked)
                elif count:
                    train_finalists(loop, count, final_seeds)
                if compare is not None:
                    compare()
                with self._store.transaction():
                    self._store.set_meta("run_ended", why)  # what is said at the end is final
                loop.tell_callbacks("ended")
        except KeyboardInterrupt:
            why = "interrupted"
            with self._store.transaction():
                self._store.execute("UPDATE candidate SET state = 'queued' WHERE state = 'running'")
                loop.spend()
        except Exception:  # a callback's mistake may be any
            with contextlib.suppress(SynoError), self._store.transaction():
                self._store.set_meta("run_ended", "error")
            raise
        finally:
            if own:
                runner.close()
        with self._store.transaction():
            self._store.set_meta("run_ended", why)
            self._store.event(f"run ends: {why}")
        return RunSummary(
            why=why,
            notes=self.notes(),
            trained=self.trained,
            elapsed_s=self.elapsed_s,
            baseline=self.baseline,
            best=self.best(),
            pareto=self.pareto(),
            verdict=self.verdict(),
        )

    def _prepare(self, runner: Executor) -> None:
        """Lets an executor look at its machines before work starts; says so where digits may differ from before."""
        before = self.numeric_class
        prepare = getattr(runner, "prepare", None)
        with self._store.transaction():
            self._store.set_meta(EXECUTOR, "{}")
        if prepare is not None:
            prepare(Context(self.directory, self.config, before, self._say))
        elif before and before != numeric_class():
            self._say(
                f"trainings so far were made on a machine of another class: {class_difference(before, numeric_class())}",
                "warning",
            )

    def _lent(self, given: Mapping[str, Any]) -> Targets:
        """Looks at the machines that are lent, before work starts."""
        wanted = self.config.targets or {}
        rows = {n: v if isinstance(v, Lent) else Lent(v) for n, v in given.items()}
        for name, row in rows.items():
            if name not in wanted:
                raise unknown_name("target", name, wanted)
            if not isinstance(row.executor, RemoteExecutor):
                raise SessionError(
                    f"{shown(row.executor)} lends no machine as the target {name}",
                    fix="give what syno.executors.ray, .slurm or .futures makes",
                    code="R018",
                )
        lent = Targets(rows, wanted)
        if given:
            machines = lent.prepare(
                Context(self.directory, self.config, self.numeric_class, self._say), self._known()
            )
            with self._store.transaction():
                text = msgspec.json.encode(machines, order="deterministic").decode()
                self._store.set_meta(MACHINES, text)
        return lent

    def _known(self) -> dict[str, str]:
        """What was lent in earlier runs."""
        found: dict[str, str] = msgspec.json.decode(self._store.meta(MACHINES, "{}"))
        return found

    def _say(self, what: str, level: str) -> None:
        with self._store.transaction():
            self._store.event(what, level)

    def _search(self, loop: Loop, budget: Budget, finalists: int, seeds: int) -> str:
        skip_empty(loop)
        if budget.time_s is not None and budget.time_s <= float(self._store.meta("time_up_s", "0")):
            return (
                "budget"  # finalists are chosen: seconds saved since then do not reopen the search
            )
        stages = [stage for stage in self.config.stages if not is_empty(self, stage)]
        shares = [stage.share for stage in stages]
        total = sum(shares)
        why = "budget"
        share = (self.config.combine or 0.0) if len(stages) > 1 else 0.0
        together = 0 if budget.candidates is None else math.floor(share * budget.candidates)
        left = None if budget.candidates is None else budget.candidates - together
        searching_s = None if budget.time_s is None else budget.time_s * (1 - share)
        for index, stage in enumerate(stages):
            last = index == len(stages) - 1
            if not loop.is_open(stage):
                if left is not None:
                    left -= loop.used(stage)
                continue
            part = sum(shares[: index + 1]) / total
            time_s = None if searching_s is None else searching_s * part
            if last and searching_s is not None and finalists:
                time_s = max(1e-3, searching_s - finals_cost_s(loop, finalists, seeds))
            most = None
            if left is not None:
                rest = sum(shares[index:])
                most = left if last else max(1, round(left * stage.share / rest))
            why = self._search_stage(loop, stage, Budget(time_s, budget.candidates), most)
            if left is not None:
                left -= loop.used(stage)
            if not last and why != "empty":
                loop.choose(stage)
        if share and budget.candidates is not None:
            why = self._combine(loop, budget, together, stages[-1]) or why
        elif share and budget.time_s is not None:
            kept_s = finals_cost_s(loop, finalists, seeds) if finalists else 0.0
            combine_in_time(loop, budget.time_s - kept_s)
        if budget.time_s is not None and loop.time_up:
            with self._store.transaction():
                self._store.set_meta("time_up_s", repr(budget.time_s))
        return why

    def _combine(self, loop: Loop, budget: Budget, together: int, last: Stage) -> str:
        """Trains ``together`` combinations within the budget; what they leave of it goes to the last stage, whose end it
        returns."""
        assert budget.candidates is not None
        ended = int(self._store.meta("combinations_ended", "0"))
        if budget.candidates > ended:
            left = budget.candidates - self.trained
            before = trained_combinations(loop)
            if combine(loop, before + min(left, together - before)):
                return ""
            with self._store.transaction():
                self._store.set_meta("combinations_ended", str(budget.candidates))
        left = budget.candidates - self.trained
        if left < 1 or not loop.is_open(last):
            return ""
        return self._search_stage(loop, last, budget, loop.used(last) + left)

    def _search_stage(self, loop: Loop, stage: Stage, budget: Budget, most: int | None) -> str:
        """Searches a stage, then takes its candidates from rung to rung; once begun with that, no further one is
        proposed within the same time. With a lag, those that were trained to their end are timed at last, while nothing trains."""
        climbed = self._store.climbed_s()
        if budget.time_s is None or budget.time_s > climbed.get(stage.name, 0.0):
            why = loop.search(stage, budget, most)
        else:
            why = "budget"
        if why != "empty" and self.config.rungs:
            if budget.time_s is not None:
                with self._store.transaction():
                    self._store.set_climbed_s({**climbed, stage.name: budget.time_s})
            climb(loop, stage)
        if why != "empty" and self.config.lag is not None:
            loop.measure_trained(stage)
        return why

    def _repr_html_(self) -> str:
        return super()._repr_html_()
