"""Kernels from constructed schedules: remembered, explained, and right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import syno
from syno import _core
from syno.errors import KernelError, ScheduleError, UnknownName
from syno.kernels.construct import choose_schedule, construct
from syno.kernels.prepack import prepacked
from syno.kernels.spills import call_nest
from syno.machines.model import machine_model

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"


def conv(**sizes: int) -> syno.Operator:
    return syno.Operator.parse(
        CONV, **{"n": 1, "o": 20, "c": 6, "h": 13, "w": 15, "r": 3, "s": 3, **sizes}
    )


def test_a_kernel_is_constructed_and_says_why() -> None:
    kernel = conv().compile()
    assert kernel.origin == "constructed"
    text = kernel.explain()
    assert "limited by" in text and "led to" in text and "benefit" in text
    assert kernel.predict().bottleneck in text
    whole = kernel.explain(walk=True)
    assert len(text.splitlines()) < 30 < len(whole.splitlines())


def test_a_given_schedule_is_kept() -> None:
    operator = conv()
    schedule = _core.default_schedule(operator.program)
    kernel = operator.compile(schedule=schedule)
    assert kernel.origin == "given" and kernel.schedule == schedule
    assert "given" in kernel.explain()


@pytest.mark.parametrize("method", ["graph", "tree", "counted"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_method_gives_a_right_kernel(method: str, dtype: str) -> None:
    operator = conv(h=9, o=17)
    made = construct(operator, method=method, dtype=dtype, counted=False)
    assert operator.compile(schedule=made.schedule, dtype=dtype).verify().passed


def test_the_schedule_is_remembered_in_the_cache(tmp_path: Path) -> None:
    program = conv(c=7).program
    with syno.config.config(cache=str(tmp_path)):
        first = choose_schedule(program, "float32", 1, tmp_path)
        (kept,) = tmp_path.glob("*.schedule")
        from syno.kernels import construct as module

        module._constructed.clear()
        assert choose_schedule(program, "float32", 1, tmp_path).schedule == first.schedule
        module._constructed.clear()
        kept.write_text("broken")
        assert choose_schedule(program, "float32", 1, tmp_path).schedule == first.schedule


def test_the_result_depends_on_arguments_only() -> None:
    operator = conv(o=64, c=32, h=28, w=28)
    a, b = construct(operator, seed=3), construct(operator, seed=3)
    assert a.schedule == b.schedule and a.predicted_s == b.predicted_s <= a.counted_s
    x = np.random.default_rng(0).standard_normal((1, 32, 28, 28)).astype(np.float32)
    k = np.random.default_rng(1).standard_normal((64, 32, 3, 3)).astype(np.float32)
    one = operator.compile(schedule=a.schedule)(x, k)
    other = operator.compile(schedule=construct(operator, method="tree").schedule)(x, k)
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_bad_requests_get_a_sentence() -> None:
    with pytest.raises(UnknownName, match="counted, graph, tree"):
        construct(conv(), method="gensor")
    with pytest.raises(KernelError, match="threads=0"):
        construct(conv(), threads=0)


def test_cold_arguments_cost_more_and_may_change_the_choice() -> None:
    operator = syno.Operator.parse("y[m,n] = sum[k] x[m,k] * w[k,n]", m=24, n=512, k=512)
    warm, cold = construct(operator), construct(operator, cold=True)
    assert cold.counted_s > warm.counted_s
    assert cold.predicted_s <= cold.counted_s
    assert operator.compile(schedule=cold.schedule).verify().passed


@given(o=st.integers(1, 70), c=st.integers(1, 9), h=st.integers(1, 9), w=st.integers(1, 20))
@settings(max_examples=8, deadline=None)
def test_constants_are_packed_outside_of_what_is_predicted(o: int, c: int, h: int, w: int) -> None:
    operator = conv(o=o, c=c, h=h, w=w)
    made = construct(operator, constants=["k"])
    nest = call_nest(operator.program, made.schedule)
    assert made.predicted_s == _core.predict_nest(nest, machine_model()).seconds
    assert prepacked(operator, ["k"], schedule=made.schedule, cache=False).verification.passed


def test_schedules_for_constants_are_kept_apart(tmp_path: Path) -> None:
    program = conv(o=64, c=32).program
    with syno.config.config(cache=str(tmp_path)):
        plain = choose_schedule(program, "float32", 1, tmp_path)
        packed = choose_schedule(program, "float32", 1, tmp_path, constants=["k"])
        assert "prepack" in packed.schedule.text() and "prepack" not in plain.schedule.text()
        assert len(list(tmp_path.glob("*.schedule"))) == 2
        again = choose_schedule(program, "float32", 1, tmp_path, constants=["k"])
        assert again.schedule == packed.schedule
    with pytest.raises(ScheduleError, match=r"unknown tensor 'q'.*Valid: k, x, y"):
        construct(program, constants=["q"])
