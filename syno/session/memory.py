"""Memory of a process and of all that descends from it."""

from __future__ import annotations

import contextlib
import os

from syno.errors import SessionError, shown

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def parse_bytes(given: str | int) -> int:
    """``"8GiB"``, ``"500MB"`` or a number of bytes.

    Raises:
        SessionError: it is neither, or nothing.
    """
    text = str(given).strip().lower().removesuffix("b")
    digits = text.rstrip("kmgti")
    unit = text[len(digits) :]
    with contextlib.suppress(ValueError, OverflowError):
        found = int(float(digits) * _UNITS[unit]) if unit in _UNITS else 0
        if found > 0:
            return found
    raise SessionError(
        f"memory={shown(given)} is no amount of memory",
        fix="write for example '8GiB', '500MB' or a number of bytes",
        code="R018",
    )


def show_bytes(count: float) -> str:
    """In the greatest unit that leaves a number of at least 1."""
    power = 0
    while count >= 1024 and power < 4:
        count, power = count / 1024, power + 1
    return f"{count:.3g} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def tree_bytes(root: int) -> int:
    """Resident bytes of a process and its descendants; what they share counts for each. 0 where that cannot be read."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                parents[int(name)], pages[int(name)] = int(fields[1]), int(fields[21])
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    total, left = 0, [root]
    while left:
        pid = left.pop()
        total += pages.get(pid, 0)
        left += children.get(pid, [])
    return total * os.sysconf("SC_PAGE_SIZE")
