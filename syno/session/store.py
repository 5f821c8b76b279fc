"""The database of a session: one writer, any number of readers.

Every change that belongs together is one transaction. Durable against a killed process at any moment
(SQLite's WAL); times are UTC, ISO 8601; units are in the columns' names.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from syno.errors import SessionError
from syno.session.protocols import Measurement, OperatorText, Proposal
from syno.session.records import Candidate, Score, StageEnd, Timing

SCHEMA_VERSION = 1

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


def now() -> str:
    """The time as it is stored."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Opens a session's database.

    Raises:
        SessionError: it is missing, no database, damaged, or made by a newer syno.
    """
    if not path.exists():
        raise SessionError(
            f"{path.parent} has no session.sqlite",
            fix="give the directory of a session",
            code="R005",
        )
    mode = "rw" if write else "ro"
    if not write and not os.access(path.parent, os.W_OK) and not _has_log(path):
        mode = "ro&immutable=1"  # nobody can be writing, and SQLite could not make its -shm file
    quoted = str(path.resolve()).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
    connection = None
    try:
        connection = sqlite3.connect(
            f"file:{quoted}?mode={mode}",
            uri=True,
            timeout=30.0,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA busy_timeout = 30000")
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
        if version > SCHEMA_VERSION:
            raise SessionError(
                f"{path.parent} was made by a newer syno (schema {version}; this one knows {SCHEMA_VERSION})",
                fix="install a newer syno",
                code="R004",
            )
        if write:
            check = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0])
            if check != "ok":
                raise sqlite3.DatabaseError(check)
        if not version:
            raise sqlite3.DatabaseError("it is empty")
        connection.execute("SELECT count(*) FROM candidate").fetchone()
    except sqlite3.DatabaseError as error:
        if connection is not None:
            connection.close()
        raise _damaged(path, error) from None
    except SessionError:
        if connection is not None:
            connection.close()
        raise
    return connection


def _has_log(path: Path) -> bool:
    log = path.with_name(path.name + "-wal")
    return log.exists() and log.stat().st_size > 0


def _damaged(path: Path, error: sqlite3.Error) -> SessionError:
    return SessionError(
        f"{path} cannot be read as a session's database: {error}",
        fix="restore it from a copy, or start a new session; operators/ and weights/ are still readable",
        code="R005",
    )


class Store:
    """Reads and writes of a session. A store opened with ``write=False`` only reads."""

    def __init__(self, directory: Path, *, write: bool, create: bool = False) -> None:
        self.directory = directory
        path = directory / "session.sqlite"
        if create and not path.exists():
            # Made under another name first: a session.sqlite that exists is complete.
            temporary = directory / "session.sqlite.part"
            temporary.unlink(missing_ok=True)
            made = sqlite3.connect(temporary, isolation_level=None)
            try:
                made.executescript(
                    f"BEGIN; {_SCHEMA} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
                )
                made.execute("PRAGMA journal_mode = WAL")
            finally:
                made.close()
            temporary.replace(path)
        self._connection = connect(path, write=write)
        if write:
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA foreign_keys = ON")
        self._events = directory / "logs" / "events.jsonl"

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; nested ones belong to the outermost.

        Raises:
            SessionError: the disk is full, or the directory cannot be written any more.
        """
        if self._connection.in_transaction:
            yield
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise SessionError(
                f"{self.directory} cannot be written: {error}",
                fix="free space on the disk or make it writable, then run again: the session goes on",
                code="R009",
            ) from error

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    # --- meta and events

    def meta(self, key: str, default: str = "") -> str:
        row = self.execute("SELECT value FROM meta WHERE key = ?", key).fetchone()
        return str(row[0]) if row else default

    def set_meta(self, key: str, value: str) -> None:
        self.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", key, value)

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

    def event(self, what: str, level: str = "info", **fields: Any) -> None:
        """Records what happened, in the database and as a line of ``logs/events.jsonl``."""
        at = now()
        self.execute("INSERT INTO event(at, level, what) VALUES(?, ?, ?)", at, level, what)
        line = msgspec.json.encode({"at": at, "level": level, "what": what, **fields})
        # The log is for people; a full disk must not end the run because of it.
        with contextlib.suppress(OSError), open(self._events, "ab") as log:
            log.write(line + b"\n")

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
            proposal.why if proposal else "",
            operator.flops if operator else None,
            operator.params if operator else None,
        )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

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
            "UPDATE candidate SET flops = coalesce(?, flops), params = coalesce(?, params),"
            " verified = ?, max_rel_err = ? WHERE number = ?",
            found.flops,
            found.params,
            found.verified,
            found.max_rel_err,
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

    def operators(self) -> Iterator[OperatorText]:
        for row in self.execute("SELECT hash FROM operator ORDER BY created, hash").fetchall():
            yield self.operator(row[0])

    def candidate(self, number: int) -> Candidate | None:
        found = self.candidates("WHERE c.number = ?", number)
        return found[0] if found else None

    def candidates(self, where: str = "", *values: Any) -> list[Candidate]:
        """Candidates in the order of their numbers; ``where`` may filter by columns of ``c``."""
        rows = self.execute(
            "SELECT c.*, o.expr FROM candidate c LEFT JOIN operator o ON o.hash = c.operator "
            f"{where} ORDER BY c.number",
            *values,
        ).fetchall()
        chosen = {int(row["number"]) for row in rows}
        scores: dict[int, list[Score]] = {}
        timings: dict[int, list[Timing]] = {}
        for row in self.execute("SELECT * FROM score ORDER BY candidate, phase, seed"):
            if row["candidate"] in chosen:
                scores.setdefault(row["candidate"], []).append(_score(row))
        for row in self.execute("SELECT * FROM timing ORDER BY candidate, site, runner"):
            if row["candidate"] in chosen:
                timings.setdefault(row["candidate"], []).append(_timing(row))
        return [
            _candidate(row, scores.get(row["number"], []), timings.get(row["number"], []))
            for row in rows
        ]


