"""What stopping trainings early saves on the table, in whole trainings.

    python benchmarks/opbench/fidelity.py                 # 200 seeds each: fidelity.json in --output
    python benchmarks/opbench/fidelity.py --seeds 20

The table has learning curves after a quarter, half and three quarters of a training, for the first seed: so
that a stopped training costs the share of its steps. A search ends when an operator of the best 2 % by mean
has been trained to its end; one that was stopped is lost.

`halving` is the rule of sessions (`syno.search(prune=Prune(keep=...))`): at each point of the curve a training
goes on only among the best share of the earlier ones. `brackets` is successive halving as first described:
sixteen begin together, at each point the better half goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from compare import POLICIES, Goals, TableSpace, by_accuracy
from table import HERE, SEEDS, Row, Table, read_table
from tree import Lattice

from syno.policies.policy import History
from syno.session.pruning import halving_floors
from syno.support.machine import cpu_model

WIDTH = 4  # candidates proposed together, as in a session
SEED = SEEDS[0]  # the one with curves


@dataclass(frozen=True)
class Stopped:
    """How far a training went: the points of its curve up to there, the last one at ``share``."""

    curve: list[tuple[float, float]]
    share: float


Rule = Callable[[Sequence[Row], Sequence[Stopped]], list[Stopped]]


def whole_curve(row: Row) -> list[tuple[float, float]]:
    """The points of a training, its end included."""
    return [*row.curves[SEED], (1.0, row.scores[SEED])]


def full(batch: Sequence[Row], _: Sequence[Stopped]) -> list[Stopped]:
    """Every training to its end."""
    return [Stopped(whole_curve(row), 1.0) for row in batch]


def halving(keep: float, after: int = 4) -> Rule:
    """The rule of sessions; floors follow from complete batches."""

    def rule(batch: Sequence[Row], earlier: Sequence[Stopped]) -> list[Stopped]:
        floors = halving_floors([s.curve for s in earlier], keep, after, higher_is_better=True)
        found = []
        for row in batch:
            curve = whole_curve(row)
            ends = [i for i, (share, value) in enumerate(curve) if _below(share, value, floors)]
            end = ends[0] if ends else len(curve) - 1
            found.append(Stopped(curve[: end + 1], curve[end][0]))
        return found

    return rule


def _below(share: float, value: float, floors: Sequence[tuple[float, float]]) -> bool:
    return any(abs(at - share) < 1e-6 and value < floor for at, floor in floors)


def brackets(batch: Sequence[Row], _: Sequence[Stopped]) -> list[Stopped]:
    """The better half of a batch goes on at each point."""
    curves = [whole_curve(row) for row in batch]
    ends = [0] * len(batch)
    alive = list(range(len(batch)))
    for point in range(1, max(map(len, curves))):
        ranked = sorted(alive, key=lambda i: (-curves[i][point - 1][1], i))
        alive = ranked[: max(1, len(ranked) // 2)]
        for i in alive:
            ends[i] = point
    return [
        Stopped(curve[: end + 1], curve[end][0]) for curve, end in zip(curves, ends, strict=True)
    ]


def extrapolated(stopped: Stopped, finished: Sequence[Stopped]) -> float:
    """The accuracy a stopped training is expected to end with: what finished ones gained after that point."""
    gains = [
        other.curve[-1][1] - value
        for other in finished
        for share, value in other.curve
        if abs(share - stopped.share) < 1e-6
    ]
    return stopped.curve[-1][1] + (float(np.mean(gains)) if gains and stopped.share < 1 else 0.0)


@dataclass(frozen=True)
class Scheduler:
    rule: Rule
    width: int = WIDTH


SCHEDULERS: dict[str, Scheduler] = {
    "to the end": Scheduler(full),
    "halving, best 1/2": Scheduler(halving(1 / 2)),
    "halving, best 1/3": Scheduler(halving(1 / 3)),
    "brackets of 16": Scheduler(brackets, 16),
}


def search(
    name: str,
    scheduler: Scheduler,
    seed: int,
    space: TableSpace,
    lattice: Lattice,
    top: np.ndarray[Any, Any],
    learn: bool,
) -> dict[str, float]:
    """Trainings begun and their cost until one of the top is trained to its end.

    ``learn``: a stopped training is told by what it is expected to end with, else by its last point.
    """
    policy = POLICIES[name].make(seed, space, lattice)
    trained: list[tuple[int, Stopped]] = []
    cost = lost = 0.0
    while True:
        finished = [s for _, s in trained if s.share == 1]
        values = [extrapolated(s, finished) if learn else s.curve[-1][1] for _, s in trained]
        rewards = by_accuracy(np.array(values))
        told = [(index, float(reward)) for (index, _), reward in zip(trained, rewards, strict=True)]
        chosen = policy.choose(space, History(told=told), min(scheduler.width, len(space)))
        if not chosen:
            break
        earlier = [s for _, s in trained]
        outcomes = scheduler.rule([space.rows[choice.index] for choice in chosen], earlier)
        batch = [(choice.index, s) for choice, s in zip(chosen, outcomes, strict=True)]
        trained += batch
        cost += sum(s.share for _, s in batch)
        lost += sum(bool(top[index]) and s.share < 1 for index, s in batch)
        if any(top[index] and s.share == 1 for index, s in batch):
            break
    return {"cost": cost, "begun": float(len(trained)), "lost": lost}


def compare(
    table: Table, seeds: int, policies: Sequence[str], schedulers: Sequence[str]
) -> list[dict[str, Any]]:
    """Every policy with every scheduler: means over the searches."""
    space = TableSpace(table.operators)
    lattice = Lattice(space)
    top = Goals(space.rows, table).top
    rows = []
    for policy in policies:
        for name in schedulers:
            scheduler = SCHEDULERS[name]
            for learn in (False, True) if scheduler.rule is not full else (False,):
                found = [
                    search(policy, scheduler, seed, space, lattice, top, learn)
                    for seed in range(seeds)
                ]
                costs = [one["cost"] for one in found]
                rows.append(
                    {
                        "policy": policy,
                        "scheduler": name,
                        "told": "extrapolated" if learn else "as stopped",
                        "cost": round(float(np.mean(costs)), 2),
                        "p10": round(float(np.percentile(costs, 10)), 2),
                        "p90": round(float(np.percentile(costs, 90)), 2),
                        "begun": round(float(np.mean([one["begun"] for one in found])), 1),
                        "top stopped": round(float(np.mean([one["lost"] for one in found])), 2),
                    }
                )
    return rows


def as_text(rows: Sequence[dict[str, Any]]) -> str:
    """The results as a table in Markdown."""
    lines = [
        "| policy | scheduler | a stopped one is told | whole trainings | begun | of the top stopped |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cost = f"{row['cost']:.1f} ({row['p10']:.1f} … {row['p90']:.1f})"
        lines.append(
            f"| {row['policy']} | {row['scheduler']} | {row['told']} | {cost} | {row['begun']:.1f} | "
            f"{row['top stopped']:.2f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200, help="searches of each pair")
    parser.add_argument(
        "--policies",
        nargs="*",
        default=["random", "evolution", "bayesian"],
        choices=list(POLICIES),
    )
    parser.add_argument(
        "--schedulers", nargs="*", default=list(SCHEDULERS), choices=list(SCHEDULERS)
    )
    parser.add_argument("--directory", type=Path, default=HERE, help="where the table is")
    parser.add_argument("--output", type=Path, help="fidelity.json goes here")
    arguments = parser.parse_args()

    table = read_table(arguments.directory)
    lacking = [row for row in table.operators if not row.curves.get(SEED)]
    if lacking:
        raise SystemExit(
            f"{len(lacking)} of {len(table.operators)} operators have no learning curve of seed {SEED}: "
            "python benchmarks/opbench/make.py train"
        )
    started = time.monotonic()
    rows = compare(table, arguments.seeds, arguments.policies, arguments.schedulers)
    print(as_text(rows))
    print(f"{arguments.seeds} searches of each, {time.monotonic() - started:.0f} s")
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        results = {
            "date": date.today().isoformat(),
            "machine": cpu_model(),
            "seeds": arguments.seeds,
            "rows": rows,
        }
        (arguments.output / "fidelity.json").write_text(json.dumps(results) + "\n")


if __name__ == "__main__":
    main()
