"""Whatever happens to the files of a session, a command shows what was recorded, or says what is wrong.

A generator of faults: flipped bits and truncations of every file, full disks, read-only and removed
directories. Never a traceback, never other numbers than were written.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_session import run, start
from typer.testing import CliRunner

from syno.cli.main import app
from syno.errors import SessionError
from syno.session import InlineExecutor, Session, open_view
from syno.session.opening import LOST_END
from syno.session.schema import SCHEMA_VERSION
from syno.session.store import Store
from syno.session.wal import read_log

FLIPS = int(os.environ.get("SYNO_TEST_FLIPS", "12"))  # of each file


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that ended by itself."""
    path = tmp_path_factory.mktemp("whole") / "closed"
    with start(path) as session:
        run(session, budget=8, finalists=2, final_seeds=1, executor=InlineExecutor())
    return path


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, closed: Path) -> Path:
    """A session whose process was killed: what it wrote last is in SQLite's log alone."""
    path = tmp_path_factory.mktemp("whole") / "killed"
    with start(path) as session:
        run(session, budget=4, executor=InlineExecutor())
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
    assert (copy / "session.sqlite-wal").stat().st_size > 4_000
    (copy / "session.sqlite-shm").unlink()
    return copy


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fakes' operators are numbers: a report draws nothing of them."""
    monkeypatch.setattr("syno.report.build.loop_text", lambda operator: "")
    drawn = type("Drawn", (), {"_repr_svg_": lambda self: "", "latex": lambda self: ""})
    monkeypatch.setattr("syno.session.SessionView.operator", lambda self, id: drawn())
    monkeypatch.setattr(
        "syno.session.SessionView.operators",
        lambda self, candidate: {stage: drawn() for stage in self.assignment(candidate)},
    )


COMMANDS = (
    ["status", "{}"],
    ["status", "{}", "--json"],
    ["report", "{}", "-o", "{}/../report.json", "--json"],
    ["report", "{}", "-o", "{}/../report.md"],
)


def ask(session: Path, command: list[str]) -> tuple[int, str]:
    """Exit code and what was printed; an exception that no command turned into a sentence is raised."""
    given = [part.replace("{}", str(session)) for part in command]
    found = CliRunner().invoke(app, given)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    text = found.output
    for changing in ("load1", "measured_at", "made"):
        text = "\n".join(line for line in text.splitlines() if f'"{changing}' not in line)
    return found.exit_code, text.replace(str(session), "SESSION").replace(str(session.parent), "")


def answers(session: Path) -> list[tuple[int, str]]:
    return [ask(session, command) for command in COMMANDS]


def check(session: Path, expected: list[tuple[int, str]], what: str) -> int:
    """Every command gives what it gave before the fault, or exits 1 with a sentence; how many did the latter."""
    refused = 0
    found = answers(session)
    said = any(LOST_END in text for _, text in found)
    for (code, text), (good_code, good) in zip(found, expected, strict=True):
        if (code, text) == (good_code, good):
            continue
        if said and code == 0:
            refused += 1
            continue
        assert code == 1, f"{what}: exit {code}\n{text}"
        assert "Error: [R0" in text, f"{what}: {text}"
        assert "Traceback" not in text
        refused += 1
    return refused


