"""Rungs of short trainings: who goes on, what their ranks are worth, and that nothing but the record decides it."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from session_fakes import BASELINE, Trainer, numbers
from test_session import run, start
from torch import nn
from typer.testing import CliRunner

import syno
from syno.cli.main import app
from syno.errors import SessionError
from syno.session import Component, ProcessExecutor, Prune, Rung, open_view
from syno.session.protocols import TrainRequest
from syno.session.rungs import (
    RANDOM_LEAST,
    RANDOM_SHARE,
    choose_passed,
    correlation_interval,
    rank_correlation,
)
from syno.training.train import CurvePoint, TrainResult, train


class Short(Trainer):
    """Trainings that are worth less the shorter they are: ``noise`` of a whole one's differences, or upside down."""

    clock_s: ClassVar[float] = 0.0
    """What this process spent on trainings."""

    def __init__(self, noise: float = 0.1, upside_down: bool = False, journal: str = "") -> None:
        super().__init__(journal=journal)
        self.noise, self.upside_down = noise, upside_down

    def evaluate(self, request: TrainRequest, report: Callable[..., None]) -> TrainResult:
        chosen = numbers(request.assignment)
        if self.journal:
            with open(self.journal, "a") as file:
                file.write(f"{request.candidate} {request.share}\n")
        number = chosen[-1] if chosen else BASELINE
        whole = 1 - sum(((n - 20) / 40) ** 2 for n in chosen or [BASELINE])
        lie = random.Random(f"{number} {request.share}").uniform(-1, 1) * self.noise
        short = 1 - request.share
        value = whole + short * (lie - (2 * whole if self.upside_down else 0))
        steps = max(1, round(8 * request.share))
        report(steps, accuracy=value)
        found = self._result(
            "done", "", value, [CurvePoint(steps, 0.0, {"accuracy": value})], request
        )
        Short.clock_s += 8 * request.share
        return dataclasses.replace(found, steps=steps, total_steps=steps, seconds=8 * request.share)


class Accuracy:
    """A reward without latency."""

    def __call__(self, candidate: Any, baseline: Any) -> float:
        return 0.0 if candidate.score is None else 0.5 + candidate.score.value / 4


RUNGS = (Rung(share=0.25, keep=0.25), Rung(share=0.5, keep=0.5))


def session(path: Path, rungs: Any = RUNGS, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "evaluator": Component(reference="test_rungs:Short", options=options.pop("trainer", {})),
        "prune": Prune(after=1_000),
        "rungs": rungs,
        **options,
    }
    return start(path, **settings)


def story(view: Any) -> list[Any]:
    rows: list[Any] = []
    for c in [view.baseline, *view.candidates()]:
        scores = [(s.phase, s.value, s.steps) for s in [*c.rungs, *([c.score] if c.score else [])]]
        rows.append((c.id, c.key, c.batch, c.ticket, c.state, c.reason, c.reward, scores))
    return [*rows, view.rung_state, view.rungs()]


# --- who goes on


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 120), st.sampled_from([0.05, 0.25, 0.5, 1.0]), st.integers(0, 9))
def test_the_best_go_on_and_at_least_a_tenth_at_random_beside_them(
    count: int, keep: float, seed: int
) -> None:
    ranked = random.Random(seed).sample(range(1, 1_000), count)
    passed = choose_passed(ranked, keep, ("rung", seed))
    assert passed.seen == ranked
    assert passed.best == ranked[: max(1, math.floor(keep * count))]
    beside = set(passed.drawn) - set(passed.best)
    rest = count - len(passed.best)
    assert len(beside) == min(rest, max(math.ceil(RANDOM_SHARE * count), RANDOM_LEAST))
    assert set(passed.on) == {*passed.best, *passed.drawn} <= set(ranked)
    np.random.seed(count)  # nobody else's stream
    random.seed(count)
    assert choose_passed(ranked, keep, ("rung", seed)) == passed
    if beside and rest > 2 * len(beside):
        others = [choose_passed(ranked, keep, ("rung", other)).drawn for other in range(50, 56)]
        assert any(drawn != passed.drawn for drawn in others)


