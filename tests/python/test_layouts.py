"""Layouts over a network: the assignment is the best there is, what is compiled computes the same, bundles keep it."""

from __future__ import annotations

import builtins
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import syno  # noqa: E402
from syno import _core  # noqa: E402
from syno.errors import ArgumentError, ScheduleError, UnknownName  # noqa: E402
from syno.graph.assigning import FIXED, Part, Piece, assigned  # noqa: E402
from syno.graph.compile import Compiling, compile_network  # noqa: E402
from syno.graph.from_torch import from_module  # noqa: E402
from syno.graph.layout_names import LAYOUTS  # noqa: E402
from syno.graph.layouts import Choices, Family, Layouts, channels, families_of  # noqa: E402

# Assigning


def least_sum(
    pieces: Sequence[Piece],
    kinds: dict[str, tuple[str, ...]],
    costs: dict[tuple[str, str, str], float],
) -> float:
    """By trying everything."""
    best = float("inf")
    for made in itertools.product(*kinds.values()):
        kind_of = dict(zip(kinds, made, strict=True))
        for parts in itertools.product(*(piece.parts for piece in pieces)):
            if any(kind_of.get(n, FIXED) != k for part in parts for n, k in part.makes.items()):
                continue
            wanted = {
                (n, kind_of.get(n, FIXED), k) for part in parts for n, k in part.reads.items()
            }
            total = sum(part.seconds for part in parts)
            total += sum(costs[each] for each in wanted if each[1] != each[2])
            best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(25))
def test_the_assignment_is_the_best_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = ["x", *(f"t{i}" for i in range(int(rng.integers(2, 5))))]
    every = ("row-major", "last", "blocked")
    kinds = {name: every[: int(rng.integers(1, 4))] for name in names[1:]}
    costs = {
        (name, a, b): float(rng.uniform(0.1, 3)) * 1e-6
        for name in names for a in every for b in every if a != b
    }  # fmt: skip
    pieces = []
    for i, made in enumerate(names[1:], 1):
        reads = sorted({str(name) for name in rng.choice(names[:i], size=min(i, 2))})
        parts = tuple(
            Part(dict(zip(reads, ks, strict=True)), {made: k}, float(rng.uniform(1, 5)) * 1e-6)
            for ks in itertools.product(every, repeat=len(reads))
            for k in every
            if rng.random() < 0.8 or k == "row-major"
        )
        pieces.append(Piece(f"p{i}", parts))
    found = assigned(pieces, kinds, lambda name, a, b: costs[name, a, b])
    assert found.seconds == pytest.approx(least_sum(pieces, kinds, costs), rel=1e-6)
    total = sum(part.seconds for part in found.parts.values())
    total += sum(costs[name, found.made.get(name, FIXED), kind] for name, kind in found.conversions)
    assert found.seconds == pytest.approx(total, rel=1e-6)


def test_what_is_converted_was_made_so() -> None:
    """A cheap conversion from a kind that nobody makes is none."""
    make = Piece("make", (Part({}, {"t": "row-major"}, 1e-6), Part({}, {"t": "last"}, 99e-6)))
    read = Piece("read", (Part({"t": "blocked"}, {}, 1e-6),))
    costs = {"row-major": 3e-6, "last": 0.1e-6}
    found = assigned(
        [make, read], {"t": ("row-major", "last")}, lambda name, source, kind: costs[source]
    )
    assert found.made == {"t": "row-major"}
    assert found.conversions == {("t", "blocked"): ("read",)}
    assert found.seconds == pytest.approx(5e-6)


def test_what_cannot_be_assigned_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    only = Piece("p", (Part({}, {"t": "last"}, 1e-6),))
    with pytest.raises(ScheduleError, match="no way is left to compute p"):
        assigned([only], {"t": ("row-major",)}, lambda *_: 0.0)
    there = builtins.__import__

    def without_scipy(name: str, *args: Any) -> Any:
        if name.startswith("scipy"):
            raise ImportError(name)
        return there(name, *args)

    monkeypatch.setattr(builtins, "__import__", without_scipy)
    with pytest.raises(ArgumentError, match=r"syno\[tune\]"):
        assigned([only], {"t": ("last",)}, lambda *_: 0.0)


