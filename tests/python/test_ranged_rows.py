"""Rows whose length calls say, joined to one loop with others: right at every size, and run no oftener than a size asks."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machines import written_machine

import syno
from syno import _core

NAMES = "bcijkl"


def _pointwise(rank: int, extents: dict[str, int]) -> syno.Operator:
    index = ",".join(NAMES[:rank])
    return syno.Operator.parse(f"y[{index}] = relu(x[{index}]) + z[{index}]", **extents)


@st.composite
def rows(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Extents of a tensor, and one or two of them that calls say, with their ranges."""
    rank = draw(st.integers(2, 4))
    extents = {name: draw(st.sampled_from([1, 1, 2, 3, 8, 16, 33])) for name in NAMES[:rank]}
    named = draw(st.lists(st.sampled_from(NAMES[:rank]), min_size=1, max_size=2, unique=True))
    ranges = {name: (draw(st.integers(1, 4)), draw(st.integers(9, 40))) for name in named}
    return {**extents, **{name: high for name, (_, high) in ranges.items()}}, ranges


@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(rows(), st.integers(0, 2**31))
def test_every_size_is_right(
    case: tuple[dict[str, int], dict[str, tuple[int, int]]], seed: int
) -> None:
    extents, ranges = case
    kernel = _pointwise(len(extents), extents).compile(dynamic=dict(ranges))
    random = np.random.default_rng(seed)
    for which in (0, 1, 2):
        sizes = {
            name: high if which == 0 else low if which == 1 else int(random.integers(low, high + 1))
            for name, (low, high) in ranges.items()
        }
        shape = [sizes.get(name, extent) for name, extent in extents.items()]
        x, z = (random.standard_normal(shape).astype(np.float32) for _ in range(2))
        np.testing.assert_array_equal(kernel(x, z), np.maximum(x, 0) + z)


@pytest.mark.parametrize("before", [[], [1], [1, 1]])
@pytest.mark.parametrize("behind", [[64], [8, 3], [1, 16]])
def test_rows_behind_single_elements_are_one_loop(before: list[int], behind: list[int]) -> None:
    """x[1, n, 64] is n * 64 numbers one behind the other."""
    shape = [*before, 200, *behind]
    extents = dict(zip(NAMES, shape, strict=False))
    live = NAMES[len(before)]
    kernel = _pointwise(len(shape), extents).compile(dynamic={live: (8, 200)})
    loops = str(kernel.loops(**{live: 100}))
    assert len(kernel.buckets) == 1, str(kernel)
    assert re.search(rf"in 0\.\.[^\n]*\b{live}\b", loops), loops
    assert "if " not in loops.split("\n", 1)[1] or math.prod(behind) % 16, loops


@pytest.mark.parametrize("shape", [(4, 96, 256), (64, 56, 64), (3, 40, 48)])
def test_other_rows_stay_loops_of_their_own(shape: tuple[int, ...]) -> None:
    """x[4, n, 256]: as one loop over 4 * 96 * 256 it would ask in each iteration whether there is such an element."""
    extents = dict(zip("bij", shape, strict=True))
    names = {"n": extents["i"]}
    programs = [([size], _program(shape, size)) for size in (extents["i"], extents["i"] - 1, 24, 7)]
    live = _core.with_live_ends(programs, ["n"])
    assert _core.live_ends(live)
    assert not _core.live_ends(programs[0][1])
    machine = written_machine()
    plain = _core.construct_schedule(programs[0][1], machine).schedule
    apart = _core.construct_schedule(live, machine).schedule
    assert _core.fuses_growing(live, plain)
    assert not _core.fuses_growing(live, apart)
    assert not _core.fuses_growing(programs[0][1], plain), "it has no ends that follow sizes"
    ends = [("n", 7, names["n"])]

    def seconds(schedule: _core.Schedule, size: int) -> float:
        nest = _core.apply_schedule(live, schedule, ends).specialised([size])
        return float(_core.predict_nest(nest, machine).seconds)

    assert seconds(apart, 7) < 0.5 * seconds(plain, 7)
    kernel = syno.Operator.parse("y[b,i,j] = relu(x[b,i,j]) + z[b,i,j]", **extents).compile(
        dynamic={"i": (7, extents["i"])}
    )
    random = np.random.default_rng(1)
    for size in (7, 20, extents["i"]):
        x, z = (random.standard_normal((shape[0], size, shape[2]), np.float32) for _ in range(2))
        np.testing.assert_array_equal(kernel(x, z), np.maximum(x, 0) + z)


def _program(shape: tuple[int, ...], size: int) -> _core.Program:
    extents = {"b": shape[0], "i": size, "j": shape[2]}
    return syno.Operator.parse("y[b,i,j] = relu(x[b,i,j]) + z[b,i,j]", **extents).program
