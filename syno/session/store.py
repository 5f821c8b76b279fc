"""The database of a session: one writer, any number of readers.

Every change that belongs together is one transaction. Durable against a killed process at any moment
(SQLite's WAL); every row has a checksum; times are UTC, ISO 8601; units are in the columns' names.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy

from syno.errors import SessionError
from syno.session import sealing
from syno.session.checked import digest_of, remember, was_checked
from syno.session.content import Content, wrong_content
from syno.session.lock import locked
from syno.session.protocols import PREDICTED, UNFIT, Measurement, OperatorText, Predicted, Proposal
from syno.session.records import Candidate, RungState, Score, StageEnd, Timing
from syno.session.rows import NOT_NOTED, candidate_of, score_of, timing_of
from syno.support.files import not_a_file

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
_TABLES = _SCHEMA + _SINCE_2
_WHOLE = _TABLES + _SINCE_3

LOST_END = "the end of session.sqlite-wal is not as it was written, by a power cut or damage: what was recorded last is missing"

_LOG_BYTES = 8 << 20  # of logs/events.jsonl, beside one older file


def now() -> str:
    """The time as it is stored."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
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
    connection = None
    try:
        _check_log(path, write)
        digest = digest_of(path, _log_of(path))
        try:
            connection = _opened(path, "rw" if write else "ro")
        except sqlite3.Error as error:
            # SQLite makes a file beside the database even to read it. Where it cannot, and nobody writes, the
            # database alone is all there is.
            if write or _is_damage(error) or _has_log(path) or locked(path.parent):
                raise
            connection = _opened(path, "ro&immutable=1")
        if not was_checked(digest):
            _check(connection, path)
            if digest == digest_of(path, _log_of(path)):  # nobody wrote meanwhile
                remember(digest)
        if write:
            _upgrade(connection)
    except (*FAILURES, OSError) as error:
        if connection is not None:
            connection.close()
        raise explained(path, error) from None
    except SessionError:
        if connection is not None:
            connection.close()
        raise
    return connection


