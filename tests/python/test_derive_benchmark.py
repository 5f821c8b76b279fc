"""The derivation benchmark: cases that are windows, ratios of times it has, and refusals of names it has not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE_S

from syno.operators.operator import Operator

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from derivebench.cases import CLASSES  # noqa: E402


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/derive.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.nightly
def test_the_spaces_of_einnet_are_counted() -> None:
    done = run(
        "--einnet", "--depths", "2-4", "--seconds", "60", "--filter", "conv3", "g2bmm", "--json"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["spaces"]
    assert {row["name"] for row in rows} == {"conv3x3", "g2bmm"} and len(rows) == 18
    for row in rows:
        assert (row["converged"] > 0) == (row["converging"] > 0)
        if row["depth"] == 4 and row["key"]:
            assert row["target_found"] and row["candidates"] > 0 and row["ended"] == "exhausted"
            other = next(
                r for r in rows if r["name"] == row["name"] and r["depth"] == 4 and not r["key"]
            )
            assert other["states"] > row["states"]
    assert run("--einnet", "--depths", "three").returncode == 2
    assert run("--einnet", "--filter", "nothing", "--depths", "1").returncode == 2


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    path = tmp_path / "cases.json"
    path.write_text(
        json.dumps(
            [
                {
                    "name": "window",
                    "expr": "y[o,h] = sum[c,r] x[c,h+r-1] * k[o,c,r]",
                    "sizes": {"o": 16, "c": 16, "h": 60, "r": 3},
                    "constant": ["k"],
                },
                {"name": "copy", "expr": "y[i] = x[9-i]", "sizes": {"i": 10}},
            ]
        )
    )
    return path


@pytest.mark.nightly
def test_a_file_of_cases_is_derived_and_timed(cases: Path) -> None:
    done = run(
        "--cases", str(cases), "--peers", "eager", "--seconds", "0.3", "--turns", "3", "--json"
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    window, copy = document["cases"]
    for case in (window, copy):
        assert (
            case["derived_us"] > 0 and case["underived_us"] > 0 and case["ratio_to_underived"] > 0
        )
        # On a busy machine a peer may be so slow once that it takes no turns; then it says so.
        assert case["ratio_to_best_peer"] if case["peers_us"] else case["absent"]
        assert (
            bool(case["steps"]) == (case["max_rel_err"] is not None and not case["exact"])
            or case["exact"]
        )
    assert copy["steps"] == [] and copy["ratio_to_underived"] == 1
    assert not document["failed"] and document["classes"]["file"]["cases"] == 2


def test_tiles_of_a_window(cases: Path) -> None:
    done = run("--cases", str(cases), "--filter", "window", "--tiles", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert rows[0]["tiles"] == [] and rows[0]["speed_up"] == 1
    assert all(row["errors"] for row in rows)
    assert {row["points"] for row in rows[1:]} == {"balanced", "integers"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--classes", "magic"], "window"),
        (["--peers", "magic"], "eager"),
        (["--filter", "magic"], "InfoGAN"),
        (["--turns", "1"], "at least 3"),
    ],
)
def test_wrong_names_are_refused(arguments: list[str], says: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2 and says in done.stderr


@pytest.mark.parametrize("name", CLASSES)
def test_every_case_is_an_operator(name: str) -> None:
    for case in CLASSES[name]():
        assert isinstance(case.operator, Operator) and case.operator.flops > 0


@pytest.mark.nightly
def test_curves_tell_what_is_found_by_time_and_by_steps(cases: Path) -> None:
    limits = ("--seconds", "0.4", "--depths", "1-2", "--finalists", "1")
    done = run("--curves", "--cases", str(cases), "--filter", "window", *limits, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert len(document["rows"]) == 4 + 2
    assert all(0 < row["speed"] <= 1 and row["us"] > 0 for row in document["rows"])
    assert max(row["speed"] for row in document["rows"]) == 1
    assert [row["depth"] for row in document["rows"]] == [None] * 4 + [1, 2]
    assert all(row["steps"] <= row["depth"] + 1 for row in document["rows"][4:])
    assert set(document["geomean"]["depth"]) == {"1", "2"}
    assert run("--curves", "--cases", str(cases), "--depths", "few").returncode == 2
    of = ("--curves", "--cases", str(cases), "--filter", "window", "--times")
    done = run(*of, "0.1,0.2", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["seconds"], row["depth"]) for row in rows] == [(0.1, None), (0.2, None)]
    for wrong in ("", "2,", "0", "nan", "2;60"):
        assert run(*of, wrong).returncode == 2


@pytest.mark.nightly
def test_a_training_step_is_derived_and_timed() -> None:
    done = run(
        "--classes",
        "training",
        "--filter",
        "256->256",
        "--peers",
        "eager",
        "--turns",
        "3",
        "--training-seconds",
        "4",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    (step,) = json.loads(done.stdout)["cases"]
    assert step["max_rel_err"] < 1e-3 and step["underived_us"] > 0
    assert {"eager native conv2d", "eager, channels last"} == set(step["peers_us"])
