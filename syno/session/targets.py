"""Latencies on further machines: who lends each of them, what it must be, and the networks that are timed there.

A target is a machine by a name, beside the one that a session's own latencies are of. Its latencies are columns and objectives
(``best(target=…)``, a front each); they decide nothing of the search, so that a target may be added to a session that
is there. Whoever lends the machine (nodes of a Ray cluster, jobs of Slurm, any pool) runs the session's measurer on it: the network
is built, compiled for that CPU, verified and timed there, in turns with the original, pinned and under that machine's lock.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import SessionError, shown
from syno.session.elsewhere import Context, RemoteExecutor
from syno.session.executors import Outcome
from syno.session.jobs import Job, run_jobs
from syno.session.protocols import ON, Measurement
from syno.session.records import Candidate
from syno.session.remote import unlike

if TYPE_CHECKING:
    from syno.session.loop import Loop

#: What a note of a candidate is about that a target cannot run.
UNFIT = "target"


@dataclass(frozen=True)
class Lent:
    """Who lends a target: an executor, by name or itself, and the machine file (JSON) that it must fit; empty: what is
    lent first is the target from then on."""

    executor: Any
    machine: str = ""


def check_names(names: Mapping[str, Any] | None) -> None:
    """Raises SessionError for what is no name of a target."""
    for name in names or {}:
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9._-]{0,62}", name):
            raise SessionError(
                f"{shown(name)} is no name of a target",
                fix="begin with a letter; letters, digits, '.', '_' and '-' follow, at most 63 in all",
                code="R025",
            )


class Targets:
    """The targets of one run."""

    def __init__(self, lent: Mapping[str, RemoteExecutor], wanted: Mapping[str, str]) -> None:
        self._lent, self._wanted = dict(lent), dict(wanted)

    def prepare(self, context: Context, known: Mapping[str, str]) -> dict[str, str]:
        """Asks each machine that is lent what it is; machine files by name, of those known before, too.

        Raises:
            SessionError: nobody answers, or a machine is not what its name stands for: the difference.
        """
        found = dict(known)
        for name, executor in self._lent.items():
            wanted, before = self._wanted.get(name, ""), known.get(name, "")
            if wanted and before and (differs := unlike(before, wanted)):
                raise SessionError(
                    f"latencies on {name} are of another machine than its machine file has: {differs}",
                    fix="give this machine a name of its own",
                    code="R024",
                )
            found[name] = executor.lend(context, name, wanted or before)
        return found

    def measure(self, loop: Loop) -> None:
        """Times the original and all candidates trained to the end that were not timed on a target yet, the best first.

        How long that takes is no time of the search. What is interrupted goes on in the next run.
        """
        for name, executor in self._lent.items():
            for candidate in list(_open(loop, name)):
                _measure(loop, name, executor, candidate)
        loop.rest()

    def close(self) -> None:
        """Closes those that lent."""
        for executor in self._lent.values():
            executor.close()


def _open(loop: Loop, target: str) -> Iterator[Candidate]:
    baseline = loop.baseline()
    done = [c for c in loop.store.candidates("WHERE c.state = 'done'") if c.kind != "baseline"]
    done.sort(key=lambda c: (not c.finals, -(c.reward or 0.0), c.number))
    for candidate in [baseline, *(c for c in done if loop.was_whole(c))]:
        unfit = any(what.startswith(f"{target}: ") for what in candidate.unfit)
        if candidate.timing_on(target) is None and not unfit:
            yield candidate


def _measure(loop: Loop, target: str, executor: RemoteExecutor, candidate: Candidate) -> None:
    job = Job(candidate.number, loop.measuring_call(candidate), "")
    for _, outcome in run_jobs(loop, [job], executor=executor):
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

    Raises:
        FormatError: there is none, or it is none.
    """
    from syno.machines.model import load_machine

    return "" if machine is None else load_machine(machine).to_json()


__all__ = [
    "UNFIT",
    "Lent",
    "Targets",
    "check_names",
    "machine_text",
]
