"""Tables of indices as index expressions: which `t[0], t[1], …` a formula with `+ * / %` says."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Longest table that is looked at.
_LONGEST = 1 << 16
#: Largest divisor worth an expression.
_MOST_DIVISOR = 1 << 20


def as_index(table: Array, i: str) -> str | None:
    """An expression in the iterator `i` whose value at i = k is `table[k]`; None where no short one is found.

    Finds multiples with an offset, floors of fractions of those, rotations, and numbers that repeat with a period or
    stay for a while: what slices, flips, rolls, tiles and nearest neighbours are made of.

    >>> import numpy as np
    >>> as_index(np.array([4, 3, 2, 1]), "i")
    '-1 * i + 4'
    >>> as_index(np.array([0, 0, 1, 2, 2, 3]), "i")
    '(2 * i) / 3'
    >>> as_index(np.array([2, 3, 0, 1]), "i")
    '(i + 2) % 4'
    """
    table = np.asarray(table, np.int64)
    if len(table) > _LONGEST:
        return None
    return _floor(table, i) or _rotation(table, i) or _digits(table, i)


def _floor(table: Array, i: str) -> str | None:
    n = len(table)
    if n == 1 or (table == table[0]).all():
        return str(int(table[0]))
    steps = np.diff(table)
    if (steps == steps[0]).all():
        return _sum(int(steps[0]), i, int(table[0]))
    if np.ptp(steps) > 1:
        return None
    # t = floor(a * k + b) for all k means that slopes between any two points are within one over their distance
    low, high = _slopes(table)
    if low >= high:
        return None
    for slope in _fractions_between(low, high):
        c, a = slope.denominator, slope.numerator
        positions = np.arange(n, dtype=np.int64)
        least = int((c * table - a * positions).max())
        most = int((c * table + c - 1 - a * positions).min())
        if least <= most:
            offset = 0 if least <= 0 <= most else least
            return f"({_sum(a, i, offset)}) / {c}"
    return None


def _slopes(table: Array) -> tuple[Fraction, Fraction]:
    low, high = Fraction(-(1 << 40)), Fraction(1 << 40)
    n = len(table)
    for distance in _distances(n):
        difference = table[distance:] - table[:-distance]
        low = max(low, Fraction(int(difference.max()) - 1, distance))
        high = min(high, Fraction(int(difference.min()) + 1, distance))
        if low >= high:
            break
    return low, high


def _distances(n: int) -> list[int]:
    """Distances between points of a table: all small ones and few large ones, so that long tables take little time."""
    result, distance = [], 1
    while distance < n:
        result.append(distance)
        distance += max(1, distance // 64)
    return [*result, n - 1] if result[-1] != n - 1 else result


def _fractions_between(low: Fraction, high: Fraction) -> list[Fraction]:
    """The simplest fractions in an open interval, simplest first."""
    result: list[Fraction] = []
    wanted, divisor = 24, 1
    while len(result) < wanted and divisor <= _MOST_DIVISOR:
        numerator = (low * divisor).__floor__() + 1
        if Fraction(numerator, divisor) < high:
            while Fraction(numerator, divisor) < high and len(result) < wanted:
                result.append(Fraction(numerator, divisor))
                numerator += 1
            divisor += 1
        else:  # no multiple of 1/divisor fits; the interval's width bounds how far to look
            divisor += 1
            if divisor > 4096 and not result:
                break
    return result


def _sum(a: int, i: str, b: int) -> str:
    product = i if a == 1 else f"{a} * {i}"
    if a == 0:
        return str(b)
    return product if b == 0 else f"{product} + {b}" if b > 0 else f"{product} - {-b}"


def _rotation(table: Array, i: str) -> str | None:
    if (table < 0).any():
        return None
    step = int(table[1] - table[0])
    breaks = np.flatnonzero(np.diff(table) != step)
    if not len(breaks):
        return None
    first = int(breaks[0])
    size = abs(int(table[first]) + step - int(table[first + 1]))
    if size == 0 or size <= int(table.max()):
        return None
    expected = (step * np.arange(len(table), dtype=np.int64) + int(table[0])) % size
    return f"({_sum(step, i, int(table[0]))}) % {size}" if (expected == table).all() else None


def _digits(table: Array, i: str, depth: int = 3) -> str | None:
    """t[k] = f(k / p) + g(k % p)."""
    n = len(table)
    if depth == 0:
        return None
    changes = np.flatnonzero(np.diff(table, 2) != 0)
    candidates = sorted({int(c) + s for c in changes[:4] for s in (1, 2)})
    for period in candidates:
        if not 1 < period < n:
            continue
        rows = -(-n // period)
        padded = np.concatenate([table, np.zeros(rows * period - n, np.int64)]).reshape(
            rows, period
        )
        inner = padded[0]
        outer = padded[:, 0] - padded[0, 0]
        expected = (outer[:, None] + inner[None, :]).reshape(-1)[:n]
        if not (expected == table).all():
            continue
        high = _whole(outer, f"({i} / {period})", depth - 1)
        low = _whole(inner, f"({i} % {period})", depth - 1)
        if high is not None and low is not None:
            parts = [part for part in (high, low) if part != "0"]
            return " + ".join(parts) or "0"
    return None


def _whole(table: Array, i: str, depth: int) -> str | None:
    if len(table) == 1:
        return str(int(table[0]))
    return _floor(table, i) or _rotation(table, i) or _digits(table, i, depth)
