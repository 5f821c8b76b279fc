"""Running calls for candidates: those are repeated whose worker or machine was lost, and what is heard is recorded."""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno.errors import SessionError
from syno.session.executors import Call, Executor, Outcome
from syno.session.nodes import numeric_class

if TYPE_CHECKING:
    from syno.session.running import Running

#: Times a call is repeated elsewhere because the machine that ran it is gone.
MOST_MOVES = 20

#: Key of the class of machines that a session's trainings are made on.
NUMERIC = "numeric_class"

#: Seconds between two records of what an executor says of itself.
_SAYS_EVERY_S = 1.0

#: Calls handed over at the same time, for each that runs: as many wait beside a worker, for it never to wait.
_AHEAD = 2


@dataclass(eq=False)
class Job:
    """A call for a candidate; of a training with ``phase`` and ``seed``. It counts how often it was lost, and moved.

    A candidate is shown as running while one of the search does; in ``"final"`` and without a phase it stays what it is.
    """

    number: int
    call: Call
    phase: str = "search"
    seed: int = 0
    losses: int = 0
    moves: int = 0


MoreJobs = Callable[[], Sequence[Job]]


def run_jobs(
    loop: Running,
    jobs: Sequence[Job],
    more: MoreJobs | None = None,
    executor: Executor | None = None,
) -> Iterator[tuple[Job, Outcome]]:
    """Runs jobs, repeating those whose worker was lost as often as the session allows, and those whose machine was, which
    says nothing of them.

    Args:
        more: gives further jobs whenever outcomes were taken. The candidates with the least numbers come first then, and
            what is repeated with them: others wait for these. Without it, what is repeated is once all others ended.
        executor: who runs them; default the loop's own.
    """
    todo = list(jobs)
    while todo or more is not None:
        runner = _Round(loop, todo, more, executor or loop.executor)
        yield from runner.run()
        todo = runner.again
        if more is not None:
            break
    loop.keep_executor()


class _Round:
    """One use of the executor."""

    def __init__(
        self, loop: Running, jobs: Sequence[Job], more: MoreJobs | None, executor: Executor
    ) -> None:
        self._loop, self._more, self._executor = loop, more, executor
        self._running: dict[int, Job] = {}
        self._given = 0
        self._waiting: list[tuple[int, int, Job]] = []
        self._serial = 0
        self._jobs = list(jobs)
        self.again: list[Job] = []
        """To be repeated in a round of their own."""

    def run(self) -> Iterator[tuple[Job, Outcome]]:
        executor = self._executor
        options: dict[str, Any] = {}
        if self._more is not None:
            check_takes_more(executor)
            for job in self._jobs:
                self._wait(job)
            options["more"] = self._feed
            self._jobs = []
        calls = [self._hand_over(job) for job in self._jobs]
        for index, outcome in executor.run(
            calls, started=self._started, reported=self._reported, **options
        ):
            job = self._running.pop(index)
            lost = outcome.state == "lost" and job.losses < self._loop.config.limits.retries
            gone = outcome.state == "node" and job.moves < MOST_MOVES
            if lost or gone:
                job.losses += lost
                job.moves += gone
                with self._loop.store.transaction():
                    self._loop.store.event(
                        f"candidate {job.number}: {outcome.reason}; repeated", "warning"
                    )
                if self._more is None:
                    self.again.append(job)
                else:
                    self._wait(job)
                continue
            self._keep_place(job, outcome)
            yield job, outcome
        self.again.sort(key=lambda job: job.number)

    def _wait(self, job: Job) -> None:
        self._serial += 1
        heapq.heappush(self._waiting, (job.number, self._serial, job))

    def _feed(self) -> list[Call]:
        assert self._more is not None
        for job in self._more():
            self._wait(job)
        count = getattr(self._executor, "count", None)
        room = len(self._waiting) if count is None else _AHEAD * count - len(self._running)
        taken = [heapq.heappop(self._waiting)[2] for _ in range(min(room, len(self._waiting)))]
        return [self._hand_over(job) for job in taken]

    def _hand_over(self, job: Job) -> Call:
        self._running[self._given] = job
        self._given += 1
        return job.call

    def _started(self, index: int, worker: int) -> None:
        job, store = self._running[index], self._loop.store
        if job.phase not in ("final", ""):
            with store.transaction():
                store.set_state(job.number, "running")
                store.execute(
                    "UPDATE candidate SET worker = ?, tries = tries + ? WHERE number = ?",
                    worker,
                    1 if job.call.kind == "train" else 0,
                    job.number,
                )
        self._loop.keep_executor(every_s=_SAYS_EVERY_S)
        self._loop.tell_callbacks("started", job.number)

    def _reported(self, index: int, step: int, metrics: dict[str, float]) -> None:
        job, store = self._running[index], self._loop.store
        with store.transaction():
            store.add_curve_point(job.number, job.phase, job.seed, step, metrics)
            self._loop.spend()

    def _keep_place(self, job: Job, outcome: Outcome) -> None:
        """Records on which class of machines, and where, a training was made."""
        if job.call.kind != "train" or outcome.state != "ok":
            return
        store = self._loop.store
        with store.transaction():
            if not store.meta(NUMERIC):
                store.set_meta(NUMERIC, outcome.numeric or numeric_class())
            store.add_note(job.number, "class", outcome.numeric or numeric_class())
            if outcome.node:
                store.add_note(job.number, "node", outcome.node)


def check_takes_more(executor: Executor) -> None:
    """Raises SessionError for an executor that takes no calls while others run."""
    try:
        parameters = inspect.signature(executor.run).parameters
    except (TypeError, ValueError):
        return
    if "more" in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values()):
        return
    raise SessionError(
        f"{type(executor).__name__}.run() takes no calls while others run, which a session with a lag needs",
        fix="give its run() the argument more (see syno.session.executors.Executor), or make a session without lag",
        code="R018",
    )
