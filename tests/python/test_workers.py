"""Workers end in every way a process can: each call gets its own outcome, and nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

from syno.session import (
    Call,
    Component,
    FuturesExecutor,
    InlineExecutor,
    ProcessExecutor,
    executors,
)
from syno.session.protocols import TrainRequest

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="guards need Linux's process control"
)


def calls(folder: Path, *whys: str, limit_s: float = 200.0) -> list[Call]:
    actor = Component(reference="worker_fakes:Actor", options={"folder": str(folder)})
    return [
        Call(
            "train",
            actor,
            TrainRequest(
                candidate=number,
                assignment={},
                seed=0,
                part="test",
                threads=1,
                time_limit_s=limit_s,
                floors_why=why,
            ),
            limit_s,
        )
        for number, why in enumerate(whys)
    ]


def outcomes(executor: Any, made: list[Call]) -> list[Any]:
    found = dict(executor.run(made))
    return [found[index] for index in range(len(made))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], Any]) -> None:
    while not condition():
        time.sleep(0.02)  # the test's own time limit ends it


def pid_in(file: Path) -> int:
    wait_for(lambda: file.exists() and file.read_text())
    return int(file.read_text())


@pytest.mark.parametrize("way", ["fork_and_die", "fork_unseen_and_die"])
def test_a_child_that_inherits_the_channel_does_not_hide_a_death(tmp_path: Path, way: str) -> None:
    with ProcessExecutor(1) as executor:
        (died, worked) = outcomes(executor, calls(tmp_path, way, "work", limit_s=PATIENCE_S))
    assert (died.state, worked.state) == ("crash", "ok")
    assert "exit code 3" in died.reason
    assert not alive(pid_in(tmp_path / "left-0"))


def test_a_forked_child_that_comes_back_does_not_answer(tmp_path: Path) -> None:
    with ProcessExecutor(1) as executor:
        found = outcomes(executor, calls(tmp_path, "fork_and_return_twice", "work", "work"))
    assert [one.state for one in found] == ["ok"] * 3
    assert len({one.value for one in found}) == 1


@pytest.mark.parametrize("way", ["leave", "interrupt"])
def test_who_follows_one_that_leaves_is_not_blamed(tmp_path: Path, way: str) -> None:
    order = [way, "work"] * 6
    with ProcessExecutor(2) as executor:
        found = outcomes(executor, calls(tmp_path, *order))
    assert [one.state for one in found] == ["error", "ok"] * 6
    name = {"leave": "SystemExit: 3", "interrupt": "KeyboardInterrupt"}[way]
    assert all(name in one.reason and not one.code for one in found[::2])


def test_a_worker_that_died_between_two_calls_is_replaced(tmp_path: Path) -> None:
    with ProcessExecutor(1) as executor:
        (first,) = outcomes(executor, calls(tmp_path, "work"))
        os.kill(first.value, signal.SIGKILL)
        (second,) = outcomes(executor, calls(tmp_path, "work"))
    assert second.state == "ok"
    assert second.value != first.value


def test_workers_that_never_begin_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "python_command", lambda code: [sys.executable, "-c", "1/0"])
    with ProcessExecutor(1, logs=tmp_path) as executor:
        found = outcomes(executor, calls(tmp_path, "work", "work"))
    assert [one.state for one in found] == ["crash", "crash"]
    assert "ZeroDivisionError" in found[0].reason


def test_a_gpu_that_others_filled_says_nothing_of_a_call(tmp_path: Path) -> None:
    """It is tried again, as one whose worker was killed."""
    with ProcessExecutor(1) as executor:
        (full, worked) = outcomes(executor, calls(tmp_path, "full", "work"))
    assert (full.state, worked.state) == ("lost", "ok")
    assert "OutOfMemoryError: CUDA out of memory" in full.reason


def test_an_exception_of_any_text_is_an_outcome(tmp_path: Path) -> None:
    with ProcessExecutor(1) as executor:
        found = outcomes(executor, calls(tmp_path, "surrogate", "work"))
    assert [one.state for one in found] == ["error", "ok"]
    assert r"not Unicode: \udcff" in found[0].reason


@pytest.mark.parametrize(
    ("way", "state"),
    [("daemon", "ok"), ("daemon_and_hang", "limit"), ("subprocess_and_die", "crash")],
)
def test_nothing_that_a_worker_started_outlives_it(tmp_path: Path, way: str, state: str) -> None:
    limit_s = 5.0 if state == "limit" else 200.0
    with ProcessExecutor(1) as executor:
        (found,) = outcomes(executor, calls(tmp_path, way, limit_s=limit_s))
        assert found.state == state
        left = pid_in(tmp_path / "left-0")
        if state == "ok":
            assert alive(left)  # what a worker started may run as long as the worker
    assert not alive(left)


SCRIPT = """
import sys
from pathlib import Path
from syno.session import ProcessExecutor
from test_workers import calls
with ProcessExecutor(2) as executor:
    list(executor.run(calls(Path(sys.argv[1]), *sys.argv[2:])))
