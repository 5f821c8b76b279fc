"""Bridges between programs: one program whose loops are nowhere longer than those of two others."""

from __future__ import annotations

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
    extents = _extent_places(a.plain)
    ours, theirs = list(_INTEGER.finditer(a.plain)), list(_INTEGER.finditer(b.plain))
    made, end = [], 0
    for mine, other in zip(ours, theirs, strict=True):
        x, y = int(mine[0]), int(other[0])
        if x != y and mine.start() not in extents:
            return None
        made.append(a.plain[end : mine.start()] + str(min(x, y)))
        end = mine.end()
    try:
        program = _core.Program.parse("".join(made) + a.plain[end:])
    except SynoError:  # extents that do not go together
        return None
    shape = shape_of(program)
    return program if comparable(shape, a) and comparable(shape, b) else None


def _extent_places(text: str) -> set[int]:
    places = {found.start(1) for found in _EXTENT.finditer(text)}
    for line in _INPUT.finditer(text):
        places |= {line.start() + number.start() for number in _INTEGER.finditer(line[0])}
    return places


def bridge_programs(shapes: Sequence[Shape]) -> list[_core.Program]:
    """All bridges of pairs of shapes that are none of the shapes, without repetitions."""
    known = {shape.plain for shape in shapes}
    found: dict[str, _core.Program] = {}
    for i, a in enumerate(shapes):
        for b in shapes[i + 1 :]:
            made = bridge_program(a, b)
            if made is not None and (plain := shape_of(made).plain) not in known:
                found.setdefault(plain, made)
    return list(found.values())
