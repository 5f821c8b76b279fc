"""``syno explain``: the derivation of a candidate, of an operator file or of a named operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from syno.errors import UnknownName

if TYPE_CHECKING:
    from syno.operators.explain import Explanation


def explained(
    operator: str, candidate: str | None, spec: str, sizes: list[str], neighbours: int
) -> tuple[str, Explanation | None]:
    """The history of a candidate (empty elsewhere) and the derivation, where there is one.

    Raises:
        UnknownName: nothing of this name; a session without a candidate, or a candidate without a session; a size
            that is not written ``name=size``.
    """
    if Path(operator).is_dir():
        from syno.searching.revisit import explain_candidate

        if candidate is None:
            raise UnknownName(
                f"[explain] {operator} is a session; name one of its candidates, such as c1: "
                f"'syno status {operator}' lists them"
            )
        return explain_candidate(Path(operator), candidate, neighbours=neighbours)
    if candidate is not None:
        raise UnknownName(
            f"[explain] {operator} is no session directory, so {candidate} is none of its candidates"
        )
    from syno.operators.explain import explain, read_operator, read_spec

    space = read_spec(spec)
    chosen = parse_sizes(sizes)
    return "", explain(read_operator(operator, space, chosen), space, neighbours=neighbours)


def parse_sizes(texts: list[str]) -> dict[str, str]:
    """``["groups=g"]`` by name. Raises UnknownName for what is not of this form."""
    chosen = {}
    for text in texts:
        name, equals, size = text.partition("=")
        if not equals or not name or not size:
            raise UnknownName(f"[explain] --size {text!r} is not of the form 'groups=g'")
        chosen[name] = size
    return chosen
