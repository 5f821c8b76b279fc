"""A long training for sessions of fakes: real batches and digits, and a process or a node that dies in the middle of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import session_fakes as fakes
import torch
from patience import PATIENCE_S
from torch import nn

from syno import Task
from syno.session.protocols import TrainRequest
from syno.training.checkpoint import Checkpoint
from syno.training.train import TrainResult, train

EPOCHS, BATCHES = 6, 3

#: Where this process's training is written down; no attribute, for these are part of what is written down.
_written = [""]


class Epochs:
    """What it gives follows from the epoch; it writes down each that it begins."""

    def __init__(
        self, journal: str, candidate: int, killed_at: int, head: str, victim: str
    ) -> None:
        self.journal, self.candidate, self.epoch = journal, candidate, 0
        self.killed_at, self.head, self.victim = killed_at, head, victim

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[Any]:
        if self.epoch < EPOCHS:  # a further one is begun, and not used
            with open(self.journal, "a") as file:
                file.write(f"{self.candidate} {self.epoch}\n")
        if self.epoch == self.killed_at and not Path(f"{self.journal}-killed").exists():
            self._die()
        draw = np.random.default_rng(self.epoch)
        for _ in range(BATCHES):
            x = torch.from_numpy(draw.normal(size=(16, 8)).astype("float32"))
            yield x, (x.sum(1) > 0).long()

    def _die(self) -> None:
        """Once, when what was written down has come to the head."""
        end = time.monotonic() + PATIENCE_S
        while not self._is_at_head():
            assert time.monotonic() < end, "the head never got the checkpoint"
            time.sleep(0.05)
        Path(f"{self.journal}-killed").touch()
        lender = fakes.lender()
        os.kill(fakes.parent_of(lender) if self.victim == "node" else lender, signal.SIGKILL)
        time.sleep(PATIENCE_S)

    def _is_at_head(self) -> bool:
        own = Path(_written[0]).read_bytes()
        there = Path(self.head).glob(f"{self.candidate}-*.safetensors")
        return any(path.read_bytes() == own for path in there)


class LongTrainer:
    """Trains a network with dropout for some epochs; ``killed`` is the candidate whose machine dies, once."""

    def __init__(
        self, journal: str, killed: int = -1, head: str = "", victim: str = "process"
    ) -> None:
        self.journal, self.killed, self.head, self.victim = journal, killed, head, victim

    def evaluate(self, request: TrainRequest, report: Callable[..., None]) -> TrainResult:
        number = (fakes.numbers(request.assignment) or [fakes.BASELINE])[-1]
        killed_at = 3 if request.candidate == self.killed else -1
        task = Task(
            name="long",
            model=lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Linear(16, 2)),
            train=Epochs(self.journal, request.candidate, killed_at, self.head, self.victim),
            validation=[(torch.eye(8), torch.tensor([0, 1] * 4))],
            steps=EPOCHS * BATCHES,
            evaluations=2,
            learning_rate=number / 500,
            metric="loss",
        )
        _written[0] = request.checkpoint
        key = [number, request.seed, request.part]
        return train(
            task,
            seed=request.seed,
            part=request.part,
            time_limit_s=request.time_limit_s,
            report=report,
            checkpoint=Checkpoint(Path(request.checkpoint), key, request.checkpoint_s),
        )
