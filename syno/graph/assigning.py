"""The assignment of kinds to what is made and read, with the least sum: an integer linear program, by HiGHS.

Each piece chooses one of its parts, which says the kind of everything that the piece reads and makes. What is made has
one kind; who wants another one reads a conversion, which all that want it share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syno.errors import ArgumentError, ScheduleError


@dataclass(frozen=True)
class Part:
    """One way to do a piece's work."""

    reads: Mapping[str, str]
    """Kinds by name of what it reads."""
    makes: Mapping[str, str]
    seconds: float


@dataclass(frozen=True)
class Piece:
    """Work that has to be done in one of several ways."""

    name: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Assignment:
    """What was chosen."""

    made: Mapping[str, str]
    """The kind of everything that is free."""
    parts: Mapping[str, Part]
    conversions: Mapping[tuple[str, str], tuple[str, ...]]
    """(what, kind it is converted to): the pieces that read it so."""
    seconds: float


#: What a conversion takes: of what, from which kind, to which one.
Conversion = Callable[[str, str, str], float]

FIXED = "row-major"
"""The kind of what is not free."""


def assigned(
    pieces: Sequence[Piece], kinds: Mapping[str, Sequence[str]], conversion: Conversion
) -> Assignment:
    """The assignment with the least sum of the parts' and the conversions' seconds.

    Args:
        kinds: those that may be made, for everything that is free.
    Raises:
        ArgumentError: SciPy, whose solver is used, is not there.
        ScheduleError: a piece has no part that is possible.
    """
    problem = _Problem(kinds, conversion)
    for piece in pieces:
        problem.add(piece)
    return problem.solution()


class _Problem:
    """The program of an assignment: which kind each thing is made in, which part each piece takes."""

    def __init__(self, kinds: Mapping[str, Sequence[str]], conversion: Conversion) -> None:
        self.kinds, self.conversion = kinds, conversion
        self.program = _Program()
        self.made = {
            (name, kind): self.program.variable(0.0) for name, own in kinds.items() for kind in own
        }
        for name, own in kinds.items():
            self.program.equal({self.made[name, kind]: 1.0 for kind in own}, 1.0)
        self.chosen: list[tuple[Piece, Part, int]] = []
        self.converted: dict[tuple[str, str, str], int] = {}

    def add(self, piece: Piece) -> None:
        own = [
            (part, self.program.variable(part.seconds))
            for part in piece.parts
            if _possible(part, self.kinds)
        ]
        if not own:
            raise ScheduleError(f"[layouts] no way is left to compute {piece.name}")
        self.program.equal({variable: 1.0 for _, variable in own}, 1.0)
        self.chosen += [(piece, part, variable) for part, variable in own]
        for name in sorted({each for part, _ in own for each in part.makes if each in self.kinds}):
            for kind in self.kinds[name]:
                row = {v: 1.0 for part, v in own if part.makes.get(name) == kind}
                self.program.equal({**row, self.made[name, kind]: -1.0}, 0.0)
        for name in sorted({each for part, _ in own for each in part.reads}):
            for kind in sorted({part.reads[name] for part, _ in own if name in part.reads}):
                readers = {v: 1.0 for part, v in own if part.reads.get(name) == kind}
                self._find(name, kind, readers)

    def _find(self, name: str, kind: str, readers: dict[int, float]) -> None:
        """Whoever reads this kind finds it made, or converted from what is made."""
        sources = self.kinds.get(name, (FIXED,))
        row = dict(readers)
        if kind in sources:
            if name not in self.kinds:
                return
            row[self.made[name, kind]] = -1.0
        for source in sources:
            if source != kind:
                variable = self._conversion(name, source, kind)
                if variable is not None:
                    row[variable] = -1.0
        self.program.at_most(row, 0.0)

    def _conversion(self, name: str, source: str, kind: str) -> int | None:
        key = (name, source, kind)
        if key not in self.converted:
            seconds = self.conversion(name, source, kind)
            if seconds == math.inf:
                return None
            self.converted[key] = self.program.variable(seconds)
            if name in self.kinds:
                self.program.at_most({self.converted[key]: 1.0, self.made[name, source]: -1.0}, 0.0)
        return self.converted[key]

    def solution(self) -> Assignment:
        values, total = self.program.solve()
        made = {
            name: kind for (name, kind), variable in self.made.items() if values[variable] > 0.5
        }
        parts = {
            piece.name: part for piece, part, variable in self.chosen if values[variable] > 0.5
        }
        readers: dict[tuple[str, str], list[str]] = {}
        for reader, part in parts.items():
            for name, kind in part.reads.items():
                if kind != made.get(name, FIXED):
                    readers.setdefault((name, kind), []).append(reader)
        return Assignment(made, parts, {key: tuple(names) for key, names in readers.items()}, total)


def _possible(part: Part, kinds: Mapping[str, Sequence[str]]) -> bool:
    return all(kind in kinds.get(name, (FIXED,)) for name, kind in part.makes.items())


class _Program:
    """An integer linear program over variables that are 0 or 1."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.rows: list[tuple[dict[int, float], float, float]] = []

    def variable(self, cost: float) -> int:
        self.costs.append(cost)
        return len(self.costs) - 1

    def equal(self, row: dict[int, float], value: float) -> None:
        self.rows.append((row, value, value))

    def at_most(self, row: dict[int, float], value: float) -> None:
        self.rows.append((row, -math.inf, value))

    def solve(self) -> tuple[Any, float]:
        """Values of the variables, and the sum."""
        import numpy as np

        if not self.costs:
            return np.zeros(0), 0.0
        try:
            from scipy.optimize import Bounds, LinearConstraint, milp
            from scipy.sparse import coo_matrix
        except ImportError as error:
            raise ArgumentError(
                "[layouts] the choice of layouts needs SciPy's solver",
                fix="pip install 'syno[tune]', or leave layouts row-major",
            ) from error
        entries = [
            (i, j, value) for i, (row, _, _) in enumerate(self.rows) for j, value in row.items()
        ]
        rows, columns, values = zip(*entries, strict=True)
        matrix = coo_matrix((values, (rows, columns)), shape=(len(self.rows), len(self.costs)))
        scale = 1e6  # microseconds: the solver's tolerances are absolute
        found = milp(
            np.asarray(self.costs) * scale,
            integrality=np.ones(len(self.costs)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(
                matrix.tocsr(), [low for _, low, _ in self.rows], [high for _, _, high in self.rows]
            ),
            options={"mip_rel_gap": 0.0},
        )
        if found.x is None:
            raise ScheduleError(f"[layouts] the solver found no assignment: {found.message}")
        return found.x, float(found.fun) / scale
