"""Latencies on further machines: columns and objectives of a session, that decide nothing of its search."""

from __future__ import annotations

import json
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import session_fakes as fakes
from test_session import run, start, story
from typer.testing import CliRunner

from syno import executors
from syno.cli.main import app
from syno.errors import ArgumentError, SessionError, UnknownName
from syno.machines.model import machine_model
from syno.report import rows, write_report
from syno.report.build import build_report
from syno.report.render import columns_of
from syno.searching.result import session_report
from syno.session import Component, InlineExecutor, Session, open_view
from syno.session.protocols import Measurement, MeasureRequest

CLOCK = Component(reference="test_target_machines:Clocks")


class Clocks(fakes.Clock):
    """Where the environment says so, what is fast here is slow; some operators cannot run there."""

    def measure(self, request: MeasureRequest) -> Measurement:
        here = super().measure(request)
        if not os.environ.get("SYNO_TEST_OTHER"):
            return here
        chosen = fakes.numbers(request.assignment)
        if 31 in chosen:
            raise ValueError("no instruction for it")
        return Measurement(latency_us=200.0 - 2 * here.latency_us, iqr_us=0.2, samples=7)


def _other() -> None:
    os.environ["SYNO_TEST_OTHER"] = "1"


def other() -> ProcessPoolExecutor:
    """A process of another machine, as far as its clock tells."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_other)


def open_session(path: Path, **options: Any) -> Session:
    return start(path, **{"measurer": CLOCK, "targets": {"pi": ""}, **options})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session whose networks were timed on a further machine."""
    path = tmp_path_factory.mktemp("targets") / "s"
    lent = executors.futures("test_target_machines:other")
    with open_session(path) as session:
        run(session, budget=8, targets={"pi": lent}, finalists=2, final_seeds=2)
    lent.close()
    return path


def test_latencies_of_another_machine_decide_nothing_of_the_search(
    tmp_path: Path, made: Path
) -> None:
    with start(tmp_path, measurer=CLOCK) as session:
        run(session, budget=8, finalists=2, final_seeds=2)
        expected = story(session)
    with open_view(made) as view:
        assert story(view) == expected


def test_each_machine_has_its_front_and_its_best(made: Path) -> None:
    with open_view(made) as view:
        baseline = view.baseline
        assert baseline is not None and baseline.targets_us == {"pi": 120.0}
        timed = [c for c in view.candidates() if c.targets_us]
        # As a part of the original, which takes turns with nothing here.
        assert all(c.targets_us["pi"] == 200.0 - 2 * (c.latency_us or 0.0) for c in timed)
        here, there = view.pareto(), view.pareto(target="pi")
        assert [c.latency_us for c in here] == sorted(c.latency_us or 0.0 for c in here)
        times = [c.targets_us["pi"] for c in there]
        assert times == sorted(times) and {c.id for c in here} != {c.id for c in there}
        best, its = view.best(max_drop=1.0), view.best(max_drop=1.0, target="pi")
        assert (best is not None and its is None) or its is not best
        speedups = {c.id: view.speedup(c, target="pi") for c in timed}
        assert all(
            s == pytest.approx(120.0 / c.targets_us["pi"])
            for c, s in zip(timed, speedups.values(), strict=True)
        )
        verdict = view.verdict(target="pi")
        assert verdict.target == "pi"
        assert "on pi" in verdict.sentence
        assert all(one.target == "pi" for one in verdict.judged)
        for ask in (view.best, view.verdict, view.pareto):
            with pytest.raises(UnknownName, match="pi"):
                ask(target="pie")  # type: ignore[operator]


def test_what_cannot_run_there_is_said_and_not_tried_again(made: Path) -> None:
    lent = executors.futures("test_target_machines:other")
    with open_session(made) as session:
        run(session, budget=8, targets={"pi": lent}, finalists=2, final_seeds=2)
        lent.close()
        status = session.status()["targets"]["pi"]
        (unfit,) = [c for c in session.candidates() if c.expr == "y = 31"]
        assert status["cannot"].keys() == {unfit.id} and status["not_yet"] == 0
        assert "no instruction for it" in status["cannot"][unfit.id]
        events = [e["what"] for e in session.events(500) if "not timed on pi" in e["what"]]
        assert len(events) == 1
        assert "cannot be timed on pi" in session.explain(unfit)
        assert "whole network on pi, syno:" in session.explain("baseline")
    json.dumps(status)


