"""Who trains decides nothing: any executor gives the candidates of one worker, whatever becomes of its machines."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from patience import PATIENCE_S
from test_session import run, start, story
from test_workers import calls, wait_for

import syno
from syno.cli.inspect import executor_lines
from syno.errors import ArgumentError, SessionError, TaskError, UnknownName
from syno.executors import futures, resolve
from syno.session import Call, Component, FuturesExecutor, nodes, open_view, remote
from syno.session.elsewhere import Context
from syno.session.memory import parse_bytes, show_bytes
from syno.session.protocols import TrainRequest


def pool() -> ProcessPoolExecutor:
    """What a user's ``package.module:make`` is."""
    return ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))


class Worker(ThreadPoolExecutor):
    def __init__(self, workers: int = 1) -> None:
        super().__init__(workers)


def no_pool() -> int:
    return 3


@pytest.fixture
def expected(tmp_path: Path) -> list[tuple[Any, ...]]:
    with start(tmp_path / "expected") as session:
        run(session)
        return story(session)


# --- names


def test_an_executor_is_a_name_a_reference_a_pool_or_what_makes_one() -> None:
    assert resolve(None) is None
    assert resolve("local", {"workers": 3}) == 3
    for given in ("test_executors:Worker", ThreadPoolExecutor(2), futures(Worker)):
        made = resolve(given)
        assert isinstance(made, FuturesExecutor)
        made.close()
    made = resolve("test_executors:Worker", {"workers": 5, "memory": "2GiB"})
    assert isinstance(made, FuturesExecutor)
    assert made.count == 5 and made.memory_bytes == 2 << 30
    made.close()


