"""A session proposes, measures, trains and tells in a fixed order, and can be read at any time."""

from __future__ import annotations

import concurrent.futures
import json
import math
from pathlib import Path
from typing import Any

import numpy
import pytest
import session_fakes as fakes
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S

from syno.errors import BudgetError, SessionError, UnknownName
from syno.session import (
    Budget,
    Candidate,
    Component,
    FuturesExecutor,
    InlineExecutor,
    Limits,
    ProcessExecutor,
    Prune,
    QualityTimesSpeed,
    RunSummary,
    Session,
    Stage,
    open_view,
)
from syno.session.overview import Overview
from syno.session.pruning import Training, curve_floors, not_worth_training
from syno.session.records import Score
from syno.session.rewards import gains_of

LIMITS = Limits(
    workers=2, train_limit_s=PATIENCE_S, measure_limit_s=PATIENCE_S, start_limit_s=PATIENCE_S
)


def start(path: Path, *, repeat: bool = False, **options: Any) -> Session:
    settings: dict[str, Any] = {
        "proposer": Component(
            reference="session_fakes:Climber", options={"repeat": True} if repeat else {}
        ),
        "evaluator": Component(
            reference="session_fakes:Trainer", options=options.pop("trainer", {})
        ),
        "measurer": Component(reference="session_fakes:Clock", options=options.pop("clock", {})),
        "limits": LIMITS,
        **options,
    }
    return Session.open(path, **settings)


def run(session: Session, budget: Any = 12, executor: Any = None, **options: Any) -> RunSummary:
    return session.run(
        budget=budget, executor=executor or InlineExecutor(), progress="off", **options
    )


def story(session: Any) -> list[tuple[Any, ...]]:
    return [
        (c.number, c.key, c.batch, c.ticket, c.state, c.reward, c.value)
        for c in session.candidates()
    ]


# --- the whole loop


