"""Bridges between programs: one program whose loops are nowhere longer than those of two others."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from syno import _core
from syno.errors import SynoError
from syno.tuning.reuse.shapes import Shape, comparable, shape_of

_INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.])")
#: Where in a program's text a number is an extent: after an iterator, and in the shapes of inputs.
_EXTENT = re.compile(r"[A-Za-z_]\w*: (\d+)")
_INPUT = re.compile(r"^(?:input|weight) .*$", re.MULTILINE)


def bridge_program(a: Shape, b: Shape) -> _core.Program | None:
    """The program of the element-wise smaller extents of two that cannot reuse each other.

    None where they can, differ in more than sizes (type, strides, paddings), or there is no such program.
    """
    if a.type != b.type or comparable(a, b):
        return None
    text = _smaller(a.plain, b.plain)
    return None if text is None else _bridge(text, a, b)


def _smaller(ours: str, theirs: str) -> str | None:
    """Of two texts of one type the one with the smaller extents; None where other numbers differ."""
    extents = _extent_places(ours)
    made, end = [], 0
    for mine, other in zip(_INTEGER.finditer(ours), _INTEGER.finditer(theirs), strict=True):
        x, y = int(mine[0]), int(other[0])
        if x != y and mine.start() not in extents:
            return None
        made.append(ours[end : mine.start()] + str(min(x, y)))
        end = mine.end()
    return "".join(made) + ours[end:]


def _bridge(text: str, a: Shape, b: Shape) -> _core.Program | None:
    try:
        program = _core.Program.parse(text)
    except SynoError:  # extents that do not go together
        return None
    shape = shape_of(program)
    return program if comparable(shape, a) and comparable(shape, b) else None


@functools.lru_cache(maxsize=1024)
def _extent_places(text: str) -> frozenset[int]:
    places = {found.start(1) for found in _EXTENT.finditer(text)}
    for line in _INPUT.finditer(text):
        places |= {line.start() + number.start() for number in _INTEGER.finditer(line[0])}
    return frozenset(places)


def bridge_programs(shapes: Sequence[Shape]) -> list[_core.Program]:
    """All bridges of pairs of shapes that are none of the shapes, without repetitions."""
    known = {shape.plain for shape in shapes}
    found: dict[str, _core.Program] = {}
    tried: set[str] = set(known)
    for i, a in enumerate(shapes):
        for b in shapes[i + 1 :]:
            if a.type != b.type or comparable(a, b):
                continue
            text = _smaller(a.plain, b.plain)
            if text is None or text in tried:
                continue
            tried.add(text)
            made = _bridge(text, a, b)
            if made is not None and (plain := shape_of(made).plain) not in known:
                found.setdefault(plain, made)
    return list(found.values())
