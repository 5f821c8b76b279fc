"""Sums of one program are searched alone, equal ones once, and what is found is put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from machines import written_machine

import syno
from syno import _core
from syno.deriving import search
from syno.deriving.apart import distinct, sums_of
from syno.deriving.derivations import Derivations
from syno.machines.model import fixed_kernels
from syno.operators.operator import Operator

#: Three windows, two of which are alike but for the names of their tensors.
THREE = """
t[o: 48,h: 64] = sum[c: 48,r: 3] x[c,h+r-1] * k[o,c,r]
a[o: 48,h: 64] = relu(t[o,h])
u[o: 48,h: 64] = sum[c: 48,r: 3] a[c,h+r-1] * l[o,c,r]
y[o: 40,h: 64] = sum[c: 48,r: 5] u[c,h+r-2] * m[o,c,r]
return y
"""
WEIGHTS = ("k", "l", "m")


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    """What is found with few programs depends on it."""
    with fixed_kernels(written_machine().to_json()):
        yield


def operator(text: str = THREE) -> Operator:
    return Operator(_core.Program.parse(text))


def derived(of: Operator, **given: Any) -> Derivations:
    asked: dict[str, Any] = {"constants": WEIGHTS, "seconds": 0.0, "states": 240, "measure": 0}
    return syno.derive(of, **{**asked, **given})


def inexact_at(one: Any) -> set[str]:
    """Scopes of the given program whose window is multiplied by values."""
    return {site.scope.split("_")[0] for rule, site in one.path if rule == "toom_cook"}


def test_equal_sums_ask_once() -> None:
    parts = sums_of(operator(), WEIGHTS, "float32", 1)
    assert len(parts) == 3 and len(distinct(parts)) == 2
    windows = {part.names[name] for part in parts for name in part.question.constants}
    assert windows == set(WEIGHTS)


def test_one_sum_is_not_cut() -> None:
    one = operator("y[o: 5,h: 12] = sum[c: 5,r: 3] x[c,h+r-1] * k[o,c,r]\nreturn y")
    assert sums_of(one, ("k",), "float32", 1) == []
    small = operator(
        "t[o: 5] = sum[c: 5] x[c] * q[o,c]\n"
        "y[o: 9,h: 99] = sum[c: 5,r: 3] t[c] * k[o,c,r] * z[h+r]\nreturn y"
    )
    assert sums_of(small, ("k", "q"), "float32", 1) == []


def test_every_sum_is_derived_in_one_program() -> None:
    found = derived(operator())
    everywhere = [one for one in found if inexact_at(one) == {"t", "u", "y"}]
    assert everywhere
    assert any(inexact_at(one) in ({"t", "u"}, {"y"}) for one in found)
    together = derived(operator(), measure=2)
    best = together.best()
    assert best.max_rel_err is None or best.max_rel_err <= 1e-5  # compared with the interpreter
    for one in everywhere[:2]:
        one.prepack()


def test_without_them_so_few_programs_do_not_get_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "sums_of", lambda *given: [])
    assert not any(inexact_at(one) == {"t", "u", "y"} for one in derived(operator()))


def test_searches_are_as_many_as_different_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int]] = []
    real = _core.search_derivations

    def counting(program: _core.Program, *args: Any, **given: Any) -> _core.DerivationSearch:
        asked.append((program.text(), given["states"]))
        return real(program, *args, **given)

    monkeypatch.setattr(_core, "search_derivations", counting)
    found = derived(operator())
    assert [states for _, states in asked] == [60, 60, 120]
    assert len({text for text, _ in asked}) == 3
    assert found.states <= 240


def test_the_same_each_time_and_by_depth() -> None:
    first, second = derived(operator()), derived(operator())
    assert [one.path for one in first] == [one.path for one in second]
    for one in derived(operator(), depth=2):  # where results lie is no step
        assert sum(rule != "innermost" for rule, _ in one.path) <= 2


def test_fewer_programs_than_shares_are_all_of_the_whole() -> None:
    assert derived(operator(), states=1).states == 1
    assert derived(operator(), states=5).states <= 5


def test_stopped_between_searches_it_gives_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    def predicted(*_: Any) -> list[None]:
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "together", predicted)
    found = derived(operator())
    assert found.ended == "interrupted" and len(found) == 1


@pytest.mark.parametrize("at", [0, 1, 2])
def test_stopped_it_gives_what_there_is(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    real, calls = _core.search_derivations, [0]

    def interrupt(states: int, seconds: float, best: float) -> bool:
        raise KeyboardInterrupt

    def stopped(program: _core.Program, *args: Any, **given: Any) -> _core.DerivationSearch:
        calls[0] += 1
        if calls[0] - 1 == at:
            given["watch"] = interrupt
        return real(program, *args, **given)

    monkeypatch.setattr(_core, "search_derivations", stopped)
    found = derived(operator(), states=100_000)
    assert found.ended == "interrupted" and calls[0] == at + 1
    assert found.best().path == ()
