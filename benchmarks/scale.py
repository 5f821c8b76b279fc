"""What the head of a search costs where hundreds of workers train: a simulation in virtual time.

    python benchmarks/scale.py --candidates 10000 --workers 1000 --json

A whole session runs, with its database, its policy (Bayesian optimisation), its pruning and its transactions; only the machines
are simulated: trainings take log-normal minutes, or with ``--recorded`` what 538 recorded trainings of ``opbench`` took, with
what came out of them; 30 % end after a quarter of their curve, 2 % are lost with their machine and repeated. Half of all
networks are faster than the original. Nothing of it waits, so that the wall time is the head's: proposing, folding, committing. Then `status`, the report
and opening the session again are timed. Times are this machine's.

Without ``--lag`` batches are proposed and told as a whole, so that all workers wait for the slowest of each; with it a
candidate is proposed from the rewards of those at least so many tickets before it. ``busy_share`` says how much of the workers'
time is work, from beginning to end and until the last training begins.
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import itertools
import json
import math
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from syno import _core
from syno.operators.features import NAMES
from syno.report import write_report
from syno.searching.proposers import PolicyProposer, operator_text
from syno.searching.result import session_report
from syno.session import Component, Limits, Session, open_view
from syno.session.executors import Call, Outcome
from syno.session.protocols import Measurement, Predicted, Proposal
from syno.session.worker import frame
from syno.support.machine import describe_machine
from syno.training.train import CurvePoint, TrainResult

MEDIAN_S, SIGMA = 600.0, 0.7
STDERR = 0.003  # of the metric of one training
PRUNED, LOST = 0.30, 0.02
POINTS = (1, 2, 3, 4)  # quarters of a training
LATENCY_US, SPREAD = 1_000.0, 0.4  # of the original, and of the logarithm of the others'
OPERATORS = Path(__file__).with_name("opbench") / "operators.jsonl"
RECORDED = Path(__file__).with_name("opbench") / "trainings.jsonl"


def drawn(number: int, seed: int = 0) -> random.Random:
    return random.Random(f"{number} {seed}")


class LogNormal:
    """Trainings whose times and results are drawn."""

    said = f"drawn: log-normal, median {MEDIAN_S:g} s, sigma {SIGMA}"

    def seconds(self, number: int) -> float:
        return MEDIAN_S * math.exp(SIGMA * drawn(number).gauss(0, 1))

    def curve(self, number: int) -> list[float]:
        """The metric after each quarter."""
        worse = 0.0 if number == 0 else abs(drawn(number, 3).gauss(0, 0.03))
        return [(0.9 - worse) * point / 4 for point in POINTS]


class Recorded:
    """Recorded trainings: each candidate's is one of them, drawn; the original's is its own. Their times are scaled to the
    same median."""

    def __init__(self, path: Path = RECORDED) -> None:
        rows = [msgspec.json.decode(line) for line in path.read_text().splitlines()]
        self._original = next(row for row in rows if row["operator"] == "baseline")
        self._rows = [row for row in rows if row["state"] == "done"]
        self._median_s = statistics.median(row["cpu_s"] for row in self._rows)
        logs = [math.log(row["cpu_s"]) for row in self._rows]
        self.said = (
            f"of {len(rows)} recorded trainings ({path.parent.name}/{path.name}, standard deviation of the logarithm "
            f"{statistics.pstdev(logs):.2f}), scaled to a median of {MEDIAN_S:g} s"
        )

    def _row(self, number: int) -> Any:
        return self._original if number == 0 else drawn(number).choice(self._rows)

    def seconds(self, number: int) -> float:
        return float(self._row(number)["cpu_s"] / self._median_s * MEDIAN_S)

    def curve(self, number: int) -> list[float]:
        """The metric after each quarter."""
        row = self._row(number)
        return [*(value for _, value in row["curve"]), row["accuracy"]]


def stopped(number: int) -> bool:
    """Whether a training is given up after a quarter of its curve."""
    return number > 0 and drawn(number, 1).random() < PRUNED


def latency_us(number: int) -> float:
    return LATENCY_US * math.exp(SPREAD * drawn(number, 5).gauss(0, 1) if number else 0.0)


class Graph:
    """An operator of the simulated space, by its number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def hash(self) -> str:
        return f"{self.number:032x}"


class SimulatedSpace:
    """Operators with features and derivations as those of a real space have, at random; quality follows from them."""

    def __init__(self, size: int) -> None:
        self.graphs = [Graph(number) for number in range(size)]
        self.known: list[int] = []
        self._vectors = np.random.default_rng(0).normal(size=(size, len(NAMES)))

    def __len__(self) -> int:
        return len(self.graphs)

    def make_room(self, proposed: int) -> None:
        """All are there."""

    def derivation(self, index: int) -> tuple[str, ...]:
        return tuple(f"step {index % (3 + 2 * depth)} of {depth}" for depth in range(8))

    def vectors(self, indices: Sequence[int]) -> Any:
        return self._vectors[list(indices)]


