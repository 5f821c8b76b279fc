"""Synthesis from Python: specs, enumeration, sampling, trees, named operators, explanations."""

from __future__ import annotations

import functools
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno import _core

VARIABLES = {"N": 0, "C_in": 2, "C_out": 3, "H": 0, "W": 0}
COEFFICIENTS = {"k": 2, "s": 3, "g": 2}
VALUATIONS = [
    {"N": 1, "C_in": 8, "C_out": 16, "H": 14, "W": 14, "k": 3, "s": 2, "g": 4},
    {"N": 1, "C_in": 16, "C_out": 16, "H": 7, "W": 7, "k": 3, "s": 2, "g": 4},
]


def site(*, stride: str = "", max_steps: int = 6, **changes: Any) -> dict[str, Any]:
    """A convolution's site as a spec's JSON."""
    variables = [{"name": n, "kind": "primary", "occurrences": o} for n, o in VARIABLES.items()]
    variables += [
        {"name": n, "kind": "coefficient", "occurrences": o} for n, o in COEFFICIENTS.items()
    ]
    prefix = f"{stride}*" if stride else ""
    document: dict[str, Any] = {
        "variables": variables,
        "valuations": VALUATIONS,
        "output": [
            {"name": "n", "extent": "N"},
            {"name": "c", "extent": "C_out", "unordered": True},
            {"name": "h", "extent": "H"},
            {"name": "w", "extent": "W"},
        ],
        "input": [
            {"name": "n", "extent": "N"},
            {"name": "c", "extent": "C_in", "unordered": True},
            {"name": "h", "extent": f"{prefix}H"},
            {"name": "w", "extent": f"{prefix}W"},
        ],
        "fixed": [[0, 0]],
        "budgets": {
            "max_steps": max_steps,
            "min_weight_params": 8,
            "max_merges": 1,
            "max_splits": 3,
            "max_strides": 2 if stride else 0,
        },
        "extensions": ["depthwise", "strided_inputs"] if stride else ["depthwise"],
    }
    document.update(changes)
    return document


def spec(**changes: Any) -> Any:
    return _core.Spec.from_json(json.dumps(site(**changes)))


def interpreted(program: Any, valuation: int, seed: int) -> np.ndarray:
    concrete = program.at(valuation)
    rng = np.random.default_rng(seed)
    inputs = {name: rng.standard_normal(concrete.shape(name)) for name in concrete.inputs}
    return np.asarray(concrete.interpret(inputs)["y"])


