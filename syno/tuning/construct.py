"""Which schedule a kernel gets: the best one on record, else one constructed from the machine model."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno import _core
from syno.bounded import Bounded
from syno.errors import KernelError, SynoError
from syno.files import write_whole
from syno.tuning.machine import MachineModel, machine_model

if TYPE_CHECKING:
    from syno.operator import Operator

Constructed = _core.Constructed


@dataclass(frozen=True)
class Chosen:
    """A schedule and where it comes from."""

    schedule: _core.Schedule
    origin: str
    """"constructed", "recorded" (measured, best known) or "given"."""


def construct(
    operator: Operator | _core.Program,
    *,
    threads: int = 1,
    dtype: str = "float32",
    machine: MachineModel | None = None,
    method: str = "graph",
    seed: int = 0,
    **options: Any,
) -> Constructed:
    """Constructs a schedule from the machine model, without measuring anything: milliseconds.

    Args:
        operator: at one valuation; or a concrete program.
        threads: the kernel will mostly run on.
        dtype: "float32", "float64" or "bfloat16".
        machine: default this machine's model.
        method: "graph" (Gensor's walk), "tree" (greedy, as Roller) or "counted" (no construction).
        seed: of the walk; the result depends on the arguments only.
        options: further ones of `_core.construct_schedule`.
    Returns:
        The schedule, its prediction, and the walks; printing it explains the choice, `text(walk=True)`
        with every step.
    Raises:
        ShapeError: the operator is symbolic with several valuations.
        UnknownName: no such dtype or method.
    """
    if threads < 1:
        raise KernelError(f"[construct] threads={threads} must be at least 1")
    program = (
        operator
        if isinstance(operator, _core.Program)
        else operator._one_valuation("schedules").program
    )
    return _core.construct_schedule(
        program,
        machine or machine_model(),
        dtype=dtype,
        threads=threads,
        method=method,
        seed=seed,
        **options,
    )


#: Constructed schedules kept in the process, some kilobytes each with their programs' texts; older ones are
#: read from the cache directory, or constructed again.
KEPT_SCHEDULES = 2048

_Key = tuple[str, str, int, tuple[str, ...], str]
_constructed: Bounded[_Key, _core.Schedule] = Bounded(KEPT_SCHEDULES)


def choose_schedule(
    program: _core.Program,
    dtype: str,
    threads: int,
    directory: Path | None,
    *,
    constants: Sequence[str] = (),
    mend: Callable[[_core.Schedule], _core.Schedule] | None = None,
) -> Chosen:
    """The schedule of a kernel nobody gave one for.

    Args:
        program: a concrete one.
        directory: of compiled kernels, where constructed schedules are kept, too; None: nowhere.
        constants: inputs whose copies are made before calls; what is on record is not for such calls.
        mend: looks at a schedule that was just constructed; what it returns is kept instead.
    """
    from syno.tuning.records import record_store

    if not constants and (found := record_store().best(program, dtype, threads)) is not None:
        return Chosen(found[1], "recorded")
    machine = machine_model()
    text = str(program.text())
    key = (text, dtype, threads, tuple(constants), _identity(machine))
    known = _constructed.get(key)
    if known is not None:
        return Chosen(known, "constructed")
    path = directory / f"{_digest(key)}.schedule" if directory else None
    schedule = _read(path) if path else None
    if schedule is None:
        schedule = construct(
            program,
            threads=threads,
            dtype=dtype,
            machine=machine,
            constants=list(constants),
            explain=False,
        ).schedule
        if mend is not None:
            schedule = mend(schedule)
        if path:
            _write(path, schedule)
    return Chosen(_constructed.setdefault(key, schedule), "constructed")


def _digest(key: _Key) -> str:
    return hashlib.blake2b(repr((_core.build_id(), *key)).encode(), digest_size=16).hexdigest()


_identities: Bounded[int, tuple[MachineModel, str]] = Bounded(16)


def _identity(machine: MachineModel) -> str:
    """Of everything in the model, made once an object."""
    known = _identities.get(id(machine))
    if known is not None and known[0] is machine:
        return known[1]
    made = hashlib.blake2b(machine.to_json().encode(), digest_size=16).hexdigest()
    _identities.setdefault(id(machine), (machine, made))
    return made


def _read(path: Path) -> _core.Schedule | None:
    try:
        return _core.Schedule.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, SynoError):
        return None  # damaged or of another version: constructed again


def _write(path: Path, schedule: _core.Schedule) -> None:
    with contextlib.suppress(OSError):  # a full disk costs the next process a construction only
        write_whole(path, schedule.to_json())
