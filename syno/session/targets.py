"""Latencies on further machines: who lends each of them, what it must be, and the networks that are timed there.

A target is a machine by a name, beside the one that a session's own latencies are of. Its latencies are columns and objectives
(``best(target=…)``, a front each); they decide nothing of the search, so that a target may be added to a session that
is there. Whoever lends the machine (nodes of a Ray cluster, jobs of Slurm, any pool) runs the session's measurer on it: the network
is built, compiled for that CPU, verified and timed there, in turns with the original, pinned and under that machine's lock. One that
has neither torch nor the task gets the network from this machine as exported files (``send="bundle"``, :mod:`syno.session.bundled`).
"""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import SessionError, shown, unknown_name
from syno.session.bundled import export_call, time_call, timer
from syno.session.elsewhere import Context, RemoteExecutor
from syno.session.executors import Call, Outcome, ProcessExecutor
from syno.session.jobs import Job, run_jobs
from syno.session.protocols import ON, UNFIT, Measurement
from syno.session.records import Candidate
from syno.session.remote import unlike

if TYPE_CHECKING:
    from syno.session.loop import Loop

#: What a target may be sent.
SENDS = ("task", "bundle")


@dataclass(frozen=True)
class Lent:
    """Who lends a target, and what it gets.

    Args:
        executor: by name, or what :mod:`syno.executors` makes; it must be one of machines elsewhere.
        machine: the machine file (JSON) that it must fit; empty: what is lent first is the target from then on.
        send: ``"task"``, of which it builds the networks, with torch, or ``"bundle"``, networks compiled and exported here, which
            need syno and NumPy there.
        cpu: that bundles are compiled for, which this machine has to run: a name such as ``"x86-64-v3"``; empty: this
            machine's.
    Raises:
        UnknownName: no such ``send`` or CPU.
        SessionError: this machine cannot run code for ``cpu``, or it is of no use.
    """

    executor: Any
    machine: str = ""
    send: str = "task"
    cpu: str = ""

    def __post_init__(self) -> None:
        if self.send not in SENDS:
            raise unknown_name("send", self.send, SENDS)
        if self.send == "bundle":
            timer(self.cpu)
        elif self.cpu:
            raise SessionError(
                f"cpu={shown(self.cpu)} is what exported networks are compiled for, and none are sent",
                fix="give send='bundle', or leave cpu out: a target compiles for itself",
                code="R025",
            )


def check_names(names: Mapping[str, Any] | None) -> None:
    """Looks at the names of targets.

    Args:
        names: targets by name; ``None`` for none.
    Raises:
        SessionError: one begins with no letter, has a sign other than letters, digits, ``.``, ``_`` and ``-``, or is longer than
            63.
    """
    for name in names or {}:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,62}", name):
            raise SessionError(
                f"{shown(name)} is no name of a target",
                fix="begin with a letter; letters, digits, '.', '_' and '-' follow, at most 63 in all",
                code="R025",
            )


class Targets:
    """The targets of one run. Made by :meth:`Session.run`."""

    def __init__(self, lent: Mapping[str, Lent], wanted: Mapping[str, str]) -> None:
        self._lent, self._wanted = dict(lent), dict(wanted)

    def prepare(self, context: Context, known: Mapping[str, str]) -> dict[str, str]:
        """Asks each machine that is lent what it is; machine files by name, of those known before, too.

        Args:
            context: the session's directory, settings and numeric class, and whom to tell what happens.
            known: machine files (JSON) by name, of targets that were lent in earlier runs.
        Raises:
            SessionError: nobody answers, or a machine is not what its name stands for: the difference.
        """
        found = dict(known)
        for name, lent in self._lent.items():
            executor: RemoteExecutor = lent.executor
            wanted, before = self._wanted.get(name, ""), known.get(name, "")
            if wanted and before and (differs := unlike(before, wanted)):
                raise SessionError(
                    f"latencies on {name} are of another machine than its machine file has: {differs}",
                    fix="give this machine a name of its own",
                    code="R024",
                )
            part = timer(lent.cpu) if lent.send == "bundle" else None
            found[name] = executor.lend(context, name, wanted or before, part)
        return found

    def measure(self, loop: Loop) -> None:
        """Times the original and all candidates trained to the end that were not timed on a target yet, the best first.

        How long that takes is no time of the search. What is interrupted goes on in the next run.

        Args:
            loop: of the running session: what is to be timed, and where times go on record.
        Raises:
            SessionError: the original cannot be timed on a target.
        """
        for name, lent in self._lent.items():
            todo = list(_open(loop, name))
            if not todo:
                continue
            with contextlib.ExitStack() as stack:
                exports = Exports(loop, lent.cpu) if lent.send == "bundle" else None
                if exports is not None:
                    stack.enter_context(exports)
                    with loop.store.transaction():
                        loop.store.event(
                            f"latencies on {name} are of networks compiled and exported here for {exports.cpu_name}"
                        )
                for candidate in todo:
                    _measure(loop, name, lent.executor, candidate, exports)
        loop.rest()

    def close(self) -> None:
        """Closes those that lent."""
        for lent in self._lent.values():
            lent.executor.close()