def _check_files(path: Path) -> None:
    """Raises SessionError where something else lies in the place of the database or its log."""
    for file in (path, _log_of(path)):
        if kind := not_a_file(file):
            raise SessionError(
                f"{file} cannot be opened: it is {kind}",
                fix=f"put the file {file.name} of the session back in its place; operators/ and weights/ are still "
                "readable",
                code="R005",
            )


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    quoted = urllib.parse.quote(os.fsencode(path.resolve()))
    connection = sqlite3.connect(
        f"file:{quoted}?mode={mode}",
        uri=True,
        timeout=30.0,
        isolation_level=None,
        check_same_thread=False,
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
    """Raises what tells a reader that the database is not as it was written."""
    connection.execute("BEGIN")  # one state of it, though somebody may be writing
    try:
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
            schema, content = _TABLES if version == 2 else _WHOLE, Content()
            found = sealing.broken_seal(connection, schema, content.look)
            found = found or content.wrong(connection) or "ok"
        elif found == "ok":
            found = wrong_content(connection) or "ok"
        if found != "ok":
            raise sqlite3.DatabaseError(f"it is damaged: {found}")
        connection.execute("SELECT count(*) FROM candidate").fetchone()
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _upgrade(connection: sqlite3.Connection) -> None:
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
            sealing.seal_all(connection, _TABLES)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def _has_log(path: Path) -> bool:
    log = _log_of(path)
    return log.exists() and log.stat().st_size > 0


def _check_log(path: Path, write: bool) -> None:
    """Raises SessionError for a damaged log: SQLite would leave out what follows the damage, and say nothing."""
    if not write and locked(path.parent):
        return  # somebody is writing it now, and has checked it
    what = sealing.broken_log(_log_of(path))
    if not what or (not write and locked(path.parent)):
        return
    raise SessionError(
        f"{_log_of(path)} is damaged: {what}",
        fix=f"restore it from a copy, or remove {_log_of(path).name} to go back to the state before it: "
        "what was recorded since is lost then, and the session goes on from there",
        code="R005",
    )


#: What a query raises beside its result. SQLite's own words hold names as they lie in a damaged file: where those are
#: no text, Python cannot make a message of them. A record whose length is damaged asks for memory that is not there.
FAILURES = (sqlite3.Error, UnicodeDecodeError, MemoryError)

_DAMAGE_CODES = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB
_DAMAGE = (
    "malformed",
    "not a database",
    "no such",
    "it is empty",
    "it is damaged",
    "could not decode",
    "unsupported file format",
)


def _is_damage(error: Exception) -> bool:
    """Whether the database itself is wrong, rather than what the system gives it now."""
    if isinstance(error, UnicodeDecodeError):
        return True
    code = getattr(error, "sqlite_errorcode", None)  # Python 3.11
    if code is not None and code & 0xFF in _DAMAGE_CODES:
        return True
    text = str(error).lower()
    return isinstance(error, sqlite3.Error) and any(words in text for words in _DAMAGE)


def explained(path: Path, error: Exception, *, writing: bool = False) -> SessionError:
    """What is wrong with a database, and what to do; never to give up one that is whole."""
    if _is_damage(error):
        return SessionError(
            f"{path} cannot be read as a session's database: {error}",
            fix="restore it from a copy, or start a new session; operators/ and weights/ are still readable",
            code="R005",
        )
    words = error.strerror if isinstance(error, OSError) else str(error)
    if isinstance(error, MemoryError):
        words = "there is not enough memory"
    if writing:
        return SessionError(
            f"{path.parent} cannot be written: {words}",
            fix="free space on the disk or make it writable, then run again: the session goes on",
            code="R009",
        )
    return SessionError(
        f"{path} cannot be opened now: {words}",
        fix="free space on the disk, or make the directory and its files readable, then try again: nothing "
        "says that the session is damaged",
        code="R016",
    )


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


def _place(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _leavings(path: Path) -> list[Path]:
    """Where a database under way was, and SQLite's files beside it."""
    part = path.with_name(path.name + ".part")
    return [part.with_name(part.name + end) for end in ("", "-journal", "-wal", "-shm")]


def _make(path: Path) -> None:
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
                f"BEGIN; {sealing.sealed(_WHOLE)} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
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


class Store:
    """Reads and writes of a session. A store opened with ``write=False`` only reads."""

    def __init__(self, directory: Path, *, write: bool, create: bool = False) -> None:
        self.directory = directory
        self._path = path = directory / "session.sqlite"
        self._write = write
        if create and not path.exists():
            _make(path)
        _check_files(path)
        #: Whether what was recorded last is missing, though nobody says that it never was: see `sealing.lost_end`.
        self.lost_end = (write or not locked(directory)) and sealing.lost_end(_log_of(path))
        self._connection = connect(path, write=write)
        self._place = _place(path)
        self._everyone: tuple[tuple[int, int], list[Candidate]] | None = None
        self._original: tuple[tuple[int, int], Candidate | None] | None = None
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

    def check_place(self) -> None:
        """Raises SessionError where the directory is not the one that was opened: nothing written would last."""
        if _place(self._path) != self._place:
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
        self.check_place()
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
        self._everyone = self._original = (
            None  # changes that are taken back are counted all the same
        )
        # A full disk has rolled it back already.
        with contextlib.suppress(sqlite3.Error):
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

    # --- meta and events

    def meta(self, key: str, default: str = "") -> str:
        row = self.execute("SELECT value FROM meta WHERE key = ?", key).fetchone()
        return str(row[0]) if row else default

    def set_meta(self, key: str, value: str) -> None:
        self.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", key, value)

    def check_stages(self, names: list[str]) -> None:
        """Raises SessionError where the session's stages are not those of its settings."""
        rows = self.execute("SELECT name FROM stage ORDER BY position").fetchall()
        if [row[0] for row in rows] != names:
            wrong = sqlite3.DatabaseError("it is damaged: its stages are not those of session.toml")
            raise explained(self._path, wrong)

    def stage_ends(self) -> dict[str, StageEnd]:
        """How the searches of stages ended, by the stage's name, of those that did."""
        return msgspec.json.decode(self.meta("stage_ends", "{}"), type=dict[str, StageEnd])

    def set_stage_end(self, stage: str, end: StageEnd) -> None:
        ends = {**self.stage_ends(), stage: end}
        self.set_meta("stage_ends", msgspec.json.encode(ends).decode())

    def finalists(self) -> list[int]:
        """Numbers of the candidates that were chosen to be trained again, in the order they were chosen."""
        return msgspec.json.decode(self.meta("finalists", "[]"), type=list[int])

    def set_finalists(self, numbers: list[int]) -> None:
        self.set_meta("finalists", msgspec.json.encode(numbers).decode())

    def rung_state(self) -> RungState:
        """Who went on from which rung."""
        return msgspec.json.decode(self.meta("rungs", "{}"), type=RungState)

    def set_rung_state(self, state: RungState) -> None:
        self.set_meta("rungs", msgspec.json.encode(state).decode())

    def asked(self) -> dict[str, int]:
        """By stage, the last batch that was proposed when the stage's proposer was kept."""
        return msgspec.json.decode(self.meta("asked", "{}"), type=dict[str, int])

    def set_asked(self, batches: dict[str, int]) -> None:
        self.set_meta("asked", msgspec.json.encode(batches).decode())

    def climbed_s(self) -> dict[str, float]:
        """By stage, the time within which no further candidate is proposed: its rungs were climbed, or are."""
        return msgspec.json.decode(self.meta("climbed_s", "{}"), type=dict[str, float])

    def set_climbed_s(self, times: dict[str, float]) -> None:
        self.set_meta("climbed_s", msgspec.json.encode(times).decode())

    def given(self) -> dict[str, Score]:
        """Of the model as it was handed in, untouched: its score on each part."""
        return msgspec.json.decode(self.meta("given", "{}"), type=dict[str, Score])

    def set_given(self, scores: dict[str, Score]) -> None:
        self.set_meta("given", msgspec.json.encode(scores).decode())

    def recipe(self) -> dict[str, str]:
        """How trainings go, for people."""
        return msgspec.json.decode(self.meta("recipe", "{}"), type=dict[str, str])

    def words(self) -> dict[str, str]:
        """Operators in plain sentences, by key."""
        return msgspec.json.decode(self.meta("words", "{}"), type=dict[str, str])

    def set_words(self, words: dict[str, str]) -> None:
        self.set_meta("words", msgspec.json.encode(words).decode())

    def known(self) -> dict[str, str]:
        """Names of known operators, by the operator's key."""
        return msgspec.json.decode(self.meta("known", "{}"), type=dict[str, str])

    def name_known(self, key: str, name: str) -> None:
        names = {**self.known(), key: name}
        self.set_meta("known", msgspec.json.encode(names).decode())

    def set_recipe(self, recipe: dict[str, str]) -> None:
        self.set_meta("recipe", msgspec.json.encode(recipe).decode())

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

    # --- candidates

    def add_operator(self, operator: OperatorText) -> None:
        self.execute(
            "INSERT OR IGNORE INTO operator VALUES(?, ?, ?, ?, ?, ?)",
            operator.key,
            operator.expr,
            operator.text,
            operator.flops,
            operator.params,
            now(),
        )

    def add_candidate(
        self,
        kind: str,
        stage: str,
        operator: OperatorText | None,
        *,
        batch: int | None = None,
        proposal: Proposal | None = None,
        why: str = "",
    ) -> int:
        if operator is not None:
            self.add_operator(operator)
        cursor = self.execute(
            "INSERT INTO candidate(number, kind, stage, operator, batch, ticket, why, state, flops, params)"
            " VALUES((SELECT coalesce(max(number) + 1, 0) FROM candidate), ?, ?, ?, ?, ?, ?, 'queued', ?, ?)",
            kind,
            stage,
            operator.key if operator else None,
            batch,
            proposal.ticket if proposal else None,
            proposal.why if proposal else why,
            operator.flops if operator else None,
            operator.params if operator else None,
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def number_of(self, operator: str, stage: str) -> int | None:
        """The candidate that an operator is in a stage."""
        row = self.execute(
            "SELECT max(number) FROM candidate WHERE operator = ? AND stage = ?", operator, stage
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def count_of(self, stage: str) -> int:
        """Candidates of a stage."""
        row = self.execute("SELECT count(*) FROM candidate WHERE stage = ?", stage).fetchone()
        return int(row[0])

    def known_numbers(self) -> list[tuple[int, str]]:
        """Candidates that are known operators, with their names."""
        names = self.known()
        found = []
        for key, name in names.items():
            rows = self.execute("SELECT number FROM candidate WHERE operator = ?", key)
            found += [(int(row[0]), name) for row in rows]
        return sorted(found)

    def trained_again(self) -> list[Candidate]:
        """Candidates that have trainings on the finalists' seeds; the original is not among them."""
        return self.candidates(
            "WHERE c.kind != 'baseline' AND c.number IN (SELECT candidate FROM score WHERE phase = 'final')"
        )

    def names(self) -> list[tuple[int, str, str]]:
        """Number, id and operator's key of everyone; the original has no key."""
        rows = self.execute("SELECT number, kind, operator FROM candidate ORDER BY number")
        return [
            (number, "baseline" if kind == "baseline" else f"c{number}", key or "")
            for number, kind, key in rows
        ]

    def rewards(self, state: str = "") -> tuple[Any, Any]:
        """Numbers and rewards of all candidates but the original, or of those in a state, as arrays in the order of their
        numbers; a reward that is not known is 0."""
        numbers, rewards = self.columns(
            "SELECT number, coalesce(reward, 0.0) FROM candidate WHERE kind != 'baseline' AND (? = '' OR state = ?)"
            " ORDER BY number",
            (numpy.int64, float),
            state,
            state,
        )
        return numbers, rewards

    def seconds(self) -> list[float]:
        """How long whole trainings took, of each network that had one."""
        rows = self.execute(
            "SELECT candidate, seconds FROM score WHERE phase = 'search' ORDER BY candidate, seed DESC"
        )
        return list({row[0]: row[1] for row in rows}.values())

    def disturbances(self) -> list[tuple[Any, ...]]:
        """Kind and number of each candidate, and what may have disturbed its latencies: the original's first."""
        if self._version() < 2:
            return []
        marks = ", ".join("?" * len(NOT_NOTED))
        return self.execute(
            "SELECT c.kind, c.number, n.what FROM note n JOIN candidate c ON c.number = n.candidate"
            f" WHERE n.about NOT IN ({marks}) ORDER BY c.kind != 'baseline', c.number, n.about, n.what",
            *NOT_NOTED,
        ).fetchall()

    def unfit(self, target: str) -> list[tuple[int, str]]:
        """Candidates that cannot be timed on a target, and why, the original among them, in the order of their numbers."""
        if self._version() < 2:
            return []
        found: dict[int, str] = {}
        for number, what in self.execute(
            "SELECT candidate, what FROM note WHERE about = ? ORDER BY candidate, what", UNFIT
        ):
            if what.startswith(f"{target}: "):
                found.setdefault(number, what.removeprefix(f"{target}: "))
        return [(number, why) for number, why in found.items() if why]

    def notes_about(self, about: str) -> list[tuple[int, str]]:
        """Candidates and what a kind of note says of each, but the original's."""
        if self._version() < 2:
            return []
        rows = self.execute(
            "SELECT n.candidate, n.what FROM note n JOIN candidate c ON c.number = n.candidate"
            " WHERE n.about = ? AND c.kind != 'baseline' ORDER BY n.candidate, n.what",
            about,
        )
        return [(int(row[0]), str(row[1])) for row in rows]

    def set_state(self, number: int, state: str, reason: str = "") -> None:
        moment = {"running": "started", "done": "ended", "pruned": "ended", "failed": "ended"}
        column = moment.get(state)
        stamp = f", {column} = ?" if column else ""
        values = (now(),) if column else ()
        self.execute(
            f"UPDATE candidate SET state = ?, reason = ?{stamp} WHERE number = ?",
            state,
            reason,
            *values,
            number,
        )

    def add_measurement(self, number: int, found: Measurement, cpu: str, load1: float) -> None:
        at = now()

        def row(site: str, runner: str, us: float, iqr: float, ok: bool, err: float | None) -> None:
            self.execute(
                "INSERT OR REPLACE INTO timing VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                number,
                site,
                runner,
                us,
                iqr,
                found.samples,
                found.threads,
                found.batch,
                cpu,
                load1,
                at,
                ok,
                err,
            )

        row("", "syno", found.latency_us, found.iqr_us, found.verified, found.max_rel_err)
        for site, timing in found.sites.items():
            row(site, "syno", timing.latency_us, timing.iqr_us, timing.verified, timing.max_rel_err)
        for runner, latency_us in found.peers_us.items():
            row("", runner, latency_us, 0.0, False, None)
        self.execute(
            "DELETE FROM note WHERE candidate = ? AND about IN ('mixing', 'runner', 'timing')",
            number,
        )
        if found.mixing:
            self.execute("INSERT INTO note VALUES(?, 'mixing', ?)", number, found.mixing)
        if found.runner:
            runner = f"{found.runner}: {found.why_layers}" if found.why_layers else found.runner
            self.execute("INSERT INTO note VALUES(?, 'runner', ?)", number, runner)
        for what in found.notes:
            self.execute("INSERT OR IGNORE INTO note VALUES(?, 'timing', ?)", number, what)
        self.execute(
            "UPDATE candidate SET flops = coalesce(?, flops), params = coalesce(?, params),"
            " verified = ?, max_rel_err = ? WHERE number = ?",
            found.flops,
            found.params,
            found.verified,
            found.max_rel_err,
            number,
        )

    def add_timing_on(self, number: int, runner: str, found: Measurement) -> None:
        """The latency of a network on another machine; its sites, costs and notes are those of the session's own."""
        self.execute(
            "INSERT OR REPLACE INTO timing VALUES(?, '', ?, ?, ?, ?, ?, ?, '', 0.0, ?, ?, ?)",
            number,
            runner,
            found.latency_us,
            found.iqr_us,
            found.samples,
            found.threads,
            found.batch,
            now(),
            found.verified,
            found.max_rel_err,
        )

    def add_note(self, number: int, about: str, what: str) -> None:
        """Something in words of a candidate; once, however often it is said."""
        self.execute("INSERT OR IGNORE INTO note VALUES(?, ?, ?)", number, about, what)

    def add_prediction(self, number: int, found: Predicted, threads: int) -> None:
        self.execute(
            "INSERT OR REPLACE INTO timing VALUES(?, '', ?, ?, 0.0, 0, ?, 0, '', 0.0, ?, 0, NULL)",
            number,
            PREDICTED,
            found.latency_us,
            threads,
            now(),
        )
        self.execute(
            "UPDATE candidate SET flops = coalesce(?, flops), params = coalesce(?, params)"
            " WHERE number = ?",
            found.flops,
            found.params,
            number,
        )

    def add_score(self, number: int, score: Score) -> None:
        plain = msgspec.to_builtins(score)
        columns = ", ".join(plain)
        marks = ", ".join("?" for _ in plain)
        self.execute(
            f"INSERT OR REPLACE INTO score(candidate, {columns}) VALUES(?, {marks})",
            number,
            *plain.values(),
        )

    def add_curve_point(
        self, number: int, phase: str, seed: int, step: int, metrics: dict[str, float]
    ) -> None:
        self.execute(
            "INSERT OR REPLACE INTO curve VALUES(?, ?, ?, ?, ?)",
            number,
            phase,
            seed,
            step,
            msgspec.json.encode(metrics).decode(),
        )

    def curve(
        self, number: int, phase: str = "search", seed: int | None = None
    ) -> list[tuple[int, dict[str, float]]]:
        """Steps and metrics of one training."""
        rows = self.execute(
            "SELECT step, metrics FROM curve WHERE candidate = ? AND phase = ?"
            " AND (? IS NULL OR seed = ?) ORDER BY seed, step",
            number,
            phase,
            seed,
            seed,
        )
        return [(int(row[0]), msgspec.json.decode(row[1])) for row in rows]

    def operator(self, key: str) -> OperatorText:
        row = self.execute("SELECT * FROM operator WHERE hash = ?", key).fetchone()
        return OperatorText(
            key=row["hash"],
            expr=row["expr"],
            text=row["text"],
            flops=row["flops"],
            params=row["params"],
        )

    def operator_texts(self) -> Iterator[tuple[str, str]]:
        """Keys and texts of all operators, some at a time: together they may be more than memory should hold."""
        rows = self.execute("SELECT hash, text FROM operator")
        while some := rows.fetchmany(100):
            yield from some

    def baseline(self) -> Candidate | None:
        """The original; read once while nothing changes."""
        stamp = self.stamp()
        if self._original is None or self._original[0] != stamp:
            # It is the first of all since sessions are made, and found without looking at the others.
            found = self._read("WHERE c.number = 0 AND c.kind = 'baseline'")
            found = found or self._read("WHERE c.kind = 'baseline'")
            self._original = (stamp, found[0] if found else None)
        return self._original[1]

    def candidate(self, number: int) -> Candidate | None:
        found = self.candidates("WHERE c.number = ?", number)
        return found[0] if found else None

    def stamp(self) -> tuple[int, int]:
        """Another one whenever a row may have changed: by others, or by this connection."""
        others = int(self.execute("PRAGMA data_version").fetchone()[0])
        return others, self._connection.total_changes

    def everyone(self) -> list[Candidate]:
        """All candidates and the original; read once while nothing changes."""
        stamp = self.stamp()
        if self._everyone is None or self._everyone[0] != stamp:
            self._everyone = (stamp, self._read(""))
        return list(self._everyone[1])

    def candidates(self, where: str = "", *values: Any) -> list[Candidate]:
        """Candidates in the order of their numbers; ``where`` may filter by columns of ``c``."""
        return self._read(where, *values) if where else self.everyone()

    def _read(self, where: str, *values: Any) -> list[Candidate]:
        rows = self.execute(
            "SELECT c.*, o.expr FROM candidate c LEFT JOIN operator o ON o.hash = c.operator "
            f"{where} ORDER BY c.number",
            *values,
        ).fetchall()
        # Of these alone: what the rest of the session holds must cost nothing here.
        among = f"IN (SELECT c.number FROM candidate c {where})"
        scores: dict[int, list[Score]] = {}
        timings: dict[int, list[Timing]] = {}
        for row in self.execute(
            f"SELECT * FROM score WHERE candidate {among} ORDER BY candidate, phase, seed", *values
        ):
            scores.setdefault(row["candidate"], []).append(score_of(row))
        for row in self.execute(
            f"SELECT * FROM timing WHERE candidate {among} ORDER BY candidate, site, runner",
            *values,
        ):
            timings.setdefault(row["candidate"], []).append(timing_of(row))
        notes: dict[int, list[str]] = {}
        mixing: dict[int, str] = {}
        runners: dict[int, str] = {}
        classes: dict[int, list[str]] = {}
        nodes: dict[int, list[str]] = {}
        unfit: dict[int, list[str]] = {}
        if self._version() >= 2:
            for row in self.execute(
                f"SELECT candidate, about, what FROM note WHERE candidate {among}"
                " ORDER BY candidate, about, what",
                *values,
            ):
                if row["about"] == "mixing":
                    mixing[row["candidate"]] = row["what"]
                elif row["about"] == "runner":
                    runners[row["candidate"]] = row["what"]
                elif row["about"] == "class":
                    classes.setdefault(row["candidate"], []).append(row["what"])
                elif row["about"] == "node":
                    nodes.setdefault(row["candidate"], []).append(row["what"])
                elif row["about"] == "target":
                    unfit.setdefault(row["candidate"], []).append(row["what"])
                else:
                    notes.setdefault(row["candidate"], []).append(row["what"])
        known = self.known()
        first = {
            row[0]: int(row[1])
            for row in self.execute(
                "SELECT operator, min(number) FROM candidate WHERE operator IN"
                f" (SELECT c.operator FROM candidate c {where}) GROUP BY operator",
                *values,
            )
        }
        return [
            candidate_of(
                row,
                scores.get(row["number"], []),
                timings.get(row["number"], []),
                notes.get(row["number"], []),
                mixing.get(row["number"], ""),
                runners.get(row["number"], ""),
                known.get(row["operator"] or "", ""),
                first.get(row["operator"]),
                classes.get(row["number"], []),
                nodes.get(row["number"], []),
                unfit.get(row["number"], []),
            )
            for row in rows
        ]

    def _version(self) -> int:
        return int(self.execute("PRAGMA user_version").fetchone()[0])
