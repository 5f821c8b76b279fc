"""The benchmark of whole networks: its fields are there and agree, and names it has not are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

networks: Any = pytest.importorskip("networks")
networkbench: Any = pytest.importorskip("networkbench")
pytest.importorskip("networkbench.command")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks/networks.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.nightly
def test_a_network_is_compiled_and_timed(tmp_path: Path) -> None:
    written = tmp_path / "networks.json"
    words = ["--networks", "conv1d", "--peers", "eager", "--turns", "3", "--batch", "2", "--json"]
    done = run(*words, "-o", str(written))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads(written.read_text())
    assert {"machine", "versions", "command", "threads"} <= set(document)
    (row,) = document["networks"]
    assert (row["network"], row["batch"], row["threads"]) == ("conv1d", 2, 1)
    assert row["us"] > 0 and row["spread"] >= 0 and row["compile_s"] > 0 and row["cached_s"] > 0
    assert row["best_peer"] == "eager" and row["peers_us"].keys() == {"eager"}
    assert row["peers_us"]["eager"] == min(row["forms_us"].values()) and row["peers_spread"]
    assert row["ratio_to_best_peer"] == row["ratios"]["eager"] > 0
    assert document["least"] == row["ratio_to_best_peer"]
    assert document["geomean"] == pytest.approx(row["ratio_to_best_peer"])
    assert 0 <= row["max_rel_err"] < 1e-4 and row["kernels_share"] > 0
    assert row["arena_mb"] >= row["live_mb"] > 0
    assert row["stages"] > 0 and len(row["fallbacks"]) < row["stages"]
    # Five convolutions and a linear layer, of two signals.
    layers = [(1, 32, 1024), (32, 64, 512), (64, 64, 512), (64, 128, 256), (128, 128, 256)]
    assert row["multiply_adds"] >= 2 * (sum(9 * i * o * length for i, o, length in layers) + 1280)
    assert not document["failed"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--networks", "conv1d,magic"], "resnet18"),
        (["--peers", "magic"], "onnxruntime"),
        (["--turns", "2"], "at least 3"),
        (["--batch", "0"], "at least 1"),
        (["-o", "no/such/folder.json"], "folder"),
    ],
)
def test_wrong_arguments_are_refused(
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["networks.py", *arguments])
    assert networks.main() == 2
    printed = capsys.readouterr()
    assert says in printed.err and not printed.out


def test_a_peer_that_fails_or_errs_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.ones(1, 2)
    calls: dict[str, Any] = {"": lambda: x, "wrong": lambda: x + 1, "broken": lambda: x @ x}
    monkeypatch.setattr(networkbench.run, "prepare", lambda *_: calls)
    errors: dict[str, float] = {}
    absent: dict[str, str] = {}
    model, settings = torch.nn.Identity(), networkbench.run.Settings(["peer"])
    exact = x.double().numpy()
    found = networkbench.run._of_peer("peer", model, x, exact, settings, errors, absent)
    assert list(found) == ["peer"] and errors == {"peer": 0.0}
    assert "float64" in absent["peer, wrong"] and absent["peer, broken"]

    def fail(*_: object) -> None:
        raise ValueError("no such layer")

    monkeypatch.setattr(networkbench.run, "prepare", fail)
    assert not networkbench.run._of_peer("peer", model, x, exact, settings, errors, absent)
    assert absent["peer"] == "ValueError: no such layer"


def test_a_network_that_does_not_compile_is_a_row_with_an_error() -> None:
    ratios = {"ratio_to_best_peer": 4.0, "ratios": {"eager": 4.0}}
    rows = [{"network": "a", "error": "no kernel"}, {"network": "b", **ratios}]
    found = networkbench.command.summary(rows)
    assert found["failed"] == {"a": "no kernel"} and found["networks"] == rows
    assert found["geomean"] == pytest.approx(4.0) and found["least"] == 4.0
    assert "no kernel" in networkbench.command.line(rows[0])


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("squeezenet", 1_235_496),  # as torchvision's page of models gives them
        ("shufflenet_v2", 2_278_604),
        ("lstm_tagger", 1000 * 128 + 2 * 4 * 128 * (128 + 128 + 2) + 257 * 20),
    ],
)
def test_networks_have_the_published_shapes(name: str, parameters: int) -> None:
    model, _ = networks.make(name)
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize(
    "name", ["gpt2_block", "unet", "shufflenet_v2", "lstm_tagger", "gru_frames"]
)
def test_networks_take_their_examples(name: str) -> None:
    model, example = networks.make(name)
    with torch.inference_mode():
        result = model.eval()(example)
    assert result.shape[0] == 1 and result.isfinite().all()
    if name == "unet":
        assert result.shape[2:] == example.shape[2:]
