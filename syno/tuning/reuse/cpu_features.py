"""Features of a program on a CPU, the reading of ETO's B, T and M: tasks, register tiles, packed bytes.

Beside them the cache lines and panels that its cost models count.
"""

from __future__ import annotations

import math
import re

import msgspec

from syno import _core

_LOOP = re.compile(r"( *)for \w+ in (-?\d+)\.\.(-?\d+)(.*)")
_ALLOCATE = re.compile(r"( *)allocate (\w+)")
_BUFFER = re.compile(r"(input|output|temporary|register) (\w+): (\w+)\[([\d, ]*)\]")
_BYTES = {"f32": 4, "f64": 8, "bf16": 2, "i64": 8, "i32": 4, "bool": 1}
#: Bytes of a cache line.
_LINE = 64


class Features(msgspec.Struct, frozen=True):
    """What a schedule asks of a machine."""

    tasks: int
    """B: iterations of the parallel loops."""
    tiles: int
    """T: register tiles, of all tasks, rest tiles counted as whole ones."""
    packed_bytes: int
    """M: bytes of copies and intermediates that tasks have at once, of all tasks; at least 1."""
    lines: int
    """Cache lines of 64 bytes that one task gets from beyond the nearest cache, at least 1."""
    panels: int
    """How often one task fills its copies."""

    def ratios(self, other: Features) -> tuple[float, float, float]:
        """Of tasks, tiles and packed bytes to those of another."""
        return (
            self.tasks / other.tasks,
            self.tiles / other.tiles,
            self.packed_bytes / other.packed_bytes,
        )


def features_of(
    program: _core.Program, schedule: _core.Schedule, machine: _core.MachineModel, threads: int
) -> Features:
    """The features of a schedule of a program.

    Raises:
        ScheduleError: it does not apply.
    """
    nest = _core.apply_schedule(program, schedule)
    moved = _core.predict_nest(nest, machine, threads=threads).moved_bytes
    tasks, tiles, packed, panels = _read(str(nest.text()), _points(program))
    beyond = moved[1] if len(moved) > 1 else 0.0
    return Features(tasks, tiles, packed, max(1, round(beyond / _LINE / tasks)), panels)


def _points(program: _core.Program) -> int:
    from syno.tuning.reuse.shapes import shape_of

    return shape_of(program).space


def _read(text: str, points: int) -> tuple[int, int, int, int]:
    sizes: dict[str, int] = {}
    largest_tile = 1
    tasks, packed, panels = 1, 0, 1
    open_loops: list[tuple[int, int, bool]] = []  # indentation, extent, whether it is parallel
    rooted: set[str] = set()
    for line in text.splitlines():
        if buffer := _BUFFER.match(line):
            kind, name, dtype, extents = buffer.groups()
            elements = math.prod(int(e) for e in extents.split(",") if e.strip())
            if kind == "register" and "_acc" in name:
                largest_tile = max(largest_tile, elements)
            elif kind == "temporary":
                sizes[name] = elements * _BYTES.get(dtype, 4)
            continue
        depth = len(line) - len(line.lstrip())
        while open_loops and open_loops[-1][0] >= depth:
            open_loops.pop()
        if loop := _LOOP.match(line):
            extent = int(loop[3]) - int(loop[2])
            open_loops.append((depth, max(1, extent), "parallel" in loop[4]))
            tasks = max(tasks, math.prod(e for _, e, parallel in open_loops if parallel))
        elif allocated := _ALLOCATE.match(line):
            name = allocated[2]
            if name in sizes:
                rooted.add(name)
                copies = math.prod(e for _, e, parallel in open_loops if parallel)
                packed += sizes[name] * copies
                panels = max(panels, math.prod(e for _, e, parallel in open_loops if not parallel))
    packed += sum(size for name, size in sizes.items() if name not in rooted)
    return tasks, max(1, -(-points // largest_tile)), max(1, packed), panels