"""


def test_a_killed_coordinator_leaves_nothing_behind(tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    coordinator = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), "hold_the_interpreter", "daemon_and_hang"],
        env={**os.environ, "PYTHONPATH": path},
    )
    left = [pid_in(tmp_path / f"left-{number}") for number in range(2)]
    coordinator.kill()
    coordinator.wait()
    try:
        wait_for(lambda: not any(map(alive, left)))
    finally:
        for pid in left:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def test_a_worker_does_not_outlive_its_guard(tmp_path: Path) -> None:
    with ProcessExecutor(1) as executor:
        (first,) = outcomes(executor, calls(tmp_path, "work"))
        executor._workers[0].process.kill()
        wait_for(lambda: not alive(first.value))


def test_logs_are_bounded_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "LOG_BYTES", 20_000)
    with ProcessExecutor(1, logs=tmp_path) as executor:
        found = outcomes(executor, calls(tmp_path, "talk", "talk", "talk_and_die"))
    assert [one.state for one in found] == ["ok", "ok", "crash"]
    assert "SIGABRT: and then it died" in found[2].reason
    logs = sorted(tmp_path.glob("worker-*"))
    assert [log.name for log in logs] == ["worker-0.log", "worker-0.log.1"]
    assert all(log.stat().st_size <= 20_000 + 200 for log in logs)  # and the line that says so
    assert "what came before is in worker-0.log.1" in logs[0].read_text()


def test_last_words_are_found_in_a_new_log_of_the_same_size(tmp_path: Path) -> None:
    with ProcessExecutor(1, logs=tmp_path) as executor:
        outcomes(executor, calls(tmp_path, "surrogate"))
        worker = executor._workers[0]
        log = tmp_path / "worker-0.log"
        wait_for(lambda: "not Unicode" in log.read_text())
        worker.forget_words()
        size = log.stat().st_size
        log.rename(tmp_path / "worker-0.log.1")
        log.write_text("why it died".rjust(size))
        assert worker.last_words() == "why it died"


@pytest.mark.parametrize("way", ["stop", "close_its_generator", "mute", "much"])
def test_whatever_is_raised_is_an_outcome_in_a_line(tmp_path: Path, way: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for executor in (
        InlineExecutor(),
        FuturesExecutor(ThreadPoolExecutor(1)),
        ProcessExecutor(1, start_limit_s=600),
    ):
        found = outcomes(executor, calls(tmp_path, way, "work"))
        executor.close()
        assert [one.state for one in found] == ["error", "ok"]
        assert found[0].reason.isprintable() and 0 < len(found[0].reason) < 600


def test_a_death_is_not_explained_by_an_earlier_call(tmp_path: Path) -> None:
    with ProcessExecutor(1, start_limit_s=600, logs=tmp_path) as executor:
        (failed,) = outcomes(executor, calls(tmp_path, "surrogate"))
        wait_for(lambda: "not Unicode" in (tmp_path / "worker-0.log").read_text())
        (died,) = outcomes(executor, calls(tmp_path, "die"))
    assert failed.state == "error" and died.state == "crash"
    assert died.reason == "the worker died with exit code 3"


def test_a_task_that_leaves_ends_neither_this_process_nor_a_pools(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for executor in (InlineExecutor(), FuturesExecutor(ThreadPoolExecutor(1))):
        found = outcomes(executor, calls(tmp_path, "leave", "work"))
        executor.close()
        assert [one.state for one in found] == ["error", "ok"]
        assert "SystemExit: 3" in found[0].reason
