"""Schedules on record for calls with packed weights: kept apart from those of plain calls, verified, used by networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import syno
from syno import _core
from syno.kernels.prepack import prepacked
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.tuning import settling
from syno.tuning.records import Record, RecordStore, make_record, plain_names, record_store
from syno.tuning.reuse.prepacking import with_prepacked

CONV = (
    "t[b,o,h,w] = sum[c,r,s] x[b,c,h+r-1,w+s-1] * k[o,c,r,s]; y[b,o,h,w] = relu(t[b,o,h,w] + z[o])"
)
PRODUCT = "y[m,n] = sum[k] a[m,k] * b[k,n]"
CONSTANTS = ("k", "z")


def conv(o: int = 12, c: int = 9, h: int = 6, w: int = 7) -> Any:
    return _core.Program.parse(CONV, sizes=dict(b=1, o=o, c=c, h=h, w=w, r=3, s=3))


def quick() -> _core.MeasureOptions:
    options = _core.MeasureOptions()
    options.samples, options.sample_s, options.limit_s = 3, 1e-4, 60.0
    return options


def records_of(program: Any, count: int = 4) -> list[Record]:
    space = _core.ScheduleSpace(program, machine_model())
    schedules = [start.schedule for start in space.starts()][:count]
    measured = _core.measure_schedules(program, schedules, quick())
    return [
        make_record(program, schedule, one, threads=1)
        for schedule, one in zip(schedules, measured, strict=True)
        if one.outcome == "ok"
    ]


@given(st.integers(1, 33), st.integers(1, 20), st.integers(1, 9), st.integers(1, 17))
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.too_slow])
def test_packed_schedules_compute_the_program(o: int, c: int, h: int, w: int) -> None:
    program = conv(o, c, h, w)
    space = _core.ScheduleSpace(program, machine_model())
    for seed in range(4):
        drawn = space.sample(seed)
        if drawn is None:
            continue
        schedule = with_prepacked(program, drawn.schedule, CONSTANTS)
        _core.apply_schedule(program, schedule)
        kernel = prepacked(Operator(program), CONSTANTS, schedule=schedule)  # verified, or an error
        assert kernel.packs or schedule == drawn.schedule


def test_copies_of_constants_are_packed_and_others_are_not() -> None:
    program = conv(64, 64, 14, 14)
    space = _core.ScheduleSpace(program, machine_model())
    packed = kept = 0
    for seed in range(40):
        drawn = space.sample(seed)
        if drawn is None:
            continue
        text = str(drawn.schedule.text())
        made = str(with_prepacked(program, drawn.schedule, CONSTANTS).text())
        if "tensor=k " in text and "words=k_" in text:
            packed += "prepack k_" in made
        else:
            kept += made == text
        assert "prepack x" not in made
        assert str(with_prepacked(program, drawn.schedule, ()).text()) == text
    assert packed > 0 and kept > 0


def test_records_of_packed_calls_serve_such_calls_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = conv()

    def last_is_best(kernels: Sequence[Any], threads: int) -> list[float]:
        return [2.0] * (len(kernels) - 1) + [1.0]

    monkeypatch.setattr(settling, "_times", last_is_best)
    with syno.config.config(cache=str(tmp_path)):
        records = records_of(program)
        assert settling.settle(program, CONSTANTS, records, dtype="float32", threads=1) == 2.0
        store = record_store()
        (record,) = store
        assert record.constants == plain_names(program, CONSTANTS)
        assert store.best(program, "float32", 1) is None
        assert store.best(program, "float32", 1, constants=["k"]) is None
        found = store.best(program, "float32", 1, constants=["z", "k"])
        assert found is not None and found[0] == record
        assert store.neighbours(conv(24), "float32", 1) == []
        assert Operator(program).compile().origin == "constructed"
        # Another program with other names is served, and computes what it should.
        other = Operator.parse(
            "u[b,o,h,w] = sum[c,r,s] v[b,c,h+r-1,w+s-1] * f[o,c,r,s]; q[b,o,h,w] = relu(u[b,o,h,w] + g[o])",
            b=1, o=12, c=9, h=6, w=7, r=3, s=3,
        )  # fmt: skip
        kernel = prepacked(other, ["f", "g"])
        assert len(kernel.schedule) == len(found[1]) and kernel.verification.passed
        # What such calls have now is not beaten by itself.
        again = settling.settle(program, CONSTANTS, [], dtype="float32", threads=1)
        assert again == 1.0 and len(list(store)) == 1


def test_what_is_no_faster_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "_times", lambda kernels, threads: [1.0] * len(kernels))
    with syno.config.config(cache=str(tmp_path)):
        program = conv()
        records = records_of(program)
        assert settling.settle(program, CONSTANTS, records, dtype="float32", threads=1) == 1.0
        assert not list(record_store())


def test_times_are_of_all_kernels_in_turns(tmp_path: Path) -> None:
    with syno.config.config(cache=str(tmp_path)):
        program = conv()
        gain = settling.settle(
            program, CONSTANTS, records_of(program), dtype="float32", threads=1, keep=False
        )
        assert gain >= 1.0 and not list(record_store())


def test_a_network_takes_what_was_found_for_its_packed_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(
        settling, "_times", lambda kernels, threads: list(range(len(kernels), 0, -1))
    )
    model = torch.nn.Sequential(
        torch.nn.Conv2d(4, 24, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(24, 16, 3),
        torch.nn.ReLU(),
    ).eval()
    x = torch.randn(1, 4, 11, 13, generator=torch.Generator().manual_seed(0))
    with syno.config.config(cache=str(tmp_path)):
        found = syno.tune_network(model, x, trials=6, options=quick(), progress="off")
        assert all(step.packed_gain > 1 for step in found.steps)
        wanted = {len(r.trace()) for r in RecordStore(record_store().path) if r.constants}
        fast = syno.compile(model, x)
        kernels = [stage.kernel for stage in fast.network.stages if stage.kernel is not None]
        assert kernels and {len(kernel.schedule) for kernel in kernels} <= wanted
        assert torch.allclose(fast(x), model(x), atol=1e-4)
