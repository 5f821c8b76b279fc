"""The synthesis benchmark: what it prints and what it dumps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]


def test_the_dump_holds_the_operators_that_the_papers_code_finds(tmp_path: Path) -> None:
    dump = tmp_path / "operators.json"
    script = ROOT / "benchmarks" / "synthesis.py"
    command = [sys.executable, str(script), "--depth", "4", "--json", "--dump", str(dump)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    report = json.loads(done.stdout)
    assert report["by_steps"] == {"2": 2, "3": 4, "4": 30}
    assert report["operators"] == 36
    assert report["peak_mb"] < 500
    operators = json.loads(dump.read_text())
    theirs = json.loads((ROOT / "tests" / "data" / "operators_small.json").read_text())

    def shape(entry: dict[str, object]) -> tuple[object, ...]:
        reads = entry["reads"]
        assert isinstance(reads, list)
        return (entry["primitives"], entry["params"], len(reads), len(entry["sums"]))  # type: ignore[arg-type]

    assert sorted(map(shape, operators)) == sorted(
        shape(entry) for entry in theirs if entry["primitives"] <= 4
    )


def run(*arguments: str) -> Any:
    command = [sys.executable, str(ROOT / "benchmarks" / "synthesis.py"), *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return json.loads(done.stdout)


def test_deep_operators_are_drawn() -> None:
    report = run("--depth", "10", "--sample", "40", "--min-steps", "9", "--seed", "1")
    assert report["operators"] == sum(report["by_steps"].values()) == 40
    assert set(report["by_steps"]) <= {"9", "10"}
    assert report["per_core_second"] > 0


def test_a_tree_search_is_timed_until_it_reaches_an_operator() -> None:
    rows = run("--depth", "6", "--reach", "conv1x1", "--seeds", "2", "--iterations", "200")
    assert [row["seed"] for row in rows] == [1, 2]
    for row in rows:
        assert row["reached"]
        assert row["best_reward"] == 1
        assert 1 <= row["operators"] <= 200
    (row,) = run("--depth", "6", "--reach", "conv1x1", "--seeds", "1", "--iterations", "1")
    assert row["operators"] == 1
    assert row["reached"] == (row["best_reward"] == 1)


def test_the_ablations_tell_what_every_rule_removes(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "synthesis_ablations.py"
    command = [sys.executable, str(script), "--depth", "3", "--rule-depth", "3"]
    command += ["--distance-depth", "3", "--output", str(tmp_path / "ablations"), "--json"]
    command += ["--rules", "merge-above-reduce", "shift-above-share"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "ablations.json").read_text())
    table = report["table_3"]
    assert table["all_rules_on"]["pgraphs"] == {"2": 2, "3": 4}
    shares = list(table["share_kept_percent"].values())
    assert shares[0] == 100 and shares == sorted(shares, reverse=True)
    rules = report["each_rule"]["removes"]
    removed = report["each_rule"]["all_rules_off"] - report["each_rule"]["all_rules_on"]
    assert all(0 <= rule["last"] <= removed for rule in rules.values())
    assert sorted(rules) == ["merge-above-reduce", "shift-above-share"]
    assert all(rule["alone"] > 0 for rule in rules.values())
    distance = report["shape_distance"]
    assert distance["with"]["pgraphs"] == distance["without"]["pgraphs"]
    assert distance["with"]["states"] < distance["without"]["states"]
