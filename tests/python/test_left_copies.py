"""Copies that the float64 check does not lay out: by random networks, and by how much a network with large windows needs."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from syno.graph import reference
from syno.graph.building import Builder, Network, Value
from syno.graph.left_copies import as_one, steps
from syno.operators.operator import Operator

MOST = 2_000
"""Bytes."""


def drawn(seed: int) -> tuple[Network, dict[str, torch.Tensor]]:
    """Windows of rows, and copies of those, with readers of every kind: products, sums, functions of PyTorch, several of
    them, none; a copy may be returned, too."""
    rng = np.random.default_rng(seed)
    build = Builder("drawn")
    length, width, window, step = (
        int(rng.integers(*each)) for each in ((5, 12), (2, 7), (3, 9), (1, 4))
    )
    x = build.input("x", (2, length, width))
    weight = build.weight("w", rng.standard_normal((window, width)).astype(np.float32))
    returned: list[Value] = []
    sources = [x]
    for _ in range(int(rng.integers(1, 4))):
        source = sources[int(rng.integers(len(sources)))]
        if rng.random() < 0.3:
            source = build.formula("y[b,t,c] = relu(x[b,t,c])", {"x": source})
            sources.append(source)
        text = f"y[b,t,j,c] = x[b,t+{step}*j-{window * step // 2},c]"
        copy = build.formula(text, {"x": source}, j=window, t=source.shape[1])
        if rng.random() < 0.5:
            copy = build.formula("y[t,b,c,j] = x[b,t,j,c]", {"x": copy})
            copy = build.formula("y[b,t,j,c] = x[t,b,c,j]", {"x": copy})
        for _ in range(int(rng.integers(1, 3))):
            kind = int(rng.integers(6))
            if kind == 0:
                made = build.formula(
                    "y[b,t,c] = sum[j] x[b,t,j,c] * w[j,c]", {"x": copy, "w": weight}
                )
            elif kind == 1:
                made = build.formula(
                    "y[b,t,j] = sum[c] x[b,t,j,c] * z[b,t,c]", {"x": copy, "z": source}
                )
                made = build.formula(
                    "y[b,t,c] = sum[j] s[b,t,j] * x[b,t,j,c]", {"s": made, "x": copy}
                )
            elif kind == 2:
                made = build.formula(
                    "y[b,t,j,c] = x[b,t,j,c] + x[b,t,j,c] * w[j,c]", {"x": copy, "w": weight}
                )
                made = build.formula("y[b,t,c] = max[j] x[b,t,j,c]", {"x": made})
            elif kind == 3:
                made = build.formula("y[b,t,c] = x[b,t,0,c]", {"x": copy})
            elif kind == 4:
                made = build.call(
                    "test.amax",
                    [copy],
                    [((2, copy.shape[1], width), "float32")],
                    host=lambda t: t.amax(2),
                )[0]
            else:
                returned.append(copy)
                continue
            sources.append(made)
    returned.append(sources[-1])
    network = build.network(list(dict.fromkeys(returned)))
    return network, {
        "x": torch.from_numpy(rng.standard_normal((2, length, width)).astype(np.float32))
    }


@pytest.mark.parametrize("seed", range(60))
def test_copies_are_computed_with_what_reads_them(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, given = drawn(seed)
    before = reference.run_reference(network, given, dtype=torch.float64)
    monkeypatch.setattr(reference, "_MOST_BYTES", MOST)
    monkeypatch.setattr(reference, "_largest_bytes", lambda *_: 0)  # their text, no kernel
    after = reference.run_reference(network, given, dtype=torch.float64)
    assert list(before) == list(after)
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=1e-12, atol=1e-12)


def test_random_networks_leave_copies_out_and_tensors_go_when_nobody_reads_them() -> None:
    left = joined = 0
    for seed in range(60):
        network, _ = drawn(seed)
        plan = steps(network, MOST, 8)
        made = {name for step in plan for name in step.nodes[-1].outputs}
        for node in network.nodes:
            large = int(np.prod(network.values[node.outputs[0]].shape)) * 8 > MOST
            left += node.outputs[0] not in made
            assert large or node.outputs[0] in made
        joined += sum(
            len(step.nodes) > 1 and as_one(network, step.nodes) is not None for step in plan
        )
        assert all(as_one(network, step.nodes) is not None for step in plan)
        # What is gone is not read again, and in the end nothing is there but what is returned.
        gone: set[str] = set()
        for step in plan:
            read = {name for node in step.nodes for name in node.inputs}
            assert not read & gone
            gone |= {*step.done}
        returned = {value.name for value in network.outputs}
        assert not gone & returned
        assert made <= gone | returned
    assert left > 30
    assert joined > 30


@pytest.mark.parametrize("weight", [("w[o,k]", (50_000, 100_000)), ("w[k,o]", (100_000, 50_000))])
@pytest.mark.parametrize("function", ["", "relu"])
def test_large_weights_are_no_tensors_that_are_made(
    weight: tuple[str, tuple[int, int]], function: str
) -> None:
    """A layer of 40 GB of weights: what reads them turned or as they lie takes nothing."""
    read, shape = weight
    text = f"y[i,o] = {function}(sum[k] x[i,k] * {read})"
    operator = Operator.parse(text, shapes={"x": (1, 100_000), "w": shape})
    given = [torch.empty(operator.shapes[name], device="meta") for name in operator.inputs]
    assert reference._looked_at(operator, given, torch.float64) < 1 << 24


def test_what_is_made_of_large_tensors_counts() -> None:
    operator = Operator.parse(
        "y[i,k] = x[i,k] + w[k]", shapes={"x": (4_000, 100_000), "w": (100_000,)}
    )
    given = [torch.empty(operator.shapes[name], device="meta") for name in operator.inputs]
    assert reference._looked_at(operator, given, torch.float64) == 4_000 * 100_000 * 8


def test_a_check_of_large_windows_stays_small() -> None:
    """Windows of 12 GB in float64, in a process that may have 6 GB."""
    script = textwrap.dedent(
        """
        import resource
        import torch
        from syno.graph.building import Builder
        from syno.graph.reference import run_reference

        resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
        build = Builder("windows")
        x, z = build.input("x", (16, 400, 512)), build.input("z", (16, 400, 512))
        windows = build.formula("y[b,t,j,c] = x[b,t+j-240,c]", {"x": x}, j=481, t=400)
        scores = build.formula("y[b,t,j] = sum[c] x[b,t,j,c] * z[b,t,c]", {"x": windows, "z": z})
        network = build.network([scores])
        given = {"x": torch.randn(16, 400, 512), "z": torch.randn(16, 400, 512)}
        made = run_reference(network, given, dtype=torch.float64)[scores.name]
        exact = {name: t.double() for name, t in given.items()}
        for t, j in ((0, 240), (0, 0), (399, 240), (17, 300), (200, 480), (350, 3)):
            at = t + j - 240
            wanted = (exact["x"][:, at] * exact["z"][:, t]).sum(1) if 0 <= at < 400 else torch.zeros(16, dtype=torch.float64)
            torch.testing.assert_close(made[:, t, j], wanted)
        """
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
