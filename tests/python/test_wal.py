"""A session's write-ahead log, as kills, transactions that are taken back, and damage leave it: only what lost something is said."""

from __future__ import annotations

import random
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
from test_session import run, start

from syno.session import InlineExecutor, Session, open_view
from syno.session.lock import SessionLock
from syno.session.opening import LOST_END
from syno.session.store import Store
from syno.session.wal import read_log


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A session that ended by itself."""
    path = tmp_path / "closed"
    with start(path) as session:
        run(session, budget=4, executor=InlineExecutor())
    return path


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A session whose process was killed: what it wrote last is in SQLite's log alone."""
    copy = tmp_path / "killed"
    with start(tmp_path / "alive") as session:
        run(session, budget=4, executor=InlineExecutor())
        shutil.copytree(tmp_path / "alive", copy)
    (copy / "session.sqlite-shm").unlink()
    return copy


def test_a_log_s_checksums_are_those_of_its_format(tmp_path: Path) -> None:
    """Against the definition, word by word; for pages of any size, with frames of an earlier turn behind them."""

    def sums(words: list[int], a: int, b: int) -> tuple[int, int]:
        for even, odd in zip(words[::2], words[1::2], strict=True):
            a = (a + even + b) % 2**32
            b = (b + odd + a) % 2**32
        return a, b

    draw = random.Random(4)
    file = tmp_path / "log"
    for trial in range(60):
        order, magic = draw.choice((("<", 0x377F0682), (">", 0x377F0683)))
        page, count = draw.choice((512, 4_096, 65_536)), draw.randrange(4)
        head = struct.pack(">6I", magic, 3007000, page, 1, 7 + trial, draw.getrandbits(32))
        a, b = sums(list(struct.unpack(f"{order}6I", head)), 0, 0)
        log = head + struct.pack(">2I", a, b)
        for number in range(count):
            begin, content = struct.pack(">2I", number + 1, number + 5), draw.randbytes(page)
            words = struct.unpack(f"{order}{(8 + page) // 4}I", begin + content)
            a, b = sums(list(words), a, b)
            log += begin + head[16:24] + struct.pack(">2I", a, b) + content
        old = struct.pack(">4I", 1, 0, 6 + trial, draw.getrandbits(32)) + draw.randbytes(8 + page)
        whole = log + old * draw.randrange(3)
        file.write_bytes(whole)
        assert read_log(file) == ("", False)
        if count:
            frame = draw.randrange(count)
            at = (
                32
                + frame * (24 + page)
                + draw.choice((draw.randrange(24), draw.randrange(24 + page)))
            )
            damaged = bytearray(whole)
            damaged[at] ^= 1 << draw.randrange(8)
            file.write_bytes(damaged)
            found = read_log(file)
            assert found.lost_end == (frame == count - 1), at
            assert (f"frame {frame + 1} of the log is damaged" in found.broken) != found.lost_end


@pytest.mark.parametrize("done", ["writing", "gone"])
def test_a_log_that_is_half_written_just_now_is_no_damage(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: str
) -> None:
    """A search that begins while its log is read: what was read is of no moment."""
    session = tmp_path / "s"
    shutil.copytree(killed, session)
    log = session / "session.sqlite-wal"
    content = log.read_bytes()
    turns: list[SessionLock] = []

    def reads(path: Path) -> Any:
        if not turns:
            turns.append(SessionLock(session))
            log.write_bytes(content[:-1_000] + bytes(1_000))
            found = read_log(path)
            assert found.lost_end
            log.write_bytes(content)
            if done == "gone":
                turns[0].release()
            return found
        return read_log(path)

    monkeypatch.setattr("syno.session.opening.read_log", reads)
    with open_view(session) as view:
        assert LOST_END not in view.notes()
        assert view.running == (done == "writing")
    turns[0].release()


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_a_transaction_that_was_killed_half_written_is_no_damage(
    closed: Path, tmp_path: Path, committed: bool, again: bool
) -> None:
    """One that did not fit into SQLite's memory: its frames lie in the log, over each other and without their checksums."""
    session, copy = tmp_path / "s", tmp_path / "copy"
    shutil.copytree(closed, session)
    lock, store = SessionLock(session), Store(session, write=True)
    store.execute("PRAGMA cache_size = 8")
    store.execute("PRAGMA wal_autocheckpoint = 0")
    store.set_meta("words", "{}")
    if again:  # a transaction that was taken back, and others over its frames

        def taken_back() -> None:
            with store.transaction():
                fill(store, 60)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            taken_back()
        store.set_meta("elapsed_s", "7")
    expected = [row[:] for row in store.execute("SELECT * FROM meta ORDER BY key").fetchall()]
    with store.transaction():
        fill(store, 40)
        if not committed:
            shutil.copytree(session, copy)
    if committed:
        fill(store, 1)
        expected = [row[:] for row in store.execute("SELECT * FROM meta ORDER BY key").fetchall()]
        shutil.copytree(session, copy)
    store.close()
    lock.release()
    (copy / "session.sqlite-shm").unlink()
    log = copy / "session.sqlite-wal"
    content = log.read_bytes()
    assert len(content) > 32 + 60 * (24 + 4096)
    assert read_log(log) == ("", False)
    with open_view(copy) as view:
        rows = view._store.execute("SELECT * FROM meta ORDER BY key").fetchall()
        assert [row[:] for row in rows] == expected and not view.notes()
    with Session.open(copy):
        pass
    damaged = bytearray(content)
    damaged[32 + 24 + 100] ^= 1  # what was committed before it
    log.write_bytes(damaged)
    if committed:
        assert "frame 1 of the log is damaged" in read_log(log).broken
    else:
        assert read_log(log) != ("", False)


def fill(store: Store, count: int) -> None:
    """Changes that take many pages, some of them several times."""
    for number in range(count):
        store.set_meta(f"m{number}", chr(97 + number % 26) * 9_000)
        store.set_meta(f"m{number // 2}", "again" * 1_800)
