"""Structural features: what they say of operators whose structure is known, and what they do not depend on."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

from syno import _core
from syno.operators.features import NAMES, _Axes, _receptive_field, _Rows, _rows, features
from syno.operators.operator import Operator
from syno.policies.derivation import derivation


def spec(
    channels: int = 8,
    size: int = 9,
    kernel: int = 3,
    groups: int = 2,
    *,
    wider: int = 1,
    rank: int = 2,
    stride: str = "",
) -> Any:
    """A convolution's site with ``rank`` position axes, the input's longer by the variable ``stride``."""
    axes = ["D", "H", "W"][3 - rank :]
    dims = [{"name": a.lower(), "extent": a} for a in axes]
    channel = "C" if wider == 1 else "C_out"
    variables = [("N", "primary", 0), ("C", "primary", 3), *((a, "primary", 0) for a in axes)]
    variables += [("k", "coefficient", 3), ("g", "coefficient", 2)]
    values = {"N": 1, "C": channels, **dict.fromkeys(axes, size), "k": kernel, "g": groups}
    if wider > 1:
        variables.insert(2, ("C_out", "primary", 3))
        values["C_out"] = channels * wider
    document = {
        "variables": [{"name": n, "kind": k, "occurrences": o} for n, k, o in variables],
        "valuations": [values],
        "output": [
            {"name": "n", "extent": "N"},
            {"name": "o", "extent": channel, "unordered": True},
            *dims,
        ],
        "input": [
            {"name": "n", "extent": "N"},
            {"name": "c", "extent": "C", "unordered": True},
            *({"name": a.lower(), "extent": f"{stride}*{a}" if stride else a} for a in axes),
        ],
        "fixed": [[0, 0]],
        "budgets": {"max_steps": 6, "min_weight_params": 2, "max_merges": 1, "max_splits": 2},
        "extensions": ["depthwise", "strided_inputs"] if stride else ["depthwise"],
    }
    return _core.Spec.from_json(json.dumps(document))


def of(name: str, where: Any, **sizes: str) -> dict[str, float]:
    return features(_core.named_operator(name, where, sizes)).to_dict()


@settings(max_examples=12, deadline=None)
@given(
    kernel=st.sampled_from([3, 5]),
    groups=st.sampled_from([2, 4]),
    rank=st.sampled_from([1, 2]),
    multiple=st.integers(1, 3),
)
def test_windows_groups_and_parameters_of_convolutions_are_seen(
    kernel: int, groups: int, rank: int, multiple: int
) -> None:
    channels = groups * 2 * multiple
    where = spec(channels, 13, kernel, groups, rank=rank)
    dense = of("conv", where, kernel="k")
    grouped = of("grouped_conv", where, kernel="k", groups="g")
    for found in (dense, grouped):
        assert found["window_max"] == found["window_min"] == kernel
        assert found["positions"] == kernel**rank
        assert found["holes"] == found["displacement"] == 0
        assert found["equivariance"] == pytest.approx(1)
        assert found["weighted_window"] == found["weighted_channels"] == found["rank"] == 1
        assert found["channels_reached"] == 1
        # Every connection of a convolution has a weight element of its own.
        assert found["sharing"] == pytest.approx(0, abs=1e-6)
    assert dense["channels_read"] == 1
    assert grouped["channels_read"] == pytest.approx(1 / groups)
    assert dense["log_params"] - grouped["log_params"] == pytest.approx(math.log(groups), abs=1e-5)
    assert dense["filters"] == pytest.approx(
        math.log(min(kernel**rank, channels * min(channels, 8))), abs=1e-5
    )


def test_pointwise_depthwise_dilated_and_separable_convolutions_differ_as_their_names_say() -> None:
    where = spec(8, 11)
    pointwise, depthwise = of("conv1x1", where), of("depthwise_conv", where, kernel="k")
    dilated, separable = of("dilated_conv", where), of("separable_conv", where, kernel="k")
    assert pointwise["positions"] == 1
    assert pointwise["filters"] == pointwise["kernel_rank"] == 0
    assert depthwise["channels_read"] == pytest.approx(1 / 8)
    assert depthwise["kernel_rank"] == 0
    assert dilated["positions"] == 9
    assert dilated["holes"] == pytest.approx(1 - 9 / 25)
    # The separable one has 8 kernels and 64 mixtures of them; the dense one 64 kernels.
    assert separable["sharing"] == pytest.approx(math.log(9 * 64 / (9 * 8 + 64)), abs=1e-5)
    assert separable["weights"] == 2


def test_operators_that_pool_or_mix_positions_are_told_from_those_that_do_not() -> None:
    where = spec(8, 12)
    pooled = of("average_pool", spec(8, 6, stride="g"), shrink="g")
    shuffled = of("pixel_shuffle", where, block="g")
    assert pooled["positions"] == 4
    assert pooled["weighted_window"] == pytest.approx(1 / 4)
    assert pooled["equivariance"] == pytest.approx(1)
    assert pooled["weights"] == 0
    assert shuffled["equivariance"] < 0.5
    assert of("conv", where, kernel="k")["equivariance"] == pytest.approx(1)


def test_a_shift_displaces_and_nothing_else_of_it_changes() -> None:
    where = spec(8, 9)
    text = _core.named_operator("conv1x1", where).text()
    head, _, last = text.rstrip().rpartition("input = ")
    words = last.split()
    new = f"c{1 + max(map(int, re.findall('c([0-9]+)', text)))}"
    shifted = f"{head}{new} = shift {words[-1]} by 1\ninput = {' '.join([*words[:-1], new])}\n"
    plain = features(_core.PGraph.parse(text)).to_dict()
    moved = features(_core.PGraph.parse(shifted)).to_dict()
    assert plain["displacement"] == 0
    assert moved["displacement"] == 1
    assert moved["steps"] == plain["steps"] + 1
    same = set(NAMES) - {"displacement", "steps"}
    assert {n: plain[n] for n in same} == {n: moved[n] for n in same}


def test_output_channels_that_read_nothing_have_a_receptive_field_of_one() -> None:
    shape = (1, 4, 8, 8)
    axes = _Axes(shape, shape, (1,), (2, 3), (1,), (2, 3))
    places = np.ravel_multi_index(([0] * 3, [1] * 3, [2, 3, 4], [3] * 3), shape)
    nothing = (np.zeros(0, dtype=np.int64), np.zeros(0))
    found = _receptive_field(_Rows.of([(places, np.ones(3)), nothing], axes), axes)
    assert found["window_max"] == (3 + 1) / 2
    assert found["window_min"] == 1
    assert found["positions"] == 3 / 2


@pytest.fixture(scope="module")
def everything() -> list[Any]:
    return list(_core.enumerate_operators(spec(8, 9, wider=2), max_steps=5).operators)


def test_every_operator_of_a_space_has_finite_features_and_the_same_ones_again(
    everything: list[Any],
) -> None:
    assert len(everything) > 10
    for graph in everything[::9]:
        found = features(graph)
        assert np.isfinite(found.vector()).all()
        assert 0 <= found.equivariance <= 1 + 1e-9
        assert 0 < found.channels_read <= found.channels_reached <= 1
        assert found.rank <= 1
        again = features(_core.PGraph.parse(graph.text()))
        assert again == found
        assert list(again.to_dict()) == list(NAMES)


def test_steps_are_named_by_what_they_do_whatever_their_order(everything: list[Any]) -> None:
    names = [derivation(graph) for graph in everything]
    assert len({frozenset(each) for each in names}) == len(everything)
    for graph, steps in zip(everything, names, strict=True):
        assert len(set(steps)) == len(steps) == len(graph.steps)
    where = spec(8, 9)
    conv, pointwise = (_core.named_operator(n, where) for n in ("conv", "conv1x1"))
    assert "reduce C" in set(derivation(conv)) & set(derivation(pointwise))
    # The two windows of a convolution are two different steps; its two equal Reduces are numbered.
    assert len([s for s in derivation(conv) if s.startswith("unfold")]) == 2
    assert any(s.endswith("#2") for s in derivation(conv))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_steps_that_commute_keep_their_names(data: st.DataObject) -> None:
    graph = _core.named_operator("grouped_conv", spec(8, 9))
    lines = graph.text().splitlines()
    at = next(i for i, line in enumerate(lines) if "= reduce" in line)
    reduces = [line for line in lines if "= reduce" in line]
    # Reduces commute; renaming their coordinates accordingly gives the same operator.
    order = data.draw(st.permutations(range(len(reduces))))
    names = [line.split()[0] for line in reduces]
    renamed = {names[old]: f"@{new}" for new, old in enumerate(order)}
    body = [" ".join(renamed.get(word, word) for word in line.split()) for line in lines[at:]]
    body = [" ".join(names[int(w[1:])] if w[0] == "@" else w for w in x.split()) for x in body]
    first = sorted(body[: len(reduces)], key=lambda line: int(line.split()[0][1:]))
    moved = _core.PGraph.parse("\n".join([*lines[:at], *first, *body[len(reduces) :]]) + "\n")
    sizes = sorted(term.split(" #")[0] for term in derivation(moved) if term.startswith("reduce"))
    assert sizes == sorted(
        term.split(" #")[0] for term in derivation(graph) if term.startswith("reduce")
    )
    if len({line.split("reduce ")[1] for line in reduces}) == len(reduces):
        assert set(derivation(moved)) == set(derivation(graph))


@pytest.mark.parametrize("stride", ["", "g"])
@pytest.mark.parametrize("rank", [1, 2])
def test_rows_are_the_gradients_that_pytorch_finds(rank: int, stride: str) -> None:
    """Of every operator of a space: the emitted module, differentiated at the same elements."""
    import torch

    where = spec(4, 6, rank=rank, stride=stride)
    for graph in list(_core.enumerate_operators(where, max_steps=5).operators)[::5]:
        operator = Operator.from_pgraph(graph).at(0)
        shape = operator.shapes[operator.data[0]]
        axes = _Axes.of(graph, shape, operator.shapes[operator.outputs[0]])
        module = operator.to_torch().double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in module.parameters():
                drawn = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
                weight.copy_(drawn)
        data = torch.ones(shape, dtype=torch.float64, requires_grad=True)
        output = module(data)
        for shift, rows in enumerate(_rows(operator, axes)):
            index = axes.center()
            for axis in axes.output_positions:
                index[axis] = (index[axis] + shift) % axes.output_shape[axis]
            for row, probe in zip(rows.values, axes.probes(), strict=True):
                for axis, i in zip(axes.output_channels, probe, strict=True):
                    index[axis] = i
                (wanted,) = torch.autograd.grad(output[tuple(index)], data, retain_graph=True)
                expected = wanted.sum(0).numpy()  # channels, positions
                found = np.zeros_like(expected)
                found[(slice(None), *rows.positions.T)] = row
                np.testing.assert_allclose(found, expected, atol=1e-12)


@settings(max_examples=6, deadline=None)
@given(size=st.integers(200, 4000), channels=st.sampled_from([64, 512]))
def test_features_cost_what_an_element_is_made_of_however_large_images_are(
    size: int, channels: int
) -> None:
    # A whole image of 512 x 4,000 x 4,000 in double precision would be 64 GB.
    dense = of("conv", spec(channels, size, 3, 2), kernel="k")
    small = of("conv", spec(channels, 9, 3, 2), kernel="k")
    apart = {"log_flops"}
    assert {n: dense[n] for n in dense if n not in apart} == {
        n: small[n] for n in small if n not in apart
    }
