"""Schedules as rewrites, sketch and numbers: put together they are the same, whatever programs and traces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machines import written_machine

from syno import _core
from syno.errors import FormatError
from syno.tuning.records import decode
from syno.tuning.trace_parts import REWRITES, TraceParts, parts_of, schedule_of

PROGRAMS = {
    "product": ("y[m,n] = sum[k] a[m,k] * b[k,n]", dict(m=24, n=40, k=33)),
    "window": (
        "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]",
        dict(o=8, h=9, w=11, c=5, r=3, s=3),
    ),
    # What a gradient of a strided window reads: its taps are solved for.
    "gradient": (
        "y[c,h,w] = sum[o,r,s] g[o,(h-r+1)/2,(w-s+1)/2] * k[o,c,r,s]",
        dict(c=6, h=8, w=8, o=5, r=3, s=3),
    ),
    "softmax": ("y[i,j] = exp(x[i,j]) / (sum[k] exp(x[i,k]))", dict(i=5, j=21, k=21)),
}


def program_of(name: str) -> Any:
    text, sizes = PROGRAMS[name]
    return _core.Program.parse(text, sizes=sizes)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)),
    st.integers(0, 10**6),
    st.sampled_from(["float32", "float64"]),
)
def test_parts_make_the_schedule(name: str, seed: int, dtype: str) -> None:
    space = _core.ScheduleSpace(program_of(name), written_machine(), dtype=dtype)
    for candidate in (space.sample(seed), *space.starts()[:2]):
        if candidate is None:
            continue
        parts = parts_of(candidate.schedule)
        assert schedule_of(dtype, parts) == candidate.schedule
        assert all(line.split()[0] in REWRITES for line in parts.rewrites)
        assert not any(
            character.isdigit() for line in parts.sketch for character in numbers_in(line)
        )


def numbers_in(line: str) -> str:
    return line.partition(" numbers=")[2].partition(" ")[0]


def test_rewrites_come_first_and_numbers_apart() -> None:
    schedule = (
        _core.Schedule().add("solve", "y", loops=["r"]).add("split", "y", loops=["k"], numbers=[4])
    )
    schedule = schedule.add("peel", "y", loops=["k_o"], numbers=[-1, 12]).add(
        "solve", "y", loops=["s"]
    )
    parts = parts_of(schedule)
    assert parts.rewrites == ("solve y loops=r",)
    assert parts.sketch == (
        "split y loops=k numbers=_",
        "peel y loops=k_o numbers=_,_",
        "solve y loops=s",
    )
    assert parts.numbers == (4, -1, 12)
    assert schedule_of("float32", parts) == schedule


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (dict(numbers=(4, 1)), "asks for 2 numbers; 1 are left"),
        (dict(numbers=(4, 1, 2, 3)), "1 numbers more than the sketch leaves open"),
        (dict(sketch=("split",), numbers=()), "names no scope"),
        (dict(rewrites=("solve y\nsplit y",)), "one line"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(change: dict[str, Any], said: str) -> None:
    parts = TraceParts((), ("split y loops=k numbers=_", "split y loops=n numbers=_,_"), (4, 1, 2))
    assert len(schedule_of("float32", parts)) == 2
    with pytest.raises(FormatError, match=said):
        schedule_of("float32", parts._replace(**change))


@pytest.mark.parametrize(
    "trace",
    ["null", "{}", '{"version": 1, "dtype": "x", "trace": []}', '{"version": 1, "trace": "lost"}'],
)
def test_damaged_traces_of_older_records_are_refused(trace: str) -> None:
    line = '{"key": "k", "program": "p", "dtype": "float32", "threads": 1, "machine": "m", "machine_name": "n",'
    with pytest.raises(FormatError, match="records"):
        decode(f'{line} "outcome": "ok", "schedule": {trace}}}', "here")


def test_numbers_that_no_decision_holds_are_refused() -> None:
    with pytest.raises(FormatError, match="is no integer"):
        schedule_of("float32", TraceParts((), ("split y loops=k numbers=_",), (10**30,)))
