"""Executors whose calls run in processes elsewhere: what they share, whoever lends the processes."""

from __future__ import annotations

import abc
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError
from syno.session.config import Component, SessionConfig
from syno.session.executors import Call, More, Outcome, ProcessExecutor, Reported
from syno.session.nodes import Facts, chosen_class, class_difference, facts, why_unfit
from syno.session.protocols import TrainRequest
from syno.session.remote import (
    CONTINUES,
    MACHINE,
    Answer,
    Lender,
    Word,
    job_of,
    keep_files,
    unlike,
)

Say = Callable[[str, str], None]


@dataclass(frozen=True)
class Context:
    """What an executor is told of the session before its first call.

    ``numeric`` is the class of the trainings on record, empty where there are none; ``say(what, level)`` records an event.
    """

    directory: Path
    config: SessionConfig
    numeric: str
    say: Say


@dataclass(frozen=True)
class Heard:
    """Of the call ``number``: an :class:`Answer`, an :class:`Outcome`, a :class:`Word`; ``node`` is whose it is, where that
    is known."""

    number: int
    what: Answer | Outcome | Word
    node: str = ""


@dataclass
class Counts:
    """What an executor has done so far."""

    in_flight: int = 0
    done: int = 0
    repeated: int = 0
    refused: list[str] = field(default_factory=list)


