"""The loops of a program whose tensors lie otherwise: the space that is built anew for each layout (ALT §5.2).

What callers bring along stays as it lies: a call copies it, and its time counts that; constants are copied before calls.
Tensors that are `free` are said to lie so already, as where another kernel wrote them (ALT's propagation).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from syno import _core
from syno.errors import SynoError
from syno.machines.model import MachineModel


class LoopSpace:
    """Schedules of one program in one choice of layouts.

    Args:
        program: a concrete one.
        layouts: by tensor.
        constants: inputs that stay the same over calls.
        free: arguments that lie so already.
    Raises:
        ScheduleError: a layout does not fit, or indices become too long to be written.
    """

    def __init__(
        self,
        program: _core.Program,
        layouts: Mapping[str, str],
        machine: MachineModel,
        *,
        dtype: str,
        threads: int,
        constants: Sequence[str] = (),
        free: Sequence[str] = (),
    ) -> None:
        self.program = program
        """What is measured: of the program, with what is free lying so."""
        inner = program
        before: list[dict[str, Any]] = []
        packed: list[str] = []
        for name, layout in layouts.items():
            if name in free:
                self.program = _core.laid_out(self.program, name, layout)
                inner = _core.laid_out(inner, name, layout)
        kept = {name: name for name in constants}
        for name, layout in layouts.items():
            if name in free:
                continue
            # What a program computes itself lies otherwise under its own name.
            argument = name in program.inputs or name in program.outputs
            copy = _fresh(inner, f"{name}_l") if argument else name
            decision = _core.lay_out_decision(name, layout, copy)
            before += json.loads(decision.to_json())["trace"]
            if name in constants:
                inner = _core.laid_out(inner, name, layout).renamed({name: copy})
                kept[name] = copy
                packed.append(copy)
            else:
                inner = _core.laid_out(inner, name, layout, copy if argument else "")
        self._before = [*before, *({"name": "prepack", "scope": copy} for copy in packed)]
        self._space = _core.ScheduleSpace(
            inner,
            machine,
            dtype=dtype,
            threads=threads,
            constants=list(kept.values()),
            laid_out=True,
        )
        self.inner = inner
        self.constants = list(kept.values())

    def starts(self) -> list[_core.Candidate]:
        return list(self._space.starts())

    def sample(self, seed: int) -> _core.Candidate | None:
        return self._space.sample(seed)

    def mutate(self, parent: _core.Candidate, seed: int) -> _core.Candidate | None:
        return self._space.mutate(parent, seed)

    def cross(
        self, one: _core.Candidate, other: _core.Candidate, seed: int
    ) -> _core.Candidate | None:
        return self._space.cross(one, other, seed)

    def candidate(self, schedule: _core.Schedule) -> _core.Candidate | None:
        """Of a schedule of the program as it lies."""
        return self._space.candidate(schedule)

    def whole(self, schedule: _core.Schedule) -> _core.Schedule | None:
        """A schedule of loops with the layouts before it: one of `program`; None where it does not apply to that."""
        if not self._before:
            return schedule
        document = json.loads(schedule.to_json())
        document["trace"] = [*self._before, *document["trace"]]
        try:
            made = _core.Schedule.from_json(json.dumps(document))
            _core.apply_schedule(self.program, made)
        except SynoError:
            return None
        return made


def _fresh(program: _core.Program, wanted: str) -> str:
    name = wanted
    while name in program.tensors:
        name += "l"
    return name