class Exports:
    """Networks of a session as parcels, made by a worker process of this machine; the original's is kept while others are timed.

    Args:
        loop: of the running session.
        cpu: that the networks are compiled for, as of :class:`Lent`.
    """

    def __init__(self, loop: Loop, cpu: str) -> None:
        self._loop, self._cpu = loop, cpu
        self._part = timer(cpu)
        self.cpu_name: str = self._part.options["made_for"]["name"]
        """Which the networks are compiled for."""
        self._original: Path | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="syno-parcels-")
        config = loop.config
        self._executor = ProcessExecutor(
            1,
            threads=config.threads_per_measurement,
            start_limit_s=config.limits.start_limit_s,
            logs=loop.directory / "logs",
        )

    def __enter__(self) -> Exports:
        return self

    def __exit__(self, *exception: object) -> None:
        self._executor.close()
        self._folder.cleanup()

    def call(self, candidate: Candidate) -> Call | Outcome:
        """What the target is asked; how the export ended where it did not end well.

        Args:
            candidate: whose network is exported, or the original.
        """
        if self._original is None:
            made = self._export(self._loop.baseline())
            if isinstance(made, Outcome):
                return made
            self._original = made
        if candidate.kind == "baseline":
            return time_call(self._loop.config, candidate.number, self._part, self._original, None)
        made = self._export(candidate)
        if isinstance(made, Outcome):
            return made
        return time_call(self._loop.config, candidate.number, self._part, made, self._original)

    def _export(self, candidate: Candidate) -> Path | Outcome:
        loop = self._loop
        own = "original" if candidate.kind == "baseline" else "network"
        parcel = Path(self._folder.name) / own
        assignment = loop.assignment(candidate)
        call = export_call(loop.config, candidate.number, assignment, parcel, self._cpu)
        for _, outcome in run_jobs(
            loop, [Job(candidate.number, call, "")], executor=self._executor
        ):
            if outcome.state != "ok":
                return replace(outcome, reason=f"it cannot be exported: {outcome.reason}")
        return parcel


def _open(loop: Loop, target: str) -> Iterator[Candidate]:
    baseline = loop.baseline()
    done = [c for c in loop.store.candidates("WHERE c.state = 'done'") if c.kind != "baseline"]
    done.sort(key=lambda c: (not c.finals, -(c.reward or 0.0), c.number))
    for candidate in [baseline, *(c for c in done if loop.was_whole(c))]:
        unfit = any(what.startswith(f"{target}: ") for what in candidate.unfit)
        if candidate.timing_on(target) is None and not unfit:
            yield candidate


def _measure(
    loop: Loop,
    target: str,
    executor: RemoteExecutor,
    candidate: Candidate,
    exports: Exports | None,
) -> None:
    call = loop.measuring_call(candidate) if exports is None else exports.call(candidate)
    for outcome in _outcomes(loop, executor, candidate, call):
        with loop.store.transaction():
            if outcome.state == "ok":
                _record(loop, target, candidate, outcome)
            else:
                _not_timed(loop, target, candidate, outcome)
        if outcome.state != "ok" and candidate.kind == "baseline":
            raise SessionError(
                f"the original network cannot be timed on {target}, and nothing can be compared without it: "
                f"{outcome.reason}",
                fix="mend that, or run without this target: the session goes on",
                code="R025",
            )
        loop.tell_callbacks("measured", candidate.number)


def _outcomes(
    loop: Loop, executor: RemoteExecutor, candidate: Candidate, call: Call | Outcome
) -> Iterator[Outcome]:
    if isinstance(call, Outcome):
        yield call
        return
    for _, outcome in run_jobs(loop, [Job(candidate.number, call, "")], executor=executor):
        yield outcome


def _not_timed(loop: Loop, target: str, candidate: Candidate, outcome: Outcome) -> None:
    what = f"candidate {candidate.number} is not timed on {target}: {outcome.reason}"
    loop.store.event(what, "warning")
    if outcome.state not in ("limit", "lost", "node") and candidate.kind != "baseline":
        # What it did there it does again.
        loop.store.add_note(candidate.number, UNFIT, f"{target}: {outcome.reason}")


def _record(loop: Loop, target: str, candidate: Candidate, outcome: Outcome) -> None:
    found = msgspec.convert(outcome.value, Measurement)
    base = None if candidate.kind == "baseline" else loop.baseline().timing_on(target)
    found = loop.scaled(found, None if base is None else base.latency_us)
    loop.store.add_timing_on(candidate.number, ON + target, found)


def machine_text(machine: str | Path | None) -> str:
    """The JSON of a machine file.

    Args:
        machine: path of the file; ``None`` gives the empty text.
    Raises:
        FormatError: there is none, or it is none.
    """
    from syno.machines.model import load_machine

    return "" if machine is None else load_machine(machine).to_json()


__all__ = [
    "SENDS",
    "Exports",
    "Lent",
    "Targets",
    "check_names",
    "machine_text",
]
