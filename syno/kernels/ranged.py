"""Machine code for ranges of sizes: made once for programs that are the same, held against the interpreter at several sizes.

The layers of a network are equal but for their weights: at every size their programs have one text. Such programs share
schedule, code and check. Checks that passed are remembered beside the code in the cache, as those of single sizes are.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from syno import _core
from syno.errors import KernelError, ScheduleError, ShapeError
from syno.kernels.cache import usable_cache
from syno.kernels.choosing import made_with, schedule_of
from syno.kernels.construct import Chosen, for_ranges, kept_for
from syno.kernels.verdicts import Outcome, Verdict
from syno.operators.operator import Operator
from syno.support.bounded import Bounded
from syno.support.machine import usable_cores

Sizes = tuple[int, ...]

#: Programs of which the code for ranges is kept.
_KEPT = 512


class NotTheSame(KernelError):
    """Code for a range of sizes computes something else at one of them."""


@dataclass(frozen=True)
class Range:
    """A size that calls bring along: its name, its least and its greatest value."""

    name: str
    least: int
    greatest: int


@dataclass(frozen=True)
class RangedKernels:
    """What computes a program at all sizes of a range: a kernel that packs constants, if any, and one that calls run."""

    schedule: _core.Schedule
    prepack: _core.Kernel | None
    """Of constants, which have no such size."""
    call: _core.Kernel
    """With the sizes as parameters: `call.at(sizes)` is a kernel."""
    outcome: Outcome

    @property
    def codes(self) -> list[_core.Kernel]:
        """As `checked_at` takes them."""
        return [self.call] if self.prepack is None else [self.prepack, self.call]


#: Random points of a check at several sizes together, as many as of a kernel for one; each size has its share, and all its
#: corners and places where code changes.
_RANDOM_POINTS = 256


def checked_at(
    codes: Sequence[_core.Kernel],
    programs: Mapping[Sizes, _core.Program],
    *,
    about: Sequence[str] = (),
    directory: Path | None = None,
) -> Outcome:
    """Holds code against the interpreter at some sizes.

    Args:
        codes: the kernel with parameters, behind the one that packs for it, if there is one.
        programs: what it should compute, by size.
        about: what else the outcome depends on.
        directory: where checks that passed are remembered.
    Returns:
        The worst outcome, with the points of all.
    Raises:
        NotTheSame: it computes something else at one of the sizes.
    """
    texts = [f"{sizes}: {program.text()}" for sizes, program in programs.items()]
    verdict = Verdict(directory, ("at sizes", *texts, *about), codes)
    remembered = verdict.read()
    if remembered is not None:
        return remembered
    calls = []
    for sizes, program in programs.items():
        calls.append(codes[-1].at(list(sizes)))
        if shapes_differ(calls[-1], program):
            raise NotTheSame(f"[dynamic] the code has other shapes at size {_told(sizes)}")
    share = -(-_RANDOM_POINTS // len(programs))
    prepack = codes[0] if len(codes) > 1 else None
    found = _core.verify_at_sizes(prepack, calls, list(programs.values()), 0, random_points=share)
    for sizes, each in zip(programs, found, strict=False):
        if not each.passed:
            verdict.discard()
            raise NotTheSame(
                f"[dynamic] the code gave max_rel_err {each.max_rel_err:.1e} (limit {each.limit:.0e}) at size "
                f"{_told(sizes)}; it was discarded. {each.detail}"
            )
    worst = max(found, key=lambda each: each.max_rel_err)
    points = sum(each.points for each in found)
    outcome = Outcome(True, worst.max_rel_err, worst.limit, points, worst.detail)
    verdict.write(outcome)
    return outcome


def _told(sizes: Sizes) -> str:
    return ", ".join(map(str, sizes))


def shapes_differ(code: _core.Kernel, program: _core.Program) -> bool:
    """Whether the code reads or writes arrays of other shapes than the program."""
    known = {*program.inputs, *program.outputs}
    return any(
        name in known and list(shape) != list(program.shape(name))
        for name, _, shape in code.arguments
    )


def neutral_names(program: _core.Program) -> dict[str, str]:
    """For a program's tensors, names that say nothing of where it comes from: of equal layers the same."""
    return {given: neutral for neutral, given in program.neutral()[1].items()}


