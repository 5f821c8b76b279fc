"""What blocks and threads of a program read, and what that costs: the two cost models of ETO (section 5.1)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from syno.tuning.reuse.operators import Access, Operator

#: Elements of a memory transaction: 32 bytes of float32.
LINE = 8
#: Threads that ask shared memory at once, and its banks of 4 bytes.
WARP, BANKS = 32, 32

Ints = NDArray[np.int64]


def input_extents(access: Access, extents: Sequence[int]) -> tuple[int, ...]:
    """Extent of every dimension of an input that loops of these extents read from its beginning."""
    return tuple(
        1 + sum((extents[loop] - 1) // over * times for loop, times, over in terms)
        for terms in access
    )


def elements(operator: Operator, extents: Sequence[int]) -> tuple[int, ...]:
    """Elements of each input that a box of iterations at the origin reads: a block's share of one fetch."""
    return tuple(math.prod(input_extents(access, extents)) for access in operator.inputs())


def _starts(region: Sequence[int], shape: Sequence[int]) -> tuple[Ints, int]:
    """Addresses where contiguous runs of a box at the origin of a row-major tensor start, and their length."""
    dims = len(shape)
    run, joined = 1, dims
    while joined > 0:  # full dimensions join the next one
        run *= region[joined - 1]
        joined -= 1
        if region[joined] != shape[joined]:
            break
    strides = [math.prod(shape[i + 1 :]) for i in range(dims)]
    starts: Ints = np.zeros(1, np.int64)
    for i in range(joined):
        starts = (starts[:, None] + np.arange(region[i], dtype=np.int64) * strides[i]).ravel()
    return starts, run


def block_cost(operator: Operator, shape: Sequence[int]) -> int:
    """Transactions that the first block of this shape needs for all its inputs, the whole sum at once.

    Inputs lie one after the other in memory, row-major. Every block is taken to need as many.
    """
    total, base, last = 0, 0, -1
    box = (*shape, *operator.reduction)
    for access in operator.inputs():
        whole = input_extents(access, operator.extents)
        starts, run = _starts(input_extents(access, box), whole)
        first = (base + starts) // LINE
        final = (base + starts + run - 1) // LINE
        before = np.concatenate(([last], final[:-1]))
        total += int((final - np.maximum(first, before + 1) + 1).clip(min=0).sum())
        last = max(last, int(final[-1]))
        base += math.prod(whole)
    return total


def _coordinates(
    terms: tuple[tuple[int, int, int], ...], values: dict[int, Ints]
) -> Ints:  # of one dimension, for given values of the loops in it
    return sum(
        (values[loop] // over * times for loop, times, over in terms if loop in values),
        np.zeros(1, np.int64),
    )


def thread_requests(
    operator: Operator, threads: Sequence[int], tile: Sequence[int], fetch: Sequence[int]
) -> tuple[int, ...]:
    """Requests without bank conflicts, for every thread of a block to load one element of each input.

    Args:
        threads: of a block along each space loop, in row-major order.
        tile: points of a thread along each, in one virtual part.
        fetch: extents of all loops of a block between two fetches; shared memory holds its box row-major.
    """
    count = math.prod(threads)
    grid = np.unravel_index(np.arange(count), tuple(threads))
    values = {loop: grid[loop].astype(np.int64) * tile[loop] for loop in range(len(threads))}
    costs = []
    for access in operator.inputs():
        shape = input_extents(access, fetch)
        address = np.zeros(count, np.int64)
        for terms, extent in zip(access, shape, strict=True):
            address = address * extent + _coordinates(terms, values)
        requests = 0
        for start in range(0, count, WARP):
            distinct = np.unique(address[start : start + WARP])
            requests += int(np.bincount(distinct % BANKS).max())
        costs.append(requests)
    return tuple(costs)


def thread_loads(
    operator: Operator,
    virtual: Sequence[int],
    threads: Sequence[int],
    tile: Sequence[int],
    fetch: Sequence[int],
) -> tuple[int, ...]:
    """Elements of each input that one thread loads between two fetches, each counted once."""
    values: dict[int, Ints] = {}
    for loop, parts in enumerate(virtual):
        apart = threads[loop] * tile[loop]
        values[loop] = (np.arange(parts)[:, None] * apart + np.arange(tile[loop])).ravel()
    for loop in range(len(virtual), len(fetch)):
        values[loop] = np.arange(fetch[loop])
    return tuple(
        math.prod(len(_sums(terms, values)) for terms in access) for access in operator.inputs()
    )


def _sums(terms: tuple[tuple[int, int, int], ...], values: dict[int, Ints]) -> Ints:
    found: Ints = np.zeros(1, np.int64)
    for loop, times, over in terms:
        found = np.unique(found[:, None] + values[loop] // over * times)
    return found


@functools.lru_cache(maxsize=256)
def tile_reads(operator: Operator, box: tuple[int, ...]) -> int:
    """Elements of all inputs that a box of iterations reads, each counted once."""
    values = {loop: np.arange(extent) for loop, extent in enumerate(box)}
    return sum(
        math.prod(len(_sums(terms, values)) for terms in access) for access in operator.inputs()
    )


def all_lines(operator: Operator, shape: Sequence[int]) -> int:
    """`block_cost` by listing every address: what it is tested against."""
    lines: set[int] = set()
    base = 0
    for access in operator.inputs():
        whole = input_extents(access, operator.extents)
        region = input_extents(access, (*shape, *operator.reduction))
        for point in itertools.product(*map(range, region)):
            address = 0
            for index, extent in zip(point, whole, strict=True):
                address = address * extent + index
            lines.add((base + address) // LINE)
        base += math.prod(whole)
    return len(lines)