class RemoteExecutor(abc.ABC):
    """Runs trainings and predictions elsewhere, as bytes, and measurements on this machine, whose model a session has.

    Args:
        memory_bytes: of a training, with all that it starts; one that holds more is killed, which is its outcome.
    """

    kind = "elsewhere"

    #: Seconds after which a training comes back to go on wherever there is room, where nothing is heard of it meanwhile; 0:
    #: never.
    hand_back_s = 0.0

    def __init__(self, memory_bytes: int | None = None) -> None:
        self.memory_bytes = memory_bytes
        self.counts = Counts()
        self.numeric = ""
        self._threads = 1
        self._start_limit_s = 120.0
        self._say: Say = lambda what, level: None
        self._local: ProcessExecutor | None = None
        self._workers: dict[str, int] = {}
        self._logs: Path | None = None
        self.target = ""
        """The target that it lends to the session, see :meth:`lend`; empty for one that trains."""
        self._machine = ""

    # --- what each of them does in its own way

    @abc.abstractmethod
    def _submit(self, number: int, call: Call, job: bytes) -> None:
        """Hands a call over."""

    @abc.abstractmethod
    def _poll(self, timeout_s: float) -> list[Heard]:
        """What is heard within some time; at once where there is something."""

    @abc.abstractmethod
    def _abandon(self) -> None:
        """Ends or forgets all calls that run."""

    @abc.abstractmethod
    def _examine(self, job: bytes) -> list[Facts]:
        """What :func:`syno.session.remote.examine` finds on the machines there are; on one where they cannot be told
        apart."""

    def measures(self) -> bool:
        """Whether measurements run elsewhere, too."""
        return bool(self.target)

    def describe(self) -> dict[str, Any]:
        """What ``status`` shows: kind, machines, calls in flight, repeated ones."""
        return {
            "kind": self.kind,
            "nodes": [{"node": name} for name in sorted(self._workers) if name],
            "numeric": self.numeric,
            "in_flight": self.counts.in_flight,
            "done": self.counts.done,
            "repeated": self.counts.repeated,
            "refused": self.counts.refused,
        }

    # --- before the first call

    def prepare(self, context: Context) -> None:
        """Asks every machine whether it can do the session's work, and chooses the class that trainings run in.

        Raises:
            SessionError: a machine cannot, a sentence each, or none can.
        """
        config = context.config
        self._threads = config.threads_per_training
        self._start_limit_s = config.limits.start_limit_s
        self._say = context.say
        self._logs = context.directory / "logs"
        request = TrainRequest(
            candidate=0, assignment={}, seed=0, part="", threads=1, time_limit_s=0.0
        )
        call = Call("check", config.evaluator, request, config.limits.start_limit_s)
        nodes = self._examine(self._job(call))
        head = facts()
        if unfit := [why for node in nodes if (why := why_unfit(node, head))]:
            raise SessionError(
                "; ".join(dict.fromkeys(unfit)),
                fix="mend these machines or take them out, then run again: the session goes on",
                code="R019",
            )
        self.numeric = chosen_class(nodes, context.numeric)
        others = [node for node in nodes if node.numeric != self.numeric]
        if nodes and len(others) == len(nodes):
            raise SessionError(
                f"the session's trainings were made on '{self.numeric}', and no machine is like that: "
                + "; ".join(
                    f"{node.host} is not ({class_difference(node.numeric, self.numeric)})"
                    for node in others
                ),
                fix="use such machines as before, or begin a new session in another directory",
                code="R019",
            )
        for node in others:
            self._refuse(node.host, class_difference(node.numeric, self.numeric))

    def lend(
        self, context: Context, target: str, machine: str, part: Component | None = None
    ) -> str:
        """Makes this one that times networks on a target, and trains nothing; the machine's file (JSON).

        Args:
            machine: machine file (JSON) that it must fit; empty: it is taken as it is.
            part: what times networks there; default the session's measurer.
        Raises:
            SessionError: nobody answers, the versions differ, it cannot make the measurer, or it is another machine: the
                difference.
        """
        config = context.config
        if config.measurer is None:
            raise SessionError(
                f"the session times nothing, so that {target} has nothing to time either",
                fix="leave the target out, or begin a session with a measurer",
                code="R025",
            )
        self.target = target
        self._threads = config.threads_per_measurement
        self._start_limit_s = config.limits.start_limit_s
        self._say, self._logs = context.say, context.directory / "logs"
        part = part or config.measurer
        lender = msgspec.convert(self._asked(MACHINE, config, part).value, Lender)
        if why := why_unfit(lender.facts, facts()):
            raise SessionError(
                f"the target {target}: {why}", fix="mend it, then run again", code="R019"
            )
        if machine and (differs := unlike(machine, lender.machine)):
            raise SessionError(
                f"{lender.facts.host} is lent as the target {target}, and differs from it: {differs}",
                fix="lend the machine that it is, or give this one a name of its own",
                code="R024",
            )
        self._machine = machine or lender.machine
        self._asked("check", config, part)
        return self._machine

    def _asked(self, kind: str, config: SessionConfig, part: Component) -> Outcome:
        """What the target answers before there is work for it."""
        call = Call(kind, part, {}, config.limits.start_limit_s)
        ((_, outcome),) = list(self.run([call]))
        if outcome.state != "ok":
            raise SessionError(
                f"the target {self.target} cannot measure: {outcome.reason}",
                fix="it must import syno, torch and the task, in the versions that are here"
                if part is config.measurer
                else "it must import syno, in the version that is here, and have the CPU that networks are compiled for",
                code="R019",
            )
        return outcome

    def _refuse(self, node: str, why: str) -> None:
        text = f"{node}: {why}"
        if text not in self.counts.refused:
            self.counts.refused.append(text)
            self._say(f"not used for trainings: {text}", "warning")

    def _job(self, call: Call) -> bytes:
        return job_of(
            call,
            threads=self._threads,
            start_limit_s=self._start_limit_s,
            memory_bytes=self.memory_bytes,
            numeric=self.numeric if call.kind == "train" else "",
            hand_back_s=self.hand_back_s,
            machine=self._machine,
        )

    # --- calls

    def run(
        self,
        calls: Sequence[Call],
        *,
        started: Callable[[int, int], None] | None = None,
        reported: Reported | None = None,
        more: More | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        if calls and all(call.kind == "measure" for call in calls) and not self.measures():
            yield from self._here().run(calls, started=started, reported=reported, more=more)
            return
        given = 0
        spent: dict[int, float] = {}  # seconds of what was handed back
        open_calls: dict[int, Call] = {}
        begun: set[int] = set()

        def hand_over(calls: Sequence[Call]) -> None:
            nonlocal given
            for call in calls:
                number, given = given, given + 1
                open_calls[number] = call
                self.counts.in_flight += 1
                self._submit(number, call, self._job(call))

        def begins(number: int, node: str) -> None:
            if number not in begun:
                begun.add(number)
                if started:
                    started(number, self._workers.setdefault(node, len(self._workers)))

        try:
            hand_over(calls)
            while True:
                if more is not None:
                    hand_over(more())
                if not open_calls:
                    break
                for heard in self._poll(1.0):
                    if heard.number not in open_calls:
                        continue
                    what = heard.what
                    if isinstance(what, Word):
                        call = open_calls[heard.number]
                        self._listen(heard.number, what, call, begins, reported)
                        continue
                    if isinstance(what, Answer) and what.state == CONTINUES:
                        left = self._rest(open_calls[heard.number], what)
                        begins(heard.number, what.node)
                        spent[heard.number] = spent.get(heard.number, 0.0) + what.seconds
                        if left is not None:
                            open_calls[heard.number] = left
                            self._submit(heard.number, left, self._job(left))
                            continue
                    outcome = self._ended(heard, open_calls[heard.number])
                    before = spent.pop(heard.number, 0.0)
                    outcome = replace(outcome, seconds=before + outcome.seconds)
                    begins(heard.number, outcome.node)
                    begun.discard(heard.number)
                    del open_calls[heard.number]
                    self.counts.in_flight -= 1
                    self.counts.done += outcome.state != "node"
                    self.counts.repeated += outcome.state == "node"
                    yield heard.number, outcome
        finally:
            if open_calls:
                self.counts.in_flight -= len(open_calls)
                self._abandon()

    def _rest(self, call: Call, back: Answer) -> Call | None:
        """What is left of a training that was handed back; None where its time is used up."""
        self._keep(call, back.files)
        left_s = call.limit_s - back.seconds
        if left_s <= 0:
            return None
        request = msgspec.structs.replace(call.request, time_limit_s=left_s)
        return replace(call, request=request, limit_s=left_s)

    def _listen(
        self,
        number: int,
        word: Word,
        call: Call,
        begins: Callable[[int, str], None],
        reported: Reported | None,
    ) -> None:
        begins(number, word.node)
        if word.what == "reported" and reported:
            reported(number, word.step, word.metrics)
        elif word.what == "checkpoint":
            # Without it a training begins again where it is lost; the disk may be full.
            with contextlib.suppress(OSError):
                keep_files(call, {"checkpoint": word.checkpoint})

    def _ended(self, heard: Heard, call: Call) -> Outcome:
        what = heard.what
        if isinstance(what, Outcome):
            return what
        assert isinstance(what, Answer)
        worker = self._workers.setdefault(what.node, len(self._workers))
        if what.refused:
            self._refuse(what.node, what.refused)
            return Outcome("node", reason=f"{what.node} refused: {what.refused}", node=what.node)
        if what.state == CONTINUES:
            return Outcome(
                "limit",
                reason=f"its time is used up (limit {call.limit_s:g} s left)",
                worker=worker,
            )
        self._keep(call, what.files)
        return what.outcome(worker)

    def _keep(self, call: Call, files: dict[str, bytes]) -> None:
        try:
            keep_files(call, files)
        except OSError as error:
            raise SessionError(
                f"{error.filename or self._logs} cannot be written: {error.strerror}",
                fix="free space on the disk or make it writable, then run again: the session goes on",
                code="R009",
            ) from error

    def _here(self) -> ProcessExecutor:
        if self._local is None:
            logs = self._logs if self._logs is not None and self._logs.is_dir() else None
            self._local = ProcessExecutor(
                1, threads=self._threads, start_limit_s=self._start_limit_s, logs=logs
            )
        return self._local

    def close(self) -> None:
        if self._local is not None:
            self._local.close()
            self._local = None


def decoded(answer: bytes) -> Answer | Outcome:
    """What came back; an outcome where it is none of this syno's."""
    try:
        return msgspec.msgpack.decode(answer, type=Answer)
    except msgspec.MsgspecError as error:
        return Outcome("node", reason=f"an answer cannot be read: {error}")


def wait_a_little(until: float) -> None:
    """Sleeps a tenth of a second, or until a moment that comes before."""
    time.sleep(max(0.0, min(0.1, until - time.monotonic())))
