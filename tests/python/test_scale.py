"""A session of very many candidates costs its head no more for each than a small one: what grows is bounded, and equal where it must be."""

from __future__ import annotations

import json
import random
import re
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import session_fakes as fakes
from patience import PATIENCE_S
from test_policies import MAKERS, Grid, searched
from test_session import run, start
from threadpoolctl import ThreadpoolController
from typer.testing import CliRunner

from syno.cli.main import app
from syno.errors import SessionError
from syno.policies.gaussian import (
    MOST_KNOWN,
    Mixture,
    SquaredExponential,
    Surrogate,
    Tanimoto,
    telling,
)
from syno.session import Score, open_view

ROOT = Path(__file__).resolve().parents[2]


def test_a_surrogate_is_fitted_to_all_of_few_and_some_of_many_trainings() -> None:
    draw = random.Random(0)
    few = [draw.random() for _ in range(MOST_KNOWN)]
    assert telling(few) == list(range(MOST_KNOWN))
    many = [draw.random() for _ in range(20 * MOST_KNOWN)]
    chosen = telling(many)
    assert len(chosen) == len(set(chosen)) == MOST_KNOWN and chosen == sorted(chosen)
    assert int(np.argmax(many)) in chosen
    assert chosen[-MOST_KNOWN // 4 :] == list(range(len(many) - MOST_KNOWN // 4, len(many)))
    between = np.diff([i for i in chosen if i < len(many) - MOST_KNOWN // 4])
    assert between.max() < 4 * len(many) / MOST_KNOWN  # nothing of the past is forgotten


def test_believing_one_by_one_is_a_fit_to_all() -> None:
    """Row by row, what solving the whole system anew gives."""
    features = np.random.default_rng(1).normal(size=(60, 4))
    steps = Tanimoto([[f"{i % 3}", f"{i % 7} again"] for i in range(60)])
    covariance = Mixture(SquaredExponential(features, 1.0), steps, 0.3)
    whole = covariance.block(slice(None))
    assert np.allclose(np.diag(whole), 1) and np.allclose(whole, whole.T)
    surrogate = Surrogate([covariance], np.linspace(-1, 1, 60), noises=[0.1])
    for known in ([], [3], [7, 30, 2, 41]):
        posterior = surrogate.fit(known, [0.1 * i for i in known])
        believer = posterior.believer()
        mean = posterior.predict()[0]
        for operator in (5, 11, 12, 13, 50, 51, 52, 53, 54, 55):
            believer.believe(operator)
            known = [*known, operator]
        assert np.allclose(believer.predict()[0], mean)
        others = posterior.believer(known[-10:]).predict()
        assert np.allclose(others, believer.predict())
        rows = whole[known]
        inner = rows[:, known] + 0.1 * np.eye(len(known))
        variance = np.diag(whole) - (rows * np.linalg.solve(inner, rows)).sum(axis=0)
        assert np.allclose(believer.predict()[1] ** 2, variance)


def test_the_system_of_many_is_solved_in_blocks() -> None:
    draw = np.random.default_rng(2)
    covariance = SquaredExponential(draw.normal(size=(900, 5)), 0.7)
    known = list(range(0, 900, 3)) + list(range(1, 900, 3))
    rewards = [float(x) for x in draw.normal(size=len(known))]
    surrogate = Surrogate([covariance], np.zeros(900), noises=[0.1])
    posterior = surrogate.fit(known[:350], rewards[:350])
    mean, std = posterior.believer(known[350:]).predict()
    rows = covariance.block(np.array(known))
    inner = rows[:, known] + 0.1 * np.eye(len(known))
    assert np.allclose(std**2, 1 - (rows * np.linalg.solve(inner, rows)).sum(axis=0))
    some = slice(0, 350)
    wanted = rows[some].T @ np.linalg.solve(inner[some, some], posterior.target)
    assert np.allclose(mean, posterior.prior + wanted)


@pytest.mark.parametrize("name", ["bayesian", "hypervolume"])
def test_choices_do_not_depend_on_how_many_threads_numpy_computes_on(name: str) -> None:
    library = ThreadpoolController()
    seen = []

    class Watched(Grid):
        def vectors(self, indices: Sequence[int]) -> Any:
            seen.append({each["num_threads"] for each in _blas(library)})
            return super().vectors(indices)

    chosen = []
    for threads in (1, 2):
        with library.limit(limits=threads, user_api="blas"):
            before = {each["num_threads"] for each in _blas(library)}
            chosen.append(searched(MAKERS[name](3), Watched(), 30, width=5))
            assert {each["num_threads"] for each in _blas(library)} == before
    assert chosen[0] == chosen[1]
    assert seen and all(each == {1} for each in seen)


def _blas(library: ThreadpoolController) -> list[dict[str, Any]]:
    return [each for each in library.info() if each["user_api"] == "blas"]


def test_a_candidate_is_read_without_the_others(tmp_path: Path) -> None:
    with start(tmp_path) as session:
        run(session, budget=8, finalists=2, final_seeds=2)
        whole = {c.number: c for c in session._store.candidates()}
        assert all(session._store.candidate(number) == c for number, c in whole.items())
        plan = session._store.execute(
            "EXPLAIN QUERY PLAN SELECT * FROM score WHERE candidate IN"
            " (SELECT c.number FROM candidate c WHERE c.number = 3) ORDER BY candidate, phase, seed"
        ).fetchall()
        assert not any(str(row[3]).startswith("SCAN score") for row in plan)


@pytest.mark.parametrize("more", [[], ["--recorded"]])
def test_the_simulation_runs_a_session(more: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--candidates", "24", "--workers", "6", "--width", "4", "--lag", "20", "--json", *more],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    (row,) = found["rows"]
    assert ("recorded trainings" in row["durations"]) == bool(more)
    assert row["candidates"] == 24 and 0 < row["busy_share"] <= 1
    assert row["busy_share"] < row["busy_share_until_the_last_begins"] <= 1
    assert row["report_s"] > 0 and row["status_s"] > 0 and row["resume_s"] > 0
    assert row["database_bytes"] > 0 and found["machine"]["cpu"]


@pytest.mark.parametrize("known", [True, False])
def test_floors_of_many_are_those_of_each(tmp_path: Path, known: bool) -> None:
    """Against the definition, one training after the other."""
    from syno.session import Prune
    from syno.session.pruning import Floors, Training

    assert fakes.BASELINE
    with start(tmp_path) as session:
        run(session, budget=12)
        rows = session.candidates()
        baseline = session.baseline
    assert baseline is not None and baseline.score is not None
    draw = random.Random(3)
    finished = [
        Training(c, [(0.25 * i, c.score.value * draw.random()) for i in (1, 2, 3)])
        for c in rows
        if c.score
    ]
    prune = Prune(after=3, max_drop=0.5 if known else 0.0)
    rules = Floors(finished, baseline, prune)
    for candidate in rows:
        target, stderr = baseline.score.value - prune.max_drop, baseline.score.stderr
        for other in finished:
            its = other.candidate
            assert its.score is not None and its.latency_us is not None
            assert candidate.latency_us is not None and its.flops and candidate.flops
            cheaper = its.latency_us <= candidate.latency_us and its.flops <= candidate.flops
            if its.number != candidate.number and cheaper and its.score.value > target:
                target, stderr = its.score.value, its.score.stderr
        expected = []
        for place, share in enumerate((0.25, 0.5, 0.75)):
            gains = [t.candidate.score.value - t.curve[place][1] for t in finished]  # type: ignore[union-attr]
            expected.append((share, target - max(gains) - prune.margin * stderr))
        assert np.allclose(rules.of(candidate)[0], expected)


def test_the_best_that_costs_no_more_is_found_among_few(tmp_path: Path) -> None:
    """Whatever costs are known of whom: the first of the best of all that cost no more in what both have."""
    from syno.session import Prune
    from syno.session.pruning import Floors, Training

    with start(tmp_path) as session:
        run(session, budget=2)
        (like, *_), baseline = session.candidates(), session.baseline
    assert baseline is not None and baseline.score is not None and like.score is not None
    draw = random.Random(7)

    def made(number: int) -> Any:
        costs = [draw.choice([None, *range(1, 9)]) for _ in range(3)]
        score = msgspec.structs.replace(like.score, value=draw.randrange(12) / 12)
        return msgspec.structs.replace(
            like, number=number, score=score, latency_us=costs[0], flops=costs[1], params=costs[2]
        )

    def beaten_by(candidate: Any, others: list[Any]) -> list[tuple[float, int]]:
        found = []
        for one in others:
            pairs = [
                (getattr(one, name), getattr(candidate, name))
                for name in ("latency_us", "flops", "params")
            ]
            both = [(its, own) for its, own in pairs if its is not None and own is not None]
            if both and one.number != candidate.number and all(its <= own for its, own in both):
                found.append((-one.score.value, one.number))
        return sorted(found)

    floors = Floors([], baseline, Prune(after=1, max_drop=10.0))
    told: list[Any] = []
    for number in range(1, 150):
        told.append(made(number))
        floors.add(Training(told[-1], [(0.5, 0.1)]))
        now = floors.now()
        for candidate in (made(1_000), draw.choice(told)):
            best = now._best_as_cheap(candidate)
            expected = beaten_by(candidate, told)
            found = None if best is None else now.candidates[best].number
            assert found == (expected[0][1] if expected else None)
    assert len(now.front) < len(told) / 2


def test_candidates_are_read_once_while_nothing_changes(tmp_path: Path) -> None:
    with start(tmp_path) as session, open_view(tmp_path) as view:
        run(session, budget=6)
        store = session._store
        for reader in (store, view._store):
            assert reader.everyone()[1] is reader.everyone()[1]
        assert store.baseline() is store.baseline()
        store.set_state(2, "failed", "by hand")
        assert store.everyone()[2].reason == "by hand"
        assert view._store.everyone()[2].reason == "by hand"  # of another connection

        def taken_back() -> None:
            with store.transaction():
                store.set_state(2, "failed", "taken back")
                assert store.everyone()[2].reason == "taken back"
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            taken_back()
        assert store.everyone()[2].reason == "by hand"


def test_a_database_is_checked_again_when_a_byte_of_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syno.session import checked, opening

    monkeypatch.setenv("SYNO_CACHE", str(tmp_path / "cache"))
    checks: list[Path] = []
    real = opening._check
    monkeypatch.setattr(
        opening, "_check", lambda connection, path: (checks.append(path), real(connection, path))
    )
    path = tmp_path / "run"
    with start(path) as session:
        run(session, budget=4)
    checks.clear()
    for expected in (1, 1, 1):
        open_view(path).close()
        assert len(checks) == expected
    database = path / "session.sqlite"
    content = database.read_bytes()
    place = content.rindex(b"accuracy")
    database.write_bytes(content[:place] + b"A" + content[place + 1 :])
    with pytest.raises(SessionError, match=r"not as written|damaged"):
        open_view(path)
    assert len(checks) == 2
    database.write_bytes(content)
    (kept,) = [
        entry
        for entry in (tmp_path / "cache" / "sessions").iterdir()
        if checked.was_checked(entry.stem)
    ][:1]
    kept.write_bytes(kept.read_bytes()[::-1])  # nobody else's word is taken
    assert not checked.was_checked(kept.stem)
    monkeypatch.setenv("SYNO_CACHE", "")
    open_view(path).close()
    assert len(checks) == 3


def test_a_report_of_many_candidates_lists_what_matters_and_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syno.report import build
    from syno.report.listed import listed, named

    with start(tmp_path) as session:
        run(session, budget=40)
        everyone = session.rewards()
        front = {c.number for c in session.pareto() if c.kind != "baseline"}
        few = listed(*everyone, front, 25, 5)
        assert len(few) == 25 and few == sorted(few)
        assert front <= set(few)
        assert max(session.candidates(), key=lambda c: c.reward or 0.0).number in few
        assert max(np.diff([0, *listed(*everyone, (), 25, 5), 41])) <= 4  # evenly over the search
        assert listed(*everyone, front, 40) == list(range(1, 41))
        monkeypatch.setattr(build, "listed", lambda *given: listed(*given, 25, 5))
        monkeypatch.setattr(session, "best", lambda: None)  # a number is no operator to be drawn
        report = build.build_report(session, title="t", task="", command="")
        assert len(report.candidates) == 25
        assert any(note.startswith("25 of 40 candidates are listed") for note in report.notes)
        monkeypatch.setattr("syno.cli.inspect._MOST", 30)
        monkeypatch.setattr("syno.cli.inspect._BEST", 5)
    shown = CliRunner().invoke(app, ["status", str(tmp_path)], env={"COLUMNS": "200"}).output
    assert "30 of 40 candidates are listed" in shown
    assert len(re.findall(r"^ *c\d+ ", shown, re.M)) == 30
    assert named([f"c{i}" for i in range(30)]).endswith("c19 and 10 more")
    assert named(["c1", "c2"]) == "c1, c2"


@pytest.mark.parametrize(
    ("stderr", "outcome"), [(0.02, "undecided"), (0.003, "undecided"), (0.0003, "found")]
)
def test_the_verdict_on_many_needs_few_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: float, outcome: str
) -> None:
    """Who wins or leads is who wins or leads among all, each judged."""
    from syno.session import verdict

    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import scale
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    monkeypatch.setattr(scale, "STDERR", stderr)
    scale.simulate(tmp_path, 120, 12, 10, 40, 240)
    with open_view(tmp_path / "session") as view:
        whole = view.verdict()
    judged: list[str] = []
    judge = verdict._judge

    def counted(view: Any, candidate: Any, *more: Any) -> Any:
        judged.append(candidate.id)
        return judge(view, candidate, *more)

    monkeypatch.setattr(verdict, "_judge", counted)
    monkeypatch.setattr(verdict, "MOST_JUDGED", 40)
    with open_view(tmp_path / "session") as view:
        part = view.verdict()
    assert whole.outcome == outcome
    assert len(judged) < len(whole.judged) / 2
    assert (part.outcome, part.best, part.leader, part.sentence) == (
        whole.outcome,
        whole.best,
        whole.leader,
        whole.sentence,
    )


def test_who_cannot_be_proven_among_so_many_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve hundred that are as good as the original, and one that is better: each would be proven alone, none among all."""
    from syno.session import verdict

    score = Score(
        phase="search", seed=0, part="validation", metric="accuracy", higher_is_better=True, value=0.9,
        stderr=0.003, count=100, steps=1, total_steps=1, seconds=1.0, examples_per_s=1.0, threads=1,
    )  # fmt: skip
    with start(tmp_path) as session:
        store = session._store
        with store.transaction():
            for number in range(1, 1_201):
                store.add_candidate("proposed", "all", fakes.operator(number))
            for number in range(1_201):
                better = msgspec.structs.replace(score, value=0.904 if number == 700 else 0.9)
                store.add_score(number, better)
                store.set_state(number, "done")
            store.execute("UPDATE candidate SET flops = 5000 - number")
        part = session.verdict()
        monkeypatch.setattr(verdict, "MOST_JUDGED", 10_000)
        whole = session.verdict()
    assert len(whole.judged) == 1_200 and len(part.judged) <= 250
    assert (part.outcome, part.leader) == (whole.outcome, whole.leader) == ("undecided", "c700")


def test_no_interval_is_narrower_than_who_is_left_out_is_told_by() -> None:
    """Whatever the standard errors, of however many: nobody who is proven is left out unjudged."""
    from syno.session.interval import LEVEL, Sample, difference
    from syno.session.verdict import MOST_JUDGED, NARROWEST

    draw = random.Random(11)

    def sample(value: float, stderr: float) -> Sample:
        plain: dict[str, Any] = dict.fromkeys(Score.__struct_fields__, 0)
        plain |= {"value": value, "stderr": stderr, "higher_is_better": True}
        return Sample([Score(**plain)])

    for trial in range(300):
        tests = draw.choice((MOST_JUDGED + 1, 5_000, 90_000, 10_000_000))
        far = statistics.NormalDist().inv_cdf(1 - (1 - LEVEL) / tests)
        own, other = (sample(draw.random(), 10 ** draw.uniform(-9, 1)) for _ in range(2))
        groups = [[draw.random() for _ in range(draw.randrange(1, 4))] for _ in range(trial % 3)]
        found = difference(
            own,
            other,
            higher_is_better=True,
            trained=groups,
            fixed=draw.random() < 0.5,
            tests=tests,
            key=(str(trial),),
        )
        wide = NARROWEST * far * np.hypot(own.scores[0].stderr, other.scores[0].stderr)
        assert found.lower <= found.gain - wide
        assert found.upper >= found.gain + wide