def _score(row: sqlite3.Row) -> Score:
    fields = {name: row[name] for name in Score.__struct_fields__}
    fields["higher_is_better"] = bool(fields["higher_is_better"])
    return Score(**fields)


def _timing(row: sqlite3.Row) -> Timing:
    return Timing(
        site=row["site"],
        runner=row["runner"],
        latency_us=row["median_us"],
        iqr_us=row["iqr_us"],
        samples=row["samples"],
        threads=row["threads"],
        batch=row["batch"],
        cpu=row["cpu"],
        load1=row["load1"],
        at=row["at"],
        verified=bool(row["verified"]),
        max_rel_err=row["max_rel_err"],
    )


def _candidate(row: sqlite3.Row, scores: list[Score], timings: list[Timing]) -> Candidate:
    own = [t for t in timings if t.runner == "syno"]
    whole = next((t for t in own if not t.site), None)
    sites = [t for t in own if t.site]
    return Candidate(
        number=row["number"],
        kind=row["kind"],
        stage=row["stage"],
        state=row["state"],
        reason=row["reason"],
        key=row["operator"] or "",
        expr=row["expr"] or "original",
        batch=row["batch"],
        ticket=row["ticket"],
        why=row["why"],
        tries=row["tries"],
        reward=row["reward"],
        flops=row["flops"],
        params=row["params"],
        verified=bool(row["verified"]),
        max_rel_err=row["max_rel_err"],
        latency_us=whole.latency_us if whole else None,
        latency_iqr_us=whole.iqr_us if whole else None,
        op_latency_us=sum(t.latency_us for t in sites) if sites else None,
        timings=timings,
        score=next((s for s in scores if s.phase == "search"), None),
        finals=[s for s in scores if s.phase == "final"],
        started=row["started"],
        ended=row["ended"],
    )
