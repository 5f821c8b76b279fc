"""What was measured changes no result where results are to be the same: records, machine models, choices by timing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, ClassVar

import pytest
from session_fakes import Climber, Clock, Trainer

import syno
from syno import _core
from syno.config import deterministic
from syno.kernels import construct as construct_module
from syno.kernels import kernel as kernel_module
from syno.machines import model as machine_module
from syno.machines.model import fixed_kernels, machine_model, save_machine
from syno.searching.continuing import fixed_machine
from syno.session import InlineExecutor, Session
from syno.session.config import read_config
from syno.tuning.records import make_record, record_store


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    for name in ("SYNO_MACHINE", "SYNO_DETERMINISTIC"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def operator() -> syno.Operator:
    return syno.Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=17, j=33, k=65)


def schedule() -> str:
    """As in a new process."""
    kernel_module._kernels.clear()
    construct_module._constructed.clear()
    kernel = operator().compile()
    return f"{kernel.origin}: {kernel.schedule.text()}"


def another_machine(seed: int) -> Any:
    """One whose kernels are others."""
    text = _core.describe_machine().to_json()
    rng = random.Random(seed)
    facts = json.loads(text)
    facts["fma_latency_cycles"] *= rng.choice([2, 3])
    for level in facts["levels"]:
        level["read_gbs"] *= rng.uniform(0.1, 10)
        level["latency_ns"] *= rng.uniform(0.1, 10)
    return _core.MachineModel.from_json(json.dumps(facts))


def put_record() -> None:
    program = operator().program
    measured = _core.measure_schedules(program, [_core.default_schedule(program)], options())[0]
    record_store().add([make_record(program, _core.default_schedule(program), measured, threads=1)])


def options() -> Any:
    made = _core.MeasureOptions()
    made.samples, made.sample_s, made.limit_s = 3, 1e-4, 60.0
    return made


def test_records_and_measured_machines_change_no_kernel(cache: Path) -> None:
    with syno.config.config(deterministic="1"):
        assert deterministic()
        first = schedule()
    cache.mkdir(exist_ok=True)
    for seed in range(3):
        save_machine(another_machine(seed), cache / f"machine-{machine_module.machine_key()}.json")
        with syno.config.config(deterministic="1"):
            assert schedule() == first
            assert not machine_model(measure=True).measured
    put_record()
    assert schedule().startswith("recorded"), "and does without"
    with syno.config.config(deterministic="1"):
        assert schedule() == first


def test_a_machine_file_that_is_given_counts(cache: Path, tmp_path: Path) -> None:
    given = another_machine(1)
    save_machine(given, tmp_path / "machine.json")
    with syno.config.config(deterministic="1", machine=str(tmp_path / "machine.json")):
        assert machine_model().to_json() == given.to_json()
        assert machine_model(measure=True).to_json() == given.to_json()
    with fixed_kernels(given.to_json()):
        assert deterministic() and machine_model().to_json() == given.to_json()
    assert not deterministic()
    with fixed_kernels(None):
        assert not deterministic()


class Look(Clock):
    """Sees what kernels depend on while the session runs."""

    seen: ClassVar[list[tuple[bool, str]]] = []

    def measure(self, request: Any) -> Any:
        self.seen.append((deterministic(), machine_model().to_json()))
        return super().measure(request)


def test_a_session_keeps_its_machine(cache: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    Look.seen.clear()
    machine = fixed_machine(run, True)
    assert machine is not None and fixed_machine(run, False) is None

    def go(machine: str | None, budget: int) -> None:
        parts = {"climb": Climber}
        with Session.open(
            run, proposer="climb", evaluator="train", measurer="look", machine=machine, parts=parts
        ) as session:
            executor = InlineExecutor({"train": Trainer(), "look": Look()})
            session.run(budget=budget, executor=executor, progress="off")

    go(machine, 2)
    assert read_config(run / "session.toml").machine == machine
    cache.mkdir(exist_ok=True)
    save_machine(another_machine(2), cache / f"machine-{machine_module.machine_key()}.json")
    assert fixed_machine(run, True) == machine, "the one it was begun with"
    go(None, 4)
    go(fixed_machine(run, True), 6)
    assert len(Look.seen) >= 6
    assert {on for on, _ in Look.seen} == {True}
    assert {text for _, text in Look.seen} == {machine_text(machine)}
    assert not deterministic()


def machine_text(machine: str) -> str:
    return str(_core.MachineModel.from_json(machine).to_json())
