"""The examples run as the README has them."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from syno.tasks import load_task, preflight
from syno.train import train

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
