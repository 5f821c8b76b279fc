"""Schedules and loop nests from Python: what is decided keeps the meaning, and mistakes are named."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

core = pytest.importorskip("syno._core")

CONV = "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]"


def conv(o: int = 4, h: int = 5, w: int = 7, c: int = 3) -> core.Program:
    return core.Program.parse(CONV, sizes={"o": o, "h": h, "w": w, "c": c, "r": 3, "s": 3})


def arguments(program: core.Program, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(program.shape(name)) for name in program.inputs}


def check(program: core.Program, schedule: core.Schedule) -> None:
    nest = core.apply_schedule(program, schedule)
    nest.verify()
    inputs = arguments(program)
    wanted, got = program.interpret(inputs), nest.interpret(inputs)
    for name in program.outputs:
        np.testing.assert_allclose(got[name], wanted[name], rtol=1e-9, atol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 19), st.integers(1, 4))
def test_default_schedule_keeps_the_meaning(o: int, h: int, w: int, c: int) -> None:
    program = conv(o, h, w, c)
    for dtype in ("float32", "float64", "bfloat16"):
        check(program, core.default_schedule(program, dtype=dtype))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9))
def test_split_and_vectorize_keep_the_meaning(rows: int, lanes: int) -> None:
    schedule = (
        core.Schedule()
        .add("split", "y", loops=["h"], numbers=[rows])
        .add("split", "y", loops=["w"], numbers=[lanes])
        .add("reorder", "y", loops=["c", "r", "s", "w_i"])
        .add("register_tile", "y", loops=["w_i"])
        .add("vectorize", "y", loops=["w_i"])
    )
    check(conv(), schedule)


def test_schedules_and_nests_round_trip() -> None:
    program = conv()
    schedule = core.default_schedule(program)
    assert len(schedule) > 0
    assert core.Schedule.parse(schedule.text()) == schedule
    assert core.Schedule.from_json(schedule.to_json()) == schedule
    assert json.loads(schedule.to_json())["dtype"] == "f32"
    nest = core.apply_schedule(program, schedule)
    assert core.LoopNest.parse(nest.text()).text() == nest.text()
    assert nest.arguments == ["x", "k", "y"]


def test_the_same_program_gets_the_same_schedule() -> None:
    assert core.default_schedule(conv()) == core.default_schedule(conv())


def test_mistakes_are_named() -> None:
    program = conv()
    with pytest.raises(core.UnknownName, match="float16"):
        core.default_schedule(program, dtype="float16")
    with pytest.raises(core.UnknownName, match="splitt"):
        core.apply_schedule(program, core.Schedule().add("splitt", "y"))
    with pytest.raises(core.ScheduleError, match=r"decision 0 .*\n?.*'z'"):
        core.apply_schedule(program, core.Schedule().add("split", "y", loops=["z"], numbers=[2]))
    with pytest.raises(core.ScheduleError, match="reduction"):
        core.apply_schedule(program, core.Schedule().add("parallel", "y", loops=["c"]))
    with pytest.raises(core.ParseError):
        core.Schedule.parse("split y")
    with pytest.raises(core.FormatError):
        core.Schedule.from_json("{")
    symbolic = core.Program.parse(
        "size N : primary = 4\ninput x[N]\ny[n: N] = x[n] + 1\nreturn y",
    )
    with pytest.raises(core.ScheduleError, match="symbolic"):
        core.default_schedule(symbolic)


def test_decisions_are_listed() -> None:
    names = [name for name, _, _ in core.decisions()]
    assert "split" in names
    assert "register_tile" in names
    assert len(names) == len(set(names))
