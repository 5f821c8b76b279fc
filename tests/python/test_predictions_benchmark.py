"""The benchmark of predictions: its order of ranks, its judgement, and a run on programs from a file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import predictions  # noqa: E402

PROGRAM = (
    "input x[8, 16]\nweight k[12, 16]\ny[i: 8, j: 12] = sum[c: 16] x[i, c] * k[j, c]\nreturn y\n"
)


def test_ranks() -> None:
    assert predictions.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert predictions.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert predictions.rank_correlation([1, 1, 1], [1, 2, 3]) == 0
    # Scipy's spearmanr([1, 2, 2, 3], [1, 3, 2, 4]) is 0.9486832980505138.
    assert predictions.rank_correlation([1, 2, 2, 3], [1, 3, 2, 4]) == pytest.approx(
        0.9486832980505138
    )


def test_judgement() -> None:
    row = predictions.judged("one", [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [4.0, 3.0, 2.0, 6.0, 8.0, 1.0])
    assert (row["best_of_five"], row["first"]) == (2.0, 4.0)
    of = predictions.summary([row, row])
    assert (
        of["operators"] == 2 and of["schedules"] == 12 and of["first_geomean"] == pytest.approx(4)
    )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / "predictions.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def test_programs_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "programs.json"
    path.write_text(json.dumps([PROGRAM]))
    done = run("--programs", str(path), "--samples", "8", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (row,) = document["operators"]["file"]
    assert row["predicted_us"] == sorted(row["predicted_us"]) and min(row["measured_us"]) > 0
    assert document["all"]["operators"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--classes", "dence"], "dense"),
        (["--samples", "2"], "at least 8"),
        (["--programs", "/nowhere.json"], "a JSON list"),
    ],
)
def test_bad_arguments_are_said(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and said in done.stderr
