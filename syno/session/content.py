"""What the rows of a session's database may hold, so that whoever reads them need not ask again.

Seals tell accidents; a session that somebody made on purpose has good seals and may hold anything. Types of columns are
wishes to SQLite.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from syno.errors import shown
from syno.session.records import RungState, Score, StageEnd

_Count = Annotated[int, msgspec.Meta(ge=0)]
_Flag = Literal[0, 1]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class _Meta(msgspec.Struct):
    key: str
    value: str


class _Stage(msgspec.Struct):
    name: str
    position: _Count
    state: Literal["open", "closed"]
    proposer_state: str | None
    chosen: _Count | None


class _Operator(msgspec.Struct):
    hash: _Name
    expr: str
    text: str
    flops: int | None
    params: int | None
    created: str


class _Batch(msgspec.Struct):
    number: _Count
    stage: str
    asks: str
    state: Literal["open", "folded"]


class _Candidate(msgspec.Struct):
    number: _Count
    kind: Literal["baseline", "proposed", "enqueued", "combined"]
    stage: str
    operator: str | None
    batch: _Count | None
    ticket: _Count | None
    state: Literal["queued", "running", "done", "pruned", "failed", "lost"]
    reason: str
    why: str
    tries: _Count
    trained: _Flag
    worker: int | None
    started: str | None
    ended: str | None
    reward: float | None
    flops: int | None
    params: int | None
    verified: _Flag
    max_rel_err: float | None


class _Ticket(msgspec.Struct):
    stage: str
    ticket: _Count
    batch: _Count
    candidate: _Count
    hash: str


class _Score(msgspec.Struct):
    candidate: _Count
    phase: Annotated[str, msgspec.Meta(pattern="^(search|final|rung[1-9][0-9]{0,3})$")]
    seed: int
    part: str
    metric: str
    higher_is_better: _Flag
    value: float
    stderr: float
    count: _Count
    steps: _Count
    total_steps: _Count
    seconds: float
    examples_per_s: float
    threads: _Count


class _Curve(msgspec.Struct):
    candidate: _Count
    phase: str
    seed: int
    step: int
    metrics: str


class _Timing(msgspec.Struct):
    candidate: _Count
    site: str
    runner: str
    median_us: float
    iqr_us: float
    samples: _Count
    threads: _Count
    batch: _Count
    cpu: str
    load1: float
    at: str
    verified: _Flag
    max_rel_err: float | None


class _Event(msgspec.Struct):
    id: int
    at: str
    level: str
    what: str


class _Note(msgspec.Struct):
    candidate: _Count
    about: str
    what: str


class _File(msgspec.Struct):
    name: str
    sum: str


_ROWS: dict[str, type[msgspec.Struct]] = {
    "meta": _Meta,
    "stage": _Stage,
    "operator": _Operator,
    "batch": _Batch,
    "candidate": _Candidate,
    "ticket": _Ticket,
    "score": _Score,
    "curve": _Curve,
    "timing": _Timing,
    "event": _Event,
    "note": _Note,
    "file": _File,
}

#: Columns that hold JSON.
_JSON: dict[str, tuple[str, Callable[[str], Any]]] = {
    "batch": ("asks", msgspec.json.Decoder(list[_Count]).decode),
    "curve": ("metrics", msgspec.json.Decoder(dict[str, float | None]).decode),
}

#: Values of `meta` that are no text.
_META: dict[str, Callable[[str], Any]] = {
    "elapsed_s": float,
    "time_up_s": float,
    "finals_planned": int,
    "combinations_ended": int,
    "rungs": msgspec.json.Decoder(RungState).decode,
    "asked": msgspec.json.Decoder(dict[str, _Count]).decode,
    "climbed_s": msgspec.json.Decoder(dict[str, float]).decode,
    "stage_ends": msgspec.json.Decoder(dict[str, StageEnd]).decode,
    "finalists": msgspec.json.Decoder(list[_Count]).decode,
    "given": msgspec.json.Decoder(dict[str, Score]).decode,
    "known": msgspec.json.Decoder(dict[str, str]).decode,
    "words": msgspec.json.Decoder(dict[str, str]).decode,
    "recipe": msgspec.json.Decoder(dict[str, str]).decode,
    "executor": msgspec.json.Decoder(dict[str, Any]).decode,
    "fixed": msgspec.json.Decoder(dict[str, Any]).decode,
}

#: What must not be there, and why: there is no more than one original,
_ORIGINALS = (
    # of those that the second rule leaves: an index finds them
    "SELECT count(*) > 1 FROM candidate WHERE operator IS NULL AND kind = 'baseline'",
    "there is more than one original",
)
#: and no candidate is like this.
_RULES = (
    (
        "(kind = 'baseline') != (operator IS NULL)",
        "a candidate has no operator, or the original has one",
    ),
    (
        "kind NOT IN ('baseline', 'combined') AND stage NOT IN (SELECT name FROM stage)",
        "a candidate is of no stage",
    ),
)


class Content:
    """Looks at all rows of a session's database, some at a time, and says what no syno would have written."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._found: dict[str, str] = {}

    def look(self, table: str, columns: tuple[str, ...], rows: list[Any]) -> None:
        """Further rows of a table, as they follow each other."""
        seen = self._seen.get(table, 0)
        self._seen[table] = seen + len(rows)
        if table in self._found or table not in _ROWS:
            return
        try:
            msgspec.convert(rows, _as_rows(table, columns))
            self._decode(table, columns, rows)
        except (ValueError, RecursionError):
            for number, row in enumerate(rows, seen + 1):
                try:
                    msgspec.convert(dict(zip(columns, row, strict=True)), _ROWS[table])
                    self._decode(table, columns, [row])
                except (ValueError, RecursionError) as error:
                    what = shown(str(error))[1:-1]
                    self._found[table] = f"row {number} of the table '{table}': {what}"
                    return

    def _decode(self, table: str, columns: tuple[str, ...], rows: list[Any]) -> None:
        """Raises what is wrong with texts that hold JSON."""
        if table in _JSON:
            column, decode = _JSON[table]
            place = columns.index(column)
            for row in rows:
                decode(row[place])
        elif table == "meta":
            for key, value in rows:
                if key in _META:
                    _META[key](value)

    def wrong(self, connection: sqlite3.Connection) -> str:
        """What was found, in words, and what no single row tells; empty where everything may stand. After all rows, within
        one transaction of the caller.

        Raises:
            sqlite3.Error: what is there cannot be read.
        """
        if found := self.wrong_row():
            return found
        broken = connection.execute("PRAGMA foreign_key_check").fetchone()
        if broken is not None:
            return f"a row of the table '{broken[0]}' refers to a row of '{broken[2]}' that is not there"
        return broken_rule(connection)

    def wrong_row(self) -> str:
        """What was found in a row, in words; empty where every row may stand."""
        return next((self._found[table] for table in _ROWS if table in self._found), "")


