"""Sessions that really train: the same numbers to the last bit for any number of workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE_S

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from syno.session import Component, InlineExecutor, Limits, ProcessExecutor, Session


def train_session(path: Path, executor: Any) -> list[Any]:
    with Session.open(
        path,
        proposer=Component(reference="session_fakes:Climber"),
        evaluator=Component(reference="session_digits:DigitsTrainer"),
        measurer="session_fakes:Clock",
        batch_width=2,
        limits=Limits(train_limit_s=PATIENCE_S, start_limit_s=PATIENCE_S),
    ) as session:
        session.run(budget=2, finalists=1, final_seeds=1, executor=executor, progress="off")
        everyone = [session.candidate("baseline"), *session.candidates()]
        assert [c.state for c in everyone] == ["done"] * 3, [c.reason for c in everyone]
        for candidate in everyone:
            assert candidate.score is not None
            assert candidate.score.metric == "accuracy"
            assert candidate.score.count == 300
            assert 0 < candidate.score.stderr < 0.05
            assert len(session.curve(candidate)) == 4
        (finalist,) = [c for c in everyone[1:] if c.finals]
        assert finalist.finals[0].count == 359
        return [
            (c.score, c.reward, [s.value for s in c.finals], session.curve(c)) for c in everyone
        ] + [session.weights(finalist)[1].read_bytes()]


def without_times(rows: list[Any]) -> list[Any]:
    return [
        (row[0].value, row[0].stderr, *row[1:]) if isinstance(row, tuple) else row for row in rows
    ]


def test_inline_and_two_workers_give_the_same_bits(tmp_path: Path) -> None:
    inline = train_session(tmp_path / "inline", InlineExecutor())
    with ProcessExecutor(2) as executor:
        workers = train_session(tmp_path / "workers", executor)
    assert without_times(inline) == without_times(workers)
