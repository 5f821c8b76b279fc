"""The status of a session that others are writing: all of a moment that was, at once, whatever the writers do.

A generator of writers: they commit rows that belong together, slowly now and then, begin the log anew, end, or are killed inside
a transaction, and the next one goes on. Readers are `syno status` itself, in threads and in processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S
from test_session import start
from typer.testing import CliRunner

from syno.cli.main import app
from syno.session import open_view
from syno.session.opening import LOST_END

SECONDS = float(os.environ.get("TEST_STATUS_SECONDS", "4"))

#: What every transaction leaves: as many candidates as the time says, and as the last event names.
WRITER = """
import os, random, signal, sys, time
from pathlib import Path
import session_fakes as fakes
from syno.session.lock import SessionLock
from syno.session.store import Store
from test_since import score

directory, draw = Path(sys.argv[1]), random.Random(int(sys.argv[2]))
print("begun", flush=True)
until = time.monotonic() + draw.choice((0.0, 0.1, 0.6, 1.5))
lock = SessionLock(directory)
store = Store(directory, write=True)
count = int(float(store.meta("elapsed_s", "0")))
pages = draw.choice((8, 100, 1_000))
store.execute(f"PRAGMA wal_autocheckpoint = {pages}")
while True:
    with store.transaction():
        for _ in range(draw.choice((1, 2, 40, 400))):
            count += 1
            number = store.add_candidate("proposed", "all", fakes.operator(count, draw.choice((10, 3_000))))
            assert number == count
            store.set_state(number, draw.choice(("done", "done", "failed")), f"reason {count}")
            store.add_score(number, score(draw))
            store.add_note(number, "timing", "x" * draw.choice((3, 5_000)))
            if draw.random() < 0.02:
                time.sleep(draw.random() * 0.05)
        store.set_meta("elapsed_s", str(count))
        if draw.random() < 0.1:
            os.kill(os.getpid(), signal.SIGKILL)
        store.execute("INSERT INTO event(at, level, what) VALUES('', 'info', ?)", str(count))
    if draw.random() < 0.1:
        mode = draw.choice(("PASSIVE", "RESTART", "TRUNCATE"))
        store.execute("PRAGMA busy_timeout = 100")
        store.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        store.execute("PRAGMA busy_timeout = 30000")
    if time.monotonic() > until:
        break
store.close()
lock.release()
"""


@contextlib.contextmanager
def writers(directory: Path, seed: int) -> Iterator[list[int]]:
    """Processes that write, one after the other; how they ended."""
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    over, ended = threading.Event(), list[int]()

    def go_on() -> None:
        draw = random.Random(seed)
        while not over.is_set():
            process = subprocess.Popen(
                [sys.executable, "-c", WRITER, str(directory), str(draw.randrange(1 << 30))],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            process.communicate()
            ended.append(process.returncode)
            time.sleep(draw.choice((0.0, 0.0, 0.1)))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield ended
    finally:
        over.set()
        thread.join()


def consistent(status: dict[str, Any]) -> int:
    """How many candidates there are in an answer, which is of one moment between two transactions."""
    states = status["states"]
    count = sum(states.values()) - 1  # the original
    assert status["elapsed_s"] == count
    if count:
        assert status["last_event"]["what"] == str(count)
    assert LOST_END not in status["notes"]
    return count


@pytest.mark.parametrize("seed", range(2))
def test_every_answer_is_of_a_moment_that_was(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "session"
    start(path).close()
    until = time.monotonic() + SECONDS
    failed: list[BaseException] = []
    counts: list[list[int]] = [[], [], []]

    def look(seen: list[int], ask: Any) -> None:
        try:
            while time.monotonic() < until:
                seen.append(consistent(ask()))
        except BaseException as error:
            failed.append(error)

    def opened() -> Any:
        with open_view(path) as view:
            return view.status()

    def of_a_process() -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "syno", "status", str(path), "--json"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    kept = open_view(path)  # as `syno status --watch` keeps it
    with writers(path, seed) as ended:
        asks = (opened, of_a_process, kept.status)
        readers = [
            threading.Thread(target=look, args=pair) for pair in zip(counts, asks, strict=True)
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    kept.close()
    assert not failed, failed
    assert set(ended) <= {0, -signal.SIGKILL}
    for seen in counts:
        assert seen and seen == sorted(seen)  # nothing that was there is gone
    shown = CliRunner().invoke(app, ["status", str(path)])
    assert shown.exit_code == 0 and "not running" in shown.output, (shown.output, ended)