def broken_rule(
    connection: sqlite3.Connection, low: int | None = None, high: int | None = None
) -> str:
    """What no single row tells, in words.

    Args:
        connection: to the database.
        low, high: then only candidates whose numbers are above the one, and no greater than the other, are looked at.
    Raises:
        sqlite3.Error: what is there cannot be read.
    """
    some = "" if low is None else " AND number > ? AND number <= ?"
    given = () if low is None else (low, high)
    query, what = _ORIGINALS
    if connection.execute(query).fetchone()[0]:
        return what
    for wrong, what in _RULES:
        found = connection.execute(
            f"SELECT 1 FROM candidate WHERE {wrong}{some} LIMIT 1", given
        ).fetchone()
        if found is not None:
            return what
    return ""


@functools.cache
def _as_rows(table: str, columns: tuple[str, ...]) -> Any:
    """What some rows of a table are, their columns in this order."""
    types = {field.name: field.type for field in msgspec.structs.fields(_ROWS[table])}
    row = msgspec.defstruct(table, [(name, types[name]) for name in columns], array_like=True)
    return list[row]  # type: ignore[valid-type]


def wrong_content(connection: sqlite3.Connection) -> str:
    """All of a database that has no seals, as :class:`Content` says it.

    Raises:
        sqlite3.Error: what is there cannot be read.
    """
    content = Content()
    for table in _ROWS:
        cursor = connection.cursor()
        cursor.row_factory = None
        try:
            cursor.execute(f"SELECT * FROM {table}")
        except sqlite3.OperationalError:  # an earlier syno's has fewer
            continue
        columns = tuple(column[0] for column in cursor.description)
        while rows := cursor.fetchmany(100):
            content.look(table, columns, rows)
    return content.wrong(connection)
