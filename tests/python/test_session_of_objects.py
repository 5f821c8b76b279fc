"""A session that was searched with objects of a process is used from another: with the model alone, or the task."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import syno  # noqa: E402
import syno.export.linking as linking  # noqa: E402
from syno.cli.main import app  # noqa: E402
from syno.errors import SessionError, ShapeError, TaskError, UnknownName  # noqa: E402
from syno.report import rows  # noqa: E402
from syno.searching.result import Result, load_weights  # noqa: E402
from syno.searching.revisit import replay_candidate  # noqa: E402
from syno.session import (  # noqa: E402
    Prune,
    SessionView,
    original_file,
)
from syno.session.network_file import FILE, VALUES, read_network  # noqa: E402
from syno.torch import Op  # noqa: E402
from syno.training.task import Task  # noqa: E402

needs_compiler = pytest.mark.skipif(linking.c_compiler() is None, reason="no C compiler")

SOURCE = """
import torch
from torch import nn
from syno.training.task import Task

class Pair(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Conv1d(8, width, 3, padding=1)
        self.second = nn.Conv1d(width, 8, 3, padding=1)
        self.head = nn.Linear(8, 2)

    def forward(self, a, scale):
        h = self.second(torch.relu(self.first(a)))
        return self.head(torch.relu(h).mean(-1)) * scale

def batches(count):
    g = torch.Generator().manual_seed(1)
    x = torch.randn(count, 8, 8, 12, generator=g)
    return [((a, torch.ones(8, 1)), (a[:, 0].mean(-1) > 0).long()) for a in x]

def model():
    return Pair()

def wider():
    return Pair(16)

def task():
    return Task(name="Pair", model=Pair, train=batches(3), validation=batches(1))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A session with a finalist, its source, the finalist, and what the process had that made it."""
    root = tmp_path_factory.mktemp("objects")
    (root / "pair.py").write_text(SOURCE)
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    model, data = names["model"](), names["batches"]
    example = data(1)[0][0]
    sites = syno.sites(model, example, repeats=1)
    with pytest.MonkeyPatch.context() as patch:
        # It calls torch.compile, which takes its time.
        patch.setattr("syno.searching.pipeline.compare_finalists", lambda *_: None)
        result = syno.search(
            model, example, sites=sites.where(kind="conv1d"), data=(data(2), data(1)), budget=1,
            session=root / "run", finalists=1, final_seeds=1, batch_width=1, policy="random",
            prune=Prune(), progress="off",
        )  # fmt: skip
    (candidate,) = result.view.candidates()
    assert candidate.finals, candidate
    return root, candidate.id, result


def command(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_candidate_is_applied_to_the_model_alone(made: Any) -> None:
    root, id, result = made
    found = Result.load(root / "run")[id]
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    args = Result.load(root / "run").example
    new = found.apply(names["model"](), measured=False).eval()
    here = result[id].apply(measured=False).eval()
    assert sum(isinstance(m, Op) for m in new.modules()) == 2
    with torch.no_grad():
        torch.testing.assert_close(new(*args), here(*args), rtol=0, atol=0)
    assert (
        found.apply(names["model"]().double()).eval()(*(t.double() for t in args)).dtype
        == torch.float64
    )


def test_a_session_alone_is_enough_to_apply_bench_and_export(made: Any, tmp_path: Path) -> None:
    root, id, result = made
    found = Result.load(root / "run")
    args = found.example
    new = found[id].apply(measured=False)
    here = result[id].apply(measured=False).eval()
    assert not new.training and sum(isinstance(m, Op) for m in new.modules()) == 2
    with torch.no_grad():
        torch.testing.assert_close(new(*args), here(*args), rtol=0, atol=0)
        torch.testing.assert_close(
            found.original()(*args), result.original().eval()(*args), rtol=0, atol=0
        )
        jit = torch.jit.trace(new, tuple(args))
        torch.testing.assert_close(jit(*args), here(*args))
    done = command("bench", root / "run", id, "--against", "eager", "--json")
    assert done.exit_code == 0, done.output
    assert {t["name"] for t in json.loads(done.stdout)["timings"]} == {"original", id}
    for format, file in (
        ("torch", "manifest.json"),
        ("bundle", "kernels.so"),
        ("safetensors", "model.safetensors"),
    ):
        out = tmp_path / format
        done = command("export", root / "run", id, "--format", format, "-o", out)
        assert done.exit_code == 0, done.output
        assert (out / file).exists() and "weights trained with seed 1" in done.stdout
    from safetensors.torch import load_file

    held, own = load_file(tmp_path / "safetensors" / "model.safetensors"), here.state_dict()
    assert held.keys() == own.keys() and all(torch.equal(held[name], own[name]) for name in own)


def test_what_is_missing_is_named(made: Any, tmp_path: Path) -> None:
    root, id, _ = made
    shutil.copytree(root / "run", tmp_path / "run")
    without = json.loads((tmp_path / "run" / original_file.FILE).read_text())
    without["graph"], without["why_none"] = None, "torch.export: its shapes depend on data"
    found = Result.load(root / "run")[id]
    done = command("replay", root / "run", id)
    assert done.exit_code == 1 and "R012" in done.stderr and "--task" in done.stderr
    # One whose model could not be written down.
    monkey = pytest.MonkeyPatch()
    monkey.setattr(SessionView, "check_file", lambda *_: None)
    (tmp_path / "run" / original_file.FILE).write_text(json.dumps(without))
    with pytest.raises(
        SessionError, match=r"(?s)not with a named task, and keeps no model: torch.export: its shapes.*apply\(model\).*--task"
    ) as caught:  # fmt: skip
        Result.load(tmp_path / "run")[id].apply()
    assert caught.value.code == "R012"
    done = command("bench", tmp_path / "run", id)
    assert done.exit_code == 1 and "R012" in done.stderr, done.output
    done = command("export", tmp_path / "run", id, "--format", "torch", "-o", tmp_path / "out")
    assert done.exit_code == 1 and "--model" in done.stderr
    monkey.undo()
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    wider = names["wider"]()
    with pytest.raises(ShapeError, match="another layer than the site"):
        found.apply(wider, measured=False)
    path = next(iter(found._result.view.weights(found.candidate).values()))
    with pytest.raises(SessionError, match="do not fit Linear"):
        load_weights(nn.Linear(2, 2), path, id)


class Scaled(nn.Module):
    """A parameter that nothing draws anew, beside layers that are."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(8, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.randn(8, 1))
        self.head = nn.Linear(8, 2)

    def forward(self, a: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.first(a) * self.scale).mean(-1)) * scale