@dataclass(frozen=True)
class Asked:
    """What `ranged_kernels` makes.

    Args:
        instances: a program at some sizes, first at the largest, which its schedule is made for.
        ranges: of its sizes.
        checks: the program at the sizes where the code is held against the interpreter.
        constants: inputs that stay the same over calls, and have none of the sizes as an extent.
    """

    instances: Sequence[tuple[Sizes, _core.Program]]
    ranges: Sequence[Range]
    checks: Mapping[Sizes, _core.Program]
    constants: Sequence[str] = ()
    dtype: str = "float32"
    threads: int = 1
    cache: bool = True

    def key(self) -> tuple[object, ...]:
        """Equal for what is the same but for the objects."""
        return (
            tuple((sizes, str(program.text())) for sizes, program in self.instances),
            tuple(self.ranges),
            tuple((sizes, str(program.text())) for sizes, program in self.checks.items()),
            tuple(self.constants),
            self.dtype,
            self.threads,
            self.cache,
            os.environ.get("SYNO_CPU", ""),
            kept_for(),
        )


_kept: Bounded[tuple[object, ...], RangedKernels | str] = Bounded(_KEPT)


def ranged_kernels(asked: Asked) -> RangedKernels:
    """Kernels of a program for ranges of its sizes; the same ones for every program of the same text.

    Raises:
        ShapeError: more than extents follow the sizes.
        ScheduleError: the schedule makes no loop nest of it.
        NotTheSame: the code computes something else at one of the sizes.
    """
    key = asked.key()
    found = _kept.get(key)
    if found is None:
        try:
            found = _made(asked)
        except (ShapeError, ScheduleError, NotTheSame) as error:
            _kept.setdefault(key, str(error))
            raise
        found = _kept.setdefault(key, found)
    if isinstance(found, str):
        raise ScheduleError(found)
    return found


def make_together(all_asked: Iterable[Asked]) -> None:
    """Makes kernels that `ranged_kernels` will be asked for, each once, on as many cores as there are. An interruption
    leaves those that nobody began."""
    different = {asked.key(): asked for asked in all_asked}

    def make(asked: Asked) -> None:
        with contextlib.suppress(
            ShapeError, ScheduleError, NotTheSame
        ):  # it is told who asks again
            ranged_kernels(asked)

    pool = ThreadPoolExecutor(max_workers=min(usable_cores(), max(1, len(different))))
    try:
        for done in [pool.submit(make, asked) for asked in different.values()]:
            done.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _made(asked: Asked) -> RangedKernels:
    instances, ranges = asked.instances, asked.ranges
    dtype, constants = asked.dtype, asked.constants
    directory = usable_cache() if asked.cache else None
    live = _core.with_live_ends(
        [(list(sizes), program) for sizes, program in instances], [each.name for each in ranges]
    )
    where = str(directory) if directory else ""
    ends = [(each.name, each.least, each.greatest) for each in ranges]

    codes: list[_core.Kernel] = []  # of which `make` finds the one it compiles

    def call_nest(schedule: _core.Schedule) -> _core.LoopNest:
        nests = _core.apply_prepacked(live, schedule, ends)
        return _core.apply_schedule(live, schedule, ends) if nests is None else nests[1]

    others = tuple(str(program.text()) for _, program in instances[1:])
    largest = instances[0][1]

    def choose(anew: bool) -> Chosen:
        return schedule_of(
            Operator(for_ranges(largest, live, ends, dtype, asked.threads, constants)),
            dtype=dtype,
            threads=asked.threads,
            constants=constants,
            cache=directory is not None,
            codes=codes,
            anew=anew,
            nest_of=call_nest,
            nest_key=repr((others, ends)),
        )

    def make(choice: Chosen) -> RangedKernels:
        nests = _core.apply_prepacked(live, choice.schedule, ends)
        prepack = None
        if nests is None:
            nest = _core.apply_schedule(live, choice.schedule, ends)
        else:
            nest = nests[1]
            once = nests[0].specialised([each.greatest for each in ranges])
            prepack = _core.compile_nest(once, cache_directory=where)
        call = _core.compile_nest(nest, cache_directory=where)
        about = (str(choice.schedule.text()), dtype)
        outcome = checked_at(
            [call] if prepack is None else [prepack, call],
            asked.checks,
            about=about,
            directory=directory,
        )
        return RangedKernels(choice.schedule, prepack, call, outcome)

    return made_with(choose, make)


__all__ = [
    "Asked",
    "NotTheSame",
    "Range",
    "RangedKernels",
    "checked_at",
    "make_together",
    "neutral_names",
    "ranged_kernels",
    "shapes_differ",
]
