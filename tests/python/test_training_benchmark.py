"""benchmarks/training.py: its rows, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import training
from patience import PATIENCE_S

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "training.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.nightly
def test_a_training_step_is_measured_beside_eager(tmp_path: Path) -> None:
    written = tmp_path / "training.json"
    done = run("--networks", "fashion_resnet:2", "--turns", "3", "--json", "-o", str(written))
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document == json.loads(written.read_text("utf-8"))
    (row,) = document["networks"]
    assert row["graphs"] == 2 and not row["in_pytorch"] and row["kernels"] > 20
    assert set(row["ratios"]) == {"eager", "last"} and row["best_peer"] in row["ratios"]
    assert row["us"] > 0 and row["ready_s"] > 0
    # Small batches make statistics whose derivatives cancel: as near as PyTorch is, and no nearer.
    assert row["gradient_error"] < max(1e-4, 10 * row["peers_gradient_error"]["eager"])


@pytest.mark.nightly
def test_a_derived_step_is_measured_beside_ours() -> None:
    done = run(
        "--networks",
        "fashion_resnet:2",
        "--peers",
        "eager",
        "--turns",
        "3",
        "--derive",
        "2",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["networks"]
    assert row["derived_us"] > 0 and row["ratio_to_underived"] > 0
    assert set(row["ratios"]) == {"eager"} == set(row["peers_gradient_error"])
    assert row["derived_gradient_error"] < max(1e-4, 10 * row["peers_gradient_error"]["eager"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--derive", "-1"), "at least 0"),
        (("--derive", "nan"), "at least 0"),
        (("--networks", "resnet1"), "resnet18"),
        (("--networks", "vit_s:0"), "batch is '0'"),
        (("--networks", "vit_s:x"), "batch is 'x'"),
        (("--peers", "tvm"), "eager"),
        (("--turns", "2"), "at least 3"),
        (("--threads", "0"), "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[str, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["training.py", *arguments])
    assert training.main() == 2
    assert said in capsys.readouterr().err
