"""The sums of one program, each searched alone: what is found for one serves wherever the same sum stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from syno.deriving.derivations import Path_
from syno.deriving.known import Part, Question
from syno.operators.operator import Operator

#: A scope with so much of a program's multiply-adds is searched alone, where another one has as much.
SHARE = 0.1
#: Of what was found for each, so many are put together: the first of all, the second of all, and so on.
_TOGETHER = 6


def sums_of(operator: Operator, constants: Sequence[str], dtype: str, threads: int) -> list[Part]:
    """The sums of a concrete operator that are worth a search of their own; none where one does nearly all of the work."""
    same = {name: name for name in (*operator.program.inputs, *operator.program.outputs)}
    question = Question(operator, tuple(constants), dtype, threads, 0.0, 0.0, same)
    parts = question.parts(SHARE)
    return list(parts) if len(parts) > 1 else []


def distinct(parts: Sequence[Part]) -> dict[str, Question]:
    """The questions of parts, equal ones once."""
    return {part.question.key: part.question for part in parts}


def paths_together(parts: Sequence[Part], ranked: Callable[[Question], list[Path_]]) -> list[Path_]:
    """Steps of the whole program: those of all sums together, the fastest of each first, then those of equal sums alone.

    Args:
        parts: by `sums_of`.
        ranked: of a sum, steps to programs that may be faster, the fastest first; asked once for equal sums.
    """
    found = {key: ranked(question)[:_TOGETHER] for key, question in distinct(parts).items()}
    of_each = [(part, found[part.question.key]) for part in parts]
    paths: list[Path_] = []

    def add(steps: Sequence[Path_]) -> None:
        path = tuple(step for each in steps for step in each)
        if path and path not in paths:
            paths.append(path)

    for place in range(max(map(len, found.values()))):
        add([part.steps(ways[min(place, len(ways) - 1)]) for part, ways in of_each if ways])
    for key in found:
        add([part.steps(ways[0]) for part, ways in of_each if ways and part.question.key == key])
    return paths
