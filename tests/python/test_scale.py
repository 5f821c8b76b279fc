"""A session of very many candidates costs its head no more for each than a small one: what grows is bounded, and equal where it must be."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import session_fakes as fakes
from patience import PATIENCE_S
from test_session import run, start

from syno.policies.gaussian import MOST_KNOWN, Surrogate, squared_exponential, telling

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
    surrogate = Surrogate(
        [squared_exponential(features, 1.0)], np.linspace(-1, 1, 60), noises=[0.1]
    )
    for known in ([], [3], [7, 30, 2, 41]):
        posterior = surrogate.fit(known, [0.1 * i for i in known])
        believer = posterior.believer()
        mean = posterior.predict()[0]
        for operator in (5, 11, 12, 13, 50, 51, 52, 53, 54, 55):
            believer.believe(operator)
            known = [*known, operator]
        assert np.allclose(believer.predict()[0], mean)
        rows = posterior.covariance[known]
        inner = rows[:, known] + 0.1 * np.eye(len(known))
        variance = np.diag(posterior.covariance) - (rows * np.linalg.solve(inner, rows)).sum(axis=0)
        assert np.allclose(believer.predict()[1] ** 2, variance)


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


def test_the_simulation_runs_a_session(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "scale.py"), "--candidates", "24", "--workers", "6", "--json"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    (row,) = found["rows"]
    assert row["candidates"] == 24 and 0 < row["busy_share"] <= 1
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
