"""What somebody wrote into a database since it was found to be right: read as strictly as all of it was, and nothing else.

A page whose bytes are those of then holds what was checked then. Every other page is asked for its rows
(:mod:`syno.session.trees`), and these are compared with their seals, their content, the rows that they refer to and the
indexes that should find them; indexes have as many entries as each other, and as there are seals. So damage on any page is noticed,
whether the page is old or new, but for an entry of an index, of a row that is not new, that lies on a page which changed, and
for references to rows that went away: these show when all is checked, at the latest when nobody writes.
"""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy

from syno.session import sealing
from syno.session.content import Content, broken_rule
from syno.session.pages import DIGEST, Pages
from syno.session.schema import SCHEMA_VERSION, WHOLE
from syno.session.trees import Range, Tree, UnclearPages, rows_on

_SEALS = "seal"

#: Where more of the pages changed, to read all rows in their order is faster.
_SHARE = 0.25


def still_right(connection: sqlite3.Connection, pages: Pages, before: bytes) -> bool:
    """Whether what changed since a database was found to be right is as it was written; False as well where nobody can tell:
    then a check of the whole says what is wrong, if anything is.

    Args:
        connection: to the database, in the transaction whose pages they are.
        pages: of the database now.
        before: digests of its pages when it was right.
    Raises:
        sqlite3.Error: what is there cannot be read.
    """
    asked = _changed(pages, before)
    if not asked.any():
        return True
    if asked.sum() > max(_SHARE * pages.count, 1_000):
        return False
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version != SCHEMA_VERSION or not sealing.has_tables(connection, WHOLE):
        return False
    try:
        rows = rows_on(pages, asked, _trees(connection), _SEALS)
    except (UnclearPages, OSError):
        return False
    content = Content()
    return (
        _as_written(connection, rows, content)
        and not content.wrong_row()
        and _counts_agree(connection)
    )


def _changed(pages: Pages, before: bytes) -> Any:
    """Which pages are not those of before, by number."""
    known = numpy.frombuffer(before, numpy.uint8).reshape(-1, DIGEST)
    both = min(len(known), pages.count)
    changed = numpy.ones(pages.count + 1, bool)
    changed[0] = False
    changed[1 : both + 1] = (known[:both] != pages.digests[:both]).any(axis=1)
    return changed


def _trees(connection: sqlite3.Connection) -> list[Tree]:
    found = [Tree("sqlite_master", 1, True)]
    for kind, name, root in connection.execute(
        "SELECT type, name, rootpage FROM sqlite_master WHERE rootpage > 0 ORDER BY rootpage"
    ):
        found.append(Tree(name, root, kind == "table" and name != _SEALS))
    return found


def _as_written(
    connection: sqlite3.Connection, rows: dict[str, list[Range]], content: Content
) -> bool:
    """Whether rows have their seals, and seals their rows; they are found by every index, and find what they refer to."""
    tables = sealing.tables(WHOLE)
    for table, ranges in rows.items():
        if table == "sqlite_master":
            continue
        if table not in tables:
            return False
        lost = _lost(connection, table)
        for low, high in ranges:
            count, bad = sealing.compare_rows(connection, WHOLE, table, content.look, low, high)
            (seals,) = connection.execute(
                "SELECT count(*) FROM seal WHERE tbl = ? AND row > ? AND row <= ?",
                (table, low, high),
            ).fetchone()
            if bad or seals != count:
                return False
            if any(connection.execute(query, (low, high)).fetchone() for query in lost):
                return False
            if table == "candidate" and broken_rule(connection, low, high):
                return False
    return True


def _lost(connection: sqlite3.Connection, table: str) -> list[str]:
    """Queries for rows between two numbers that an index does not find, or that refer to nothing."""
    some = f"SELECT 1 FROM {table} AS own WHERE own.rowid > ? AND own.rowid <= ?"
    queries = []
    for index in _indexes(connection, table):
        names = [row[2] for row in connection.execute(f"PRAGMA index_info({index})")]
        same = " AND ".join(f"found.{name} IS own.{name}" for name in names)
        queries.append(
            f"{some} AND NOT EXISTS (SELECT 1 FROM {table} AS found INDEXED BY {index}"
            f" WHERE {same} AND found.rowid = own.rowid) LIMIT 1"
        )
    for row in connection.execute(f"PRAGMA foreign_key_list({table})"):
        _, _, other, name, key = tuple(row)[:5]
        queries.append(
            f"{some} AND own.{name} IS NOT NULL AND NOT EXISTS"
            f" (SELECT 1 FROM {other} WHERE {other}.{key} = own.{name}) LIMIT 1"
        )
    return queries


def _indexes(connection: sqlite3.Connection, table: str) -> list[str]:
    return [str(row[1]) for row in connection.execute(f"PRAGMA index_list({table})")]


def _counts_agree(connection: sqlite3.Connection) -> bool:
    """Whether the indexes of each table have as many entries as each other, and there are as many rows as seals."""
    total = 0
    for table in sealing.tables(WHOLE):
        indexes = _indexes(connection, table)
        counts = {
            int(connection.execute(f"SELECT count(*) FROM {table} {by}").fetchone()[0])
            for by in [f"INDEXED BY {index}" for index in indexes] or ["NOT INDEXED"]
        }
        if len(counts) > 1:
            return False
        total += counts.pop()
    (seals,) = connection.execute("SELECT count(*) FROM seal").fetchone()
    return bool(seals == total)
