"""The benchmark of default spaces: known operators count with any coefficient as their sizes, and reasons are reasons."""

from __future__ import annotations

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


def test_a_known_operator_counts_at_any_size_that_the_group_has(
    spec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *others = spaces.parameters(spec)
    assert first == {"kernel": "k", "groups": "g", "shrink": "s", "dilation": "s"}
    assert len(others) == 3 and all(one["kernel"] == "k" for one in others)
    monkeypatch.setattr(spaces, "NAMED", ("grouped_conv", "bottleneck_conv"))
    assert spaces.named_in(spec) == {"grouped_conv": "legal", "bottleneck_conv": "legal"}


def test_a_refused_operator_has_the_reason_that_refuses_it(spec: Any) -> None:
    sizes = spaces.parameters(spec)[0]
    for name, limits, words in (
        ("grouped_conv", {"max_flops": 5000}, spaces.DEARER),
        ("grouped_conv", {"max_params": 10}, "max_params"),
    ):
        few = syno.Space(spec).with_(**limits).spec
        reason = spaces.why_not(_core.named_operator(name, few, sizes), few)
        assert words in reason and "order" not in reason