# Candidates


def test_families_fit_shapes_of_any_rank() -> None:
    row_major, last, blocked = families_of(8)
    assert row_major.layout([2, 16, 5], 1) is None
    assert last.layout([2, 16, 5], 1) == "reorder(0, 2, 1)"
    assert last.layout([2, 5, 16], 2) is None, "it is already"
    assert last.layout([2, 16, 3, 4, 5], 1) == "reorder(0, 2, 3, 4, 1)"
    assert blocked.layout([2, 16, 5], 1) == "split(1, 2, 8) reorder(0, 1, 3, 2)"
    assert blocked.layout([2, 12, 5], 1) is None and blocked.layout([2, 8, 5], 1) is None
    assert blocked.layout([2, 5, 16], 2) == "split(2, 2, 8) reorder(0, 1, 2, 3)"
    assert Family("blocked 4", 4).layout([8, 3], 0) == "split(0, 2, 4) reorder(0, 2, 1)"


class Model(nn.Module):
    """Convolutions, a residual, pooling and a product, of channels that can be cut by 16 and by 8."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 3, padding=1)
        self.narrow = nn.Conv2d(32, 16, 1)
        self.wide = nn.Conv2d(16, 32, 3, padding=1)
        self.depth = nn.Conv2d(32, 32, 3, stride=2, padding=1, groups=32)
        self.last = nn.Linear(32, 5)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.stem(x))
        y = torch.relu(self.wide(torch.relu(self.narrow(y))) + y)
        y = torch.nn.functional.max_pool2d(y, 2)
        return self.last(torch.relu(self.depth(y)).mean((2, 3)))


def model() -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    return Model().eval(), torch.randn(1, 3, 12, 12)


def test_channels_are_found_and_spread() -> None:
    made, x = model()
    network, _ = compile_network(from_module(made, x).network, [x])
    found = channels(network.graph)
    of_rank_4 = {
        name
        for node in network.graph.nodes
        for name in (*node.inputs, *node.outputs)
        if len(network.graph.tensor(name)[0]) == 4 and network.graph.tensor(name)[2] != "weight"
    }
    assert of_rank_4 and all(found[name] == 1 for name in of_rank_4)


def prefers(word: str) -> Any:
    """A cost that is less the more of a program's tensors have this many dimensions, or this order."""

    def cost(program: _core.Program, constants: Sequence[str]) -> float:
        score = 0.0
        for name in (*program.inputs, *program.outputs):
            shape = program.shape(name)
            if name in constants or len(shape) < 4:
                continue
            is_last = len(shape) == 4 and shape[1] == shape[2] and shape[3] > 3
            kind = "blocked" if len(shape) == 5 else "channels-last" if is_last else "row-major"
            score += 1.0 if kind == word else 2.0
        return (1 + score) * 1e-4

    return cost


@pytest.mark.parametrize("choice", LAYOUTS)
def test_networks_compute_the_same_in_every_layout(choice: str) -> None:
    made, x = model()
    fast = syno.compile(made, x, layouts=choice)
    np.testing.assert_allclose(
        fast(x).detach().numpy(), made(x).detach().numpy(), rtol=1e-4, atol=1e-5
    )
    layouts = fast.network.layouts
    if choice == "row-major":
        assert layouts is None
        return
    assert layouts is not None and str(layouts) in str(fast)
    times = layouts.predicted_us
    assert all(times["auto"] <= us * (1 + 1e-9) for us in times.values())
    if choice in ("channels-last", "blocked"):
        texts = {
            text for stage in fast.network.to_dict()["stages"] for text in stage["layouts"].values()
        }
        assert any(("split" in text) == (choice == "blocked") for text in texts)
        assert all(text in str(fast.network) for text in texts)
        assert "by " in fast.network.to_svg() and " by " in fast.network.dot()
    if choice == "measured":
        assert layouts.choice in layouts.measured_us
        assert min(layouts.measured_us.values()) == layouts.measured_us[layouts.choice]


