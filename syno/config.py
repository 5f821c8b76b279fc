"""Settings by environment variable, mirrored in :func:`config`.

========================  =================================================================
``SYNO_CACHE``            directory of compiled kernels, records and the machine model; empty: none
``SYNO_CPU``              code for this CPU instead of the host's: ``x86-64-v3``, ``generic``
``SYNO_MACHINE``          machine file that schedules are constructed from
``SYNO_DETERMINISTIC``    ``1``: kernels depend on program, machine file and seed only; see below
``SYNO_MEASURING``        file that is locked while anything is timed, one process of the machine at a
                          time; empty: none
``SYNO_PROGRESS``         ``auto``, ``bar``, ``log`` or ``off``
``SYNO_PERF``             ``1``: kernels have names in Linux ``perf``; see below
``SYNO_GDB``              ``1``: kernels have names in ``gdb``
========================  =================================================================

Which schedule a kernel has decides the order of its sums, and so the last digits of its results. With
``SYNO_DETERMINISTIC=1``, records of measurements are left aside, the machine model is the file that
``SYNO_MACHINE`` names (else typical rates of this CPU) and never measured anew, and no way of computing is
chosen by timing it: results are equal in every process. A search with ``deterministic=True`` (``--deterministic``)
keeps its machine model in the session.

``SYNO_TRACEBACK=1`` has commands end with Python's traceback instead of a sentence.

``SYNO_PERF`` and ``SYNO_GDB`` hold for a process from its first kernel on, and are set outside it. ``SYNO_PERF`` writes
``/tmp/perf-PID.map``, where ``perf report`` looks names up, and a jitdump under ``JITDUMPDIR`` (or ``/tmp``)
for ``perf record -k 1``, ``perf inject --jit`` and ``perf annotate``.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syno.errors import SynoError, unknown_name

VARIABLES = ("cache", "cpu", "deterministic", "machine", "measuring", "progress")


def cache_directory() -> Path | None:
    """Where kernels, records of measurements and the machine model are kept; None: ``SYNO_CACHE`` is empty."""
    from platformdirs import user_cache_dir

    given = os.environ.get("SYNO_CACHE")
    if given == "":
        return None
    return Path(given) if given else Path(user_cache_dir("syno")) / "kernels"


def deterministic() -> bool:
    """Whether kernels depend on program, machine file and seed only: ``SYNO_DETERMINISTIC``."""
    return os.environ.get("SYNO_DETERMINISTIC", "") not in ("", "0")


@contextlib.contextmanager
def config(**settings: str | Path) -> Iterator[None]:
    """Sets ``SYNO_*`` variables for a block: ``with syno.config(cpu="generic"): ...``.

    They hold for the whole process, all its threads, until the block ends.

    Args:
        settings: ``cache``, ``cpu``, ``machine`` and ``progress``, as the variables of these names have them.

    Raises:
        UnknownName: a setting that does not exist.
        SynoError: a value that is neither text nor a path.
    """
    for name, value in settings.items():
        if name not in VARIABLES:
            raise unknown_name("setting", name, VARIABLES)
        if not isinstance(value, str | os.PathLike):
            raise SynoError(
                f"[config] {name}={value!r} is a {type(value).__name__}; give text or a path, and "
                "leave a setting out to keep it"
            )
    texts = {f"SYNO_{name.upper()}": os.fspath(value) for name, value in settings.items()}
    before = {name: os.environ.get(name) for name in texts}
    os.environ.update(texts)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old


class _CallableModule(types.ModuleType):
    """Lets `syno.config(...)` work however this module was first imported."""

    def __call__(self, **settings: Any) -> Any:
        return config(**settings)


sys.modules[__name__].__class__ = _CallableModule
