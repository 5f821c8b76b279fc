"""The benchmark of default spaces: known operators count with any coefficient as their sizes, and reasons are reasons."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn, randn

import syno
from syno import _core

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

spaces: Any = pytest.importorskip("spaces")


@pytest.fixture(scope="module")
def spec() -> Any:
    layer = nn.Conv2d(64, 64, 3, padding=1)
    return syno.sites(layer, randn(1, 64, 8, 8)).groups()[0].spec()


def test_a_known_operator_counts_at_any_size_that_the_group_has(spec: Any) -> None:
    cells = spaces.named_in(spec)
    assert list(cells) == list(spaces.NAMED)
    for label in ("bottleneck", "bottleneck inside", "bottleneck in space", "shift + pointwise"):
        assert label in cells
    for label in ("grouped", "bottleneck", "separable", "Operator 1", "Operator 2", "stacked"):
        assert cells[label] == "legal", cells
    line = syno.sites(nn.Linear(64, 64), randn(1, 64)).groups()[0].spec()
    assert spaces.named_in(line)["separable"].startswith("- ")  # has no window to slide


@pytest.mark.parametrize(
    ("window", "stride", "shape", "blocked"),
    [
        (3, 1, (16, 16), 2),
        (3, 2, (16, 16), 2),
        (1, 1, (16, 16), 2),
        (5, 1, (16, 16), 2),
        (3, 1, (7, 7), 0),  # nothing small divides them
        (3, 2, (14, 14), 0),  # nor places that are twice as far apart
        (3, 1, (8, 7), 1),
        (5, 2, (64,), 1),
        (3, 1, (4, 8, 8), 3),
        (3, 1, (1, 8, 8), 2),
        (3, 2, (8, 16, 16), 0),  # too long for a search that begins soon
    ],
)
def test_a_place_may_stand_for_a_block_where_blocks_divide_the_layers(
    window: int, stride: int, shape: tuple[int, ...], blocked: int
) -> None:
    of = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(shape) - 1]
    layer = of(64, 64, window, stride=stride, padding=window // 2)
    group = syno.sites(layer, randn(1, 64, *shape)).groups()[0]
    spec = group.spec()
    cell = spaces.named_in(spec, group.window)["bottleneck in space"]
    assert (cell == "legal") is (blocked == len(shape)), cell
    assert ("repeat" in json.loads(spec.to_json())["extensions"]) is (blocked > 0)
    # A step of each kind more where blocks take it, and no more.
    assert spec.max_steps == max(12 + 2 * (len(shape) > 2), 5 * blocked + 2 if blocked else 0) + (
        len(shape) if stride > 1 else 0
    )
    drawn = _core.sample_operators(spec, n=20, seed=0)
    assert len(drawn) == 20


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(12, 12, 3, padding=1), (1, 12, 32, 32)),
        (nn.Conv2d(6, 8, 3, padding=1), (1, 6, 32, 32)),
        (nn.Linear(256, 20), (1, 40, 256)),
        (nn.Linear(96, 400), (2, 7, 96)),
    ],
)
def test_layers_of_few_channels_or_tokens_may_have_a_bottleneck(
    layer: nn.Module, shape: tuple[int, ...]
) -> None:
    """The size of a weight that learns, and what may be summed over, are those of the layers."""
    group = syno.sites(layer, randn(*shape)).groups()[0]
    assert spaces.named_in(group.spec(), group.window)["bottleneck"] == "legal"


def test_an_operator_is_judged_whatever_stands_before_its_sums(spec: Any) -> None:
    graph = _core.named_operator("conv1x1", spec, {})
    text = graph.text()
    sums = next(line for line in text.splitlines() if " = reduce " in line)
    shifted = text.replace(sums, f"c4 = shift c2 by 1\n{sums.replace('c4', 'c5', 1)}")
    shifted = shifted.replace("share c4", "share c5").replace(
        "input = c0 c4 c2", "input = c0 c5 c4"
    )
    assert " = shift " in shifted and _core.allowed(spec, _core.PGraph.parse(shifted))


def test_a_refused_operator_has_the_reason_that_refuses_it(spec: Any) -> None:
    sizes = {"kernel": "k", "groups": "g"}
    for name, limits, words in (
        ("grouped_conv", {"max_flops": 5000}, spaces.DEARER),
        ("grouped_conv", {"max_params": 10}, "max_params"),
    ):
        few = syno.Space(spec).with_(**limits).spec
        reason = spaces.why_not(_core.named_operator(name, few, sizes), few)
        assert words in reason and "order" not in reason
