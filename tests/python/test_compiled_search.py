"""Searches time networks as they will be used: compiled whole, in turns with the compiled original; else they say why not."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

import syno
from syno.cli.main import app
from syno.graph import serving
from syno.graph.model import CompiledModel
from syno.graph.serving import compiled_of
from syno.report import to_html, to_markdown
from syno.searching.network import NetworkMeasurer
from syno.searching.result import Result
from syno.session import Prune
from syno.session.protocols import AS_TIMED, EAGER, ORIGINAL, Measurement, MeasureRequest
from syno.support.numbers import significant
from syno.timing import bench as benching

SOURCE = """
import torch
from torch import nn

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Conv1d(8, 8, 3, padding=1)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        hidden = self.second(torch.relu(self.norm(self.first(x))))
        return self.head(torch.relu(hidden).mean(-1))

class Deciding(Pair):
    def forward(self, x):
        y = super().forward(x)
        return y if y.abs().sum() < 1e9 else -y
"""
_NAMES: dict[str, Any] = {"__name__": "pairs"}
exec(SOURCE, _NAMES)


def batches(count: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 16, 8, 24, generator=generator)
    return [(x, (x[:, 0, :12].mean(-1) > x[:, 1, 12:].mean(-1)).long()) for x in inputs]


def example() -> Tensor:
    return torch.randn(2, 8, 24, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def without_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.compile`'s own compiler takes its time, and is nobody's subject here."""

    def none(*args: Any, **named: Any) -> Any:
        raise benching.CompilerUnavailable("there is none in tests")

    monkeypatch.setattr(benching, "_compiled", none)


