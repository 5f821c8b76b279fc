"""Tuning a network: its plan, its budget, Ctrl-C, kill -9, two processes, damaged files, the command line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import syno
from syno import _core
from syno.cli.main import app
from syno.errors import (
    ArgumentError,
    BudgetError,
    FormatError,
    KernelError,
    SessionError,
    SynoError,
    UnknownName,
)
from syno.tuning import network
from syno.tuning.benches import LocalBench
from syno.tuning.network import SELECTIONS, NetworkTuned, plan_network
from syno.tuning.network_steps import StepDone, Steps
from syno.tuning.records import RecordStore
from syno.tuning.reuse.candidates import GUARD
from syno.tuning.reuse.names import sketch_of
from syno.tuning.reuse.plan import Step
from syno.tuning.reuse.programs import members_of
from syno.tuning.reuse.reusing import reuse
from syno.tuning.reuse.shapes import comparable

MATMUL = "y[m,n] = sum[k] a[m,k] * b[k,n]"
SIZES = ((8, 8, 8), (8, 16, 8), (16, 8, 8), (16, 16, 24), (8, 8, 8))


def operators() -> list[syno.Operator]:
    return [
        *(syno.Operator.parse(MATMUL, m=m, n=n, k=k) for m, n, k in SIZES),
        syno.Operator.parse("z[i,j] = relu(x[j,i])", i=12, j=20),
    ]


def quick() -> _core.MeasureOptions:
    options = _core.MeasureOptions()
    options.samples, options.sample_s, options.limit_s = 3, 1e-4, 60.0
    return options


def tuned(folder: Path, **changes: Any) -> NetworkTuned:
    options: dict[str, Any] = dict(trials=5, options=quick(), progress="off", session=folder / "s")
    with syno.config.config(cache=str(folder)):
        return syno.tune_network(operators(), **{**options, **changes})


def trials_of(folder: Path) -> Counter[tuple[str, str]]:
    """How often each schedule of each program was measured."""
    return Counter(
        (record.key, str(record.trace().text()))
        for record in RecordStore(folder / "s" / "trials.jsonl")
    )


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_selection_reaches_every_program_and_keeps_to_its_groups(selection: str) -> None:
    members = members_of(operators())
    assert [member.count for member in members] == [2, 1, 1, 1, 1]
    planned = plan_network(members, selection=selection, trials=10)
    steps = planned.plan.steps
    wanted = [step for step in steps if not step.bridge]
    assert len(wanted) == len(members)
    before: dict[str, Step] = {}
    for step in steps:
        if step.parent:
            assert before[step.parent].group == step.group
            if selection != "st":
                mine, theirs = (planned.programs[name].shape for name in (step.name, step.parent))
                assert comparable(mine, theirs)
        before[step.name] = step
    assert planned.plan.cost == sum(step.expected for step in steps)
    if selection == "each":
        assert planned.plan.cost == 50
    if selection == "constructed":
        assert planned.plan.cost == 0 and {step.action for step in steps} == {"construct"}
    if selection in ("bridges", "no-bridges"):
        assert planned.plan.gap == 0 and planned.plan.cost <= 50


def test_a_plan_is_printed_and_nothing_is_measured(tmp_path: Path) -> None:
    found = tuned(tmp_path, plan_only=True)
    assert found.ended == "planned" and found.measured == 0 and not found.steps
    assert "measurements expected" in str(found) and "expected" in found._repr_html_()
    assert not (tmp_path / "s").exists()
    json.dumps(found.to_dict())


def test_what_was_done_is_not_done_again(tmp_path: Path) -> None:
    found = tuned(tmp_path)
    assert found.ended == "done" and len(found.steps) == len(found.plan.steps)
    assert found.measured == sum(step.trials for step in found.steps) <= found.plan.cost
    assert all(step.best_us > 0 for step in found.steps) and found.gain >= 1
    again = tuned(tmp_path)
    assert again.measured == 0 and again.steps == found.steps
    assert max(trials_of(tmp_path).values()) == 1
    found.save(tmp_path / "found.json")
    assert NetworkTuned.load(tmp_path / "found.json") == found
    (tmp_path / "found.json").write_text((tmp_path / "found.json").read_text()[:-9])
    for name in ("found.json", "none.json"):
        with pytest.raises(FormatError, match=name):
            NetworkTuned.load(tmp_path / name)
    with syno.config.config(cache=str(tmp_path)):  # kernels are made of what was found
        for operator in operators():
            assert operator.compile().origin == "recorded"
            assert operator.compile().verify().passed


@pytest.mark.parametrize("selection", ["st", "no-bridges", "each", "greedy"])
def test_every_selection_is_done(selection: str, tmp_path: Path) -> None:
    found = tuned(tmp_path, selection=selection)
    assert found.ended == "done" and not any(step.reason for step in found.steps)
    assert max(trials_of(tmp_path).values()) == 1


def test_bridges_are_never_searched_and_others_may_take_what_the_group_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, str, dict[str, Any]]] = []

    def seen(record: Any, program: Any, **options: Any) -> Any:
        asked.append((record, program.structural_key(), options))
        return reuse(record, program, **options)

    monkeypatch.setattr(network, "reuse", seen)
    given = [
        syno.Operator.parse(MATMUL, m=m, n=n, k=k)
        for m, n, k in ((8, 32, 16), (16, 8, 32), (32, 16, 8))
    ]
    with syno.config.config(cache=str(tmp_path)):
        found = syno.tune_network(
            given, trials=60, options=quick(), progress="off", session=tmp_path / "s"
        )
    reused = [step for step in found.plan.steps if step.parent]
    assert any(step.bridge for step in reused) and len(asked) == len(reused)
    assert sorted(options["guard"] for _, _, options in asked) == sorted(
        math.inf if step.bridge else GUARD for step in reused
    )
    for record, key, options in asked:
        further = options["further"]
        assert record not in further and all(each.key != key for each in further)
        own = [sketch_of(each.trace()) for each in further if each.key == record.key]
        assert sketch_of(record.trace()) not in own and len(set(own)) == len(own)
        others = [each.key for each in further if each.key != record.key]
        assert len(set(others)) == len(others)
    assert any(options["further"] for _, _, options in asked)


@pytest.mark.parametrize("budget", [2, 7, 13, 21])
def test_a_budget_of_measurements_is_kept_to(budget: int, tmp_path: Path) -> None:
    found = tuned(tmp_path, budget=budget, trials=40)
    assert found.measured <= budget
    assert found.ended == ("done" if len(found.steps) == len(found.plan.steps) else "budget")
    assert found.steps or budget < 2


def test_a_budget_of_time_ends_it(tmp_path: Path) -> None:
    found = tuned(tmp_path, budget="0.001s")
    assert found.ended in ("budget", "done") and len(found.steps) <= len(found.plan.steps)


def test_ctrl_c_gives_what_there_is_and_it_goes_on_later(tmp_path: Path) -> None:
    calls: list[int] = []

    def stop(done: int, total: int, best_us: float) -> None:
        calls.append(done)
        if len(calls) == 4:
            raise KeyboardInterrupt

    found = tuned(tmp_path, progress=stop)
    assert found.ended == "interrupted" and len(found.steps) < len(found.plan.steps)
    again = tuned(tmp_path)
    assert again.ended == "done" and again.steps[: len(found.steps)] == found.steps
    assert max(trials_of(tmp_path).values()) == 1


#: A process that tunes the same network, and kills itself after so many reports.
CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
import test_tune_network as t
left = int(sys.argv[2])
def report(done, total, best_us):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
found = t.tuned(Path(sys.argv[1]), progress=report)
print(found.ended, found.measured)
"""


