"""The tables of a session's database: how an empty one is made, and one of an earlier syno is brought to today's.

Times are UTC, ISO 8601; units are in the columns' names; every row has a checksum (:mod:`syno.session.sealing`).
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from syno.session import sealing
from syno.session.damage import explained

SCHEMA_VERSION = 3  # 1: without note, file and seals; 2: without the indexes by batch

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE stage(
  name TEXT PRIMARY KEY, position INTEGER NOT NULL, state TEXT NOT NULL,
  proposer_state TEXT, chosen INTEGER REFERENCES candidate(number));
CREATE TABLE operator(
  hash TEXT PRIMARY KEY, expr TEXT NOT NULL, text TEXT NOT NULL, flops INTEGER, params INTEGER,
  created TEXT NOT NULL);
CREATE TABLE batch(
  number INTEGER PRIMARY KEY, stage TEXT NOT NULL REFERENCES stage(name), asks TEXT NOT NULL,
  state TEXT NOT NULL);
CREATE TABLE candidate(
  number INTEGER PRIMARY KEY, kind TEXT NOT NULL, stage TEXT NOT NULL,
  operator TEXT REFERENCES operator(hash), batch INTEGER REFERENCES batch(number), ticket INTEGER,
  state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '', why TEXT NOT NULL DEFAULT '',
  tries INTEGER NOT NULL DEFAULT 0, trained INTEGER NOT NULL DEFAULT 0, worker INTEGER,
  started TEXT, ended TEXT, reward REAL, flops INTEGER, params INTEGER,
  verified INTEGER NOT NULL DEFAULT 0, max_rel_err REAL);
CREATE INDEX candidate_by_operator ON candidate(operator, stage);
CREATE TABLE ticket(
  stage TEXT NOT NULL, ticket INTEGER NOT NULL, batch INTEGER NOT NULL REFERENCES batch(number),
  candidate INTEGER NOT NULL REFERENCES candidate(number), hash TEXT NOT NULL,
  PRIMARY KEY(stage, ticket));
CREATE TABLE score(
  candidate INTEGER NOT NULL REFERENCES candidate(number), phase TEXT NOT NULL, seed INTEGER NOT NULL,
  part TEXT NOT NULL, metric TEXT NOT NULL, higher_is_better INTEGER NOT NULL, value REAL NOT NULL,
  stderr REAL NOT NULL, count INTEGER NOT NULL, steps INTEGER NOT NULL, total_steps INTEGER NOT NULL,
  seconds REAL NOT NULL, examples_per_s REAL NOT NULL, threads INTEGER NOT NULL,
  PRIMARY KEY(candidate, phase, seed));
CREATE TABLE curve(
  candidate INTEGER NOT NULL REFERENCES candidate(number), phase TEXT NOT NULL, seed INTEGER NOT NULL,
  step INTEGER NOT NULL, metrics TEXT NOT NULL, PRIMARY KEY(candidate, phase, seed, step));
CREATE TABLE timing(
  candidate INTEGER NOT NULL REFERENCES candidate(number), site TEXT NOT NULL, runner TEXT NOT NULL,
  median_us REAL NOT NULL, iqr_us REAL NOT NULL, samples INTEGER NOT NULL, threads INTEGER NOT NULL,
  batch INTEGER NOT NULL, cpu TEXT NOT NULL, load1 REAL NOT NULL, at TEXT NOT NULL,
  verified INTEGER NOT NULL, max_rel_err REAL, PRIMARY KEY(candidate, site, runner));
CREATE TABLE event(id INTEGER PRIMARY KEY, at TEXT NOT NULL, level TEXT NOT NULL, what TEXT NOT NULL);
"""
_SINCE_2 = """
CREATE TABLE note(
  candidate INTEGER NOT NULL REFERENCES candidate(number), about TEXT NOT NULL, what TEXT NOT NULL,
  PRIMARY KEY(candidate, about, what));
CREATE TABLE file(name TEXT PRIMARY KEY, sum TEXT NOT NULL);
"""
_SINCE_3 = """
CREATE INDEX candidate_by_batch ON candidate(batch);
CREATE INDEX ticket_by_batch ON ticket(batch);
"""
TABLES = _SCHEMA + _SINCE_2
WHOLE = TABLES + _SINCE_3


def upgrade(connection: sqlite3.Connection) -> None:
    """Brings a database of an earlier syno to today's schema, in one transaction."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for since, statements in ((2, _SINCE_2), (3, _SINCE_3)):
            for statement in statements.split(";"):
                if version < since and statement.strip():
                    connection.execute(statement)
        if version < 2:
            sealing.seal_all(connection, TABLES)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _leavings(path: Path) -> list[Path]:
    """Where a database under way was, and SQLite's files beside it."""
    part = path.with_name(path.name + ".part")
    return [part.with_name(part.name + end) for end in ("", "-journal", "-wal", "-shm")]


def make(path: Path) -> None:
    """Makes an empty database, under another name first: a session.sqlite that exists is complete.

    Raises:
        SessionError: it cannot be written; nothing is left of it.
    """
    leavings = _leavings(path)
    try:
        for left in leavings:
            left.unlink(missing_ok=True)
        made = sqlite3.connect(leavings[0], isolation_level=None)
        try:
            sealing.prepare(made)
            made.executescript(
                f"BEGIN; {sealing.sealed(WHOLE)} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )
            made.execute("PRAGMA journal_mode = WAL")
        finally:
            made.close()
        leavings[0].replace(path)
    except (sqlite3.Error, OSError) as error:
        for left in leavings:
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)
        raise explained(path, error, writing=True) from error
