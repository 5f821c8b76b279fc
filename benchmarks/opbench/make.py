"""Makes the table, and continues it where it stopped.

    python benchmarks/opbench/make.py operators   # every distinct operator of the space: operators.jsonl, spec.json
    python benchmarks/opbench/make.py train       # every seed that is missing: trainings.jsonl
    python benchmarks/opbench/make.py check       # 40 operators five times longer: does the recipe rank?
    python benchmarks/opbench/make.py latency     # latencies.jsonl
    python benchmarks/opbench/make.py show        # what there is, what is missing

Each row is written when it is finished; stop and start as you like.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
from proxy import DISABLED_RULES, RECIPES, SITES, SPACE, THRESHOLDS, task
from table import HERE, MORE_SEEDS, SEEDS, Row, Table, read_lines, read_table

from syno.tuning.cost_model import rank_correlation

#: Operators whose emitted PyTorch form needs longer for one batch are trained on native kernels: the same
#: function up to rounding.
SLOW_STEP_S = 0.02

SAMPLE = 40  # operators trained longer, to see whether the recipe ranks


def write_operators(directory: Path) -> None:
    """Every distinct operator of the space, by steps; the space itself as ``spec.json``."""
    from syno import _core
    from syno.operators.operator import Operator
    from syno.torch import sites

    network = task()
    found = sites(network.make_model(0), network.example(1), repeats=1)
    group = next(group for group in found.groups() if group.key == SITES)
    document = {
        **json.loads(group.to_json(**SPACE, extensions=())),
        "thresholds": THRESHOLDS,
        "disabled_rules": DISABLED_RULES,
    }
    spec = _core.Spec.from_json(json.dumps(document))
    result = _core.enumerate_operators(spec, max_steps=SPACE["max_steps"])
    (directory / "spec.json").write_text(json.dumps(document, indent=1) + "\n")
    with (directory / "operators.jsonl").open("w") as file:
        for graph, steps in zip(result.operators, result.steps, strict=True):
            operator = Operator.from_pgraph(graph)
            row = {
                "hash": operator.canonical_hash,
                "expr": operator.expr,
                "steps": int(steps),
                "flops": operator.flops,
                "params": operator.params,
                "text": graph.text(),
            }
            file.write(json.dumps(row) + "\n")
    print(f"{len(result)} operators")


class Trainer:
    """Trains operators in the proxy network and appends a row for each."""

    def __init__(self, directory: Path, recipe: str) -> None:
        from syno.searching.network import NetworkEvaluator
        from syno.torch import sites

        self.recipe = recipe
        self.path = directory / "trainings.jsonl"
        self.task = task(recipe=recipe)
        found = sites(self.task.make_model(0), self.task.example(1), repeats=1)
        group = next(group for group in found.groups() if group.key == SITES)
        self.stage = {"sites": [site.name for site in group.sites]}
        # One learning curve an operator is enough.
        self.evaluators = {
            (native, curve): NetworkEvaluator(
                self.task if curve else self.task.but(evaluations=0),
                stages=self.stage,
                native=native,
            )
            for native in (False, True)
            for curve in (False, True)
        }
        self.done = set()
        if self.path.exists():
            _end_line(self.path)
            for line in read_lines(self.path):
                self.done.add((line["operator"], line["recipe"], line["seed"]))

    def train(self, row: Row, seed: int) -> bool:
        """One training; False when the row exists."""
        from syno import _core
        from syno.searching.proposers import operator_text
        from syno.session.protocols import TrainRequest

        if (row.hash, self.recipe, seed) in self.done:
            return False
        assignment = {}
        if row.hash != "baseline":
            assignment["sites"] = operator_text(_core.PGraph.parse(row.text))
        native = bool(assignment) and self._step_s(assignment) > SLOW_STEP_S
        request = TrainRequest(
            candidate=0,
            assignment=assignment,
            seed=seed,
            part="validation",
            threads=1,
            time_limit_s=600.0,
        )
        started = time.process_time()
        result = self.evaluators[native, seed == SEEDS[0]].evaluate(
            request, lambda step, **metrics: None
        )
        line = {
            "operator": row.hash,
            "recipe": self.recipe,
            "seed": seed,
            # A training whose loss became infinite knows nothing: one class in ten.
            "accuracy": result.value if math.isfinite(result.value) else 0.1,
            "state": result.state,
            "loss": round(result.metrics.get("loss", math.nan), 5),
            "curve": [
                [round(point.step / result.total_steps, 4), round(point.metrics["accuracy"], 5)]
                for point in result.curve[:-1]
            ],
            "native": native,
            "cpu_s": round(time.process_time() - started, 3),
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self.done.add((row.hash, self.recipe, seed))
        return True

    def _step_s(self, assignment: dict[str, Any]) -> float:
        """CPU time of one step with emitted PyTorch functions."""
        model = self.evaluators[False, False].build(assignment, 0).train()
        used = []
        for (inputs, targets), _ in zip(self.task.batches("train", 0), range(4), strict=False):
            started = time.process_time()
            self.task.loss_function(model(inputs), targets).backward()
            used.append(time.process_time() - started)
        return min(used[1:])


def _end_line(path: Path) -> None:
    """Cuts an unfinished last line off."""
    text = path.read_bytes()
    if text and not text.endswith(b"\n"):
        path.write_bytes(text[: text.rfind(b"\n") + 1])


def train_all(directory: Path) -> None:
    """Seeds 0 and 1 of every operator, then three more of the best tenth."""
    trainer = Trainer(directory, "table")
    started, count = time.monotonic(), 0
    for seed in SEEDS:
        table = read_table(directory)
        for row in [table.baseline, *_shuffled(table.operators)]:
            count += trainer.train(row, seed)
            if count and count % 20 == 0:
                print(
                    f"seed {seed}: {count} trained in {time.monotonic() - started:.0f} s",
                    flush=True,
                )
    table = read_table(directory)
    for row in [table.baseline, *best_tenth(table)]:
        for seed in MORE_SEEDS:
            trainer.train(row, seed)


def best_tenth(table: Table) -> list[Row]:
    """The tenth of the operators with the greatest mean over the seeds that all have."""
    ranked = sorted(
        table.operators, key=lambda r: -sum(r.scores[s] for s in SEEDS if s in r.scores)
    )
    return ranked[: math.ceil(len(ranked) / 10)]


def _shuffled(rows: list[Row]) -> list[Row]:
    """Any part of an unfinished table is a sample of all of it."""
    rows = sorted(rows, key=lambda row: row.hash)
    random.Random(0).shuffle(rows)
    return rows


def check(directory: Path) -> None:
    """Trains 40 operators five times longer and prints the rank correlation."""
    trainer = Trainer(directory, "long")
    rows = _shuffled(read_table(directory, "long").operators)
    rows.sort(key=lambda row: not row.scores)  # those that are trained already, first
    for row in [read_table(directory).baseline, *rows[:SAMPLE]]:
        trainer.train(row, 0)
    print(json.dumps(ranking(directory), indent=1))


def ranking(directory: Path) -> dict[str, Any]:
    """Spearman's rank correlation of the table's accuracies with those of the longer trainings."""
    short, long = read_table(directory), read_table(directory, "long")
    rows = [
        (a, b)
        for a, b in zip(short.operators, long.operators, strict=True)
        if b.scores and all(seed in a.scores for seed in SEEDS)
    ]
    if len(rows) < 3:
        return {"operators": len(rows)}
    last = np.array([b.accuracy for _, b in rows])
    report: dict[str, Any] = {"operators": len(rows), "examples": RECIPES["long"].examples}
    for seed in SEEDS:
        values = np.array([a.scores[seed] for a, _ in rows])
        report[f"spearman, seed {seed}"] = round(rank_correlation(values, last), 3)
    mean = np.array([np.mean([a.scores[s] for s in SEEDS]) for a, _ in rows])
    report["spearman, mean of two seeds"] = round(rank_correlation(mean, last), 3)
    return report


def latency(directory: Path) -> None:
    """Times the network with every operator's verified native kernels: batch 1, one thread, three rounds.

    CPU time of the calling thread, call by call, and of these the 10th percentile: the calls that what else
    the machine does disturbed least. Rounds are far apart, so that their agreement says what a number is worth.
    """
    import torch

    from syno import _core
    from syno.searching.proposers import operator_text

    torch.set_num_threads(1)
    trainer = Trainer(directory, "table")
    example = trainer.task.example(1)
    path = directory / "latencies.jsonl"
    done = set()
    if path.exists():
        _end_line(path)
        done = {(line["operator"], line["round"]) for line in read_lines(path)}
    table = read_table(directory)
    for turn in range(ROUNDS):
        for row in [table.baseline, *table.operators]:
            if (row.hash, turn) in done:
                continue
            assignment = {}
            if row.hash != "baseline":
                assignment["sites"] = operator_text(_core.PGraph.parse(row.text))
            model = trainer.evaluators[True, False].build(assignment, 0).eval()
            with torch.inference_mode():
                times = np.array([_cpu_us(model, example) for _ in range(CALLS)])[CALLS // 10 :]
            least, low, middle, high = np.percentile(times, [10, 25, 50, 75])
            line = {
                "operator": row.hash,
                "round": turn,
                "latency_us": round(float(least), 2),
                "median_us": round(float(middle), 2),
                "iqr_us": round(float(high - low), 2),
            }
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")


ROUNDS, CALLS = 3, 200


def _cpu_us(model: Any, example: Any) -> float:
    started = time.thread_time_ns()
    model(example)
    return (time.thread_time_ns() - started) / 1e3


def show(directory: Path) -> None:
    """A summary, and what is missing."""
    table = read_table(directory)
    trained = [row for row in table.operators if row.scores]
    print(f"{len(table.operators)} operators, {len(trained)} trained")
    if trained:
        scores = sorted(row.accuracy for row in trained)
        print(
            f"accuracy {scores[0]:.3f} … {scores[-1]:.3f}, median {scores[len(scores) // 2]:.3f}; "
            f"standard deviation over seeds {table.seed_std:.4f}"
        )
        cpu = sum(s for row in [table.baseline, *table.operators] for s in row.cpu_s.values())
        print(f"{cpu / 60:.1f} CPU minutes of training")
    if table.baseline.scores:
        print(f"the original: {table.baseline.accuracy:.3f}")
    print(json.dumps(ranking(directory)))
    for sentence in table.missing():
        print(sentence)


COMMANDS = {
    "operators": write_operators,
    "train": train_all,
    "check": check,
    "latency": latency,
    "show": show,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--directory", type=Path, default=HERE, help="where the table is")
    arguments = parser.parse_args()
    COMMANDS[arguments.command](arguments.directory)


if __name__ == "__main__":
    main()