@pytest.mark.parametrize(
    ("given", "options", "error", "words"),
    [
        ("rya", {}, UnknownName, "local"),
        ("local", {"gpus": 1}, ArgumentError, "it has workers"),
        (None, {"memory": "2GiB"}, ArgumentError, "none is named"),
        ("no_such_module:make", {}, TaskError, "no_such_module"),
        ("test_executors:Worker", {"colour": 1}, ArgumentError, "it has workers"),
        ("test_executors:Worker", {"memory": "much"}, SessionError, "'8GiB'"),
        ("local", {"workers": "two"}, SessionError, "workers='two'"),
        ("local", {"workers": 0}, SessionError, "give 1 worker or more"),
        ("ray", {"gpus": "abc"}, SessionError, "gpus='abc'"),
        ("ray", {"wait_s": "soon"}, SessionError, "give 0 seconds or more"),
        ("slurm", {"gpus": "abc"}, SessionError, "gpus='abc'"),
        ("slurm", {"gpus": 0.5}, SessionError, "give 0 GPUs or more"),
        ("slurm", {"width": float("nan")}, SessionError, "width=nan"),
        ("test_executors:no_pool", {}, SessionError, "returned a int"),
        (4.5, {}, SessionError, "4.5 is no executor"),
    ],
)
def test_a_wrong_executor_is_named(given: Any, options: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        resolve(given, options)


def test_amounts_of_memory() -> None:
    assert [parse_bytes(t) for t in ("8GiB", "500MB", "1.5k", 7)] == [8 << 30, 500_000_000, 1500, 7]
    for wrong in ("", "-1", "8 elephants", "nan", 0, "1e999"):
        with pytest.raises(SessionError, match="no amount"):
            parse_bytes(wrong)
    assert show_bytes(3 << 29) == "1.5 GiB"


def test_objects_of_this_process_cannot_be_trained_elsewhere(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    batches = [(torch.ones(2, 8), torch.zeros(2, dtype=torch.long))]
    with pytest.raises(SessionError, match="give data=") as caught:
        syno.search(
            torch.nn.Linear(8, 8),
            torch.ones(2, 8),
            data=(batches, batches),
            session=tmp_path / "s",
            executor="test_executors:Worker",
        )
    assert caught.value.code == "R020"
    assert not (tmp_path / "s").exists()


# --- whatever becomes of its processes


def test_a_pool_that_breaks_is_made_again_and_changes_nothing(
    tmp_path: Path, expected: list[Any]
) -> None:
    executor = futures("test_executors:pool")
    trainer = {"orphans": [28, 24], "journal": str(tmp_path / "journal")}
    with start(tmp_path / "s", trainer=trainer) as session:
        run(session, executor=executor)
        executor.close()
        assert story(session) == expected
        status = session.status()
        assert status["executor"]["repeated"] >= 2
        assert status["states"]["lost"] == 0


def test_a_pool_that_breaks_and_cannot_be_made_again_leaves_the_session_resumable(
    tmp_path: Path, expected: list[Any]
) -> None:
    executor = futures(pool())
    trainer = {"orphans": [28], "journal": str(tmp_path / "journal")}
    with (
        start(tmp_path / "s", trainer=trainer) as session,
        pytest.raises(SessionError, match="the session goes on"),
    ):
        run(session, executor=executor)
    executor.close()
    with start(tmp_path / "s", trainer=trainer) as session:
        run(session)
        assert story(session) == expected


def test_what_a_candidate_does_is_its_outcome(tmp_path: Path) -> None:
    trainer = {"crash": [29], "grows": [28], "killed": [31]}
    executor = futures(ThreadPoolExecutor(2), memory="300MiB")
    with start(tmp_path, trainer=trainer) as session:
        run(session, budget=5, executor=executor)
        executor.close()
        rows = {c.expr: c for c in session.candidates()}
        assert "SIGABRT: about to abort" in rows["y = 29"].reason
        assert rows["y = 28"].state == "failed"
        assert "memory while training: killed at" in rows["y = 28"].reason
        assert "(limit 300 MiB)" in rows["y = 28"].reason
        assert rows["y = 31"].state == "lost" and rows["y = 31"].tries == 2
        assert session.status()["executor"]["repeated"] == 0


def test_memory_is_watched_here_as_well(tmp_path: Path) -> None:
    from syno.session import ProcessExecutor

    grower = Component(reference="session_fakes:Trainer", options={"grows": [1]})
    from session_fakes import operator

    request = TrainRequest(
        candidate=1, assignment={"all": operator(1)}, seed=0, part="test", threads=1,
        time_limit_s=PATIENCE_S,
    )  # fmt: skip
    with ProcessExecutor(1, start_limit_s=PATIENCE_S, memory_bytes=300 << 20) as executor:
        ((_, outcome),) = executor.run([Call("train", grower, request, PATIENCE_S)])
    assert outcome.state == "memory"


def test_an_abandoned_run_leaves_no_worker(tmp_path: Path) -> None:
    executor = futures(ThreadPoolExecutor(1))

    def interrupt() -> None:
        wait_for(lambda: (tmp_path / "left-0").exists())
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        list(executor.run(calls(tmp_path, "hold_the_interpreter")))
    pid = int((tmp_path / "left-0").read_text())
    executor.close()
    wait_for(lambda: not Path(f"/proc/{pid}").exists())


# --- files travel


class Walker:
    """Leaves a checkpoint at its first step, and weights; begins where a checkpoint says."""

    def evaluate(self, request: TrainRequest, report: Any) -> Any:
        path = Path(request.checkpoint)
        begun = int(path.read_text()) if path.exists() else 0
        for step in range(begun, 3):
            path.write_text(str(step + 1))
            report(step, accuracy=0.5)
        if request.weights:
            Path(request.weights).write_bytes(b"weights")
        return {"begun": begun, "folder": os.getcwd()}


def walk(folder: Path) -> Call:
    request = TrainRequest(
        candidate=1, assignment={}, seed=0, part="test", threads=1, time_limit_s=PATIENCE_S,
        checkpoint=str(folder / "checkpoint"), weights=str(folder / "weights"),
    )  # fmt: skip
    return Call("train", Component(reference="test_executors:Walker"), request, PATIENCE_S)


def test_checkpoints_and_weights_travel(tmp_path: Path) -> None:
    call, words = walk(tmp_path), []
    job = remote.job_of(call, threads=1, start_limit_s=PATIENCE_S)
    answer = msgspec.msgpack.decode(
        remote.run_job(job, str(tmp_path), lambda w: words.append(w)), type=remote.Answer
    )
    assert answer.value == {"begun": 0, "folder": str(tmp_path)}
    assert answer.numeric == nodes.numeric_class()
    heard = [msgspec.msgpack.decode(word, type=remote.Word) for word in words]
    assert [w.step for w in heard if w.what == "reported"] == [0, 1, 2]
    assert heard[0].what == "started"
    assert [w.checkpoint for w in heard if w.what == "checkpoint"][-1] == b"3"
    assert not list(tmp_path.iterdir())  # nothing but what comes back as bytes
    (tmp_path / "checkpoint").write_text("2")
    executor = futures(ThreadPoolExecutor(1))
    ((_, outcome),) = executor.run([call])
    executor.close()
    assert outcome.value["begun"] == 2
    assert (tmp_path / "weights").read_bytes() == b"weights"


def test_finalists_leave_their_weights(tmp_path: Path) -> None:
    executor = futures("test_executors:pool")
    with start(tmp_path) as session:
        run(session, budget=4, executor=executor, finalists=1, final_seeds=1)
        executor.close()
        (finalist,) = [c for c in session.candidates() if c.finals]
        ((_, path),) = session.weights(finalist).items()
        assert path.read_bytes() == b"weights"


# --- machines that cannot do the work, or whose digits may differ


def facts_with(**changes: str) -> Any:
    return msgspec.structs.replace(nodes.facts(), host="node7", **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"python": "2.7.18"}, "node7 has Python 2.7.18, the head"),
        ({"syno": "0.0.1"}, "node7 has syno 0.0.1, the head"),
        ({"problem": "could not import 'train:make'"}, "node7: could not import"),
        ({"numeric": "x86_64 old"}, "node7 is not"),
    ],
)
def test_a_machine_that_cannot_do_the_work_is_named_before_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: Any, words: str
) -> None:
    executor = futures(ThreadPoolExecutor(1))
    monkeypatch.setattr(executor, "_examine", lambda job: [facts_with(**changes)])
    with start(tmp_path) as session:
        with session._store.transaction():
            session._store.set_meta("numeric_class", nodes.numeric_class())
        with pytest.raises(SessionError, match=words) as caught:
            run(session, executor=executor)
    assert caught.value.code == "R019"
    executor.close()


