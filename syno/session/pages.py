"""The pages of a database as a transaction sees them: those of its file, and in their place the latest ones of its log.

(Formats: https://www.sqlite.org/fileformat2.html, sections 1.3 and 4; https://www.sqlite.org/walformat.html, section 2.)
"""

from __future__ import annotations

import os
import sqlite3
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from syno import _core
from syno.session.held import Hold

#: Bytes of a page's digest.
DIGEST = 16

#: Bytes that are read at once.
_PART = 1 << 20

_LOG_HEADER, _FRAME_HEADER = 32, 24

#: How often a transaction is begun again because somebody wrote just then.
_TRIES = 50


class _Index(NamedTuple):
    """What all processes agree on of a log: the header of the file ``-shm``."""

    version: int
    unused: int
    change: int
    begun: int
    big_end: int
    page: int
    frames: int
    pages: int
    sum1: int
    sum2: int
    salts: bytes
    own1: int
    own2: int


_INDEX = struct.Struct("=IIIBBHIIII8sII")
_VERSION = 3007000


class Pages:
    """Of one state of a database: ``count`` pages of ``size`` bytes, numbered from 1, and the digest of each, ``[count, 16]``."""

    def __init__(self, file: int, log: int, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.digests = numpy.zeros((count, DIGEST), numpy.uint8)
        self._file, self._log = file, log
        self._frames: dict[int, int] = {}

    def read(self, page: int) -> bytes:
        """The bytes of a page; fewer where the file ends.

        Raises:
            OSError: they cannot be read.
        """
        if page in self._frames:
            at = _LOG_HEADER + self._frames[page] * (_FRAME_HEADER + self.size) + _FRAME_HEADER
            return os.pread(self._log, self.size, at)
        return os.pread(self._file, self.size, (page - 1) * self.size)

    def _look_at_file(self) -> None:
        parts = range(0, min(os.fstat(self._file).st_size, self.count * self.size), _PART)
        each = _PART // self.size

        def look(start: int) -> None:
            first = start // self.size
            content = os.pread(self._file, _PART, start)[: (self.count - first) * self.size]
            found = _digests(content, self.size)
            self.digests[first : first + min(each, len(found))] = found

        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            for _ in pool.map(look, parts):
                pass

    def _look_at_log(self, frames: int, salts: bytes) -> bool:
        """Puts the log's first frames in the place of the file's pages; whether they are those of the log with these salts."""
        frame = _FRAME_HEADER + self.size
        at_once = max(1, _PART // frame)
        for begin in range(0, frames, at_once):
            wanted = min(at_once, frames - begin)
            content = os.pread(self._log, wanted * frame, _LOG_HEADER + begin * frame)
            if len(content) < wanted * frame:
                return False
            rows = numpy.frombuffer(content, numpy.uint8).reshape(wanted, frame)
            if bytes(rows[:, 8:16].tobytes()) != salts * wanted:
                return False
            numbers = rows[:, :4].copy().view(">u4").ravel().astype(numpy.int64)
            inside = (numbers >= 1) & (numbers <= self.count)
            found = _digests(rows[:, _FRAME_HEADER:].tobytes(), self.size)
            for place in numpy.nonzero(inside)[0]:
                self.digests[numbers[place] - 1] = found[place]
                self._frames[int(numbers[place])] = begin + int(place)
        # A log that is begun anew gets its header first.
        return frames == 0 or os.pread(self._log, 8, 16) == salts


def _digests(content: bytes, size: int) -> Any:
    return numpy.frombuffer(_core.part_digests(content, size), numpy.uint8).reshape(-1, DIGEST)


def _index(file: int) -> _Index | None:
    """None while somebody is writing it.

    Raises:
        OSError: there is none of a kind that is known.
    """
    content = os.pread(file, 2 * _INDEX.size, 0)
    if content[: _INDEX.size] != content[_INDEX.size :]:
        return None
    if len(content) < 2 * _INDEX.size:
        raise OSError("the index of the log is not whole")
    found = _Index._make(_INDEX.unpack_from(content))
    if found.version != _VERSION or not found.begun:
        raise OSError("the index of the log is of another kind")
    return found


def pages_of(connection: sqlite3.Connection, hold: Hold, path: Path) -> Pages | None:
    """Begins a transaction, and gives the pages as it sees them; None where nobody can tell, in a transaction as well.

    Args:
        connection: to the database, in no transaction.
        hold: of the same database.
        path: of it.
    Raises:
        sqlite3.Error: the database cannot be read.
    """
    for _ in range(_TRIES):
        try:
            shared = hold.file(path.with_name(path.name + "-shm"))
            before = _index(shared)
            _begin(connection)
            # SQLite took its own copy of the index in between: where the two are the same, this one.
            if before is not None and before == _index(shared):
                found = _pages_at(before, hold, path)
                if found is not None:
                    return found
        except OSError:
            break
        connection.execute("ROLLBACK")
    if not connection.in_transaction:
        _begin(connection)
    return None


def _begin(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # what is seen, from now on


def _pages_at(index: _Index, hold: Hold, path: Path) -> Pages | None:
    """None where another log was begun meanwhile.

    Raises:
        OSError: something cannot be read, or is no database.
    """
    file = hold.file(path)
    (size,) = struct.unpack(">H", os.pread(file, 2, 16).ljust(2, b"\0"))
    size = 65536 if size == 1 else size
    if (
        size < 512
        or _PART % size
        or (index.frames and index.page != (1 if size == 65536 else size))
    ):
        raise OSError("the pages are of another size")
    count = index.pages or os.fstat(file).st_size // size
    log = hold.file(path.with_name(path.name + "-wal")) if index.frames else -1
    pages = Pages(file, log, count, size)
    pages._look_at_file()
    return pages if pages._look_at_log(index.frames, index.salts) else None
