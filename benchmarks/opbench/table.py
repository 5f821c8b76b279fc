"""Reading the table: operators, their trainings and latencies, and what is missing.

>>> table = read_table()                                    # doctest: +SKIP
>>> table.operators[0].accuracy, table.operators[0].latency_us   # doctest: +SKIP
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from syno.errors import FormatError

HERE = Path(__file__).resolve().parent

#: Two seeds for every operator, five for the best tenth.
SEEDS = (0, 1)
MORE_SEEDS = (2, 3, 4)


@dataclass
class Row:
    """One operator of the table.

    Attributes:
        hash: operator key; ``text`` is the pGraph, ``expr`` the formula.
        flops, params: multiply-adds and weight elements, summed over the valuations.
        scores: accuracy on the validation images by seed, in 0 … 1; ``curves`` the accuracy on a quarter of
            them by share of the training done, by seed.
        cpu_s: of each training, by seed.
        rounds: latencies of the whole network at batch 1 on one thread with native kernels, microseconds, one
            of each round of measuring.
    """

    hash: str
    text: str
    expr: str
    steps: int
    flops: int
    params: int
    scores: dict[int, float] = field(default_factory=dict)
    curves: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    cpu_s: dict[int, float] = field(default_factory=dict)
    rounds: list[float] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.scores.values())

    @property
    def latency_us(self) -> float | None:
        """Median over the rounds; ``None`` if not timed."""
        return statistics.median(self.rounds) if self.rounds else None

    @property
    def spread(self) -> float:
        """Sample standard deviation over the seeds; NaN with one."""
        return statistics.stdev(self.scores.values()) if len(self.scores) > 1 else math.nan


@dataclass
class Table:
    """The operators in the order of the space, and the original network as ``baseline``."""

    operators: list[Row]
    baseline: Row

    @property
    def seed_std(self) -> float:
        """Standard deviation of one training over seeds, pooled over the operators."""
        squares, freedom = 0.0, 0
        for row in self.operators:
            if len(row.scores) > 1:
                squares += statistics.variance(row.scores.values()) * (len(row.scores) - 1)
                freedom += len(row.scores) - 1
        return math.sqrt(squares / freedom) if freedom else math.nan

    def missing(self, seeds: Sequence[int] = SEEDS) -> list[str]:
        """One sentence for each kind of thing the table does not have yet."""
        rows = [self.baseline, *self.operators]
        found = []
        for seed in seeds:
            lacking = [row for row in rows if seed not in row.scores]
            if lacking:
                found.append(
                    f"{len(lacking)} of {len(rows)} rows have no training with seed {seed}: "
                    "python benchmarks/opbench/make.py train"
                )
        untimed = [row for row in rows if row.latency_us is None]
        if untimed:
            found.append(
                f"{len(untimed)} of {len(rows)} rows have no latency: "
                "python benchmarks/opbench/make.py latency"
            )
        return found


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON-lines file. An unfinished last line, of a job that was stopped, is left out.

    Raises:
        FormatError: the file is missing, or another line is damaged.
    """
    if not path.exists():
        raise FormatError(
            f"[opbench] {path} is missing; python benchmarks/opbench/make.py makes it"
        )
    lines = path.read_text().split("\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                return
            raise FormatError(f"[opbench] {path}, line {number}: {error}") from error
        if not isinstance(value, dict):
            raise FormatError(f"[opbench] {path}, line {number} is no object")
        yield value


def read_table(directory: Path = HERE, recipe: str = "table") -> Table:
    """The table as far as it is made; :meth:`Table.missing` says what is not.

    Raises:
        FormatError: a file is missing or damaged, or names an operator that is not in ``operators.jsonl``.
    """
    rows: dict[str, Row] = {}
    for number, line in enumerate(read_lines(directory / "operators.jsonl"), start=1):
        try:
            row = Row(**{name: line[name] for name in _COLUMNS})
        except KeyError as error:
            raise FormatError(f"[opbench] operators.jsonl, line {number} has no {error}") from None
        rows[row.hash] = row
    rows["baseline"] = Row("baseline", "", "the network's own convolutions", 0, 0, 0)
    trainings = directory / "trainings.jsonl"
    for line in read_lines(trainings) if trainings.exists() else ():
        if line.get("recipe") == recipe:
            row = _known(rows, line, "trainings.jsonl")
            row.scores[line["seed"]] = line["accuracy"]
            row.cpu_s[line["seed"]] = line["cpu_s"]
            row.curves[line["seed"]] = [(share, value) for share, value in line["curve"]]
    latencies = directory / "latencies.jsonl"
    rounds: dict[int, list[tuple[Row, float]]] = {}
    for line in read_lines(latencies) if latencies.exists() else ():
        timed = (_known(rows, line, "latencies.jsonl"), line["latency_us"])
        rounds.setdefault(line["round"], []).append(timed)
    # Rounds differ in level: one that is not finished says nothing about those it lacks.
    whole = [timed for timed in rounds.values() if len(timed) == len(rows)]
    for row, latency in (pair for timed in whole or list(rounds.values())[:1] for pair in timed):
        row.rounds.append(latency)
    baseline = rows.pop("baseline")
    return Table(list(rows.values()), baseline)


_COLUMNS = ("hash", "text", "expr", "steps", "flops", "params")


def _known(rows: dict[str, Row], line: dict[str, Any], name: str) -> Row:
    try:
        return rows[line["operator"]]
    except KeyError:
        raise FormatError(
            f"[opbench] {name} has a row of operator {line.get('operator')!r}, "
            "which operators.jsonl does not list"
        ) from None
