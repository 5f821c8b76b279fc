"""A session's database: statements whose errors are sentences, transactions, what happened, and checksums of the files beside it.

One writer, any number of readers. Every change that belongs together is one transaction, durable against a killed process
at any moment (SQLite's WAL).
"""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy

from syno.errors import SessionError
from syno.session import sealing
from syno.session.damage import FAILURES, explained
from syno.session.opening import LOST_END, check_files, connect, place_of
from syno.session.schema import make

_LOG_BYTES = 8 << 20  # of logs/events.jsonl, beside one older file


def now() -> str:
    """The time as it is stored."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


class _Rows:
    """A cursor whose errors are sentences."""

    def __init__(
        self, cursor: sqlite3.Cursor, explain: Callable[[Exception], SessionError]
    ) -> None:
        self._cursor, self._explain = cursor, explain

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def fetchone(self) -> Any:
        try:
            return self._cursor.fetchone()
        except FAILURES as error:
            raise self._explain(error) from error

    def fetchmany(self, most: int) -> list[Any]:
        try:
            return self._cursor.fetchmany(most)
        except FAILURES as error:
            raise self._explain(error) from error

    def fetchall(self) -> list[Any]:
        try:
            return self._cursor.fetchall()
        except FAILURES as error:
            raise self._explain(error) from error

    def __iter__(self) -> Iterator[Any]:
        return iter(self.fetchall())


class Database:
    """Reads and writes of a session's database. One opened with ``write=False`` only reads."""

    def __init__(self, directory: Path, *, write: bool, create: bool = False) -> None:
        self.directory = directory
        self._path = path = directory / "session.sqlite"
        self._write = write
        if create and not path.exists():
            make(path)
        check_files(path)
        self._connection = connect(path, write=write)
        #: Whether what was recorded last is missing, though nobody says that it never was: see `LogState`.
        self.lost_end = self._connection.lost_end
        self._place = place_of(path)
        self._events = directory / "logs" / "events.jsonl"
        if write and self.lost_end:
            self.event(LOST_END, "warning")
        if write:
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA foreign_keys = ON")

    def close(self) -> None:
        self._connection.close()

    def _explain(self, error: Exception) -> SessionError:
        return explained(self._path, error, writing=self._write)

    def checkplace_of(self) -> None:
        """Raises SessionError where the directory is not the one that was opened: nothing written would last."""
        if place_of(self._path) != self._place:
            raise SessionError(
                f"{self.directory} was removed or replaced while it was in use",
                fix="put it back, or start again in another directory; what was not copied is lost",
                code="R009",
            )

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; nested ones belong to the outermost.

        Raises:
            SessionError: the disk is full, or the directory is gone or cannot be written any more.
        """
        if self._connection.in_transaction:
            yield
            return
        self.checkplace_of()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._roll_back()
                raise
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            raise self._explain(error) from error
        except OSError as error:  # of a file that belongs to the rows
            raise self._explain(error) from error

    def _roll_back(self) -> None:
        # A full disk has rolled it back already.
        with contextlib.suppress(sqlite3.Error):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    @contextlib.contextmanager
    def one_moment(self) -> Iterator[None]:
        """What is read within is of one moment, though another process writes meanwhile; and what is read once stays known.

        Raises:
            SessionError: the database cannot be read.
        """
        if self._write or self._connection.in_transaction:
            yield
            return
        self.execute("BEGIN")
        try:
            yield
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def execute(self, statement: str, *values: Any) -> _Rows:
        """Rows of a query, or the effect of a change.

        Raises:
            SessionError: the database is damaged, or the system cannot read or write it.
        """
        try:
            return _Rows(self._connection.execute(statement, values), self._explain)
        except FAILURES as error:
            raise self._explain(error) from error

    def columns(self, statement: str, kinds: Sequence[type], *values: Any) -> list[Any]:
        """Columns of a query as NumPy arrays, each of its kind; what is NULL is NaN. Rows are dropped as they are read: there
        may be very many.

        Raises:
            SessionError: as :meth:`execute`.
        """
        parts: list[list[Any]] = [[numpy.empty(0, kind)] for kind in kinds]
        try:
            cursor = self._connection.cursor()
            cursor.row_factory = None
            cursor.execute(statement, values)
            while rows := cursor.fetchmany(512):
                for part, kind, column in zip(parts, kinds, zip(*rows, strict=True), strict=True):
                    part.append(numpy.array(column, kind))
        except FAILURES as error:
            raise self._explain(error) from error
        return [numpy.concatenate(part) for part in parts]

    # --- what happened

    def event(self, what: str, level: str = "info", **fields: Any) -> None:
        """Records what happened, in the database and as a line of ``logs/events.jsonl``."""
        at = now()
        self.execute("INSERT INTO event(at, level, what) VALUES(?, ?, ?)", at, level, what)
        line = msgspec.json.encode({"at": at, "level": level, "what": what, **fields})
        # The log is for people; a full disk must not end the run because of it.
        with contextlib.suppress(OSError):
            if self._events.exists() and self._events.stat().st_size > _LOG_BYTES:
                self._events.replace(self._events.with_name(self._events.name + ".1"))
            with open(self._events, "ab") as log:
                log.write(line + b"\n")

    # --- files beside the database

    def add_file(self, path: Path) -> None:
        """Records what a file of the session holds now, so that damage is noticed; nothing where there is none."""
        with contextlib.suppress(FileNotFoundError):
            name = path.relative_to(self.directory).as_posix()
            self.execute("INSERT OR REPLACE INTO file VALUES(?, ?)", name, sealing.file_sum(path))

    def check_file(self, path: Path) -> None:
        """Raises SessionError for a file that is not as it was recorded; one never recorded is taken as it is."""
        if self._version() < 2:
            return
        name = path.relative_to(self.directory).as_posix()
        row = self.execute("SELECT sum FROM file WHERE name = ?", name).fetchone()
        try:
            same = row is None or sealing.file_sum(path) == row[0]
        except OSError as error:
            raise self._explain(error) from error
        if not same:
            raise SessionError(
                f"{path} is not as the session wrote it",
                fix="restore it from a copy; or remove it, and run the search again",
                code="R005",
            )

    def stamp(self) -> tuple[int, int]:
        """Another one whenever a row may have changed: by others, or by this connection."""
        others = int(self.execute("PRAGMA data_version").fetchone()[0])
        return others, self._connection.total_changes

    def _version(self) -> int:
        return int(self.execute("PRAGMA user_version").fetchone()[0])
