"""Bridges between programs: one program whose loops are nowhere longer than those of two others."""

from __future__ import annotations

import re
from collections.abc import Sequence

from syno import _core
from syno.errors import SynoError
from syno.tuning.reuse.shapes import Shape, comparable, shape_of

_INTEGER = re.compile(r"(?<![\w.])\d+(?![\w.])")

#: The extent of an iterator.
_EXTENT = re.compile(r"(?<=: )\d+")


def bridge_program(a: Shape, b: Shape) -> _core.Program | None:
    """The program of the element-wise smaller extents of two that cannot reuse each other.

    What extents do not determine, strides and paddings, is the smaller of the two as well, or none; inputs are as
    large as what is read. None where the two can reuse each other, are of different types, or there is no such program.
    """
    if a.type != b.type or comparable(a, b):
        return None
    return _bridge(_smaller(a.plain, b.plain), a, b)


def _smaller(ours: str, theirs: str) -> str:
    """Of two texts of one type the one with the smaller extents, of strides and paddings the smaller or none."""
    base, other = sorted((ours, theirs), key=lambda text: len(_INTEGER.findall(text)))
    same = len(_INTEGER.findall(base)) == len(_INTEGER.findall(other))
    pattern = _INTEGER if same else _EXTENT
    others = iter(pattern.findall(other))
    return pattern.sub(lambda mine: str(min(int(mine[0]), int(next(others)))), base)


def _bridge(text: str, a: Shape, b: Shape) -> _core.Program | None:
    lines = text.splitlines()
    weights = [line.split()[1].partition("[")[0] for line in lines if line.startswith("weight ")]
    body = [line for line in lines if not line.startswith(("input ", "weight "))]
    try:
        program = _core.Program.parse("\n".join(body), weights=weights)
    except SynoError:  # extents that do not go together
        return None
    shape = shape_of(program)
    alike = shape.type == a.type and comparable(shape, a) and comparable(shape, b)
    return program if alike else None


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
            if text in tried:
                continue
            tried.add(text)
            made = _bridge(text, a, b)
            if made is not None and (plain := shape_of(made).plain) not in known:
                found.setdefault(plain, made)
    return list(found.values())
