"""The paper's experiments: their parts, and each of them once on something tiny."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

import syno  # noqa: E402
from syno import models  # noqa: E402
from syno.torch import Op  # noqa: E402
from syno.training.tasks import digits  # noqa: E402
from syno.training.train import torch_threads  # noqa: E402

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
from paper import end_to_end, gpt, layers, peers, store, substitutes, trained  # noqa: E402


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with torch_threads(1):
        yield


def options_of(module: Any, output: Path, *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.arguments(parser)
    parser.add_argument("--output", type=Path)
    return parser.parse_args([*words, "--output", str(output)])


def without_compiler(*_: Any) -> Any:
    raise peers.Absent("no compiler in this test")


def test_results_grow_by_key_and_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "rows.json"
    store.add(path, {"b": {"us": 2.0}})
    document = store.add(path, {"a": {"us": 1.0}, "b": {"us": 3.0}})
    assert list(document["rows"]) == ["a", "b"]
    assert document["rows"]["b"]["us"] == 3.0
    assert {"machine", "date", "command"} <= set(document["rows"]["a"])
    assert store.read(path) == json.loads(path.read_text())
    path.write_text("[]")
    with pytest.raises(SystemExit, match="not a results file"):
        store.add(path, {})


def test_the_command_leaves_out_where_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["x", "gpt", "--output", "/tmp/a", "--steps", "3", "--json"])
    assert store.command() == "python benchmarks/paper_syno.py gpt --steps 3"


@settings(max_examples=40, deadline=None)
@given(
    channels=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=3),
    groups=st.integers(1, 5),
    shrink=st.integers(1, 5),
)
def test_factors_divide_every_layer_and_none_greater_would(
    channels: list[tuple[int, int]], groups: int, shrink: int
) -> None:
    network = torch.nn.ModuleList(torch.nn.Conv2d(4 * i, 4 * o, 1) for i, o in channels)

    class All(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network

        def forward(self, x: Any) -> Any:
            return [layer(x[:, :1].expand(-1, layer.in_channels, -1, -1)) for layer in self.layers]

    group = syno.sites(All(), torch.zeros(1, 1, 3, 3), repeats=1).groups()[0]
    pairs = {
        (g, s)
        for g in range(1, groups + 1)
        for s in range(1, shrink + 1)
        if all(4 * i % g == 0 and 4 * o % (g * s) == 0 for i, o in channels)
    }
    g, s = substitutes.factors(group, groups, shrink)
    assert (g, s) in pairs
    assert g * s == max(a * b for a, b in pairs)


def test_the_stem_and_depthwise_convolutions_stay() -> None:
    model = models.make("mobilenet_v2").eval()
    found = syno.sites(model, torch.randn(1, 3, 64, 64), repeats=1)
    chosen = substitutes.replaceable(found, [1, 3])
    assert chosen
    assert all(site.layer.in_channels > 3 and not site.layer.depthwise for site in chosen)
    assert substitutes.replaceable(found, [7]) == []


def test_a_peer_that_computes_something_else_ends_the_run() -> None:
    wanted = torch.tensor([1.0, -2.0])
    assert peers.agree("same", lambda: wanted, wanted) == 0
    with pytest.raises(SystemExit, match="other computes something else"):
        peers.agree("other", lambda: wanted + 0.1, wanted)
    with pytest.raises(SystemExit):
        peers.agree("nan", lambda: wanted * float("nan"), wanted)


def test_compiling_another_network_leaves_the_first_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def backend(graph: Any, inputs: Any) -> Any:
        made.append(graph)
        return graph.forward

    compile = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda model, **options: compile(model, backend=backend, **options)
    )
    torch._dynamo.reset()
    x = torch.randn(2, 3)
    with torch.no_grad():
        runs = [
            peers.compiled(torch.nn.Sequential(torch.nn.Linear(3, n), torch.nn.ReLU()), x, 1)
            for n in (2, 3, 4)
        ]
        shapes = [tuple(run().shape) for run in runs]
    assert shapes == [(2, 2), (2, 3), (2, 4)]
    assert len(made) == 3


def test_quantised_networks_keep_their_answers() -> None:
    pytest.importorskip("torch.ao.quantization.quantize_fx")
    task = digits()
    model = task.make_model(0).eval()
    x = task.example(64)
    with torch.inference_mode():
        wanted, got = model(x), trained.quantised(model, task, 2)(x)
    assert float((got - wanted).abs().max()) < 0.2 * float(wanted.abs().max())
    assert not torch.equal(got, wanted)


def test_trained_networks_have_the_operators_in_their_convolutions() -> None:
    task = digits()
    names = {
        name
        for name, module in trained.network(task, "stacked", 0, Path()).named_modules()
        if isinstance(module, Op)
    }
    blocks = {f"stages.{stage}.conv{i}" for stage in ("0.0", "1.3") for i in (1, 2)}
    assert names == {"stages.1.0", *blocks}  # not the stem, not the head
    searched = trained.network(task, "searched", 0, trained.SEARCHED)
    assert sum(isinstance(m, Op) for m in searched.modules()) == len(names)
    plain = trained.network(task, "conv", 0, Path())
    assert not any(isinstance(m, Op) for m in plain.modules())


def test_layers_are_measured_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "compiled", without_compiler)
    words = ["--network", "cifar_resnet18", "--image", "24", "--turns", "3"]
    options = options_of(layers, tmp_path / "rows.json", *words, "--layers", "64-64-24-s1")
    document = layers.run(options)
    found = {row["contestant"] for row in document["rows"].values()}
    assert {"conv, eager", "conv", "operator1", "operator2", "grouped", "bottleneck"} <= found
    dense, one = document["rows"]["64-64-24-s1/conv"], document["rows"]["64-64-24-s1/operator1"]
    assert one["flops"] * 3 < dense["flops"] == 64 * 64 * 9 * 24 * 24
    assert (
        max(row["speed_up"] for row in document["rows"].values() if "conv, " in row["contestant"])
        == 1
    )
    layers.plot(document, tmp_path / "rows.svg")
    assert (tmp_path / "rows.svg").read_text().startswith("<?xml")
    options.layers = ["1-1-1-s1"]
    with pytest.raises(SystemExit, match="64-128-12-s2"):
        layers.run(options)


def test_networks_are_measured_and_drawn(tmp_path: Path) -> None:
    words = ["--networks", "resnext29", "--operators", "grouped", "--compile", "--peers"]
    options = options_of(
        end_to_end,
        tmp_path / "rows.json",
        *words,
        "--image",
        "16",
        "--turns",
        "3",
        "--windows",
        "3",
    )
    document = end_to_end.run(options)
    original, grouped = (document["rows"][f"resnext29/{name}"] for name in ("original", "grouped"))
    assert original["sites"] == 9
    assert grouped["params"] < original["params"]
    assert grouped["flops"] < original["flops"]
    assert original["speed_up"] == 1
    end_to_end.plot(document, tmp_path / "rows.svg")


def test_a_language_model_is_trained_with_every_variant(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    words = "--steps 4 --search-steps 2 --candidates 2 --width 16 --layers 1 --context 16 --parts qkv --turns 3"
    options = options_of(gpt, tmp_path / "rows.json", "--text", str(file), *words.split())
    document = gpt.run(options)
    names = ["original", *(f"qkv, {variant}" for variant in gpt.VARIANTS)]
    assert set(document["rows"]) == {f"{n}/{what}" for n in names for what in ("seed 0", "step")}
    for name in names:
        row, step = document["rows"][f"{name}/seed 0"], document["rows"][f"{name}/step"]
        assert row["curve"][-1][0] == 4 and row["loss"] > 0 and step["ms"] > 0
    options.no_timing = True
    assert gpt.run(options) == document  # nothing is trained twice
    gpt.plot(document, tmp_path / "rows.svg")
    options.text = str(tmp_path / "absent.txt")
    with pytest.raises(SystemExit, match=r"absent\.txt cannot be read"):
        gpt.run(options)
