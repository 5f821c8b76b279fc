"""What is known of an operator before training: its latency, predicted and measured; hard limits on it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

import syno
from syno import _core
from syno.errors import BudgetError, ShapeError
from syno.operators.operator import Operator
from syno.session import Prune
from syno.session.require import LIMITS, required
from syno.timing.bench import Timing
from syno.tuning.latency import distinct, latency


def small(c: int, h: int) -> Operator:
    text = "y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]"
    return Operator.parse(text, n=1, o=c, c=c, h=h, w=h)


def test_each_distinct_valuation_is_timed_once() -> None:
    found = latency([small(8, 6), small(4, 5), small(8, 6)], turns=3)
    assert [v.count for v in found.valuations] == [2, 1]
    assert [v.shapes["x"] for v in found.valuations] == [(1, 8, 6, 6), (1, 4, 5, 5)]
    first, second = found.valuations
    assert first.us and second.us and found.us == pytest.approx(2 * first.us + second.us)
    assert found.predicted_us == pytest.approx(2 * first.predicted_us + second.predicted_us)
    assert all(v.max_rel_err is not None and v.max_rel_err < 1e-5 for v in found.valuations)


def test_a_prediction_times_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a kernel was compiled")

    monkeypatch.setattr("syno.kernels.kernel.compile", refuse)
    found = syno.latency(small(8, 6), measured=False)
    assert found.us is None and found.predicted_us > 0


def test_a_symbolic_operator_is_timed_at_the_batch_asked_for() -> None:
    graph = _core.named_operator("conv1x1", _core.spec_named("conv"))
    operator = Operator.from_pgraph(graph)
    found = latency(operator, batch=1, measured=False)
    assert sum(v.count for v in found.valuations) == operator.valuation_count
    assert {v.shapes["x"][0] for v in found.valuations} == {1}
    more = latency(operator, batch=4, measured=False)
    assert more.predicted_us > found.predicted_us


def test_bigger_operators_are_predicted_slower() -> None:
    times = [latency(small(c, 28), measured=False).predicted_us for c in (16, 64, 256)]
    assert times == sorted(times) and times[0] < times[-1]


def test_nothing_to_time_gets_a_sentence() -> None:
    with pytest.raises(ShapeError, match="there is no operator to time"):
        latency([])


def test_distinct_operators_keep_their_order_and_count() -> None:
    a, b = small(8, 6), small(4, 5)
    assert [(o.shapes["x"][1], n) for o, n in distinct([b, a, b, b])] == [(4, 3), (8, 1)]


@given(
    st.dictionaries(st.sampled_from(sorted(LIMITS)), st.floats(0.01, 9).map(lambda x: round(x, 3)))
)
def test_requirements_become_limits_and_leave_the_rest(ratios: dict[str, float]) -> None:
    base = Prune(max_latency_ratio=1.05, max_drop=0.2)
    text = ", ".join(f"{name} <= {ratio}x" for name, ratio in ratios.items())
    made = required(text, base)
    for name, field in LIMITS.items():
        assert getattr(made, field) == ratios.get(name, getattr(base, field))
    assert made.max_drop == 0.2


def test_the_tighter_of_two_requirements_holds() -> None:
    assert required("latency<=0.8x,latency<=0.5x", Prune()).max_latency_ratio == 0.5


@pytest.mark.parametrize(
    "text", ["latency<0.5x", "speed<=0.5x", "latency<=half", "latency<=0x", "latency<=-1x", "0.5x"]
)
def test_a_requirement_that_makes_no_sense_gets_a_sentence(text: str) -> None:
    with pytest.raises(BudgetError, match=r"there are: latency, flops, params"):
        required(text, Prune())


def test_a_pass_that_another_process_disturbed_is_not_the_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    factors = iter([5.0, 1.0, 1.04, 7.0])

    def passes(functions: Mapping[str, object], **_: object) -> list[Timing]:
        factor = next(factors)
        return [
            Timing(
                name,
                100.0 * factor,
                1.0,
                samples=3,
                calls=1,
                threads=1,
                speed_up=1.0,
                speed_up_iqr=0.0,
            )
            for name in functions
        ]

    monkeypatch.setattr("syno.timing.bench.measure", passes)
    assert latency(small(8, 6), turns=3).us == 100.0
    assert next(factors) == 7.0, "two passes that agree are enough"
