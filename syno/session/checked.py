"""Databases that were found to be as they were written: to read all rows of one again takes time that only a change is worth.

What is remembered is a digest of all bytes, in the user's own cache and in the user's own hand (:mod:`syno.kernels.cache`): a session brings
no such word with it, and any byte that changes asks for the whole check again.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from syno import _core
from syno.config import cache_directory
from syno.kernels.cache import read_entry, write_entry

#: Another word whenever what is checked changes.
_CHECKS = b"rows of a session, 5"

#: Bytes that are read at once: what a processor keeps near.
_PART = 1 << 18

#: Databases remembered, the latest.
_MOST = 64


def digest_of(*files: Path) -> str:
    """Of all bytes of files, an empty one like one that is missing; empty where one cannot be read."""
    found = _core.ContentDigest()
    found.update(_CHECKS)
    part = memoryview(bytearray(_PART))
    for path in files:
        size = 0
        try:
            with path.open("rb", buffering=0) as file:
                while count := file.readinto(part):
                    found.update(part[:count])
                    size += count
        except FileNotFoundError:
            pass
        except OSError:
            return ""
        found.update(f"{path.name} {size}".encode())
    return found.digits()


def was_checked(digest: str) -> bool:
    """Whether these bytes were found to be right before, by this user."""
    path = _entry(digest)
    return path is not None and read_entry(path) == _CHECKS


def remember(digest: str) -> None:
    """These bytes are right. Nothing happens where there is no cache."""
    path = _entry(digest)
    if path is None:
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_entry(path, _CHECKS)
        others = sorted(path.parent.glob("*.checked"), key=lambda one: one.stat().st_mtime)
        for old in others[:-_MOST]:
            old.unlink(missing_ok=True)


def _entry(digest: str) -> Path | None:
    folder = cache_directory()
    return folder / "sessions" / f"{digest}.checked" if folder is not None and digest else None
