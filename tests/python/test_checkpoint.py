"""Trainings that are ended at any moment and taken up from their last epoch: the same values to the digit."""

from __future__ import annotations

import dataclasses
import os
import random
import time
from pathlib import Path
from typing import Any

import drawing_task
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_kills import kill, progress, started, values
from torch import nn

from syno import Task
from syno.session import Limits, Rung, Session, open_view
from syno.session.files import checkpoint_path
from syno.training.checkpoint import CannotKeep, Checkpoint, _packed, _unpacked
from syno.training.train import TrainResult, train


class Stop(Exception):
    pass


class StoppingClock:
    """Ends a training after so many looks at the clock: at any step, in any part of it."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def __call__(self) -> float:
        self.left -= 1
        if self.left == 0:
            raise Stop
        return float(-self.left)


class Counting:
    """A loader that nobody tells of epochs: it counts them, and what it gives follows from that."""

    def __init__(self) -> None:
        self.epoch = 0

    def __len__(self) -> int:
        return 4

    def __iter__(self) -> Any:
        self.epoch += 1
        draw = np.random.default_rng(self.epoch)
        for _ in range(len(self)):
            x = torch.from_numpy(draw.normal(size=(8, 8, 6, 6)).astype("float32"))
            yield x, torch.from_numpy(draw.integers(0, 2, 8))


class Odd(nn.Module):
    """Keeps what no ``state_dict`` has: a counter, a tensor that is no buffer, a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 2)
        self.calls = 0
        self.mean = torch.zeros(8)
        self.register_buffer("kept", torch.zeros(8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.norm(x).mean((2, 3))
        if self.training:
            self.calls += 1
            self.mean = 0.9 * self.mean + 0.1 * pooled.detach().mean(0)
            self.kept.mul_(0.5).add_(self.mean)
        return self.head(pooled + self.mean + self.kept + 0.01 * self.calls)


def drawing(**changes: Any) -> Task:
    # Images are drawn when a task is made: here the same at every time.
    torch.manual_seed(0)
    np.random.seed(0)
    return drawing_task.make(steps=17, metric="loss").but(**changes)


def odd(**changes: Any) -> Task:
    return drawing().but(**{"model": Odd, "train": Counting(), **changes})


def one_cycle(optimizer: Any, steps: int) -> Any:
    return torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps + 1)


def _told() -> Any:
    torch.manual_seed(1)
    np.random.seed(1)
    return drawing_task.counting(17).train


TASKS: dict[str, Any] = {
    "every generator, sgd": lambda: drawing(optimizer="sgd"),
    "every generator, adamw, one cycle of torch": lambda: drawing(
        optimizer="adamw", schedule=one_cycle
    ),
    "counts epochs when told": lambda: drawing(train=_told()),
    "counts epochs by itself": odd,
    "adam, cosine, clipped": lambda: odd(optimizer="adam", schedule="cosine", gradient_clip=0.1),
    "rmsprop": lambda: drawing(optimizer=lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9)),
    "processes that load": lambda: drawing(
        train=torch.utils.data.DataLoader(
            drawing_task.Images(64), 16, shuffle=True, num_workers=1, multiprocessing_context="fork"
        )
    ),
}


def digits(result: TrainResult, model: nn.Module) -> Any:
    """All of a training that is no time."""
    plain = dataclasses.asdict(result)
    for name in ("seconds", "examples_per_s"):
        del plain[name]
    plain["curve"] = [(point.step, point.metrics) for point in result.curve]
    return plain, {n: t.tolist() for n, t in model.state_dict().items()}


def trained(make: Any, checkpoint: Checkpoint | None, looks: int = 10**9) -> Any:
    """As in a new process: everything is made again."""
    random.seed(os.urandom(8))
    task = make()
    model = task.make_model(3)
    clock = StoppingClock(looks)
    return digits(train(task, model, seed=3, checkpoint=checkpoint, clock=clock), model)


@pytest.mark.parametrize("name", TASKS)
def test_a_training_that_is_ended_goes_on_to_the_same_digits(tmp_path: Path, name: str) -> None:
    make = TASKS[name]
    expected = trained(make, None)
    draw = random.Random(name)
    for attempt in range(2):
        path = tmp_path / f"{attempt}.safetensors"
        resumed = 0
        while True:
            checkpoint = Checkpoint(path, ["a", 1], long_s=0.0)
            resumed += path.exists()
            try:
                # A training looks at the clock two or three times a step.
                found = trained(make, checkpoint, draw.randrange(16, 44))
            except Stop:
                continue
            break
        assert found == expected
        assert resumed, "it went on from a checkpoint"
        assert not checkpoint.broken


def test_what_was_done_before_is_not_done_again(tmp_path: Path) -> None:
    steps: list[int] = []

    class Watched(Counting):
        def __iter__(self) -> Any:
            for batch in super().__iter__():
                steps.append(self.epoch)
                yield batch

    def make() -> Any:
        return odd(train=Watched())

    checkpoint = Checkpoint(tmp_path / "c.safetensors", long_s=0.0)
    with pytest.raises(Stop):
        trained(make, checkpoint, 30)
    assert steps[-1] >= 2
    before = max(steps)
    steps.clear()
    trained(make, checkpoint)
    assert min(steps) == before > 1


