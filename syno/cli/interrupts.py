"""Ctrl-C and SIGTERM end a command with a sentence and 128 plus the signal's number, from the first moment on.

Nothing but what Python has loaded anyway is imported here: it is in place while everything else is loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

#: Signal that ended the command so far; 0 for none.
received = 0

#: Whether the command that runs goes on where it was when it is run again; None before one runs.
continues: bool | None = None

_process = 0


def install() -> None:
    """Handles the signals that would end the process; those that its parent had ignored stay ignored."""
    global _process
    _process = os.getpid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _handle)
    sys.unraisablehook = _swallowed


def words() -> str:
    """What a user is told."""
    if continues:
        return "interrupted; run the same command again to continue"
    return "interrupted"


def exit_code() -> int:
    """128 plus the number of the signal, as shells have it."""
    return 128 + (received or signal.SIGINT)


def _handle(number: int, frame: FrameType | None) -> None:
    """In a command: KeyboardInterrupt, so that it ends in order; before, while modules load, and again: at once."""
    global received
    if os.getpid() != _process:  # a child that was forked: as if there were no handler
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    again, received = received, number
    if again or continues is None or _importing(frame):
        _leave()
    raise KeyboardInterrupt


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded: an exception there is swallowed, or comes out as another error."""
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False


def _swallowed(lost: Any) -> None:
    """An exception came up where Python has nobody to give it to: in a finaliser, or a hook that runs around a fork."""
    if os.getpid() == _process and issubclass(lost.exc_type, KeyboardInterrupt):
        _leave()
    sys.__unraisablehook__(lost)


def _leave() -> Any:
    # Sessions bear being killed at any moment, and workers notice; only a hidden cursor would stay.
    cursor = "\x1b[?25h" if sys.stderr is not None and sys.stderr.isatty() else ""
    os.write(2, f"{cursor}\n{words()}\n".encode())
    os._exit(exit_code())
