"""Where schedules are measured: on this machine, or on several that are like it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from syno import _core
from syno.errors import SessionError
from syno.machines.model import machine_key
from syno.tuning.records import Record, make_record

#: Of measurements, what a search says of them; where a machine keeps its lock and its cache is its own.
OPTIONS = ("threads", "cold", "samples", "sample_s", "limit_s", "lock_wait_s")


class Bench(Protocol):
    """Measures schedules of one program after the other, each alone on its machine."""

    @property
    def width(self) -> int:
        """Schedules that are measured at the same time."""
        ...

    def measure(
        self,
        program: _core.Program,
        schedules: Sequence[_core.Schedule],
        options: _core.MeasureOptions,
    ) -> list[Record]:
        """A record of each, in their order, whatever became of it."""
        ...

    def compare(
        self,
        program: _core.Program,
        one: _core.Schedule,
        other: _core.Schedule,
        options: _core.MeasureOptions,
    ) -> float:
        """The first's time as a part of the other's, in turns on one machine; 0 where either fails."""
        ...


class LocalBench:
    """This machine."""

    width = 1

    def measure(
        self,
        program: _core.Program,
        schedules: Sequence[_core.Schedule],
        options: _core.MeasureOptions,
    ) -> list[Record]:
        measured = _core.measure_schedules(program, list(schedules), options)
        return [
            make_record(program, schedule, one, threads=options.threads, cold=options.cold)
            for schedule, one in zip(schedules, measured, strict=True)
        ]

    def compare(
        self,
        program: _core.Program,
        one: _core.Schedule,
        other: _core.Schedule,
        options: _core.MeasureOptions,
    ) -> float:
        return float(_core.compare_schedules(program, one, other, options))


def as_job(
    program: _core.Program, schedules: Sequence[_core.Schedule], options: _core.MeasureOptions
) -> bytes:
    """What another machine needs to measure schedules."""
    plain = {name: getattr(options, name) for name in OPTIONS}
    texts = [schedule.to_json() for schedule in schedules]
    return msgspec.msgpack.encode([str(program.text()), texts, plain])


def measured_here(job: bytes, *, compare: bool = False) -> bytes:
    """What :func:`as_job` made, measured on this machine, under its own lock: records, or one ratio."""
    from syno.tuning.search import default_options

    text, schedules, plain = msgspec.msgpack.decode(job)
    program = _core.Program.parse(text)
    found = [_core.Schedule.from_json(schedule) for schedule in schedules]
    options = default_options(plain["threads"], plain["cold"])
    for name, value in plain.items():
        setattr(options, name, value)
    bench = LocalBench()
    if compare:
        one, other = found
        return msgspec.msgpack.encode(bench.compare(program, one, other, options))
    return msgspec.json.encode(bench.measure(program, found, options))


def records_of(answer: bytes) -> list[Record]:
    """What came back. Of machines like this one: what was measured there serves here."""
    found = msgspec.json.decode(answer, type=list[Record])
    own = machine_key()
    return [msgspec.structs.replace(record, machine=own) for record in found]


@contextlib.contextmanager
def bench_on(executor: Any, options: Mapping[str, Any] | None = None) -> Iterator[Bench]:
    """Where an executor measures schedules; this machine without one. One that is named here is closed at the end.

    Args:
        executor: as callers name it; or what this gave before, which stays open.
    Raises:
        SessionError: the executor has no machines for that, or one differs from this machine.
    """
    from syno.executors import resolve

    if hasattr(executor, "measure") and hasattr(executor, "compare"):
        yield executor
        return
    made = resolve(executor, options)
    if made is None or isinstance(made, int):
        yield LocalBench()
        return
    try:
        bench = getattr(made, "bench", None)
        if bench is None:
            raise SessionError(
                f"{type(made).__name__} measures no schedules on other machines",
                fix="give ray, with nodes that are like this machine, or leave the executor out",
                code="R018",
            )
        yield bench()
    finally:
        if made is not executor:
            made.close()


__all__ = ["Bench", "LocalBench", "as_job", "bench_on", "measured_here", "records_of"]
