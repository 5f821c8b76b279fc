"""Seals: a checksum beside every row of a session's database, so that damage is noticed, not shown.

SQLite notices when its own structures are damaged, not when a number or a text in a row is. Triggers write
the seals, whatever statement changes a row; a reader compares them all when it opens the database, and looks at the
write-ahead log, too (:mod:`syno.session.wal`).
"""

from __future__ import annotations

import errno
import functools
import hashlib
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from syno.support.files import not_a_file

#: Is given rows of a table, some at a time, with the names of their columns.
Look = Callable[[str, tuple[str, ...], list[Any]], None]

_SEAL = """
CREATE TABLE seal(
  tbl TEXT NOT NULL, row INTEGER NOT NULL, sum BLOB NOT NULL, PRIMARY KEY(tbl, row)) WITHOUT ROWID;
"""


def prepare(connection: sqlite3.Connection) -> None:
    """Makes a connection able to write and to compare seals."""
    connection.create_function("syno_seal", -1, _seal, deterministic=True)
    connection.execute("PRAGMA recursive_triggers = ON")  # a replaced row is a deleted one


#: Rows that are read together: an operator's has kilobytes.
_AT_ONCE = 100

_packed = msgspec.msgpack.Encoder().encode


#: What SQLite says of an exception in a function of Python's: that there was one, not which.
_RAISED = "user-defined function raised exception"
_failed = threading.local()


def _seal(*values: Any) -> bytes:
    try:
        return _sealed(values)
    except BaseException as error:
        _failed.error = error
        raise


def raised_by_seal(error: sqlite3.Error) -> BaseException | None:
    """What ended a statement in the function that seals rows, where that did: KeyboardInterrupt where it is not known, as a
    signal may come before the function's first line."""
    if str(error) != _RAISED:
        return None
    raised, _failed.error = getattr(_failed, "error", None), None
    return raised or KeyboardInterrupt()


def _sealed(values: tuple[Any, ...]) -> bytes:
    return hashlib.blake2b(_packed(values), digest_size=12).digest()


def sealed(schema: str) -> str:
    """A schema's statements with the table of seals, and triggers on each of its tables."""
    return f"{schema}{_SEAL}{_triggers(schema)}"


def _triggers(schema: str) -> str:
    parts = []
    for table, columns in tables(schema).items():
        seal = (
            f"INSERT OR REPLACE INTO seal SELECT '{table}', rowid, {_sum(table, columns)} "
            f"FROM {table} WHERE rowid = NEW.rowid;"
        )
        forget = f"DELETE FROM seal WHERE tbl = '{table}' AND row = OLD.rowid;"
        for name, event, act in (
            ("made", "INSERT", seal),
            ("changed", "UPDATE", f"{forget} {seal}"),
            ("removed", "DELETE", forget),
        ):
            parts.append(
                f"CREATE TRIGGER {table}_{name} AFTER {event} ON {table} BEGIN {act} END;\n"
            )
    return "".join(parts)


def _sum(table: str, columns: tuple[str, ...]) -> str:
    return f"syno_seal('{table}', {table}.rowid, {', '.join(f'{table}.{c}' for c in columns)})"


@functools.cache
def tables(schema: str) -> dict[str, tuple[str, ...]]:
    """Tables of a schema with their columns, but the seals' own."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.executescript(schema)
        names = [
            str(row[0])
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {
            name: tuple(str(row[1]) for row in connection.execute(f"PRAGMA table_info({name})"))
            for name in sorted(names)
        }
    finally:
        connection.close()


_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"


@functools.cache
def _objects(schema: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        prepare(connection)
        connection.executescript(sealed(schema))
        return [tuple(row) for row in connection.execute(_OBJECTS)]
    finally:
        connection.close()


def broken_seal(
    connection: sqlite3.Connection,
    schema: str,
    look: Look = lambda table, columns, rows: None,
) -> str:
    """What is not as it was written, in words; empty where everything is. Within one transaction of the caller.

    Args:
        connection: of the session's database.
        schema: statements that make its tables.
        look: is given all rows, some at a time, with their table and the names of their columns, in the tables' own order.
    Raises:
        sqlite3.Error: what is there cannot be read.
    """
    if not has_tables(connection, schema):
        return "its tables are not those of a session"
    total = 0
    for table in tables(schema):
        count, bad = compare_rows(connection, schema, table, look)
        if bad:
            return f"{bad} of the {count} rows of the table '{table}' are not as written"
        total += count
    (seals,) = connection.execute("SELECT count(*) FROM seal").fetchone()
    if seals != total:
        return f"{seals - total} rows are missing"
    return ""


def has_tables(connection: sqlite3.Connection, schema: str) -> bool:
    """Whether a database's tables, indexes and triggers are those of a schema.

    Raises:
        sqlite3.Error: what is there cannot be read.
    """
    return [tuple(row) for row in connection.execute(_OBJECTS)] == _objects(schema)


def compare_rows(
    connection: sqlite3.Connection,
    schema: str,
    table: str,
    look: Look,
    low: int | None = None,
    high: int | None = None,
) -> tuple[int, int]:
    """How many rows a table has, and how many of them are not as their seals say.

    Args:
        connection, schema, look: as for :func:`broken_seal`.
        table: of the schema.
        low, high: then only rows whose numbers are above the one, and no greater than the other.
    Raises:
        sqlite3.Error: what is there cannot be read.
    """
    columns = tables(schema)[table]
    count = bad = 0
    cursor = connection.cursor()
    cursor.row_factory = None
    some = "" if low is None else f"WHERE {table}.rowid > ? AND {table}.rowid <= ? "
    cursor.execute(
        f"SELECT seal.sum, '{table}', {table}.rowid, {', '.join(f'{table}.{c}' for c in columns)} FROM {table} "
        f"LEFT JOIN seal ON seal.tbl = '{table}' AND seal.row = {table}.rowid {some}ORDER BY {table}.rowid",
        () if low is None else (low, high),
    )
    while rows := cursor.fetchmany(_AT_ONCE):
        bad += sum(_sealed(row[1:]) != row[0] for row in rows)
        count += len(rows)
        look(table, columns, [row[3:] for row in rows])
    return count, bad


def seal_all(connection: sqlite3.Connection, schema: str) -> None:
    """Adds what a database of before seals lacks: the seals of the rows that are there, and the triggers."""
    for statement in _statements(_SEAL + _triggers(schema)):
        connection.execute(statement)
    for table, columns in tables(schema).items():
        connection.execute(
            f"INSERT INTO seal SELECT '{table}', rowid, {_sum(table, columns)} FROM {table}"
        )


def _statements(script: str) -> list[str]:
    """The statements of a script; ``executescript`` would commit before them."""
    found, begun = [], ""
    for line in script.splitlines(keepends=True):
        begun += line
        if sqlite3.complete_statement(begun):
            found.append(begun.strip())
            begun = ""
    return [
        statement.rstrip(";") if "TRIGGER" not in statement else statement for statement in found
    ]


def file_sum(path: Path) -> str:
    """The checksum of a file beside the database.

    Raises:
        OSError: it cannot be read.
    """
    if kind := not_a_file(path):
        raise OSError(errno.EINVAL, f"it is {kind}", str(path))
    found = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            found.update(chunk)
    return found.hexdigest()
