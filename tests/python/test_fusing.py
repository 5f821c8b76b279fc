"""Which nodes of a network become one kernel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machines import written_machine
from torch import Tensor, nn

import syno
from syno.graph.building import Builder
from syno.graph.folding import folded
from syno.graph.from_torch import from_module
from syno.graph.fusing import PredictedCost, fused
from syno.machines.model import fixed_kernels

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from networkbench.einnet_models import BandedAttention


def test_joined_nodes_are_predicted_to_gain() -> None:
    build = Builder("chain")
    x = build.input("x", (64, 64))
    for _ in range(3):
        x = build.formula("y[i,j] = max(x[i,j] * 2, 0)", {"x": x})
    graph = build.network([x]).graph()
    joined, holds, decisions = fused(graph, PredictedCost())
    assert len(joined.nodes) == 1 and len(decisions) == 2
    assert all(each.joined_us < each.apart_us for each in decisions)
    assert len(next(iter(holds.values()))) == 3
    alone, _, none = fused(graph, lambda program, constants: float(len(program.tensors) ** 2))
    assert len(alone.nodes) == 3 and none == []
    # Programs of 1 ms each for their inputs: joining spares calls, less than a thousandth, or a part of the work as well.
    for spared, nodes in ((0.0, 3), (0.01, 1)):

        def cost(program: Any, constants: object, spared: float = spared) -> float:
            scopes = len(program.tensors) - len(program.inputs)
            return 1e-3 * scopes * (1 - spared * (scopes - 1))

        assert len(fused(graph, cost)[0].nodes) == nodes


def test_equal_pairs_are_thought_about_once() -> None:
    """However many equal blocks there are, and whether their nodes are joined or stay."""

    def of_blocks(count: int, spared: float) -> tuple[int, int, Any]:
        build = Builder("blocks")
        x = build.input("x", (8, 16))
        for block in range(count):
            w = build.weight(f"w{block}", np.ones((16, 16), np.float32), f"w{block}")
            t = build.formula("y[i,j] = sum[k] x[i,k] * w[k,j]", {"x": x, "w": w})
            x = build.formula("y[i,j] = max(t[i,j], 0) + x[i,j]", {"t": t, "x": x})
        asked = []

        def cost(program: Any, constants: object) -> float:
            scopes = len(program.tensors) - len(program.inputs)
            asked.append(scopes)
            return 1e-3 * (scopes if scopes > 2 else scopes - spared * (scopes - 1))

        graph = build.network([x]).graph()
        joined = fused(graph, cost)[0]
        joined.verify()
        return len(asked) - len(graph.nodes), len(joined.nodes), joined

    for spared, nodes in ((0.0, 2), (0.5, 1)):
        (few, one, _), (many, all_, _) = of_blocks(6, spared), of_blocks(30, spared)
        assert one == 6 * nodes and all_ == 30 * nodes
        assert many == few


def test_a_row_that_lies_there_is_joined_where_that_is_worth_code_of_its_own() -> None:
    build = Builder("rows")
    x = build.formula("y[t,j] = max(x[t,j], 0)", {"x": build.input("x", (3, 32))})
    made = []
    for t in range(3):
        row = build.formula(f"y[j] = x[{t},j]", {"x": x})
        made.append(build.formula("y[j] = exp(r[j])", {"r": row}))
    graph = build.network(made).graph()
    for spared, nodes in ((0.01, 7), (0.1, 4)):

        def cost(program: Any, constants: object, spared: float = spared) -> float:
            if len(program.tensors) - len(program.inputs) == 1:
                return 1e-3
            return 1.0 if "max" in str(program.text()) else 1e-3 * (1 - spared)

        assert len(fused(graph, cost)[0].nodes) == nodes


def test_steps_that_read_parts_of_one_tensor_are_thought_about_and_compiled_once() -> None:
    class Scan(nn.Module):
        """As a selective scan: each step reads a row, where it lies."""

        def __init__(self, steps: int) -> None:
            super().__init__()
            self.steps = steps

        def forward(self, x: Tensor) -> Tensor:
            x = x.softmax(1)
            h = torch.zeros_like(x[:, 0])
            for t in range(self.steps):
                h = torch.exp(h * x[:, t]) * 0.5
            return h

    told = []
    for steps in (20, 32):
        x = torch.randn(1, steps, 64)
        model = Scan(steps).eval()
        with fixed_kernels(written_machine().to_json()), torch.inference_mode():
            cost = PredictedCost()
            graph = folded(from_module(model, x).network).call.graph().cleaned()
            fused(graph, cost)
            net = syno.compile(model, x, cache=False)
            torch.testing.assert_close(net(x), model(x), rtol=1e-4, atol=1e-5)
        kernels = {s.kernel.call.key for s in net.network.stages if s.packed is not None}
        told.append((len(cost._known), len(kernels)))
    (few, one), (many, all_) = told
    assert many - few <= 3 * 12 and all_ <= one + 2, told  # without: nine a step


def test_nodes_bound_by_computing_are_joined_where_what_one_leaves_is_worth_a_trip() -> None:
    def of_width(width: int) -> Any:
        build = Builder("products")
        x = build.input("x", (4096, 64))
        w = build.weight("w", np.ones((64, width), np.float32), "w")
        v = build.weight("v", np.ones((width, 64), np.float32), "v")
        t = build.formula("y[i,j] = sum[k] x[i,k] * w[k,j]", {"x": x, "w": w})
        return build.network(
            [build.formula("y[i,j] = sum[k] t[i,k] * v[k,j]", {"t": t, "v": v})]
        ).graph()

    asked: list[int] = []

    def cost(program: Any, constants: object) -> float:
        scopes = len(program.tensors) - len(program.inputs)
        asked.append(scopes)
        return 5e-3 if scopes == 1 else 9e-3

    # 64 MiB between two nodes of 5 ms each, then less than a MiB: a part of 10 ms that counts, and one that does not.
    for width, nodes in ((4096, 1), (48, 2)):
        asked.clear()
        assert len(fused(of_width(width), cost)[0].nodes) == nodes
        assert (2 in asked) == (nodes == 1)


def test_windows_that_are_to_be_derived_are_joined_where_that_gains_more_than_predictions_tell() -> (
    None
):
    def graph_of(first: str, second: str) -> Any:
        build = Builder("windows")
        x = build.input("x", (16, 512, 512))
        shape = (16, 16, 3, 3)
        w, v = (build.weight(name, np.ones(shape, np.float32), name) for name in "wv")
        t = build.formula(first, {"x": x, "w": w})
        return build.network([build.formula(second, {"t": t, "v": v})]).graph()

    window = "y[o,h,w] = sum[c,r,s] {0}[c,h+r-1,w+s-1] * {1}[o,c,r,s]"
    product = "y[o,h,w] = sum[c] {0}[c,h,w] * {1}[o,c,0,0]"
    both = graph_of(window.format("x", "w"), window.format("t", "v"))
    one = graph_of(product.format("x", "w"), window.format("t", "v"))
    # (graph, part of the time apart that joining spares, whether kernels are derived) -> nodes
    for graph, spared, derive, nodes in (
        (both, 0.01, False, 1),
        (both, 0.01, True, 2),
        (both, 0.05, True, 1),
        (one, 0.01, True, 1),
    ):

        def cost(program: Any, constants: object, spared: float = spared) -> float:
            scopes = len(program.tensors) - len(program.inputs)
            return 1e-3 * scopes * (1 - spared * (scopes - 1))

        assert len(fused(graph, cost, derive=derive)[0].nodes) == nodes


class Repeated(nn.Module):
    """Heads that share keys and values: each is repeated for its queries."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (t.repeat_interleave(8, 1) for t in (key, value))
        scores = (query @ key.transpose(-1, -2)).softmax(-1)
        return scores @ value


