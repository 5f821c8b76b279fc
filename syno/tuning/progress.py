"""How far a search for a schedule is, shown while it runs."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from syno.support.live import live, resolved
from syno.support.numbers import significant

#: Called with (trials done, trials, best microseconds).
Progress = Callable[[int, int, float], None]

_LINE_EVERY_S = 5.0


@contextlib.contextmanager
def shown(progress: Progress | str) -> Iterator[Progress]:
    """The callback of a search: the given one, or the display of this name for the length of the block.

    Raises:
        UnknownName: no such display.
    """
    if callable(progress):
        yield progress
        return
    mode = resolved(progress)
    if mode == "bar":
        with live() as display:
            yield lambda done, trials, best_us: display.update(_text(done, trials, best_us))
    else:
        yield _Lines() if mode == "log" else lambda *_: None


class _Lines:
    """At most one line in some seconds, on standard error."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, trials: int, best_us: float) -> None:
        moment = time.monotonic()
        if moment - self._last >= _LINE_EVERY_S:
            self._last = moment
            print(f"syno: {_line(done, trials, best_us)}", file=sys.stderr, flush=True)


def _line(done: int, trials: int, best_us: float) -> str:
    return f"{done}/{trials} trials, best {significant(best_us)} us"


def _text(done: int, trials: int, best_us: float) -> object:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    row = Table.grid(padding=(0, 1))
    row.add_row(ProgressBar(total=trials, completed=done, width=40), _line(done, trials, best_us))
    return row
