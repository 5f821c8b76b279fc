"""Trackers write what a search gives, go on where a session goes on, and end no search. Nothing here reaches a network."""

from __future__ import annotations

import json
import logging
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_session import run, start

import syno
from syno.errors import SessionError, UnknownName
from syno.session import Candidate
from syno.session.callbacks import as_callbacks


def search(path: Path, tracker: Any, budget: int, **options: Any) -> list[Candidate]:
    with start(path, prune=None) as session:
        run(session, budget=budget, callbacks=as_callbacks(tracker), **options)
        return session.candidates()


def expected(candidates: list[Candidate]) -> dict[int, tuple[float, float]]:
    return {
        c.number: (c.score.value, c.reward)
        for c in candidates
        if c.score is not None and c.reward is not None
    }


def hold(written: dict[int, dict[str, float]], candidates: list[Candidate]) -> None:
    """What was written of each candidate is what the session recorded."""
    assert expected(candidates).keys() <= written.keys()
    for number, (value, reward) in expected(candidates).items():
        assert written[number]["search/accuracy"] == pytest.approx(value, rel=1e-5)
        assert written[number]["search/reward"] == pytest.approx(reward, rel=1e-5)
    best = max(reward for _, reward in expected(candidates).values())
    assert written[candidates[-1].number]["search/best_reward"] == pytest.approx(best, rel=1e-5)


def test_event_files_of_a_session_that_went_on(tmp_path: Path) -> None:
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    board = tmp_path / "board"
    search(tmp_path / "s", syno.tracking.tensorboard(board), 4)
    candidates = search(
        tmp_path / "s", syno.tracking.tensorboard(board), 8, finalists=1, final_seeds=2
    )
    read = events.EventAccumulator(str(board))
    read.Reload()
    written: dict[int, dict[str, float]] = {}
    for tag in read.Tags()["scalars"]:
        for event in read.Scalars(tag):
            written.setdefault(event.step, {})[tag] = event.value
    hold(written, candidates)
    assert "original/accuracy" in written[0]
    (finalist,) = [c for c in candidates if c.finals]
    assert written[finalist.number]["final/accuracy"] == pytest.approx(finalist.test, rel=1e-5)
    assert written[candidates[-1].number]["search/trained"] + written[candidates[-1].number][
        "search/pruned"
    ] == len(candidates)
    assert any("verdict" in tag for tag in read.Tags()["tensors"])


def test_a_run_of_mlflow_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    uri = (tmp_path / "kept").as_uri()
    for budget in (3, 6):
        candidates = search(tmp_path / "a'b", syno.tracking.mlflow("operators", uri=uri), budget)
    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("operators")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED" and found.data.params["seed"] == "0"
    written: dict[int, dict[str, float]] = {}
    for name in found.data.metrics:
        for metric in client.get_metric_history(found.info.run_id, name):
            written.setdefault(metric.step, {})[name] = metric.value
    hold(written, candidates)
    assert found.data.tags["syno.outcome"] in ("found", "undecided", "original")


def test_a_run_of_wandb_without_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "cache"))
    candidates = search(tmp_path / "s", syno.tracking.wandb("operators", mode="offline"), 4)
    (kept,) = (tmp_path / "s" / "wandb").glob("offline-run-*/run-*.wandb")
    hold(read_wandb(kept), candidates)


def records(content: bytes) -> Iterator[bytes]:
    """Of a file in LevelDB's log format behind a header of seven bytes: blocks of 32 KiB, records in one to many parts."""
    at, held = 7, b""
    while at + 7 <= len(content):
        left = 32_768 - at % 32_768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", content, at)
        held += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield held
            held = b""


def read_wandb(path: Path) -> dict[int, dict[str, float]]:
    """What was logged, by candidate."""
    from wandb.proto import wandb_internal_pb2

    written: dict[int, dict[str, float]] = {}
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") != "history":
            continue
        row = {
            item.key or "/".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        if "candidate" in row:
            written.setdefault(int(row["candidate"]), {}).update(row)
    return written


def test_a_tracker_that_fails_ends_no_search(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(syno.tracking.Tracker):
        def begin(self, view: Any) -> None:
            raise ConnectionError("nobody answers")

        def values(self, step: int, values: dict[str, float]) -> None:
            raise ConnectionError("nobody answers")

        def summary(self, values: dict[str, Any]) -> None:
            raise KeyError("run")

    with caplog.at_level(logging.WARNING, logger="syno.tracking"):
        assert len(search(tmp_path, Broken(), 4)) >= 4
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "Broken could not write, the search goes on: ConnectionError: nobody answers",
        "Broken could not write, the search goes on: KeyError: 'run'",
    ]


@pytest.mark.parametrize("name", syno.tracking.NAMES)
def test_what_is_not_installed_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [m for m in sys.modules if m.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(SessionError, match=rf"(?s){name}.*pip install \"syno\[{name}\]\""):
        syno.tracking.tracker(f"{name}:{tmp_path}")


def test_trackers_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match=r"tensorboad.*tensorboard"):
        syno.tracking.tracker("tensorboad")
    with pytest.raises(SessionError, match="tensorboard:FOLDER"):
        syno.tracking.tracker("tensorboard")
    with pytest.raises(UnknownName, match=r"(?s)of.line.*offline"):
        syno.tracking.wandb(mode="of-line")
    (tmp_path / "file").touch()
    pytest.importorskip("tensorboard")
    with pytest.raises(SessionError, match="cannot be made"):
        syno.tracking.tensorboard(tmp_path / "file" / "board")
    made = syno.tracking.tracker(f"tensorboard:{tmp_path / 'board'}")
    assert (tmp_path / "board").is_dir() and made.name == "EventFiles"
