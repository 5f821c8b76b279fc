"""Expected measurements of a reuse, before anything is known of the program that is reused (ETO, section 6.1).

Block size, threads and fetches of that program are unknown: the expectation is over all that divide, every pair of
block size and threads equally likely, fetches independent of them. For each candidate of B the search measures as
many programs as there are T, the fetches beside the default one, four other unrollings and two lengths for
each of two inputs.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from syno.tuning.reuse.divisors import divisors, divisors_between
from syno.tuning.reuse.gpu_program import MOST_THREADS, UNROLLS, VECTORS
from syno.tuning.reuse.hierarchical import Ratios
from syno.tuning.reuse.operators import COMPOSITE, CROSS_THREAD, MULTI_LEVEL, Operator
from syno.tuning.reuse.simplified import WARP, flat_counts

#: Measurements of a search without anything to reuse.
SEARCH_TRIALS = 1000
#: Inputs whose fetches are taken to be tuned.
_INPUTS = 2
_ANNOTATIONS = len(UNROLLS) - 1 + len(VECTORS) * _INPUTS

Ints = NDArray[np.int64]


def expected_measurements(
    a: Operator,
    b: Operator,
    *,
    samples: int | None = None,
    seed: int = 0,
    sketch: str | None = None,
) -> float:
    """Measurements that `a` is expected to take when it reuses a program of `b`.

    Args:
        samples: block sizes drawn as the paper does (10), with one number of threads and of fetches each;
            None: the exact average.
        seed: of what is drawn.
        sketch: that the program of `b` has, where it is known; None: of several sketches the one that
            takes most.
    Raises:
        ShapeError: they do not satisfy the reuse conditions.
    """
    ratios = Ratios.of(a, b)
    sketches = (sketch,) if sketch else a.sketches
    return max(_of_sketch(name, ratios, a, b, samples, seed) for name in sketches)


def _of_sketch(
    sketch: str, ratios: Ratios, a: Operator, b: Operator, samples: int | None, seed: int
) -> float:
    if sketch == COMPOSITE:  # its sub-sketches are tuned one by one, each by its own loop nest
        return sum(
            _of_sketch(part, Ratios.of(here, there), here, there, samples, seed)
            for (part, here), (_, there) in zip(a.stages, b.stages, strict=True)
        )
    if sketch != MULTI_LEVEL:
        return _flat(sketch, ratios, a, b)
    if samples is not None:
        return _sampled(ratios, a, b, samples, seed)
    loop = a.kind.load_loop
    loads = 1.0 if loop is None else _mean_loads(ratios.r2, a.extents[loop], b.extents[loop])
    return _average(ratios, a, b, loads=loads, others=_ANNOTATIONS)


@functools.lru_cache(maxsize=1 << 14)
def _mean_loads(r2: Fraction, length: int, length_b: int) -> float:
    counts = [len(_load_counts(r2, length, loads)) for loads in divisors(length_b)]
    return sum(counts) / len(counts)


def _load_counts(r2: Fraction, length: int, loads: int) -> tuple[int, ...]:
    # Fetched elements are taken to grow with block and sum, so that B cancels out.
    if r2 >= 1:
        return divisors_between(loads - 1, loads * r2 + 1, length)
    return divisors_between(loads + 1, loads * r2 - 1, length)


def _average(ratios: Ratios, a: Operator, b: Operator, *, loads: float, others: int) -> float:
    total = weight = 0.0
    for size in divisors(b.space_points):
        blocks = _block_sizes(ratios, a.space_points, size)
        threads = len(divisors(size))
        weight += threads
        counted = sum(_threads_in_all(ratios, block, size) for block in blocks)
        total += counted + threads * len(blocks) * (loads - 1 + others)
    return total / weight


@functools.lru_cache(maxsize=1 << 16)
def _block_sizes(ratios: Ratios, points: int, size: int) -> tuple[int, ...]:
    return ratios.block_sizes(points, size)


@functools.lru_cache(maxsize=1 << 12)
def _array(number: int) -> Ints:
    return np.array(divisors(number), np.int64)


@functools.lru_cache(maxsize=1 << 18)
def _threads_in_all(ratios: Ratios, block: int, size: int) -> int:
    """Threads to try for a block of `block` points, summed over all numbers of threads for `size` points."""
    near = Fraction(block, size) / ratios.space
    if size * max(near.numerator, (near * ratios.r2).numerator) >= 1 << 52:  # beyond exact arrays
        return sum(len(ratios.thread_counts(block, size, count)) for count in divisors(size))
    there, here = _array(size), _array(block)
    return int(_count_between(here, there, near, near * ratios.r2).sum())


def _count_between(here: Ints, threads: Ints, near: Fraction, far: Fraction) -> Ints:
    """How many of `here` :func:`divisors_between` gives for threads · near to threads · far, with slack.

    All at once, in integers; what the hardware cannot have is not counted.
    """
    down = far < near
    (low_by, low_of), (high_by, high_of) = (
        (ratio.numerator, ratio.denominator) for ratio in ((far, near) if down else (near, far))
    )
    low = -((-threads * low_by) // low_of) - 1  # the least integer that is at least low - 1
    high = (threads * high_by) // high_of + 1
    first = np.searchsorted(here, low, "left")
    end = np.searchsorted(here, high, "right")
    valid = int(np.searchsorted(here, MOST_THREADS, "left"))
    counts = np.maximum(np.minimum(end, valid) - np.minimum(first, valid), 0)
    beyond = first - 1 if down else end
    exists = (beyond >= 0) if down else (beyond < len(here))
    value = here[np.minimum(np.maximum(beyond, 0), len(here) - 1)].astype(float)
    last = here[np.minimum(np.maximum(first if down else end - 1, 0), len(here) - 1)].astype(float)
    edge = (threads * low_by / low_of - 1) if down else (threads * high_by / high_of + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        step, room = (edge / value, last / edge) if down else (value / edge, edge / last)
    near_enough = (step <= room * (1 + 1e-12)) & (last != edge)
    taken = exists & ((end <= first) | near_enough) & (value < MOST_THREADS)
    counted: Ints = counts + taken
    return counted


def _sampled(ratios: Ratios, a: Operator, b: Operator, samples: int, seed: int) -> float:
    random = np.random.default_rng([seed, *a.extents, 0, *b.extents])
    loop = a.kind.load_loop
    total = 0
    for size, threads, loads in _drawn(b, samples, random, loop):
        more = 1 if loop is None else len(_load_counts(ratios.r2, a.extents[loop], loads))
        for block in _block_sizes(ratios, a.space_points, size):
            total += len(ratios.thread_counts(block, size, threads)) + more - 1 + _ANNOTATIONS
    return total / samples


def _drawn(
    b: Operator, samples: int, random: np.random.Generator, loop: int | None
) -> Iterator[tuple[int, int, int]]:
    sizes = divisors(b.space_points)
    weights = np.array([len(divisors(size)) for size in sizes], float)
    picked = random.choice(len(sizes), size=samples, p=weights / weights.sum())
    for index in picked:
        size = sizes[int(index)]
        threads = divisors(size)[int(random.integers(len(divisors(size))))]
        all_loads = (1,) if loop is None else divisors(b.extents[loop])
        yield size, threads, all_loads[int(random.integers(len(all_loads)))]


def _flat(sketch: str, ratios: Ratios, a: Operator, b: Operator) -> float:
    """Threads alone are tuned, then the unrolling of the best; the unknown number of threads divides what they share.

    Of a sum it is 32 or more: a warp shares the shortest one.
    """
    if sketch == CROSS_THREAD:
        counts = divisors(max(b.reduction_points, WARP)) if b.reduction_points > 1 else (WARP,)
    else:
        counts = tuple(count for count in divisors(b.space_points) if count < MOST_THREADS)
    found = sum(len(flat_counts(ratios, a, sketch, count)) for count in counts)
    return found / len(counts) + len(UNROLLS) - 1
