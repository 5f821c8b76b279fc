"""Which schedule serves calls with packed weights: what was found for plain calls, packed, beside the constructed one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from syno import _core
from syno.errors import SynoError
from syno.kernels.prepack import PrepackedKernel, prepacked
from syno.kernels.spills import call_nest
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.tuning.records import Record, plain_names, record_store
from syno.tuning.reuse.names import renamed
from syno.tuning.reuse.prepacking import with_prepacked
from syno.tuning.reuse.shapes import shape_of

#: Schedules that are timed beside the one such calls have, and samples of each.
_TRIED, _TURNS = 3, 15
#: What takes more than this share of the constructed one's time is no better.
_BETTER = 0.98


def settle(
    program: _core.Program,
    constants: Sequence[str],
    records: Sequence[Record],
    *,
    dtype: str,
    threads: int,
    keep: bool = True,
) -> float:
    """Times the best schedules on record, with weights packed before calls, in turns with the one such calls have.

    Args:
        program: a concrete one.
        constants: its inputs that stay the same over calls.
        records: of plain calls of this program.
        keep: put the fastest on record for such calls, where it is not the one they have.
    Returns:
        Time of the one they have / that of the fastest, at least 1.
    """
    operator = Operator(program)
    common: dict[str, Any] = {"dtype": dtype, "threads": threads}
    found: list[tuple[Record | None, _core.Schedule | None, PrepackedKernel]] = []
    try:
        found.append((None, None, prepacked(operator, constants, **common)))
    except SynoError:
        return 1.0
    for record, schedule in _promising(program, constants, records, threads):
        try:
            kernel = prepacked(operator, constants, schedule=schedule, **common)
        except SynoError:  # packed, it may fit no kernel
            continue
        found.append((record, schedule, kernel))
    if len(found) == 1:
        return 1.0
    times = _times([kernel for _, _, kernel in found], threads)
    best = min(range(len(found)), key=times.__getitem__)
    chosen, schedule_of_it, _ = found[best]
    if chosen is None or schedule_of_it is None or times[best] > _BETTER * times[0]:
        return 1.0
    if keep:
        made = msgspec.structs.replace(
            chosen.with_schedule(schedule_of_it),
            constants=plain_names(program, constants),
            median_us=times[best],
            q1_us=times[best],
            q3_us=times[best],
            samples=_TURNS,
            rank_us=_rank(program, constants, dtype, threads, times[best] / times[0], times[best]),
            features=None,
        )
        record_store().add([made])
    return times[0] / times[best]


def _promising(
    program: _core.Program, constants: Sequence[str], records: Sequence[Record], threads: int
) -> list[tuple[Record, _core.Schedule]]:
    """The schedules, packed, that are predicted to be fastest: corrected by how wrong that was for plain calls."""
    machine = machine_model()
    found: dict[str, tuple[float, Record, _core.Schedule]] = {}
    for record in records:
        try:
            there = shape_of(_core.Program.parse(record.program))
            plain = renamed(record.trace(), there, shape_of(program))
            nest = _core.apply_schedule(program, plain)
            schedule = with_prepacked(program, plain, constants)
            call = _core.predict_nest(call_nest(program, schedule), machine, threads=threads)
        except SynoError:  # a damaged trace, or one of other names
            continue
        wrong = record.median_us / max(
            _core.predict_nest(nest, machine, threads=threads).seconds, 1e-12
        )
        text = str(schedule.text())
        if text not in found or call.seconds * wrong < found[text][0]:
            found[text] = call.seconds * wrong, record, schedule
    ranked = sorted(found.items(), key=lambda one: (one[1][0], one[0]))
    return [(record, schedule) for _, (_, record, schedule) in ranked[:_TRIED]]


def _rank(
    program: _core.Program,
    constants: Sequence[str],
    dtype: str,
    threads: int,
    ratio: float,
    time_us: float,
) -> float:
    """In turns with the best one on record, which is what such calls have."""
    known = record_store().best(program, dtype, threads, constants=constants)
    return known[0].rank * ratio if known else time_us


def _times(kernels: Sequence[PrepackedKernel], threads: int) -> list[float]:
    """Median microseconds of a call of each, in turns, on data in cache."""
    from syno.timing.bench import measure

    random = np.random.default_rng(0)
    shapes = kernels[0].operator.shapes
    kind = np.float64 if kernels[0].dtype == "float64" else np.float32
    arrays = {name: random.random(shapes[name]).astype(kind) for name in kernels[0].operator.inputs}
    calls: dict[str, Callable[[], Any]] = {}
    for number, kernel in enumerate(kernels):
        packed = kernel.pack(**{name: arrays[name] for name in kernel.constants})
        given = [arrays[name] for name in kernel.data]
        out = packed(*given)
        calls[str(number)] = functools.partial(packed, *given, out=out)
    return [
        timing.median_us for timing in measure(calls, turns=_TURNS, threads=threads, one_pool=True)
    ]
