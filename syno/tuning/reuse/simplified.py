"""The search in sketches with fewer levels than SSSRRSRS: what of algorithm 1 is left (ETO, section 5.2).

There is no copy in shared memory, so that neither M nor the fetches are searched, and the features alone say the tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from syno.errors import ShapeError
from syno.support.notebook import Printed
from syno.tuning.reuse.divisors import SLACK, divisors_between
from syno.tuning.reuse.gpu_program import MOST_THREADS, UNROLLS, GpuProgram
from syno.tuning.reuse.hierarchical import Ratios, hierarchical_search
from syno.tuning.reuse.operators import CROSS_THREAD, TWO_LEVEL, UNROLL_CONSTANT, Operator

#: Threads that a cross-thread reduction has at least: a warp.
WARP = 32

_FLAT = (CROSS_THREAD, TWO_LEVEL, UNROLL_CONSTANT)


@dataclass(frozen=True)
class FlatProgram(Printed):
    """A program of a simplified sketch."""

    operator: Operator
    sketch: str
    """`CROSS_THREAD`: threads share the fused sum of one output point. `TWO_LEVEL`: the fused space loops are blocks
    of threads, each with one output point; `UNROLL_CONSTANT` the same around the unrolled loops of a constant matrix."""
    threads: int
    """Of a block."""
    unroll: int = 0

    def __post_init__(self) -> None:
        if self.sketch not in (CROSS_THREAD, TWO_LEVEL, UNROLL_CONSTANT):
            raise ShapeError(f"[reuse] {self.sketch} is no simplified sketch")
        if not self.threads >= 1 or (
            self.sketch != CROSS_THREAD and self.operator.space_points % self.threads
        ):
            raise ShapeError(f"[reuse] {self.threads} threads do not divide {self.operator}")

    @property
    def blocks(self) -> int:
        """B."""
        if self.sketch == CROSS_THREAD:
            return self.operator.space_points
        return self.operator.space_points // self.threads

    def __str__(self) -> str:
        return (
            f"{self.sketch}: {self.blocks} blocks of {self.threads} threads, unroll {self.unroll}"
        )


def flat_counts(ratios: Ratios, operator: Operator, sketch: str, threads: int) -> tuple[int, ...]:
    """Threads of a block to try, for a program of another operator with `threads`.

    Of a cross-thread reduction T is in [1, r2] of that one's; of two levels B is in [r1, r2] of it.
    """
    if sketch == CROSS_THREAD:
        near, far, number = (
            threads / ratios.space,
            threads * ratios.reduction,
            operator.reduction_points,
        )
    else:
        # B is points / threads.
        near, far, number = (
            threads * ratios.space / ratios.r2,
            threads * ratios.space / ratios.r1,
            operator.space_points,
        )
    down = far < near
    ends = (near + SLACK, far - SLACK) if down else (near - SLACK, far + SLACK)
    return tuple(count for count in divisors_between(*ends, number) if count < MOST_THREADS)


def flat_search(
    operator: Operator, parent: FlatProgram, measure: Callable[[FlatProgram], float]
) -> tuple[FlatProgram | None, int]:
    """The best program for `operator` by the features of one of another operator, and how many were measured.

    Rounds: all numbers of threads; the other unrollings of the best.

    Raises:
        ShapeError: the operators do not satisfy the reuse conditions.
    """
    ratios = Ratios.of(operator, parent.operator)
    times = {
        made: measure(made)
        for count in flat_counts(ratios, operator, parent.sketch, parent.threads)
        for made in [FlatProgram(operator, parent.sketch, count, parent.unroll)]
    }
    best = min(times, key=times.__getitem__, default=None)
    if best is not None:
        for option in UNROLLS:
            other = replace(best, unroll=option)
            if other not in times:
                times[other] = measure(other)
        best = min(times, key=times.__getitem__)
    return best, len(times)


#: A program of one stage of a composite sketch.
StageProgram: TypeAlias = GpuProgram | FlatProgram


def composite_search(
    operator: Operator,
    parents: Sequence[StageProgram],
    measure: Callable[[StageProgram], float],
) -> tuple[tuple[StageProgram | None, ...], int]:
    """The best program of each stage of a composite sketch by the features of another operator's, and how many were measured.

    Stages are searched one by one (section 5.2), so that `measure` gives the time of one stage.

    Args:
        parents: a program for each of `operator.stages`, in their order.
    Raises:
        ShapeError: no sketch is composite, a program is missing or of another sketch, or the operators do not
            satisfy the reuse conditions.
    """
    stages = operator.stages
    if not stages or len(stages) != len(parents):
        raise ShapeError(
            f"[reuse] {operator} is computed in {len(stages)} stages; {len(parents)} programs were given"
        )
    found: list[StageProgram | None] = []
    measured = 0
    for (sketch, stage), parent in zip(stages, parents, strict=True):
        if isinstance(parent, GpuProgram) == (sketch in _FLAT):
            raise ShapeError(f"[reuse] {parent} is no program of the sketch {sketch!r}")
        if isinstance(parent, GpuProgram):
            searched = hierarchical_search(stage, parent, measure)
            found.append(searched.best)
            measured += searched.measured
        else:
            if parent.sketch != sketch:
                raise ShapeError(f"[reuse] {parent} is no program of the sketch {sketch!r}")
            best, count = flat_search(stage, parent, measure)
            found.append(best)
            measured += count
    return tuple(found), measured
