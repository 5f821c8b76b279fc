"""``syno tune``: a search on the command line, that goes on where it was interrupted."""

from __future__ import annotations

import sys
from typing import Any

from syno.errors import ShapeError
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
        if not equals or not name.strip() or not value.strip().isdigit():
            raise ShapeError(f"[tune] --size {text!r}: write an iterator and its extent, 'm=64'")
        sizes[name.strip()] = int(value)
    return sizes


def run(expr: str, size: list[str], *, show: bool, **options: Any) -> Tuned:
    """Parses, searches with progress on the terminal, and returns what was found."""
    sizes: dict[str, Any] = dict(parse_sizes(size))
    operator = Operator.parse(expr, **sizes)
    session = session_file(operator.program, options["threads"], options["dtype"])

    def progress(done: int, trials: int, best_us: float) -> None:
        print(
            f"\r{done}/{trials} trials, best {best_us:.1f} us ", end="", file=sys.stderr, flush=True
        )

    result = tune(operator, session=session, progress=progress if show else None, **options)
    if show:
        print(file=sys.stderr)
    return result
