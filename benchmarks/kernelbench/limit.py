"""Limits for peers: of time for what they do before they are timed, and of cores for their threads."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType


class OutOfTime(Exception):
    """Expected: a block took longer than its limit; the text says so."""


def _unheard(number: int, frame: FrameType | None) -> None:
    pass


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
        # A thread that is slow to take it may still have one, which by default ends the process.
        signal.signal(signal.SIGALRM, _unheard if before is signal.SIG_DFL else before)


@contextlib.contextmanager
def new_threads_on(cores: int) -> Iterator[None]:
    """Threads that begin in the block see no more than so many cores, and stay on them.

    For libraries that ask for the number of cores and take no other limit. Threads that run already,
    the caller's too, may go anywhere again after it. Does nothing where a system has no affinities.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[-max(1, cores) :])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