@pytest.mark.parametrize("pretrained", [False, True])
def test_a_replay_begins_with_the_weights_that_the_search_began_with(
    pretrained: bool, tmp_path: Path
) -> None:
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    train, validation = names["batches"](3), names["batches"](1)
    model = Scaled()
    result = syno.search(
        model, train[0][0], sites=syno.sites(model, train[0][0], repeats=1).where(kind="conv1d"),
        data=(train, validation), budget=1, session=tmp_path / "run", finalists=0, batch_width=1, policy="random",
        prune=Prune(), progress="off", pretrained=pretrained, metric="loss", learning_rate=0.05,
    )  # fmt: skip
    (candidate,) = result.view.candidates()
    task = Task(
        name="again", model=Scaled, train=train, validation=validation, metric="loss", learning_rate=0.05
    )  # fmt: skip
    torch.manual_seed(1)
    again = replay_candidate(
        tmp_path / "run", candidate.id, tolerance=0.0, latency_tolerance=1e9, task=task
    )
    (row,) = [row for row in again["rows"] if row["quantity"] == "loss"]
    assert row["same"], row
    with pytest.raises(TaskError, match="is not the one that was searched"):
        replay_candidate(
            tmp_path / "run", candidate.id, tolerance=0.0, task=task.but(model=lambda: nn.Linear(2, 3))
        )  # fmt: skip


