"""Parts of a session that need no engine and no torch: a space of numbers with a known best one.

The operator ``n`` has quality ``1 - ((n - 20) / 40)**2``, costs ``n`` FLOPs and runs ``10 + n`` us; some
numbers misbehave as their options say.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from syno.errors import SpecError
from syno.session.protocols import (
    Gains,
    Measurement,
    MeasureRequest,
    OperatorText,
    Predicted,
    PredictRequest,
    Proposal,
    SiteTiming,
    TrainRequest,
)
from syno.training.train import CurveFloor, CurvePoint, TrainResult

BASELINE = 30

_CLOCK = random.SystemRandom()  # what a clock adds comes from no seed


def operator(number: int, padding: int = 0) -> OperatorText:
    content = {"format": "fake", "number": number, "steps": [f"take {number}"]}
    text = json.dumps({**content, "padding": "x" * padding})
    return OperatorText(
        key=f"op{number}", expr=f"y = {number}", text=text, flops=number, params=number
    )


class Climber:
    """Proposes near the best reward so far, so that what it proposes depends on what it was told."""

    def __init__(
        self, seed: int = 0, size: int = 60, repeat: bool = False, padding: int = 0
    ) -> None:
        self.seed, self.size, self.repeat, self.padding = seed, size, repeat, padding
        self.tickets = 0
        self.told: list[tuple[int, float]] = []
        self.asked: list[int] = []

    def ask(self, count: int) -> Sequence[Proposal]:
        best = (
            max(self.told, key=lambda row: row[1])[0] if self.told else self.size // 2 + self.seed
        )
        order = sorted(range(self.size), key=lambda n: (abs(n - best), n))
        if not self.repeat:
            order = [n for n in order if n not in self.asked]
        chosen = order[:count]
        found = []
        for number in chosen:
            found.append(
                Proposal(
                    ticket=self.tickets, operator=operator(number, self.padding), why=f"near {best}"
                )
            )
            self.tickets += 1
            self.asked.append(number)
        self.pending = {p.ticket: p.operator.flops for p in found} | getattr(self, "pending", {})
        return found

    def tell(self, ticket: int, reward: float, gains: Gains) -> None:
        assert not self.told_tickets or ticket > self.told_tickets[-1], "tickets out of order"
        self.told_tickets.append(ticket)
        self.told.append((self.pending.pop(ticket), reward))

    @property
    def told_tickets(self) -> list[int]:
        return self.__dict__.setdefault("_told_tickets", [])

    def state(self) -> str:
        assert not getattr(self, "pending", {}), "state asked for inside a batch"
        return json.dumps([self.tickets, self.told, self.asked])

    def restore(self, state: str) -> None:
        self.tickets, told, self.asked = json.loads(state)
        self.told = [(int(n), float(r)) for n, r in told]


class Nothing:
    """A space without operators, which it says when it is asked, when it is made, or when it is searched."""

    def __init__(self, seed: int = 0, says: str = "asked") -> None:
        self.says = says
        if says == "made":
            raise SpecError("[spec] groups of 3 do not divide 8 channels")

    def why_empty(self) -> str | None:
        return "no operator meets max_flops" if self.says == "asked" else None

    def ask(self, count: int) -> Sequence[Proposal]:
        raise SpecError("[search] the space has no operator")

    def tell(self, ticket: int, reward: float, gains: Gains) -> None:
        raise AssertionError("nothing was proposed")

    def state(self) -> str:
        return ""

    def restore(self, state: str) -> None:
        assert not state


def numbers(assignment: dict[str, OperatorText]) -> list[int]:
    return [json.loads(op.text)["number"] for op in assignment.values()]


def lender() -> int:
    """The process that lent itself to a call: the parent of the guard of this worker."""
    return parent_of(os.getppid())


def parent_of(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


class Trainer:
    """Gives each number its quality; ``crash``, ``hang``, … are numbers that end otherwise."""

    def __init__(
        self,
        journal: str = "",
        pause_s: float = 0.0,
        crash: Sequence[int] = (),
        hang: Sequence[int] = (),
        nan: Sequence[int] = (),
        raises: Sequence[int] = (),
        killed: Sequence[int] = (),
        leaves: Sequence[int] = (),
        grows: Sequence[int] = (),
        orphans: Sequence[int] = (),
        fells: Sequence[int] = (),
        broken_baseline: bool = False,
    ) -> None:
        self.journal, self.pause_s = journal, pause_s
        self.crash, self.hang, self.nan, self.raises = crash, hang, nan, raises
        self.killed, self.leaves, self.broken_baseline = killed, leaves, broken_baseline
        self.grows, self.orphans, self.fells = grows, orphans, fells

    def evaluate(self, request: TrainRequest, report: Callable[..., None]) -> TrainResult:
        chosen = numbers(request.assignment)
        if self.journal:
            with open(self.journal, "a") as file:
                file.write(f"{request.candidate} {request.seed} {request.part}\n")
        print("what a user prints does not disturb the channel")
        number = chosen[-1] if chosen else BASELINE
        if not chosen and self.broken_baseline:
            raise ValueError("no data at all")
        if chosen:
            self._misbehave(number, request)
        quality = 1 - sum(((n - 20) / 40) ** 2 for n in chosen or [BASELINE])
        quality += 1e-4 * ((request.seed * 7919 + number * 31) % 11 - 5)
        stop = CurveFloor(request.floors, why=request.floors_why) if request.floors else None
        curve = []
        for step in (1, 2, 3, 4):
            time.sleep(self.pause_s / 4)
            value = quality * step / 4 if step < 4 else quality
            report(step, accuracy=value)
            curve.append(CurvePoint(step, 0.0, {"accuracy": value}))
            reason = stop(step, 4, value) if stop and step < 4 else None
            if reason:
                return self._result("pruned", reason, value, curve, request)
        if request.weights:
            Path(request.weights).write_bytes(b"weights")
        return self._result("done", "", quality, curve, request)

    def _misbehave(self, number: int, request: TrainRequest) -> None:
        if number in self.crash:
            print("about to abort", file=sys.stderr, flush=True)
            os.abort()
        if number in self.leaves:
            sys.exit(3)
        if number in self.killed:
            os.kill(os.getpid(), signal.SIGKILL)
        if number in self.hang:
            time.sleep(1_000)
        if number in self.orphans and not Path(f"{self.journal}-{number}").exists():
            Path(f"{self.journal}-{number}").touch()
            os.kill(lender(), signal.SIGKILL)  # once
            time.sleep(1_000)
        if number in self.fells and not Path(f"{self.journal}-{number}").exists():
            Path(f"{self.journal}-{number}").touch()
            os.kill(parent_of(lender()), signal.SIGKILL)  # the node itself
            time.sleep(1_000)
        if number in self.grows:
            self.held = b"x" * (600 << 20)
            time.sleep(1_000)
        if number in self.raises:
            raise ZeroDivisionError("this operator divides by zero")

    def _result(
        self, state: str, reason: str, value: float, curve: Any, request: TrainRequest
    ) -> TrainResult:
        chosen = numbers(request.assignment)
        if chosen and chosen[-1] in self.nan:
            state, reason, value, curve = "failed", "loss is nan at step 1 of 4", math.nan, []
        return TrainResult(
            state=state,
            reason=reason,
            metric="accuracy",
            higher_is_better=True,
            value=value,
            stderr=0.001,
            metrics={"accuracy": value},
            count=1_000,
            part=request.part,
            curve=curve,
            steps=4,
            total_steps=4,
            seconds=0.01,
            examples_per_s=1.0,
            seed=request.seed,
            threads=request.threads,
        )


class Clock:
    """Latencies that follow from the number; ``wrong`` ones fail their check."""

    def __init__(
        self,
        wrong: Sequence[int] = (),
        crash: Sequence[int] = (),
        hang: Sequence[int] = (),
        jitter: float = 0.0,
    ) -> None:
        self.wrong, self.crash, self.hang, self.jitter = wrong, crash, hang, jitter

    def predict(self, request: PredictRequest) -> Predicted:
        """The latency without its jitter; the machine is what it is multiplied with."""
        chosen = numbers(request.assignment)
        cost = sum(chosen) if chosen else BASELINE
        return Predicted(
            latency_us=float(request.machine) * (10.0 + cost), flops=1_000 + cost, params=100 + cost
        )

    def measure(self, request: MeasureRequest) -> Measurement:
        chosen = numbers(request.assignment)
        for number in chosen:
            if number in self.hang:
                time.sleep(1_000)
            if number in self.wrong:
                raise ValueError(f"operator {number} gave max_rel_err 0.3 (limit 1e-05)")
            if number in self.crash:
                os.abort()
        cost = sum(chosen) if chosen else BASELINE
        return Measurement(
            latency_us=10.0 + cost + self.jitter * _CLOCK.random(),
            iqr_us=0.5,
            samples=7,
            flops=1_000 + cost,
            params=100 + cost,
            verified=True,
            max_rel_err=1e-7,
            sites={f"site{n}": SiteTiming(latency_us=float(n), verified=True) for n in chosen},
            peers_us={"eager": 50.0},
        )


class Wanderer(Climber):
    """A climber that may be kept while it waits for rewards, and whose choices depend on what it waits for."""

    def ask(self, count: int) -> Sequence[Proposal]:
        found: list[Proposal] = []
        for _ in range(count):
            away = len(getattr(self, "pending", {}))
            best = max(self.told, key=lambda row: row[1])[0] if self.told else self.size // 2
            goal = (best + 7 * away) % self.size
            free = [n for n in range(self.size) if n not in self.asked]
            if not free:
                break
            number = min(free, key=lambda n: (abs(n - goal), n))
            self.pending = {**getattr(self, "pending", {}), self.tickets: number}
            found.append(
                Proposal(ticket=self.tickets, operator=operator(number), why=f"near {goal}")
            )
            self.tickets += 1
            self.asked.append(number)
        return found

    def state(self) -> str:
        pending = sorted(getattr(self, "pending", {}).items())
        return json.dumps([self.tickets, self.told, self.asked, pending])

    def restore(self, state: str) -> None:
        self.tickets, told, self.asked, pending = json.loads(state)
        self.told = [(int(n), float(r)) for n, r in told]
        self.pending = {int(ticket): int(number) for ticket, number in pending}