class SimulatedProposer(PolicyProposer):
    """The policy itself, over a simulated space; what is proposed are operators of ``opbench``, under names of their own."""

    def __init__(self, *, seed: int, size: int) -> None:
        from syno.policies.bayesian import BayesianOptimization

        self._name, self._policy, self._seed = "bayesian", BayesianOptimization(seed), seed
        self._made = SimulatedSpace(size)  # type: ignore[assignment]
        rows = OPERATORS.read_text().splitlines()
        self._operators = [_core.PGraph.parse(json.loads(row)["text"]) for row in rows]
        self._proposed, self._rewards, self._gains = [], [], []
        self._start()

    def _start(self) -> None:
        pass

    def why_empty(self) -> str | None:
        return None

    def _proposal(self, index: int, why: str) -> Proposal:
        ticket = len(self._proposed)
        self._proposed.append(index)
        self._rewards.append(None)
        self._gains.append((None, None))
        operator = operator_text(self._operators[index % len(self._operators)])
        text = msgspec.structs.replace(operator, key=f"{index:032x}", flops=1_000_000 + index)
        return Proposal(ticket=ticket, operator=text, why=why)


class Simulated:
    """Machines in virtual time: answers come in the order they would end in."""

    def __init__(self, workers: int, trainings: LogNormal | Recorded) -> None:
        self.count = workers
        self._trainings = trainings
        self.now_s = 0.0
        self.busy_s = 0.0
        self.lost: set[int] = set()
        self.bytes = 0
        self._running: list[tuple[float, int, int, Call, Outcome | None]] = []
        self.first: tuple[float, float] | None = None
        self.last = (0.0, 0.0)
        """When the first and the last training of a candidate began, and how long all workers had worked by then."""
        self.marks: list[float] = []
        """Seconds of this process' processor, at each training's end."""

    def run(
        self,
        calls: Sequence[Call],
        *,
        started: Callable[[int, int], None] | None = None,
        reported: Callable[[int, int, dict[str, float]], None] | None = None,
        more: Callable[[], Sequence[Call]] | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        waiting = deque(enumerate(calls))
        given = len(calls)
        free = list(range(self.count))
        while True:
            if more is not None:
                new = more()
                waiting.extend(enumerate(new, given))
                given += len(new)
            while waiting and free:
                index, call = waiting.popleft()
                worker = heapq.heappop(free)
                number = call.request.candidate
                if number > 0 and call.kind == "train" and number not in self.lost:
                    self.first = self.first or (self.now_s, self.busy_s)
                    self.last = (self.now_s, self.busy_s)
                if started:
                    started(index, worker)
                ends, outcome = self._seconds(call)
                heapq.heappush(self._running, (self.now_s + ends, index, worker, call, outcome))
            if not self._running:
                return
            end, index, worker, call, outcome = heapq.heappop(self._running)
            self.busy_s += (end - self.now_s) * (self.count - len(free))
            self.now_s = end
            heapq.heappush(free, worker)
            yield index, outcome or self._outcome(call, reported, index)

    def share(self) -> float:
        """Of the workers' time from the first candidate's training until the last one begins: what ends after that leaves
        workers without any further work."""
        assert self.first is not None
        (begun_s, before_s), (ended_s, after_s) = self.first, self.last
        return min(1.0, (after_s - before_s) / max(1e-9, (ended_s - begun_s) * self.count))

    def close(self) -> None:
        pass

    def _seconds(self, call: Call) -> tuple[float, Outcome | None]:
        """How long a call runs, and how it ends where its machine is lost on the way: once, at any moment of it."""
        if call.kind != "train":
            return 0.0, None
        number = call.request.candidate
        seconds = self._trainings.seconds(number) * (0.25 if stopped(number) else 1.0)
        if drawn(number, 2).random() < LOST and number not in self.lost:
            self.lost.add(number)
            return seconds * drawn(number, 4).random(), Outcome("node", reason="simulated")
        return seconds, None

    def _outcome(self, call: Call, reported: Any, index: int) -> Outcome:
        number = call.request.candidate
        if call.kind == "predict":
            value: Any = Predicted(latency_us=latency_us(number), flops=10**6, params=10**4)
        elif call.kind == "measure":
            value = Measurement(latency_us=latency_us(number), samples=7, verified=True)
        else:
            value = self._training(call, reported, index)
        plain = msgspec.to_builtins(value)
        self.bytes += len(frame(plain))  # as it would travel
        return Outcome("ok", plain)

    def _training(self, call: Call, reported: Any, index: int) -> TrainResult:
        number = call.request.candidate
        self.marks.append(time.process_time())
        pruned = stopped(number)
        curve = []
        for point, value in zip(
            POINTS[: 1 if pruned else 4], self._trainings.curve(number), strict=False
        ):
            curve.append(CurvePoint(point, 0.0, {"accuracy": value}))
            if reported:
                reported(index, point, {"accuracy": value})
        return TrainResult(
            state="pruned" if pruned else "done",
            reason="simulated" if pruned else "",
            metric="accuracy",
            higher_is_better=True,
            value=curve[-1].metrics["accuracy"],
            stderr=STDERR,
            metrics=curve[-1].metrics,
            count=10_000,
            part="validation",
            curve=curve,
            steps=len(curve),
            total_steps=4,
            seconds=self._trainings.seconds(number) * len(curve) / 4,
            examples_per_s=1_000.0,
            seed=call.request.seed,
            threads=1,
        )


def simulate(
    folder: Path,
    candidates: int,
    workers: int,
    width: int,
    lag: int | None,
    space: int,
    recorded: bool = False,
) -> dict[str, Any]:
    """One session of that many candidates, and what it cost."""
    path = folder / "session"
    here = str(Path(__file__).resolve())
    trainings = Recorded() if recorded else LogNormal()
    executor = Simulated(workers, trainings)
    begun, cpu = time.perf_counter(), time.process_time()
    with Session.open(
        path,
        proposer=Component(reference=f"{here}:SimulatedProposer", options={"size": space}),
        evaluator=Component(reference=f"{here}:Simulated"),
        measurer=Component(reference=f"{here}:Simulated"),
        predicted_on="1",
        batch_width=width,
        lag=lag,
        limits=Limits(workers=1),
        trust=True,
    ) as session:
        session.run(budget=candidates, executor=executor, progress="off")
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
    quarter = len(executor.marks) // 4
    marks = [executor.marks[place * quarter - (place > 0)] for place in range(5)]
    size = sum(file.stat().st_size for file in path.glob("session.sqlite*"))
    row: dict[str, Any] = {
        "candidates": candidates,
        "workers": workers,
        "batch_width": width,
        "lag": lag,
        "durations": f"{trainings.said}; {PRUNED:.0%} end after a quarter, {LOST:.0%} are lost once and repeated",
        "head_ms_per_candidate": 1e3 * seconds / candidates,
        "head_cpu_ms_per_candidate": 1e3 * cpu / candidates,
        "head_cpu_ms_by_quarter": [1e3 * (b - a) / quarter for a, b in itertools.pairwise(marks)],
        "busy_share": executor.busy_s / (executor.now_s * workers),
        "busy_share_until_the_last_begins": executor.share(),
        "database_bytes": size,
        "answer_bytes_per_candidate": executor.bytes / candidates,
    }
    row["most_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    row |= looked_at(path, folder)
    return row


def looked_at(path: Path, folder: Path) -> dict[str, float]:
    """Seconds, and of them the processor's, that it takes to open the session for writing, to show its status and to write its
    report; each after the database was read and found whole once, which is a row of its own."""

    def resumed() -> None:
        with Session.open(path, trust=True):
            pass

    def status() -> None:
        with open_view(path) as view:
            view.status()

    def report() -> None:
        write_report(session_report(path), folder / "report.html")

    def imports() -> None:
        for module in ("syno.searching.result", "matplotlib.pyplot"):
            importlib.import_module(module)

    imports()
    row = {}
    for name, act in (
        ("check_and_status", status),
        ("status", status),
        ("report", report),
        ("resume", resumed),
    ):
        wall, processor = time.perf_counter(), time.process_time()
        act()
        row[f"{name}_s"] = time.perf_counter() - wall
        row[f"{name}_cpu_s"] = time.process_time() - processor
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1_000)
    parser.add_argument("--width", type=int, help="candidates proposed together; default: workers")
    parser.add_argument(
        "--lag",
        type=int,
        help="candidates under way while further ones are proposed; default: the barrier of a batch",
    )
    parser.add_argument("--space", type=int, help="operators of the space; default: twice as many")
    parser.add_argument(
        "--recorded", action="store_true", help="times and results of recorded trainings"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for name in ("candidates", "workers", "width", "lag", "space"):
        if (value := getattr(options, name)) is not None and value < 4:
            parser.error(f"--{name} {value}: give at least 4")
    folder = Path(tempfile.mkdtemp(prefix="syno-scale-"))
    try:
        row = simulate(
            folder,
            options.candidates,
            options.workers,
            options.width or options.workers,
            options.lag,
            options.space or 2 * options.candidates,
            options.recorded,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = {"machine": msgspec.to_builtins(describe_machine()), "rows": [row]}
    if options.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in row.items():
        print(f"{name:28} {value}")
    print(found["machine"], file=sys.stderr)


if __name__ == "__main__":
    main()
