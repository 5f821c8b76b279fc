"""Numbers are printed with the digits that say something."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import syno
from syno.errors import BudgetError, KernelError, SessionError, ShapeError
from syno.searching.pipeline import search, search_task
from syno.session import Budget
from syno.support.numbers import significant


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


KERNEL = syno.Operator.parse("y[i] = x[i] * 2", i=4)
TAKE_NUMBERS = [
    ("threads", lambda n: KERNEL.compile(threads=n)), ("seed", lambda n: KERNEL.compile().verify(seed=n)),
    ("num_threads", lambda n: KERNEL.compile().time(num_threads=n)), ("threads", lambda n: syno.predict(KERNEL, threads=n)),
    ("threads", lambda n: syno.latency(KERNEL, threads=n, measured=False)),
    ("trials", lambda n: syno.tune(KERNEL, trials=n)), ("seed", lambda n: syno.tune(KERNEL, trials=2, seed=n)),
    ("threads", lambda n: syno.tune(KERNEL, trials=2, threads=n)), ("turns", lambda n: syno.bench({"a": abs}, 1, turns=n)),
    ("threads", lambda n: syno.bench({"a": abs}, 1, threads=n)), ("threads", lambda n: syno.sites(torch.nn.Identity(), threads=n)),
    ("repeats", lambda n: syno.sites(torch.nn.Identity(), repeats=n)),
]  # fmt: skip


@pytest.mark.parametrize(
    "value", [-1, 10**5000, 1.5, "x", None], ids=["below", "huge", "fraction", "text", "none"]
)
@pytest.mark.parametrize(("name", "call"), TAKE_NUMBERS)
def test_numbers_out_of_range_are_named_and_not_echoed(
    name: str, call: Callable[[Any], object], value: Any
) -> None:
    if name == "num_threads" and value is None:
        return  # the default
    with pytest.raises((KernelError, ShapeError), match=f"{name}=") as caught:
        call(value)
    assert len(str(caught.value)) < 300


def _ids(value: object) -> str:
    return "long" if value == 10**5000 else str(value)


@pytest.mark.parametrize(
    "name", ["seed", "workers", "finalists", "final_seeds", "batch_width", "lag", "groups"]
)
@pytest.mark.parametrize("value", [-1, 1.5, "two", 10**5000, math.nan], ids=_ids)
def test_a_search_holds_its_numbers_against_their_range_before_any_work(
    name: str, value: object, tmp_path: Path
) -> None:
    with pytest.raises(
        SessionError, match=rf"(?s)\[R017\] {name}=.*fix: give a whole number"
    ) as error:
        search(
            torch.nn.Identity(), None, data="no.such:task", session=tmp_path / "s", **{name: value}
        )  # type: ignore[arg-type]
    assert len(str(error.value)) < 500
    with pytest.raises(SessionError, match=name):
        search_task("no.such:task", tmp_path / "s", budget=1, **{name: value})  # type: ignore[arg-type]
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("value", [0, -3, 1.5, "3", 10**5000], ids=_ids)
def test_a_budget_of_candidates_is_a_whole_number(value: object) -> None:
    with pytest.raises(BudgetError, match="candidates="):
        Budget(candidates=value)  # type: ignore[arg-type]
