"""How many trainings each search policy needs on the table.

    python benchmarks/opbench/compare.py                  # 200 seeds each: results.json, curves.svg
    python benchmarks/opbench/compare.py --seeds 20       # a quick look

A search is told the accuracy of one training, of a seed drawn for it; it is judged by the mean over all
seeds of an operator. `--observe 0` or `1` tells the trainings of that seed only. `--absent 0.5` takes
another half of the operators out of the space for every search.

Three questions, each answered in trainings (the network's own operator is known from the start and free):
until an operator is among the best 2 % by mean, everything within one standard error of their edge counted
in; until one is within half a point of the best; and, with the reward of sessions (accuracy and latency),
until 90 % of the hypervolume of the true front is covered, against 1.2 times the original network's
latency and its accuracy less ten points.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from engine_tree import AUTHORS_EXPLORATION, EngineTree
from table import HERE, SEEDS, Row, Table, read_table
from tree import AuthorsTree, Lattice

from syno import _core
from syno.operators.features import Features, features
from syno.operators.operator import Operator
from syno.policies.bayesian import BayesianOptimization
from syno.policies.derivation import derivation
from syno.policies.evolution import Evolution
from syno.policies.front import hypervolume
from syno.policies.hypervolume import HypervolumeImprovement
from syno.policies.policy import History, Policy
from syno.policies.random_search import RandomSearch
from syno.policies.space import Matrix
from syno.support.machine import cpu_model

TOP_SHARE, NEAR_BEST, COVERED = 0.02, 0.005, 0.9
LATENCY_LIMIT, ACCURACY_DROP = 1.2, 0.10

#: How fast accuracy below the original's loses its worth, as in :class:`syno.session.rewards.QualityTimesSpeed`.
TOLERANCE = 0.03


class TableSpace:
    """Operators of the table, with their features, as policies see them."""

    def __init__(self, rows: Sequence[Row], known: dict[str, Features] | None = None) -> None:
        self.rows = list(rows)
        self._graphs = [_core.PGraph.parse(row.text) for row in self.rows]
        self._derivations = [derivation(graph) for graph in self._graphs]
        self.known = {} if known is None else known
        self._keys: list[str] | None = None

    @property
    def keys(self) -> list[str]:
        """Operator keys, computed anew: a table outlives a change of the keys."""
        if self._keys is None:
            self._keys = [Operator.from_pgraph(graph).canonical_hash for graph in self._graphs]
        return self._keys

    def __len__(self) -> int:
        return len(self.rows)

    def derivation(self, index: int) -> tuple[str, ...]:
        return self._derivations[index]

    def features(self, index: int) -> Features:
        key = self.rows[index].hash
        if key not in self.known:
            self.known[key] = features(self._graphs[index])
        return self.known[key]

    def vectors(self, indices: Sequence[int]) -> Matrix:
        return np.array([self.features(index).vector() for index in indices])


@dataclass(frozen=True)
class Policies:
    """A policy by its name in the results; ``width`` operators are chosen together."""

    make: Callable[[int, TableSpace, Lattice], Policy]
    width: int = 1
    everywhere: bool = True  # else in the first setting only


POLICIES: dict[str, Policies] = {
    "random": Policies(lambda seed, *_: RandomSearch(seed)),
    "authors' MCTS": Policies(lambda seed, _, lattice: AuthorsTree(seed, lattice)),
    "engine's MCTS": Policies(lambda seed, space, _: EngineTree(seed, space.keys, 1.0)),
    "engine's MCTS, 4√2": Policies(
        lambda seed, space, _: EngineTree(seed, space.keys, AUTHORS_EXPLORATION)
    ),
    "evolution": Policies(lambda seed, *_: Evolution(seed)),
    "bayesian": Policies(lambda seed, *_: BayesianOptimization(seed)),
    "hypervolume": Policies(lambda seed, *_: HypervolumeImprovement(seed)),
    "bayesian, batches of 4": Policies(lambda seed, *_: BayesianOptimization(seed), 4, False),
    "bayesian, no prior": Policies(
        lambda seed, *_: BayesianOptimization(seed, prior=0.0), everywhere=False
    ),
}


class Goals:
    """What a search is to reach among the operators that are there."""

    def __init__(self, rows: Sequence[Row], table: Table) -> None:
        means = np.array([row.accuracy for row in rows])
        order = np.argsort(-means, kind="stable")
        edge = rows[int(order[math.ceil(TOP_SHARE * len(rows)) - 1])]
        error = table.seed_std / math.sqrt(len(edge.scores))
        self.top = means >= edge.accuracy - error
        self.near_best = means >= means.max() - NEAR_BEST
        self.points = None
        if table.baseline.latency_us is not None and all(r.latency_us is not None for r in rows):
            self.points = _gains(means, rows, table)
            self.whole = hypervolume(self.points)


def first(reached: Sequence[bool], otherwise: int) -> int:
    """Trainings until the first is reached, counted from 1."""
    return next((i + 1 for i, yes in enumerate(reached) if yes), otherwise)


@dataclass(frozen=True)
class Setting:
    """Which trainings a search is told (``None``: of a seed drawn for each operator), and who is absent."""

    name: str
    observe: int | None = None
    absent: float = 0.0


SETTINGS = (
    Setting("either seed"),
    Setting("first seed", 0),
    Setting("second seed", 1),
    Setting("half absent", None, 0.5),
)


#: A search goes on for so many trainings after it has reached everything; its curve stays level from there.
LEAST = 40


def search(
    policy: Policies,
    seed: int,
    space: TableSpace,
    lattice: Lattice,
    rewards: np.ndarray[Any, Any],
    reached: Callable[[list[int]], bool],
    gains: np.ndarray[Any, Any] | None = None,
) -> list[int]:
    """The operators in the order a search trains them, until all is reached."""
    made = policy.make(seed, space, lattice)
    told: list[tuple[int, float]] = []
    most = len(space)
    while len(told) < most:
        if len(told) >= LEAST and reached([index for index, _ in told]):
            break
        known = {} if gains is None else {i: tuple(gains[i].tolist()) for i, _ in told}
        history = History(told=told, gains=known)
        chosen = made.choose(space, history, min(policy.width, most - len(told)))
        if not chosen:
            break
        told += [(choice.index, float(rewards[choice.index])) for choice in chosen]
    return [index for index, _ in told]


#: What is counted: trainings to the top and to near the best by accuracy; to the front's hypervolume and, in
#: the same searches, to the top by accuracy.
COUNTS = ("top", "near_best", "hypervolume", "front_top")

#: What searches are asked: the top and the best by accuracy, and the front of accuracy and latency.
QUESTIONS = ("accuracy", "front")


def compare(
    table: Table,
    setting: Setting,
    seeds: int,
    names: Sequence[str],
    questions: Sequence[str] = QUESTIONS,
) -> dict[str, Any]:
    """Every policy's searches in one setting."""
    known: dict[str, Features] = {}
    complete = TableSpace([row for row in table.operators if row.scores], known)
    whole = Lattice(complete)
    found: dict[str, dict[str, list[Any]]] = {
        name: {key: [] for key in (*COUNTS, "curve", "front")} for name in names
    }
    goals_of: list[Goals] = []
    for seed in range(seeds):
        random = np.random.default_rng([seed, 77])
        space, lattice = complete, whole
        if setting.absent:
            keep = random.permutation(len(complete))[round(setting.absent * len(complete)) :]
            space = TableSpace([complete.rows[int(i)] for i in sorted(keep)], known)
            lattice = Lattice(space)
        goals = Goals(space.rows, table)
        goals_of.append(goals)
        accuracy = np.array([_observed(row, setting, random) for row in space.rows])
        means = np.array([row.accuracy for row in space.rows])
        for name in names:
            most = len(space)
            policy, into = POLICIES[name], found[name]

            def both(order: list[int], goals: Goals = goals) -> bool:
                return bool(goals.top[order].any() and goals.near_best[order].any())

            if "accuracy" in questions:
                order = search(policy, seed, space, lattice, by_accuracy(accuracy), both)
                into["top"].append(first(goals.top[order], most))
                into["near_best"].append(first(goals.near_best[order], most))
                into["curve"].append(_level(np.maximum.accumulate(means[order]).tolist()))
            if goals.points is not None and "front" in questions:
                rewards = _by_session(accuracy, space.rows, table)

                def enough(order: list[int], goals: Goals = goals) -> bool:
                    assert goals.points is not None
                    return hypervolume(goals.points[order]) >= COVERED * goals.whole

                gains = _gains(accuracy, space.rows, table)
                order = search(policy, seed, space, lattice, rewards, enough, gains)
                into["front_top"].append(first(goals.top[order], most))
                covered = _coverage(goals, order)
                into["front"].append(_level(covered))
                into["hypervolume"].append(first([c >= COVERED for c in covered], most))
    goals = goals_of[0]
    return {
        "operators": len(goals.top),
        "top": int(goals.top.sum()),
        "near_best": int(goals.near_best.sum()),
        "policies": {name: _summary(rows) for name, rows in found.items()},
    }


