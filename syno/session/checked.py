"""Databases that were found to be as they were written: to read all rows of one again takes time that only a change is worth.

What is remembered is a digest of all bytes, and of the latest databases one of each page, in the user's own cache and in the
user's own hand (:mod:`syno.kernels.cache`): a session brings no such word with it. Without a writer any byte that changes asks
for the whole check again; beside one, the pages that changed are asked for what they hold (:mod:`syno.session.since`).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from syno import _core
from syno.config import cache_directory
from syno.kernels.cache import read_entry, write_entry
from syno.session.pages import DIGEST, Pages
from syno.support.machine import usable_cores

#: Another word whenever what is checked changes.
_CHECKS = b"rows of a session, 6"

#: Bytes that are read at once: what a processor keeps near. A thread reads so many of them one after the other.
_PART = 1 << 18
_RUN = 64 * _PART

#: Databases remembered, the latest.
_MOST = 64


#: Databases whose pages are remembered, the latest: of each page 16 bytes.
_MOST_PAGES = 16
_LARGEST_PAGES = 256 << 20


def digest_of(files: Iterable[tuple[str, int | None]]) -> str:
    """Of all bytes of files, by name and descriptor, an empty one like one that is missing; empty where one cannot be read."""
    found = _core.ContentDigest()
    found.update(_CHECKS)
    with ThreadPoolExecutor(min(4, usable_cores())) as pool:
        for name, file in files:
            size = 0
            try:
                if file is not None:
                    size = os.fstat(file).st_size
                    for digests in pool.map(functools.partial(_run, file), range(0, size, _RUN)):
                        found.update(digests)
            except OSError:
                return ""
            found.update(f"{name} {size}".encode())
    return found.digits()


def _run(file: int, start: int) -> bytes:
    """Digests of the parts of a file from ``start`` on, of one run of them."""
    part = memoryview(bytearray(_PART))
    found = []
    for at in range(start, start + _RUN, _PART):
        count = os.preadv(file, [part], at)
        found.append(_core.part_digests(part[:count], _PART))
    return b"".join(found)


def was_checked(digest: str) -> bool:
    """Whether these bytes were found to be right before, by this user."""
    path = _entry(digest)
    return path is not None and read_entry(path) == _CHECKS


def remember(digest: str) -> None:
    """These bytes are right. Nothing happens where there is no cache."""
    path = _entry(digest)
    if path is None:
        return
    _write(path, _CHECKS, _MOST)


def pages_before(database: Path, size: int) -> bytes | None:
    """Digests of a database's pages of ``size`` bytes when all of it was right, or had gone on from there, as this user found it;
    None where that is not known."""
    path = _pages_entry(database)
    body = None if path is None else read_entry(path, _LARGEST_PAGES)
    head = _head(size)
    if body is None or not body.startswith(head) or (len(body) - len(head)) % DIGEST:
        return None
    return body[len(head) :]


def remember_pages(database: Path, pages: Pages) -> None:
    """All that these pages hold is right. Nothing happens where there is no cache."""
    path = _pages_entry(database)
    if path is not None and pages.digests.nbytes < _LARGEST_PAGES:
        _write(path, _head(pages.size) + pages.digests.tobytes(), _MOST_PAGES)


def _head(size: int) -> bytes:
    return _CHECKS + f", pages of {size}\n".encode()


def _pages_entry(database: Path) -> Path | None:
    folder = cache_directory()
    if folder is None:
        return None
    name = hashlib.blake2b(os.fsencode(database.resolve()), digest_size=16).hexdigest()
    return folder / "sessions" / f"{name}.pages"


def _write(path: Path, body: bytes, most: int) -> None:
    """Writes an entry, and removes the oldest of its kind beyond so many."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_entry(path, body)
        entries = path.parent.glob(f"*{path.suffix}")
        others = sorted(entries, key=lambda one: one.stat().st_mtime)
        for old in others[:-most]:
            old.unlink(missing_ok=True)


def _entry(digest: str) -> Path | None:
    folder = cache_directory()
    return folder / "sessions" / f"{digest}.checked" if folder is not None and digest else None
