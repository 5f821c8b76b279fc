"""A session from somebody else runs nothing: what it names is imported when its user's secret says so, or the user."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from session_fakes import Climber, Clock, Trainer
from typer.testing import CliRunner

from syno.cli.main import app
from syno.errors import TrustError
from syno.searching.result import EVALUATOR, MEASURER, Result
from syno.session import (
    Component,
    InlineExecutor,
    QualityTimesSpeed,
    Session,
    open_view,
    trust,
)
from syno.session.config import read_config
from syno.support import secret
from syno.support.fresh import importable, python_command

#: Leaves a trace when it is imported, and when it is called.
PAYLOAD = """
import os, pathlib
with open(os.environ["TRACE"], "a") as trace:
    trace.write("imported\\n")
def run(*_, **__):
    with open(os.environ["TRACE"], "a") as trace:
        trace.write("called\\n")
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Who this user is: each name has a secret of its own."""

    def become(name: str) -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "users" / name))

    become("me")
    return become


@pytest.fixture
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the payload wrote; it can be imported as ``payload``."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "payload.py").write_text(PAYLOAD)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "payload", raising=False)
    path = tmp_path / "trace"
    monkeypatch.setenv("TRACE", str(path))
    return path


OPTIONS = {"task": "payload:run", "task_options": {}, "stages": {"all": ["conv"]}, "batch": 1}


def searched(directory: Path, **changes: Any) -> Path:
    """A session with two candidates whose task is the payload; nothing of it was imported."""
    settings = {
        "proposer": "session_fakes:Climber",
        "evaluator": Component(reference=EVALUATOR, options=OPTIONS),
        "measurer": Component(reference=MEASURER, options=OPTIONS),
        **changes,
    }
    parts = {"payload:run": QualityTimesSpeed, str(settings["proposer"]): Climber}
    with Session.open(directory, **settings, parts=parts) as session:
        executor = InlineExecutor({EVALUATOR: Trainer(), MEASURER: Clock()})
        session.run(budget=2, executor=executor, progress="off")
    return directory


READING = [
    ["status", "{run}"],
    ["status", "{run}", "--json"],
    ["show", "{run}", "c1"],
    ["explain", "{run}", "c1"],
    ["explain", "{run}", "baseline"],
    ["report", "{run}", "-o", "{out}.html"],
    ["report", "{run}", "-o", "{out}.json"],
]
IMPORTING = [
    ["bench", "{run}", "c1"],
    ["bench", "{run}", "baseline"],
    ["replay", "{run}", "c1"],
    ["export", "{run}", "c1", "--format", "torch", "-o", "{out}"],
    ["search", "digits", "-o", "{run}", "--budget", "3"],
]


def called(command: list[str], run: Path, out: Path) -> Any:
    return CliRunner().invoke(app, [word.format(run=run, out=out) for word in command])


@pytest.mark.parametrize("command", READING, ids=lambda command: " ".join(command[:1]))
def test_reading_a_strangers_session_imports_nothing(
    command: list[str],
    mine: Callable[[str], None],
    trace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine("stranger")
    run = searched(tmp_path / "run", reward="payload:run")
    mine("me")

    def refuse(reference: str) -> Any:
        raise AssertionError(f"{reference} was resolved")

    monkeypatch.setattr("syno.training.tasks.resolve", refuse)
    result = called(command, run, tmp_path / "out")
    assert not isinstance(result.exception, AssertionError)
    assert "was made by somebody else" not in result.output
    if "not an operator file" not in result.output:  # which the made-up operators have none of
        assert result.exit_code == 0, result.output
    assert not trace.exists()


@pytest.mark.parametrize("command", IMPORTING, ids=lambda command: " ".join(command[:1]))
def test_a_strangers_session_is_refused_with_what_it_would_import(
    command: list[str], mine: Callable[[str], None], trace: Path, tmp_path: Path
) -> None:
    mine("stranger")
    run = searched(tmp_path / "run")
    mine("me")
    result = called(command, run, tmp_path / "out")
    assert result.exit_code == 1
    assert "TrustError" in result.output
    assert "payload:run" in result.output
    assert "--trust" in result.output
    assert not trace.exists()

    trusted = called([*command, "--trust"], run, tmp_path / "out")
    assert "payload:run" in trusted.output
    assert "TrustError" not in trusted.output
    if command[0] != "search":  # which imports the task that the command names, not the session's
        assert trace.read_text().startswith("imported")
    assert trust.is_signed(run, read_config(run / "session.toml")), "it was said once"


def test_the_users_own_session_needs_no_word(
    mine: Callable[[str], None], trace: Path, tmp_path: Path
) -> None:
    run = searched(tmp_path / "run")
    moved = run.rename(tmp_path / "moved")
    with pytest.raises(Exception, match="returned a NoneType"):
        _ = Result.load(moved).network
    assert trace.read_text() == "imported\ncalled\n"


def test_a_session_made_before_sessions_were_signed_says_what_to_do(
    mine: Callable[[str], None], trace: Path, tmp_path: Path
) -> None:
    run = searched(tmp_path / "run")
    (run / trust.FILE).unlink()
    with pytest.raises(TrustError, match="trust=True"), Session.open(run):
        pass
    assert not trace.exists()
    with Session.open(run, trust=True):
        pass
    with Session.open(run):
        pass


def _other_reference(config: Any, rng: random.Random) -> str:
    return f"{rng.choice(['os', 'payload', 'syno.training.tasks'])}:{rng.choice(['system', 'run', 'resolve'])}"


CHANGES: list[tuple[str, Callable[[str, random.Random], str]]] = [
    ("proposer", lambda t, r: t.replace("session_fakes:Climber", "payload:run")),
    ("proposer's option", lambda t, r: t.replace("size = 60", f"size = {r.randint(61, 99)}")),
    ("evaluator", lambda t, r: t.replace(EVALUATOR, "os:system", 1)),
    ("measurer", lambda t, r: t.replace(MEASURER, "os:system", 1)),
    ("nested task", lambda t, r: t.replace('task = "payload:run"', 'task = "os:system"', r.randint(1, 2))),
    ("task's option", lambda t, r: t.replace("epochs = 3", f"epochs = {r.randint(4, 9)}")),
    ("reward", lambda t, r: t.replace("syno.session:QualityTimesSpeed", "payload:run")),
]  # fmt: skip


@pytest.mark.parametrize(("what", "change"), CHANGES, ids=[what for what, _ in CHANGES])
def test_whatever_is_imported_is_covered(
    what: str,
    change: Callable[[str, random.Random], str],
    mine: Callable[[str], None],
    trace: Path,
    tmp_path: Path,
) -> None:
    options = {**OPTIONS, "task_options": {"epochs": 3}}
    run = searched(
        tmp_path / "run",
        proposer=None,
        stages=_stage(),
        evaluator=Component(reference=EVALUATOR, options=options),
        measurer=Component(reference=MEASURER, options=options),
    )
    path = run / "session.toml"
    before = path.read_text()
    after = change(before, random.Random(what))
    assert after != before, "the change changes something"
    path.write_text(after)
    with pytest.raises(TrustError):
        trust.check_trust(run, read_config(path))
    assert not trace.exists()


def _stage() -> Any:
    from syno.session import Stage

    part = Component(reference="session_fakes:Climber", options={"size": 60})
    return [Stage(name="all", proposer=part)]


def test_what_does_not_decide_imports_may_be_edited(
    mine: Callable[[str], None], tmp_path: Path
) -> None:
    run = searched(tmp_path / "run")
    path = run / "session.toml"
    path.write_text(path.read_text().replace("retries = 1", "retries = 4"))
    with Session.open(run) as session:
        assert session.config.limits.retries == 4


@pytest.mark.parametrize(
    "name", ["task.py", "sources/task.py", "weights/task.cpython-311.so", "x.zip"]
)
def test_code_in_a_session_is_covered(
    name: str, mine: Callable[[str], None], tmp_path: Path
) -> None:
    run = searched(tmp_path / "run")
    config = read_config(run / "session.toml")
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text("x = 1")
    assert not trust.is_signed(run, config), "added"
    trust.sign(run, config)
    assert trust.is_signed(run, config)
    (run / name).write_text("x = 2")
    assert not trust.is_signed(run, config), "changed"
    (run / name).unlink()
    (run / name).symlink_to(tmp_path / "elsewhere.py")
    assert not trust.is_signed(run, config), "a link"
    assert any(name in line for line in trust.imports(run, config))


@pytest.mark.parametrize("damage", ["", "0" * 64, "zz", "é" * 40, "pipe", "directory", "link"])
def test_a_damaged_signature_is_none(
    damage: str, mine: Callable[[str], None], tmp_path: Path
) -> None:
    run = searched(tmp_path / "run")
    path = run / trust.FILE
    path.unlink()
    if damage == "pipe":
        os.mkfifo(path)
    elif damage == "directory":
        path.mkdir()
    elif damage == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_text(damage)
    with pytest.raises(TrustError, match="session_fakes:Climber"):
        Session.open(run)


def test_a_session_begun_in_a_strangers_directory_takes_nothing_from_it(
    mine: Callable[[str], None], trace: Path, tmp_path: Path
) -> None:
    """A `session.toml` without a database is one that was killed at its start, or pretends to be."""
    from syno.searching.plan import stored_plan

    mine("stranger")
    run = searched(tmp_path / "run", proposer="payload:run")
    (run / "session.sqlite").unlink()
    mine("me")
    with pytest.raises(TrustError, match="payload:run"):
        stored_plan(run)
    assert not trace.exists()


def test_a_session_is_never_on_the_import_path(
    mine: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = searched(tmp_path / "run")
    assert importable(str(tmp_path))
    for folder in (run, run / "weights", run / "logs", run / "operators"):
        assert not importable(str(folder))
    (run / "payload.py").write_text("print('imported')")
    for folder in (run, run / "weights"):
        (folder / "syno_session_payload.py").write_text("print('imported')")
        monkeypatch.chdir(folder)
        command = python_command("import syno_session_payload")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "No module named" in done.stderr
        assert not done.stdout
    monkeypatch.chdir(tmp_path)
    shutil.copy(run / "payload.py", tmp_path / "syno_session_payload.py")
    command = python_command("import syno_session_payload")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "imported\n"


def test_the_command_line_leaves_a_session_that_it_is_called_in(
    mine: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python -m syno` begins with the working directory on the path: before it imports anything, it is taken off."""
    run = searched(tmp_path / "run")
    (run / "typer.py").write_text("print('imported')\nraise SystemExit(7)")
    monkeypatch.chdir(run)
    roots = [str(Path(secret.__file__).parents[1]), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-m", "syno", "status", "."],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(roots)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "imported" not in done.stdout


# --- the secret


def test_the_secret_is_made_once_and_for_its_user_only(
    mine: Callable[[str], None], tmp_path: Path
) -> None:
    assert len(secret.derived("one")) == 32
    path = secret.secret_path()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name], "nothing partial"
    assert secret.derived("one") != secret.derived("two")
    assert secret.tag("a", b"xy", b"z") != secret.tag("a", b"x", b"yz")
    mine("another")
    assert secret.secret_path() != path
    before = secret.derived("one")
    secret._secret.cache_clear()
    assert secret.derived("one") == before