CURVE = 120  # trainings that the curves show


def _level(values: list[float]) -> list[float]:
    """A curve of ``CURVE`` points; it stays level where the search ended earlier."""
    return (values + [values[-1]] * CURVE)[:CURVE]


def _observed(row: Row, setting: Setting, random: np.random.Generator) -> float:
    seed = setting.observe
    if seed is None:
        there = [s for s in SEEDS if s in row.scores]
        seed = there[int(random.integers(len(there)))]
    return row.scores[seed if seed in row.scores else min(row.scores)]


def by_accuracy(accuracy: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rewards in 0 … 1: accuracy above chance, squared, as the authors' search does."""
    return np.asarray(((accuracy - 0.1) / 0.9).clip(0) ** 2)


def _by_session(
    accuracy: np.ndarray[Any, Any], rows: Sequence[Row], table: Table
) -> np.ndarray[Any, Any]:
    """Rewards of a session with its default settings."""
    assert table.baseline.latency_us is not None
    drop = np.maximum(0.0, table.baseline.accuracy - accuracy)
    latency = np.array([row.latency_us for row in rows], dtype=float)
    speed = table.baseline.latency_us / (table.baseline.latency_us + latency)
    return np.asarray(np.exp(-drop / TOLERANCE) * speed)


def _gains(
    accuracy: np.ndarray[Any, Any], rows: Sequence[Row], table: Table
) -> np.ndarray[Any, Any]:
    """Quality and speed above the limits of the front's question, ``[n, 2]``, as a session tells them."""
    assert table.baseline.latency_us is not None
    latency = np.array([row.latency_us for row in rows], dtype=float)
    floor = table.baseline.accuracy - ACCURACY_DROP
    return np.stack(
        [accuracy - floor, 1 - latency / (LATENCY_LIMIT * table.baseline.latency_us)], axis=1
    )


def _coverage(goals: Goals, order: Sequence[int]) -> list[float]:
    """Share of the front's hypervolume after each training."""
    assert goals.points is not None
    shares, area = [], 0.0
    kept = np.zeros((0, 2))
    for index in order:
        point = goals.points[index]
        if not (kept >= point).all(axis=1).any():
            kept = np.vstack([kept[~(kept <= point).all(axis=1)], point])
            area = hypervolume(kept)
        shares.append(area / goals.whole)
    return shares


def _summary(rows: dict[str, list[Any]]) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for name in COUNTS:
        values = rows[name]
        if values:
            low, middle, high = np.percentile(values, [10, 50, 90])
            summary[name] = {
                "mean": round(float(np.mean(values)), 2),
                "median": float(middle),
                "p10": float(low),
                "p90": float(high),
                "stderr": round(float(np.std(values) / math.sqrt(len(values))), 2),
            }
    for name in ("curve", "front"):
        if rows[name]:
            bands = np.percentile(np.array(rows[name]), [10, 50, 90], axis=0)
            summary[name] = [[round(float(v), 5) for v in band] for band in bands]
    return summary


def draw(results: dict[str, Any], path: Path) -> None:
    """Best accuracy so far and share of the front, medians with bands from the 10th to the 90th percentile."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    setting = results["settings"][SETTINGS[0].name]["policies"]
    panels = [("curve", "best mean accuracy so far"), ("front", "share of the front's hypervolume")]
    panels = [panel for panel in panels if any(panel[0] in row for row in setting.values())]
    figure, axes = plt.subplots(1, len(panels), figsize=(6 * len(panels), 4), squeeze=False)
    for axis, (key, label) in zip(axes[0], panels, strict=True):
        for name, row in setting.items():
            low, middle, high = row[key]
            at = range(1, len(middle) + 1)
            (line,) = axis.plot(at, middle, label=name, linewidth=1.5)
            axis.fill_between(at, low, high, color=line.get_color(), alpha=0.12, linewidth=0)
        axis.set_xlabel("trainings")
        axis.set_ylabel(label)
        axis.set_xscale("log")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def as_text(results: dict[str, Any]) -> str:
    """The results as a table in Markdown: mean trainings, 10th and 90th percentile."""
    lines = []
    for name, setting in results["settings"].items():
        lines += [
            "",
            f"**{name}** ({setting['operators']} operators, {setting['top']} count as top 2 %, "
            f"{setting['near_best']} within half a point of the best)",
            "",
            "| policy | top 2 % | within 0.5 % of the best | 90 % of the hypervolume | top 2 % meanwhile |",
            "|---|---|---|---|---|",
        ]
        for policy, row in setting["policies"].items():
            cells = [
                f"{v['mean']:.1f} ({v['p10']:.0f} … {v['p90']:.0f})" if (v := row.get(key)) else "–"
                for key in COUNTS
            ]
            lines.append(f"| {policy} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200, help="searches of each policy")
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), choices=list(POLICIES))
    parser.add_argument("--settings", nargs="*", default=[s.name for s in SETTINGS])
    parser.add_argument("--questions", nargs="*", default=list(QUESTIONS), choices=QUESTIONS)
    parser.add_argument("--directory", type=Path, default=HERE, help="where the table is")
    parser.add_argument("--output", type=Path, help="results.json and curves.svg go here")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    arguments = parser.parse_args()

    table = read_table(arguments.directory)
    missing = table.missing()
    started = time.monotonic()
    results: dict[str, Any] = {
        "date": date.today().isoformat(),
        "machine": cpu_model(),
        "seeds": arguments.seeds,
        "missing": missing,
        "settings": {
            setting.name: compare(
                table,
                setting,
                arguments.seeds,
                [
                    name
                    for name in arguments.policies
                    if POLICIES[name].everywhere or setting == SETTINGS[0]
                ],
                arguments.questions,
            )
            for setting in SETTINGS
            if setting.name in arguments.settings
        },
    }
    results["seconds"] = round(time.monotonic() - started, 1)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "results.json").write_text(json.dumps(results) + "\n")
        if SETTINGS[0].name in results["settings"]:
            draw(results, arguments.output / "curves.svg")
    if arguments.json:
        print(json.dumps(results))
    else:
        print(as_text(results))
        print("\n".join(["", *(f"missing: {sentence}" for sentence in missing)]))
        print(f"{arguments.seeds} searches of each policy, {results['seconds']:.0f} s")


if __name__ == "__main__":
    main()
