"""Long trainings on machines that are lost: they go on elsewhere from what came to the head, to the same digits."""

from __future__ import annotations

import collections
import math
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from long_task import EPOCHS
from patience import PATIENCE_S
from test_session import LIMITS, run, start

from syno import executors
from syno.errors import SessionError
from syno.session import Call, Component, Outcome, Session, remote
from syno.session.elsewhere import Heard, RemoteExecutor
from syno.session.protocols import TrainRequest
from syno.session.remote import Answer, Job

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills by /proc")

KILLED = 1  # a candidate's number
LONG = msgspec.structs.replace(LIMITS, checkpoint_s=0.0)


def pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def search(path: Path, executor: Any = None, **options: Any) -> Session:
    """A session of a candidate that is trained for a while."""
    trainer = {"journal": str(path / "journal"), **options}
    session = start(
        path / "s",
        evaluator=Component(reference="long_task:LongTrainer", options=trainer),
        limits=LONG,
    )
    run(session, budget=1, executor=executor)
    return session


def digits(session: Session) -> list[Any]:
    everyone = [session.baseline, *session.candidates()]
    return [(c.id, c.state, c.value, session.curve(c)) for c in everyone if c is not None]


def epochs(path: Path) -> dict[int, list[int]]:
    """Which epochs of each candidate were begun, in their order."""
    begun: dict[int, list[int]] = collections.defaultdict(list)
    for line in (path / "journal").read_text().splitlines():
        candidate, epoch = map(int, line.split())
        begun[candidate].append(epoch)
    return dict(begun)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    path = tmp_path_factory.mktemp("whole")
    with search(path) as session:
        found = digits(session)
    assert all(state == "done" for _, state, *_ in found) and len(found) == 2
    assert epochs(path) == {n: list(range(EPOCHS)) for n in (0, KILLED)}
    return found


def test_a_pool_hands_long_trainings_back_and_loses_little(
    tmp_path: Path, expected: list[Any]
) -> None:
    """The pool's process is killed in the fourth epoch of a training that came back before."""
    executor = executors.futures("test_checkpoint_elsewhere:pool", hand_back_s=1e-3)
    head = str(tmp_path / "s" / "checkpoints")
    with search(tmp_path, executor, killed=KILLED, head=head) as session:
        executor.close()
        assert digits(session) == expected
        assert session.status()["executor"]["repeated"] == 1
        assert not list((tmp_path / "s" / "checkpoints").iterdir())
    begun = epochs(tmp_path)
    assert (tmp_path / "journal-killed").exists()
    # Handed back while a later epoch is under way, which is begun again; never the first, and never from the beginning.
    for one in begun.values():
        assert sorted(set(one)) == list(range(EPOCHS)) and one.count(0) == 1, one
    assert begun[KILLED].count(3) > 1, "it was killed in it"


@pytest.mark.nightly
def test_slurm_s_jobs_write_down_where_the_head_reads(
    tmp_path: Path, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, *filter(None, sys.path)]))
    executor = executors.slurm(cluster="local", width=1)
    head = str(tmp_path / "s" / "checkpoints")
    with search(tmp_path, executor, killed=KILLED, head=head) as session:
        executor.close()
        assert digits(session) == expected
        assert session.status()["executor"]["repeated"] == 1
    assert epochs(tmp_path)[KILLED] == [0, 1, 2, 3, 3, 4, 5]
    assert epochs(tmp_path)[0] == list(range(EPOCHS)), "what is not lost is never begun again"
    assert not list((tmp_path / "s" / "slurm" / "written").iterdir())


def test_only_the_same_class_of_machines_goes_on(tmp_path: Path) -> None:
    """What travels is refused by a machine whose digits may differ, whatever the training has behind it."""
    (tmp_path / "checkpoint").write_bytes(b"half of it")
    request = TrainRequest(
        candidate=1, assignment={}, seed=0, part="test", threads=1, time_limit_s=PATIENCE_S,
        checkpoint=str(tmp_path / "checkpoint"),
    )  # fmt: skip
    call = Call("train", Component(reference="session_fakes:Trainer"), request, PATIENCE_S)
    job = remote.job_of(call, threads=1, start_limit_s=PATIENCE_S, numeric="another class")
    assert msgspec.msgpack.decode(job, type=Job).files == {"checkpoint": b"half of it"}
    answer = msgspec.msgpack.decode(remote.run_job(job), type=Answer)
    assert "its digits may differ" in answer.refused and answer.state == "node"


class Again(RemoteExecutor):
    """Hands a training back so many times, each after five seconds of its time."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times, self.jobs = times, list[Job]()

    def _submit(self, number: int, call: Call, job: bytes) -> None:
        self.jobs.append(msgspec.msgpack.decode(job, type=Job))

    def _poll(self, timeout_s: float) -> list[Heard]:
        count = len(self.jobs)
        state, files = "ok", {}
        if count <= self.times:
            state, files = remote.CONTINUES, {"checkpoint": b"%d" % count}
        return [Heard(0, Answer(state=state, seconds=5.0, node="n", files=files))]

    def _abandon(self) -> None:
        pass

    def _examine(self, job: bytes) -> list[Any]:
        return []


@pytest.mark.parametrize(("times", "ends"), [(2, "ok"), (3, "limit")])
def test_what_is_handed_back_has_one_limit_of_time(tmp_path: Path, times: int, ends: str) -> None:
    executor = Again(times)
    request = TrainRequest(
        candidate=1, assignment={}, seed=0, part="test", threads=1, time_limit_s=15.0,
        checkpoint=str(tmp_path / "checkpoint"),
    )  # fmt: skip
    begun: list[int] = []
    call = Call("train", Component(reference="session_fakes:Trainer"), request, 15.0)
    ((number, outcome),) = executor.run([call], started=lambda index, _: begun.append(index))
    assert (number, outcome.state, outcome.seconds) == (0, ends, 15.0)
    assert begun == [0], "it is one training"
    assert [job.limit_s for job in executor.jobs] == [15.0, 10.0, 5.0]
    assert [job.request["time_limit_s"] for job in executor.jobs] == [15.0, 10.0, 5.0]
    assert [job.files.get("checkpoint") for job in executor.jobs] == [None, b"1", b"2"]
    assert executor.counts.done == 1 and executor.counts.repeated == 0
    assert isinstance(outcome, Outcome)


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
def test_an_odd_moment_to_hand_back_is_named(seconds: float) -> None:
    pool = ThreadPoolExecutor(1)
    with pytest.raises(SessionError, match=r"(?s)hand_back_s=.*0 seconds \(never\)"):
        executors.futures(pool, hand_back_s=seconds)
    with pytest.raises(SessionError, match="hand_back_s"):
        executors.resolve("test_executors:Worker", {"hand_back_s": seconds})
    pool.shutdown()