def test_the_table_the_report_and_the_command_line_have_a_column(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas = pytest.importorskip("pandas")
    # The fakes' operators are no operators of ours.
    monkeypatch.setattr("syno.session.view.SessionView.operators", lambda view, candidate: {})
    with open_view(made) as view:
        frame = view.to_dataframe()
        assert isinstance(frame, pandas.DataFrame) and frame["pi_us"].notna().sum() >= 3
        report = build_report(view, title="t", task="t", command="c")
    assert report.baseline.targets_us == {"pi": 120.0}
    assert rows(report)[0]["pi latency"] == "120 µs" and "pi latency" in columns_of(report)
    assert report.targets["pi"].conclusion and report.targets["pi"].front
    assert any("pi" in note for note in report.notes)
    write_report(session_report(made), tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "pi latency" in page and "120 µs" in page
    said = CliRunner().invoke(app, ["status", str(made)], env={"COLUMNS": "250"})
    assert said.exit_code == 0 and "pi µs" in said.output and "on pi:" in said.output
    plain = json.loads(CliRunner().invoke(app, ["status", str(made), "--json"]).stdout)
    assert plain["targets"]["pi"]["original_us"] == 120.0
    assert plain["baseline"]["targets_us"] == {"pi": 120.0}
    assert "pi" in (made / "session.toml").read_text()


def test_a_target_is_added_later_and_goes_on_where_it_was_interrupted(tmp_path: Path) -> None:
    with start(tmp_path, measurer=CLOCK) as session:
        run(session, budget=4)
        expected = story(session)
    lent = executors.futures("test_target_machines:other")
    count = 0

    def stop(what: str, candidate: Any, view: Any) -> None:
        nonlocal count
        count += what == "measured"
        if count == 2:
            raise KeyboardInterrupt

    with open_session(tmp_path) as session:
        summary = run(session, budget=4, targets={"pi": lent}, callbacks=[stop])
        assert summary.why == "interrupted"
        assert session.status()["targets"]["pi"]["timed"] == 2
        assert "has been timed on pi" in session.verdict(target="pi").sentence or count == 2
    with start(tmp_path, measurer=CLOCK) as session:  # named once, it stays
        run(session, budget=4, targets={"pi": lent})
        assert session.status()["targets"]["pi"]["not_yet"] == 0
        assert story(session) == expected
    lent.close()


# --- what a machine must be


def test_a_machine_unlike_its_name_is_refused_with_the_difference(tmp_path: Path) -> None:
    model = json.loads(machine_model().to_json())
    lent = executors.futures("test_target_machines:other")
    unlike = json.dumps({**model, "cores": 999})
    with (
        open_session(tmp_path / "a", targets={"pi": unlike}) as session,
        pytest.raises(
            SessionError, match=r"as the target pi, and differs.*cores is \d+, not 999"
        ) as caught,
    ):
        run(session, budget=1, targets={"pi": lent})
    assert caught.value.code == "R024"
    with open_session(tmp_path / "a") as session:
        assert not session.trained, "before work starts"
    # What was lent first is the machine from then on; a machine file of another one is refused as well.
    with open_session(tmp_path / "b") as session:
        run(session, budget=1, targets={"pi": lent})
        assert json.loads(session.targets["pi"])["cores"] == model["cores"]
    with (
        open_session(tmp_path / "b", targets={"pi": unlike}) as session,
        pytest.raises(SessionError, match="of another machine than its machine file") as caught,
    ):
        run(session, budget=1, targets={"pi": lent})
    lent.close()


def test_each_measurement_asks_the_machine_again(tmp_path: Path) -> None:
    """A pool whose later process is another machine."""
    lent = executors.futures("test_target_machines:other")
    with open_session(tmp_path) as session:

        def swap(what: str, candidate: Any, view: Any) -> None:
            model = json.loads(lent._machine)
            if what == "measured" and candidate.targets_us:
                lent._machine = json.dumps({**model, "vector_bits": 7})

        run(session, budget=1, targets={"pi": lent}, callbacks=[swap])
        assert session.status()["targets"]["pi"]["not_yet"] == 1
        assert any("another machine: vector_bits is" in e["what"] for e in session.events(200))
    lent.close()


@pytest.mark.parametrize("name", ["", "1st", "a b", "a:b", "é", "x" * 64])
def test_odd_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SessionError, match="no name of a target"):
        open_session(tmp_path / "s", targets={name: ""})
    assert not (tmp_path / "s").exists()


def test_who_lends_nothing_is_named(tmp_path: Path) -> None:
    with open_session(tmp_path / "a") as session:
        with pytest.raises(UnknownName, match=r"'pie'"):
            run(session, budget=1, targets={"pie": None})
        with pytest.raises(SessionError, match="lends no machine as the target pi"):
            run(session, budget=1, targets={"pi": InlineExecutor()})
    lent = executors.futures("test_target_machines:other")
    with (
        start(tmp_path / "b", targets={"pi": ""}, measurer=None) as session,
        pytest.raises(SessionError, match="times nothing"),
    ):
        run(session, budget=1, targets={"pi": lent})
    with (
        start(
            tmp_path / "c", targets={"pi": ""}, measurer=Component(reference="session_fakes:Nobody")
        ) as session,
        pytest.raises(SessionError, match=r"the target pi cannot measure: .*Nobody"),
    ):
        run(session, budget=1, targets={"pi": lent})
    lent.close()


def test_targets_are_named_with_who_lends_them(tmp_path: Path) -> None:
    (tmp_path / "pi.json").write_text(machine_model().to_json())
    lent = executors.targets(
        [
            f"pi=test_executors:Worker,workers=2,machine={tmp_path / 'pi.json'}",
            "desk=slurm,target=zen4",
        ]
    )
    assert list(lent) == ["pi", "desk"]
    assert json.loads(lent["pi"].machine)["cores"] == machine_model().cores
    assert lent["desk"].machine == "" and lent["desk"].executor.kind == "slurm"
    for one in lent.values():
        one.executor.close()
    for wrong, words in (
        ("pi", "NAME=EXECUTOR"),
        ("=ray", "no name of a target"),
        ("pi=", "NAME=EXECUTOR"),
        ("pi=local", "lends no machine"),
        ("pi=rya", "did you mean 'ray'"),
        ("pi=slurm,colour=1", "no option 'colour'"),
        ("pi=slurm,target", "NAME=EXECUTOR"),
    ):
        with pytest.raises((ArgumentError, SessionError, UnknownName), match=words):
            executors.targets([wrong])
    with pytest.raises(ArgumentError, match="twice"):
        executors.targets(["pi=slurm", "pi=slurm"])
