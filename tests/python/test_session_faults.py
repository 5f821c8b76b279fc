"""Whatever happens to a session, it says so in a sentence, loses nothing, and goes on."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from test_session import LIMITS, run, start, story

from syno.errors import SessionError, TaskError
from syno.session import (
    Component,
    InlineExecutor,
    Limits,
    ProcessExecutor,
    Prune,
    Session,
    Stage,
    open_view,
)
from syno.session.lock import file_system, locked

SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell started the tests behind it
import sys
from test_session import start
from pathlib import Path
with start(Path(sys.argv[1]), trainer={"journal": sys.argv[2], "pause_s": float(sys.argv[3])}) as session:
    summary = session.run(budget=12, finalists=2, final_seeds=1, progress="off")
    print("why:", summary.why, flush=True)
"""


def coordinator(session: Path, journal: Path, pause_s: float = 0.12) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(session), str(journal), str(pause_s)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    try:
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return out


def wait_for(condition: Any, seconds: float = PATIENCE_S) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == process.pid:
                found.append(int(folder.name))
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the workers")
def test_kill_9_again_and_again_changes_nothing(tmp_path: Path) -> None:
    with start(tmp_path / "whole") as session:
        run(session, finalists=2, final_seeds=1)
        expected = story(session)
        state = session._store.execute("SELECT proposer_state FROM stage").fetchone()[0]
    path, journal = tmp_path / "killed", tmp_path / "journal"
    kills = 0
    for lines in (2, 5, 9, 13):
        process = coordinator(path, journal)
        reached = wait_for(
            lambda wanted=lines: (
                journal.exists() and len(journal.read_text().splitlines()) >= wanted
            )
        )
        assert reached, finish(process)
        children = workers_of(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        kills += 1
        # Nobody is left behind to disturb the next run's measurements.
        assert wait_for(lambda pids=children: not any(map(alive, pids)))
        with open_view(path) as view:
            assert view.status()["states"]["failed"] == 0
    process = coordinator(path, journal)
    assert "why: budget" in finish(process)
    with open_view(path) as view:
        assert story(view) == expected
        row = view._store.execute("SELECT proposer_state FROM stage").fetchone()
        assert row[0] == state
    done = len(expected) + 1 + 3
    repeated = len(journal.read_text().splitlines()) - done

    assert 0 <= repeated <= kills * LIMITS.workers


def test_ctrl_c_returns_what_there_is_and_the_next_run_continues(tmp_path: Path) -> None:
    path, journal = tmp_path / "s", tmp_path / "journal"
    process = coordinator(path, journal)
    assert wait_for(lambda: journal.exists() and len(journal.read_text().splitlines()) >= 4)
    children = workers_of(process)
    process.send_signal(signal.SIGINT)
    assert "why: interrupted" in finish(process)
    assert process.returncode == 0
    assert wait_for(lambda: not any(map(alive, children)))
    with open_view(path) as view:
        assert view.status()["states"]["running"] == 0
    assert "why: budget" in finish(coordinator(path, journal))
    with start(tmp_path / "whole") as session:
        run(session, finalists=2, final_seeds=1)
        expected = story(session)
    with open_view(path) as view:
        assert story(view) == expected


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the workers")
def test_a_worker_that_hangs_does_not_outlive_its_coordinator(tmp_path: Path) -> None:
    path, journal = tmp_path / "s", tmp_path / "journal"
    process = coordinator(path, journal, pause_s=1_000.0)
    assert wait_for(lambda: journal.exists() and journal.read_text())
    children = workers_of(process)
    process.send_signal(signal.SIGKILL)
    finish(process)
    assert children
    assert wait_for(lambda: not any(map(alive, children)))


def test_interruptions_inside_a_batch_do_not_change_what_is_pruned(tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "prune": Prune(after=3, max_drop=1.0, margin=0.0),
        "seed": 9,
        "batch_width": 5,
    }
    with start(tmp_path / "whole", **options) as session:
        run(session, budget=15)
        expected = story(session)
        assert any(c.state == "pruned" for c in session.candidates())

    def interrupt(what: str, candidate: Any, view: Any) -> None:
        if what in ("trained", "pruned") and candidate.kind != "baseline":
            raise KeyboardInterrupt

    runs = 0
    while True:
        with start(tmp_path / "parts", **options) as session:
            runs += 1
            if not run(session, budget=15, callbacks=[interrupt]).interrupted:
                break
    assert runs == 16
    with open_view(tmp_path / "parts") as view:
        assert story(view) == expected


FAULTS = {
    "crash": r"crash while training: the worker died by signal SIGABRT: about to abort",
    "hang": r"limit while training: killed after \d+\.\d s \(limit 6 s\)",
    "nan": r"loss is nan at step 1 of 4",
    "raises": r"error while training: ZeroDivisionError: this operator divides by zero \(",
    "killed": r"lost while training: the worker was killed from outside",
    "leaves": r"error while training: SystemExit: 3",
}


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_a_training_that_ends_badly_is_an_outcome(tmp_path: Path, kind: str) -> None:
    # Only what hangs reaches a limit; the others take milliseconds, and seconds where the machine is busy.
    limit = 6.0 if kind == "hang" else PATIENCE_S
    limits = Limits(workers=2, train_limit_s=limit, start_limit_s=PATIENCE_S, retries=1)
    with start(tmp_path, trainer={kind: [29, 28]}, limits=limits) as session:
        summary = session.run(budget=6, progress="off")
        assert summary.trained == 6
        rows = {c.expr: c for c in session.candidates()}
        for expr in ("y = 29", "y = 28"):
            assert re.search(FAULTS[kind], rows[expr].reason), rows[expr].reason
            assert rows[expr].state == ("lost" if kind == "killed" else "failed")
            assert rows[expr].reward == 0
            assert rows[expr].tries == (2 if kind == "killed" else 1)
        assert sum(c.state == "done" for c in rows.values()) == 4
        assert session.best() is not None


def test_a_measurement_that_crashes_is_an_outcome(tmp_path: Path) -> None:
    with start(tmp_path, clock={"crash": [29]}) as session:
        session.run(budget=3, progress="off")
        row = session.candidate(2)
        assert row.state == "failed"
        assert "crash while measuring: the worker died by signal SIGABRT" in row.reason


def test_parts_that_cannot_be_made_are_named(tmp_path: Path) -> None:
    with (
        start(tmp_path / "a", evaluator="session_fakes:Nobody") as session,
        ProcessExecutor(1) as executor,
        pytest.raises(SessionError, match="has no 'Nobody'"),
    ):
        run(session, executor=executor)
    with (
        start(tmp_path / "b", proposer="no_such_module:make") as session,
        pytest.raises(TaskError, match="no_such_module"),
    ):
        run(session)
    wrong = Component(reference="session_fakes:Climber", options={"colour": "red"})
    with start(tmp_path / "c", proposer=wrong) as session, pytest.raises(TaskError, match="colour"):
        run(session)


def test_one_writer_at_a_time_is_told_who_the_other_is(tmp_path: Path) -> None:
    with start(tmp_path), pytest.raises(SessionError, match=f"process {os.getpid()} on") as caught:
        start(tmp_path)
    assert caught.value.code == "R001"
    start(tmp_path).close()


def test_readers_never_keep_a_writer_out(tmp_path: Path) -> None:
    start(tmp_path).close()
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            locked(tmp_path)

    readers = [threading.Thread(target=ask) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for _ in range(10):
            start(tmp_path).close()
    finally:
        over.set()
        for reader in readers:
            reader.join()


def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert file_system(Path("/proc")) == "proc"
    monkeypatch.setattr("syno.session.lock.file_system", lambda directory: "nfs4")
    with pytest.raises(SessionError, match="network file system") as caught:
        start(tmp_path)
    assert caught.value.code == "R006"


CHANGES = {
    "seed": {"seed": 1},
    "batch_width": {"batch_width": 7},
    "evaluator.options.pause_s": {
        "evaluator": Component(reference="session_fakes:Trainer", options={"pause_s": 1})
    },
    "threads_per_training": {"threads_per_training": 2},
    "prune.after": {"prune": Prune(after=9)},
    "space.flops": {"space": {"flops": 0.5}},
    "stages[0].share": {
        "proposer": None,
        "stages": [
            Stage(name="all", proposer=Component(reference="session_fakes:Climber"), share=2.0)
        ],
    },
}


@pytest.mark.parametrize("field", sorted(CHANGES))
def test_a_changed_field_is_named_with_what_may_change(tmp_path: Path, field: str) -> None:
    start(tmp_path).close()
    with pytest.raises(SessionError, match=re.escape(f"was made with {field}=")) as caught:
        start(tmp_path, **CHANGES[field])
    assert caught.value.code == "R003"
    assert "may change limits, targets, note and the budget" in str(caught.value)
    start(tmp_path).close()  # and nothing was changed by the attempt


def test_limits_and_notes_may_change(tmp_path: Path) -> None:
    start(tmp_path).close()
    start(tmp_path, limits=Limits(workers=7), note="on the big machine").close()
    with Session.open(tmp_path) as session:
        assert session.config.limits.workers == 7
        assert session.config.note == "on the big machine"


def test_limits_stay_as_they_were_edited_unless_they_are_given_again(tmp_path: Path) -> None:
    from syno.searching.continuing import limits_of

    assert limits_of(tmp_path, {"workers": 3, "train_limit_s": None}) == Limits(workers=3)
    start(tmp_path).close()
    edit(
        tmp_path / "session.toml",
        f"train_limit_s = {LIMITS.train_limit_s:g}",
        "train_limit_s = 45",
    )
    kept = limits_of(tmp_path, {"workers": None, "train_limit_s": None})
    assert (kept.workers, kept.train_limit_s) == (LIMITS.workers, 45.0)
    start(tmp_path, limits=limits_of(tmp_path, {"workers": 5, "train_limit_s": None})).close()
    start(tmp_path, limits=limits_of(tmp_path, {"workers": None, "train_limit_s": 7.5})).close()
    with Session.open(tmp_path) as session:
        limits = session.config.limits
    assert (limits.workers, limits.train_limit_s) == (5, 7.5)


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("2h", 7200.0), ("1.5", 1.5)])
def test_the_limit_of_trainings_is_set_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, seconds: float
) -> None:
    from typer.testing import CliRunner

    import syno.searching.pipeline
    from syno.cli.main import app

    given: dict[str, Any] = {}

    def stand_in(*_: Any, **options: Any) -> Any:
        given.update(options)
        raise SessionError("far enough")

    monkeypatch.setattr(syno.searching.pipeline, "search_task", stand_in)
    command = ["search", "pkg.mod:task", "-o", str(tmp_path), "--train-limit"]
    assert CliRunner().invoke(app, [*command, text]).exit_code == 1
    assert given.pop("timeout_s") == seconds
    found = CliRunner().invoke(app, [*command, "soon"])
    assert found.exit_code == 2
    assert not given.get("timeout_s") and "'soon' is not" in found.output


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_edit_of_a_fixed_field_is_noticed(tmp_path: Path) -> None:
    start(tmp_path, seed=3).close()
    edit(tmp_path / "session.toml", "seed = 3", "seed = 4")
    with pytest.raises(SessionError, match=r"made with seed=3; session.toml says 4"):
        start(tmp_path)
    edit(tmp_path / "session.toml", "seed = 4", "seed = 3")
    edit(tmp_path / "session.toml", "workers = 2", "workers = 5")
    with Session.open(tmp_path) as session:
        assert session.config.limits.workers == 5


