"""Predicted latencies: fast, explained, for this machine or another."""

from __future__ import annotations

import json

import pytest

import syno
from syno import _core
from syno.errors import KernelError, UnknownName
from syno.kernels.construct import construct
from syno.machines.model import machine_model

CONV = "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
SIZES = {"n": 1, "o": 64, "c": 64, "h": 56, "w": 56, "r": 3, "s": 3}


def test_a_convolution_is_limited_by_multiply_adds() -> None:
    operator = syno.Operator.parse(CONV, **SIZES)
    # As the CPU is described, not as it was measured: a busy machine's caches look slower than its arithmetic.
    machine = _core.describe_machine()
    made = syno.predict(operator, machine=machine)
    assert made.bottleneck == "multiply-adds"
    assert 0.5 < made.fraction_of_peak <= 1
    taps_inside = (3 * 56 - 2) ** 2  # rows times columns: taps that read padding may be left out
    assert made.flops >= 2 * 64 * 64 * taps_inside
    assert syno.predict(operator.program, machine=machine).seconds == made.seconds
    assert syno.predict(operator, machine=machine, threads=2).seconds < made.seconds
    assert syno.predict(operator, machine=machine, cold=True).seconds >= made.seconds


def test_a_machine_of_half_the_frequency_takes_longer() -> None:
    operator = syno.Operator.parse(CONV, **SIZES)
    facts = json.loads(_core.describe_machine().to_json())
    fast = _core.MachineModel.from_json(json.dumps(facts))
    facts["ghz"] /= 2
    slow = _core.MachineModel.from_json(json.dumps(facts))
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
