"""Two objectives: the front, its area, and what a point whose objectives are uncertain is expected to add."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syno.policies.front import expected_gain, front, hypervolume

CORNERS = st.lists(st.tuples(st.integers(-3, 8), st.integers(-3, 8)), min_size=0, max_size=9)


def points_of(corners: list[tuple[int, int]]) -> Any:
    return np.array(corners, dtype=float).reshape(-1, 2)


@settings(max_examples=80, deadline=None)
@given(CORNERS)
def test_a_front_is_what_nothing_beats_above_the_reference(corners: list[tuple[int, int]]) -> None:
    above = {(x, y) for x, y in corners if x > 0 and y > 0}
    best = {p for p in above if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in above)}
    kept = front(points_of(corners))
    assert [tuple(point) for point in kept.tolist()] == sorted(best)


@settings(max_examples=80, deadline=None)
@given(CORNERS)
def test_hypervolume_is_the_area_of_the_union_of_boxes(corners: list[tuple[int, int]]) -> None:
    cells = {(x, y) for a, b in corners for x in range(a) for y in range(b)}
    assert hypervolume(points_of(corners)) == pytest.approx(len(cells))


@settings(max_examples=60, deadline=None)
@given(CORNERS, st.tuples(st.integers(-3, 10), st.integers(-3, 10)))
def test_a_sure_point_adds_what_the_area_grows_by(
    corners: list[tuple[int, int]], corner: tuple[int, int]
) -> None:
    points, point = points_of(corners), points_of([corner])
    gain = expected_gain(front(points), point, np.zeros((1, 2)))
    grown = hypervolume(np.vstack([points, point])) - hypervolume(points)
    assert gain == pytest.approx(grown, abs=1e-9)


@settings(max_examples=12, deadline=None)
@given(CORNERS, st.integers(0, 1_000))
def test_an_unsure_point_adds_the_mean_over_what_it_may_be(
    corners: list[tuple[int, int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    points = points_of(corners)
    mean, std = rng.uniform(-2, 9, (1, 2)), rng.uniform(0.2, 3, (1, 2))
    gain = expected_gain(front(points), mean, std)
    grown = [
        hypervolume(np.vstack([points, mean + std * rng.standard_normal((1, 2))]))
        for _ in range(1_000)
    ]
    sampled = np.array(grown) - hypervolume(points)
    error = sampled.std() / np.sqrt(len(sampled))
    # What a thousand draws did not meet is worth less than a hundredth.
    assert gain[0] == pytest.approx(sampled.mean(), abs=5 * error + 0.01)


def test_more_uncertainty_never_promises_less() -> None:
    kept = front(points_of([(2, 6), (5, 3)]))
    mean = np.tile([[3.0, 3.0]], (20, 1))
    std = np.linspace(0.01, 4, 20)[:, None] * np.ones((1, 2))
    assert (np.diff(expected_gain(kept, mean, std)) >= -1e-12).all()