def child(folder: Path, reports: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), str(reports), str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("reports", [1, 2, 4])
def test_a_killed_tuning_goes_on_and_measures_nothing_twice(reports: int, tmp_path: Path) -> None:
    killed = child(tmp_path, reports)
    killed.communicate()
    assert killed.returncode == -9
    before = trials_of(tmp_path)
    found = tuned(tmp_path)
    assert found.ended == "done"
    after = trials_of(tmp_path)
    assert max(after.values()) == 1
    assert sum(after.values()) - sum(before.values()) == found.measured
    assert found.steps == tuned(tmp_path).steps


def test_two_processes_share_the_steps(tmp_path: Path) -> None:
    both = [child(tmp_path, 0) for _ in range(2)]
    said = [one.communicate()[0].split() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert [words[0] for words in said] == ["done", "done"]
    after = trials_of(tmp_path)
    assert max(after.values()) == 1
    assert sum(int(words[1]) for words in said) == sum(after.values())


def test_damaged_lines_of_a_session_are_skipped_counted_and_said(tmp_path: Path) -> None:
    found = tuned(tmp_path)
    steps = tmp_path / "s" / "steps.jsonl"
    lines = steps.read_bytes().splitlines()
    steps.write_bytes(b"\n".join([lines[0][:-9], b"\xff\x00", *lines[1:]]) + b'\n{"name": "x"')
    again = tuned(tmp_path)
    assert again.ended == "done" and again.damaged == 3
    assert "3 damaged lines" in str(again)
    assert again.measured == 0  # its trials are on record
    assert len(again.steps) == len(found.steps)


def test_a_step_that_fails_is_noted_and_the_others_are_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syno.tuning import network

    real = network.tune

    def fails(program: Any, **options: Any) -> Any:
        if "relu" in str(program.text()):
            raise KernelError("[tune] no kernel runs")
        return real(program, **options)

    monkeypatch.setattr(network, "tune", fails)
    found = tuned(tmp_path)
    (failed,) = [step for step in found.steps if step.reason]
    assert failed.action == "failed" and "no kernel runs" in str(found)
    assert len(found.steps) == len(found.plan.steps)


class Machines:
    """Three machines that are this one; after so many measurements they are gone."""

    width = 3

    def __init__(self, lasting: int = 1 << 30) -> None:
        self.left, self.together, self.closed = lasting, [0], 0
        self._bench = LocalBench()

    def run(self) -> None:
        raise AssertionError("nothing is trained")

    def bench(self) -> Machines:
        return self

    def measure(self, program: Any, schedules: Any, options: Any) -> list[Any]:
        self.together.append(len(schedules))
        self.left -= len(schedules)
        if self.left < 0:
            raise SessionError("the last node that measured is gone", code="R010")
        return self._bench.measure(program, schedules, options)

    def compare(self, program: Any, one: Any, other: Any, options: Any) -> float:
        return self._bench.compare(program, one, other, options)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("selection", ["no-bridges", "st"])
def test_machines_that_measure_share_a_program_s_schedules_and_a_local_session(
    selection: str, tmp_path: Path
) -> None:
    """Reused schedules are measured on all machines at once; when all are gone, the same call goes on, here or there."""
    given = Machines()
    whole = tuned(tmp_path / "whole", selection=selection, executor=given, trials=8)
    assert whole.ended == "done" and given.closed == 0, "who gave it closes it"
    assert max(given.together) > 1
    assert whole.measured == sum(given.together) == sum(step.trials for step in whole.steps)
    assert tuned(tmp_path / "whole", selection=selection, trials=8).measured == 0

    (tmp_path / "lost").mkdir()
    with pytest.raises(SessionError, match="gone"):
        tuned(tmp_path / "lost", selection=selection, executor=Machines(9), trials=8)
    before = sum(trials_of(tmp_path / "lost").values())
    finished = Steps(tmp_path / "lost" / "s").finished()
    assert 0 < before <= 9 and not any(step.reason for step in finished.values())
    found = tuned(tmp_path / "lost", selection=selection, trials=8)
    after = trials_of(tmp_path / "lost")
    assert found.ended == "done" and max(after.values()) == 1
    assert found.measured == sum(after.values()) - before


def test_who_measures_a_network_is_named_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "netmod2.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(8, 4))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["tune", "--network", "netmod2:make", "--example", "2,8", "--trials", "3"]
    with syno.config.config(cache=str(tmp_path)):
        run = CliRunner().invoke(
            app, [*command, "--json", "--executor", "test_tune_network:Machines"]
        )
        assert run.exit_code == 0, run.output
        assert json.loads(run.stdout)["measured"] > 0
        refused = CliRunner().invoke(app, [*command, "--executor", "ray://8.8.8.8:10001"])
    assert refused.exit_code != 0 and "--trust-network" in refused.output
    refused = CliRunner().invoke(app, [*command, "--executor", "test_executors:Worker"])
    assert "measures no schedules on other machines" in refused.output


def test_steps_wait_for_their_parents_and_take_what_others_did(tmp_path: Path) -> None:
    plan = [
        Step(name="a", group="g", expected=1.0),
        Step(name="b", group="g", parent="a", expected=1.0),
        Step(name="c", group="g", expected=1.0),
    ]
    steps, other = Steps(tmp_path), Steps(tmp_path)
    done: dict[str, StepDone] = {}
    order = []
    for step in steps.in_turns(plan, done):
        order.append(step.name)
        if step.name == "a":
            theirs: dict[str, StepDone] = {}
            turns = other.in_turns(plan, theirs)
            free = next(turns)  # a is under way here, b waits for it
            assert free.name == "c"
            other.finish("c", StepDone(name="c", action="tuned"), theirs)
            turns.close()
        steps.finish(step.name, StepDone(name=step.name, action="tuned"), done)
    assert order == ["a", "b"] and set(done) == {"a", "b", "c"}


def test_bad_requests_get_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no network"):
        syno.tune_network(3)
    with pytest.raises(ArgumentError, match="item 0 is a str"):
        syno.tune_network(["x"])
    with pytest.raises(UnknownName, match="selection"):
        tuned(tmp_path, selection="bridge")
    with pytest.raises(BudgetError):
        tuned(tmp_path, budget="much")
    with pytest.raises(KernelError, match="trials"):
        tuned(tmp_path, trials=1)
    (tmp_path / "file").write_text("")
    with pytest.raises((ArgumentError, FormatError), match="session"):
        tuned(tmp_path, session=tmp_path / "file")
    assert not syno.tune_network([], progress="off").steps


def test_a_module_s_programs_are_those_it_is_compiled_to() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 3), torch.nn.ReLU()
    ).eval()
    members = members_of(model, torch.zeros(1, 3, 8, 8))
    stages = syno.compile(model, torch.zeros(1, 3, 8, 8)).network.stages
    kernels = sum(stage.kind == "kernel" for stage in stages)
    assert sum(member.count for member in members) == kernels > 0
    with pytest.raises(ArgumentError, match="example"):
        members_of(model)


def test_the_command_line_plans_and_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "netmod.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 8))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ["tune", "--network", "netmod:make", "--example", "2,8"]
    run = CliRunner().invoke(app, [*command, "--plan"])
    assert run.exit_code == 0 and "measurements expected" in run.output
    run = CliRunner().invoke(app, [*command, "--plan", "--json"])
    assert msgspec.json.decode(run.stdout)["ended"] == "planned"
    for wrong in (
        ["tune"],
        ["tune", MATMUL, "--network", "netmod:make"],
        [*command, "-s", "m=3"],
        ["tune", MATMUL, "-s", "m=3", "--plan"],
        ["tune", "--network", "no network"],
        [*command, "--selection", "all"],
        [*command, "--budget", "much"],
    ):
        assert CliRunner().invoke(app, wrong).exit_code == 2, wrong


def test_without_a_library_the_plan_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(SynoError, match=r'pip install "syno\[tune\]"'):
        syno.tune_network(operators(), selection="st", plan_only=True)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(SynoError, match=r'pip install "syno\[tune\]"'):
        syno.tune_network(operators(), plan_only=True)
    assert syno.tune_network(operators(), selection="each", plan_only=True).plan.steps
