"""Sizes as the engine prints them (`2*H`, `C_in*g^-1`), and solving them for variables.

Needed where a symbolic operator meets a shape that is none of its valuations, such as another batch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from syno.errors import ParseError, ShapeError

_FACTOR = re.compile(r"(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)(?:\^(?P<power>-?\d+))?")


@dataclass(frozen=True)
class Monomial:
    """`factor` times powers of variables."""

    factor: Fraction
    powers: tuple[tuple[str, int], ...]

    @classmethod
    @functools.lru_cache(maxsize=1024)
    def parse(cls, text: str) -> Monomial:
        """Reads a product or quotient of numbers and powers. Raises ParseError."""
        factor, powers = Fraction(1), dict[str, int]()
        for operator, part in re.findall(r"([*/]?)([^*/]+)", text.replace(" ", "")):
            match = _FACTOR.fullmatch(part)
            if match is None:
                raise ParseError(f"[size] {part!r} in {text!r} is no number and no variable")
            sign = -1 if operator == "/" else 1
            if match["number"]:
                factor *= Fraction(int(match["number"])) ** sign
            else:
                power = int(match["power"] or 1) * sign
                powers[match["name"]] = powers.get(match["name"], 0) + power
        return cls(factor, tuple(sorted((n, p) for n, p in powers.items() if p)))

    def value(self, values: Mapping[str, int]) -> Fraction:
        """The size where every variable has a value."""
        above, below = self.factor.numerator, self.factor.denominator
        for name, power in self.powers:
            if power > 0:
                above *= values[name] ** power
            else:
                below *= values[name] ** -power
        return Fraction(above, below)


def solve(
    dims: Sequence[tuple[str, Monomial, int]], known: Mapping[str, int]
) -> dict[str, int] | None:
    """Values of variables such that every (name, size, extent) holds; None when there are none.

    `known` are given; a variable in no dimension stays out of the result. Dimensions with one
    unknown of power 1 or -1 are resolved repeatedly, which is all that shapes of layers need.
    """
    values = dict(known)
    progress = True
    while progress:
        progress = False
        for _, size, extent in dims:
            unknown = [(n, p) for n, p in size.powers if n not in values]
            if len(unknown) != 1 or abs(unknown[0][1]) != 1 or extent < 1:
                continue
            name, power = unknown[0]
            rest = Monomial(size.factor, tuple(t for t in size.powers if t[0] != name))
            value = (Fraction(extent) / rest.value(values)) ** power
            if value.denominator != 1 or value < 1:
                return None
            values[name] = int(value)
            progress = True
    for _, size, extent in dims:
        if any(n not in values for n, _ in size.powers) or size.value(values) != extent:
            return None
    return values


def mismatch(dims: Sequence[tuple[str, Monomial, int]], known: Mapping[str, int]) -> ShapeError:
    """The error that names the first dimension which the extents contradict."""
    for count in range(1, len(dims) + 1):
        if solve_prefix_fails(dims[:count], known):
            name, size, extent = dims[count - 1]
            text = "*".join(f"{n}^{p}" if p != 1 else n for n, p in size.powers)
            if size.factor != 1 or not text:
                text = f"{size.factor}*{text}" if text else str(size.factor)
            return ShapeError(
                f"[operator] {name} has extent {extent}, which does not fit its size {text}"
            )
    return ShapeError("[operator] the shapes contradict the operator's signature")


def solve_prefix_fails(dims: Sequence[tuple[str, Monomial, int]], known: Mapping[str, int]) -> bool:
    """Whether these dimensions alone already contradict each other."""
    values = dict(known)
    for _, size, extent in dims:
        unknown = [n for n, _ in size.powers if n not in values]
        if not unknown and size.value(values) != extent:
            return True
        if len(unknown) == 1:
            solved = solve([("", size, extent)], values)
            if solved is None:
                return True
            values = solved
    return False