def test_those_at_random_are_drawn_alike_whatever_their_rank() -> None:
    ranked = list(range(40))
    times = np.zeros(40)
    for seed in range(2_000):
        times[choose_passed(ranked, 0.25, ("rung", seed)).drawn] += 1
    # Of all 40 alike: those among the best (beyond the last drawn, who never is) and those that are not.
    assert abs(times[:10].mean() - times[10:].mean()) < 0.06 * 2_000
    assert times[10:].std() < 0.05 * 2_000 and times[:10].std() < 0.05 * 2_000


# --- what ranks are worth


def spearman(pairs: list[tuple[float, float]]) -> float:
    """By the textbook, for values without ties."""
    sides = [np.argsort(np.argsort([pair[side] for pair in pairs])) for side in (0, 1)]
    n = len(pairs)
    return 1 - 6 * float(((sides[0] - sides[1]) ** 2).sum()) / (n * (n * n - 1))


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(9)), st.permutations(range(6)))
def test_the_correlation_is_spearmans_within_each_cohort(a: list[int], b: list[int]) -> None:
    one = [(float(i), float(v)) for i, v in enumerate(a)]
    other = [(float(i) + 1e6, float(v) - 1e6) for i, v in enumerate(b)]  # levels mean nothing
    assert rank_correlation([one]) == pytest.approx(spearman(one))
    squares = [n * (n * n - 1) for n in (len(one), len(other))]
    pooled = (spearman(one) * squares[0] + spearman(other) * squares[1]) / sum(squares)
    assert rank_correlation([one, other]) == pytest.approx(pooled)


