"""A wrong value of an option is a usage error: exit code 2, the valid values listed, nothing done before."""

from __future__ import annotations

import inspect
import re
import shlex
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer
from typer.testing import CliRunner

from syno.cli.main import app
from syno.errors import SessionError

SESSION = ["nowhere", "c1"]
EXPORT = ["export", *SESSION, "--format", "c", "-o", "OUT"]
MATMUL = ["tune", "y[i,j] = sum[k] a[i,k] * b[k,j]", "-s", "i=4", "-s", "j=4", "-s", "k=4"]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def said(result: Any) -> str:
    """What was printed, without the frame around it."""
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.output).split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["search", "digits", "-o", "OUT", "--policy", "mtcs"], "did you mean 'mcts'? Valid: bay"),
        (
            ["search", "digits", "-o", "OUT", "--executor", "nope"],
            "unknown executor 'nope'. Valid: local",
        ),
        (
            ["search", "digits", "-o", "OUT", "--budget", "banana"],
            "'banana' is not understood; write",
        ),
        (["search", "digits", "-o", "OUT", "--progress", "loud"], "Valid: auto, bar, log, off"),
        (["search", "digits", "-o", "OUT", "--budget", "soon"], "write '10min'"),
        (["search", "digits", "-o", "OUT", "--budget", "0"], "at least 1"),
        (["search", "digits", "-o", "OUT", "--require", "energy<=1x"], "latency"),
        (["search", "digits", "-o", "OUT", "--workers", "0"], "--workers"),
        (["search", "digits", "-o", "OUT", "--finalists", "-1"], "--finalists"),
        (["search", "digits", "-o", "OUT", "--executor", "locla"], "did you mean 'local'"),
        (["search", "digits", "-o", "OUT", "-E", "memory"], "name=value"),
        (["search", "digits", "-o", "OUT", "--batch-width", "0"], "--batch-width"),
        (["search", "digits", "-o", "OUT", "--lag", "0"], "--lag"),
        (["search", "digits", "-o", "OUT", "--track", "tensorboad:x"], "--track"),
        (["search", "digits", "-o", "OUT", "--track", "tensorboard"], "--track"),
        (["search", "digits", "-o", "OUT", "-O", "width"], "name=value"),
        (["search", "digits", "-o", "OUT", "--spec", "nowhere.json"], "resnet18"),
        (["search", "digits", "-o", "OUT", "--set", "max_step=3"], "did you mean 'max_steps'"),
        (["search", "digits", "-o", "OUT", "--set", "max_steps=2.5"], "integer"),
        (["search", "digits", "-o", "OUT", "--rule", "pool=off"], "pools-too-much"),
        (["search", "digist", "-o", "OUT"], "did you mean 'digits'"),
        (["demo", "--candidates", "0"], "--candidates"),
        (["demo", "--progress", "loud"], "Valid: auto, bar, log, off"),
        (["sites", "pkg:make", "--example", "1,x"], "positive integers"),
        (["sites", "pkg:make", "--example", "1,0"], "positive integers"),
        (["explain", "conv", "--neighbours", "-1"], "--neighbours"),
        (["explain", "conv", "--spec", "nothing"], "resnet18"),
        (["explain", "convo"], "conv"),
        (["explain", "conv", "--size", "kernel"], "groups=g"),
        (["report", "nowhere", "-o", "report.docx"], ".html, .md, .csv, .json, .png, .svg"),
        (["doctor", "--roofline", "roof.txt"], ".png, .svg"),
        (
            ["bench", *SESSION, "--against", "eager,tvm"],
            "Valid: compile, derived, eager, onednn, onnxruntime, openvino, whole",
        ),
        (["bench", *SESSION, "--threads", "0"], "--threads"),
        ([*MATMUL, "--dtype", "float16"], "Valid: bfloat16, float32, float64"),
        ([*MATMUL, "--model", "forest"], "Valid: boosted, linear"),
        ([*MATMUL, "--policy", "gensor"], "Valid: all, counted, graph, search, tree, uniform"),
        (["tune", "--network", "a:b", "--policy", "tree"], "is for an operator"),
        ([*MATMUL, "--trials", "0"], "--trials"),
        ([*MATMUL, "--threads", "0"], "--threads"),
        ([*MATMUL, "--time-limit", "-1"], "--time-limit"),
        ([*MATMUL, "-s", "m"], "'m=64'"),
        (["replay", *SESSION, "--tolerance", "-1"], "--tolerance"),
        (
            ["export", *SESSION, "--format", "tflite", "-o", "OUT"],
            "Valid: bundle, c, onnx, safetensors, torch, triton",
        ),
        (
            ["export", *SESSION, "--format", "c", "-o", "OUT", "--dtype", "int8"],
            "Valid: bfloat16, float32, float64",
        ),
        ([*EXPORT, "--target", "arm64-darwin"], "Valid: aarch64-linux-gnu, x86_64-linux-gnu"),
        (
            [*EXPORT, "--cpu", "cortex-a67", "--target", "aarch64-linux-gnu"],
            "generic+sve512, grace",
        ),
        ([*EXPORT, "--cpu", "cortex-a76"], "znver4"),
        ([*EXPORT, "--gpu", "h2000"], "Valid: a100, h100, h200"),
    ],
)
def test_a_wrong_value_is_a_usage_error(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*(str(tmp_path / "out") if part == "OUT" else part for part in arguments))
    assert result.exit_code == 2, result.output
    assert words in said(result)
    assert not list(tmp_path.iterdir())


