"""Predicted latencies: fast, explained, for this machine or another."""

from __future__ import annotations

import json

import pytest
from machines import written_machine

import syno
from syno import _core
from syno.errors import KernelError, UnknownName
from syno.kernels.construct import construct
from syno.machines.model import machine_model

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
SIZES = {"n": 1, "o": 64, "c": 64, "h": 56, "w": 56, "r": 3, "s": 3}


def _with_fast_caches(ghz: float = 3) -> _core.MachineModel:
    """As the CPU is described, not as it was measured, with caches that keep up with any arithmetic."""
    facts = json.loads(_core.describe_machine().to_json()) | {"ghz": ghz}
    for level in facts["levels"]:
        for rate in ("read_gbs", "write_gbs", "copy_gbs"):
            level[rate] *= 4
    return _core.MachineModel.from_json(json.dumps(facts))


def test_a_convolution_is_limited_by_multiply_adds_where_caches_keep_up() -> None:
    operator = syno.Operator.parse(CONV, **SIZES)
    machine = _with_fast_caches()
    made = syno.predict(operator, machine=machine)
    assert made.bottleneck in ("multiply-adds", "latency of sums")
    assert 0.5 < made.fraction_of_peak <= 1
    taps_inside = (3 * 56 - 2) ** 2  # rows times columns: taps that read padding may be left out
    assert made.flops >= 2 * 64 * 64 * taps_inside
    assert syno.predict(operator.program, machine=machine).seconds == made.seconds
    assert syno.predict(operator, machine=machine, threads=2).seconds < made.seconds
    assert syno.predict(operator, machine=machine, cold=True).seconds >= made.seconds


def test_a_machine_of_half_the_frequency_takes_longer() -> None:
    operator = syno.Operator.parse(CONV, **SIZES)
    fast, slow = _with_fast_caches(3), _with_fast_caches(1.5)
    schedule = _core.default_schedule(operator.program)
    ratio = (
        syno.predict(operator, machine=slow, schedule=schedule).seconds
        / syno.predict(operator, machine=fast, schedule=schedule).seconds
    )
    assert 1.5 < ratio <= 2.01


@pytest.mark.parametrize("policy", ["counted", "graph"])
def test_a_prediction_is_of_the_nest_that_the_method_makes(policy: str) -> None:
    operator = syno.Operator.parse(CONV, **{**SIZES, "h": 9, "w": 11, "o": 20})
    made = construct(operator, policy=policy)
    nest = _core.apply_schedule(operator.program, made.schedule)
    expected = _core.predict_nest(nest, machine_model())
    for found in (made.prediction, syno.predict(operator, policy=policy)):
        assert found.seconds == expected.seconds
        assert list(found.memory_s) == list(expected.memory_s)


def test_names_features() -> None:
    operator = syno.Operator.parse(CONV, **SIZES)
    nest = _core.apply_schedule(operator.program, _core.default_schedule(operator.program))
    values = _core.nest_features(nest, _core.describe_machine())
    assert len(values) == len(_core.feature_names())


def test_bad_requests_get_a_sentence() -> None:
    operator = syno.Operator.parse(CONV, **SIZES)
    with pytest.raises(KernelError, match="threads=0"):
        syno.predict(operator, threads=0)
    with pytest.raises(UnknownName, match="float16"):
        syno.predict(operator, dtype="float16")


def test_inputs_come_from_the_level_that_is_said() -> None:
    """A matrix of 1 MB times a vector: the matrix is all there is to wait for."""
    operator = syno.Operator.parse("y[m] = sum[k] a[m,k] * x[k]", m=512, k=512)
    machine = written_machine()
    nest = _core.apply_schedule(operator.program, construct(operator, machine=machine).schedule)
    last = len(machine.levels) - 1
    near = _core.predict_nest(nest, machine)
    found = [
        _core.predict_nest(nest, machine, near=["x"], far=level) for level in (0, last - 1, last)
    ]
    assert not any(found[0].moved_bytes)
    # The last cache holds it either way; the vector lies nearer by itself.
    assert found[1].moved_bytes == pytest.approx(near.moved_bytes, rel=0.02)
    assert found[2].moved_bytes[last] >= 0.98 * 2**20
    assert found[1].moved_bytes[last] == 0
    assert found[2].seconds > found[1].seconds >= found[0].seconds
    assert _core.predict_nest(nest, machine, near=["x"]).seconds == found[2].seconds
    assert _core.predict_nest(nest, machine, near=["x", "a"]).seconds == near.seconds
    with pytest.raises(UnknownName, match=r"unknown input 'b'.* Valid: a, x"):
        _core.predict_nest(nest, machine, near=["b"])
