"""Schedules whose kernels keep their vectors in registers: what the code generator puts on the stack is counted."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from syno import _core
from syno.errors import ScheduleError
from syno.kernels.construct import construct
from syno.machines.model import MachineModel, machine_model

#: Registers that smaller tiles leave free, one try after the other, and how much slower they may be.
_SPARE_REGISTERS = (2, 5, 9)
_LITTLE_SLOWER = 1.1

#: Vectors put on the stack and back in an iteration of the innermost loop, below which that is no matter: what is
#: computed from complete sums, an activation, may need more registers than there are.
_FEW = 1.0


def without_spills(
    program: _core.Program,
    schedule: _core.Schedule,
    *,
    dtype: str,
    threads: int,
    constants: Sequence[str] = (),
    codes: list[_core.Kernel] | None = None,
    machine: MachineModel | None = None,
    cpu: _core.Cpu | None = None,
    nest_of: Callable[[_core.Schedule], _core.LoopNest] | None = None,
) -> _core.Schedule:
    """The schedule, or one with smaller register tiles where the code generator keeps vectors of it on the
    stack: what that costs nobody predicts.

    Smaller tiles are tried until the innermost loops of one need no stack, as long as they are predicted to be little
    slower.

    Args:
        program: a concrete one.
        schedule: constructed for `threads` and `constants`.
        codes: takes what is compiled on the way, so that who compiles it again finds it. None of it goes to the cache
            of compiled objects, where nobody would ask for the schedules that are not chosen.
        machine, cpu: that the schedule is for; default this one.
        nest_of: what every call of a schedule runs; default what it makes of the program.
    """
    nest_of = nest_of or functools.partial(call_nest, program)
    machine = machine or machine_model()
    compiled = [] if codes is None else codes

    def spills(nest: _core.LoopNest) -> float:
        compiled.append(_core.compile_nest(nest, cpu=cpu))
        return float(compiled[-1].report.hot_spills)

    nest = nest_of(schedule)
    best, fewest = schedule, spills(nest)
    if fewest < _FEW:
        return schedule

    def predicted(nest: _core.LoopNest) -> float:
        """At the greatest sizes, of a nest whose calls bring some along."""
        greatest = [high for _, _, high in nest.parameters]
        plain = nest.specialised(greatest) if greatest else nest
        return float(_core.predict_nest(plain, machine, threads=threads).seconds)

    slowest = _LITTLE_SLOWER * predicted(nest)
    for spare in _SPARE_REGISTERS:
        made = construct(
            program,
            threads=threads,
            dtype=dtype,
            machine=machine,
            spare_registers=spare,
            constants=list(constants),
            explain=False,
        )
        try:
            nest = nest_of(made.schedule)
        except ScheduleError:  # made for one size of a range, whose code has longer loops
            continue
        if predicted(nest) > slowest:
            break
        found = spills(nest)
        if found < fewest:
            best, fewest = made.schedule, found
        if fewest < _FEW:
            break
    return best


def call_nest(program: _core.Program, schedule: _core.Schedule) -> _core.LoopNest:
    """What every call runs: without what the schedule prepacks."""
    nests = _core.apply_prepacked(program, schedule)
    return _core.apply_schedule(program, schedule) if nests is None else nests[1]