def test_files_that_are_something_else_are_named_with_what_to_give(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    wrong, none = tmp_path / "wrong.onnx", tmp_path / "none.zip"
    wrong.write_text("garbage")
    compiled = invoke("compile", str(wrong))
    assert compiled.exit_code == 1 and f"{wrong.name}' is no ONNX model" in said(compiled)
    for archive, why in ((none, "No such file or directory"), (wrong, "File is not a zip file")):
        found = invoke("cache", "import", str(archive))
        assert found.exit_code == 1 and "give a zip that 'syno cache export' wrote" in said(found)
        assert said(found).count(archive.name) == 1 and why in said(found)


#: Options of any text; the engine or the task looks them up and lists what there is.
FREE = {("search", "output"), ("demo", "output"), ("demo", "data"), ("export", "output")}
FREE |= {("explain", "spec"), ("explain", "svg")}
FREE |= {("bench", "model"), ("export", "model"), ("export", "operator"), ("replay", "task")}


def options() -> Iterator[tuple[str, str, Any, Any]]:
    """Command, parameter, type and typer's description of every option."""
    for command in app.registered_commands:
        function = inspect.unwrap(command.callback)  # type: ignore[arg-type]
        hints = typing.get_type_hints(function, include_extras=True)
        for name, hint in hints.items():
            kind, *extra = typing.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
            for described in extra:
                if isinstance(described, typer.models.OptionInfo):
                    yield function.__name__, name, kind, described


def test_every_option_checks_its_value() -> None:
    seen = 0
    for command, name, kind, option in options():
        seen += 1
        kinds = {kind, *typing.get_args(kind)} - {type(None)}
        if kinds & {int, float} and name != "seed":
            assert option.min is not None, f"{command} --{name} takes any number"
        elif kinds & {str, Path, list[str]} and (command, name) not in FREE:
            assert option.callback is not None, f"{command} --{name} takes any text"
    assert seen > 40


@pytest.mark.parametrize(
    "arguments",
    [
        ["tune", "y[i] = x\udcff[i]", "-s", "i=4"],
        ["explain", "conv", "--size", "k=\udcff"],
        ["explain", "conv", "--size", "\udcff=k"],
    ],
)
def test_bytes_that_are_no_text_are_named(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code in (1, 2)
    assert "none of Unicode" in said(result) or "unknown size" in said(result)
    assert "mistake in syno" not in said(result)


def test_help_needs_no_values() -> None:
    for command in ("search", "bench", "export", "tune", "report"):
        assert invoke(command, "--help").exit_code == 0


SEARCHES = [
    [],
    ["--seed", "7", "--finalists", "1", "-O", "width=8", "-O", "name=a b"],
    ["--policy", "random", "--require", "latency<=0.5x, flops<=0.8x", "--budget", "2h"],
    [
        "--deterministic",
        "--mix-tokens",
        "--train-limit",
        "90s",
        "--batch-width",
        "16",
        "--lag",
        "64",
    ],
    [
        "--set",
        "max_steps=9",
        "--set",
        "tile=on",
        "--set",
        "max_params=none",
        "--rule",
        "pools-too-much=off",
    ],
    ["--spec", "conv", "--set", "max_flops=1e9", "--set", "extensions=tile,repeat"],
]


@pytest.mark.parametrize("options", SEARCHES)
def test_the_command_a_session_notes_is_the_one_that_made_it(
    options: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[dict[str, Any]] = []

    def note(*args: Any, **named: Any) -> Any:
        asked.append({**named, "space": args[4], "reference": args[1], "options": args[2]})
        raise SessionError("[test] enough was seen")

    for name in ("load_task", "default_sites"):
        where = "syno.training.tasks" if name == "load_task" else "syno.searching.pipeline"
        monkeypatch.setattr(f"{where}.{name}", lambda *args: mock.MagicMock())
    monkeypatch.setattr("syno.searching.pipeline.plan_stages", lambda groups, space: [])
    monkeypatch.setattr("syno.searching.pipeline._run", note)
    for arguments in (["search", "digits", "-o", str(tmp_path / "a b"), *options], None):
        words = arguments or shlex.split(asked[0]["note"])[1:]
        assert "enough was seen" in said(invoke(*words))
    assert asked[0] == asked[1]


def test_a_file_in_the_place_of_a_session_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    for arguments in (["status"], ["report"], ["show", "c1"]):
        result = invoke(arguments[0], str(tmp_path / "notes"), *arguments[1:])
        assert result.exit_code == 1 and "give the directory of a session" in said(result)
