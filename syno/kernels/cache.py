"""The cache directory as kernels use it: what is read from it was written by this user's syno, or is made again.

Entries are files ``<32 hexadecimal digits>.<kind>``: ``.kernel`` (machine code, by the engine), ``.schedule``,
``.verified``, ``.joined`` and ``.layers`` (which nodes and layers of a network are one kernel; by :func:`write_entry`). Each carries a keyed digest of its name and content (:mod:`syno.support.secret`). An
entry that is damaged, somebody else's, or no file at all counts as absent, and the next one takes its place.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from pathlib import Path

from syno import _core
from syno.config import cache_directory
from syno.errors import TrustError
from syno.support.files import read_regular, write_over
from syno.support.secret import derived, same, tag

_log = logging.getLogger("syno.kernels.cache")
_PURPOSE = "cache entries, version 1"
_TAG = 64
#: No entry but machine code, and what is remembered of sessions, is larger.
_LARGEST = 4 << 20


def usable_cache() -> Path | None:
    """The cache directory, or None where it cannot be written or told from others': then kernels are compiled
    anew."""
    directory = cache_directory()
    if directory is None:
        return None
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return directory if os.access(directory, os.W_OK) and share_secret() else None


def share_secret() -> bool:
    """Lets the engine tell this user's machine code in caches from others'; False where there is no secret: then it
    uses what this process compiled only."""
    try:
        _core.set_cache_secret(derived("compiled kernels, version 1"))
    except TrustError as error:
        _say(str(error))
        return False
    return True


@functools.lru_cache(maxsize=8)
def _say(what: str) -> None:
    """Once a process."""
    _log.warning("kernels are compiled in every process: %s", what)


def read_entry(path: Path, largest: int = _LARGEST) -> bytes | None:
    """What :func:`write_entry` wrote there, as this user; else None: as well where it is larger than ``largest`` bytes."""
    content = read_regular(path, largest)
    return None if content is None else own_body(path.name, content)


def own_body(name: str, content: bytes) -> bytes | None:
    """Body of an entry of this name that :func:`write_entry` wrote, as this user; else None."""
    if len(content) < _TAG + 1:
        return None
    written, body = content[:_TAG].decode("ascii", errors="replace"), content[_TAG + 1 :]
    try:
        ours = tag(_PURPOSE, name.encode(), body)
    except TrustError:
        return None
    return body if same(written, ours) else None


def any_body(content: bytes) -> bytes:
    """Body of an entry, whoever wrote it."""
    return content[_TAG + 1 :]


def write_entry(path: Path, body: bytes) -> None:
    """Writes an entry in the place of whatever lies there; a full disk costs the next process its work only."""
    with contextlib.suppress(OSError, TrustError):
        content = f"{tag(_PURPOSE, path.name.encode(), body)}\n".encode() + body
        write_over(path, content)
