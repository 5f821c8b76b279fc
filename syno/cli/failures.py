"""What went wrong, in a sentence: commands end with one, never with a traceback."""

from __future__ import annotations

import errno
import os
import traceback

_FIXES = {
    errno.ENOSPC: "free space on the disk, then run it again",
    errno.EDQUOT: "free space of yours on the disk, then run it again",
    errno.EFBIG: "allow larger files, or choose another place",
    errno.EROFS: "choose a place that can be written",
    errno.EACCES: "choose a place you may read and write, or change its permissions",
    errno.EPERM: "choose a place you may read and write, or change its permissions",
    errno.ENOENT: "make its directory, or correct the name",
    errno.ENOTDIR: "correct the name: a part of it is no directory",
    errno.EISDIR: "give a file, not a directory",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "allow this process more open files",
    errno.ENFILE: "close other programs: the system has no more open files to give",
}


def wants_traceback() -> bool:
    """Whether ``SYNO_TRACEBACK`` asks for Python's own account of what went wrong."""
    return os.environ.get("SYNO_TRACEBACK", "") not in ("", "0")


def sentence(error: Exception) -> str:
    """What was wrong and what to do, whatever the exception."""
    from syno._checkout import AGAIN, ENGINE
    from syno._engine import CannotLoad

    if isinstance(error, CannotLoad):  # syno's own errors are in the engine
        return f"ImportError: {error}"
    from syno.errors import SynoError, told

    if isinstance(error, SynoError):
        return f"{type(error).__name__}: {error}"
    if isinstance(error, OSError):
        where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
        what = error.strerror or str(error) or type(error).__name__
        fix = _FIXES.get(error.errno or 0, "check the file and its directory")
        return f"{type(error).__name__}: {where}{what}\n  fix: {fix}"
    if isinstance(error, ImportError) and error.name == ENGINE:
        return f"ImportError: syno's engine is of another version than its sources: {error}\n  fix: {AGAIN}"
    if isinstance(error, UnicodeError):
        return f"UnicodeError: a text is not valid Unicode: {_line(error)}\n  fix: correct the text"
    if isinstance(error, MemoryError):
        return "MemoryError: there is not enough memory\n  fix: free some, or ask for less"
    return (
        f"{told(error)}{_place(error)}\n"
        "  fix: if this is not from code of yours, it is a mistake in syno: please report it; "
        "SYNO_TRACEBACK=1 shows how it came about"
    )


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:500] if lines else "no more is known"


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
