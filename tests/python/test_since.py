"""A session that somebody writes is read on from what was found to be right: as strictly, and nothing twice.

A generator of what writers do, and of damage to the bytes of new rows and of old ones. What is asked of the pages is compared
with what SQLite itself says of the rows; kills and readers at once are real processes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import session_fakes as fakes
from test_session import run, start

from syno.errors import SessionError
from syno.session import Session, open_view, opening, sealing, since
from syno.session.held import Hold
from syno.session.pages import pages_of
from syno.session.protocols import Measurement
from syno.session.records import Score
from syno.session.schema import WHOLE
from syno.session.store import Store
from syno.session.trees import HIGHEST, LOWEST, Range, Tree, UnclearPages, rows_on

SEEDS = range(int(os.environ.get("TEST_WRITERS", "4")))
FLIPS = int(os.environ.get("TEST_WRITTEN_FLIPS", "60"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wholes(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A path for each time that all of a database was checked."""
    found: list[Path] = []
    real = opening._check
    monkeypatch.setattr(
        opening, "_check", lambda connection, path: (found.append(path), real(connection, path))
    )
    return found


def score(draw: random.Random, phase: str = "search") -> Score:
    return Score(
        phase=phase,
        seed=draw.randrange(3),
        part="validation",
        metric="accuracy",
        higher_is_better=True,
        value=draw.random(),
        stderr=0.01,
        count=100,
        steps=1,
        total_steps=1,
        seconds=draw.random(),
        examples_per_s=1.0,
        threads=1,
    )


def write_something(store: Store, draw: random.Random, *, read: bool = False) -> None:
    """A transaction as searches have them, small or large: rows added, changed, replaced and removed; then, now and then,
    a checkpoint, of a kind that does not wait for a moment that is being `read`."""
    with store.transaction():
        for _ in range(draw.choice((1, 3, 30))):
            number = store.add_candidate(
                "proposed",
                "all",
                fakes.operator(draw.randrange(1 << 60), draw.choice((10, 3_000, 9_000))),
            )
            store.set_state(number, "done")
            store.add_score(number, score(draw))
            for step in range(draw.randrange(4)):
                store.add_curve_point(number, "search", 0, step, {"accuracy": draw.random()})
            store.add_note(number, "timing", "x" * draw.choice((3, 100, 5_000)))
        for _ in range(draw.choice((0, 1, 5))):
            old = draw.randrange(1, number + 1)
            store.execute("UPDATE candidate SET reward = ? WHERE number = ?", draw.random(), old)
            store.add_measurement(old, Measurement(latency_us=draw.random()), "cpu", 0.0)
            store.add_score(old, score(draw))
        # Of one length: only its further pages need to change.
        state = "".join(draw.choice("ab") for _ in range(draw.choice((10, 40_000, 40_000))))
        store.execute("UPDATE stage SET proposer_state = ?", "same beginning " * 400 + state)
        store.set_meta(
            "words", "{" + ", ".join(f'"k{i}": "v"' for i in range(draw.randrange(500))) + "}"
        )
        if draw.random() < 0.3:
            store.execute("DELETE FROM note WHERE candidate < ?", draw.randrange(number))
        store.event("something " + "y" * draw.choice((1, 6_000)))
    if draw.random() < 0.4:
        mode = "PASSIVE" if read else draw.choice(("PASSIVE", "FULL", "RESTART", "TRUNCATE"))
        store.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()


def rows_of(connection: Any) -> dict[str, list[tuple[Any, ...]]]:
    """All there is, as no index tells it."""
    return {
        table: sorted(
            tuple(row)
            for row in connection.execute(f"SELECT rowid, * FROM {table} NOT INDEXED").fetchall()
        )
        for table in sealing.tables(WHOLE)
    }


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with start(tmp_path / "session") as made:
        run(made, budget=4)
        yield made


