"""Graphs that are one but for their numbers: the graph at all sizes, from what it is at some.

The texts of a network's graphs at different sizes differ in whole numbers alone. Each of these is a function of the
sizes (`syno.graph.extents`), as the sizes tried say; the text with the numbers of other sizes is the graph there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from syno import _core
from syno.errors import ShapeError
from syno.graph.extents import Formula, Sizes, formula_through

_NUMBER = re.compile(r"\d+")


def structure(text: str) -> list[str]:
    """What is between the numbers of a text."""
    return _NUMBER.split(text)


class Numbers:
    """Whole numbers at all sizes, each from its values at some.

    Args:
        names: of the sizes, for sentences.
        base: the sizes that others differ from in one place each, or in several.
    """

    def __init__(self, names: Sequence[str], base: Sizes) -> None:
        self.names, self.base = tuple(names), base
        self._known: dict[tuple[tuple[Sizes, int], ...], Formula] = {}

    def formula(self, values: Mapping[Sizes, int], what: str | Callable[[], str]) -> Formula:
        """Through all of them; `what` they are a sentence calls them.

        Raises:
            ShapeError: no function that is known goes there.
        """
        key = tuple(values.items())
        found = self._known.get(key)
        if found is None:
            found = formula_through(values, self.base)
            if found is None:
                points = ", ".join(
                    f"{value} at {self.told(sizes)}" for sizes, value in list(values.items())[:6]
                )
                called = what if isinstance(what, str) else what()
                raise ShapeError(
                    f"[dynamic] {called} is {points}: no sum or product of (a * size + b) / c of the sizes"
                )
            self._known[key] = found
        return found

    def told(self, sizes: Sizes) -> str:
        return told(self.names, sizes)

    def undecided(self, least: Sizes) -> list[Sizes]:
        """Sizes at which functions through the values known so far differ: what to look at next, one a name."""
        found = []
        for position in range(len(self.names)):
            votes: Counter[int] = Counter()
            for formula in self._known.values():
                size = formula.undecided(position, least[position], self.base[position])
                if size is not None:
                    votes[size] += 1
            if votes:
                size = max(votes, key=lambda each: (votes[each], each))
                found.append((*self.base[:position], size, *self.base[position + 1 :]))
        return found


def told(names: Sequence[str], sizes: Sizes) -> str:
    """`n=3, h=64`."""
    return ", ".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True))


class TextFamily:
    """A text at all sizes, from texts at some that differ in whole numbers alone.

    Raises:
        ShapeError: they differ in something else, or a number is no function of the sizes that is known.
    """

    def __init__(self, texts: Mapping[Sizes, str], numbers: Numbers) -> None:
        first = texts[numbers.base]
        self._parts = _NUMBER.split(first)
        found = {sizes: _NUMBER.findall(text) for sizes, text in texts.items()}
        for sizes, text in texts.items():
            parts = _NUMBER.split(text)
            if parts != self._parts:
                raise ShapeError(
                    f"[dynamic] the network at {numbers.told(sizes)} is not the one at {numbers.told(numbers.base)} "
                    f"with other extents: {_difference(self._parts, parts)}"
                )
        numbers_of: list[str | Formula] = []
        for place, text in enumerate(found[numbers.base]):
            if all(each[place] == text for each in found.values()):
                numbers_of.append(text)
                continue
            values = {sizes: int(each[place]) for sizes, each in found.items()}

            def where(place: int = place) -> str:
                return f"a number of {_line(self._parts, found[numbers.base], place)!r}"

            numbers_of.append(numbers.formula(values, where))
        self._write_down(numbers_of)

    def _write_down(self, numbers: Sequence[str | Formula]) -> None:
        """The text as pieces that stay, and which formula's value stands behind each but the last."""
        self._formulas: list[Formula] = []
        self._pieces, self._values = [self._parts[0]], list[int]()
        places: dict[int, int] = {}
        for number, part in zip(numbers, self._parts[1:], strict=True):
            if isinstance(number, str):
                self._pieces[-1] += number + part
                continue
            if id(number) not in places:
                places[id(number)] = len(self._formulas)
                self._formulas.append(number)
            self._values.append(places[id(number)])
            self._pieces.append(part)

    def at(self, sizes: Sizes) -> str:
        found = [str(formula.at(sizes)) for formula in self._formulas]
        made = [self._pieces[0]]
        for place, piece in zip(self._values, self._pieces[1:], strict=True):
            made += found[place], piece
        return "".join(made)


def _line(parts: Sequence[str], numbers: Sequence[str], place: int) -> str:
    """The line of a text that holds a number, short."""
    before, after = parts[0], ""
    for n, (number, part) in enumerate(zip(numbers, parts[1:], strict=True)):
        if n < place:
            before += number + part
        else:
            after += number + part
        if n >= place and "\n" in after:
            break
    line = (before.rpartition("\n")[2] + after.partition("\n")[0]).strip()
    return line if len(line) <= 120 else line[:117] + "..."


def _difference(one: Sequence[str], other: Sequence[str]) -> str:
    for a, b in zip(one, other, strict=False):
        if a != b:
            return f"{_tail(a)!r} there, {_tail(b)!r} here"
    return "it has more numbers" if len(other) > len(one) else "it has fewer numbers"


def _tail(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def shape_through(
    shapes: Mapping[Sizes, Sequence[int]], numbers: Numbers, what: str
) -> tuple[Formula, ...]:
    """A shape at all sizes.

    Raises:
        ShapeError: an extent is no function of the sizes that is known.
    """
    ranks = {len(shape) for shape in shapes.values()}
    if len(ranks) != 1:
        raise ShapeError(f"[dynamic] {what} has shapes of different ranks: {dict(shapes)}")
    return tuple(
        numbers.formula(
            {sizes: shape[dim] for sizes, shape in shapes.items()}, f"an extent of {what}"
        )
        for dim in range(ranks.pop())
    )


class GraphFamily:
    """A graph at all sizes. Raises ShapeError as `TextFamily`."""

    def __init__(self, graphs: Mapping[Sizes, _core.Graph], numbers: Numbers) -> None:
        texts = {sizes: str(graph.text()) for sizes, graph in graphs.items()}
        self._text = TextFamily(texts, numbers)
        for sizes, text in texts.items():
            if str(_core.Graph.parse(self._text.at(sizes)).text()) != text:
                raise ShapeError(
                    f"[dynamic] the network at {numbers.told(sizes)} is not what its text says"
                )

    def at(self, sizes: Sizes) -> _core.Graph:
        return _core.Graph.parse(self._text.at(sizes))

    def is_at(self, sizes: Sizes, graph: _core.Graph) -> bool:
        """Whether a graph is the one of these sizes: iterators that are always zero may be written so."""
        return _with_zeros(self._text.at(sizes)) == _with_zeros(str(graph.text()))


_SCOPE = re.compile(r"^(\s+[^=]*\] = )(.*)$", re.MULTILINE)
_ALWAYS_ZERO = re.compile(r"(\w+): 1\b")


def _with_zeros(text: str) -> str:
    """A graph's text with zeros for iterators of one value."""

    def line(found: re.Match[str]) -> str:
        left, right = found.groups()
        for name in dict.fromkeys(_ALWAYS_ZERO.findall(left + right)):
            right = re.sub(rf"\b{name}\b(?!: 1\b)", "0", right)
        return left + right

    return _SCOPE.sub(line, text)