def faults(content: bytes, seed: int) -> Iterator[tuple[str, bytes]]:
    """Damaged contents of a file: single bits, bytes, zeroed blocks, truncations."""
    chosen = random.Random(seed)
    if not content:
        return
    for _ in range(FLIPS):
        at = chosen.randrange(len(content))
        bit = 1 << chosen.randrange(8)
        yield (
            f"bit {bit} of byte {at}",
            content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :],
        )
    for _ in range(FLIPS // 10):
        at = chosen.randrange(len(content))
        yield f"cut at {at}", content[:at]
        end = min(len(content), at + 512)
        yield f"zeros from {at} to {end}", content[:at] + bytes(end - at) + content[end:]


@pytest.mark.parametrize("which", ["closed", "killed"])
def test_damage_is_noticed_or_harmless(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole: Path = request.getfixturevalue(which)
    session = tmp_path / "session"
    shutil.copytree(whole, session)
    expected = answers(session)
    assert all(code == 0 for code, _ in expected), expected
    noticed: dict[str, int] = {}
    for number, file in enumerate(sorted(p for p in whole.rglob("*") if p.is_file())):
        name = file.relative_to(whole).as_posix()
        if not name.startswith("session.sqlite"):
            continue
        for what, content in faults(file.read_bytes(), number):
            shutil.rmtree(session)
            shutil.copytree(whole, session)
            (session / name).write_bytes(content)
            if what.startswith("cut") and name.endswith("-wal"):
                continue  # as if the process had been killed earlier
            noticed[name] = noticed.get(name, 0) + check(session, expected, f"{name}: {what}")
    assert all(count for count in noticed.values()), noticed


def test_statements_that_are_no_text_any_more_are_damage(closed: Path, tmp_path: Path) -> None:
    """SQLite repeats the word that it does not understand, which Python may not be able to read."""
    session = tmp_path / "session"
    shutil.copytree(closed, session)
    expected = answers(session)
    whole = (closed / "session.sqlite").read_bytes()
    words = [m.start(1) for m in re.finditer(rb"CREATE (INDEX|TABLE|TRIGGER)", whole)]
    assert len(words) > 20
    for at in random.Random(3).sample(words, k=len(words) // 3):
        damaged = bytearray(whole)
        damaged[at] ^= 0x80
        (session / "session.sqlite").write_bytes(damaged)
        assert check(session, expected, f"byte {at}") == len(COMMANDS)


def test_damaged_settings_are_noticed_or_harmless(closed: Path, tmp_path: Path) -> None:
    session = tmp_path / "session"
    shutil.copytree(closed, session)
    expected = answers(session)
    text = (closed / "session.toml").read_bytes()
    head = text[: text.index(b"[session.limits]")]
    for what, content in faults(head, 5):
        (session / "session.toml").write_bytes(content + text[len(head) :])
        check(session, expected, f"session.toml: {what}")


def test_every_row_has_a_seal_whatever_statement_wrote_it(closed: Path, tmp_path: Path) -> None:
    path = tmp_path / "session"
    shutil.copytree(closed, path)
    with Session.open(path) as session:
        store = session._store
        with store.transaction():
            store.execute("UPDATE candidate SET reward = reward + 1 WHERE number > 2")
            store.execute("INSERT OR REPLACE INTO meta VALUES('elapsed_s', '7')")
            store.execute("DELETE FROM curve WHERE step = 2")
            store.event("something")
    open_view(path).close()
    raw = sqlite3.connect(path / "session.sqlite")
    for table in ("candidate", "score", "timing", "operator", "meta"):
        names = [row[1] for row in raw.execute(f"PRAGMA table_info({table})")]
        for name in names[1:]:
            with pytest.raises(sqlite3.OperationalError, match="syno_seal"):
                raw.execute(f"UPDATE {table} SET {name} = 'x'")
    for trigger in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        raw.execute(f"DROP TRIGGER {trigger[0]}")
    raw.execute("UPDATE score SET value = 0.99 WHERE candidate = 1")
    raw.commit()
    raw.close()
    with pytest.raises(SessionError, match="are not those of a session"):
        open_view(path)


def test_a_session_of_an_earlier_syno_is_read_and_sealed_when_it_goes_on(
    closed: Path, tmp_path: Path
) -> None:
    path = tmp_path / "session"
    shutil.copytree(closed, path)
    with open_view(path) as view:  # the class of a training was not recorded then
        expected = [{**c.to_dict(), "classes": []} for c in view.candidates()]
    raw = sqlite3.connect(path / "session.sqlite")
    for trigger in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        raw.execute(f"DROP TRIGGER {trigger[0]}")
    for table in ("seal", "note", "file"):
        raw.execute(f"DROP TABLE {table}")
    for index in ("candidate_by_batch", "ticket_by_batch"):
        raw.execute(f"DROP INDEX {index}")
    raw.execute("PRAGMA user_version = 1")
    raw.commit()
    raw.close()
    with open_view(path) as view:
        assert [c.to_dict() for c in view.candidates()] == expected
    Session.open(path).close()
    store = Store(path, write=False)
    assert store.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    store.close()
    with open_view(path) as view:
        assert [c.to_dict() for c in view.candidates()] == expected


def test_a_log_is_whole_wherever_its_process_was_killed(killed: Path, tmp_path: Path) -> None:
    log = (killed / "session.sqlite-wal").read_bytes()
    file = tmp_path / "log"
    for end in range(0, len(log), 19_997):
        file.write_bytes(log[:end])
        assert read_log(file) == ("", False)
    frame = 24 + 4096
    last = len(log) - frame
    for at in (
        *range(last, last + 24),
        last + 24,
        last + 1_000,
        len(log) - 1,
    ):  # wherever in the last frame
        ended = bytearray(log)
        ended[at] ^= 4
        file.write_bytes(ended)
        assert read_log(file) == ("", True), at - last
    file.write_bytes(log[:last] + bytes(512) + log[last + 512 :])
    assert read_log(file).lost_end
    file.write_bytes(log)
    assert not read_log(file).lost_end
    damaged = bytearray(log)
    damaged[32 + 24 + 100] ^= 1
    file.write_bytes(damaged)
    assert "frame 1 of the log is damaged" in read_log(file).broken
    shutil.copytree(killed, tmp_path / "s")
    (tmp_path / "s" / "session.sqlite-wal").write_bytes(damaged)
    with pytest.raises(SessionError, match="to go back to the state before it"):
        Session.open(tmp_path / "s")


def test_what_a_damaged_end_of_the_log_loses_is_said(killed: Path, tmp_path: Path) -> None:
    session = tmp_path / "s"
    shutil.copytree(killed, session)
    expected = answers(session)
    log = bytearray((killed / "session.sqlite-wal").read_bytes())
    log[-1] ^= 1
    (session / "session.sqlite-wal").write_bytes(log)
    check(session, expected, "the last frame")
    code, text = ask(session, COMMANDS[0])
    assert code == 0 and LOST_END in text
    assert LOST_END in json.loads(ask(session, COMMANDS[1])[1])["notes"]
    with Session.open(session) as opened:
        assert LOST_END in [event["what"] for event in opened.events()]
    with open_view(session) as view:
        assert not view.notes()  # it went on from there


def test_damaged_weights_are_not_loaded(closed: Path, tmp_path: Path) -> None:
    path = tmp_path / "session"
    shutil.copytree(closed, path)
    with open_view(path) as view:
        (file,) = [f for c in view.candidates() for f in view.weights(c).values()][:1]
        view.check_file(file)
        file.write_bytes(b"weighty")
        with pytest.raises(SessionError, match="is not as the session wrote it"):
            view.check_file(file)


# --- what the system refuses


@contextlib.contextmanager
def files_of(size: int) -> Iterator[None]:
    """A disk on which a file may have ``size`` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_search_on_a_full_disk_ends_with_a_sentence_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "s"
    seen = set()
    for size in (0, 300, 3_000, 20_000, 90_000, 150_000):
        with (
            files_of(size),
            pytest.raises(SessionError, match=r"cannot be written") as caught,
            start(path) as session,
        ):
            run(session, budget=60, executor=InlineExecutor())
        seen.add(caught.value.code)
        assert "start a new session" not in caught.value.fix
        assert not list(path.glob("*.part*"))
    assert seen == {"R002", "R009"}
    with start(path) as session:
        run(session, budget=6, executor=InlineExecutor())
        assert session.trained >= 6


@pytest.mark.parametrize("which", ["closed", "killed"])
def test_a_full_disk_keeps_nobody_from_reading(
    which: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    whole: Path = request.getfixturevalue(which)
    session = tmp_path / "s"
    shutil.copytree(whole, session)
    with files_of(0):
        code, text = ask(session, ["status", "{}"])
        if code:
            assert "R016" in text and "nothing says that the session is damaged" in text
        else:
            assert "trained" in text
        assert "start a new session" not in text
        code, text = ask(session, ["report", "{}", "-o", str(tmp_path / "r.md")])
    assert code == 1
    assert "cannot be" in text and not (tmp_path / "r.md").exists()


def test_nothing_is_left_of_a_database_that_could_not_be_made(tmp_path: Path) -> None:
    for name in ("session.sqlite.part", "session.sqlite.part-journal", "session.toml.1-ab.part"):
        (tmp_path / name).write_bytes(b"left by a process that was killed")
    start(tmp_path).close()
    assert not list(tmp_path.glob("*.part*"))
    open_view(tmp_path).close()


def test_a_session_that_is_removed_while_it_runs_says_so(tmp_path: Path) -> None:
    path = tmp_path / "s"

    def remove(what: str, candidate: Any, view: Any) -> None:
        if what == "trained":
            shutil.rmtree(path, ignore_errors=True)

    with start(path) as session, pytest.raises(SessionError, match="was removed or replaced"):
        run(session, callbacks=[remove], executor=InlineExecutor())


def test_what_cannot_be_written_is_named(closed: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    for target in ("file/report.md", "folder", "x" * 300 + ".md"):
        suffix = "" if target.endswith(".md") else ".md"
        if suffix:
            (tmp_path / f"{target}{suffix}").mkdir(exist_ok=True)
        code, text = ask(closed, ["report", "{}", "-o", str(tmp_path / f"{target}{suffix}")])
        assert code == 1
        assert "cannot be written" in text
    code, text = ask(closed, ["cache", "export", str(tmp_path / "folder")])
    assert code == 1 and "cannot be written" in text
    assert (tmp_path / "file").read_text() == "in the way"
    assert not list(tmp_path.rglob("*.part"))


def test_strange_arguments_end_with_a_sentence(closed: Path, tmp_path: Path) -> None:
    binary = tmp_path / "spec.json"
    binary.write_bytes(b"\xff\xfe\x00binary")
    surrogate = os.fsdecode(b"\xff\xfe")
    for command, exit_code in (
        (["explain", "conv", "--spec", str(binary)], 1),
        (["explain", "conv", "--spec", surrogate], 2),
        (["explain", surrogate], 2),
        (["status", str(tmp_path / surrogate)], 1),
        (["show", str(closed), surrogate], 2),
        (["tune", f"y[i] = {surrogate}[i]", "-s", "i=3"], 1),
        (["sites", surrogate, "--example", "1,3"], 2),
        (["search", f"pkg.mod:{surrogate}", "-o", str(tmp_path / surrogate)], 1),
        (["bench", str(closed), "c1", "--threads", "0"], 2),
        (["bench", str(closed), "c1", "--threads", "-3"], 2),
        (["search", "pkg.mod:task", "-o", str(tmp_path / "s"), "--workers", "0"], 2),
        (["search", "pkg.mod:task", "-o", str(tmp_path / "s"), "--seed", "-1"], 2),
        (["search", "pkg.mod:task", "-o", str(tmp_path / "s"), "--seed", str(10**30)], 2),
    ):
        code, text = ask(closed, command)
        assert code == exit_code, (command, text)
        assert "Traceback" not in text and re.search("Error|UnknownName", text), (command, text)


def test_names_that_are_not_unicode_are_refused_for_new_sessions(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="is no Unicode text"):
        start(tmp_path / os.fsdecode(b"\xff"))


def test_sessions_whose_names_are_not_unicode_are_read(closed: Path, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"se\xff?#%")
    shutil.copytree(closed, path)
    code, text = ask(path, ["status", "{}", "--json"])
    assert code == 0
    assert json.loads(text)["trained"] == 8


def test_an_error_that_nobody_foresaw_is_a_sentence(
    closed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import syno.cli.inspect

    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("in\nmany lines")

    monkeypatch.setattr(syno.cli.inspect, "print_status", fail)
    code, text = ask(closed, ["status", "{}"])
    assert code == 1
    assert (
        "ZeroDivisionError: in many lines (test_damage.py:" in text and "SYNO_TRACEBACK=1" in text
    )
    monkeypatch.setenv("SYNO_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        ask(closed, ["status", "{}"])


def mounted(folder: Path, size: str) -> Callable[[], None] | None:
    """A small disk of its own, where this process may make one; called, it is taken away."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        return None
    return lambda: subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.mark.skipif(not shutil.which("mount"), reason="needs mount")
def test_a_disk_that_is_really_full(closed: Path, tmp_path: Path) -> None:
    remove = mounted(tmp_path / "disk", "400k")
    if remove is None:
        pytest.skip("this process may not mount")
    try:
        path = tmp_path / "disk" / "s"
        shutil.copytree(closed, path)
        expected = answers(closed)[0]
        filler = tmp_path / "disk" / "filler"
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass
        code, text = ask(path, ["status", "{}"])
        # The sentence above the table names the directory, whose length decides where it is broken.
        assert (
            code == 0 and text[text.index("  id ") :] == expected[1][expected[1].index("  id ") :]
        )
        with pytest.raises(SessionError, match=r"R009|R002|R016") as caught:
            start(tmp_path / "disk" / "new")
        assert "start a new session" not in str(caught.value)
        code, text = ask(path, ["report", "{}", "-o", str(tmp_path / "disk" / "report.md")])
        assert code == 1 and "cannot be written: No space left" in text
        filler.unlink()
        with start(path) as session:
            assert session.trained == 8
    finally:
        remove()