@pytest.mark.parametrize("seed", SEEDS)
def test_a_reader_beside_a_writer_reads_what_was_written_since(
    session: Session, wholes: list[Path], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, store = random.Random(seed), session._store
    asked: list[dict[str, list[Range]]] = []

    def record(*given: Any) -> dict[str, list[Range]]:
        asked.append(rows_on(*given))
        return asked[-1]

    monkeypatch.setattr(since, "rows_on", record)
    write_something(store, draw)
    open_view(session.directory).close()
    wholes.clear()
    seals = dict(rows_of_seals(store))
    for _ in range(12):
        for _ in range(draw.randrange(3)):
            write_something(store, draw)
        asked.clear()
        with open_view(session.directory) as view:
            assert rows_of(view._store) == rows_of(store)
        assert wholes == []
        now = dict(rows_of_seals(store))
        changed = {key for key in now.keys() | seals.keys() if now.get(key) != seals.get(key)}
        assert bool(asked) or not changed
        for table, row in changed:
            assert any(low < row <= high for low, high in asked[0][table]), (table, row)
        # and of the rest no more than lies beside it
        looked = sum(
            any(low < row <= high for low, high in ranges)
            for found in asked
            for table, ranges in found.items()
            for name, row in now
            if name == table
        )
        assert looked <= len(changed) * 40 + 500
        seals = now
    session.close()
    open_view(session.directory).close()
    assert len(wholes) == 1  # nobody writes: all of it, once
    open_view(session.directory).close()
    assert len(wholes) == 1


def rows_of_seals(store: Store) -> list[tuple[tuple[str, int], bytes]]:
    return [((row[0], row[1]), row[2]) for row in store.execute("SELECT tbl, row, sum FROM seal")]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("age", ["new", "old"])
def test_damage_beside_a_writer_is_noticed_or_harmless(
    session: Session, seed: int, age: str, wholes: list[Path]
) -> None:
    """Wherever a bit of a page changes that a reader sees: in rows that nobody has read, and in ones that were right."""
    draw, store = random.Random(seed), session._store
    for _ in range(3):
        write_something(store, draw)
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    open_view(session.directory).close()
    with store.transaction():  # rows of which some end on pages that were there
        for _ in range(20):
            number = store.add_candidate(
                "proposed", "all", fakes.operator(draw.randrange(1 << 60), 900)
            )
            store.add_score(number, score(draw))
            store.add_note(number, "timing", "a note")
        store.event("new")
    expected = rows_of(store)
    names = {"new": "session.sqlite-wal", "old": "session.sqlite"}
    file = session.directory / names[age]
    in_log = _pages_in_log(session.directory)
    noticed = 0
    remembered = _remembered()
    with open(file, "r+b") as damaged:
        size = file.stat().st_size
        for _ in range(FLIPS):
            if age == "new":
                page = draw.choice(sorted(in_log.values()))
                at = 32 + page * (24 + 4096) + 24 + draw.randrange(4096)
            else:
                at = draw.randrange(size)
                if at // 4096 + 1 in in_log:
                    continue
            damaged.seek(at)
            (was,) = damaged.read(1)
            _put(damaged, at, was ^ 1 << draw.randrange(8))
            try:
                assert _read(session.directory) == expected, at
            except SessionError as error:
                noticed += error.code in ("R005", "R004", "R016")
                assert _remembered() == remembered
            finally:
                _put(damaged, at, was)
            _restore(remembered)
    assert noticed > FLIPS // 8
    wholes.clear()
    open_view(session.directory).close()
    assert wholes == []


def _read(directory: Path) -> dict[str, list[tuple[Any, ...]]]:
    with open_view(directory) as view:
        return rows_of(view._store)


def _put(file: Any, at: int, byte: int) -> None:
    file.seek(at)
    file.write(bytes([byte]))
    file.flush()


def _remembered() -> dict[Path, bytes]:
    folder = Path(os.environ["SYNO_CACHE"]) / "sessions"
    return {path: path.read_bytes() for path in folder.glob("*.pages")}


def _restore(entries: dict[Path, bytes]) -> None:
    for path, content in entries.items():
        path.write_bytes(content)


def _pages_in_log(directory: Path) -> dict[int, int]:
    """The latest frame of each page."""
    log = (directory / "session.sqlite-wal").read_bytes()
    frame, salts, found = 24 + 4096, log[16:24], {}
    for number in range((len(log) - 32) // frame):
        head = log[32 + number * frame : 32 + number * frame + 24]
        if head[8:16] == salts:
            found[int.from_bytes(head[:4], "big")] = number
    return found


def test_a_row_that_no_syno_would_have_written_is_refused(session: Session) -> None:
    """Its seal is good: triggers write one whatever statement changes a row."""
    store = session._store
    write_something(store, random.Random(0))
    open_view(session.directory).close()
    statements = (
        "UPDATE candidate SET state = 'unheard of' WHERE number = 1",
        "UPDATE candidate SET stage = 'of nobody' WHERE number = 2",
        "UPDATE candidate SET kind = 'baseline', operator = NULL WHERE number = 3",
        "UPDATE candidate SET operator = 'of nobody' WHERE number = 2",
        "INSERT OR REPLACE INTO meta VALUES('elapsed_s', 'soon')",
        "INSERT INTO note VALUES(10000, 'timing', 'of nobody')",
        "INSERT INTO ticket VALUES('all', 77, 1, 10000, 'of nobody')",
    )
    store.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        before = rows_of(store)
        remembered = _remembered()
        backup = sqlite3.connect(":memory:")
        store._connection.backup(backup)
        store.execute(statement)
        assert rows_of(store) != before
        with pytest.raises(SessionError, match="damaged"):
            open_view(session.directory)
        assert _remembered() == remembered
        with contextlib.closing(backup):
            backup.backup(store._connection)
        open_view(session.directory).close()


@pytest.mark.parametrize(
    ("what", "statements"),
    [
        (
            "a seal is missing",
            ["DELETE FROM seal WHERE tbl = 'event' AND row = (SELECT max(id) FROM event)"],
        ),
        (
            "a seal is another's",
            [
                "UPDATE seal SET sum = x'00' WHERE tbl = 'score' AND row = (SELECT max(rowid) FROM score)"
            ],
        ),
        ("a seal is of no row", ["INSERT INTO seal VALUES('event', 1000000, x'00')"]),
        ("a seal is of no table", ["INSERT INTO seal VALUES('nobody', 1, x'00')"]),
        ("a table is another's", ["CREATE TABLE another(x)"]),
    ],
)
def test_seals_that_are_not_as_written_are_noticed(
    session: Session, what: str, statements: list[str]
) -> None:
    write_something(session._store, random.Random(0))
    open_view(session.directory).close()
    for statement in statements:
        session._store.execute(statement)
    with pytest.raises(SessionError, match="damaged"):
        open_view(session.directory)


def test_a_row_that_is_lost_is_noticed(session: Session) -> None:
    """The page says that it has one entry fewer; seals and indexes have it still."""
    store = session._store
    write_something(store, random.Random(0))
    store.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    open_view(session.directory).close()
    roots = dict(store.execute("SELECT rootpage, name FROM sqlite_master").fetchall())
    store.execute("UPDATE stage SET state = 'closed'")
    store.execute("UPDATE batch SET state = 'open'")
    store.set_meta("elapsed_s", "7")
    file = session.directory / "session.sqlite-wal"
    whole, lost = file.read_bytes(), set()
    for page, number in _pages_in_log(session.directory).items():
        at = 32 + number * (24 + 4096) + 24
        if whole[at] == 13 and page in roots:
            damaged = bytearray(whole)
            damaged[at + 4] -= 1
            file.write_bytes(damaged)
            with pytest.raises(SessionError, match=r"damaged|malformed"):
                open_view(session.directory)
            file.write_bytes(whole)
            lost.add(roots[page])
    assert {"stage", "batch"} <= lost
    open_view(session.directory).close()


def test_an_index_that_does_not_find_a_new_row_is_noticed(session: Session) -> None:
    """The entry's key is another one; the numbers of entries agree."""
    store = session._store
    write_something(store, random.Random(0))
    open_view(session.directory).close()
    store.event("z" * 10)
    key = "op" + "7" * 12
    with store.transaction():
        store.add_candidate("proposed", "all", fakes.operator(int("7" * 12)))
    file = session.directory / "session.sqlite-wal"
    whole = file.read_bytes()
    found = 0
    for number in _pages_in_log(session.directory).values():
        at = 32 + number * (24 + 4096) + 24
        page = whole[at : at + 4096]
        if page[0] == 10 and key.encode() in page:  # a leaf of an index
            place = at + page.index(key.encode()) + 3
            damaged = bytearray(whole)
            damaged[place] ^= 1
            file.write_bytes(damaged)
            with pytest.raises(SessionError, match=r"damaged|malformed"):
                open_view(session.directory)
            file.write_bytes(whole)
            found += 1
    assert found >= 2  # of candidates and of operators
    open_view(session.directory).close()


def test_nobody_elses_word_is_taken(
    session: Session, wholes: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_something(session._store, random.Random(0))
    open_view(session.directory).close()
    wholes.clear()
    (entry,) = _remembered()
    own = entry.read_bytes()
    with start(tmp_path / "other") as other:
        open_view(other.directory).close()
        (others,) = _remembered().keys() - {entry}
        wholes.clear()
        for content in (
            own[::-1],
            own[:-16],
            own[:64] + b"\n" + own[80:],
            others.read_bytes(),
            b"",
        ):
            entry.write_bytes(content)
            open_view(session.directory).close()
            assert wholes == [session.directory / "session.sqlite"]
            wholes.clear()
    (session.directory / entry.name).write_bytes(own)  # beside the session
    entry.unlink()
    open_view(session.directory).close()
    assert len(wholes) == 1
    monkeypatch.setenv("SYNO_CACHE", "")
    open_view(session.directory).close()
    assert len(wholes) == 2


WRITER = """
import random, sys
from pathlib import Path
from syno.session.lock import SessionLock
from syno.session.store import Store
from test_since import write_something
directory = Path(sys.argv[1])
lock = SessionLock(directory)
store, draw = Store(directory, write=True), random.Random(int(sys.argv[2]))
print("writing", flush=True)
while True:
    write_something(store, draw)
"""


@contextlib.contextmanager
def writer(directory: Path, seed: int) -> Iterator[subprocess.Popen[str]]:
    """A process that writes until it is killed."""
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(seed)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_readers_at_once_beside_a_writer_that_is_killed(tmp_path: Path, wholes: list[Path]) -> None:
    path = tmp_path / "session"
    with start(path) as made:
        run(made, budget=4)
    draw = random.Random(0)
    for seed in range(3):
        opened: list[int] = []
        failed: list[BaseException] = []

        def read(opened: list[int] = opened, failed: list[BaseException] = failed) -> None:
            try:
                for _ in range(6):
                    with open_view(path) as view:
                        count = view._store.execute("SELECT count(*) FROM candidate").fetchone()[0]
                        assert len(view._store.everyone()) >= count
                        opened.append(count)
            except BaseException as error:
                failed.append(error)

        with writer(path, seed):
            open_view(path).close()
            wholes.clear()
            readers = [threading.Thread(target=read) for _ in range(2)]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            assert not failed, failed
            assert len(opened) == 12
            assert len(wholes) <= 2  # where very much was written in between
            time.sleep(draw.random() * 0.3)
        wholes.clear()
        with open_view(path) as view:  # as the killed one left it, all of it
            assert len(view._store.everyone()) >= max(opened)
        assert len(wholes) == 1


def test_files_that_were_read_do_not_give_up_the_locks_of_others(session: Session) -> None:
    """A process that closes a file loses all its locks on it."""
    path = session.directory / "session.sqlite"
    asks = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'r+b')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, int(sys.argv[3]), int(sys.argv[2]))\n"
        "except OSError:\n    print('in use')\n"
    )

    def in_use(file: Path, at: int, length: int) -> bool:
        given = [sys.executable, "-c", asks, str(file), str(at), str(length)]
        return (
            subprocess.run(given, capture_output=True, text=True, check=True).stdout == "in use\n"
        )

    shared = path.with_name(path.name + "-shm")
    for _ in range(2):
        assert in_use(path, 0x40000002, 510) and in_use(shared, 128, 1)
        session._store.event("something")
        open_view(session.directory).close()
    session.close()
    open_files = {os.readlink(f"/proc/self/fd/{fd}") for fd in _descriptors()}
    assert not any(str(session.directory) in file for file in open_files)


