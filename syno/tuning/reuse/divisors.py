"""Divisors of a length that lie in a range, with slack: what the reuse of a program leaves to try (ETO, section 5.1).

Few divisors lie in a narrow range, so both ends have a slack of one, and the nearest divisor beyond the far end
counts where it is relatively no farther than the last one inside.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from fractions import Fraction

#: Added to both ends of a range.
SLACK = 1


@functools.lru_cache(maxsize=1 << 14)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    large = [number // d for d in reversed(small) if d * d != number]
    return (*small, *large)


def divisors_between(near: Fraction | int, far: Fraction | int, number: int) -> tuple[int, ...]:
    """Divisors of `number` from `near` to `far`, both included, and perhaps one beyond `far`.

    Args:
        near, far: ends of the range, slack included; `far` may be the smaller one, then the range grows
            downwards.
        number: what they divide, at least 1.
    Returns:
        In the order of the range. The first divisor beyond `far` is there when there is no other, or when it is
        relatively no farther from `far` than the last one inside. Empty: nothing lies inside or beyond.
    """
    down = far < near
    ordered = divisors(number)
    low, high = (far, near) if down else (near, far)
    first, end = bisect_left(ordered, low), bisect_right(ordered, high)
    inside = list(ordered[first:end])
    if down:
        inside.reverse()
        beyond = ordered[first - 1] if first > 0 else None
    else:
        beyond = ordered[end] if end < len(ordered) else None
    if beyond is None:
        return tuple(inside)
    if not inside:
        return (beyond,)
    last = inside[-1]
    step = Fraction(far) / beyond if down else Fraction(beyond) / far
    room = Fraction(last) / far if down else Fraction(far) / last
    if last != far and step <= room:
        inside.append(beyond)
    return tuple(inside)


def next_below(bound: Fraction | int, number: int) -> int | None:
    """The largest divisor of `number` that is at most `bound`; None: there is none."""
    place = bisect_right(divisors(number), bound)
    return divisors(number)[place - 1] if place else None


def next_above(bound: Fraction | int, number: int) -> int | None:
    """The smallest divisor of `number` that is at least `bound`; None: there is none."""
    place = bisect_left(divisors(number), bound)
    return divisors(number)[place] if place < len(divisors(number)) else None


def factorizations(number: int, lengths: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """All ways to write `number` as a product of one divisor of each length, in the order of the first ones."""
    if not lengths:
        return ((),) if number == 1 else ()
    return tuple(
        (first, *rest)
        for first in divisors(lengths[0])
        if number % first == 0
        for rest in factorizations(number // first, lengths[1:])
    )