def test_commands_take_the_model_or_the_task(made: Any) -> None:
    root, id, _ = made
    pair = root / "pair.py"
    done = command(
        "bench", root / "run", id, "--against", "eager", "--model", f"{pair}:model", "--json"
    )
    assert done.exit_code == 0, done.output
    assert {t["name"] for t in json.loads(done.stdout)["timings"]} == {"original", id}
    done = command(
        "replay",
        root / "run",
        id,
        "--task",
        f"{pair}:task",
        "--latency-tolerance",
        "1000",
        "--json",
    )
    assert done.exit_code == 0, done.output
    wrong = command("bench", root / "run", id, "--model", f"{pair}:batches")
    assert wrong.exit_code == 1 and "failed" in wrong.stderr
    wrong = command("bench", root / "run", id, "--model", f"{pair}:dir")
    assert wrong.exit_code == 1


def test_all_operators_of_a_candidate_are_shown(made: Any, monkeypatch: Any) -> None:
    from syno.session import SessionView

    root, id, _ = made
    result = Result.load(root / "run")
    candidate = result.view.candidate(id)
    assert result.view.formula(candidate) == candidate.expr
    # As it is in a later stage, where an earlier one has chosen an operator of its own.
    both = {"an earlier stage": candidate.key, candidate.stage: candidate.key}
    monkeypatch.setattr(SessionView, "assignment", lambda view, c: both if c.key else {})
    shown = [repr(result[id]), next(r["formula"] for r in rows(result.report) if r["id"] == id)]
    shown += [str(command("status", root / "run").stdout)]
    for text in shown:
        plain = " ".join(text.split())
        assert all(f"{stage}: " in plain for stage in both), text
    text = result.view.explain(candidate)
    assert f"beside it, in the sites of stage 'an earlier stage': {candidate.expr}" in text
    shown_again = json.loads(command("show", root / "run", id, "--json").stdout)
    assert shown_again["formulas"] == dict.fromkeys(both, candidate.expr)


def trained(made: Any) -> Any:
    _, id, result = made
    return result[id].apply(measured=False).eval()


