"""Fresh interpreters that import what this one imports."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_SESSION = ("session.toml", "session.sqlite")
_ITS_FOLDERS = ("logs", "operators", "weights")


def importable(path: str) -> bool:
    """Whether modules may be imported from a directory of the import path: not from a session's, which anybody
    may have made. "" is the working directory."""
    try:
        whole = Path(path or os.curdir).resolve()
    except (OSError, RuntimeError):  # the working directory was removed
        return True
    folders = [whole, whole.parent] if whole.name in _ITS_FOLDERS else [whole]
    return not any((folder / name).exists() for folder in folders for name in _SESSION)


def leave_sessions() -> None:
    """Takes sessions' directories off this process's import path."""
    sys.path[:] = [path for path in sys.path if importable(path)]


# `-c` and `-m` put the working directory first, where a source checkout of syno without its extension,
# or a user's file named like a package, would hide what is installed.
_PROLOGUE = "import sys; sys.path[:] = [p for p in sys.path if p]{last}\n"


def python_command(code: str, *arguments: str) -> list[str]:
    """A command that runs ``code`` with ``sys.argv[1:] == arguments``; the working directory is searched last,
    a session's not at all."""
    prologue = _PROLOGUE.format(last=" + ['']" if importable("") else "")
    return [sys.executable, "-c", prologue + code, *arguments]


def python_environment() -> dict[str, str]:
    """This process's environment, with its import path for the child.

    Sets of texts have the same order in every child, so that a task whose data depend on it is the same.
    """
    path = os.pathsep.join(path for path in sys.path if path and importable(path))
    return {"PYTHONHASHSEED": "0", **os.environ, "PYTHONPATH": path}