def test_ties_and_nothing_to_rank() -> None:
    assert rank_correlation([[(1.0, 2.0), (1.0, 3.0)]]) is None
    assert rank_correlation([]) is None
    # Mean ranks, as in R: cor(c(1,2,2,4), c(1,3,2,4), method = "spearman") = 0.9486833
    tied = [(1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (4.0, 4.0)]
    assert rank_correlation([tied]) == pytest.approx(0.9486833)
    assert correlation_interval((tuple(tied[:3]),), ("x",)) == (None, None, None)


@pytest.mark.nightly
def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    truth = 6 / math.pi * math.asin(0.7 / 2)  # Spearman's of normal pairs with correlation 0.7
    inside, again = 0, 60
    for number in range(again):
        x = rng.normal(size=40)
        y = 0.7 * x + math.sqrt(1 - 0.49) * rng.normal(size=40)
        pairs = (tuple(zip(x.tolist(), y.tolist(), strict=True)),)
        middle, low, high = correlation_interval(pairs, ("interval", number))
        assert middle is not None and low is not None and high is not None
        assert low <= middle <= high
        inside += low <= truth <= high
    assert 0.85 * again <= inside <= again


# --- sessions


def test_each_rung_trains_fewer_and_longer(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with session(tmp_path / "s", trainer={"journal": str(journal)}) as one:
        run(one, budget=40, finalists=2, final_seeds=1)
        rows = one.candidates()
        first, second = one.rung_state.passed
        assert len(first.seen) == 40 and len(first.best) == 10
        assert sorted(second.seen) == first.on
        assert set(first.drawn) <= set(second.on), "drawn once, to the end"
        for c in rows:
            lengths = [s.steps for s in [*c.rungs, *([c.score] if c.score else [])]]
            assert lengths == [2, 4, 8][: len(lengths)]
            assert (c.score is not None) == (c.number in second.on) == (c.state == "done")
            if c.state == "pruned":
                assert c.reason.startswith(
                    "rung 1: ranks" if len(lengths) == 1 else "rung 2: ranks"
                )
        assert all(c.score is not None for c in rows if c.number in one.finalists)
        assert {c.id for c in one.pareto()} <= {"baseline", *(c.id for c in rows if c.score)}
        trained = journal.read_text().splitlines()
        shares = [line.split()[1] for line in trained]
        assert shares.count("0.25") == 41 and shares.count("0.5") == len(first.on) + 1
        for passed in (first, second):  # by their rewards on that rung, and none is better outside
            left = [n for n in passed.seen if n not in passed.best]
            place = passed.seen.index
            assert max(map(place, passed.best)) < min(map(place, left))


def test_a_rung_that_ranks_as_the_whole_training_does_loses_nothing(tmp_path: Path) -> None:
    with session(tmp_path, rungs=[Rung(share=0.5)], trainer={"noise": 0.0}) as one:
        run(one, budget=40)
        (report,) = one.rungs()
        assert report.correlation == 1.0 and report.lost == [] and not report.useless
        assert report.pairs >= 8 and report.drawn == 8
        assert one.status()["rungs"][0]["correlation"] == 1.0
        assert report.sentence() in one.notes()


def test_a_rung_that_ranks_upside_down_goes_and_what_it_lost_is_named(tmp_path: Path) -> None:
    trainer = {"noise": 0.0, "upside_down": True}
    rungs = [Rung(share=0.3), Rung(share=0.6, keep=0.6)]
    accuracy = Component(reference="test_rungs:Accuracy")
    with session(tmp_path, rungs=rungs, trainer=trainer, reward=accuracy) as one:
        run(one, budget=40)
        first, second = one.rungs()
        assert first.high is not None and first.high < 0.4 and first.useless
        assert one.rung_state.useless[0] == 1
        ended = [c for c in one.candidates() if c.score]
        best = sorted(ended, key=lambda c: -(c.reward or 0.0))[:3]
        decision = one.rung_state.passed[0]
        lost = [c.id for c in best if c.number not in decision.best]
        assert lost and sorted(first.lost) == sorted(lost)
        assert "it would have lost c" in first.sentence()
        before = len(one.candidates())
        run(one, budget=60)
        for c in one.candidates()[before:]:
            assert all(s.phase != "rung1" for s in c.rungs), "it is left out from there on"
        assert first.rung not in {p.rung for p in one.rung_state.passed[len((first, second)) :]}
    status = CliRunner().invoke(app, ["status", str(tmp_path)], env={"COLUMNS": "400"})
    assert "left out from here on" in " ".join(status.output.split())


def test_what_was_decided_stays_when_the_search_goes_on(tmp_path: Path) -> None:
    with session(tmp_path) as one:
        run(one, budget=20)
        before = story(one)
        decisions = one.rung_state.passed
    with session(tmp_path, rungs=None) as one:  # left out: as it was
        run(one, budget=20)
        assert story(one) == before
        run(one, budget=40)
        assert one.rung_state.passed[: len(decisions)] == decisions
        seen = [n for p in one.rung_state.passed if p.rung == 1 for n in p.seen]
        assert len(seen) == len(set(seen)) == 40
        for row, now in zip(before[1:21], story(one)[1:21], strict=True):
            assert row == now


@pytest.mark.parametrize("predicted", [pytest.param(None, marks=pytest.mark.nightly), "2.0"])
def test_rungs_are_the_same_for_any_number_of_workers_and_any_interruption(
    tmp_path: Path, predicted: str | None
) -> None:
    clock = {"jitter": 400.0 if predicted else 0.0}
    options: dict[str, Any] = {"predicted_on": predicted, "clock": clock}
    with session(tmp_path / "whole", **options) as one:
        run(one, budget=24)
        expected = story(one)
    for workers in (1, 2, 4) if predicted else (2,):
        with session(tmp_path / str(workers), **options) as one, ProcessExecutor(workers) as many:
            run(one, budget=24, executor=many)
            assert story(one) == expected
    seed = random.randrange(1 << 32)
    print("seed", seed)  # of this test: shown when it fails
    draw = random.Random(seed)

    def interrupt(what: str, candidate: Any, view: Any) -> None:
        if draw.random() < 0.08:
            raise KeyboardInterrupt

    interrupted = True
    while interrupted:
        random.seed(draw.random())  # whatever a process does beside
        with session(tmp_path / "pieces", **options) as one:
            interrupted = run(one, budget=24, callbacks=[interrupt]).interrupted
            if not interrupted:
                assert story(one) == expected


def test_one_budget_of_time_pays_for_all_rungs(tmp_path: Path) -> None:
    """What going on costs is kept back; where time is up, nobody new is proposed though some is left."""

    def go(budget: str) -> Any:
        with session(tmp_path) as one:
            made = one._loop
            one._loop = lambda *a, **k: _with(made(*a, **k), lambda: Short.clock_s)
            run(one, budget=budget)
            return story(one), one.elapsed_s, len(one.candidates())

    found, elapsed, count = go("150s")
    assert 100 < elapsed < 180, "each whole training takes 8 s"
    assert 8 <= count < 60
    assert found[-2].passed[0].on and any(row[4] == "done" for row in found[1:-2])
    again, _, _ = go("150s")
    assert again == found
    with session(tmp_path) as one, one._store.transaction():
        one._store.set_meta("elapsed_s", "1.0")  # time to spare
    again, _, _ = go("150s")
    assert again == found
    assert go("300s")[2] > count


def _with(loop: Any, clock: Callable[[], float]) -> Any:
    loop._clock = clock
    loop._since = clock()
    return loop


@pytest.mark.parametrize(
    "rungs",
    [(), [Rung(share=0.5), Rung(share=0.5)], [Rung(share=1.0)], [Rung(share=0.5, keep=0.0)],
     [Rung(share=math.nan)], [Rung(share=0.5, keep=2.0)]],
)  # fmt: skip
def test_rungs_that_make_no_ladder_are_refused(tmp_path: Path, rungs: Any) -> None:
    with pytest.raises(SessionError, match="rungs"):
        session(tmp_path, rungs=rungs)


def test_who_asks_and_tells_has_no_rungs(tmp_path: Path) -> None:
    with session(tmp_path) as one, pytest.raises(SessionError, match="rungs"):
        one.ask()


@pytest.mark.parametrize("text", ["0.5,0.1", "0", "1", "a", "", "nan"])
def test_the_command_line_refuses_rungs_before_any_work(tmp_path: Path, text: str) -> None:
    outcome = CliRunner().invoke(
        app, ["search", "nowhere:nothing", "-o", str(tmp_path / "s"), "--rungs", text]
    )
    assert outcome.exit_code == 2
    assert "rungs" in outcome.output


# --- trainings


def test_a_short_training_has_the_whole_schedule() -> None:
    from syno.training.tasks import digits

    rates: list[list[float]] = []

    def schedule(optimizer: Any, steps: int) -> Any:
        rates.append([])

        def rate(step: int) -> float:
            rates[-1].append(step / steps)
            return max(0.0, 1 - step / steps)

        return torch.optim.lr_scheduler.LambdaLR(optimizer, rate)

    task = digits(width=2, epochs=1).but(schedule=schedule)
    whole = train(task, seed=1)
    short = train(task, seed=1, share=0.25)
    assert short.steps == short.total_steps == round(0.25 * whole.steps)
    assert rates[0][-1] == rates[1][-1] == 1.0
    least = train(task, seed=1, share=1e-9)
    assert (least.steps, least.state) == (1, "done")


def test_a_whole_search_has_rungs(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(8, 8, 3, padding=1)
            self.head = nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.conv(x)).mean((2, 3)))

    torch.manual_seed(0)
    data = [(torch.randn(8, 8, 6, 6), torch.randint(0, 2, (8,))) for _ in range(8)]
    syno.search(
        Net(), data[0][0][:1], data=(data, data[:2]), session=tmp_path, budget=3, rungs=(0.25, 0.5),
        policy="mcts", finalists=0, progress="off", min_flops_ratio=0.05, max_steps=5,
    )  # fmt: skip
    with open_view(tmp_path) as view:
        assert [rung.share for rung in view.config.rungs or ()] == [0.25, 0.5]
        for c in view.candidates():
            if c.state == "done":
                assert [s.steps for s in c.rungs] == [2, 4] and c.score and c.score.steps == 8
        assert any(c.state == "done" for c in view.candidates())
