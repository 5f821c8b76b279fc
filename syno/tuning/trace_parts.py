"""A schedule in three parts, as records hold it: rewrites of the program, the sketch of its loops, the numbers in it.

solve y loops=q                         a rewrite
split y loops=k numbers=_               a line of the sketch
(32,)                                   its numbers, in the order of the lines
"""

from __future__ import annotations

import re
from typing import NamedTuple

from syno import _core
from syno.errors import FormatError, SynoError

#: Decisions that change the program before loops are decided.
REWRITES = (
    "solve",
    "tighten",
    "polyphase",
    "innermost",
    "factor",
    "share",
    "inline",
    "turn",
)

#: The numbers of a line, at most so many in one.
_NUMBERS = re.compile(r"(?<= numbers=)[-\d]+(?:,[-\d]+)*(?=\s|$)")
_OPEN = re.compile(r"(?<= numbers=)_(?:,_)*(?=\s|$)")


class TraceParts(NamedTuple):
    """Put together again by :func:`schedule_of`."""

    rewrites: tuple[str, ...]
    """Those that come first, a decision each, numbers and all."""
    sketch: tuple[str, ...]
    """The other decisions; where one has numbers, `_` for each."""
    numbers: tuple[int, ...]
    """What stands there."""


def parts_of(schedule: _core.Schedule) -> TraceParts:
    """The parts of a schedule."""
    lines = str(schedule.text()).splitlines()[1:]
    first = 0
    while first < len(lines) and lines[first].split(" ", 1)[0] in REWRITES:
        first += 1
    sketch: list[str] = []
    numbers: list[int] = []
    for line in lines[first:]:
        found = _NUMBERS.search(line)
        if found is not None:
            given = found.group().split(",")
            numbers += map(int, given)
            line = line[: found.start()] + ",".join("_" * len(given)) + line[found.end() :]
        sketch.append(line)
    return TraceParts(tuple(lines[:first]), tuple(sketch), tuple(numbers))


def schedule_of(dtype: str, parts: TraceParts) -> _core.Schedule:
    """The schedule of these parts.

    Raises:
        FormatError: there are not as many numbers as the sketch leaves open, or a line is no decision.
    """
    left = list(parts.numbers)
    try:
        lines = [str(_core.Schedule(dtype=dtype).text()).rstrip(), *parts.rewrites]
    except SynoError as error:
        raise FormatError(f"[records] {error}") from error
    for line in parts.sketch:
        found = _OPEN.search(line)
        if found is not None:
            count = len(found.group()) // 2 + 1
            given, left = left[:count], left[count:]
            if len(given) < count:
                raise FormatError(
                    f"[records] '{line}' asks for {count} numbers; {len(given)} are left"
                )
            line = line[: found.start()] + ",".join(map(str, given)) + line[found.end() :]
        lines.append(line)
    if left:
        raise FormatError(f"[records] {len(left)} numbers more than the sketch leaves open")
    if any("\n" in line for line in lines):
        raise FormatError("[records] a decision is one line")
    try:
        return _core.Schedule.parse("\n".join(lines) + "\n")
    except SynoError as error:
        raise FormatError(f"[records] {error}") from error
