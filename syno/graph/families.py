"""Graphs that are one but for their extents: the graph at every size, from what it is at some.

The texts of a network's graphs at different sizes differ in whole numbers alone. Each of these is (a * size + b) / c,
rounded down, as the sizes tried say; the text with the numbers of another size is the graph there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from syno import _core
from syno.errors import ShapeError

_LARGEST_DIVISOR = 16
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Extent:
    """(times * size + plus) / by, rounded down."""

    times: int
    plus: int
    by: int = 1

    def at(self, size: int) -> int:
        return (self.times * size + self.plus) // self.by


def extent_through(points: Mapping[int, int]) -> Extent | None:
    """The function through all points (size, extent); None where no such function goes."""
    sizes = sorted(points)
    least, greatest = sizes[0], sizes[-1]
    if len(set(points.values())) == 1:
        return Extent(0, points[greatest])
    run, rise = greatest - least, points[greatest] - points[least]
    for by in range(1, _LARGEST_DIVISOR + 1):
        near = rise * by // run
        for times in range(near - 1, near + 2):
            for more in range(by):
                found = Extent(times, by * points[greatest] + more - times * greatest, by)
                if all(found.at(size) == extent for size, extent in points.items()):
                    return found
    return None


class TextFamily:
    """A text at every size, from texts at some that differ in whole numbers alone.

    Raises:
        ShapeError: they differ in something else, or a number is no such function of the size.
    """

    def __init__(self, texts: Mapping[int, str]) -> None:
        first = next(iter(texts.values()))
        self._parts = _NUMBER.split(first)
        numbers = {size: _NUMBER.findall(text) for size, text in texts.items()}
        for size, text in texts.items():
            if _NUMBER.split(text) != self._parts:
                raise ShapeError(
                    f"[dynamic] the network at size {size} is not the one at {next(iter(texts))} with other extents"
                )
        self._numbers: list[str | Extent] = []
        for place, text in enumerate(_NUMBER.findall(first)):
            if all(all_of[place] == text for all_of in numbers.values()):
                self._numbers.append(text)
                continue
            points = {size: int(all_of[place]) for size, all_of in numbers.items()}
            extent = extent_through(points)
            if extent is None:
                raise ShapeError(
                    f"[dynamic] a number of the network is {points} by size, which is no (a * size + b) / c"
                )
            self._numbers.append(extent)

    def at(self, size: int) -> str:
        made = [self._parts[0]]
        for number, part in zip(self._numbers, self._parts[1:], strict=True):
            made.append(str(number.at(size)) if isinstance(number, Extent) else number)
            made.append(part)
        return "".join(made)


def shape_through(shapes: Mapping[int, Sequence[int]]) -> tuple[Extent, ...]:
    """A shape at every size.

    Raises:
        ShapeError: an extent is no such function of the size.
    """
    ranks = {len(shape) for shape in shapes.values()}
    if len(ranks) != 1:
        raise ShapeError(f"[dynamic] shapes of different ranks: {dict(shapes)}")
    found = []
    for dim in range(ranks.pop()):
        extent = extent_through({size: shape[dim] for size, shape in shapes.items()})
        if extent is None:
            raise ShapeError(f"[dynamic] the extents {dict(shapes)} are no (a * size + b) / c")
        found.append(extent)
    return tuple(found)


class GraphFamily:
    """A graph at every size. Raises ShapeError as `TextFamily`."""

    def __init__(self, graphs: Mapping[int, _core.Graph]) -> None:
        self._text = TextFamily({size: str(graph.text()) for size, graph in graphs.items()})
        for size, graph in graphs.items():
            if str(_core.Graph.parse(self._text.at(size)).text()) != str(graph.text()):
                raise ShapeError(f"[dynamic] the network at size {size} is not what its text says")

    def at(self, size: int) -> _core.Graph:
        return _core.Graph.parse(self._text.at(size))