def test_a_task_that_machines_cannot_make_is_named(tmp_path: Path) -> None:
    executor = futures(ThreadPoolExecutor(1))
    with (
        start(tmp_path, evaluator="session_fakes:Nobody") as session,
        pytest.raises(SessionError, match="has no 'Nobody'"),
    ):
        run(session, executor=executor)
    executor.close()


def test_a_pool_that_does_no_work_is_named(tmp_path: Path) -> None:
    class Idle(concurrent.futures.Executor):
        def submit(self, *args: Any, **named: Any) -> Any:
            raise ValueError("nobody is here")

    with start(tmp_path) as session, pytest.raises(SessionError, match="nobody is here"):
        run(session, executor=futures(Idle()))


def test_machines_of_another_class_do_not_train(tmp_path: Path) -> None:
    """The one that trains refuses by itself, too: it may have come later."""
    said: list[str] = []
    executor = futures(ThreadPoolExecutor(1))
    with start(tmp_path / "s") as session:
        executor._examine = lambda job: [nodes.facts(), facts_with(numeric="x86_64 sse")]  # type: ignore[method-assign]
        executor.prepare(
            Context(tmp_path, session.config, "", lambda what, level: said.append(what))
        )
    assert executor.numeric == nodes.numeric_class()
    assert "not used for trainings: node7" in said[0]
    executor.numeric = "x86_64 sse torch-1"
    ((_, outcome),) = executor.run([walk(tmp_path)])
    executor.close()
    assert outcome.state == "node" and "its digits may differ" in outcome.reason


def test_each_training_records_its_class_and_a_new_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with start(tmp_path) as session:
        run(session, budget=3)
        trained = [c for c in session.candidates() if c.score]
        assert all(c.classes == [nodes.numeric_class()] and not c.nodes for c in trained)
        assert session.numeric_class == nodes.numeric_class()
        assert "on machines of class" in session.explain(trained[0])
    monkeypatch.setattr("syno.session.session.numeric_class", lambda: "x86_64 other")
    with start(tmp_path) as session:
        run(session, budget=4)
        assert any("of another class" in e["what"] for e in session.events())


def test_status_shows_who_trains(tmp_path: Path) -> None:
    executor = futures(ThreadPoolExecutor(2))
    with start(tmp_path) as session:
        run(session, budget=3, executor=executor)
    executor.close()
    with open_view(tmp_path) as view:
        shown = view.status()["executor"]
    host = nodes.facts().host
    assert shown["kind"] == "futures" and shown["nodes"] == [{"node": host}]
    assert shown["in_flight"] == 0 and shown["done"] >= 4
    lines = executor_lines({**shown, "refused": ["node7: old"]})
    assert "trained by futures: 0 in flight" in lines[0]
    assert lines[1:] == [f"  {host}", "  not used: node7: old"]
    assert not executor_lines({})
