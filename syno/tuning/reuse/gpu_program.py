"""A tensor program on a GPU by its numbers: tiles in the structure SSSRRSRS, and its features B, T and M."""

from __future__ import annotations

import math
from dataclasses import dataclass

from syno.errors import ShapeError
from syno.support.notebook import Printed
from syno.tuning.reuse.divisors import divisors
from syno.tuning.reuse.footprints import elements, tile_reads
from syno.tuning.reuse.operators import Operator

#: Most steps that a compiler unrolls by itself, Ansor's options.
UNROLLS = (0, 16, 64, 512, 1024)
#: Elements that one instruction of a cooperative fetch loads, beside 1.
VECTORS = (2, 4)
#: Threads of a block are fewer than this.
MOST_THREADS = 1024
#: Elements that a block may have in shared memory: 48 KiB of float32.
MOST_SHARED = 12288


@dataclass(frozen=True)
class GpuProgram(Printed):
    """Tile sizes, outermost first: of a space loop blocks, virtual threads, threads and two inner levels;
    of a reduction loop fetches and two inner levels."""

    operator: Operator
    space: tuple[tuple[int, int, int, int, int], ...]
    reduction: tuple[tuple[int, int, int], ...]
    unroll: int = 0
    vectors: tuple[int, ...] = ()
    """Of the fetches of each input; empty: ones."""

    def __post_init__(self) -> None:
        tiles = (*self.space, *self.reduction)
        if tuple(math.prod(sizes) for sizes in tiles) != self.operator.extents:
            raise ShapeError(f"[reuse] tiles {tiles} do not make {self.operator}")

    @property
    def blocks(self) -> int:
        """B: thread blocks."""
        return math.prod(sizes[0] for sizes in self.space)

    @property
    def threads_of_block(self) -> int:
        return math.prod(sizes[2] for sizes in self.space)

    @property
    def threads(self) -> int:
        """T: threads of all blocks."""
        return self.blocks * self.threads_of_block

    @property
    def shared_of_block(self) -> int:
        """Elements in shared memory between two fetches of one block."""
        return sum(elements(self.operator, self.fetch))

    @property
    def shared(self) -> int:
        """M: elements in shared memory, of all blocks."""
        return self.blocks * self.shared_of_block

    @property
    def block_shape(self) -> tuple[int, ...]:
        """BShape: output of a block."""
        return tuple(math.prod(sizes[1:]) for sizes in self.space)

    @property
    def thread_shape(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """TShape: virtual split, and output of a thread in each part."""
        return tuple(s[1] for s in self.space), tuple(s[3] * s[4] for s in self.space)

    @property
    def load_shape(self) -> tuple[int, ...]:
        """LShape: cooperative fetches along each reduction loop."""
        return tuple(sizes[0] for sizes in self.reduction)

    @property
    def fetch(self) -> tuple[int, ...]:
        """Extents of all loops of a block between two fetches."""
        return (*self.block_shape, *(math.prod(sizes[1:]) for sizes in self.reduction))

    def body(self, unroll: int) -> tuple[tuple[int, ...], int]:
        """What `unroll` unrolls of a thread's loops: the box of iterations and its number of steps.

        Inner loops are unrolled from the innermost one as long as the steps are at most that many.
        """
        inner = [1] * len(self.operator.extents)
        steps, space = 1, len(self.space)
        # RSRS from the inside: space, reduction, space, reduction.
        order = (
            *((i, sizes[4]) for i, sizes in reversed(tuple(enumerate(self.space)))),
            *((space + i, sizes[2]) for i, sizes in reversed(tuple(enumerate(self.reduction)))),
            *((i, sizes[3]) for i, sizes in reversed(tuple(enumerate(self.space)))),
            *((space + i, sizes[1]) for i, sizes in reversed(tuple(enumerate(self.reduction)))),
        )
        for loop, extent in order:
            if steps * extent > unroll:
                break
            steps *= extent
            inner[loop] *= extent
        return tuple(inner), steps

    def registers(self, unroll: int) -> int:
        """Registers of a thread, roughly: its results and what it loads in the unrolled body."""
        virtual, tile = self.thread_shape
        box, _ = self.body(unroll)
        return math.prod(virtual) * math.prod(tile) + tile_reads(self.operator, box)

    def other_unrolls(self) -> tuple[int, ...]:
        """Options that unroll otherwise than this program's, the smallest one for each effect."""
        effects = {self.body(self.unroll)[1]}
        found = []
        for option in UNROLLS:
            steps = self.body(option)[1]
            if steps not in effects:
                effects.add(steps)
                found.append(option)
        return tuple(found)

    def other_vectors(self, index: int) -> tuple[int, ...]:
        """Lengths of fetch instructions that divide what a thread fetches of an input."""
        share = elements(self.operator, self.fetch)[index]
        if share % self.threads_of_block:
            return ()
        each = share // self.threads_of_block
        return tuple(length for length in VECTORS if each % length == 0)

    def __str__(self) -> str:
        loops = self.operator.kind.loops
        tiles = ", ".join(
            f"{loop} {list(sizes)}"
            for loop, sizes in zip(loops, (*self.space, *self.reduction), strict=True)
        )
        vectors = "×".join(map(str, self.vectors)) or "1"
        return f"{tiles}; unroll {self.unroll}, fetches of {vectors}"


def last_tile(length: int) -> int:
    """The smallest divisor of a length that is not 1; 1 of 1."""
    return next((d for d in divisors(length) if d > 1), 1)


def make_program(
    operator: Operator,
    block_shape: tuple[int, ...],
    thread_shape: tuple[tuple[int, ...], tuple[int, ...]],
    load_shape: tuple[int, ...],
    *,
    registers: float | None = None,
) -> GpuProgram:
    """GetS: the program of three shapes, its inner tiles and annotations by default.

    Args:
        registers: that it shall need roughly, for which the unrolling is chosen; None: nothing is unrolled.
    Raises:
        ShapeError: the shapes do not divide each other.
    """
    virtual, tile = thread_shape
    shapes = zip(operator.space, block_shape, virtual, tile, strict=True)
    for extent, block, parts, points in shapes:
        if extent % block or block % (parts * points):
            raise ShapeError(
                f"[reuse] blocks {block_shape} and threads {thread_shape} do not divide {operator.space}"
            )
    space = tuple(
        (e // b, v, b // (v * t), t // last_tile(t), last_tile(t))
        for e, b, v, t in zip(operator.space, block_shape, virtual, tile, strict=True)
    )
    reduction = []
    for extent, loads in zip(operator.reduction, load_shape, strict=True):
        if extent % loads:
            raise ShapeError(f"[reuse] {loads} fetches do not divide a sum of {extent}")
        rest = extent // loads
        reduction.append((loads, rest // last_tile(rest), last_tile(rest)))
    made = GpuProgram(operator, space, tuple(reduction), 0, (1,) * len(operator.inputs()))
    if registers is None:
        return made
    unrolled = [option for option in UNROLLS if made.body(option)[1] > 1] or [0]
    # Of options with one estimate the largest: it bounds nothing that the estimate sees.
    best = min(unrolled, key=lambda option: (abs(made.registers(option) - registers), -option))
    return GpuProgram(operator, space, tuple(reduction), best, made.vectors)
