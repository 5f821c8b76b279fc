"""A search whose trainings are jobs: submitit's own local jobs stand for Slurm's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from test_session import run, start, story

from syno import executors
from syno.errors import SessionError, UnknownName
from syno.session import nodes

pytest.importorskip("submitit")

pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by /proc"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of submitit's own processes
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, *filter(None, sys.path)]))


def test_jobs_give_the_candidates_of_one_worker_and_a_lost_one_is_repeated(tmp_path: Path) -> None:
    with start(tmp_path / "expected") as session:
        run(session, budget=3)
        expected = story(session)
    executor = executors.slurm(cluster="local", width=2)
    trainer = {"orphans": [29], "journal": str(tmp_path / "journal")}
    with start(tmp_path / "s", trainer=trainer) as session:
        run(session, budget=3, executor=executor)
        executor.close()
        assert (tmp_path / "journal-29").exists()
        assert story(session) == expected
        shown = session.status()["executor"]
        assert shown["kind"] == "slurm" and shown["repeated"] == 1 and shown["jobs"] == []
        assert all(c.nodes == [nodes.facts().host] for c in session.candidates())
        assert (tmp_path / "s" / "slurm").is_dir()


class Job:
    """A job of Slurm's that gives no answer."""

    job_id = "7_1"

    def __init__(self, state: str) -> None:
        self.state = state

    def result(self) -> Any:
        raise RuntimeError("Job has not produced any output")


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("NODE_FAIL", "node"),
        ("CANCELLED by 1000", "node"),
        ("PREEMPTED", "node"),
        ("FAILED", "node"),
        ("TIMEOUT", "limit"),
        ("OUT_OF_MEMORY", "memory"),
    ],
)
def test_what_slurm_says_of_a_job_without_an_answer(said: str, state: str) -> None:
    outcome = executors.slurm(memory="1GiB")._answer(Job(said))  # type: ignore[attr-defined]
    assert outcome.state == state
    assert "Slurm job 7_1" in outcome.reason


def test_machines_that_measure_must_be_the_sessions(tmp_path: Path) -> None:
    executor = executors.slurm(cluster="local", target="zen4")
    with start(tmp_path / "a") as session:
        run(session, budget=1, executor=executor)
        assert executor._local is None  # type: ignore[attr-defined]
        assert session.candidates()[0].latency_us == 40.0
    other = '{"name": "another CPU", "cores": 64, "levels": []}'
    with (
        start(tmp_path / "b", predicted_on=other) as session,
        pytest.raises(
            SessionError, match=r"'zen4' measure latencies, and differ.*name is"
        ) as caught,
    ):
        run(session, budget=1, executor=executor)
    assert caught.value.code == "R024"
    executor.close()


def test_a_task_that_jobs_cannot_make_is_named(tmp_path: Path) -> None:
    executor = executors.slurm(cluster="local")
    with (
        start(tmp_path, evaluator="session_fakes:Nobody") as session,
        pytest.raises(SessionError, match="has no 'Nobody'"),
    ):
        run(session, executor=executor)
    executor.close()


def test_wrong_options_are_named(tmp_path: Path) -> None:
    for options in ({"width": 0}, {"gpus": -1}, {"memory": "much"}):
        with pytest.raises(SessionError):
            executors.resolve("slurm", options)
    with pytest.raises(UnknownName, match="local"):
        executors.resolve("slurm", {"cluster": "sge"})
    executor = executors.slurm()
    with start(tmp_path) as session, pytest.raises(SessionError, match="does not take jobs here"):
        run(session, executor=executor)
