"""Successive halving in sessions: where trainings stop, what a session records, and what a policy is told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_session import candidate, run, start, story

from syno.errors import SessionError
from syno.session import InlineExecutor, ProcessExecutor, Prune
from syno.session.pruning import halving_floors, stricter
from syno.session.rewards import DROP, LATENCY_RATIO, gains_of

CURVES = st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=4), max_size=12)
SHARES = (0.25, 0.5, 0.75, 1.0)


def curve_of(values: list[int]) -> list[tuple[float, float]]:
    return [(share, float(value)) for share, value in zip(SHARES, values, strict=False)]


@settings(max_examples=80, deadline=None)
@given(CURVES, st.sampled_from([0.25, 1 / 3, 0.5, 1.0]), st.integers(1, 5), st.booleans())
def test_a_floor_lets_the_best_share_of_those_that_came_there_pass(
    values: list[list[int]], keep: float, after: int, higher: bool
) -> None:
    curves = [curve_of(one) for one in values]
    floors = dict(halving_floors(curves, keep, after, higher_is_better=higher))
    for place, share in enumerate(SHARES[:-1]):
        there = [one[place] for one in values if len(one) > place]
        assert (share in floors) == (len(there) >= after)
        if share not in floors:
            continue
        passing = [v for v in there if (v >= floors[share] if higher else v <= floors[share])]
        stopped = [v for v in there if v not in passing]
        assert floors[share] in there
        # Ties pass together; without the worst of those that pass there would be too few.
        assert len(passing) >= max(1, math.floor(keep * len(there)))
        better = [v for v in passing if v != floors[share]]
        assert len(better) < max(1, math.floor(keep * len(there)))
        assert all((v < min(passing)) if higher else (v > max(passing)) for v in stopped)
    assert 1.0 not in floors


FLOORS = st.dictionaries(st.sampled_from(SHARES[:-1]), st.integers(0, 9), max_size=3)


@settings(max_examples=80, deadline=None)
@given(FLOORS, FLOORS, st.booleans(), st.integers(0, 9), st.sampled_from(SHARES[:-1]))
def test_the_stricter_of_two_floors_stops_what_either_stops(
    one: dict[float, int], other: dict[float, int], higher: bool, value: int, share: float
) -> None:
    from syno.training.train import CurveFloor

    def stops(floors: list[tuple[float, float]]) -> bool:
        return CurveFloor(floors, higher_is_better=higher)(int(100 * share), 100, value) is not None

    a, b = sorted(one.items()), sorted(other.items())
    assert stops(stricter(a, b, higher_is_better=higher)) == (stops(a) or stops(b))


def test_only_the_better_half_of_earlier_batches_goes_on(tmp_path: Path) -> None:
    prune = Prune(keep=0.5, after=3, margin=1e6)  # so that nothing else stops a training
    with start(tmp_path, prune=prune, batch_width=3) as session:
        run(session, budget=48)
        rows = session.candidates()
        stopped = [c for c in rows if c.state == "pruned"]
        assert stopped
        assert all(c.batch != 1 for c in stopped)  # the first batch had nothing to compare with
        assert all("not among the best 50% of" in c.reason for c in stopped)
        assert all(c.score is not None and c.score.steps == 4 for c in rows if c.state == "done")
        # Each was stopped at the first point where half of those of earlier batches that came there were better.
        curves = {c.number: {s: m["accuracy"] for s, m in session.curve(c)} for c in rows}
        for c in rows:
            before = [r for r in rows if (r.batch or 0) < (c.batch or 0)]
            for step in (1, 2, 3):
                if step not in curves[c.number]:
                    continue
                there = sorted(
                    (curves[r.number][step] for r in before if step in curves[r.number]),
                    reverse=True,
                )
                floor = there[max(1, len(there) // 2) - 1] if len(there) >= 3 else -math.inf
                ends_here = c.state == "pruned" and step == max(curves[c.number])
                assert (curves[c.number][step] < floor) == ends_here


def test_stopped_trainings_count_at_the_points_they_reached(tmp_path: Path) -> None:
    prune = Prune(keep=0.5, after=2, margin=1e6)
    with start(tmp_path, measurer=None, batch_width=2, prune=prune) as session:
        stopped = []
        for value in (0.9, 0.4, 0.5, 0.3, 0.6, 0.55, 0.45):  # the original first
            trial = session.ask()
            assert trial is not None
            trial.report(1, total_steps=2, accuracy=value)
            reason = trial.should_stop()
            stopped.append(reason is not None)
            if reason is None:
                trial.report(2, total_steps=2, accuracy=value)
            session.tell(trial, accuracy=value, stderr=0.1, pruned=reason or "")
        # 0.3 fails against 0.5 of (0.5, 0.4); of (0.6, 0.5, 0.4, 0.3) 0.55 is among the better half, 0.45 not.
        assert stopped == [False, False, False, True, False, False, True]


def test_halving_gives_the_same_candidates_for_any_number_of_workers(tmp_path: Path) -> None:
    prune = Prune(keep=0.5, after=3, margin=1e6)

    def found(name: str, executor: Any) -> list[tuple[Any, ...]]:
        with start(tmp_path / name, prune=prune, batch_width=4) as session:
            run(session, budget=48, executor=executor)
            return [
                (*row, c.reason)
                for row, c in zip(story(session), session.candidates(), strict=True)
            ]

    expected = found("inline", InlineExecutor())
    assert any("not among the best 50%" in row[-1] for row in expected)
    for workers in (1, 2, 4):
        with ProcessExecutor(workers) as executor:
            assert found(str(workers), executor) == expected


@pytest.mark.parametrize("keep", [0.0, -0.5, 1.5, math.nan])
def test_a_share_that_keeps_nothing_or_too_much_is_refused(tmp_path: Path, keep: float) -> None:
    with pytest.raises(SessionError, match=r"prune\.keep"):
        start(tmp_path, prune=Prune(keep=keep))


# --- what policies are told beside the reward


def test_gains_are_zero_at_the_limits_and_one_where_nothing_is_lost() -> None:
    baseline = candidate(0, 0.9, 50.0)
    prune = Prune(max_drop=0.2, max_latency_ratio=2.0)
    edge = gains_of(candidate(1, 0.7, 100.0), baseline, prune)
    assert (edge.quality, edge.speed) == (pytest.approx(0.0), pytest.approx(0.0))
    better = gains_of(candidate(2, 0.95, 25.0), baseline, prune)
    assert (better.quality, better.speed) == (pytest.approx(0.25), pytest.approx(0.75))
    usual = gains_of(candidate(3, 0.9, 50.0), baseline, Prune(max_drop=math.inf))
    assert (usual.quality, usual.speed) == (DROP, pytest.approx(1 - 1 / LATENCY_RATIO))


def test_gains_of_losses_fall_with_the_loss() -> None:
    baseline = candidate(0, 2.0, 50.0, higher=False)
    prune = Prune(max_drop=0.1)
    worse, better = (candidate(n, v, 50.0, higher=False) for n, v in ((1, 2.2), (2, 1.8)))
    assert gains_of(worse, baseline, prune).quality == pytest.approx(0.0)
    assert gains_of(better, baseline, prune).quality == pytest.approx(0.2)


def test_what_was_not_trained_or_not_timed_has_no_gain_there() -> None:
    baseline = candidate(0, 0.9, 50.0)
    assert gains_of(candidate(1, None, 50.0), baseline, Prune()).quality is None
    assert gains_of(candidate(1, None, 50.0), baseline, Prune()).speed is not None
