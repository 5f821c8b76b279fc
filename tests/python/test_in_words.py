"""Operators in plain sentences: known ones are recognised, others differ from the nearest one by what they differ by."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import syno  # noqa: E402
from syno import _core  # noqa: E402
from syno.operators.in_words import in_words, known_operators  # noqa: E402


def small_spec() -> _core.Spec:
    """Of a 3x3 convolution at 8 x 8."""
    layer = torch.nn.Conv2d(16, 16, 3, padding=1)
    (group,) = syno.sites(layer, torch.randn(1, 16, 8, 8), repeats=1).groups()
    return _core.Spec.from_json(group.to_json())


SPEC = small_spec()
KNOWN = known_operators(SPEC)


def named(name: str) -> _core.PGraph:
    from syno.operators.explain import _fitting

    return _core.named_operator(name, SPEC, _fitting(SPEC, {}))


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_known_operator_is_its_own_nearest(name: str) -> None:
    said = in_words(named(name), SPEC, KNOWN)
    assert "instead of" not in said and "times the" not in said, said
    assert "differs" in said


def test_differences_are_those_of_the_operators() -> None:
    said = in_words(named("conv"), SPEC, {"conv1x1": KNOWN["conv1x1"]})
    assert "Nearest known operator: 1x1 convolution" in said
    assert (
        "3 wide instead of 1" in said and "window 3 wide" in said and "all input channels" in said
    )
    said = in_words(named("grouped_conv"), SPEC, {"conv": KNOWN["conv"]})
    assert "of the channels instead of 100%" in said or "times the multiply-adds" in said
    assert "in 1 of" in said


def test_without_known_operators_the_sentence_stands_alone() -> None:
    said = in_words(named("separable_conv"), SPEC, {})
    assert "Nearest" not in said and said.endswith(".")
