"""Whole numbers that follow sizes: the function through some points, and where points leave it open.

Of one size, a number is of * ((times * size + plus) / by, rounded down) ^ power + beside: windows and strides make the
division, positions joined with others the product and the sum, images whose sides are one size the square. Of several
sizes it is made of such functions by sums and products in which each size stands once: batch * (length + 1), or
(height / 2) * (width / 2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any

import numpy as np

from syno.errors import ShapeError

Sizes = tuple[int, ...]
_Sizes = np.ndarray[Any, np.dtype[np.int64]]

#: Of extents: the product of the strides of a network's layers.
LARGEST_DIVISOR = 512
#: The largest one with any rate; beyond, a number grows by one each so many sizes.
_LARGEST_OF_RATES = 8
#: Elements put beside a square of positions: classes, registers.
_MOST_BESIDE = 16
#: Functions through the same points that are told apart at once.
_MOST_CANDIDATES = 256
#: Sizes at which they are, beside those at both ends.
_MOST_SIZES = 2048


@dataclass(frozen=True)
class Extent:
    """of * ((times * size + plus) / by, rounded down) ^ power + beside."""

    times: int
    plus: int
    by: int = 1
    of: int = 1
    beside: int = 0
    power: int = 1

    def at(self, size: int) -> int:
        inner: int = (self.times * size + self.plus) // self.by
        return int(self.of * inner**self.power + self.beside)

    def over(self, sizes: _Sizes) -> _Sizes:
        """At each of several sizes."""
        inner: _Sizes = (self.times * sizes + self.plus) // self.by
        return self.of * inner**self.power + self.beside


def extents_through(points: Mapping[int, int]) -> Iterator[Extent]:
    """Functions through all points (size, number), plain ones first; of those that differ in `plus` alone, the least
    and the greatest."""
    if len(set(points.values())) == 1:
        yield Extent(0, next(iter(points.values())))
        return
    found = False
    for extent in _linear(points):
        found = True
        yield extent
    if not found:
        yield from _squares(points)


def _linear(points: Mapping[int, int]) -> Iterator[Extent]:
    sizes = sorted(points)
    least, greatest = sizes[0], sizes[-1]
    run, rise = greatest - least, points[greatest] - points[least]
    common = math.gcd(*(value - points[least] for value in points.values()))
    for by in range(1, LARGEST_DIVISOR + 1):
        for of in _divisors(common) if by > 1 else [1]:
            beside = points[least] % of
            inner = {size: (value - beside) // of for size, value in points.items()}
            near = rise // of
            first = -((-by * (near - 1)) // run)
            for times in range(first, by * (near + 1) // run + 1):
                if by > 1 and math.gcd(times, by) > 1:
                    continue  # of smaller numbers, but for `plus`, which rounding hides
                if by > _LARGEST_OF_RATES and times != 1:
                    continue
                low = max(by * value - times * size for size, value in inner.items())
                high = min(by * value - times * size for size, value in inner.items()) + by - 1
                for plus in dict.fromkeys((low, high)) if low <= high else ():
                    yield Extent(times, plus, by, of, beside)


def _squares(points: Mapping[int, int]) -> Iterator[Extent]:
    common = math.gcd(*points.values())
    few = range(_MOST_BESIDE + 1)
    for beside in sorted({*few, *(common * n for n in few)}):
        rests = {size: value - beside for size, value in points.items()}
        if min(rests.values()) <= 0:
            return
        for of in _divisors(math.gcd(*rests.values())):
            roots = {size: math.isqrt(rest // of) for size, rest in rests.items()}
            if any(of * roots[size] ** 2 != rest for size, rest in rests.items()):
                continue
            for root in _linear(roots):
                if root.of == 1 and root.beside == 0:
                    yield Extent(root.times, root.plus, root.by, of, beside, 2)


def _divisors(number: int) -> list[int]:
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def extent_through(points: Mapping[int, int]) -> Extent | None:
    """The plainest function through all points (size, number); None where none goes."""
    return next(extents_through(points), None)


def undecided(points: Mapping[int, int], least: int, greatest: int) -> int | None:
    """A size from `least` to `greatest` at which functions through the points differ, where that tells most; None where
    all are one function there."""
    candidates = list(islice(extents_through(points), _MOST_CANDIDATES))
    if len(candidates) < 2 or greatest <= least:
        return None
    # Functions of one rate differ wherever one of them steps, others more and more: ends are enough.
    ends = [
        np.arange(least, least + 2 * LARGEST_DIVISOR),
        np.arange(greatest - 2 * LARGEST_DIVISOR, greatest + 1),
    ]
    between = np.linspace(least, greatest, min(_MOST_SIZES, greatest - least + 1)).astype(int)
    sizes = np.unique(np.concatenate([*ends, between]).clip(least, greatest))
    values = np.unique(np.array([extent.over(sizes) for extent in candidates]), axis=0)
    if len(values) == 1:
        return None
    largest = np.empty(len(sizes), int)
    for place in range(len(sizes)):
        largest[place] = np.unique(values[:, place], return_counts=True)[1].max()
    return int(sizes[int(largest.argmin())])


# Of several sizes

_Tree = Any
"""A size by its position, or (how, tree, tree): their sum "+" or product "*"."""


class Formula:
    """A number as a function of several sizes."""

    def __init__(
        self,
        base: int,
        points: Mapping[int, Mapping[int, int]],
        axes: Mapping[int, Extent],
        tree: _Tree | None,
    ) -> None:
        self._base, self._points, self._axes, self._tree = base, points, axes, tree

    @property
    def positions(self) -> tuple[int, ...]:
        """Of the sizes that it follows."""
        return tuple(self._axes)

    def at(self, sizes: Sizes) -> int:
        """Raises: ShapeError: the function is no whole number there."""
        return self._base if self._tree is None else self._value(self._tree, sizes)

    def _value(self, tree: _Tree, sizes: Sizes) -> int:
        if isinstance(tree, int):
            return self._axes[tree].at(sizes[tree])
        how, left, right = tree
        one, other = self._value(left, sizes), self._value(right, sizes)
        if how == "+":
            return one + other - self._base
        made, rest = divmod(one * other, self._base)
        if rest:
            raise ShapeError(f"[dynamic] an extent is no whole number at the sizes {sizes}")
        return made

    def to_data(self) -> Any:
        """As `syno.graph.ranged_bundle` reads it: a number, or lists of an operation and what it is of."""
        return self._base if self._tree is None else self._data(self._tree)

    def _data(self, tree: _Tree) -> list[Any]:
        if isinstance(tree, int):
            e = self._axes[tree]
            return ["size", tree, e.times, e.plus, e.by, e.of, e.beside, e.power]
        how, left, right = tree
        return [how, self._data(left), self._data(right), self._base]

    def undecided(self, position: int, least: int, greatest: int) -> int | None:
        """A size in this place at which other functions through the same points differ."""
        points = self._points.get(position)
        return None if points is None else undecided(points, least, greatest)


def formula_through(values: Mapping[Sizes, int], base: Sizes) -> Formula | None:
    """The plainest function through all values; None where none goes.

    Args:
        values: by sizes: at `base`, where one size differs from it, and where several do, which tells sums from products.
    """
    start = values[base]
    points: dict[int, dict[int, int]] = {}
    for sizes, value in values.items():
        others = [p for p, (one, own) in enumerate(zip(sizes, base, strict=True)) if one != own]
        if len(others) == 1:
            points.setdefault(others[0], {base[others[0]]: start})[sizes[others[0]]] = value
    axes: dict[int, Extent] = {}
    for position, through in points.items():
        if len(set(through.values())) == 1:
            continue
        extent = extent_through(through)
        if extent is None:
            return None
        axes[position] = extent
    held = {position: points[position] for position in axes}
    for tree in _trees(tuple(axes)) if axes else [None]:
        formula = Formula(start, held, axes, tree)
        if all(_is(formula, sizes, value) for sizes, value in values.items()):
            return formula
    return None


def _is(formula: Formula, sizes: Sizes, value: int) -> bool:
    try:
        return formula.at(sizes) == value
    except (ShapeError, ZeroDivisionError):
        return False


def _trees(positions: Sequence[int]) -> Iterator[_Tree]:
    if len(positions) == 1:
        yield positions[0]
        return
    first, others = positions[0], positions[1:]
    for count in range(len(others)):
        for beside in combinations(others, count):
            rest = tuple(other for other in others if other not in beside)
            for left in _trees((first, *beside)):
                for right in _trees(rest):
                    yield ("*", left, right)
                    yield ("+", left, right)
