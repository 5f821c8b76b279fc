"""The examples run as the README has them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import syno
from syno.session import open_view
from syno.training.checking import preflight
from syno.training.tasks import load_task
from syno.training.train import train

ROOT = Path(__file__).resolve().parents[2]
TASK = f"{ROOT / 'examples' / 'my_task.py'}:make_task"


def test_the_task_file_is_ready_in_a_fresh_process_and_trains() -> None:
    from patience import PATIENCE_S

    found = preflight(TASK, {"width": 8}, timeout_s=PATIENCE_S)
    assert found["task"] == "quarters"
    assert found["train"] == [32, 8, 16, 16]
    task = load_task(TASK, {"width": 8})
    again = [train(task.but(steps=6, epochs=1, evaluations=0)) for _ in range(2)]
    assert [each.state for each in again] == ["done", "done"]
    assert again[0].value == again[1].value


def test_the_readme_names_the_task_file_with_its_arguments() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    source = (ROOT / "examples" / "my_task.py").read_text(encoding="utf-8")
    command = "syno search examples/my_task.py:make_task -o runs/mine --budget 10min -O width=32"
    assert command in readme and command in source


@pytest.mark.nightly
def test_the_cluster_example_trains_on_its_nodes(tmp_path: Path) -> None:
    from patience import PATIENCE_S

    pytest.importorskip("ray")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "cluster" / "on_one_machine.py"),
         "-o", str(tmp_path / "run"), "--nodes", "2", "--budget", "2", "--width", "8"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(Path(syno.__file__).parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    counts = [int(n) for n in re.findall(r"^\S+ trained (\d+)$", done.stdout, re.MULTILINE)]
    with open_view(tmp_path / "run") as view:
        trained = [c for c in view.candidates() if c.score is not None]
        assert sum(counts) == len(trained) == view.trained == 2
        assert view.config.lag == 4 and view.baseline is not None and view.baseline.nodes
        assert all(c.latency_us is not None for c in trained if c.state == "done")


def test_commands_of_the_cluster_example_are_understood() -> None:
    """Each is what `syno` takes, up to the work itself."""
    from typer.testing import CliRunner

    from syno.cli.main import app

    text = (ROOT / "examples" / "cluster" / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^(syno .*)$", text, re.MULTILINE)
    commands += re.findall(r"`(syno (?!status|report)[^`]*)`", text)
    assert len(commands) == 2
    for command in commands:
        shown = CliRunner().invoke(app, [*shlex.split(command)[1:], "--help"])
        assert shown.exit_code == 0
        options = re.findall(r"(?<= )--[a-z-]+", command)
        assert options and all(option in shown.output for option in options)
