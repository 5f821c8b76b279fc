"""The synthesis benchmark: what it prints and what it dumps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_dump_holds_the_operators_that_the_papers_code_finds(tmp_path: Path) -> None:
    dump = tmp_path / "operators.json"
    script = ROOT / "benchmarks" / "synthesis.py"
    command = [sys.executable, str(script), "--depth", "4", "--json", "--dump", str(dump)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
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


def test_the_ablations_tell_what_every_rule_removes(tmp_path: Path) -> None:
    script = ROOT / "benchmarks" / "synthesis_ablations.py"
    command = [sys.executable, str(script), "--depth", "3", "--rule-depth", "3"]
    command += ["--distance-depth", "3", "--output", str(tmp_path / "ablations"), "--json"]
    command += ["--rules", "merge-above-reduce", "shift-above-share"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
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
