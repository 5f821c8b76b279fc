"""Programs that differ in sizes alone: a type without names and numbers, and the extents that tell members apart."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from syno import _core
from syno.support.bounded import Bounded
from syno.tuning.reuse.operators import dominates

_NAME = re.compile(r"[A-Za-z_]\w*")
_TENSOR = re.compile(r"(?:^(?:input|weight) ([A-Za-z_]\w*)\[)|(?:^([A-Za-z_]\w*)\[)", re.MULTILINE)
_ITERATOR = re.compile(r"([A-Za-z_]\w*): (\d+)")
_NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
#: What of a read a stride and a padding are: `2 * h` and `h - 1` are of one type with `h`.
_SCALED, _SHIFTED = re.compile(r"# \* (?=i\d)"), re.compile(r"(?<=i\d|\d\d) [+-] #(?=[,\]])")
#: Programs whose shape is remembered.
_KEPT = 1024


@dataclass(frozen=True)
class Shape:
    """What of a program reuse looks at."""

    type: str
    """Its text without names and numbers: equal for programs that differ in sizes, strides and paddings alone."""
    extents: tuple[int, ...]
    """Of all loops of all scopes, in the order of the text."""
    space: int
    """Output points of the scope with the largest iteration space."""
    reduction: int
    """Terms of each of them."""
    tensors: Mapping[str, str]
    """Plain names, t0, t1, …, by the program's own."""
    loops: Mapping[str, str]
    """Plain names, i0, i1, …, by the program's own. A name in two scopes is one: a schedule may join their loops."""
    scopes: tuple[str, ...]
    """Outputs of the scopes, in order."""
    plain: str
    """The program's text in plain names."""

    def program(self) -> _core.Program:
        """The program in plain names: equal for all programs that are equal up to names."""
        return _core.Program.parse(self.plain)


_shapes: Bounded[str, Shape] = Bounded(_KEPT)


def shape_of(program: _core.Program) -> Shape:
    """The shape of a concrete program."""
    text = str(program.text())
    known = _shapes.get(text)
    return known if known is not None else _shapes.setdefault(text, _made(text))


def _made(text: str) -> Shape:
    tensors: dict[str, str] = {}
    for found in _TENSOR.finditer(text):
        tensors.setdefault(found[1] or found[2], f"t{len(tensors)}")
    loops: dict[str, str] = {}
    scopes = []
    lines = []
    largest = (0, 1, 1)
    for line in text.splitlines():
        head, equals, body = line.partition(" = ")
        if equals:
            for name, _ in _ITERATOR.findall(line):
                loops.setdefault(name, f"i{len(loops)}")
            scopes.append(head.partition("[")[0])
            space = math.prod(int(n) for _, n in _ITERATOR.findall(head))
            terms = math.prod(int(n) for _, n in _ITERATOR.findall(body))
            largest = max(largest, (space * terms, space, terms))
        lines.append(_renamed(line, loops, tensors))
    plain = "\n".join(lines) + "\n"
    extents = tuple(int(n) for _, n in _ITERATOR.findall(text))
    kind = _SHIFTED.sub("", _SCALED.sub("", _NUMBER.sub("#", plain)))
    return Shape(kind, extents, *largest[1:], tensors, loops, tuple(scopes), plain)


def _renamed(line: str, loops: Mapping[str, str], tensors: Mapping[str, str]) -> str:
    word = line.partition(" ")[0]
    keyword = word if word in ("input", "weight", "return") else ""

    def other(found: re.Match[str]) -> str:
        name = found[0]
        after = line[found.end() : found.end() + 1]
        if found.start() == 0 and keyword:
            return name
        if after == "[" or keyword == "return":  # what is no tensor names how terms are joined
            return tensors.get(name, name)
        return name if after == "(" else loops.get(name, name)

    return _NAME.sub(other, line)


@dataclass(frozen=True)
class Distance:
    """How one shape differs from another of its type."""

    space: Fraction
    reduction: Fraction
    steps: float
    """Sum over loops of how often one extent is twice the other."""

    @property
    def r1(self) -> Fraction:
        return 1 / self.reduction

    @property
    def r2(self) -> Fraction:
        return self.space * self.reduction


def distance(a: Shape, b: Shape) -> Distance:
    """Of `a` from `b`, of one type."""
    return Distance(
        Fraction(a.space, b.space),
        Fraction(a.reduction, b.reduction),
        sum(abs(math.log2(x / y)) for x, y in zip(a.extents, b.extents, strict=True)),
    )


def comparable(a: Shape, b: Shape) -> bool:
    """The reuse conditions on our machines: one type, one loop vector dominates the other."""
    return a.type == b.type and (dominates(a.extents, b.extents) or dominates(b.extents, a.extents))
