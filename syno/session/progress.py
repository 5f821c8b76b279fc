"""Progress of a run: a live table on a terminal or in a notebook, a line now and then elsewhere, or nothing."""

from __future__ import annotations

import math
import sys
import time
from types import TracebackType
from typing import Any, Protocol

from syno.session.budget import Budget
from syno.session.records import Candidate
from syno.session.view import SessionView
from syno.support.live import live, resolved
from syno.support.numbers import significant


class Progress(Protocol):
    """A callback that is entered for the length of a run."""

    def __enter__(self) -> Any: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def __call__(self, what: str, candidate: Candidate | None, view: SessionView) -> None: ...


def make_progress(mode: str, budget: Budget) -> Progress:
    """The progress called ``mode``; ``"auto"`` follows ``SYNO_PROGRESS``, then asks whether anybody watches.

    Raises:
        UnknownName: no such mode.
    """
    kinds: dict[str, type[_Off]] = {"bar": _Bar, "log": _Log, "off": _Off}
    return kinds[resolved(mode)](budget)


class _Off:
    #: Whether it need not be told of anything: to look a candidate up for it takes time.
    silent = True

    def __init__(self, budget: Budget) -> None:
        self.budget = budget

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def __call__(self, what: str, candidate: Candidate | None, view: SessionView) -> None:
        return None


class _Log(_Off):
    """A line for each outcome, at most one in ``every_s`` seconds, on standard error."""

    silent = False

    def __init__(self, budget: Budget, every_s: float = 5.0) -> None:
        super().__init__(budget)
        self._every_s = every_s
        self._last = 0.0
        self._said: set[str] = set()

    def __call__(self, what: str, candidate: Candidate | None, view: SessionView) -> None:
        if what == "given":
            for part, score in view.given.items():
                self._say(
                    f"the model as handed in: {score.metric} {significant(score.value, 4)} on {part}"
                )
        original = candidate is not None and candidate.kind == "baseline"
        if what in ("skipped", "exhausted") or (what == "trained" and original):
            for note in view.notes():
                if note not in self._said:
                    self._said.add(note)
                    self._say(note)
        if what not in ("trained", "pruned", "failed", "finalist", "ended"):
            return
        moment = time.monotonic()
        if what != "ended" and moment - self._last < self._every_s:
            return
        self._last = moment
        parts = [f"{view.elapsed_s:.0f} s", f"{view.trained} trained"]
        if self.budget.candidates is not None:
            parts[-1] = f"{view.trained}/{self.budget.candidates} trained"
        if candidate is not None:
            name = f" ({candidate.known})" if candidate.known else ""
            parts.append(f"{candidate.id}{name} {what}{_numbers(candidate)}")
        verdict = view.verdict()
        if ahead := verdict.best or verdict.leader:
            parts.append(f"{verdict.short()}{_numbers(view.candidate(ahead))}")
        if what == "ended":
            parts.append(verdict.sentence)
        self._say(", ".join(parts))

    def _say(self, text: str) -> None:
        print(f"syno: {text}", file=sys.stderr, flush=True)


def _numbers(candidate: Candidate) -> str:
    text = ""
    if candidate.value is not None:
        text += f" {candidate.value:.4g}"
    if candidate.latency_us is not None:
        text += f" at {significant(candidate.latency_us)} us"
    return text


class _Bar(_Off):
    """A live table: what runs now, the Pareto front, and the latest candidates."""

    silent = False

    def __init__(self, budget: Budget, every_s: float = 0.2) -> None:
        super().__init__(budget)
        self._every_s, self._last = every_s, -math.inf

    def __enter__(self) -> Any:
        self._live = live()
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def __call__(self, what: str, candidate: Candidate | None, view: SessionView) -> None:
        moment = time.monotonic()
        if what != "ended" and moment - self._last < self._every_s:
            return
        self._live.update(progress_table(view, self.budget, width=self._live.width))
        # Where many candidates make a table take long, it is made so much less often.
        self._last = time.monotonic()
        self._every_s = max(self._every_s, 20 * (self._last - moment))


def progress_table(
    view: SessionView, budget: Budget | None = None, rows: int = 16, width: int = 200
) -> Any:
    """The session as a rich table: front and latest candidates first cut to ``rows``, formulas and reasons to what a
    terminal of ``width`` characters has room for beside the numbers."""
    from rich import box
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    lines = _progress_rows(view, rows)
    names = list(_PROGRESS)
    widths = [max(map(cell_len, texts)) for texts in zip(names, *lines, strict=True)]
    rest = sum(n for name, n in zip(names, widths, strict=True) if name not in _LONG)
    # Between columns is room for three characters where there is so much, else for one.
    wide = width - rest - 3 * len(names) - 2 >= 2 * _LEAST_ROOM
    room = max(width - rest - (3 if wide else 1) * len(names) - 2, 2 * _LEAST_TEXT)
    most = dict.fromkeys(names, _MOST_TEXT)
    most["state"] = min(max(room - _LEAST_ROOM, _LEAST_TEXT), _MOST_TEXT)
    most["state"] = min(most["state"], widths[names.index("state")])
    most["operator"] = min(max(room - most["state"], _LEAST_TEXT), _MOST_TEXT)
    limit = "" if budget is None or budget.candidates is None else f"/{budget.candidates}"
    table = Table(
        title=f"{view.directory}: {view.trained}{limit} trained, {view.elapsed_s:.0f} s",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption=Text("\n".join(view.notes())) if view.notes() else None,
        caption_justify="left",
        padding=(0, 1) if wide else (0, 0),
    )
    for name, justify in _PROGRESS.items():
        table.add_column(name, justify=justify, no_wrap=True, max_width=most[name])  # type: ignore[arg-type]
    for line in lines:
        table.add_row(*map(Text, line))
    return table


#: Columns of a running search, and where their texts stand.
_PROGRESS = {
    "id": "left",
    "operator": "left",
    "FLOPs": "right",
    "params": "right",
    "latency us": "right",
    "metric": "right",
    "front": "center",
    "state": "left",
}
_LONG = ("operator", "state")  # of these, and of no numbers, the end is left out
_LEAST_ROOM, _LEAST_TEXT, _MOST_TEXT = 24, 8, 48


def _progress_rows(view: SessionView, rows: int) -> list[list[str]]:
    best = view.pareto()
    front = {c.number for c in best}
    baseline = view.baseline
    shown = {
        c.number: c for c in [*best, *view.latest(2 * rows, "running")] if c.kind != "baseline"
    }
    for candidate in view.latest(rows + len(shown)):
        if len(shown) >= rows:
            break
        shown.setdefault(candidate.number, candidate)
    chosen = [shown[number] for number in sorted(shown)]
    lines = []
    for part, score in view.given.items():
        value = significant(score.value, 4)
        lines.append(["given", f"the model as handed in, on {part}", "", "", "", value, "", ""])
    for candidate in [*([baseline] if baseline else []), *chosen]:
        lines.append(
            [
                candidate.id,
                f"{candidate.known}: {candidate.expr}" if candidate.known else candidate.expr,
                "" if candidate.flops is None else f"{candidate.flops:,}",
                "" if candidate.params is None else f"{candidate.params:,}",
                "" if candidate.latency_us is None else significant(candidate.latency_us),
                "" if candidate.value is None else f"{candidate.value:.4g}",
                "*" if candidate.number in front else "",
                candidate.state + (f": {candidate.reason}" if candidate.reason else ""),
            ]
        )
    return lines
