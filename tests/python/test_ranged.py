"""Code for ranges of sizes: made and checked once for all layers that are the same, in few ranges."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import syno
from syno import Operator, _core
from syno.errors import ScheduleError
from syno.graph import buckets
from syno.graph.dynamic_model import DynamicModel
from syno.kernels import choosing, ranged
from syno.kernels import construct as construct_module
from syno.kernels.construct import choose_schedule
from syno.kernels.ranged import (
    Asked,
    NotTheSame,
    Range,
    make_together,
    neutral_names,
    ranged_kernels,
)
from syno.support.bounded import Bounded


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inside, self.outside = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.outside(torch.relu(self.inside(x))))


def _blocks(count: int) -> nn.Module:
    torch.manual_seed(count)
    return nn.Sequential(*(Block(12) for _ in range(count))).eval()


def _compiled(model: nn.Module, **options: Any) -> DynamicModel:
    options = {"cache": False} | options
    made = syno.compile(model, torch.zeros(1, 20, 12), dynamic={0: {1: ("n", 2, 40)}}, **options)
    assert isinstance(made, DynamicModel)
    assert made.by_size == ""
    return made


def _same(fast: Any, model: nn.Module, *sizes: int) -> None:
    for size in sizes:
        x = torch.randn(1, size, 12)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """What is made while a test runs, from nothing."""
    found: list[Asked] = []
    real = ranged._made

    def counted(asked: Asked) -> Any:
        found.append(asked)
        return real(asked)

    ranged._kept.clear()
    monkeypatch.setattr(ranged, "_made", counted)
    return found


def test_spills_are_counted_in_the_code_that_calls_run(
    made: list[Asked], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Any] = []
    compiled: list[str] = []
    plain, compile_nest = choosing.without_spills, _core.compile_nest

    def looking(program: Any, schedule: Any, **options: Any) -> Any:
        looked.append(options["nest_of"](schedule).parameters)
        return plain(program, schedule, **options)

    def compiling(nest: Any, **options: Any) -> Any:
        compiled.append(str(nest.text()))
        return compile_nest(nest, **options)

    monkeypatch.setattr(choosing, "without_spills", looking)
    monkeypatch.setattr(_core, "compile_nest", compiling)
    _construct_anew(monkeypatch)
    _same(_compiled(_blocks(1)), _blocks(1), 2, 17, 40)
    assert looked and all(len(parameters) == 1 for parameters in looked)
    # No code is made for the greatest size alone, which no call would run.
    assert any("parameter size_1" in text for text in compiled)
    assert not any("[1, 40, " in text and "parameter" not in text for text in compiled)


def _construct_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(construct_module, "_constructed", Bounded(64))
    monkeypatch.setattr(construct_module, "_predicted", Bounded(64))


def test_what_is_mended_for_a_range_serves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    _construct_anew(monkeypatch)
    program = Operator.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", m=9, n=17, k=5).program
    mended = _core.Schedule().add("reorder", "y", loops=["m", "k", "n"])

    def chosen(made_for: str, mend: Any = None) -> Any:
        return choose_schedule(program, "float32", 1, None, mend=mend, made_for=made_for).schedule

    assert chosen("a range", lambda _: mended) == mended
    assert chosen("") != mended
    assert chosen("a range") == mended
    assert chosen("another range") == chosen("")


def test_buckets_take_the_schedules_that_they_were_predicted_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _construct_anew(monkeypatch)
    built: list[str] = []
    construct = construct_module.construct

    def counted(program: Any, **options: Any) -> Any:
        if "spare_registers" not in options:
            built.append(str(getattr(program, "program", program).text()))
        return construct(program, **options)

    monkeypatch.setattr(construct_module, "construct", counted)
    fast = _compiled(_blocks(1))
    for bucket in fast.buckets:
        fast.at(bucket[1][0])
    assert built and len(set(built)) == len(built)


def test_equal_layers_are_made_and_checked_once(made: list[Asked]) -> None:
    one = _compiled(_blocks(1), fuse=False)
    _same(one, _blocks(1), 7, 40)
    few = len(made)
    assert few > 0
    three = _blocks(3)
    _same(_compiled(three, fuse=False), three, 7, 40)  # each layer with its own weights
    assert len(made) == few, "three layers need what one needs"
    assert len({asked.key() for asked in made}) == few


def test_checks_are_remembered_beside_the_code(
    made: list[Asked], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path))
    model = _blocks(1)
    _same(_compiled(model, cache=True), model, 2, 40)
    kernel = Operator.parse("y[i] = sum[j] x[i,j]", i=3, j=9)
    kernel.compile(dynamic={"i": (1, 3)})
    ranged._kept.clear()

    def checks(*_: Any, **__: Any) -> Any:
        raise AssertionError("this was checked before")

    monkeypatch.setattr(_core, "verify_at_sizes", checks)
    first = len(made)
    _same(_compiled(model, cache=True), model, 2, 40)
    kernel.compile(dynamic={"i": (1, 3)})
    assert len(made) == 2 * first
    ranged._kept.clear()
    with pytest.raises(AssertionError, match="checked before"):
        _compiled(model, cache=False)


def _asked(text: str, wrong: str = "", more_at: int = 0, **more: Any) -> Asked:
    def program(formula: str, n: int) -> _core.Program:
        return Operator.parse(formula, n=n, k=5, m=3).program

    instances = [((n,), program(text, n)) for n in (8, 2, 7)]
    checks = {(n,): program(wrong or text, n + (n == more_at)) for n in (2, 8)}
    return Asked(instances, [Range("n", 2, 8)], checks, **({"cache": False} | more))


def test_code_that_computes_something_else_is_not_given_out(made: list[Asked]) -> None:
    text = "y[n,m] = sum[k] x[n,k] * w[m,k]"
    wrong = _asked(text, wrong="y[n,m] = sum[k] x[n,k] * w[m,k] * 2", constants=("w",))
    with pytest.raises(NotTheSame, match=r"max_rel_err .* at size 2"):
        ranged_kernels(wrong)
    with pytest.raises(ScheduleError, match=r"max_rel_err"):
        ranged_kernels(wrong)
    assert len(made) == 1, "once is enough"
    right = ranged_kernels(_asked(text, constants=("w",)))
    assert right.outcome.passed
    assert right.outcome.points > 0
    assert right.call.at([5]) is not None
    with pytest.raises(NotTheSame, match="other shapes at size 8"):
        ranged_kernels(_asked(text, wrong="y[n,m] = sum[k] x[n,k] * w[m,k]", more_at=8))
    made.pop()
    make_together([wrong, _asked(text, constants=("w",))])
    assert len(made) == 2
    with pytest.raises(ScheduleError):
        ranged_kernels(wrong)


def test_what_goes_wrong_in_another_way_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(asked: Asked) -> Any:
        raise MemoryError("no memory")

    ranged._kept.clear()
    monkeypatch.setattr(ranged, "_made", broken)
    with pytest.raises(MemoryError, match="no memory"):
        make_together([_asked("y[n,m] = sum[k] x[n,k] * w[m,k]")])
    make_together([])


def test_names_of_layers_are_the_same_where_layers_are() -> None:
    texts = []
    for name in ("first", "second"):
        program = Operator.parse(
            f"{name}_t[n,m] = sum[k] {name}_x[n,k] * {name}_w[m,k]; y[n,m] = relu({name}_t[n,m])",
            n=4, m=3, k=5,
        ).program  # fmt: skip
        names = neutral_names(program)
        assert set(names) == {tensor for tensor in (f"{name}_t", f"{name}_x", f"{name}_w", "y")}
        texts.append(str(program.renamed(names).text()))
    assert texts[0] == texts[1]


@given(
    least=st.integers(1, 300), more=st.integers(0, 700),
    losses=st.lists(st.sampled_from([0.0, 0.04, 0.06, 3.0]), min_size=1, max_size=8),
)  # fmt: skip
def test_buckets_hold_each_size_once_and_lose_little(
    least: int, more: int, losses: list[float]
) -> None:
    greatest = least + more
    asked: dict[tuple[int, int], float] = {}

    def loss(high: int, size: int) -> float:
        assert least <= size < high <= greatest
        return asked.setdefault((high, size), losses[len(asked) % len(losses)])

    found = buckets.cut(least, greatest, loss)
    assert [size for low, high in found for size in range(low, high + 1)] == list(
        range(least, greatest + 1)
    )
    for low, high in found:
        probed = [part for (end, size), part in asked.items() if end == high and size >= low]
        narrow = 2 * low > high or low - least < 16 or low == buckets._half(least, high, high)
        assert narrow or all(part <= buckets.LOSS for part in probed)
    assert len(asked) <= 24


def test_little_loss_makes_one_bucket_and_much_loss_narrow_ones() -> None:
    assert buckets.cut(24, 512, lambda high, size: 0.05) == [(24, 512)]
    assert buckets.cut(24, 512, lambda high, size: 0.2) == [
        (24, 64),
        (65, 128),
        (129, 256),
        (257, 512),
    ]
    assert buckets.cut(24, 512, lambda high, size: 0.0 if size > 100 else 1.0) == [
        (24, 64), (65, 128), (129, 512),
    ]  # fmt: skip
    assert buckets.cut(7, 7, lambda high, size: 9.9) == [(7, 7)]


def test_where_half_a_size_loses_much_a_narrower_bucket_may_lose_less() -> None:
    """As images do, whose area follows a side twice; never so narrow that vectors end in it."""

    def by_area(high: int, size: int) -> float:
        return 0.2 * (1 - (size / high) ** 2)

    assert buckets.cut(96, 384, by_area) == [
        (96, 128),
        (129, 160),
        (161, 208),
        (209, 272),
        (273, 384),
    ]
    assert buckets.cut(96, 112, by_area) == [(96, 112)], "narrow already"
    little = buckets.cut(96, 384, lambda high, size: 0.07 if size > high // 2 + 1 else 0.09)
    assert little == [(96, 192), (193, 384)], "less by too little"


@given(least=st.integers(1, 300), more=st.integers(0, 700))
def test_sizes_are_predicted_together_that_a_cut_asks_for(least: int, more: int) -> None:
    asked: list[int] = []

    def loss(high: int, size: int) -> float:
        asked.append(size)
        return 0.0

    buckets.cut(least, least + more, loss)
    assert buckets.looked_at(least, least + more) == asked


# What the checks of several sizes have in common

_SIZES = (2, 3, 8, 5)


@pytest.mark.parametrize(
    ("text", "constants"),
    [
        ("y[n,m] = sum[k] x[n,k] * w[m,k]", ("w",)),
        ("y[n,m] = sum[k] x[n,k] * w[m,k]", ()),
        ("y[n] = max[k] x[n+k]", ()),
        ("y[n,m] = sum[k] x[n+k] * w[m,k]", ("w",)),
        # Nothing but what is no number between -1 and 1: other data are chosen, and drawn again for the next size.
        ("y[n,m] = sum[k] log(x[n,k] - 3) * w[m,k]", ("w",)),
        ("y[n,m] = sum[k] x[n,k] * log(w[m,k] - 3)", ("w",)),
        # As long as the size is, and drawn for each.
        ("y[n] = x[n] * w[n]", ()),
    ],
)
def test_sizes_are_checked_together_as_each_alone(text: str, constants: tuple[str, ...]) -> None:
    sizes = {
        name: value for name, value in (("k", 40), ("m", 48)) if re.search(rf"\b{name}\b", text)
    }

    def program(n: int) -> _core.Program:
        return Operator.parse(text, n=n, **sizes).program

    instances = [((n,), program(n)) for n in (8, 2, 7)]
    checks = {(n,): program(n) for n in (2, 8)}
    made = ranged_kernels(Asked(instances, [Range("n", 2, 8)], checks, constants, cache=False))
    programs = [program(n) for n in _SIZES]
    calls = [made.call.at([n]) for n in _SIZES]
    together = _core.verify_at_sizes(made.prepack, calls, programs, 7, random_points=40)
    alone = [
        call.verify(each, 7, random_points=40)
        if made.prepack is None
        else _core.verify_prepacked(made.prepack, call, each, 7, random_points=40)
        for call, each in zip(calls, programs, strict=True)
    ]
    assert [_seen(each) for each in together] == [_seen(each) for each in alone]
    assert all(each.passed for each in together)


def _seen(found: _core.Verification) -> tuple[Any, ...]:
    return found.passed, found.max_rel_err, found.limit, found.points, found.detail


@pytest.mark.parametrize("constants", [(), ("w",)])
def test_the_first_size_that_is_wrong_is_the_last_one_looked_at(constants: tuple[str, ...]) -> None:
    text = "y[n,m] = sum[k] x[n,k] * w[m,k]"
    made = ranged_kernels(_asked(text, constants=constants))
    calls = [made.call.at([n]) for n in _SIZES]
    programs = [Operator.parse(text + " * 2" * int(n == 8), n=n, k=5, m=3).program for n in _SIZES]
    found = _core.verify_at_sizes(made.prepack, calls, programs)
    assert [each.passed for each in found] == [True, True, False]
    with pytest.raises(_core.ShapeError, match="4 kernels, but 3 programs"):
        _core.verify_at_sizes(made.prepack, calls, programs[:3])
    with pytest.raises(_core.KernelError, match=r"has shape \[2, 5\]"):
        _core.verify_at_sizes(made.prepack, calls, programs[::-1])
    with pytest.raises(TypeError, match="not None"):
        _core.verify_at_sizes(made.prepack, [None], programs[:1])  # type: ignore[list-item]
    assert _core.verify_at_sizes(made.prepack, [], []) == []
