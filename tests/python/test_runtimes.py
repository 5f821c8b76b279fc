"""Networks in other runtimes, to be timed beside."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from syno.cli.main import app
from syno.searching.revisit import bench_original
from syno.timing import runtimes
from syno.timing.runtimes import RUNTIMES, Runtime, RuntimeUnavailable, running

BY_NAME = {runtime.name: runtime for runtime in RUNTIMES}
INSTALLED = [runtime.name for runtime in RUNTIMES if not runtime.missing]


class Two(nn.Module):
    """Takes a tensor and a mask by name, and gives two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Tensor, *, mask: Tensor) -> tuple[Tensor, Tensor]:
        y = self.layer(x)
        return torch.where(mask, y, torch.zeros_like(y)), y.sum(-1)


@pytest.mark.parametrize("name", INSTALLED)
def test_a_network_runs_elsewhere_and_is_left_as_it_was(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)).train()
    model[0].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    call = running(BY_NAME[name], model, [torch.randn(2, 3, 6, 6)], {})
    call()
    assert [each.training for each in model.modules()] == [True, False, True, True]
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    masked = {"mask": torch.rand(2, 5) > 0.5}
    running(BY_NAME[name], Two(), [torch.randn(2, 6)], masked, threads=2)()


def test_what_cannot_be_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Deciding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + 1 if float(x.sum()) > 0 else x - 1

    if "onnxruntime" in INSTALLED:
        with pytest.raises(RuntimeUnavailable, match="no ONNX of it"):
            running(BY_NAME["onnxruntime"], Deciding(), [torch.ones(3)], {})

        def ready(*_: Any) -> Any:
            return (lambda: None), (lambda: np.full((2, 4), np.nan))

        wrong = Runtime("wrong", "Wrong", (), ready)
        with pytest.raises(RuntimeUnavailable, match="Wrong computes something else"):
            running(wrong, nn.Linear(3, 4), [torch.ones(2, 3)], {})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for runtime in RUNTIMES:
        with pytest.raises(RuntimeUnavailable, match=rf"pip install {runtime.name}"):
            running(runtime, nn.Linear(3, 4), [torch.ones(2, 3)], {})


def test_all_contestants_stand_in_one_table(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = Runtime("openvino", "OpenVINO", ("a_package_nobody_has",), BY_NAME["openvino"].ready)
    monkeypatch.setattr(runtimes, "RUNTIMES", (BY_NAME["onnxruntime"], absent))
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
    asked = ["eager", "whole", "derived", "onnxruntime", "openvino"]
    timed = bench_original(model, torch.randn(1, 3, 10, 10), against=asked)
    names = {"original", "original, compiled whole", "original, compiled whole, derived"}
    assert names <= set(timed)
    assert "a_package_nobody_has" in timed.skipped["original, OpenVINO"]
    elsewhere = "original, ONNX Runtime"
    assert (elsewhere in timed) == ("onnxruntime" in INSTALLED)
    assert (elsewhere in timed.skipped) != (elsewhere in timed)


def test_the_command_line_times_a_model_beside_them(tmp_path: Path) -> None:
    source = "import torch\n\ndef make():\n    return torch.nn.Linear(6, 5)\n"
    (tmp_path / "small.py").write_text(source)
    words = [f"{tmp_path}/small.py:make", "--example", "2,6", "--against", "onnxruntime,openvino"]
    done = CliRunner().invoke(app, ["bench", *words, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    told = {row["name"] for row in found["timings"]} | set(found["skipped"])
    assert told == {"original", "original, ONNX Runtime", "original, OpenVINO"}
