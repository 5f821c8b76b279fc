"""Opening a session's database: all of it is as it was written, or a sentence says what is not."""

from __future__ import annotations

import os
import sqlite3
import urllib.parse
from pathlib import Path
from typing import Any

from syno.errors import SessionError
from syno.session import sealing
from syno.session.checked import digest_of, pages_before, remember, remember_pages, was_checked
from syno.session.content import Content, wrong_content
from syno.session.damage import FAILURES, explained, is_damage
from syno.session.held import Hold
from syno.session.lock import locked
from syno.session.pages import pages_of
from syno.session.schema import SCHEMA_VERSION, TABLES, WHOLE, upgrade
from syno.session.since import still_right
from syno.session.wal import LogState, read_log
from syno.support.files import not_a_file

#: How often a log is read again because somebody may have written it meanwhile.
_TRIES = 10

LOST_END = "the end of session.sqlite-wal is not as it was written, by a power cut or damage: what was recorded last is missing"


class Connection(sqlite3.Connection):
    """A connection that lets go of the files it is about when it is closed.

    Attributes:
        lost_end: what was recorded last is missing, though nobody says that it never was: see :class:`LogState`.
    """

    hold: Hold | None = None
    lost_end: bool = False

    def execute(self, *given: Any) -> sqlite3.Cursor:
        """Raises:
        KeyboardInterrupt: a signal came while a row was sealed, which SQLite tells as an error of its own.
        """
        try:
            return super().execute(*given)
        except sqlite3.OperationalError as error:
            raised = sealing.raised_by_seal(error)
            if raised is None:
                raise
            raise raised from None

    def close(self) -> None:
        super().close()
        if self.hold is not None:
            self.hold.release()


def connect(path: Path, *, write: bool) -> Connection:
    """Opens a session's database; all of it is as it was written.

    Raises:
        SessionError: it is missing, no database, damaged, or made by a newer syno; or the system cannot
            open it now.
    """
    if not path.exists():
        raise SessionError(
            f"{path.parent} has no session.sqlite",
            fix="give the directory of a session",
            code="R005",
        )
    connection = hold = None
    try:
        beside = not write and locked(path.parent)
        lost_end = _look_at_log(path, write)
        hold = Hold(path)
        digest = "" if beside else _digest(hold, path)
        try:
            connection = _opened(path, "rw" if write else "ro")
        except sqlite3.Error as error:
            # SQLite makes a file beside the database even to read it. Where it cannot, and nobody writes, the
            # database alone is all there is.
            if write or is_damage(error) or _has_log(path) or locked(path.parent):
                raise
            connection = _opened(path, "ro&immutable=1")
        connection.hold, connection.lost_end = hold, lost_end
        if not was_checked(digest):
            _look(connection, path, hold, go_on=beside)
            if digest and digest == _digest(hold, path):  # nobody wrote meanwhile
                remember(digest)
        if write:
            upgrade(connection)
    except (*FAILURES, OSError) as error:
        _leave(connection, hold)
        raise explained(path, error) from None
    except SessionError:
        _leave(connection, hold)
        raise
    return connection


def _leave(connection: Connection | None, hold: Hold | None) -> None:
    if connection is not None:
        connection.close()
    if hold is not None:
        hold.release()


def _digest(hold: Hold, path: Path) -> str:
    """Of all bytes of a database and its log; empty where they cannot be read."""
    files: list[tuple[str, int | None]] = []
    for file in (path, log_of(path)):
        try:
            files.append((file.name, hold.file(file)))
        except FileNotFoundError:
            files.append((file.name, None))
        except OSError:
            return ""
    return digest_of(files)


def _look(connection: sqlite3.Connection, path: Path, hold: Hold, *, go_on: bool) -> None:
    """Raises what tells a reader that the database is not as it was written.

    Args:
        go_on: look at what changed since the database was found to be right; where that is not known, at all of it.
    """
    try:
        pages = pages_of(connection, hold, path)  # one state of it, though somebody may be writing
        before = pages_before(path, pages.size) if go_on and pages is not None else None
        if pages is None or before is None or not still_right(connection, pages, before):
            _check(connection, path)
        if pages is not None and pages.digests.tobytes() != before:
            remember_pages(path, pages)
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def check_files(path: Path) -> None:
    """Raises SessionError where something else lies in the place of the database or its log."""
    for file in (path, log_of(path)):
        if kind := not_a_file(file):
            raise SessionError(
                f"{file} cannot be opened: it is {kind}",
                fix=f"put the file {file.name} of the session back in its place; operators/ and weights/ are still "
                "readable",
                code="R005",
            )


def _opened(path: Path, mode: str) -> Connection:
    quoted = urllib.parse.quote(os.fsencode(path.resolve()))
    connection = sqlite3.connect(
        f"file:{quoted}?mode={mode}",
        uri=True,
        timeout=30.0,
        isolation_level=None,
        check_same_thread=False,
        factory=Connection,
    )
    try:
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA busy_timeout = 30000")
        sealing.prepare(connection)
        connection.execute("PRAGMA user_version").fetchone()  # opens what is opened late
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection, path: Path) -> None:
    """Raises what tells a reader that the database is not as it was written: all of it is read, in one transaction."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise SessionError(
            f"{path.parent} was made by a newer syno (schema {version}; this one knows {SCHEMA_VERSION})",
            fix="install a newer syno",
            code="R004",
        )
    if version < 1:
        raise sqlite3.DatabaseError("it is empty")
    # Indexes are compared with their tables, too: a damaged one hides rows.
    found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if found == "ok" and version >= 2:
        schema, content = TABLES if version == 2 else WHOLE, Content()
        found = sealing.broken_seal(connection, schema, content.look)
        found = found or content.wrong(connection) or "ok"
    elif found == "ok":
        found = wrong_content(connection) or "ok"
    if found != "ok":
        raise sqlite3.DatabaseError(f"it is damaged: {found}")
    connection.execute("SELECT count(*) FROM candidate").fetchone()


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _has_log(path: Path) -> bool:
    log = log_of(path)
    return log.exists() and log.stat().st_size > 0


def _look_at_log(path: Path, write: bool) -> bool:
    """Whether the end of the log is lost, see :class:`LogState`; never where somebody is writing it now, who has looked.

    Raises:
        SessionError: it is damaged: SQLite would leave out what follows the damage, and say nothing.
    """
    log = log_of(path)
    for _ in range(_TRIES):
        before = _state_of(log)
        if not write and locked(path.parent):
            return False
        found = read_log(log)
        if found == LogState():
            return False
        # Somebody may have begun to write while it was read, and be done by now: then it tells nothing.
        if write or (before == _state_of(log) and not locked(path.parent)):
            break
    else:
        return False
    if not found.broken:
        return found.lost_end
    raise SessionError(
        f"{log} is damaged: {found.broken}",
        fix=f"restore it from a copy, or remove {log.name} to go back to the state before it: "
        "what was recorded since is lost then, and the session goes on from there",
        code="R005",
    )


def _state_of(log: Path) -> tuple[int, ...]:
    """Another one when a log was written."""
    try:
        status = log.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def place_of(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