@pytest.mark.parametrize(
    ("old", "new", "words", "code"),
    [
        ("[session]", "[session", "is not TOML", "R005"),
        ("seed = 0", 'seed = "zero"', r"Expected `int`, got `str` - at `\$.session.seed`", "R005"),
        ("seed = 0", "sead = 0", "sead", "R005"),
        ("version = 1", "version = 2", "install a newer syno", "R004"),
        ('format = "syno-session"', 'format = "else"', "does not describe a session", "R005"),
    ],
)
def test_a_damaged_settings_file_is_explained(
    tmp_path: Path, old: str, new: str, words: str, code: str
) -> None:
    start(tmp_path).close()
    edit(tmp_path / "session.toml", old, new)
    for opening in (lambda: Session.open(tmp_path), lambda: open_view(tmp_path)):
        with pytest.raises(SessionError, match=words) as caught:
            opening()
        assert caught.value.code == code


def test_a_newer_database_is_refused(tmp_path: Path) -> None:
    start(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "session.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for opening in (lambda: Session.open(tmp_path), lambda: open_view(tmp_path)):
        with pytest.raises(SessionError, match=r"newer syno \(schema 99"):
            opening()


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "middle"])
def test_a_damaged_database_is_explained_and_left_alone(tmp_path: Path, damage: str) -> None:
    with start(tmp_path) as session:
        run(session)
    file = tmp_path / "session.sqlite"
    content = file.read_bytes()
    ruined = {
        "truncated": content[: len(content) // 3],
        "empty": b"",
        "text": b"this is no database at all\n" * 100,
        "middle": content[:8192] + b"\xff" * 16384 + content[24576:],
    }[damage]
    file.write_bytes(ruined)
    with pytest.raises(SessionError, match="cannot be read as a session's database") as caught:
        Session.open(tmp_path)
    assert "operators/ and weights/ are still readable" in str(caught.value)
    assert file.read_bytes() == ruined


def test_places_that_hold_no_session_are_named(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"has no session\.toml"):
        open_view(tmp_path / "nothing")
    with pytest.raises(SessionError, match="a new one needs stages and evaluator"):
        Session.open(tmp_path / "new")
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SessionError, match="cannot be made") as caught:
        start(file / "session")
    assert caught.value.code == "R002"
    with pytest.raises(SessionError, match="batch_width=0"):
        start(tmp_path / "zero", batch_width=0)
    with pytest.raises(SessionError, match="both proposer and stages"):
        start(tmp_path / "both", stages=[])


