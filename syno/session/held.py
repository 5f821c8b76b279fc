"""Files of a database as this process reads them itself, beside SQLite: none is closed while SQLite has the database open.

A process that closes a file loses every lock that it has on the file, whoever took it (POSIX): SQLite's among them, without
which another process takes the database for one that nobody uses, and clears away what lies beside it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

#: A pipe in the place of a file is not waited for, and Windows changes no line's end.
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_Place = tuple[int, int]


class _Files:
    """Those of one database, and how many hold it."""

    def __init__(self) -> None:
        self.holders = 0
        self.descriptors: list[tuple[_Place, int]] = []


_guard = threading.Lock()
_databases: dict[_Place, _Files] = {}


def _place_of(status: os.stat_result) -> _Place:
    return status.st_dev, status.st_ino


class Hold:
    """A database in use: what is opened by it stays open until the last one of this process releases the database.

    Raises:
        OSError: there is none.
    """

    def __init__(self, database: Path) -> None:
        self._key: _Place | None = _place_of(os.stat(database))
        with _guard:
            self._files = _databases.setdefault(self._key, _Files())
            self._files.holders += 1

    def file(self, path: Path) -> int:
        """A descriptor of a file to read from with ``os.pread``; never to be closed by who asks.

        Raises:
            OSError: it cannot be opened.
        """
        with _guard:
            wanted = _place_of(os.stat(path))
            for place, descriptor in self._files.descriptors:
                if place == wanted:
                    return descriptor
            descriptor = os.open(path, _READ)
            self._files.descriptors.append((_place_of(os.fstat(descriptor)), descriptor))
            return descriptor

    def release(self) -> None:
        """To be called when SQLite has closed the database; a second time does nothing."""
        with _guard:
            key, self._key = self._key, None
            if key is None:
                return
            self._files.holders -= 1
            if self._files.holders == 0:
                del _databases[key]
                for _, descriptor in self._files.descriptors:
                    os.close(descriptor)
