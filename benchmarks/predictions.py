"""What the machine model says of schedules beside what they take: its order within one operator, and its error.

    python benchmarks/predictions.py --json
    python benchmarks/predictions.py --classes dense memory --samples 80
    python benchmarks/predictions.py --programs mine.json

For each operator, schedules are drawn at random from the space that a search draws from, beside what it begins with;
those that are predicted to take more than `--within` times the least are left out. All are measured in one run. By operator: Spearman's rank correlation; by how much the fastest
of the five that are predicted to be best is slower than the fastest of all; the same of the first alone. By class: the
median and the tenth (ninetieth) percentile of these over operators, and of |log(predicted / measured)| over schedules.
What is packed once is part of the call here. `--programs FILE` reads a JSON list of programs' texts instead.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from kernelbench.cases import CLASSES

from syno import _core
from syno.errors import ShapeError, SynoError, unknown_name
from syno.machines.model import MachineModel, describe, machine_model
from syno.support.machine import describe_machine
from syno.tuning.search import default_options

#: Schedules that are looked at, whatever the model says of them.
_LEAST = 8


def programs_of(options: argparse.Namespace) -> dict[str, list[tuple[str, _core.Program]]]:
    """Concrete programs by class, each with a name. Raises SynoError for a bad file or name."""
    if options.programs is not None:
        try:
            texts = msgspec.json.decode(options.programs.read_bytes(), type=list[str])
        except (OSError, msgspec.DecodeError) as error:
            raise ShapeError(
                f"[predictions] {options.programs}: {error}; a JSON list of programs' texts is read"
            ) from error
        return {"file": [(f"program {i}", _core.Program.parse(t)) for i, t in enumerate(texts)]}
    for name in options.classes:
        if name not in CLASSES:
            raise unknown_name("class", name, CLASSES)
    found: dict[str, list[tuple[str, _core.Program]]] = {}
    for name in options.classes or CLASSES:
        for case in CLASSES[name]():
            if case.training or case.strides or case.dtype != "float32":
                continue
            program = case.operator._one_valuation("schedules").program
            found.setdefault(name, []).append((case.name, program))
    return found


def drawn(program: _core.Program, machine: MachineModel, options: argparse.Namespace) -> list[Any]:
    """Different candidates, the least predicted time first; the same ones whenever they are asked for."""
    space = _core.ScheduleSpace(program, machine, threads=options.threads)
    found: dict[str, Any] = {}
    for start in space.starts():
        found.setdefault(str(start.schedule.text()), start)
    for seed in range(4 * options.samples):
        if len(found) >= options.samples:
            break
        candidate = space.sample(seed)
        if candidate is not None:
            found.setdefault(str(candidate.schedule.text()), candidate)
    ordered = sorted(found.values(), key=lambda c: (c.predicted_s, str(c.schedule.text())))
    most = options.within * ordered[0].predicted_s
    return [c for i, c in enumerate(ordered) if i < _LEAST or c.predicted_s <= most]


def rank_correlation(a: list[float], b: list[float]) -> float:
    """Spearman's; equal values share their ranks' mean. 0 where all of one are equal."""

    def ranks(values: list[float]) -> np.ndarray:
        order = np.argsort(values, kind="stable")
        made = np.empty(len(values))
        made[order] = np.arange(len(values))
        _, where = np.unique(values, return_inverse=True)
        return np.asarray(np.bincount(where, made) / np.bincount(where))[where]

    x, y = ranks(a), ranks(b)
    if x.std() == 0 or y.std() == 0:
        return 0.0
    return float(np.corrcoef(x, y)[0, 1])


def judged(name: str, predicted: list[float], measured: list[float]) -> dict[str, Any]:
    """What one operator's schedules say, in the order of their predictions."""
    least = min(measured)
    return {
        "name": name,
        "schedules": len(measured),
        "rank_correlation": rank_correlation(predicted, measured),
        "best_of_five": min(measured[:5]) / least,
        "first": measured[0] / least,
        "predicted_us": [1e6 * s for s in predicted],
        "measured_us": [1e6 * s for s in measured],
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Over operators, and over schedules for the errors."""

    def quantile(key: str, q: float) -> float:
        return float(np.quantile([row[key] for row in rows], q))

    errors = [
        abs(math.log(p / m))
        for row in rows
        for p, m in zip(row["predicted_us"], row["measured_us"], strict=True)
    ]
    return {
        "operators": len(rows),
        "schedules": len(errors),
        "rank_correlation_median": quantile("rank_correlation", 0.5),
        "rank_correlation_p10": quantile("rank_correlation", 0.1),
        "best_of_five_median": quantile("best_of_five", 0.5),
        "best_of_five_p90": quantile("best_of_five", 0.9),
        "first_geomean": float(np.exp(np.mean([math.log(row["first"]) for row in rows]))),
        "error_median": float(np.quantile(errors, 0.5)),
        "error_p90": float(np.quantile(errors, 0.9)),
    }


def line(name: str, of: dict[str, float]) -> str:
    """One class, for people."""
    return (
        f"{name:12} {of['operators']:4.0f} operators {of['schedules']:6.0f} schedules  rank {of['rank_correlation_median']:5.2f}"
        f" (p10 {of['rank_correlation_p10']:5.2f})  best of five {of['best_of_five_median']:.3f}"
        f" (p90 {of['best_of_five_p90']:.3f})  first {of['first_geomean']:.3f}"
        f"  |log error| {of['error_median']:.2f} (p90 {of['error_p90']:.2f})"
    )


def arguments() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--programs", type=Path, metavar="FILE", help="instead of the built-in cases"
    )
    parser.add_argument("--classes", nargs="*", default=[], help=f"of {', '.join(CLASSES)}")
    parser.add_argument("--samples", type=int, default=50, help="schedules of each; at least 8")
    parser.add_argument("--within", type=float, default=10.0, help="of the least predicted time")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser


def main() -> int:
    """Prints a table, or one JSON document with `--json`."""
    options = arguments().parse_args()
    logging.basicConfig(format="%(message)s")
    try:
        if options.samples < _LEAST or options.threads < 1 or not options.within >= 1:
            raise ShapeError(
                f"[predictions] --samples must be at least {_LEAST}, --threads and --within at least 1"
            )
        chosen = programs_of(options)
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    machine = machine_model(measure=True)
    timing = default_options(options.threads, False)
    classes: dict[str, list[dict[str, Any]]] = {}
    for klass, programs in chosen.items():
        for name, program in programs:
            candidates = drawn(program, machine, options)
            taken = _core.measure_schedules(program, [c.schedule for c in candidates], timing)
            pairs = [
                (c.predicted_s, t.median_s)
                for c, t in zip(candidates, taken, strict=True)
                if t.median_s > 0  # else no kernel could be made of it
            ]
            if len(pairs) < _LEAST:
                continue
            row = judged(name, [p for p, _ in pairs], [m for _, m in pairs])
            classes.setdefault(klass, []).append(row)
        if not options.json and klass in classes:
            print(line(klass, summary(classes[klass])), flush=True)
    every = [row for rows in classes.values() for row in rows]
    if not every:
        print(f"[predictions] no operator has {_LEAST} schedules that differ", file=sys.stderr)
        return 1
    document = {
        "machine": {**msgspec.to_builtins(describe_machine()), "model": describe(machine)},
        "command": "python benchmarks/predictions.py " + " ".join(sys.argv[1:]),
        "threads": options.threads,
        "classes": {name: summary(rows) for name, rows in classes.items()},
        "all": summary(every),
        "operators": classes,
    }
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        print(line("all", summary(every)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