def test_onnx_is_the_trained_network(made: Any, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    root, id, _ = made
    done = command(
        "export", root / "run", id, "--format", "onnx", "-o", tmp_path / "o", "--model", f"{root / 'pair.py'}:model",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert f"the network with {id}, weights trained with seed 1" in done.stdout
    assert "the batch included" in done.stdout
    session = onnxruntime.InferenceSession(str(tmp_path / "o" / "model.onnx"))
    args = Result.load(root / "run").example
    inputs = {i.name: t.numpy() for i, t in zip(session.get_inputs(), args, strict=True)}
    with torch.no_grad():
        wanted = trained(made)(*args).numpy()
    np.testing.assert_allclose(session.run(None, inputs)[0], wanted, rtol=1e-4, atol=1e-5)


@needs_compiler
def test_c_is_every_operator_with_its_trained_weights(made: Any, tmp_path: Path) -> None:
    root, id, _ = made
    done = command(
        "export", root / "run", id, "--format", "c", "-o", tmp_path / "c", "--json", "--model", f"{root / 'pair.py'}:model",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert "seed 1" in facts["what"] and facts["cpu"] and "float32" in facts["inputs"]
    layers = json.loads((tmp_path / "c" / "layers.json").read_text())
    network = trained(made)
    data = (tmp_path / "c" / "weights.bin").read_bytes()
    assert {layer["site"] for layer in layers} == {"first", "second"}
    for layer in layers:
        op = network.get_submodule(layer["site"])
        weights = {i["name"]: i for i in layer["inputs"] if i["weights_bin_at"] is not None}
        assert set(weights) <= set(op.operator.weights) and weights
        for name, entry in weights.items():
            count = int(np.prod(entry["shape"]))
            held = np.frombuffer(data, np.float32, count, entry["weights_bin_at"])
            own = getattr(op, op._names[name]).detach().numpy()
            np.testing.assert_array_equal(held.reshape(entry["shape"]), own)
        bias = np.frombuffer(data, np.float32, op.bias.numel(), layer["bias_at"])
        np.testing.assert_array_equal(bias, op.bias.detach().numpy())
    header = (tmp_path / "c" / "network.h").read_text()
    assert "the batch included" in header and "the layer adds its bias" in header
    subprocess.run(
        ["cc", "-O2", "main.c", *(layer["kernel"] for layer in {la["kernel"]: la for la in layers}.values()), "-lm", "-o", "m"],
        cwd=tmp_path / "c", check=True,
    )  # fmt: skip
    run = subprocess.run(["./m"], cwd=tmp_path / "c", capture_output=True, text=True, check=True)
    assert "first: max_abs_err" in run.stdout and "second: max_abs_err" in run.stdout


@needs_compiler
def test_one_operator_is_exported_by_the_name_of_its_site(made: Any, tmp_path: Path) -> None:
    root, id, _ = made
    done = command(
        "export",
        root / "run",
        id,
        "--format",
        "safetensors",
        "-o",
        tmp_path / "s",
        "--operator",
        "first",
    )
    assert done.exit_code == 0, done.output
    assert f"the operator of {id} at site first, weights trained with seed 1" in done.stdout
    from safetensors.torch import load_file

    held = load_file(tmp_path / "s" / "model.safetensors")
    own = trained(made).get_submodule("first").state_dict()
    assert set(held) == set(own)
    assert all(torch.equal(held[name], own[name]) for name in own)
    done = command(
        "export", root / "run", id, "--format", "c", "-o", tmp_path / "c", "--operator", "second"
    )
    assert done.exit_code == 0 and (tmp_path / "c" / "network.h").exists(), done.output
    done = command(
        "export", root / "run", id, "--format", "c", "-o", tmp_path / "d", "--operator", "head"
    )
    assert done.exit_code == 2 and "Valid: first, second" in done.stderr


def test_c_is_exported_for_another_cpu(made: Any, tmp_path: Path) -> None:
    root, id, _ = made
    done = command(
        "export", root / "run", id, "--format", "c", "-o", tmp_path / "c", "--operator", "second",
        "--target", "aarch64-linux-gnu", "--cpu", "cortex-a76",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "cortex-a76 (aarch64-linux-gnu)" in done.stdout
    kernels = [path.read_bytes() for path in (tmp_path / "c" / "kernels").iterdir()]
    assert kernels and all(kernel[18:20] == b"\xb7\0" for kernel in kernels)  # EM_AARCH64


def test_a_damaged_record_of_the_network_says_what_to_do(made: Any, tmp_path: Path) -> None:
    root, _, _ = made
    text = (root / "run" / FILE).read_text()
    (tmp_path / VALUES).write_bytes((root / "run" / VALUES).read_bytes())
    assert read_network(tmp_path) is None
    (tmp_path / FILE).write_text(text)
    assert read_network(tmp_path) is not None
    damages = [
        text[:100], text.replace('"version": 1', '"version": 9'), text.replace('"tensor": 0', '"tensor": 7'),
        text.replace('"tuple"', '"code"'), text.replace('"calls"', '"cells"'), "[]", "",
    ]  # fmt: skip
    for damaged in damages:
        (tmp_path / FILE).write_text(damaged)
        with pytest.raises(SessionError, match="cannot be used") as caught:
            read_network(tmp_path)
        assert "example" in caught.value.fix
    (tmp_path / FILE).write_text(text)
    (tmp_path / VALUES).write_bytes(b"12345678")
    with pytest.raises(SessionError, match="cannot be used"):
        read_network(tmp_path)


def test_another_process_uses_the_session(made: Any) -> None:
    root, id, _ = made
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import pair, syno\n"
        "from syno.searching.result import Result\n"
        "found = Result.load(sys.argv[1] + '/run')\n"
        "print(found[sys.argv[2]].apply(pair.model(), measured=False).eval()(*found.example).shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(root), id], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "torch.Size([8, 2])", done.stderr


def test_unknown_seeds_and_sites_are_named(made: Any) -> None:
    root, id, _ = made
    from syno.searching.revisit import export_candidate

    with pytest.raises(SessionError, match="no trained weights of seed 77"):
        export_candidate(root / "run", id, format="onnx", output=root / "x", seed=77)
    with pytest.raises(UnknownName, match="unknown site 'nope'"):
        export_candidate(root / "run", id, format="onnx", output=root / "x", operator="nope")
