"""Ctrl-C and SIGTERM end every command with a sentence and the shell's exit code, however early they come."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from test_session import start
from typer.testing import CliRunner

from syno.cli import interrupts
from syno.cli.main import app

# As the console script does it; where a shell started the tests behind it, children ignore Ctrl-C.
SCRIPT = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import sys
{before}
from syno.cli.start import main
{after}
sys.argv = ["syno", *{arguments!r}]
print("began", flush=True)
main()
"""


def command(*arguments: str, before: str = "", after: str = "") -> subprocess.Popen[str]:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    code = SCRIPT.format(before=before, after=after, arguments=list(arguments))
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=120)
    finally:
        process.kill()


# The signal comes as the n-th module begins to load: wherever that is in the process' start.
EARLY = """
import os
class Strikes:
    left = {left}
    def find_spec(self, name, path=None, target=None):
        Strikes.left -= 1
        if not Strikes.left:
            os.kill(os.getpid(), {number})
            import time
            time.sleep(1e-3)
sys.meta_path.insert(0, Strikes())
"""


@pytest.mark.parametrize("left", [1, 2, 5, 20, 60, 150])
def test_a_signal_while_modules_load_is_quiet(left: int) -> None:
    number = random.Random(left).choice([signal.SIGINT, signal.SIGTERM])
    process = command("doctor", "--help", after=EARLY.format(left=left, number=int(number)))
    _, err = finish(process)
    assert process.returncode == 128 + number
    assert err.strip() == "interrupted"


def test_a_signal_before_any_command_is_known_is_quiet() -> None:
    strike = f"import os; os.kill(os.getpid(), {int(signal.SIGINT)})"
    process = command("--help", after=strike)
    out, err = finish(process)
    assert (process.returncode, err.strip()) == (130, "interrupted")
    assert "Traceback" not in out


def test_a_signal_that_the_parent_ignores_stays_ignored() -> None:
    before = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    strike = f"import os; os.kill(os.getpid(), {int(signal.SIGHUP)})"
    process = command("--version", before=before, after=strike)
    out, _ = finish(process)
    assert process.returncode == 0
    assert "syno" in out


# A search of the fakes under the command's own code, from `syno search` on.
SEARCH = """
import syno.searching.pipeline
def search(reference, directory, **options):
    from pathlib import Path
    from test_session import start
    from syno.searching.result import Result
    from syno.session import open_view
    with start(Path(directory), trainer={"pause_s": 0.05, "journal": reference}, note="syno search") as session:
        session.run(budget=12, progress="off")
    return Result(open_view(directory))
syno.searching.pipeline.search_task = search
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("json", [False, True], ids=["text", "json"])
def test_an_interrupted_search_says_how_to_continue(
    tmp_path: Path, number: signal.Signals, json: bool
) -> None:
    journal, session = tmp_path / "journal", tmp_path / "s"
    more = ["--json"] if json else []
    process = command("search", str(journal), "-o", str(session), *more, after=SEARCH)
    end = time.monotonic() + 60
    while time.monotonic() < end and not (
        journal.exists() and len(journal.read_text().splitlines()) >= 4
    ):
        time.sleep(0.02)
    process.send_signal(number)
    out, err = finish(process)
    assert process.returncode == 128 + number, err
    assert "interrupted; run the same command again to continue" in err
    assert "original stays" not in out + err and "Traceback" not in err
    assert ('"ended": "interrupted"' in out) == json
    assert not (session / "report.html").exists()
    with start(session, trainer={"pause_s": 0.05, "journal": str(journal)}) as again:
        assert again.interrupted
        assert again.status()["states"]["running"] == 0


COMMANDS: dict[str, tuple[list[str], str]] = {
    "search": (["search", "a:b", "-o", "x"], "syno.searching.pipeline.search_task"),
    "demo": (["demo", "-o", "x"], "syno.demo.run_demo"),
    "tune": (["tune", "y[i] = x[i]", "-s", "i=4"], "syno.cli.tune.run"),
    "bench": (["bench", "x", "c1"], "syno.searching.revisit.bench_candidate"),
    "replay": (["replay", "x", "c1"], "syno.searching.revisit.replay_candidate"),
    "explain": (["explain", "x", "c1"], "syno.cli.explain.explained"),
    "export": (
        ["export", "x", "c1", "--format", "c", "-o", "y"],
        "syno.searching.revisit.export_candidate",
    ),
    "sites": (["sites", "a:b", "--example", "1"], "syno.cli.targets.example_inputs"),
    "status": (["status", "x"], "syno.cli.inspect.print_status"),
    "doctor": (["doctor"], "syno.cli.doctor.examine"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_with_the_code_of_its_signal(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments, function = COMMANDS[name]

    def interrupted(*arguments: Any, **options: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, interrupted)
    monkeypatch.setattr("syno.training.tasks.resolve", lambda reference: interrupted)
    monkeypatch.setattr(interrupts, "received", 0)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 130
    continues = name in ("search", "demo", "tune")
    assert ("run the same command again to continue" in done.stderr) == continues
    assert "interrupted" in done.stderr


def test_the_second_signal_ends_a_command_that_does_not_end() -> None:
    stuck = """
import syno.cli.doctor
def examine(**options):
    import os, time
    while True:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            print("swallowed", flush=True)
syno.cli.doctor.examine = examine
"""
    process = command("doctor", after=stuck)
    out, err = finish(process)
    assert process.returncode == 130
    assert out.count("swallowed") == 1
    assert err.strip() == "interrupted"


# Where Python ignores what is raised: hooks around a fork, finalisers, callbacks of weak references.
SWALLOWING = {
    "a fork": """
import os
os.register_at_fork(before=lambda: signal.raise_signal(signal.SIGINT))
def strike():
    if os.fork() == 0:
        os._exit(0)
""",
    "a finaliser": """
class Last:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def strike():
    Last()
""",
    "a weak reference": """
import weakref
class One: pass
def strike():
    one = One()
    reference = weakref.ref(one, lambda _: signal.raise_signal(signal.SIGINT))
    del one
""",
}


@pytest.mark.parametrize("where", SWALLOWING)
def test_a_signal_that_python_would_swallow_ends_the_command_all_the_same(where: str) -> None:
    strikes = f"""
{SWALLOWING[where]}
import syno.cli.doctor
def examine(**options):
    strike()
    print("went on", flush=True)
    return {{}}
syno.cli.doctor.examine = examine
"""
    process = command("doctor", "--json", after=strikes)
    out, err = finish(process)
    assert process.returncode == 130, (out, err)
    assert "went on" not in out and err.strip().endswith("interrupted")
