"""Rows are sealed by a function of Python's that SQLite calls: what is raised in it is told as it is."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from syno.session import sealing
from syno.session.database import Database


@pytest.mark.parametrize("known", [True, False], ids=["within", "before its first line"])
def test_a_signal_while_a_row_is_sealed_is_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """SQLite calls a function of Python's for each row that is written, and tells only that it raised something."""
    database = Database(tmp_path, write=True, create=True)
    table = "INSERT INTO event(at, level, what) VALUES ('', '', ?)"
    with database.transaction():
        database.execute(table, "first")

    def signalled(values: tuple[Any, ...]) -> bytes:
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the handler raises")

    with monkeypatch.context() as patched:
        if known:
            patched.setattr(sealing, "_sealed", signalled)
        else:
            database._connection.create_function("syno_seal", -1, lambda *values: signalled(values))
        with pytest.raises(KeyboardInterrupt), database.transaction():
            database.execute(table, "second")
    sealing.prepare(database._connection)
    with database.transaction():
        database.execute(table, "third")
    rows = database.execute("SELECT what FROM event ORDER BY id").fetchall()
    assert [row[0] for row in rows] == ["first", "third"]
    database.close()
