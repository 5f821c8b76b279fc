"""The reuse-based tuner: ranges of features, and the hierarchical search in them (ETO, equations 1-3, algorithm 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from syno.errors import ShapeError
from syno.support.notebook import Printed
from syno.tuning.reuse.divisors import (
    SLACK,
    divisors,
    divisors_between,
    factorizations,
    next_above,
    next_below,
)
from syno.tuning.reuse.footprints import (
    block_cost,
    elements,
    thread_loads,
    thread_requests,
)
from syno.tuning.reuse.gpu_program import MOST_SHARED, MOST_THREADS, GpuProgram, make_program
from syno.tuning.reuse.operators import Operator, can_reuse

#: Seconds, or anything that grows with them, of one program; infinity where it cannot run.
Measure = Callable[[GpuProgram], float]


@dataclass(frozen=True)
class Ratios:
    """How much larger the iteration space of one operator is than that of another."""

    space: Fraction
    reduction: Fraction

    @classmethod
    def of(cls, a: Operator, b: Operator) -> Ratios:
        """Of `a` to `b`.

        Raises:
            ShapeError: they do not satisfy the reuse conditions.
        """
        if not can_reuse(a, b):
            raise ShapeError(
                f"[reuse] {a} cannot reuse {b}: types and sketches have to be the same and one loop vector "
                "has to dominate the other"
            )
        return cls(
            Fraction(a.space_points, b.space_points),
            Fraction(a.reduction_points, b.reduction_points),
        )

    @property
    def r1(self) -> Fraction:
        return 1 / self.reduction

    @property
    def r2(self) -> Fraction:
        return self.space * self.reduction

    def _slack(self, near: Fraction, far: Fraction) -> tuple[Fraction, Fraction]:
        down = self.r2 < 1
        return (near + SLACK, far - SLACK) if down else (near - SLACK, far + SLACK)

    def block_sizes(self, points: int, size: int) -> tuple[int, ...]:
        """Output points of a block to try: divisors of `points` for B / B of `size` in [r1, r2]."""
        grown = self.r2 > 1
        ends = (size * self.r1, size * self.r2)
        found = list(divisors_between(min(ends) - SLACK, max(ends) + SLACK, points))
        if self.reduction == 1:
            if grown:
                more = next_below(size - 2 * SLACK, points)
            else:
                beyond = max(found) + 1 if found else size + 2 * SLACK
                more = next_above(beyond, points)
            if more is not None and more not in found:
                found.append(more)
        return tuple(sorted(found, reverse=grown))

    def thread_counts(self, block: int, size: int, threads: int) -> tuple[int, ...]:
        """Threads of a block of `block` points to try: T in [1, r2] of the one with `size` points, `threads`."""
        near = Fraction(threads * block, size) / self.space
        found = divisors_between(*self._slack(near, near * self.r2), block)
        return tuple(count for count in found if count < MOST_THREADS)

    def load_counts(self, length: int, near: Fraction) -> tuple[int, ...]:
        """Fetches along a sum of `length` to try.

        Args:
            near: of them M is the reused program's; it is [1, r2] of that as the count goes from `near` / r2
                to `near`.
        """
        return divisors_between(*self._slack(near / self.r2, near), length)


def best_block_shape(operator: Operator, size: int) -> tuple[int, ...]:
    """GetBShape: of all shapes with so many points the one with the fewest transactions."""
    shapes = factorizations(size, operator.space)
    if operator.type == "group_conv2d":
        whole = operator.extents[1] // operator.groups
        shapes = tuple(s for s in shapes if s[1] % whole == 0 or whole % s[1] == 0)
    if not shapes:
        raise ShapeError(f"[reuse] no block of {operator} has {size} points")
    return min(shapes, key=lambda shape: block_cost(operator, shape))


def best_thread_shape(
    operator: Operator, block_shape: tuple[int, ...], load_shape: tuple[int, ...], threads: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """GetTShape: of all with so many threads the one with the fewest requests; None: no threads divide the block.

    Of several the one with the fewest virtual threads.
    """
    fetch = (
        *block_shape,
        *(e // loads for e, loads in zip(operator.reduction, load_shape, strict=True)),
    )
    best: tuple[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] | None = None
    for grid in factorizations(threads, block_shape):
        points = tuple(b // t for b, t in zip(block_shape, grid, strict=True))
        for virtual in _all_divisors(points):
            tile = tuple(p // v for p, v in zip(points, virtual, strict=True))
            requests = thread_requests(operator, grid, tile, fetch)
            loads = thread_loads(operator, virtual, grid, tile, fetch)
            cost = sum(r * n for r, n in zip(requests, loads, strict=True)), math.prod(virtual)
            if best is None or cost < best[0]:
                best = cost, (virtual, tile)
    return best and best[1]


def _all_divisors(lengths: Sequence[int]) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = [()]
    for length in lengths:
        found = [(*one, d) for one in found for d in divisors(length)]
    return found


def _load_shape(operator: Operator, count: int) -> tuple[int, ...]:
    loop = operator.kind.load_loop
    first = len(operator.kind.space)
    return tuple(count if loop == first + i else 1 for i in range(len(operator.kind.reduction)))


@dataclass(frozen=True)
class Round:
    """What was measured at once: for which B, and why."""

    blocks: int
    name: str
    """"threads", "loads", "unroll" or "vectors"."""
    programs: tuple[GpuProgram, ...]


@dataclass(frozen=True)
class Searched(Printed):
    """What a hierarchical search found."""

    best: GpuProgram | None
    seconds: float
    rounds: tuple[Round, ...]

    @property
    def measured(self) -> int:
        return sum(len(made.programs) for made in self.rounds)

    def __str__(self) -> str:
        rounds = [f"  B {made.blocks}, {made.name}: {len(made.programs)}" for made in self.rounds]
        return "\n".join([f"{self.measured} measured; best: {self.best}", *rounds])


def candidates_of(
    ratios: Ratios, operator: Operator, parent: GpuProgram, size: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """For blocks of `size` points their best shape, and the numbers of fetches to try, the default one first."""
    shape = best_block_shape(operator, size)
    loop = operator.kind.load_loop
    if loop is None:
        return shape, (1,), (1,)
    whole = sum(elements(operator, (*shape, *operator.reduction)))
    beta = parent.operator
    whole_beta = sum(elements(beta, (*parent.block_shape, *beta.reduction)))
    loads_beta = math.prod(parent.load_shape)
    blocks = Fraction(operator.space_points, size)
    near = Fraction(whole, whole_beta) * loads_beta * blocks / parent.blocks
    length = operator.extents[loop]
    counts = tuple(
        c
        for c in ratios.load_counts(length, near)
        if sum(elements(operator, _fetch(operator, shape, c))) <= MOST_SHARED
    )
    kept = [
        (
            abs(
                math.log(
                    sum(elements(operator, _fetch(operator, shape, c))) / parent.shared_of_block
                )
            ),
            -c,
        )
        for c in counts
    ]
    default = counts[kept.index(min(kept))] if counts else length
    return shape, (default,), counts


def _fetch(operator: Operator, shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    loads = _load_shape(operator, count)
    return (*shape, *(e // n for e, n in zip(operator.reduction, loads, strict=True)))


def hierarchical_search(operator: Operator, parent: GpuProgram, measure: Measure) -> Searched:
    """Algorithm 1: a program for `operator` by the features of a good one of another operator.

    Rounds for every B: all T; fetches with M in range; other unrolling; longer fetches, input by input.

    Raises:
        ShapeError: the operators do not satisfy the reuse conditions.
    """
    beta = parent.operator
    ratios = Ratios.of(operator, beta)
    rounds: list[Round] = []
    overall: tuple[float, GpuProgram | None] = (math.inf, None)
    size_beta = math.prod(parent.block_shape)
    wanted = parent.registers(parent.unroll)
    times: dict[GpuProgram, float] = {}

    def best_of(name: str, made: list[GpuProgram], so_far: GpuProgram | None) -> GpuProgram | None:
        new = [program for program in dict.fromkeys(made) if program not in times]
        if new:
            rounds.append(Round(new[0].blocks, name, tuple(new)))
            times.update((program, measure(program)) for program in new)
        pool = [*made, *([so_far] if so_far else [])]
        return min(pool, key=times.__getitem__, default=None)

    for size in ratios.block_sizes(operator.space_points, size_beta):
        shape, (default,), counts = candidates_of(ratios, operator, parent, size)
        loads = _load_shape(operator, default)
        made = []
        for threads in ratios.thread_counts(size, size_beta, parent.threads_of_block):
            threads_shape = best_thread_shape(operator, shape, loads, threads)
            if threads_shape:
                made.append(make_program(operator, shape, threads_shape, loads, registers=wanted))
        best = best_of("threads", made, None)
        if best is None:
            continue
        others = [
            make_program(
                operator, shape, best.thread_shape, _load_shape(operator, c), registers=wanted
            )
            for c in counts
            if c != default
        ]
        best = best_of("loads", others, best) or best
        unrolled = [replace(best, unroll=option) for option in best.other_unrolls()]
        best = best_of("unroll", unrolled, best) or best
        for index in range(len(best.vectors)):
            longer = [
                replace(best, vectors=(*best.vectors[:index], length, *best.vectors[index + 1 :]))
                for length in best.other_vectors(index)
            ]
            best = best_of("vectors", longer, best) or best
        if times[best] < overall[0]:
            overall = times[best], best
    return Searched(overall[1], overall[0], tuple(rounds))
