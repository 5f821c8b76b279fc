"""One process of a machine measures at a time, waits for its turn, and says when it did not get it."""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from syno.errors import ShapeError
from syno.timing import measuring as module
from syno.timing.bench import bench, measure
from syno.timing.measuring import BUSY, lock_file, measuring


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lock"
    monkeypatch.setenv("SYNO_MEASURING", str(path))
    monkeypatch.setattr(module, "_waited_in_vain", False)
    return path


def hold(path: Path) -> int:
    file = os.open(path, os.O_RDONLY | os.O_CREAT, 0o644)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def free(path: Path) -> bool:
    try:
        os.close(hold(path))
    except BlockingIOError:
        return False
    return True


def test_the_machine_is_held_while_something_is_timed(lock: Path) -> None:
    held = []
    (timing,) = measure({"a": lambda: held.append(free(lock))}, turns=3, min_sample_s=1e-6)
    assert timing.note == ""
    assert not any(held[1:]) and held[0]  # it is called once before
    assert free(lock)


def test_measurements_inside_measurements_do_not_wait_for_themselves(lock: Path) -> None:
    with measuring() as outer, measuring(pin=True) as inner:
        assert inner is outer
        assert not free(lock)
    assert free(lock)


def test_who_waits_too_long_measures_and_says_so(
    lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.1)
    monkeypatch.setattr(module, "WAIT_AGAIN_S", 0.0)
    file = hold(lock)
    for _ in range(3):
        (timing,) = measure({"a": lambda: None}, turns=3, min_sample_s=1e-6)
        assert timing.note == BUSY
    os.close(file)
    (timing,) = measure({"a": lambda: None}, turns=3, min_sample_s=1e-6)
    assert timing.note == ""


def test_who_waits_measures_when_the_other_is_done(lock: Path) -> None:
    file = hold(lock)
    threading.Timer(0.2, os.close, [file]).start()
    with measuring() as had:
        assert had.note == ""


def test_the_comparison_prints_what_disturbed_it(lock: Path, monkeypatch: Any) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr(module, "WAIT_S", 0.0)
    file = hold(lock)
    assert BUSY in repr(bench({"a": lambda: None}, turns=3))
    os.close(file)


def test_links_pipes_and_folders_are_no_locks(lock: Path) -> None:
    target = lock.with_name("target")
    lock.symlink_to(target)
    with measuring() as had:
        assert "cannot be locked" in had.note
    assert not target.exists()
    lock.unlink()
    os.mkfifo(lock)
    with measuring() as had:
        assert "cannot be locked" in had.note
    lock.unlink()
    lock.mkdir()
    with measuring() as had:
        assert "cannot be locked" in had.note


def test_everybody_may_lock_the_file_and_nobody_writes_it(lock: Path) -> None:
    before = os.umask(0o077)
    try:
        with measuring():
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock.stat().st_mode) == 0o644
    lock.write_text("somebody's")
    lock.chmod(0o444)
    with measuring() as had:
        assert not had.note
    assert lock.read_text() == "somebody's"


def test_all_users_find_the_same_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SYNO_MEASURING", raising=False)
    found = lock_file()
    monkeypatch.setenv("TMPDIR", "/nowhere")
    assert lock_file() == found
    monkeypatch.setenv("SYNO_MEASURING", "")
    assert lock_file() is None
    with measuring() as had:
        assert not had.note


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinities")
def test_one_thread_stays_on_one_core_and_gets_its_own_back(lock: Path) -> None:
    before = os.sched_getaffinity(0)
    seen: list[set[int]] = []
    measure({"a": lambda: seen.append(os.sched_getaffinity(0))}, turns=3, min_sample_s=1e-6)
    assert seen[0] == before
    assert all(cores == {max(before)} for cores in seen[1:])
    assert os.sched_getaffinity(0) == before
    seen.clear()
    measure({"a": lambda: seen.append(os.sched_getaffinity(0))}, turns=3, threads=2)
    assert all(cores == before for cores in seen)


def test_a_child_forked_while_a_thread_measures_can_measure(lock: Path) -> None:
    inside, over = threading.Event(), threading.Event()

    def hold_on() -> None:
        with measuring():
            inside.set()
            over.wait()

    thread = threading.Thread(target=hold_on)
    thread.start()
    inside.wait()
    pid = os.fork()
    if pid == 0:
        with measuring(wait_s=0.0) as had:
            os._exit(0 if had.note == BUSY else 1)
    _, status = os.waitpid(pid, 0)
    over.set()
    thread.join()
    assert status == 0


@pytest.mark.parametrize("threads", [0, -1, 10**9])
def test_threads_that_no_machine_has_are_refused(threads: int) -> None:
    pytest.importorskip("torch")
    with pytest.raises(ShapeError, match=f"threads={threads} must be in"):
        bench({"a": lambda: None}, threads=threads)
