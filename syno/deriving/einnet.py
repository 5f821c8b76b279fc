"""Searches in EINNET's space for an operator of a library: its one step in files, and what such a search came to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from syno import _core

#: The step of a derivation that holds all moves of such a search; four numbers a move, the first says which.
STEP = "einnet"
STATEMENT = "EINNET's rules over one sum of products; what is read outside of a range is 0"
#: What may be looked for, before a colon and attributes.
TARGETS = ("any", "matmul", "bmm", "conv", "g2bmm")
DEPTH = 7
"""Steps that are taken one after the other where nobody says how many: the paper's."""
CONVERGING = 2
"""Iterators that may keep a program from being the target for it to be followed further, to the target: the published code's."""

_NAMES = ("split_sum", "substitute", "merge", "split_iterator", "tighten", "relax", "relayout")


@dataclass(frozen=True)
class Sought:
    """What came of looking for an operator."""

    target: str
    candidates: int
    """Programs that are it."""
    target_depth: int
    """Least number of steps to one; -1 where there is none."""
    nearest: int
    """How many iterators the nearest program is away from it; 0 where it was found."""
    missing: str
    """What they are."""

    def __str__(self) -> str:
        if self.target_depth >= 0:
            return f"{self.target}: {self.candidates:,} programs, the first after {self.target_depth} steps"
        return f"{self.target}: not found; the nearest program is {self.nearest} iterators away ({self.missing})"


def names(site: _core.RewriteSite) -> tuple[str, ...]:
    """Of a step's moves."""
    return tuple(
        f"{STEP} {_NAMES[rule] if 0 <= rule < len(_NAMES) else rule}" for rule in site.numbers[::4]
    )


def moves(
    program: _core.Program, site: _core.RewriteSite
) -> Iterator[tuple[str, str, _core.Program]]:
    """Of a step: the name of each move, where it is, and the program after it."""
    lines, _ = _core.einnet_step(program, site)
    for number, (name, line) in enumerate(zip(names(site), lines, strict=True), 1):
        prefix = _core.RewriteSite(
            site.scope, site.iterator, site.other, site.made, site.numbers[: 4 * number]
        )
        where = " ".join([site.scope, *line.split(" ")[1:]])
        yield name, where, _core.rewrite(program, STEP, prefix)


def label(
    program: _core.Program, path: tuple[tuple[str, _core.RewriteSite], ...], target: str
) -> str:
    """Which operator the product is that the steps lead to; empty where it is none of the target's."""
    for rule, site in path:
        if rule == STEP:
            _, text = _core.einnet_step(program, site, target)
            return str(text)
        program = _core.rewrite(program, rule, site)
    return ""