def test_a_spec_reads_back_from_its_json() -> None:
    one = spec()
    assert _core.Spec.from_json(one.to_json()) == one
    for name in _core.spec_names():
        named = _core.spec_named(name)
        assert _core.Spec.from_json(named.to_json()) == named


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"budgets": {"max_step": 3}}, _core.FormatError, "max_step"),
        ({"budgets": {"max_steps": "3"}}, _core.FormatError, r"budgets\.max_steps"),
        ({"budgets": {"max_flops": 10}}, _core.SpecError, "max_flops"),
        ({"fixed": [[1, 2]]}, _core.SpecError, "fixed pair"),
        ({"valuations": []}, _core.SynoError, "valuation"),
        ({"budgets": {"max_weights": 0}}, _core.SpecError, "weightless"),
        ({"budgets": {"max_reductions": 0}}, _core.SpecError, "summed over"),
        ({"extensions": ["depthwize"]}, _core.UnknownName, "depthwise"),
        ({"disabled_rules": ["shift"]}, _core.UnknownName, "shift-above-reduce"),
    ],
)
def test_a_bad_spec_is_refused_with_what_is_wrong(
    change: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        spec(**change)


@pytest.mark.parametrize("limit", [-1.0, 2e12, float("inf"), float("nan")])
def test_a_memory_limit_beyond_reason_is_refused(limit: float) -> None:
    with pytest.raises(_core.SpecError, match=r"memory_mb is .*up to 1e12"):
        _core.enumerate_operators(spec(), max_steps=1, memory_mb=limit)


def test_an_empty_space_is_explained() -> None:
    assert _core.why_empty(spec(), max_steps=3) is None
    cheap = spec(budgets={"max_steps": 3, "max_params": 3})
    assert len(_core.enumerate_operators(cheap, max_steps=3)) == 0
    sentence = _core.why_empty(cheap)
    assert sentence is not None
    assert "max_params is at least" in sentence


def test_enumeration_is_complete_and_the_same_on_any_number_of_threads() -> None:
    one = _core.enumerate_operators(spec(), max_steps=4, threads=1)
    two = _core.enumerate_operators(spec(), max_steps=4, threads=2)
    assert [g.text() for g in one.operators] == [g.text() for g in two.operators]
    assert len(one) == sum(one.stats["by_steps"].values()) == len(one.flops) == len(one.params)
    pointwise = _core.named_operator("conv1x1", spec())
    assert pointwise.hash() in {g.hash() for g in one.operators}
    limited = _core.enumerate_operators(spec(), max_steps=4, limit=3)
    assert [g.text() for g in limited.operators] == [g.text() for g in one.operators[:3]]
    assert limited.stats["truncated"]


@pytest.mark.parametrize("stride", ["", "s"])
def test_sampled_operators_are_distinct_valid_programs_of_the_site(stride: str) -> None:
    where = spec(stride=stride, max_steps=7)
    graphs = _core.sample_operators(where, n=8, seed=5)
    assert len(graphs) == 8
    assert [g.text() for g in graphs] == [
        g.text() for g in _core.sample_operators(where, n=8, seed=5, threads=2)
    ]
    assert len({g.one_scope().operator_key([("x", 1), ("y", 1)]) for g in graphs}) == 8
    for graph in graphs:
        program = graph.one_scope()
        program.verify()
        factor = 2 if stride else 1
        assert program.at(1).shape("x") == [1, 16, 7 * factor, 7 * factor]
        assert program.at(1).shape("y") == [1, 16, 7, 7]
        assert _core.PGraph.parse(graph.text()) == graph


def test_deep_operators_are_sampled_on_request() -> None:
    where = spec(max_steps=7)
    deep = _core.sample_operators(where, n=30, seed=2, min_steps=6)
    assert len({g.operator_key() for g in deep}) == 30
    assert {len(g.steps) for g in deep} == {6, 7}
    limited = _core.sample_operators(where, n=30, seed=2, min_steps=6, seconds=1e-6)
    assert [g.text() for g in limited] == [g.text() for g in deep[: len(limited)]]
    assert len(limited) < 30
    with pytest.raises(_core.SpecError, match="give at most 7"):
        _core.sample_operators(where, n=1, seed=2, min_steps=8)
    with pytest.raises(_core.SpecError, match="seconds is -1"):
        _core.sample_operators(where, n=1, seed=2, seconds=-1)


@functools.cache
def enumerated_whole() -> Any:
    """All operators of at most seven steps, found at once."""
    return _core.enumerate_operators(spec(max_steps=8), max_steps=7)


@pytest.mark.parametrize(
    ("number", "threads"),
    [
        (signal.SIGINT, 1),
        pytest.param(signal.SIGINT, 2, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, 1, marks=pytest.mark.nightly),
        pytest.param(signal.SIGTERM, 2, marks=pytest.mark.nightly),
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.nightly),
        (signal.SIGKILL, 2),
    ],
)
def test_an_enumeration_that_a_signal_ended_goes_on(
    tmp_path: Path, number: signal.Signals, threads: int
) -> None:
    where = spec(max_steps=8)
    kept = tmp_path / "kept.jsonl"
    (tmp_path / "spec.json").write_text(where.to_json())
    program = (
        "import pathlib, signal, sys; from syno import _core; folder = pathlib.Path(sys.argv[1]); "
        # Shells start background jobs with SIGINT ignored, and Python leaves it so.
        "signal.signal(signal.SIGINT, signal.default_int_handler); "
        "spec = _core.Spec.from_json((folder / 'spec.json').read_text()); "
        "_core.enumerate_operators(spec, max_steps=7, threads=int(sys.argv[2]), "
        "checkpoint=str(folder / 'kept.jsonl'))"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(threads)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        while running.poll() is None and (not kept.exists() or kept.read_bytes().count(b"\n") < 4):
            time.sleep(0.001)
        running.send_signal(number)
        _, messages = running.communicate()
    assert running.returncode != 0, "it ended before the signal"
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in messages
    lines = kept.read_bytes().count(b"\n")
    again = _core.enumerate_operators(where, max_steps=7, checkpoint=str(kept))
    whole = enumerated_whole()
    assert [g.text() for g in again.operators] == [g.text() for g in whole.operators]
    assert {**again.stats, "seconds": 0} == {**whole.stats, "seconds": 0}
    assert kept.read_bytes().count(b"\n") > lines, "nothing was left to do"
    with pytest.raises(_core.SpecError, match="max_steps is 7"):
        _core.enumerate_operators(where, max_steps=8, checkpoint=str(kept))


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_staged_operator_computes_what_its_one_scope_form_does(seed: int) -> None:
    small = [{"N": 1, "C_in": 4, "C_out": 4, "H": 6, "W": 6, "k": 3, "s": 2, "g": 2}]
    for graph in _core.sample_operators(spec(valuations=small), n=2, seed=seed):
        np.testing.assert_allclose(
            interpreted(graph.staged(), 0, seed), interpreted(graph.one_scope(), 0, seed), atol=1e-9
        )


def test_named_operators_fit_the_site_and_are_explained() -> None:
    where = spec(max_steps=10)
    sizes = {"kernel": "k", "groups": "s", "shrink": "s"}
    assert {"matmul", "conv", "average_pool", "pixel_shuffle", "operator1"} <= set(
        _core.named_operators()
    )
    graph = _core.named_operator("grouped_conv", where, sizes)
    assert _core.allowed(where, graph)
    text = _core.explain(where, graph)
    assert text.count("frontier [") == len(graph.steps) + 1
    assert "kept: rules, budgets and distance allow every step" in text
    with pytest.raises(_core.UnknownName, match="grouped_conv"):
        _core.named_operator("groupedconv", where)
    with pytest.raises(_core.SpecError, match="channels"):
        _core.named_operator("depthwise_conv", where)


def test_a_refused_operator_is_explained_by_the_rule_that_refuses_it() -> None:
    where = spec(max_steps=9)
    lines = [
        "c4 = reduce C_in",
        "c5 = shift c4 by 1",
        "weight w1 = share c5 match c1",
        "input = c0 c5 c2 c3",
    ]
    head = _core.named_operator("conv1x1", where).text().split("c4 = ")[0]
    graph = _core.PGraph.parse(head + "\n".join(lines) + "\n")
    assert not _core.allowed(where, graph)
    assert "[refused by shift-above-reduce]" in _core.explain(where, graph)


def test_rules_are_listed_and_can_be_switched_off() -> None:
    rows = _core.rules()
    assert {row["class"] for row in rows} == {"exact", "similar", "futile", "limit"}
    on = _core.enumerate_operators(spec(), max_steps=4)
    off = _core.enumerate_operators(
        spec(disabled_rules=["weight-matches-adjacent", "split-undoes-merge"]), max_steps=4
    )
    assert off.stats["states"] > on.stats["states"]
    assert "split-undoes-merge" in on.stats["rejected"]
    assert "split-undoes-merge" not in off.stats["rejected"]


def test_a_tree_resumes_where_it_was() -> None:
    where = spec()
    tree = _core.Tree(where, seed=3)
    for _ in range(4):
        for ticket, graph in tree.ask(3):
            tree.tell(ticket, 1 / (1 + len(graph.steps)))
    waiting = tree.ask(2)
    again = _core.Tree.from_json(where, tree.to_json())
    assert [(t, g.text()) for t, g in again.pending()] == [(t, g.text()) for t, g in waiting]
    for t, _ in waiting:
        tree.tell(t, 0.5)
        again.tell(t, 0.5)
    assert [g.text() for _, g in tree.ask(3)] == [g.text() for _, g in again.ask(3)]
    with pytest.raises(_core.SpecError, match="ticket 99"):
        tree.tell(99, 0.5)
    with pytest.raises(_core.FormatError):
        _core.Tree.from_json(where, "[]")


def test_a_pgraph_is_drawn() -> None:
    graph = _core.named_operator("operator1", _core.spec_named("resnet18"), {"groups": "g"})
    svg = graph.to_svg()
    assert svg.startswith("<svg")
    assert "w2 [" in svg
    assert graph.to_graphviz().startswith("digraph")
    assert len(graph.steps) == 10
    assert [d["name"] for d in graph.signature["input"]] == ["n", "c", "h", "w"]
