"""Environment variables that syno reads, by name; the package warns of others that look like its own."""

from __future__ import annotations

import os
import warnings

VARIABLES = {
    "SYNO_CACHE": "directory of compiled kernels, records and the machine model; empty: none",
    "SYNO_CPU": "code for this CPU instead of the host's: `x86-64-v3`, `generic`",
    "SYNO_DETERMINISTIC": "`1`: kernels depend on program, machine file and seed only",
    "SYNO_GDB": "`1`: kernels have names in `gdb`",
    "SYNO_MACHINE": "machine file that schedules are constructed from",
    "SYNO_MEASURING": "file that is locked while anything is timed, one process of the machine at a time; empty: none",
    "SYNO_PERF": "`1`: kernels have names in Linux `perf`",
    "SYNO_PROGRESS": "`auto`, `bar`, `log` or `off`",
    "SYNO_TRACEBACK": "`1`: commands end with Python's traceback instead of a sentence",
}

#: Read by the tests only, like all that begin with ``SYNO_TEST_``.
OF_TESTS = {
    "SYNO_FUZZ": "how many random cases the C++ tests draw where they draw few else",
    "SYNO_TVM_PYTHON": "Python that has TVM, for the tests of what is emitted for it",
}


def warn_of_unknown() -> None:
    """Warns once of each ``SYNO_*`` variable that nothing reads: mostly a slip such as ``SYNO_CACHE_DIR``."""
    for name in sorted(os.environ):
        if not name.startswith("SYNO_") or name.startswith("SYNO_TEST_"):
            continue
        if name in VARIABLES or name in OF_TESTS:
            continue
        import difflib

        near = difflib.get_close_matches(name, VARIABLES, n=1)
        # What is too long for the matcher may still start like one of them.
        near = near or [known for known in VARIABLES if name.startswith(known)]
        hint = f"did you mean {near[0]}? " if near else ""
        warnings.warn(
            f"the environment variable {name} has no effect: {hint}syno reads {', '.join(VARIABLES)}",
            RuntimeWarning,
            stacklevel=2,
        )