def _descriptors() -> list[str]:
    return [fd for fd in os.listdir("/proc/self/fd") if os.path.islink(f"/proc/self/fd/{fd}")]


def test_answers_that_belong_together_are_of_one_moment(session: Session) -> None:
    draw = random.Random(0)
    with open_view(session.directory) as view:
        with view.one_moment():
            before, read = view._store.everyone(), view.overview()
            write_something(session._store, draw, read=True)
            assert view._store.everyone() == before
            assert view.overview() is read
            assert view.status()["states"]["done"] == sum(c.state == "done" for c in before)
        assert len(view._store.everyone()) > len(before)
    with session.one_moment():  # a writer sees what it writes
        count = len(session._store.everyone())
        write_something(session._store, draw)
        assert len(session._store.everyone()) > count


# --- pages and trees


@pytest.mark.parametrize("size", [512, 1024, 4096, 65536])
def test_every_row_lies_on_a_page_that_is_asked(tmp_path: Path, size: int) -> None:
    """Of any page size; rows and keys of any length; with free pages."""
    path = tmp_path / "some.sqlite"
    draw = random.Random(size)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA page_size = {size}")
    connection.execute("PRAGMA journal_mode = WAL")
    sealing.prepare(connection)
    connection.executescript(
        sealing.sealed(
            "CREATE TABLE some(key TEXT PRIMARY KEY, value TEXT); CREATE TABLE other(x INTEGER);"
        )
    )
    for _ in range(3):
        connection.execute("BEGIN")
        for _ in range(400):
            key = f"{draw.random()}" + "k" * draw.choice((0, 10, 3_000))
            connection.execute(
                "INSERT INTO some VALUES(?, ?)", (key, "v" * draw.choice((1, 500, 9_000)))
            )
            connection.execute(
                "INSERT INTO other(rowid, x) VALUES(?, 1)", (draw.randrange(-(1 << 62), 1 << 62),)
            )
        connection.execute("DELETE FROM some WHERE rowid % 3 = 0")
        connection.execute("COMMIT")
    reader = sqlite3.connect(path, isolation_level=None)
    hold = Hold(path)
    pages = pages_of(reader, hold, path)
    assert pages is not None and pages.size == size
    assert pages.count == reader.execute("PRAGMA page_count").fetchone()[0]
    trees = [Tree("sqlite_master", 1, True)] + [
        Tree(name, root, kind == "table" and name != "seal")
        for kind, name, root in reader.execute(
            "SELECT type, name, rootpage FROM sqlite_master WHERE rootpage > 0"
        )
    ]
    every = pages.digests[:, 0] >= 0
    asked = numpy.concatenate([[False], every])
    whole = rows_on(pages, asked, trees, "seal")
    assert whole["some"] == whole["other"] == [Range(LOWEST, HIGHEST)]
    # A page that is nobody's, and one that two share.
    for wrong in (trees[:-1], [*trees, trees[1]._replace(name="twice")]):
        with pytest.raises(UnclearPages):
            rows_on(pages, asked, wrong, "seal")
    numbers = [row[0] for row in reader.execute("SELECT rowid FROM other ORDER BY rowid")]
    found: set[int] = set()
    # Further pages begin with the number of the next: a byte 0.
    leaves = [page for page in range(1, pages.count + 1) if pages.read(page)[0] == 13]
    draw.shuffle(leaves)
    for group in range(6):
        some = numpy.zeros(pages.count + 1, bool)
        some[leaves[group::6]] = True
        ranges = rows_on(pages, some, trees, "seal").get("other", [])
        found |= {number for number in numbers for low, high in ranges if low < number <= high}
    assert found == set(numbers)
    reader.close()
    hold.release()
    connection.close()
