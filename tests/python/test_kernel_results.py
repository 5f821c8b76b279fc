"""What rows of the kernel benchmark mean: the roof beside a kernel, and which peers were there."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from syno import _core

pytest.importorskip("torch")

from kernelbench.cases import Case
from kernelbench.results import Result, Settings
from kernelbench.roof import Roof, roof

#: Packages of peers, which need not be installed for this.
LATER = ("onnx", "onnxruntime", "openvino", "jax")


def test_the_roof_of_bytes_that_are_written_is_by_what_writing_and_copying_take() -> None:
    model = json.loads(_core.describe_machine().to_json())
    for level in model["levels"]:
        level.update(read_gbs=10.0, write_gbs=2.0, copy_gbs=4.0)
    settings = Settings((), 1, 3, json.dumps(model))

    def bound(text: str, **sizes: int) -> Roof:
        return roof(Case("x", text, sizes), settings)

    copied = bound("y[i] = relu(x[i])", i=1 << 20)
    assert copied.us == pytest.approx(2 * (4 << 20) / 4e9 * 1e6)
    assert copied.read_us == pytest.approx(2 * (4 << 20) / 10e9 * 1e6)
    mostly_read = bound("y[i] = sum[k] x[i,k]", i=1 << 10, k=1 << 10)
    assert mostly_read.us == pytest.approx(((4 << 20) - (4 << 10)) / 10e3 + 2 * (4 << 10) / 4e3)
    mostly_written = bound("y[i,k] = x[i] + 0*k", i=1 << 10, k=1 << 10)
    assert mostly_written.us == pytest.approx(((4 << 20) - (4 << 10)) / 2e3 + 2 * (4 << 10) / 4e3)


def row(name: str, peers_us: dict[str, float], absent: dict[str, str]) -> Result:
    best = min(peers_us, key=peers_us.__getitem__, default=None)
    return Result(
        name=name,
        klass="dense",
        us=1.0,
        spread=0.1,
        gflops=1.0,
        fraction_of_peak=0.5,
        roof_us=0.5,
        read_roof_us=0.4,
        bound="compute",
        fraction_of_roof=0.5,
        fraction_of_read_roof=0.4,
        peers_us=peers_us,
        forms_us={f"{peer} native": us for peer, us in peers_us.items()},
        best_peer=best,
        best_form="native" if best else None,
        ratio_to_best_peer=peers_us[best] if best else None,
        peers_asked=3,
        ratios=peers_us,
        max_rel_err=0.0,
        construct_ms=None,
        compile_ms=None,
        cached_ms=None,
        spills=None,
        predicted_us=None,
        absent=absent,
    )


def test_a_peer_that_did_not_run_is_absent_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import kernels

    # Installed, and without what it needs to read a model.
    there = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: None if name == "onnxscript" else there("json" if name in LATER else name),
    )
    rows = [
        row("a", {"eager": 2.0}, {"xla native": "no such primitive"}),
        row("b", {"eager": 2.0, "xla": 1.5}, {}),
    ]
    monkeypatch.setattr(kernels, "run", lambda cases, settings, quiet: (rows, {}))
    command = ["kernels.py", "--classes", "dense", "--peers", "eager,openvino,xla"]
    monkeypatch.setattr(sys, "argv", command)
    assert kernels.main() == 0
    printed = capsys.readouterr()
    reason = "openvino is absent: onnxscript is not installed: pip install onnxscript"
    assert reason in printed.err and reason in printed.out
    assert "eager ran in all 2 cases" in printed.out
    assert "xla ran in 1 of 2 cases: no such primitive" in printed.out
    monkeypatch.setattr(sys, "argv", [*command, "--json"])
    assert kernels.main() == 0
    document = json.loads(capsys.readouterr().out)
    assert document["peers"]["openvino"]["ran"] == 0
    assert "onnxscript" in document["peers"]["openvino"]["why"]
    assert "best of 1 of 3" in kernels.line(rows[0])
    assert "best of 2 of 3" in kernels.line(rows[1])
