"""Which schedule a kernel gets: the best one on record, else one constructed from the machine model."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno import _core
from syno.config import deterministic
from syno.errors import SynoError, unknown_name
from syno.kernels.cache import read_entry, write_entry
from syno.machines.model import MachineModel, machine_model
from syno.support.bounded import Bounded
from syno.support.files import remove
from syno.support.numbers import MOST_THREADS, whole

if TYPE_CHECKING:
    from syno.operators.operator import Operator

Constructed = _core.Constructed
ScopeQuestion = _core.ScopeQuestion

#: How schedules are constructed: the name of a policy, or a function in its place.
Policy = str | Callable[[ScopeQuestion], tuple[int | str, dict[str, int]]]


@functools.cache
def policies() -> dict[str, str]:
    """The policies that construct schedules without measuring: what each does, by name."""
    return dict(_core.construction_policies())


@dataclass(frozen=True)
class Chosen:
    """A schedule and where it comes from."""

    schedule: _core.Schedule
    """Of the program it was asked for."""
    origin: str
    """"constructed", "recorded" (measured, best known) or "given"."""
    new: bool = False
    """Whether it was constructed just now; else it was taken from where it was kept."""
    forget: Callable[[], None] = field(default=lambda: None, compare=False)
    """Keeps it no longer: no kernel can be made with it."""
    made: Constructed | None = field(default=None, compare=False)
    """Why it is as it is, where that is known."""


def construct(
    operator: Operator | _core.Program,
    *,
    threads: int = 1,
    dtype: str = "float32",
    machine: MachineModel | None = None,
    policy: Policy = "graph",
    seed: int = 0,
    **options: Any,
) -> Constructed:
    """Constructs a schedule from the machine model, without measuring anything: milliseconds.

    Args:
        operator: at one valuation; or a concrete program.
        threads: the kernel will mostly run on.
        dtype: "float32", "float64" or "bfloat16".
        machine: default this machine's model.
        policy: "graph" (Gensor's walk), "tree" (greedy, as Roller), "uniform" (a random walk along the same
            edges), "all" (every state, up to `budget`) or "counted" (no construction). All but the last have the
            same ranking and build the same number of finalists. Or a function that is asked once for each
            reduction, consumers first, and again where the construction begins anew: it gets a
            `ScopeQuestion`, whose sketches say their names, choices and predicted cycles, and returns
            `(sketch, {choice: value})`, the place or name of a sketch and the numbers that differ from its
            counted ones.
        seed: of the walk; the result depends on the arguments only.
        options: further ones of `_core.construct_schedule`.
    Returns:
        The schedule, its prediction, and the walks; printing it explains the choice, `text(walk=True)`
        with every step.
    Raises:
        ShapeError: the operator is symbolic with several valuations.
        UnknownName: no such dtype or policy; a function named a sketch or a choice that there is not.
        ScheduleError: a function answered something else, or what cannot be built.
    """
    threads = whole("construct", "threads", threads, 1, MOST_THREADS)
    if not callable(policy) and policy not in list(policies()):
        raise unknown_name("policy", policy, policies())
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
        policy=policy,
        seed=seed,
        **options,
    )


#: Constructed schedules kept in the process, some kilobytes each with their programs' texts; older ones are
#: read from the cache directory, or constructed again.
KEPT_SCHEDULES = 2048

_Key = tuple[str, str, int, tuple[str, ...], int, str]
_constructed: Bounded[tuple[object, ...], _core.Schedule] = Bounded(KEPT_SCHEDULES)
#: The same as they were constructed, with the seconds predicted: what a search predicts, it often compiles next.
_predicted: Bounded[_Key, tuple[_core.Schedule, float]] = Bounded(KEPT_SCHEDULES)


def choose_schedule(
    program: _core.Program,
    dtype: str,
    threads: int,
    directory: Path | None,
    *,
    constants: Sequence[str] = (),
    constants_from: int = 0,
    mend: Callable[[_core.Schedule], _core.Schedule] | None = None,
    anew: bool = False,
    made_for: str = "",
) -> Chosen:
    """The schedule of a kernel nobody gave one for.

    Args:
        program: a concrete one.
        dtype: "float32", "float64" or "bfloat16".
        threads: that the kernel will mostly run on.
        directory: of compiled kernels, where constructed schedules are kept, too; None: nowhere.
        constants: inputs whose copies are made before calls; only what is on record for such calls serves them.
        constants_from: an index of the machine model's levels, that they come from at each call; 0: from the nearest that
            holds what the kernel reads and writes.
        mend: looks at a schedule that was just constructed; what it returns is kept instead.
        anew: construct it whatever is on record or kept: with that, no kernel could be made.
        made_for: what `mend` looks at, where that is more than the program: what it keeps serves that alone.
    """
    from syno.tuning.records import record_store

    if not anew and not deterministic():
        found = record_store().best(program, dtype, threads, constants=constants)
        if found is not None:
            return Chosen(found[1], "recorded")
    machine = machine_model()
    key = _key(program, dtype, threads, constants, constants_from, machine)
    mended = (*key, made_for)
    path = directory / f"{_digest(mended if made_for else key)}.schedule" if directory else None

    def forget() -> None:
        _constructed.discard(mended)
        _predicted.discard(key)
        if path:
            with contextlib.suppress(OSError):
                remove(path)

    if anew:
        forget()
    known = _constructed.get(mended)
    if known is not None:
        return Chosen(known, "constructed", forget=forget)
    schedule = _read(path) if path else None
    new = schedule is None
    if schedule is None:
        schedule, _ = _made(program, key, machine)
        if mend is not None:
            schedule = mend(schedule)
        if path:
            write_entry(path, schedule.to_json().encode())
    return Chosen(_constructed.setdefault(mended, schedule), "constructed", new, forget)


def predicted_seconds(
    program: _core.Program,
    dtype: str,
    threads: int,
    constants: Sequence[str],
    constants_from: int = 0,
) -> float:
    """What the machine model says of the schedule that is constructed for a concrete program: seconds of a call.

    Args:
        program: a concrete one.
        dtype: "float32", "float64" or "bfloat16".
        threads: that the kernel will mostly run on.
        constants: inputs that stay the same over calls, whose copies and packing cost nothing.
        constants_from: as for :func:`choose_schedule`.
    """
    machine = machine_model()
    key = _key(program, dtype, threads, constants, constants_from, machine)
    return _made(program, key, machine)[1]


def constructed_schedule(
    program: _core.Program, dtype: str, threads: int, constants: Sequence[str]
) -> _core.Schedule:
    """The schedule that is constructed for a concrete program, kept for whoever compiles it next.

    Args:
        program, dtype, threads, constants: as for :func:`predicted_seconds`.
    """
    machine = machine_model()
    key = _key(program, dtype, threads, constants, 0, machine)
    return _made(program, key, machine)[0]


def for_ranges(
    largest: _core.Program,
    live: _core.Program,
    ends: Sequence[tuple[str, int, int]],
    dtype: str,
    threads: int,
    constants: Sequence[str] = (),
) -> _core.Program:
    """The program whose schedule serves a range of sizes.

    Args:
        largest: the program of the largest sizes.
        live: the same with ends that follow the sizes, of `_core.with_live_ends`.
        ends: name, least and greatest value of each size.
        dtype, threads, constants: as for :func:`predicted_seconds`.
    Returns:
        `largest`, whose schedule others may share; or `live` where that schedule makes one loop of rows that are shorter in
        most calls, and is predicted to be slower for it.
    """
    plain = constructed_schedule(largest, dtype, threads, constants)
    if not _core.fuses_growing(live, plain):
        return largest
    machine = machine_model()
    sizes = [
        [high for _, _, high in ends],
        [(low + high) // 2 for _, low, high in ends],
        [low for _, low, _ in ends],
    ]

    def seconds(schedule: _core.Schedule) -> float:
        nests = _core.apply_prepacked(live, schedule, list(ends))
        nest = _core.apply_schedule(live, schedule, list(ends)) if nests is None else nests[1]
        made = [
            _core.predict_nest(nest.specialised(each), machine, threads=threads) for each in sizes
        ]
        return math.prod(each.seconds for each in made)

    apart = constructed_schedule(live, dtype, threads, constants)
    return live if seconds(apart) < seconds(plain) else largest


def counted_seconds(
    program: _core.Program,
    dtype: str,
    threads: int,
    constants: Sequence[str],
    constants_from: int = 0,
) -> float:
    """What the machine model says of a schedule made by count alone, found in milliseconds, in seconds, too. Seldom a third
    above `predicted_seconds` where data and weights stay in caches; up to three times where they do not, as no scope is
    computed tile by tile.

    Args:
        program, dtype, threads, constants, constants_from: as for :func:`predicted_seconds`.
    """
    return construct(
        program,
        threads=threads,
        dtype=dtype,
        constants=list(constants),
        constants_from=constants_from,
        policy="counted",
        fusions=False,
        explain=False,
    ).predicted_s


def _key(
    program: _core.Program,
    dtype: str,
    threads: int,
    constants: Sequence[str],
    constants_from: int,
    machine: MachineModel,
) -> _Key:
    text = str(program.text()) + str(_core.live_ends(program))
    names = tuple(sorted(constants))
    return text, dtype, threads, names, constants_from if names else 0, _identity(machine)


def _made(program: _core.Program, key: _Key, machine: MachineModel) -> tuple[_core.Schedule, float]:
    known = _predicted.get(key)
    if known is not None:
        return known
    _, dtype, threads, constants, constants_from, _ = key
    made = construct(
        program, threads=threads, dtype=dtype, machine=machine, constants=list(constants),
        constants_from=constants_from, explain=False,
    )  # fmt: skip
    return _predicted.setdefault(key, (made.schedule, made.predicted_s))


def _digest(key: tuple[object, ...]) -> str:
    return hashlib.blake2b(repr((_core.build_id(), *key)).encode(), digest_size=16).hexdigest()


def kept_for() -> tuple[str, bool]:
    """What kernels depend on beside their programs and what is asked of them, for who keeps them: the machine model, and
    whether records count."""
    return _identity(machine_model()), deterministic()


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
    body = read_entry(path)
    if body is None:
        return None
    try:
        return _core.Schedule.from_json(body.decode())
    except (UnicodeDecodeError, SynoError):
        return None  # of another version: constructed again