def test_short_trainings_and_those_that_cannot_be_are_not_written(tmp_path: Path) -> None:
    short = Checkpoint(tmp_path / "short.safetensors", long_s=1e9)
    trained(odd, short)
    assert not short.path.exists()

    class Strange(torch.optim.SGD):
        def state_dict(self) -> Any:
            return {**super().state_dict(), "function": print}

    strange = Checkpoint(tmp_path / "strange.safetensors", long_s=0.0)
    trained(lambda: odd(optimizer=lambda p: Strange(p, 0.1)), strange)
    assert strange.broken and not strange.path.exists()
    persistent = Checkpoint(tmp_path / "persistent.safetensors", long_s=0.0)
    loader = torch.utils.data.DataLoader(
        drawing_task.Images(64),
        16,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    trained(lambda: drawing(train=loader), persistent)
    assert not persistent.path.exists(), "nobody knows where their processes stand"


@pytest.mark.parametrize("harm", ["cut", "changed", "empty", "another", "other key", "a pipe"])
def test_a_checkpoint_that_is_none_is_left_aside(tmp_path: Path, harm: str) -> None:
    expected = trained(odd, None)
    path = tmp_path / "c.safetensors"
    with pytest.raises(Stop):
        trained(odd, Checkpoint(path, ["a"], long_s=0.0), 30)
    content = path.read_bytes()
    if harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif harm == "changed":
        path.write_bytes(content.replace(b"tensor", b"fensor"))
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "another":
        with pytest.raises(Stop):
            trained(lambda: drawing(train=Counting()), Checkpoint(path, ["a"], long_s=0.0), 30)
    elif harm == "a pipe":
        path.unlink()
        os.mkfifo(path)
    key = ["b"] if harm == "other key" else ["a"]
    assert trained(odd, Checkpoint(path, key, long_s=1e9)) == expected


TREES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5),
        st.integers(0, 5).map(lambda n: np.arange(n, dtype=np.uint32)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=3), st.integers()), inner, max_size=3),
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(TREES)
def test_plain_data_come_back_as_they_were(value: Any) -> None:
    import json

    again = _unpacked(json.loads(json.dumps(_packed(value, {}))), {})
    np.testing.assert_equal(again, value)
    assert type(again) is type(value)


def test_what_has_no_form_is_refused() -> None:
    for value in (print, object(), {1, 2}, 1j, np.array([print])):
        with pytest.raises(CannotKeep):
            _packed([value], {})


@pytest.mark.timeout(1_200)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc to find the workers")
def test_killed_searches_take_long_trainings_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_CHECKPOINTS", "1")  # every training counts as a long one
    whole = started(tmp_path / "whole", 1)
    assert "ended" in whole.communicate()[0]
    expected = values(tmp_path / "whole")
    path, met = tmp_path / "killed", 0
    draw = random.Random(7)
    process = started(path, 2)
    for _ in range(2):
        moment = progress(path) + draw.randrange(2, 12)
        while process.poll() is None and (progress(path) < moment or not _checkpoints(path)):
            time.sleep(0.01)
        if process.poll() is None:
            kill(process, draw)
            met += bool(_checkpoints(path))
            process = started(path, 2)
    out, _ = process.communicate()
    assert "ended" in out, out
    assert values(path) == expected
    assert met, "some training was written down when it was killed"
    assert not _checkpoints(path), "nothing is left of them"


def _checkpoints(path: Path) -> list[Path]:
    return list((path / "checkpoints").glob("*.safetensors"))


def test_a_session_may_change_when_it_writes_trainings_down(tmp_path: Path) -> None:
    from test_session import start

    start(tmp_path).close()
    with Session.open(tmp_path, limits=Limits(workers=1, checkpoint_s=60.0)):
        pass
    with open_view(tmp_path) as view:
        assert view.config.limits.checkpoint_s == 60.0


def test_what_ended_is_removed_where_a_killed_writer_left_it(tmp_path: Path) -> None:
    """A kill between the record of a training's end and the removal of what it was written down in."""
    from test_session import run, start

    rungs = [Rung(share=0.25, keep=0.5), Rung(share=0.5, keep=0.5)]
    with start(tmp_path, rungs=rungs) as session:
        run(session, 24)
        everyone = session.candidates()
    trained = next(c for c in everyone if c.score and len(c.rungs) == 2)
    given_up = next(c for c in everyone if c.state == "pruned")
    assert trained.score is not None
    seed = trained.score.seed
    ended = [
        *(
            checkpoint_path(tmp_path, trained.number, "validation", share, seed)
            for share in (0.25, 0.5, 1.0)
        ),
        checkpoint_path(tmp_path, given_up.number, "validation", 1.0, seed),
    ]
    going = [
        checkpoint_path(tmp_path, trained.number, "test", 1.0, seed + 1),
        checkpoint_path(tmp_path, len(everyone) + 7, "validation", 1.0, seed),
        checkpoint_path(tmp_path, trained.number, "validation", 0.5, seed + 1),
        tmp_path / "checkpoints" / "mine.safetensors",
        tmp_path / "checkpoints" / f"{10**30}-mine.safetensors",
    ]
    for path in (*ended, *going):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"a training")
    Session.open(tmp_path).close()
    assert sorted(_checkpoints(tmp_path)) == sorted(going)
