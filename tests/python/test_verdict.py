"""What a search found is said in one place, and only where it is proven."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from syno.cli.main import app
from syno.report.build import build_report
from syno.report.render import rows
from syno.session import Component, InlineExecutor, Limits, Prune, Session
from syno.session.final_bench import FINAL_FILE, FinalBench
from syno.session.interval import Sample, difference, stderr_of_median, student_t
from syno.session.records import Score
from syno.session.seed_noise import seed_noise
from syno.session.verdict import MIXES
from syno.support.machine import describe_machine
from syno.training.train import TrainResult

CLIMBER = Component(reference="session_fakes:Climber")


def score(value: float, seed: int = 1, **more: Any) -> Score:
    fields: dict[str, Any] = {
        "phase": "final", "seed": seed, "part": "test", "metric": "accuracy", "higher_is_better": True,
        "value": value, "stderr": 0.0, "count": 100, "steps": 1, "total_steps": 1, "seconds": 0.0,
        "examples_per_s": 0.0, "threads": 1,
    }  # fmt: skip
    return Score(**{**fields, **more})


def drawn(rng: Any, easy: Any, shift: float, spread: float, seeds: int) -> Sample:
    """Trainings of a network that answers example i rightly with the probability ``easy[i] + shift``, give or take a seed."""
    rows = []
    for _ in range(seeds):
        rows.append(rng.random(len(easy)) < easy + shift + spread * rng.standard_normal())
    matrix = np.array(rows, dtype=float)
    return Sample([score(float(row.mean()), count=len(row)) for row in matrix], matrix)


@pytest.mark.parametrize(("seeds", "spread"), [(2, 0.02), (3, 0.01), (5, 0.0)])
def test_at_the_limit_hardly_more_than_one_in_twenty_is_called_proven(
    seeds: int, spread: float
) -> None:
    rng, wrong, trials = np.random.default_rng(seeds), 0, 150
    for trial in range(trials):
        easy = rng.uniform(0.5, 0.95, 150)
        original = drawn(rng, easy, 0.0, spread, seeds)
        candidate = drawn(rng, easy, -0.05, spread, seeds)  # worse by just what is allowed
        trained = [[s.value for s in one.scores] for one in (original, candidate)]
        found = difference(
            candidate, original, higher_is_better=True, trained=trained, key=(trial,)
        )
        assert found.paired and found.lower < found.gain < found.upper
        wrong += found.lower >= -0.05
    assert wrong <= 0.05 * trials + 2.5 * math.sqrt(0.05 * 0.95 * trials)


def test_pairs_of_examples_tell_more_than_their_means() -> None:
    rng = np.random.default_rng(1)
    rows = (rng.random((1, 400)) < 0.7).astype(float)
    other = rows.copy()
    other[0, :4] = 1 - other[0, :4]
    scores = [[score(float(r.mean()), stderr=0.023)] for r in (rows[0], other[0])]
    apart = difference(Sample(scores[0]), Sample(scores[1]), higher_is_better=True, trained=[])
    pairs = difference(
        Sample(scores[0], rows), Sample(scores[1], other), higher_is_better=True, trained=[]
    )
    assert pairs.gain == apart.gain
    assert pairs.gain - pairs.lower < 0.5 * (apart.gain - apart.lower)
    # Networks that never differed may all the same.
    same = difference(
        Sample(scores[0], rows), Sample(scores[0], rows), higher_is_better=True, trained=[]
    )
    assert same.gain == 0 and same.lower < 0


def test_the_exponential_of_a_mean_is_resampled_as_such() -> None:
    rng = np.random.default_rng(2)
    nats = rng.gamma(4.0, 0.5, (2, 3_000))
    value = [float(np.exp(row.mean())) for row in nats]
    samples = [
        Sample([score(v, metric="perplexity", higher_is_better=False)], row[None], "exp")
        for v, row in zip(value, nats, strict=True)
    ]
    found = difference(*samples, higher_is_better=False, trained=[])
    apart = (value[0] * nats[0] - value[1] * nats[1]).std() / math.sqrt(3_000)
    assert found.gain - found.lower == pytest.approx(1.645 * apart, rel=0.1)


@pytest.mark.parametrize("paired", [False, True])
def test_the_interval_is_in_units_of_the_metric_whatever_these_are(paired: bool) -> None:
    rows = np.random.default_rng(3).random((2, 2, 50)) + np.array([0.0, 0.1])[:, None, None]

    def made(unit: float) -> list[float]:
        samples = [
            Sample(
                [score(float(r.mean()) * unit, stderr=0.01 * unit) for r in own],
                own * unit if paired else None,
            )
            for own in rows
        ]
        trained = [[s.value for s in one.scores] for one in samples]
        found = difference(*samples, higher_is_better=False, trained=trained)
        parts = (found.gain, found.lower, found.upper, found.examples_std, found.seeds_std)
        return [part / unit for part in (*parts, found.seed_std)]

    for power in (-1000, -600, -340, -30, 30, 340, 600, 1000):
        assert made(2.0**power) == made(1.0), power


def any_size(rng: Any) -> float:
    usual = [0.0, 1.0, 5e-324, 1e-320, 1e-160, 1e160, -1e300, 1.7e308, -1.7e308]
    if rng.random() < 0.5:
        return float(rng.choice(usual))
    return float(rng.uniform(-1, 1) * 10.0 ** rng.integers(-300, 300))


@pytest.mark.parametrize("seed", range(80))
def test_scores_of_any_size_have_an_interval_without_a_warning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = int(rng.choice([1, 2, 10, 2_500]))
    samples = []
    for _ in range(2):
        seeds = int(rng.integers(1, 4))
        rows = np.array([[any_size(rng) for _ in range(min(count, 10))] for _ in range(seeds)])
        rows = np.tile(np.clip(rows, -3e38, 3e38), (1, -(-count // 10)))[:, :count]
        scores = [score(any_size(rng), stderr=abs(any_size(rng))) for _ in range(seeds)]
        kind = "exp" if rng.random() < 0.3 else ""
        samples.append(Sample(scores, rows if rng.random() < 0.6 else None, kind))
    trained = [[s.value for s in one.scores] for one in samples]
    tests = int(rng.choice([1, 3, 1_000]))
    found = difference(*samples, higher_is_better=bool(seed % 2), trained=trained, tests=tests)
    assert found.lower <= found.upper  # neither is none
    if math.isfinite(found.gain):
        assert found.lower <= found.gain <= found.upper


def covered(deviations: list[float], seeds: int, trials: int = 300) -> tuple[list[float], float]:
    """How often the lower end for each of some networks, all worth the same, is below that, and how far below it is for the first,
    in standard errors."""
    rng, known = np.random.default_rng(len(deviations)), Sample([score(0.0, stderr=0.0)])
    right, width = np.zeros(len(deviations)), 0.0
    for trial in range(trials):
        rows = rng.normal(size=(len(deviations), seeds)) * np.array(deviations)[:, None]
        for i, row in enumerate(rows):
            own = Sample([score(float(v), stderr=0.0) for v in row])
            found = difference(
                own, known, higher_is_better=True, trained=rows.tolist(), fixed=True, key=(trial, i)
            )
            right[i] += found.lower < 0
            width += (found.gain - found.lower) * math.sqrt(seeds) / deviations[0] * (i == 0)
    return (right / trials).tolist(), width / trials


def test_one_network_that_varies_much_says_nothing_of_the_others() -> None:
    """A network that trains well or not at all widened the intervals of all others by its own deviation."""
    alike, width = covered([0.01] * 4, 3)
    assert all(part >= 0.9 for part in alike) and width < 2.1  # 2.6 were each judged alone
    one, beside = covered([0.01, 0.01, 0.01, 0.3], 4)
    assert all(part >= 0.88 for part in one) and beside < 2.5  # 25 were they all judged alike


def test_variances_are_moderated_as_far_as_they_differ() -> None:
    rng = np.random.default_rng(5)
    alike = [rng.normal(size=3).tolist() for _ in range(12)]
    pooled = float(np.mean([np.var(v, ddof=1) for v in alike]))
    noise = seed_noise(alike)
    assert math.isinf(noise.prior) and noise.freedom == 24
    assert noise.of(alike[0]) == (pytest.approx(math.sqrt(pooled)), 24)
    assert float(np.square(noise.shape).mean()) == pytest.approx(1.0)
    # Variances that are drawn themselves, as the model says: its own parameters come back.
    many = [
        (rng.normal(size=4) * 2 * math.sqrt(6 / rng.chisquare(6))).tolist() for _ in range(4_000)
    ]
    noise = seed_noise(many)
    assert noise.prior == pytest.approx(6, rel=0.15)
    assert noise.variance == pytest.approx(4, rel=0.1)
    deviation, freedom = noise.of([0.0, 0.0, 0.0, 0.0])
    assert freedom == pytest.approx(noise.prior + 3)
    assert deviation**2 == pytest.approx(noise.variance * noise.prior / freedom)
    assert noise.of([1.0]) == (math.sqrt(noise.variance), noise.prior)
    nothing = seed_noise([[1.0], [math.nan, 2.0], []])
    assert not len(nothing.shape) and nothing.freedom == 0
    still = seed_noise([[1.0, 1.0], [2.0, 2.0]])
    assert still.of([1.0, 1.0])[0] == 0.0


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_of_what_is_no_number_nothing_is_proven(value: float) -> None:
    samples = [Sample([score(value)]), Sample([score(0.5)])]
    found = difference(*samples, higher_is_better=True, trained=[])
    assert (found.lower, found.upper) == (-math.inf, math.inf)


@pytest.mark.parametrize(
    ("freedom", "known"), [(1, 6.314), (2, 2.920), (3, 2.353), (4, 2.132), (8, 1.860), (30, 1.697)]
)
def test_the_quantile_of_students_t(freedom: int, known: float) -> None:
    assert student_t(0.95, freedom) == pytest.approx(known, rel=0.02)


class Judged:
    """Trains by a table: each operator's share of right answers, which seeds move and examples decide."""

    def __init__(self, shift: dict[int, float], count: int = 300, spread: float = 0.0) -> None:
        self.shift, self.count, self.spread = shift, count, spread

    def evaluate(self, request: Any, report: Any) -> TrainResult:
        numbers = [json.loads(op.text)["number"] for op in request.assignment.values()]
        number = numbers[0] if numbers else -1
        rng = np.random.default_rng([request.seed, number + 1])
        easy = np.random.default_rng(7).uniform(0.6, 0.9, self.count)
        level = self.shift.get(number, 0.0) + self.spread * rng.standard_normal()
        right = (np.random.default_rng(9).random(self.count) < easy + level).astype("<f4")
        value = float(right.mean())
        report(1, accuracy=value)
        return TrainResult(
            state="done", reason="", metric="accuracy", higher_is_better=True, value=value, stderr=0.02,
            metrics={"accuracy": value}, count=self.count, part=request.part, curve=[], steps=1, total_steps=1,
            seconds=0.0, examples_per_s=0.0, seed=request.seed, threads=1, examples=right.tobytes(),
        )  # fmt: skip


