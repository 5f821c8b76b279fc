"""Real trainings, killed at random moments, with any number of workers: the same values to the digit.

``TEST_KILLS=20 pytest tests/python/test_kills.py`` kills as often.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import drawing_task
import pytest
from test_session_faults import alive, wait_for, workers_of

from syno import _core, sites
from syno.known.beside import beside
from syno.session import Component, InlineExecutor, Limits, Session, open_view

KILLS = int(os.environ.get("TEST_KILLS", "3"))

#: Trainings that take longer are written down after each epoch: here none, or all.
LONG_S = 0.0 if os.environ.get("TEST_CHECKPOINTS") else 300.0

SCRIPT = """
import sys
from pathlib import Path
from test_kills import search
search(Path(sys.argv[1]), int(sys.argv[2]))
print("ended", flush=True)
"""


def search(path: Path, workers: int, executor: Any = None) -> None:
    """A search whose proposals follow from rewards; FLOPs stand for latencies, which never repeat."""
    task = drawing_task.make()
    group = sites(task.make_model(0), task.example(1)).groups()[0]
    stages = {"all": [site.name for site in group.sites]}
    made = {
        "task": f"{drawing_task.__file__}:make",
        "task_options": {
            "metric": "loss",
            "steps": 40 if LONG_S == 0 else 6,
        },  # unlike accuracies of a few images, no two are equal
        "stages": stages,
    }
    spec = group.to_json(flops_ratio=0.9, min_flops_ratio=0.05, max_steps=7)
    known = beside(_core.Spec.from_json(spec), "grouped", window=group.window)
    with Session.open(
        path,
        proposer=Component(
            reference="syno.searching.proposers:make",
            options={"policy": "mcts", "spec": spec, "known": known},
        ),
        evaluator=Component(reference="syno.searching.network:NetworkEvaluator", options=made),
        batch_width=3,
        limits=Limits(workers=workers, start_limit_s=600, retries=100, checkpoint_s=LONG_S),
    ) as session:
        session.run(budget=6, finalists=2, final_seeds=1, executor=executor, progress="off")


def values(path: Path) -> Any:
    """Everything that a search finds, to the digit."""
    with open_view(path) as view:
        rows = []
        baseline = view.baseline
        assert baseline is not None
        for c in [baseline, *view.candidates()]:
            scores = [(s.seed, s.value, s.stderr, s.steps) for s in [c.score, *c.finals] if s]
            curves = [view.curve(c, phase) for phase in ("search", "final")]
            rows.append(
                (c.id, c.key, c.known, c.batch, c.ticket, c.state, c.reward, scores, curves)
            )
        return rows, view.finalists


def progress(path: Path) -> int:
    """How many points of curves are on record."""
    try:
        connection = sqlite3.connect(f"file:{path / 'session.sqlite'}?mode=ro", uri=True)
    except sqlite3.OperationalError:
        return 0
    try:
        return int(connection.execute("SELECT count(*) FROM curve").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def started(path: Path, workers: int) -> subprocess.Popen[str]:
    folders = [str(Path(__file__).parent), *filter(None, sys.path)]
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), str(workers)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str], draw: random.Random) -> None:
    """Kills the coordinator, or one of its workers and then, later, the coordinator."""
    workers = workers_of(process)
    if workers and draw.random() < 0.5:
        os.kill(draw.choice(workers), signal.SIGKILL)
        time.sleep(draw.random())
    workers = workers_of(process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert wait_for(lambda: not any(map(alive, workers)), seconds=60)


@pytest.mark.timeout(1_200)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the workers")
def test_kills_at_random_moments_change_no_digit(tmp_path: Path) -> None:
    search(tmp_path / "whole", 1, InlineExecutor())
    expected = values(tmp_path / "whole")
    points = progress(tmp_path / "whole")
    assert sum(row[5] == "done" for row in expected[0]) >= 4
    assert len({row[7][0][1] for row in expected[0] if row[7]}) >= 4, "networks differ"
    assert any(row[2].startswith("grouped") for row in expected[0]), "a known one had its turn"
    seed = random.randrange(1 << 32)
    print("seed", seed)  # of this test: shown when it fails
    draw = random.Random(seed)
    path = tmp_path / "killed"
    for number in range(KILLS + 1):
        process = started(path, (1, 2, 4)[number % 3])
        moment = draw.randrange(points)
        while process.poll() is None and (number == KILLS or progress(path) < moment):
            time.sleep(0.02)
        if process.poll() is None:
            kill(process, draw)
        else:
            out, _ = process.communicate()
            assert "ended" in out, out
    assert values(path) == expected
