"""What the rows of a session's database may hold, so that whoever reads them need not ask again.

Seals tell accidents; a session that somebody made on purpose has good seals and may hold anything. Types of columns are
wishes to SQLite.
"""

from __future__ import annotations

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

#: What must not be there, and why.
_RULES = (
    (
        "SELECT count(*) > 1 FROM candidate WHERE kind = 'baseline'",
        "there is more than one original",
    ),
    (
        "SELECT count(*) FROM candidate WHERE (kind = 'baseline') != (operator IS NULL)",
        "a candidate has no operator, or the original has one",
    ),
    (
        "SELECT count(*) FROM candidate WHERE kind NOT IN ('baseline', 'combined')"
        " AND stage NOT IN (SELECT name FROM stage)",
        "a candidate is of no stage",
    ),
)


def wrong_content(connection: sqlite3.Connection) -> str:
    """What no syno would have written, in words; empty where everything may stand. Within one transaction of the
    caller, after the tables themselves were checked.

    Raises:
        sqlite3.Error: what is there cannot be read.
    """
    for table, kind in _ROWS.items():
        try:
            cursor = connection.execute(f"SELECT * FROM {table}")
        except sqlite3.OperationalError:  # an earlier syno's has fewer
            continue
        names = [column[0] for column in cursor.description]
        column, decode = _JSON.get(table, ("", str))
        for number, row in enumerate(cursor, 1):
            values = dict(zip(names, row, strict=True))
            try:
                msgspec.convert(values, kind)
                if column:
                    decode(values[column])
                if table == "meta" and values["key"] in _META:
                    _META[values["key"]](values["value"])
            except (ValueError, RecursionError) as error:
                return f"row {number} of the table '{table}': {shown(str(error))[1:-1]}"
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is not None:
        return (
            f"a row of the table '{broken[0]}' refers to a row of '{broken[2]}' that is not there"
        )
    for query, what in _RULES:
        if connection.execute(query).fetchone()[0]:
            return what
    return ""
