"""The steps of a pGraph under names that do not depend on their order: what two operators share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from syno.errors import FormatError

if TYPE_CHECKING:
    from syno import _core

_COORDINATE = re.compile(r"c\d+")


def derivation(graph: _core.PGraph) -> tuple[str, ...]:
    """Each step of a pGraph as a term over the output's coordinates, in the graph's order.

    ``c9 = unfold c3 window c5`` becomes ``unfold(3, reduce(k))``: equal steps of two operators are equal
    texts, whatever was done before, beside or after them. A step that occurs twice is numbered.

    Raises:
        FormatError: a step names a coordinate that no step before it made.
    """
    names = {f"c{i}": str(i) for i in range(len(graph.signature["output"]))}
    terms: list[str] = []
    for step in graph.steps:
        made, _, action = step.rpartition(" = ")
        results = _COORDINATE.findall(made)
        try:
            term = _COORDINATE.sub(lambda match: names[match[0]], _sorted_operands(action, names))
            if made.startswith("data "):  # which input it is makes a difference, as for no weight
                term = f"{made.removeprefix('data ')} {term}"
        except KeyError as error:
            raise FormatError(f"[derivation] {step!r} uses {error}, which no step made") from None
        count = sum(known == term or known.startswith(f"{term} #") for known in terms)
        if count:
            term = f"{term} #{count + 1}"
        terms.append(term)
        for i, result in enumerate(results):
            names[result] = f"({term})" if len(results) == 1 else f"({term}).{i}"
    return tuple(terms)


def _sorted_operands(action: str, names: dict[str, str]) -> str:
    """The coordinates that a contraction shares have no order, nor have those it matches."""
    words = action.split()
    if words[0] not in ("share", "match"):
        return action
    where = words.index("match") if "match" in words else len(words)
    shared = sorted(words[1:where], key=lambda c: names[c])
    matched = sorted(words[where + 1 :], key=lambda c: names[c])
    return " ".join(["share", *shared, "match", *matched])


__all__ = ["derivation"]