@pytest.mark.parametrize("word", ["row-major", "channels-last", "blocked"])
def test_auto_takes_what_is_predicted_to_be_fast(word: str) -> None:
    made, x = model()
    settings = Compiling(layouts="auto")
    network, _ = compile_network(
        from_module(made, x).network, [x], settings=settings, cost=prefers(word)
    )
    texts = [t for s in network.to_dict()["stages"] for t in s["layouts"].values()]
    if word == "row-major":
        assert not texts and not network.layouts.conversions
    else:
        assert texts and all(("split" in text) == (word == "blocked") for text in texts)


def test_conversions_are_shared_and_counted() -> None:
    """Two readers want what the producer is slow to make: one conversion serves both."""
    graph = _core.Graph("fork")
    graph.add_input("x", [1, 8, 4, 4])
    for name in ("w", "k1", "k2"):
        graph.add_weight(name, [8, 8])
    product = "y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]"
    program = _core.Program.parse(product, shapes={"x": [1, 8, 4, 4], "k": [8, 8]})
    graph.add_program("make", program, ["x", "w"], ["t"])
    graph.add_program("one", program, ["t", "k1"], ["a"])
    graph.add_program("two", program, ["t", "k2"], ["b"])
    graph.set_outputs(["a", "b"])

    def cost(program: _core.Program, constants: Sequence[str]) -> float:
        if not constants:
            return 1e-6  # a conversion
        x, y = (program.shape(n)[1] == 8 for n in (program.inputs[0], program.outputs[0]))
        return (
            50e-6 if not y else 9e-6 if x else 1e-6
        )  # data channels-last is fast, results so slow

    layouts = Layouts(graph, cost, families_of(16)[:2])
    found = layouts.assign()
    assert found.made == {"t": "row-major"}
    assert found.conversions[("t", "channels last")] == ("one", "two")
    made, conversions = layouts.applied(found)
    made.verify()
    assert len(conversions) == 2, "of x, and of t once"
    rng = np.random.default_rng(0)
    given = {n: rng.integers(-4, 4, graph.tensor(n)[0]) for n in (*graph.inputs, *graph.weights)}
    for name, value in graph.interpret(given).items():
        np.testing.assert_array_equal(value, made.interpret(given)[name])
    uniform = layouts.assign(["channels last"])
    assert uniform.seconds >= found.seconds
    assert Choices(graph, cost, 16).of("auto").predicted_us["auto"] == pytest.approx(
        found.seconds * 1e6
    )


def test_bundles_keep_layouts(tmp_path: Path) -> None:
    made, x = model()
    fast = syno.compile(made, x, layouts="channels-last")
    syno.export(fast, tmp_path / "net.syno", example=x)
    loaded = syno.load(tmp_path / "net.syno")
    np.testing.assert_array_equal(np.asarray(loaded(x.numpy())), fast(x).detach().numpy())
    assert "reorder(0, 2, 3, 1)" in str(loaded)
    assert loaded.graph.text() == fast.network.graph.text()


def test_unknown_layouts_are_refused(tmp_path: Path) -> None:
    made, x = model()
    for wrong in ("nhwc", "", 3, None):
        with pytest.raises(UnknownName, match="channels-last"):
            syno.compile(made, x, layouts=wrong)
    compiled = torch.compile(made, backend="syno", options={"layouts": "nhwc"})
    with pytest.raises(Exception, match="channels-last"):
        compiled(x)
    from syno.cli.main import app

    run = CliRunner().invoke(app, ["compile", "m.py:make", "--layouts", "nhwc"])
    assert run.exit_code == 2 and "channels-last" in run.output


def test_the_command_says_how_tensors_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "laid.py").write_text(
        "from torch import nn\n\ndef make():\n    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    from syno.cli.main import app

    run = CliRunner().invoke(
        app,
        ["compile", "laid:make", "--example", "1,3,8,8", "--layouts", "channels-last", "--json"],
    )
    assert run.exit_code == 0, run.output
    told = json.loads(run.stdout)
    assert told["layouts"]["choice"] == "channels-last"
    assert any(stage["layouts"] for stage in told["stages"])
