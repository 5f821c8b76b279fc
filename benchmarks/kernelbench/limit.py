"""A limit of time for what a peer does before it is timed."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


class OutOfTime(Exception):
    """Expected: a block took longer than its limit; the text says so."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Ends the block after some seconds, in the main thread of a process.

    Raises:
        OutOfTime: the block was not done, whatever it made of being ended.
    """
    late = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal late
        late = True
        raise OutOfTime(reason)

    reason = f"not ready after {seconds:.0f} s"
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Exception as error:
        if late:
            raise OutOfTime(reason) from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
