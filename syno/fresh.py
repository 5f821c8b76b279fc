"""Fresh interpreters that import what this one imports."""

from __future__ import annotations

import os
import sys

# `-c` and `-m` put the working directory first, where a source checkout of syno without its extension,
# or a user's file named like a package, would hide what is installed.
_PROLOGUE = "import sys; sys.path[:] = [p for p in sys.path if p] + ['']\n"


def python_command(code: str, *arguments: str) -> list[str]:
    """A command that runs ``code`` with ``sys.argv[1:] == arguments``; the working directory is searched last."""
    return [sys.executable, "-c", _PROLOGUE + code, *arguments]


def python_environment() -> dict[str, str]:
    """This process's environment, with its import path for the child.

    Sets of texts have the same order in every child, so that a task whose data depend on it is the same.
    """
    path = os.pathsep.join(path for path in sys.path if path)
    return {"PYTHONHASHSEED": "0", **os.environ, "PYTHONPATH": path}