def search(directory: Path, model: nn.Module | None = None, **options: Any) -> Result:
    torch.manual_seed(0)
    model = _NAMES["Pair"]() if model is None else model
    settings = {
        "sites": syno.sites(model, example(), repeats=1).where(kind="conv1d"),
        "data": (batches(2), batches(1)), "budget": 2, "session": directory, "finalists": 1, "final_seeds": 1,
        "batch_width": 1, "policy": "random", "known": (), "prune": Prune(), "progress": "off",
    }  # fmt: skip
    return syno.search(model, example(), **{**settings, **options})


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A finished search; whether the compiled network ran in each thing that was timed whole."""
    ran: list[tuple[str, bool]] = []
    calls = [0]
    run, measure = CompiledModel.run, benching.measure

    def counting(self: CompiledModel, *args: Any, **named: Any) -> Any:
        calls[0] += 1
        return run(self, *args, **named)

    def noting(functions: Mapping[str, Any], **named: Any) -> Any:
        with torch.no_grad():
            for name, function in functions.items():
                before = calls[0]
                function()
                ran.append((name, calls[0] > before))
        return measure(functions, **named)

    def none(*args: Any, **named: Any) -> Any:
        raise benching.CompilerUnavailable("there is none in tests")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledModel, "run", counting)
        patch.setattr(benching, "measure", noting)
        patch.setattr(benching, "_compiled", none)
        result = search(tmp_path_factory.mktemp("compiled") / "run")
    return result, ran


def test_what_is_timed_is_the_compiled_network_in_turns_with_the_compiled_original(
    searched: Any,
) -> None:
    result, ran = searched
    view = result.view
    assert view.compiles and view.runner == "compiled" and view.runner_text() == "compiled whole"
    whole = {name: answered for name, answered in ran if name in ("network", ORIGINAL)}
    assert whole == {"network": True, ORIGINAL: True}
    assert all(not answered for name, answered in ran if name in ("site", EAGER))
    original = view.baseline
    assert original.runner == "compiled" and EAGER in {t.runner for t in original.timings}
    done = [c for c in view.candidates() if c.state == "done"]
    assert done
    for candidate in done:
        assert candidate.runner == "compiled" and not candidate.why_layers
        assert {AS_TIMED, ORIGINAL} <= {t.runner for t in candidate.timings}


def test_finalists_are_timed_as_apply_gives_them_beside_eager(searched: Any) -> None:
    result, ran = searched
    final = result.view.final
    (finalist,) = [c for c in result.view.candidates() if c.finals]
    assert final.runners == {"baseline": "compiled", finalist.id: "compiled"}
    assert set(final.latencies_us) == {"baseline", finalist.id}
    assert final.eager_us and "baseline, torch.compile" in final.skipped
    last = dict(ran[-3:])
    assert last == {"baseline": True, finalist.id: True, EAGER: False}
    model = result[finalist.id].apply(measured=False).eval()
    assert compiled_of(model) is not None and compiled_of(model).fallbacks == {}
    left = result[finalist.id].apply(measured=False, compile=False).eval()
    assert compiled_of(left) is None
    asked: list[bool] = []
    real = serving.compile_model
    with pytest.MonkeyPatch.context() as patch:

        def compile_model(module: Any, inputs: Any, settings: Any) -> Any:
            asked.append(settings["derive"])
            return real(module, inputs, {**settings, "seconds": 0.5})

        patch.setattr(serving, "compile_model", compile_model)
        derived = result[finalist.id].apply(measured=False, derive=True).eval()
    assert asked == [True] and compiled_of(derived) is not None
    with torch.no_grad():
        torch.testing.assert_close(model(example()), left(example()), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(derived(example()), left(example()), rtol=1e-4, atol=1e-5)


def test_report_and_commands_say_who_ran_the_networks(searched: Any) -> None:
    result, _ = searched
    (finalist,) = [c for c in result.view.candidates() if c.finals]
    report = result.report
    assert report.runner == "compiled whole" and report.baseline.runner == "compiled"
    entry = next(c for c in report.candidates if c.id == finalist.id)
    assert list(entry.peers_us) == [
        "this network, compiled whole, in turns with the original",
        "the original, compiled whole, in turns",
        EAGER,
    ]
    final = result.view.final
    assert report.original_us == {
        "compiled whole": final.latencies_us["baseline"], "eager": final.eager_us,
    }  # fmt: skip
    for text in (to_html(report), to_markdown(report)):
        assert "compiled whole" in text and f"eager {significant(final.eager_us)} µs" in text
    run, directory = CliRunner(), str(result.view.directory)
    status = run.invoke(app, ["status", directory]).output
    assert "latencies of networks compiled whole" in status
    assert f"eager {significant(final.eager_us)} us" in status
    judged = result.verdict().judged
    assert {one.runner for one in judged} <= {"compiled"}
    if judged and judged[0].held in ("proven", "undecided"):
        assert "both compiled whole" in result.verdict().sentence
    assert '"runner": "compiled"' in run.invoke(app, ["status", directory, "--json"]).output
    shown = run.invoke(app, ["show", directory, finalist.id]).output
    assert "whole network, compiled whole:" in shown
    timed = run.invoke(app, ["bench", directory, finalist.id, "--against", "eager,whole"])
    assert timed.exit_code == 0, timed.output
    for row in ("original, compiled whole", f"{finalist.id}, compiled whole"):
        assert row in timed.output


def test_a_loaded_result_is_applied_in_another_process(searched: Any, tmp_path: Path) -> None:
    result, _ = searched
    (finalist,) = [c for c in result.view.candidates() if c.finals]
    here = result[finalist.id].apply(measured=False).eval()
    (tmp_path / "pairs.py").write_text(SOURCE)
    torch.save(example(), tmp_path / "x.pt")
    code = (
        "import sys, torch, pairs, syno\n"
        "from syno.graph.serving import compiled_of\n"
        f"found = syno.Result.load({str(result.view.directory)!r})[{finalist.id!r}]\n"
        "x = torch.load('x.pt')\n"
        "made = [found.apply(m, measured=False).eval() for m in (None, pairs.Pair())]\n"
        "with torch.no_grad():\n"
        "    torch.save([m(x) for m in made], 'y.pt')\n"
        "assert all(compiled_of(m) is not None and not compiled_of(m).fallbacks for m in made)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        for there in torch.load(tmp_path / "y.pt"):
            torch.testing.assert_close(there, here(example()), rtol=1e-4, atol=1e-5)


def recorded(result: Result) -> dict[str, Any]:
    view = result.view
    return {
        c.id: (c.runner, c.latency_us, [(t.runner, t.site, t.latency_us) for t in c.timings])
        for c in [view.baseline, *view.candidates()]
    }


def test_a_killed_search_that_goes_on_keeps_what_is_recorded(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from pathlib import Path\n"
        "from test_compiled_search import search\n"
        "def killed(what, candidate, view):\n"
        "    if what == 'measured' and candidate.kind != 'baseline':\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"search(Path({str(tmp_path / 'run')!r}), callbacks=killed)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    first = Result.load(tmp_path / "run")
    assert first.interrupted
    before = recorded(first)
    assert before["baseline"][0] == "compiled" and before["c1"][0] == "compiled"
    again = recorded(search(tmp_path / "run"))
    assert {id: again[id] for id in before} == before
    assert {runner for runner, *_ in again.values()} == {"compiled"}


def test_a_model_that_cannot_be_compiled_is_searched_layer_by_layer(tmp_path: Path) -> None:
    torch.manual_seed(0)
    result = search(tmp_path / "run", _NAMES["Deciding"]())
    view = result.view
    assert not view.interrupted and view.status()["runner"] == "layers"
    why = view.baseline.why_layers
    assert "Deciding" in why and view.status()["why_layers"] == why
    done = [c for c in view.candidates() if c.state == "done"]
    assert done and all(c.runner == "layers" and c.why_layers for c in done)
    assert EAGER not in {t.runner for t in view.baseline.timings}
    assert set(view.final.runners) == {"baseline", *(c.id for c in done if c.finals)}
    assert all(text.startswith("layers: ") for text in view.final.runners.values())
    assert view.final.eager_us is None
    assert any("cannot be compiled whole" in note for note in view.notes())
    assert f"layer by layer: {why}" in " ".join(to_markdown(result.report).split())
    shown = CliRunner().invoke(app, ["status", str(tmp_path / "run")]).output
    assert "layer by layer" in shown
    model = result[done[0].id].apply(_NAMES["Deciding"](), measured=False).eval()
    assert compiled_of(model) is None and model(example()).shape == (2, 2)


def test_one_network_that_cannot_be_compiled_is_timed_by_its_layers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syno.graph import serving
    from syno.torch import Op

    compiled_or_why = serving.compiled_or_why

    def refusing(module: nn.Module, given: Any, **named: Any) -> Any:
        if any(isinstance(each, Op) for each in module.modules()):
            return "operators are not liked here"
        return compiled_or_why(module, given, **named)

    monkeypatch.setattr(serving, "compiled_or_why", refusing)
    result = search(tmp_path / "run", budget=1, finalists=0)
    (candidate,) = result.view.candidates()
    assert result.view.runner == "compiled" and candidate.runner == "layers"
    assert candidate.why_layers == "operators are not liked here"
    assert result.view.notes() == ["timed layer by layer: c1: operators are not liked here"]
    assert "layer by layer (operators are not liked here)" in result.view.explain(candidate)


def test_sessions_from_before_go_on_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = NetworkMeasurer.measure

    def silent(self: NetworkMeasurer, request: MeasureRequest) -> Measurement:
        return msgspec.structs.replace(measure(self, request), runner="")

    with pytest.MonkeyPatch.context() as before:
        before.setattr("syno.searching.pipeline.compiled_in", lambda directory: False)
        before.setattr(NetworkMeasurer, "measure", silent)
        search(tmp_path / "run", budget=1, finalists=0)
    view = Result.load(tmp_path / "run").view
    assert not view.compiles and view.runner == "layers" and view.candidates()[0].runner == ""
    result = search(tmp_path / "run")
    assert result.view.runner_text() == "layer by layer"
    assert [c.runner for c in result.view.candidates()] == ["", "layers"]
    assert result.view.final.runners == {} and result.view.final.eager_us is None
    assert "the original in eager, in turns" in result.report.baseline.peers_us


def test_a_recorded_measurer_says_who_ran_the_networks(searched: Any) -> None:
    from syno.session.recorded import RecordedMeasurer

    result, _ = searched
    view = result.view
    candidate = view.candidates()[0]
    texts = {s: view._store.operator(k) for s, k in view.assignment(candidate).items()}
    request = MeasureRequest(
        candidate=candidate.number, assignment=texts, threads=1, time_limit_s=60.0
    )
    found = RecordedMeasurer(str(view.directory)).measure(request)
    assert found.runner == "compiled" and found.latency_us == candidate.latency_us


def test_a_model_alone_is_timed_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(
        SOURCE + "\ndef pair():\n    return Pair()\n\ndef deciding():\n    return Deciding()\n"
    )
    run, name = CliRunner(), f"{tmp_path}/made.py"
    timed = run.invoke(app, ["bench", f"{name}:pair", "--example", "2,8,24", "--against", "whole"])
    assert timed.exit_code == 0, timed.output
    assert "original, compiled whole" in timed.output
    timed = run.invoke(
        app, ["bench", f"{name}:deciding", "--example", "2,8,24", "--against", "whole", "--json"]
    )
    assert timed.exit_code == 0 and "Deciding" in timed.output
    for words, said in (
        ([f"{name}:pair"], "--example"),
        ([str(tmp_path)], "without a candidate"),
        ([str(tmp_path), "c1", "--example", "2,8,24"], "--example with a session"),
        ([f"{name}:pair", "--example", "2,x"], "2,x"),
    ):
        refused = run.invoke(app, ["bench", *words])
        assert refused.exit_code != 0 and said in refused.output, refused.output


def test_a_users_model_is_left_without_a_compiled_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = _NAMES["Pair"]()
    task = syno.Task(name="same", model=lambda: model, train=batches(2), validation=batches(1))
    search(tmp_path / "run", model, data=task, budget=1)
    assert compiled_of(model) is None


def test_a_candidate_is_exported_as_a_compiled_network(searched: Any, tmp_path: Path) -> None:
    result, _ = searched
    (finalist,) = [c for c in result.view.candidates() if c.finals]
    words = ["export", str(result.view.directory), finalist.id, "--format", "bundle"]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "net")])
    assert done.exit_code == 0, done.output
    model = result[finalist.id].apply(measured=False, compile=False).eval()
    with torch.no_grad():
        wanted = model(example())
    there = torch.as_tensor(syno.load(tmp_path / "net")(example().numpy()))
    torch.testing.assert_close(there, wanted, rtol=1e-4, atol=1e-5)
