"""What a session chooses, it chooses by its record; and it says which spaces held nothing, or no more."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from test_session import run, start, story
from typer.testing import CliRunner

from syno.cli.main import app
from syno.errors import ArgumentError, SessionError, SpecError, UnknownName
from syno.report import Report
from syno.searching.result import report_of
from syno.session import (
    Component,
    InlineExecutor,
    Prune,
    Session,
    SessionView,
    Stage,
    open_view,
)

CLIMBER = Component(reference="session_fakes:Climber")


def nothing(says: str) -> Component:
    return Component(reference="session_fakes:Nothing", options={"says": says})


def report(view: SessionView) -> Report:
    """The report, without drawing a winner or writing formulas: operators of the fakes are numbers."""
    nothing: Any = patch("syno.report.build._formulas", return_value={})
    with nothing, patch.object(SessionView, "best", return_value=None):
        return report_of(view)


# --- spaces that hold nothing, or no more


@pytest.mark.parametrize(
    ("place", "says"),
    [(0, "asked"), (1, "asked"), (2, "asked"), (1, "made"), (0, "searched"), (2, "searched")],
)
def test_a_stage_without_operators_is_skipped_and_named(
    tmp_path: Path, place: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = [Stage(name="wide", proposer=CLIMBER), Stage(name="narrow", proposer=CLIMBER)]
    stages.insert(place, Stage(name="hollow", proposer=nothing(says)))
    with start(tmp_path, proposer=None, stages=stages) as session:
        summary = session.run(budget=12, executor=InlineExecutor(), finalists=1, progress="log")
        assert summary.why in ("budget", "empty")
        assert [c.stage for c in session.candidates()].count("hollow") == 0
        assert {c.stage for c in session.candidates()} == {"wide", "narrow"}
        if says != "searched":  # known before any training: the others share the whole budget
            assert summary.trained == 12
            events = [event["what"] for event in session.events(1_000)]
            skipped = next(i for i, what in enumerate(events) if "hollow is skipped" in what)
            batches = [i for i, what in enumerate(events) if what.startswith("batch ")]
            assert skipped < min(batches)
        assert any(c.finals for c in session.candidates())
    note = summary.notes[0]
    assert note.startswith("'hollow' is skipped, its sites keep their layers: ")
    assert capsys.readouterr().err.count(note) == 1
    with open_view(tmp_path) as view:
        assert view.status()["stage_ends"]["hollow"]["why"] == "empty"
        assert view.status()["notes"][0] == note
        assert note in report(view).notes
    status = CliRunner().invoke(app, ["status", str(tmp_path)], env={"COLUMNS": "300"})
    assert note in " ".join(status.output.split())
    with Session.open(tmp_path) as session:  # and again, with more to spend
        assert run(session, budget=14).notes[0] == note


@pytest.mark.parametrize("says", ["asked", "made", "searched"])
def test_a_search_without_any_operator_is_refused(tmp_path: Path, says: str) -> None:
    journal = tmp_path / "journal"
    stages = [
        Stage(name="a", proposer=nothing(says)),
        Stage(name="b", proposer=nothing(says)),
    ]
    options: dict[str, Any] = {"stages": stages, "proposer": None}
    for _ in range(2):
        with (
            start(tmp_path / "s", trainer={"journal": str(journal)}, **options) as session,
            pytest.raises(SpecError, match=r"no space of this search has an operator.* b: "),
        ):
            run(session)
    assert says == "searched" or not journal.exists()
    with open_view(tmp_path / "s") as view:
        assert not view.interrupted


def test_a_space_that_ran_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = Component(reference="session_fakes:Climber", options={"size": 5})
    stages = [Stage(name="small", proposer=small), Stage(name="wide", proposer=CLIMBER)]
    with start(tmp_path, proposer=None, stages=stages) as session:
        summary = session.run(budget=20, executor=InlineExecutor(), progress="log")
        assert summary.why == "budget"
        assert summary.trained == 20  # what the small space left went to the other
        assert summary.notes == ["the space of 'small' ran out: it has no more than 5 operators"]
        assert json.loads(json.dumps(summary.to_dict()))["notes"] == summary.notes
        assert summary.notes[0] in report(session).notes
        assert session.status()["stage_ends"] == {
            "small": {"why": "exhausted", "reason": ""},
            "wide": {"why": "budget", "reason": ""},
        }
    assert summary.notes[0] in capsys.readouterr().err


@pytest.mark.parametrize("says", ["asked", "searched"])
def test_asking_by_hand_skips_a_stage_without_operators(tmp_path: Path, says: str) -> None:
    stages = [Stage(name="hollow", proposer=nothing(says)), Stage(name="all", proposer=CLIMBER)]
    with start(tmp_path, proposer=None, stages=stages) as session:
        for _ in range(3):
            trial = session.ask()
            assert trial is not None
            assert trial.candidate.stage != "hollow"
            session.tell(trial, accuracy=0.5, latency_us=10.0)


# --- choices and the record


def chosen_by(view: Any, count: int) -> list[int]:
    done = [c for c in view.candidates() if c.state == "done"]
    return sorted(
        c.number for c in sorted(done, key=lambda c: (-(c.reward or 0), c.number))[:count]
    )


class Interruption:
    """Ctrl-C after a random number of events."""

    def __init__(self, after: int) -> None:
        self.left = after
        self.seen: list[str] = []

    def __call__(self, what: str, candidate: Any, view: Any) -> None:
        self.seen.append(what)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("seed", range(4))
def test_choices_follow_from_the_record_wherever_a_run_is_interrupted(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    options: dict[str, Any] = {
        "measurer": Component(reference="session_fakes:Clock", options={"jitter": 40.0}),
        "prune": Prune(after=1_000, max_latency_ratio=1.2),
    }
    latencies: dict[int, float] = {}
    finalists: list[int] = []
    states: dict[int, tuple[str, Any]] = {}
    finished = False
    while not finished:
        with start(tmp_path, **options) as session:
            callback = Interruption(draw.randrange(1, 25))
            summary = run(session, finalists=3, final_seeds=1, callbacks=[callback])
            finished = not summary.interrupted
            for candidate in session.candidates():
                if candidate.latency_us is not None:  # measured once, then on record
                    assert latencies.setdefault(candidate.number, candidate.latency_us) == (
                        candidate.latency_us
                    )
                if candidate.state in ("done", "pruned"):
                    now = (candidate.state, candidate.value if not candidate.finals else None)
                    before = states.setdefault(candidate.number, now)
                    assert before[0] == now[0]
            assert session.finalists[: len(finalists)] == finalists
            finalists = session.finalists
    with open_view(tmp_path) as view:
        baseline = view.baseline
        assert baseline is not None and baseline.latency_us is not None
        for candidate in view.candidates():
            assert candidate.latency_us is not None
            slow = candidate.latency_us > 1.2 * baseline.latency_us
            assert (candidate.state == "pruned") == slow
        assert sorted(finalists) == chosen_by(view, 3)
        assert sorted(c.number for c in view.candidates() if c.finals) == sorted(finalists)


def test_a_finalist_stays_when_the_search_goes_on_with_more(tmp_path: Path) -> None:
    def interrupt(what: str, candidate: Any, view: Any) -> None:
        if what == "finalist":
            raise KeyboardInterrupt

    with start(tmp_path) as session:
        summary = run(session, budget=4, finalists=2, final_seeds=2, callbacks=[interrupt])
        assert summary.interrupted
        first = session.finalists
        assert sorted(first) == chosen_by(session, 2)
    with Session.open(tmp_path) as session:
        run(session, budget=16, finalists=2, final_seeds=2)
        best = chosen_by(session, 2)
        assert not set(best) & set(first), "the search found better ones"
        assert session.finalists == [*first, *sorted(best, key=session.finalists.index)]
        for number in session.finalists:
            assert len(session.candidate(number).finals) == 2
        expected = story(session)
    with Session.open(tmp_path) as session:
        run(session, budget=16, finalists=1, final_seeds=2)
        assert story(session) == expected


def test_a_search_that_ended_for_its_time_does_not_go_on_when_finalists_take_less(
    tmp_path: Path,
) -> None:
    slow = {"trainer": {"pause_s": 0.05}}
    with start(tmp_path, **slow) as session:
        run(session, budget="1s", finalists=2, final_seeds=3)
        expected = [c.key for c in session.candidates()]
        # Time to spare, as where fewer or faster finalists are left to train.
        with session._store.transaction():
            session._store.set_meta("elapsed_s", "0.1")
    with Session.open(tmp_path) as session:
        assert run(session, budget="1s", finalists=2, final_seeds=3).why == "budget"
        assert [c.key for c in session.candidates()] == expected
    with Session.open(tmp_path) as session:
        run(session, budget="3s", finalists=2, final_seeds=3)
        assert len(session.candidates()) > len(expected)


# --- how a run ended


def test_an_interrupted_search_says_so_wherever_it_is_read(tmp_path: Path) -> None:
    with start(tmp_path, note="syno search a:b -o c") as session:
        assert session.ended == ""
        summary = run(session, callbacks=[Interruption(12)])
        assert summary.interrupted
    with open_view(tmp_path) as view:
        assert view.ended == view.status()["ended"] == "interrupted"
        made = report(view)
        assert made.ended == "interrupted"
        assert made.conclusion.startswith(
            "The search was interrupted; syno search a:b -o c continues it. "
        )
    status = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert "interrupted; the same command continues it" in status.output
    with Session.open(tmp_path) as session:
        assert run(session).why == session.ended == "budget"
        assert "interrupted" not in report(session).conclusion
    assert "continues it" not in CliRunner().invoke(app, ["status", str(tmp_path)]).output


# --- finalists by name


def test_chosen_candidates_are_trained_again_each_on_its_own_seeds(tmp_path: Path) -> None:
    with start(tmp_path / "a") as session:
        run(session, budget=6)
        chosen = {"c5": 2, "c2": [7, 1], "baseline": 3}
        run(session, budget=6, finalists=chosen)
        seeds = {c.id: [s.seed for s in c.finals] for c in session.candidates() if c.finals}
        assert seeds == {"c5": [1, 2], "c2": [1, 7]}
        assert session.baseline is not None
        assert [s.seed for s in session.baseline.finals] == [1, 2, 3]
        assert sorted(session.finalists) == [2, 5]
        run(session, budget=6, finalists={"c5": 4})
        assert [s.seed for s in session.candidate("c5").finals] == [1, 2, 3, 4]
        assert [s.seed for s in session.baseline.finals] == [1, 2, 3, 4], "as many as any"
        assert len(session.candidates()) == 6


def test_chosen_finalists_are_the_same_after_an_interruption(tmp_path: Path) -> None:
    def finals(session: Any) -> list[Any]:
        return [(c.id, [(s.seed, s.value) for s in c.finals]) for c in session.candidates()]

    chosen = {"c1": 3, "c4": 1}
    with start(tmp_path / "whole") as session:
        run(session, budget=5)
        run(session, budget=5, finalists=chosen)
        expected = finals(session)
    with start(tmp_path / "pieces") as session:
        run(session, budget=5)
        for _ in range(20):

            def interrupt(what: str, candidate: Any, view: Any) -> None:
                if what == "finalist":
                    raise KeyboardInterrupt

            if not run(session, budget=5, finalists=chosen, callbacks=[interrupt]).interrupted:
                break
        assert finals(session) == expected


@pytest.mark.parametrize(
    ("chosen", "error", "words"),
    [
        ({"c77": 2}, UnknownName, "c77"),
        ({"c1": 0}, SessionError, "0 seeds"),
        ({"c1": [2, -1]}, SessionError, "the seeds themselves"),
        ({"c1": "many"}, ArgumentError, "finalists="),
        ({"c3": 1}, SessionError, "c3 cannot be trained again"),
    ],
)
def test_finalists_that_cannot_be_are_refused(
    tmp_path: Path, chosen: Any, error: Any, words: str
) -> None:
    with start(tmp_path, trainer={"nan": [29, 30, 31]}) as session:
        run(session, budget=5)
        failed = next(c for c in session.candidates() if c.state == "failed")
        named = {failed.id if id == "c3" else id: seeds for id, seeds in chosen.items()}
        with pytest.raises(error, match=words.replace("c3", failed.id)):
            run(session, budget=5, finalists=named)
        assert not any(c.finals for c in session.candidates())


def test_one_operator_in_two_stages_has_two_networks_weights(tmp_path: Path) -> None:
    small = Component(reference="session_fakes:Climber", options={"size": 3})
    stages = [Stage(name=name, proposer=small) for name in ("a", "b")]
    with start(tmp_path, proposer=None, stages=stages) as session:
        run(session, budget=6)
        rows = session.candidates()
        assert {c.key for c in rows if c.stage == "a"} == {c.key for c in rows if c.stage == "b"}
        run(session, budget=6, finalists={c.id: 1 for c in rows})
        paths = [path for c in session.candidates() for path in session.weights(c).values()]
        assert len(paths) == len(rows) == len(set(paths))
