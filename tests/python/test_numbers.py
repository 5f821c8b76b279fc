"""Numbers are printed with the digits that say something."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import syno
from syno.numbers import significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.03124, "0.0312"),
        (12.34, "12.3"),
        (1234.56, "1,235"),
        (999.96, "1,000"),
        (0.0, "0"),
        (-0.5, "-0.500"),
        (3e-12, "3.00e-12"),
        (math.nan, "nan"),
        (math.inf, "inf"),
    ],
)
def test_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(1e-12, 1e18), st.integers(1, 6))
def test_what_is_printed_is_near_what_was_measured(value: float, digits: int) -> None:
    printed = float(significant(value, digits).replace(",", ""))
    assert printed == pytest.approx(value, rel=0.51 * 10.0 ** (1 - digits))
    assert printed > 0


def test_the_prediction_of_a_tiny_kernel_is_no_zero() -> None:
    made = syno.predict(syno.Operator.parse("y[i] = x[i] + 1", i=2))
    shown = float(repr(made).removeprefix("Prediction(").partition(" us")[0])
    assert shown > 0
    assert shown == pytest.approx(1e6 * made.seconds, rel=0.01)