def open_session(path: Path) -> Session:
    return Session.open(
        path,
        proposer=CLIMBER,
        evaluator=Component(reference="judged"),
        measurer=Component(reference="session_fakes:Clock"),
        prune=Prune(max_drop=math.inf),
        limits=Limits(workers=1),
    )


def run(session: Session, judge: Judged, **more: Any) -> Any:
    options: dict[str, Any] = {
        "budget": 2,
        "finalists": 1,
        "final_seeds": 3,
        "progress": "off",
        **more,
    }
    return session.run(executor=InlineExecutor({"judged": judge}), **options)


def report_of(session: Session) -> Any:
    return build_report(session, title="", task="", command="")


def said_everywhere(session: Session, summary: Any, directory: Path) -> set[str]:
    """The winner's name, wherever one is named."""
    status = json.loads(CliRunner().invoke(app, ["status", str(directory), "--json"]).stdout)
    text = CliRunner().invoke(app, ["status", str(directory)]).output
    report = report_of(session)
    verdict = session.verdict()
    assert verdict.sentence in text
    assert report.conclusion == verdict.sentence == status["verdict"]["sentence"]
    assert report.verdict == verdict
    best = session.best()
    names = {
        "" if best is None else best.id, verdict.best or "", report.best or "",
        (status["best"] or {"id": ""})["id"], summary.best.id if summary.best else "",
        text.split("best: ")[1].split(".")[0].replace("the original", ""),
    }  # fmt: skip
    assert (report.comparison is None) == (report.best is None)
    return names