READ_ONLY = """
import os, sys
from pathlib import Path
from test_session import start
from syno.session import open_view
from syno.errors import SessionError
path = Path(sys.argv[1])
open_view(path).close()  # loads what is loaded late, while the interpreter's files can be read
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    start(path)
except SessionError as error:
    print(error.code, error.what)
with open_view(path) as view:
    print(view.trained, "trained")
try:
    start(path / "inner")
except SessionError as error:
    print(error.code, error.what)
"""


@pytest.fixture
def readable() -> Iterator[Path]:
    """A folder that all users may enter: those of pytest are their owner's, again whenever another pytest begins."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def test_a_read_only_session_can_be_read_and_is_not_written(readable: Path) -> None:
    path = readable / "s"
    with start(path) as session:
        run(session, budget=4)
    for folder in [path, *path.rglob("*")]:
        folder.chmod(0o555 if folder.is_dir() else 0o444)
    python = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(path)],
        env={**os.environ, "PYTHONPATH": python, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    for folder in [path, *path.rglob("*")]:
        folder.chmod(0o755)
    lines = done.stdout.splitlines()
    assert len(lines) == 3, done.stderr
    assert lines[0].startswith("R002") and "cannot be" in lines[0]
    assert lines[1] == "4 trained"
    assert lines[2].startswith("R002")


def test_a_full_disk_ends_the_run_and_the_next_one_continues(tmp_path: Path) -> None:
    with start(tmp_path / "whole") as session:
        run(session)
        expected = story(session)
    path = tmp_path / "full"
    large = Component(reference="session_fakes:Climber", options={"padding": 20_000})
    with start(path, proposer=large) as session:
        run(session, budget=4)
        pages = session._store.execute("PRAGMA page_count").fetchone()[0]
        session._store.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(SessionError, match="full") as caught:
            run(session, budget=12)
        assert caught.value.code == "R009"
        assert "run again" in caught.value.fix
    with start(path, proposer=large) as session:
        run(session)
        assert story(session) == expected


def test_damaged_operator_files_are_written_again(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        run(session, budget=8)
    files = sorted((tmp_path / "operators").glob("*.json"))
    contents = [file.read_text() for file in files]
    assert len(files) == 8
    files[0].unlink()
    files[1].write_text(contents[1][:5])
    files[2].write_bytes(b"\xff\xfe")
    files[3].write_text(contents[3] + " ")
    other = "1" if contents[4][-1] != "1" else "2"
    files[4].write_text(contents[4][:-1] + other)  # of the same size
    files[5].unlink()
    os.mkfifo(files[5])  # which nobody writes: whoever opens it waits
    with start(tmp_path) as session:
        assert sum("written again" in event["what"] for event in session.events()) == 6
    assert [file.read_text() for file in files] == contents
    left = [tmp_path / "operators" / name for name in ("a.json.1-2.part", "b.part-7")]
    for file in left:
        file.write_text("half")
    kept = tmp_path / "operators" / "c.parts"
    kept.write_text("whole")
    with start(tmp_path) as session:
        assert sum("written again" in event["what"] for event in session.events()) == 6
    assert kept.exists() and not any(file.exists() for file in left)


def test_a_proposer_that_changed_its_mind_is_noticed(tmp_path: Path) -> None:
    def stop(what: str, candidate: Any, view: Any) -> None:
        if what == "trained" and candidate.kind != "baseline":
            raise KeyboardInterrupt

    with start(tmp_path) as session:
        assert run(session, callbacks=[stop]).interrupted

    def other(seed: int, **options: Any) -> Any:
        from session_fakes import Climber

        return Climber(seed=seed + 5, **options)

    parts = {"session_fakes:Climber": other}
    with (
        start(tmp_path, parts=parts) as session,
        pytest.raises(SessionError, match="no longer proposes what it did") as caught,
    ):
        run(session)
    assert caught.value.code == "R007"


def test_a_callback_that_fails_ends_the_run_and_nothing_is_lost(tmp_path: Path) -> None:
    def fail(what: str, candidate: Any, view: Any) -> None:
        if view.trained == 6:
            raise ZeroDivisionError("a watcher's mistake")

    with start(tmp_path / "whole") as session:
        run(session)
        expected = story(session)
    with start(tmp_path / "s") as session:
        with pytest.raises(ZeroDivisionError):
            run(session, callbacks=[fail])
        assert session.trained == 6
    with start(tmp_path / "s") as session:
        run(session, executor=InlineExecutor())
        assert story(session) == expected


def test_a_worker_that_talks_nonsense_does_not_hang_the_session(tmp_path: Path) -> None:
    from syno.session import Call
    from syno.session.protocols import TrainRequest

    request = TrainRequest(
        candidate=0, assignment={}, seed=0, part="test", threads=1, time_limit_s=PATIENCE_S
    )
    call = Call("sing", Component(reference="session_fakes:Trainer"), request, PATIENCE_S)
    with ProcessExecutor(1) as executor:
        (outcome,) = [outcome for _, outcome in executor.run([call])]
    assert outcome.state == "error"
    assert "no call of kind 'sing'" in outcome.reason