def test_of_many_who_make_it_one_wins(mine: Callable[[str], None]) -> None:
    code = "from syno.support import secret; print(secret.derived('x').hex())"
    answers: list[str] = []

    def ask() -> None:
        done = subprocess.run(python_command(code), capture_output=True, text=True, check=True)
        answers.append(done.stdout)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert len(set(answers)) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda p: p.chmod(0o640),
        lambda p: p.chmod(0o604),
        lambda p: p.chmod(0o620),
        lambda p: p.write_bytes(b"short"),
        lambda p: p.write_bytes(b"x" * 33),
        lambda p: (p.rename(p.with_name("real")), p.symlink_to(p.with_name("real"))),
        lambda p: (p.unlink(), p.mkdir()),
        lambda p: (p.unlink(), os.mkfifo(p, 0o600)),
        lambda p: (p.unlink(), p.symlink_to(p.with_name("nowhere"))),
    ],
)
def test_a_secret_that_others_may_know_is_refused(
    spoil: Callable[[Path], object], mine: Callable[[str], None], tmp_path: Path
) -> None:
    run = searched(tmp_path / "run")
    spoil(secret.secret_path())
    secret._secret.cache_clear()
    with pytest.raises(TrustError, match=r"the secret .*secret\.key"):
        secret.derived("one")
    with pytest.raises(TrustError), Session.open(run):
        pass
    with open_view(run) as view:
        assert view.candidates()