# The fakes' operators run 10 + n us and the original 40; the first proposed are 30 and 29. Reports want real operators.
@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syno.session.view.SessionView.operators", lambda *_: {})


def test_where_none_is_trained_to_the_end_the_verdict_says_what_became_of_them(
    tmp_path: Path,
) -> None:
    class Broken(Judged):
        def evaluate(self, request: Any, report: Any) -> TrainResult:
            if request.assignment:
                raise ValueError("the last layer is missing")
            return super().evaluate(request, report)

    with Session.open(
        tmp_path / "pruned",
        proposer=CLIMBER,
        evaluator=Component(reference="judged"),
        measurer=Component(reference="session_fakes:Clock"),
        prune=Prune(max_latency_ratio=0.001),
        limits=Limits(workers=1),
    ) as session:
        summary = run(session, Judged({}))
        count = len(session.candidates())
        sentence = session.verdict().sentence
        assert f": {count} pruned (c{count}: before training: latency" in sentence
        assert "limit 0.001" in sentence
        assert said_everywhere(session, summary, tmp_path / "pruned") == {""}
    with open_session(tmp_path / "failed") as session:
        run(session, Broken({}))
        sentence = session.verdict().sentence
        assert "failed (c" in sentence and "the last layer is missing" in sentence


def test_what_holds_beyond_doubt_is_named_the_same_everywhere(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        summary = run(session, Judged({29: 0.02, 28: 0.0}))
        assert said_everywhere(session, summary, tmp_path) == {"c2"}
        one = session.verdict().judgement
        assert one is not None and one.paired and one.seeds == 3 and one.part == "test"
        assert one.lower >= -one.allowed == -0.01


def test_what_may_be_worse_is_undecided_and_says_what_would_decide_it(tmp_path: Path) -> None:
    judge = Judged({29: 0.03, 28: 0.03}, spread=0.02)
    with open_session(tmp_path) as session:
        summary = run(session, judge)
        verdict = session.verdict()
        assert verdict.outcome == "undecided" and said_everywhere(session, summary, tmp_path) == {
            ""
        }
        one = verdict.judgement
        assert one is not None and one.held == "undecided"
        assert one.more_seeds or one.more_examples
        assert "more" in verdict.sentence and "Undecided" in verdict.sentence
        # A greater drop is proven by the same trainings.
        assert session.best(max_drop=0.5) is not None
        # Further seeds narrow the interval.
        run(session, judge, final_seeds=12)
        more = session.verdict().judgement
        assert more is not None and more.seeds == 12
        assert more.gain - more.lower < one.gain - one.lower


@pytest.mark.parametrize("unit", [1e-300, 1e-200, 1e200, 1e307])
def test_metrics_of_any_unit_have_a_verdict(tmp_path: Path, unit: float) -> None:
    class Scaled(Judged):
        def evaluate(self, request: Any, report: Any) -> TrainResult:
            found = super().evaluate(request, report)
            return dataclasses.replace(
                found, metric="size", value=found.value * unit, higher_is_better=False,
                stderr=0.0, examples=b"",
            )  # fmt: skip

    with open_session(tmp_path) as session:
        judge = Scaled({29: 0.2, 28: 0.2}, spread=0.1)
        summary = run(session, judge, finalists=2)
        # As with any metric that varies so: from seed to seed by far more than is allowed.
        assert said_everywhere(session, summary, tmp_path) == {""}
        one = session.verdict().judgement
        assert one is not None and one.held == "undecided"
        assert 0.001 < (one.gain - one.lower) / unit < 1


def test_before_the_finalists_are_trained_nothing_is_proven(tmp_path: Path) -> None:
    class Stopped(Judged):
        def evaluate(self, request: Any, report: Any) -> TrainResult:
            if request.part == "test":
                raise KeyboardInterrupt
            return super().evaluate(request, report)

    with open_session(tmp_path) as session:
        summary = run(session, Stopped({29: 0.3}))
        assert summary.interrupted and summary.best is None
        verdict = session.verdict()
        assert verdict.outcome == "undecided" and verdict.leader is not None
        assert "3 more seeds" in verdict.sentence


def test_one_seed_proves_nothing(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        run(session, Judged({29: 0.3}), final_seeds=1)
        verdict = session.verdict()
        assert verdict.best is None and "how trainings differ" in verdict.sentence


def test_the_last_measurement_in_turns_decides_what_is_faster_for_all(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        summary = run(session, Judged({29: 0.02}))
        (best,) = said_everywhere(session, summary, tmp_path)
        slower = FinalBench(
            latencies_us={"baseline": 40.0, best: 44.0}, iqrs_us={}, speedups={"baseline": 1.0, best: 0.91},
            compiled_us={}, skipped={}, threads=1, batch=1,
        )  # fmt: skip
        (tmp_path / FINAL_FILE).write_bytes(msgspec.json.encode(slower))
        summary = session.run(
            budget=2, finalists=1, progress="off", executor=InlineExecutor({"judged": Judged({})})
        )
        assert said_everywhere(session, summary, tmp_path) == {""}
        assert session.verdict().outcome == "original"
        entry = next(e for e in report_of(session).candidates if e.id == best)
        assert entry.latency_us == pytest.approx((session.baseline.latency_us or 0) / 0.91)


@pytest.mark.parametrize(("iqr", "outcome"), [(0.02, "found"), (2.0, "undecided")])
def test_what_may_be_no_faster_is_not_proven(tmp_path: Path, iqr: float, outcome: str) -> None:
    with open_session(tmp_path) as session:
        summary = run(session, Judged({29: 0.02}))
        (best,) = said_everywhere(session, summary, tmp_path)
        noisy = FinalBench(
            latencies_us={"baseline": 40.0, best: 36.0}, iqrs_us={}, speedups={"baseline": 1.0, best: 1.11},
            compiled_us={}, skipped={}, threads=1, batch=1, speedup_iqrs={best: iqr}, samples=50,
        )  # fmt: skip
        (tmp_path / FINAL_FILE).write_bytes(msgspec.json.encode(noisy))
        verdict = session.verdict()
        assert verdict.outcome == outcome
        one = verdict.judgement
        assert one is not None and one.slowest < one.speedup == 1.11
        assert (one.slowest > 1.0) == (outcome == "found")
        if outcome == "undecided":
            assert "quieter" in verdict.sentence and one.more_seeds is None


def test_noise_of_the_search_s_own_times_counts_where_there_is_no_last_measurement(
    tmp_path: Path,
) -> None:
    with open_session(tmp_path) as session:
        run(session, Judged({29: 0.02}), finalists=0)
        (candidate,) = [c for c in session.candidates() if c.id == "c1"]
        (timing,) = [t for t in candidate.timings if not t.site and t.runner == "syno"]
        expected = stderr_of_median(timing.iqr_us, timing.samples) / timing.latency_us
        assert session.speedup_stderr(candidate) >= expected * (session.speedup(candidate) or 0.0)


def test_a_report_names_the_machine_and_time_of_the_measurement_not_its_own(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        assert report_of(session).machine.cores > 0, "nothing was timed: of this process"
        run(session, Judged({29: 0.02}), finalists=0)
        baseline = session.baseline
        assert baseline is not None
        (timing,) = [t for t in baseline.timings if not t.site and t.runner == "syno"]
        session._store.execute(
            "UPDATE timing SET cpu = 'Another 9', load1 = 0.25, at = '2020-02-02T02:02:02+00:00'"
        )
        report = report_of(session)
        assert report.machine.measured_at == "2020-02-02T02:02:02+00:00" != timing.at
        assert report.machine.load1 == 0.25
        assert str(report.machine).startswith("Another 9, Python ")
        there = msgspec.structs.replace(describe_machine(), cpu="A third", load1=0.5)
        final = FinalBench(
            latencies_us={"baseline": 40.0}, iqrs_us={}, speedups={"baseline": 1.0},
            compiled_us={}, skipped={}, threads=1, batch=1, machine=there,
        )  # fmt: skip
        (tmp_path / FINAL_FILE).write_bytes(msgspec.json.encode(final))
        assert report_of(session).machine == there
        report = report_of(session)
        plain = msgspec.structs.replace(report.baseline, verified=False)
        (row, *_) = rows(msgspec.structs.replace(report, baseline=plain))
        assert row["verified"] == "–", "the original has no operators that could be verified"


def test_the_error_of_a_median() -> None:
    rng = np.random.default_rng(3)
    medians = np.median(rng.normal(5.0, 2.0, (4000, 101)), 1)
    assert stderr_of_median(2 * 2.0 * 0.6745, 101) == pytest.approx(medians.std(), rel=0.05)
    assert stderr_of_median(1.0, 0) == 0.0


def test_what_is_said_at_the_end_counts_the_last_measurement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_session(tmp_path) as session:

        def compare() -> None:
            names = ["baseline", *(c.id for c in session.candidates() if c.finals)]
            final = FinalBench(
                latencies_us=dict.fromkeys(names, 40.0), iqrs_us={}, compiled_us={}, skipped={}, threads=1, batch=1,
                speedups={name: 1.0 if name == "baseline" else 0.8 for name in names},
            )  # fmt: skip
            (tmp_path / FINAL_FILE).write_bytes(msgspec.json.encode(final))

        summary = run(session, Judged({29: 0.02, 28: 0.0}), compare=compare, progress="log")
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert session.verdict().sentence in said
        assert "best c" not in said and summary.best is None
        assert said_everywhere(session, summary, tmp_path) == {""}


def test_the_model_as_it_was_handed_in_must_be_held_too(tmp_path: Path) -> None:
    judge = Judged({29: 0.02, 28: 0.0})

    def given() -> list[TrainResult]:
        right = np.ones(300, "<f4")
        return [
            TrainResult(
                state="done",
                reason="",
                metric="accuracy",
                higher_is_better=True,
                value=1.0,
                stderr=0.0,
                metrics={},
                count=300,
                part=part,
                curve=[],
                steps=0,
                total_steps=0,
                seconds=0.0,
                examples_per_s=0.0,
                seed=0,
                threads=1,
                examples=right.tobytes(),
            )
            for part in ("validation", "test")
        ]

    with open_session(tmp_path) as session:
        summary = run(session, judge, given=given)
        assert said_everywhere(session, summary, tmp_path) == {""}
        assert {one.against for one in session.verdict().judged} == {"given"}
        assert session.best(max_drop=0.5) is not None


def test_a_gain_too_good_to_be_true_is_named_and_a_leak_never_wins(tmp_path: Path) -> None:
    with open_session(tmp_path) as session:
        run(session, Judged({29: 0.4}))
        best = session.best()
        assert best is not None  # nobody could ask what it mixes; it is named all the same
        assert "implausible" in session.verdict().sentence
        with session._store.transaction():
            session._store.execute(
                "INSERT INTO note VALUES(?, 'mixing', ?)",
                best.number,
                f"{MIXES} tokens: the original does not",
            )
        verdict = session.verdict()
        assert (
            verdict.best is None and "implausible" in verdict.sentence and MIXES in verdict.sentence
        )
        assert not session.candidate(best.id).notes  # it says nothing about its timing


def test_validation_and_test_have_their_own_columns_fronts_and_seeds(tmp_path: Path) -> None:
    from syno.report import rows, to_csv, to_html, to_markdown
    from syno.report.plot import pareto_figure

    with open_session(tmp_path) as session:
        run(session, Judged({29: 0.02, 28: 0.01}, spread=0.01))
        report = report_of(session)
    table = {row["id"]: row for row in rows(report)}
    assert table["baseline"]["test"] != "–" and "seeds 1, 2, 3" in table["baseline"]["test"]
    others = [row for id, row in table.items() if id != "baseline" and row["test"] == "–"]
    assert others and all(row["validation"] != "–" for row in others)
    assert {c.id for c in session_front(report, "front_test")} <= {
        e.id for e in [report.baseline, *report.candidates] if e.seeds
    }
    assert "accuracy, validation" in to_markdown(report) and "accuracy, test" in to_html(report)
    assert "validation_stderr" in to_csv(report)
    pytest.importorskip("matplotlib")
    labels = pareto_figure(report).axes[0].get_legend_handles_labels()[1]
    assert {"Pareto front, validation", "Pareto front, test", "original"} <= set(labels)


def session_front(report: Any, flag: str) -> list[Any]:
    return [e for e in [report.baseline, *report.candidates] if getattr(e, flag)]


def test_latencies_are_parts_of_the_originals_in_turns(tmp_path: Path) -> None:
    from session_fakes import Clock

    from syno.session.protocols import AS_TIMED, ORIGINAL, Measurement, MeasureRequest

    class Busy(Clock):
        """Everything takes three times as long once the original is measured."""

        def measure(self, request: MeasureRequest) -> Measurement:
            found = super().measure(request)
            if not request.assignment:
                return found
            return msgspec.structs.replace(
                found, latency_us=3 * found.latency_us, peers_us={ORIGINAL: 120.0}
            )

    with Session.open(
        tmp_path,
        proposer=CLIMBER,
        evaluator=Component(reference="judged"),
        measurer=Component(reference="busy"),
    ) as session:
        session.run(
            budget=1,
            progress="off",
            executor=InlineExecutor({"judged": Judged({}), "busy": Busy()}),
        )
        (candidate,) = session.candidates()
        assert candidate.latency_us == pytest.approx(10.0 + (candidate.flops or 0) - 1_000)
        raw = [t.latency_us for t in candidate.timings if t.runner == AS_TIMED]
        assert raw == [pytest.approx(3 * candidate.latency_us)]
