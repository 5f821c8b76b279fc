"""Progress that changes in place: in a notebook's cell, or on a terminal; lines where nobody watches."""

from __future__ import annotations

import os
import sys
import time
from types import TracebackType
from typing import Any, Protocol

from syno.errors import unknown_name

MODES = ("auto", "bar", "log", "off")

_EVERY_S = 0.25


def resolved(mode: str) -> str:
    """ "bar", "log" or "off": "auto" follows ``SYNO_PROGRESS``, then asks whether anybody watches.

    Raises:
        UnknownName: no such mode.
    """
    if mode == "auto":
        mode = os.environ.get("SYNO_PROGRESS", "auto")
    if mode == "auto":
        mode = "bar" if in_notebook() or sys.stderr.isatty() else "log"
    if mode not in MODES:
        raise unknown_name("progress", mode, MODES)
    return mode


def in_notebook() -> bool:
    """Whether a notebook's front end shows what this process displays."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return getattr(shell, "kernel", None) is not None


class Live(Protocol):
    """One place where the latest of what it was given is seen."""

    def __enter__(self) -> Live: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def update(self, shown: Any) -> None:
        """Shows this rich renderable instead of the one before."""

    @property
    def width(self) -> int:
        """Characters of a line."""


def live() -> Live:
    """A cell's output in a notebook, else the end of the terminal on standard error."""
    return _Cell() if in_notebook() else _Terminal()


class _Terminal:
    def __enter__(self) -> Live:
        import rich.live
        from rich.console import Console

        self._live = rich.live.Live(
            console=Console(stderr=True), refresh_per_second=1 / _EVERY_S, transient=False
        )
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def update(self, shown: Any) -> None:
        self._live.update(shown)

    @property
    def width(self) -> int:
        return self._live.console.width


class _Cell:
    """rich's own display in notebooks needs ipywidgets; an output that is replaced needs nothing."""

    def __enter__(self) -> Live:
        self._handle: Any = None
        self._waiting: Any = None
        self._last = 0.0
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._waiting is not None:
            self._show(self._waiting)

    def update(self, shown: Any) -> None:
        if time.monotonic() - self._last < _EVERY_S:
            self._waiting = shown  # front ends keep up with some a second, not with hundreds
        else:
            self._show(shown)

    @property
    def width(self) -> int:
        from rich.console import JUPYTER_DEFAULT_COLUMNS

        return JUPYTER_DEFAULT_COLUMNS

    def _show(self, shown: Any) -> None:
        from IPython.display import display

        self._waiting = None
        self._last = time.monotonic()
        if self._handle is None:
            self._handle = display(shown, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown)