def test_copies_larger_than_what_they_read_are_joined_with_their_readers() -> None:
    """Windows of keys and values, which are views, and heads that share keys: neither is ever written out. In the order of
    the readers, windows of values were written by whoever made the values."""
    torch.manual_seed(0)
    length, width, around = 300, 64, 40
    windows = BandedAttention(width, 2, around, 1).eval()
    x = torch.randn(1, length, width)
    q, kv = torch.randn(1, 16, 128, 32), torch.randn(1, 2, 128, 32)
    scores = 4 * 16 * 128 * 128
    for model, inputs, copies in (
        (windows, (x,), 4 * length * width * (2 * around + 1)),
        (Repeated(), (q, kv, kv), scores + 4 * 16 * 128 * 32 * 2),
    ):
        with fixed_kernels(written_machine().to_json()):
            fast = syno.compile(model, inputs)
        assert fast.network.arena_bytes < copies, str(fast)
        with torch.no_grad():
            torch.testing.assert_close(fast(*inputs), model(*inputs), rtol=1e-4, atol=1e-5)


def test_layers_of_a_large_network_are_predicted_to_wait_for_their_weights() -> None:
    """The same layer, alone and among others."""
    layer = nn.Linear(1024, 1024)
    others = [nn.Linear(1024, 1024) for _ in range(3)]
    x = torch.zeros(1, 1024)
    with fixed_kernels(written_machine().to_json()), torch.inference_mode():
        alone = syno.compile(layer, x, cache=False).network.stages[0]
        among = syno.compile(nn.Sequential(layer, *others), x, cache=False).network.stages[0]
    assert among.predicted_us > 1.3 * alone.predicted_us
    assert among.limit == "memory"
