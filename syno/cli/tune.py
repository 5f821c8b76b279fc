"""``syno tune``: a search on the command line, that goes on where it was interrupted."""

from __future__ import annotations

import re
from typing import Any

from syno.errors import ShapeError, shown
from syno.operator import Operator
from syno.tuning.search import Tuned, session_file, tune


def parse_sizes(texts: list[str]) -> dict[str, int]:
    """``["m=64", "n=32"]`` as numbers.

    Raises:
        ShapeError: says which text is no size.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not re.fullmatch(r"\s*[0-9]{1,15}\s*", value):
            raise ShapeError(
                f"[tune] --size {shown(text)}: write an iterator and its extent, 'm=64'"
            )
        sizes[name.strip()] = int(value)
    return sizes


def run(expr: str, size: list[str], *, show: bool, **options: Any) -> Tuned:
    """Parses, searches with progress on the terminal, and returns what was found."""
    sizes: dict[str, Any] = dict(parse_sizes(size))
    operator = Operator.parse(expr, **sizes)
    session = session_file(operator.program, options["threads"], options["dtype"])
    return tune(operator, session=session, progress="auto" if show else "off", **options)