def test_a_run_finds_the_best_operator_and_trains_it_again(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        summary = run(session, finalists=3)
        assert summary.why == "budget"
        assert summary.trained == 12
        assert summary.best is not None
        assert summary.best.expr == "y = 20"
        assert [score.seed for score in summary.best.finals] == [1, 2, 3]
        assert {score.part for score in summary.best.finals} == {"test"}
        assert summary.best.score is not None
        assert summary.best.score.part == "validation"
        finalists = [c for c in session.candidates() if c.finals]
        assert len(finalists) == 3
        baseline = session.baseline
        assert baseline is not None
        assert [score.seed for score in baseline.finals] == [1, 2, 3]
        assert sorted(session.weights(summary.best)) == [1, 2, 3]
        assert json.dumps(summary.to_dict())


def executors() -> list[Any]:
    return [
        pytest.param(InlineExecutor, id="inline"),
        pytest.param(lambda: ProcessExecutor(1), id="1 worker"),
        pytest.param(lambda: ProcessExecutor(4), id="4 workers"),
        pytest.param(
            lambda: FuturesExecutor(concurrent.futures.ThreadPoolExecutor(3)), id="thread pool"
        ),
    ]


@pytest.mark.parametrize("make", executors())
def test_any_executor_gives_the_same_candidates(
    tmp_path: Path, make: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with start(tmp_path / "a") as session:
        run(session)
        expected = story(session)
    executor = make()
    with start(tmp_path / "b", trainer={"pause_s": 0.02}) as session:
        run(session, executor=executor)
        executor.close()
        assert story(session) == expected


def test_batch_width_decides_and_a_seed_too(tmp_path: Path) -> None:
    stories = []
    for name, options in (("a", {}), ("b", {"batch_width": 2}), ("c", {"seed": 5})):
        with start(tmp_path / name, **options) as session:
            run(session)
            stories.append([row[1] for row in story(session)])
    assert stories[0] != stories[1]
    assert stories[0] != stories[2]


def test_tickets_are_told_in_order_and_repeated_proposals_are_not_trained_again(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "journal"
    with start(tmp_path / "s", repeat=True, trainer={"journal": str(journal)}) as session:
        summary = run(session, budget=30)
        assert summary.why == "exhausted"
        keys = [c.key for c in session.candidates()]
        assert len(set(keys)) == len(keys)
    lines = journal.read_text().splitlines()
    assert len(lines) == len(keys) + 1  # the baseline


def test_a_small_space_is_exhausted(tmp_path: Path) -> None:
    proposer = Component(reference="session_fakes:Climber", options={"size": 5})
    with start(tmp_path, proposer=proposer) as session:
        summary = run(session, budget="100 candidates")
        assert summary.why == "exhausted"
        assert summary.trained == 5


def test_a_greater_budget_goes_on_where_the_first_ended(tmp_path: Path) -> None:
    with start(tmp_path / "once") as session:
        run(session, budget=12)
        expected = story(session)
    for budget in (4, 4, 8, 12):
        with (
            Session.open(tmp_path / "twice")
            if (tmp_path / "twice").exists()
            else start(tmp_path / "twice") as session
        ):
            assert run(session, budget=budget).trained == budget
    with open_view(tmp_path / "twice") as view:
        assert story(view) == expected


def test_stages_are_searched_in_order_each_on_top_of_the_best_so_far(tmp_path: Path) -> None:
    climber = Component(reference="session_fakes:Climber")
    stages = [
        Stage(name="wide", proposer=climber, share=3),
        Stage(name="narrow", proposer=climber, share=1),
    ]
    with start(tmp_path, proposer=None, stages=stages) as session:
        run(session, budget=16)
        rows = session.candidates()
        assert [c.stage for c in rows] == ["wide"] * 12 + ["narrow"] * 4
        best = max(rows[:12], key=lambda c: c.reward or 0)
        assert session.status()["stages"][0] == {
            "name": "wide",
            "state": "closed",
            "chosen": best.number,
        }
        assert session.assignment(rows[12]) == {"wide": best.key, "narrow": rows[12].key}
        assert session.assignment(rows[0]) == {"wide": rows[0].key}
        assert rows[12].latency_us == 10 + 20 + 30


def test_without_a_measurer_flops_stand_for_latency(tmp_path: Path) -> None:
    with start(tmp_path, measurer=None) as session:
        run(session)
        assert all(c.latency_us is None and c.reward for c in session.candidates())
        assert session.pareto()


def test_a_time_budget_ends_the_search(tmp_path: Path) -> None:
    with start(tmp_path, trainer={"pause_s": 0.2}) as session:
        summary = run(session, budget="2s", finalists=1, final_seeds=1)
        assert summary.why == "budget"
        assert 0 < summary.trained < 60
        assert summary.elapsed_s < 8


# --- outcomes


def test_kernels_that_fail_their_check_are_never_trained(tmp_path: Path) -> None:
    with start(tmp_path, clock={"wrong": [29, 28]}) as session:
        run(session)
        rows = {c.expr: c for c in session.candidates()}
        assert rows["y = 29"].state == "failed"
        assert "max_rel_err 0.3" in rows["y = 29"].reason
        assert rows["y = 29"].score is None
        assert rows["y = 29"].reward == 0
        assert session.trained == 12


def test_costs_beyond_their_limit_are_pruned_before_training(tmp_path: Path) -> None:
    with start(tmp_path, prune=Prune(max_latency_ratio=1.0)) as session:
        run(session, budget=8)
        for candidate in session.candidates():
            slow = candidate.latency_us is not None and candidate.latency_us > 40
            assert (candidate.state == "pruned") == slow
            if slow:
                assert "before training: latency" in candidate.reason


def test_hopeless_curves_are_stopped_by_floors_of_earlier_batches_only(tmp_path: Path) -> None:
    prune = Prune(after=3, max_drop=0.02)
    with start(tmp_path, prune=prune, seed=9, batch_width=3) as session:
        run(session, budget=9)
        pruned = [c for c in session.candidates() if c.state == "pruned"]
        assert pruned
        assert all(c.batch != 1 for c in pruned)  # the first batch had nothing to compare with
        assert all("after" in c.reason and c.reward is not None for c in pruned)


def test_an_original_that_cannot_be_trained_ends_the_run_at_once(tmp_path: Path) -> None:
    with start(tmp_path, trainer={"broken_baseline": True}) as session:
        with pytest.raises(SessionError, match=r"original network.*no data at all") as caught:
            run(session)
        assert caught.value.code == "R011"
        assert session.candidates() == []


# --- driving by hand


def test_ask_and_tell_give_what_a_run_gives(tmp_path: Path) -> None:
    with start(tmp_path / "run", measurer=None, batch_width=2) as session:
        run(session, budget=6)
        expected = [c.key for c in session.candidates()]
    with start(tmp_path / "hand", measurer=None, batch_width=2) as session:
        told = 0
        while told < 7:
            trial = session.ask()
            assert trial is not None
            assert (trial.operator is None) == (told == 0)
            number = fakes.BASELINE if trial.operator is None else trial.operator.flops
            assert number is not None
            trial.report(1, accuracy=0.1)
            assert trial.should_stop() is None
            quality = 1 - ((number - 20) / 40) ** 2 + 1e-4 * ((number * 31) % 11 - 5)
            session.tell(trial, accuracy=quality)
            told += 1
        assert [c.key for c in session.candidates()] == expected
        assert session.pareto()


def test_asking_and_telling_wrongly_is_explained(tmp_path: Path) -> None:
    with start(tmp_path, batch_width=1) as session:
        baseline = session.ask()
        assert baseline is not None
        with pytest.raises(SessionError, match="told no metric"):
            session.tell(baseline)
        with pytest.raises(SessionError, match="accuracy', 'loss"):
            session.tell(baseline, accuracy=1.0, loss=0.0)
        session.tell(baseline, accuracy=0.9)
        with pytest.raises(SessionError, match="told before"):
            session.tell(baseline, accuracy=0.9)
        trial = session.ask()
        assert trial is not None
        with pytest.raises(SessionError, match="not all told"):
            session.ask()
        trial.report(3, accuracy=math.nan)
        assert trial.should_stop() == "accuracy is nan after step 3"
        session.tell(trial, failed="too slow to wait for")
        assert session.candidates()[0].reason == "too slow to wait for"


def test_should_stop_follows_the_curves_of_earlier_batches(tmp_path: Path) -> None:
    prune = Prune(after=3, max_drop=0.05, margin=0.0)
    with start(tmp_path, batch_width=2, prune=prune) as session:
        stopped = []
        for told in range(5):
            trial = session.ask()
            assert trial is not None
            value = 0.2 if told == 4 else 0.9
            trial.report(1, total_steps=2, accuracy=value / 2)
            reason = trial.should_stop()
            stopped.append(bool(reason))
            if not reason:
                trial.report(2, total_steps=2, accuracy=value)
            session.tell(trial, accuracy=value, latency_us=50.0, pruned=reason or "")
        assert stopped == [False] * 4 + [True]
        assert "below 0.4: it cannot come within" in session.candidate(4).reason
        assert session.candidate(4).state == "pruned"


def test_recorded_latencies_give_the_same_search_again(tmp_path: Path) -> None:
    jittering = Component(reference="session_fakes:Clock", options={"jitter": 30.0})
    with start(tmp_path / "a", measurer=jittering) as session:
        run(session)
        expected = story(session)
        latencies = [c.latency_us for c in session.candidates()]
    with start(tmp_path / "b", measurer=jittering) as session:
        run(session)
        assert [c.latency_us for c in session.candidates()] != latencies
    recorded = Component(
        reference="syno.session:RecordedMeasurer", options={"session": str(tmp_path / "a")}
    )
    with start(tmp_path / "c", measurer=recorded) as session:
        run(session)
        assert story(session) == expected
        assert [c.latency_iqr_us for c in session.candidates()] == [0.5] * 12
    with start(tmp_path / "d", measurer=recorded) as session:
        session.enqueue(fakes.operator(59))
        run(session, budget=1)
        assert "has no latency of" in session.candidate(1).reason


def test_enqueued_operators_come_first_and_once(tmp_path: Path) -> None:
    with start(tmp_path / "a") as session:
        mine = session.enqueue(fakes.operator(3))
        assert session.enqueue(fakes.operator(3)).number == mine.number
        run(session, budget=5)
        assert session.candidate(mine.id).state == "done"
        assert session.candidate(mine.id).batch == 1
        with pytest.raises(SessionError, match="no stage 'else'"):
            session.enqueue(fakes.operator(4), stage="else")
        with start(tmp_path / "b") as other:
            given = other.warm_start(session)
            assert {c.key for c in given} == {c.key for c in session.pareto() if c.key}


# --- reading


def test_a_view_reads_while_a_session_is_open(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def callback(what: str, candidate: Candidate | None, view: Any) -> None:
        with open_view(tmp_path) as other:
            status = other.status()
            assert status["running"]
            assert len(other.candidates()) == len(view.candidates())
            seen.append((what, status["trained"]))

    with start(tmp_path) as session:
        run(session, budget=4, callbacks=[callback])
    assert {what for what, _ in seen} >= {"started", "measured", "trained", "folded", "ended"}
    assert seen[-1] == ("ended", 4)
    with open_view(tmp_path) as view:
        assert not view.status()["running"]


def test_candidates_are_found_by_id_number_and_hash(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        run(session, budget=4)
        second = session.candidates()[1]
        for name in ("c2", 2, "2", second.key):
            assert session.candidate(name).number == 2
        assert session.candidate("baseline").kind == "baseline"
        with pytest.raises(UnknownName, match="c99"):
            session.candidate("c99")


def test_tables_explanations_and_events(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    with start(tmp_path) as session:
        run(session, budget=4, finalists=1, final_seeds=2)
        frame = session.to_dataframe()
        assert list(frame["id"]) == ["baseline", "c1", "c2", "c3", "c4"]
        assert frame["pareto"].sum() == len(session.pareto())
        text = session.explain("c2")
        for words in ("take 29", "near 30", "whole network", "step 4: accuracy", "reward: 0.5"):
            assert words in text
        assert "<table>" in session._repr_html_()
        assert "done" in repr(session)
        events = [event["what"] for event in session.events()]
        assert events[0] == "session created"
        lines = (tmp_path / "logs" / "events.jsonl").read_text().splitlines()
        assert [json.loads(line)["what"] for line in lines] == events


def test_best_is_never_worse_than_the_original_beyond_the_uncertainty(tmp_path: Path) -> None:
    with start(tmp_path, seed=9) as session:  # begins among slow ones
        run(session, budget=4)
        baseline, best = session.baseline, session.best()
        assert baseline is not None
        if best is not None:
            allowed = session.uncertainty(best, baseline)
            assert allowed is not None
            assert (best.value or 0) >= (baseline.value or 0) - allowed
        assert session.best(max_drop=-1.0) is None


# --- pieces


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10min", Budget(time_s=600)),
        ("2h", Budget(time_s=7200)),
        ("1.5 h", Budget(time_s=5400)),
        ("90s", Budget(time_s=90)),
        ("200 candidates", Budget(candidates=200)),
        (12, Budget(candidates=12)),
        ("1 candidate, 5m", Budget(time_s=300, candidates=1)),
        (Budget(time_s=1), Budget(time_s=1)),
    ],
)
def test_budgets_are_read(text: Any, expected: Budget) -> None:
    assert Budget.parse(text) == expected
    assert Budget.parse(str(expected)) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "10 parsecs", "-5s", 0, "0 candidates", 1.5, True, "0s"]
)
def test_budgets_that_allow_nothing_are_refused(text: Any) -> None:
    with pytest.raises(BudgetError):
        Budget.parse(text)


def score(value: float, *, higher: bool = True, stderr: float = 0.0) -> Score:
    return Score(
        phase="search",
        seed=0,
        part="validation",
        metric="m",
        higher_is_better=higher,
        value=value,
        stderr=stderr,
        count=100,
        steps=4,
        total_steps=4,
        seconds=1.0,
        examples_per_s=1.0,
        threads=1,
    )


def candidate(number: int, value: float | None, cost: float, **changes: Any) -> Candidate:
    higher = changes.pop("higher", True)
    fields: dict[str, Any] = {
        "number": number,
        "kind": "proposed",
        "stage": "s",
        "state": "done" if value is not None else "queued",
        "reason": "",
        "key": f"k{number}",
        "expr": "",
        "batch": 1,
        "ticket": number,
        "why": "",
        "tries": 1,
        "reward": None,
        "flops": int(cost),
        "params": int(cost),
        "verified": True,
        "max_rel_err": None,
        "latency_us": cost,
        "latency_iqr_us": 0.0,
        "op_latency_us": None,
        "timings": [],
        "score": None if value is None else score(value, higher=higher),
        "finals": [],
        "started": None,
        "ended": None,
    }
    return Candidate(**{**fields, **changes})


VALUES = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=0, max_size=12)


@given(VALUES, st.booleans())
def test_the_front_is_what_nothing_beats(pairs: list[tuple[int, int]], higher: bool) -> None:
    everyone = [
        candidate(i, float(value), float(cost), higher=higher)
        for i, (cost, value) in enumerate(pairs)
    ]
    nothing = numpy.full(len(everyone), numpy.nan)
    overview = Overview(
        numbers=numpy.arange(len(everyone)),
        original=numpy.zeros(len(everyone), dtype=bool),
        flops=nothing,
        latency_us=numpy.array([float(cost) for cost, _ in pairs]),
        validation=numpy.array([float(value) for _, value in pairs]),
        stderr=nothing,
        test=nothing,
        finals={},
        timed=True,
    )
    order = overview.front(overview.latency_us, overview.value, higher_is_better=higher)
    front = [everyone[number] for number in order]
    sign = 1 if higher else -1

    def beats(a: Candidate, b: Candidate) -> bool:
        better = (
            (-(a.latency_us or 0), sign * (a.value or 0)),
            (
                -(b.latency_us or 0),
                sign * (b.value or 0),
            ),
        )
        (c1, v1), (c2, v2) = better
        return c1 >= c2 and v1 >= v2 and (c1, v1) != (c2, v2)

    numbers = {c.number for c in front}
    for c in everyone:
        beaten = any(beats(other, c) for other in everyone)
        if c.number in numbers:
            assert not beaten
        elif not beaten:  # then an equal one stands for it
            assert any((f.latency_us, f.value) == (c.latency_us, c.value) for f in front)


@settings(max_examples=60)
@given(
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
    st.floats(1.0, 100.0),
    st.floats(1.0, 100.0),
)
def test_rewards_grow_with_quality_and_speed(v1: float, v2: float, c1: float, c2: float) -> None:
    reward = QualityTimesSpeed(tolerance=0.05)
    baseline = candidate(0, 0.8, 50.0)
    first, second = candidate(1, max(v1, v2), min(c1, c2)), candidate(2, min(v1, v2), max(c1, c2))
    assert 0 <= reward(second, baseline) <= reward(first, baseline) <= 1
    assert reward(baseline, baseline) == pytest.approx(0.5)
    assert reward(candidate(3, None, 1.0), baseline) == 0


def test_rewards_of_losses_fall_with_the_loss() -> None:
    reward = QualityTimesSpeed(tolerance=0.05)
    baseline = candidate(0, 2.0, 50.0, higher=False)
    worse = candidate(1, 2.2, 50.0, higher=False)
    better = candidate(2, 1.8, 50.0, higher=False)
    assert reward(worse, baseline) == pytest.approx(0.5 * math.exp(-2.0))
    assert reward(better, baseline) == pytest.approx(0.5)


@pytest.mark.parametrize("unit", [2.0**-1000, 2.0**-100, 2.0**-45, 2.0**100, 2.0**1000])
def test_rewards_of_losses_do_not_depend_on_their_unit(unit: float) -> None:
    reward = QualityTimesSpeed(tolerance=0.05)

    def made(unit: float) -> list[Any]:
        baseline, *others = (
            candidate(i, value * unit, 50.0, higher=False)
            for i, value in enumerate((2.0, 2.2, 1.8, 1e6))
        )
        gains = [gains_of(one, baseline, Prune()) for one in others]
        return [*(reward(one, baseline) for one in others), *gains]

    assert made(unit) == made(1.0)
    nothing = candidate(0, 0.0, 50.0, higher=False)
    assert reward(candidate(1, unit, 50.0, higher=False), nothing) == 0
    assert reward(candidate(1, 0.0, 50.0, higher=False), nothing) == pytest.approx(0.5)


def finished(number: int, curve: list[float], cost: float, higher: bool = True) -> Training:
    points = [((i + 1) / len(curve), value) for i, value in enumerate(curve)]
    return Training(candidate(number, curve[-1], cost, higher=higher), points)


def test_floors_allow_the_greatest_gain_seen_and_nothing_more() -> None:
    prune = Prune(after=2, margin=0.0, max_drop=0.5)
    done = [finished(0, [0.2, 0.6, 0.8], 50), finished(1, [0.1, 0.7, 0.9], 10)]
    baseline = done[0].candidate
    slow = candidate(5, None, 30.0)
    floors, why = curve_floors(slow, done, baseline, prune)
    assert why == "c1 costs no more and is better"
    assert floors == [
        (pytest.approx(1 / 3, abs=1e-5), pytest.approx(0.9 - 0.8)),
        (pytest.approx(2 / 3, abs=1e-5), pytest.approx(0.9 - 0.2)),
    ]
    fast = candidate(6, None, 5.0)  # nothing is as cheap: only the distance to the original counts
    floors, why = curve_floors(fast, done, baseline, prune)
    assert floors[0][1] == pytest.approx(0.8 - 0.5 - 0.8)
    assert "within 0.5 of the original" in why
    assert curve_floors(slow, done[:1], baseline, prune) == ([], "")


def test_floors_of_losses_are_ceilings() -> None:
    prune = Prune(after=2, margin=0.0, max_drop=0.5)
    done = [finished(0, [3.0, 2.0], 50, False), finished(1, [3.2, 1.0], 10, False)]
    floors, _ = curve_floors(candidate(5, None, 30.0), done, done[0].candidate, prune)
    assert floors == [(0.5, pytest.approx(1.0 + 2.2))]


@pytest.mark.parametrize("name", ["latency", "flops", "params"])
def test_each_cost_limit_is_its_own(name: str) -> None:
    prune = Prune(**{f"max_{name}_ratio": 2.0})
    baseline = candidate(0, 0.9, 10.0)
    assert not_worth_training(candidate(1, None, 20.0), baseline, prune) is None
    assert "limit 2" in (not_worth_training(candidate(2, None, 21.0), baseline, prune) or "")
    assert not_worth_training(candidate(2, None, 21.0), baseline, Prune()) is None


@pytest.mark.parametrize("mode", ["log", "off", "bar"])
def test_progress_shows_itself_on_standard_error_only(
    tmp_path: Path, mode: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with start(tmp_path) as session, ProcessExecutor(1) as executor:
        session.run(budget=4, progress=mode, executor=executor)
    out, err = capfd.readouterr()
    assert out == ""
    assert ("trained" in err) == (mode != "off")
    with start(tmp_path) as session, pytest.raises(UnknownName, match="bar"):
        session.run(budget=4, progress="loud")
