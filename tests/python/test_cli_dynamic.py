"""`syno compile --dynamic`: modules and ONNX files for ranges of their sizes, on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from typer.testing import CliRunner

from syno.cli.main import app

MODULE = """
import torch

def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU())
"""
FILE = "g (float[batch, n] x) => (float[batch, n] y) { y = Softmax(x) }"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ranged.py").write_text(MODULE)
    onnx.save(
        onnx.parser.parse_model('<ir_version: 9, opset_import: ["" : 18]> ' + FILE),
        tmp_path / "m.onnx",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["compile", *arguments])


def test_a_module_is_compiled_for_ranges(folder: Path) -> None:
    sizes = [
        "--dynamic",
        "input:0=batch:2..4",
        "--dynamic",
        "input:2=h:8..16",
        "--dynamic",
        "input:3=h:8..16",
    ]
    result = run("ranged:make", "--example", "2,3,8,8", *sizes, "--profile")
    assert result.exit_code == 0, result.output
    assert "batch 2 to 4, h 8 to 16" in result.output
    assert "code is there for" in result.output
    result = run("ranged:make", "--example", "2,3,8,8", "--dynamic", "0:0=n:2..4", "--json")
    made = json.loads(result.stdout)
    assert made["dynamic"]["sizes"] == {"n": [2, 4]}
    assert made["inputs"]["input"][1] == [4, 3, 8, 8]


def test_a_file_is_compiled_for_ranges_of_its_open_dimensions(folder: Path) -> None:
    result = run("m.onnx", "--dynamic", "batch=1..8", "--dynamic", "n=5", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["dynamic"]["sizes"] == {"batch": [1, 8]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ranged:make", "--dynamic", "x:0=batch"], "argument:dimension=name:least..greatest"),
        (["ranged:make", "--dynamic", "x:0=batch:8"], "argument:dimension=name:least..greatest"),
        (["ranged:make", "--dynamic", "batch=1..8"], "names no argument"),
        (["ranged:make", "--dynamic", "0:0=a:1..8", "--dynamic", "0:0=b:1..8"], "two sizes"),
        (["ranged:make", "--dynamic", "image:0=a:1..8"], "image"),
        (["ranged:make", "--dynamic", "0:7=a:1..8"], "at most 3"),
        (["ranged:make", "--dynamic", "0:0=a:8..1"], "least value is above"),
        (["ranged:make", "--dynamic", "0:0=a:1..8", "--derive"], "one size"),
        (["ranged:make", "--dynamic", "0:0=a:1..8", "--layouts", "blocked"], "one size"),
        (["m.onnx", "--dynamic", "x:0=batch:1..8"], "have names"),
        (["m.onnx", "--dynamic", "batch=1..8"], "open dimensions n"),
        (["m.onnx", "--dynamic", "batch=1..8", "--dynamic", "batch=2"], "two ranges"),
        (["m.onnx", "--dynamic", "height=1..8"], "height"),
        (["m.onnx"], "open dimensions batch, n"),
    ],
)  # fmt: skip
def test_ranges_that_are_none_get_a_sentence(
    folder: Path, arguments: list[str], words: str
) -> None:
    example = ["--example", "2,3,8,8"] if arguments[0] == "ranged:make" else []
    result = run(*arguments, *example)
    assert result.exit_code != 0
    assert words in " ".join(result.output.replace("│", " ").split()), result.output
    assert "Traceback" not in result.output
