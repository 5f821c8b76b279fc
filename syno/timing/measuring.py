"""The machine to oneself: what is timed is timed by one process at a time, on one core where one is enough."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

try:
    import fcntl
except ImportError:  # pragma: no cover - systems without flock
    fcntl = None  # type: ignore[assignment]

#: Seconds that a measurement waits for the machine before it is made beside another process's.
WAIT_S = 60.0
#: The same, once it has waited that long in vain: whoever holds the lock may hold it for good.
WAIT_AGAIN_S = 2.0

BUSY = "another process was measuring"

# Where every user of the machine finds the same file; not TMPDIR, which differs from user to user.
_SHARED = ("/run/lock", "/var/lock", "/tmp")


@dataclass
class Measuring:
    """How much of the machine a measurement had. ``note`` is empty where it had it to itself."""

    note: str = ""


_guard = threading.RLock()  # one thread of this process measures at a time
_held: list[Measuring] = []
_waited_in_vain = False


def _renew() -> None:
    """A forked child measures for itself: the thread that was measuring is not there."""
    global _guard
    _guard = threading.RLock()
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def lock_file() -> Path | None:
    """The file that is locked while something is timed, the same for all users; None: ``SYNO_MEASURING`` is empty."""
    given = os.environ.get("SYNO_MEASURING")
    if given is not None:
        return Path(given) if given else None
    for name in _SHARED:
        with contextlib.suppress(OSError):
            mode = os.stat(name).st_mode
            if stat.S_ISDIR(mode) and mode & stat.S_IWOTH and mode & stat.S_ISVTX:
                return Path(name) / "syno-measuring.lock"
    return Path(tempfile.gettempdir()) / "syno-measuring.lock"


@contextlib.contextmanager
def measuring(*, pin: bool = False, wait_s: float | None = None) -> Iterator[Measuring]:
    """Keeps other processes from measuring while the block runs; blocks inside blocks are the outermost's.

    Args:
        pin: also keep this thread on the last core it may use, so that it is not moved meanwhile.
        wait_s: seconds to wait for the machine; default a minute, and less after a minute in vain. Then
            the block runs all the same, and the note says so.
    """
    with _guard:
        if _held:
            with _pinned(pin):
                yield _held[0]
            return
        made = Measuring()
        file = _open(made)
        try:
            if file is not None:
                _lock(file, made, wait_s)
            _held.append(made)
            try:
                with _pinned(pin):
                    yield made
            finally:
                _held.clear()
        finally:
            if file is not None:
                os.close(file)


def _open(made: Measuring) -> int | None:
    """The lock's file, never followed as a link, never written; anybody may own it."""
    path = lock_file()
    if path is None or fcntl is None:
        return None
    how = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    file = None
    try:
        try:
            file = os.open(path, how)
        except FileNotFoundError:
            try:
                file = os.open(path, how | os.O_CREAT | os.O_EXCL, 0o644)
                os.fchmod(file, 0o644)  # whatever this process's mask: the others lock it, too
            except FileExistsError:
                file = os.open(path, how)
        if stat.S_ISREG(os.fstat(file).st_mode):
            return file
    except OSError:
        pass
    if file is not None:
        os.close(file)
    made.note = f"{path} cannot be locked: another process may have been measuring"
    return None


def _lock(file: int, made: Measuring, wait_s: float | None) -> None:
    global _waited_in_vain
    if wait_s is None:
        wait_s = WAIT_AGAIN_S if _waited_in_vain else WAIT_S
    end = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                made.note = BUSY
                _waited_in_vain = True
                return
            time.sleep(0.02)
        except OSError as error:
            made.note = f"the measuring lock failed: {error.strerror}"
            return
        else:
            _waited_in_vain = False
            return


@contextlib.contextmanager
def _pinned(wanted: bool) -> Iterator[None]:
    if not wanted or not hasattr(os, "sched_setaffinity"):
        yield
        return
    thread = threading.get_native_id()
    before = os.sched_getaffinity(thread)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, {max(before)})
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, before)
