"""Policies beside each other: the same ranking, the same number of finalists, what they predict, take and reach."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import syno
from constructbench.cases import Case
from constructbench.operators import geomean
from syno import _core
from syno.kernels.construct import construct
from syno.machines.model import MachineModel, load_machine, machine_model

#: Nothing beside the policy: the numbers that it leads to are not moved.
_ALONE = {"refinements": 0}

#: The paper's graph and its parts, and what it has to beat: none falls back to the counted schedule. "default"
#: is what kernels get.
WAYS: dict[str, dict[str, Any]] = {
    "tree": {"policy": "tree", "counted": False, **_ALONE},
    "uniform": {"policy": "uniform", "counted": False, **_ALONE},
    "graph, no virtual threads": {"policy": "graph", "vthreads": False, "counted": False, **_ALONE},
    "graph": {"policy": "graph", "counted": False, **_ALONE},
    "all": {"policy": "all", "counted": False, **_ALONE},
    "counted": {"policy": "counted"},
    "default": {},
}
#: Ways that depend on the seed.
RANDOM = ("uniform", "graph, no virtual threads", "graph", "default")


def machines(names: Sequence[str]) -> dict[str, MachineModel]:
    """This machine's model as "here", and files of public figures that come with the package."""
    folder = Path(syno.__file__).parent / "machines"
    return {
        name: machine_model() if name == "here" else load_machine(folder / f"{name}.json")
        for name in names
    }


def compare(
    case: Case,
    models: Mapping[str, MachineModel],
    *,
    seeds: int,
    finalists: int,
    turns: int,
) -> dict[str, Any]:
    """One case under every policy.

    Args:
        turns: of the timing, on "here", of every schedule that some seed leads to; 0 for none.
    """
    operator = case.operator()
    row: dict[str, Any] = {
        "name": case.name,
        "scaled": case.scaled,
        "expr": operator.expr,
        "shapes": {name: list(shape) for name, shape in operator.shapes.items()},
        "flops": operator.flops,
        "predicted_us": {},
        "construct_ms": {},
    }
    here: dict[str, list[_core.Schedule]] = {}
    for machine, model in models.items():
        predicted: dict[str, list[float]] = {}
        took: dict[str, list[float]] = {}
        for name, options in WAYS.items():
            runs = [
                construct(
                    operator, machine=model, seed=s, finalists=finalists, explain=False, **options
                )
                for s in range(seeds if name in RANDOM else 1)
            ]
            predicted[name] = [made.predicted_s * 1e6 for made in runs]
            took[name] = [made.construct_ms for made in runs]
            if machine == "here":
                here[name] = [made.schedule for made in runs]
        row["predicted_us"][machine] = predicted
        row["construct_ms"][machine] = {n: statistics.median(ms) for n, ms in took.items()}
    if turns and here:
        row["us"] = timed(operator, here, turns)
    return row


def timed(
    operator: syno.Operator, schedules: Mapping[str, Sequence[_core.Schedule]], turns: int
) -> dict[str, list[float]]:
    """Median microseconds of each schedule, all in turns; equal ones are timed once.

    What counts is the processor time of the thread that calls, which runs the kernel alone: other processes
    that take turns on the core do not add to it, though they empty its caches.
    """
    generator = np.random.default_rng(0)
    arrays = [
        generator.standard_normal(operator.shapes[name], dtype=np.float32)
        for name in operator.inputs
    ]
    arrays.append(np.empty(operator.shapes[operator.outputs[0]], np.float32))
    pointers = [array.ctypes.data for array in arrays]
    functions: dict[str, Callable[[], Any]] = {}

    def call(kernel: _core.Kernel) -> Callable[[], None]:
        return lambda: kernel.call_pointers(pointers, 1)

    for schedule in (one for several in schedules.values() for one in several):
        text = str(schedule.text())
        if text not in functions:
            kernel = _core.compile_nest(_core.apply_schedule(operator.program, schedule))
            check = kernel.verify(operator.program)
            if not check.passed:
                raise SystemExit(f"{operator.expr}: error {check.max_rel_err:.1e}; {check.detail}")
            functions[text] = call(kernel)
    found = {name: statistics.median(times) for name, times in in_turns(functions, turns).items()}
    return {n: [found[str(one.text())] for one in several] for n, several in schedules.items()}


def in_turns(functions: Mapping[str, Callable[[], Any]], turns: int) -> dict[str, list[float]]:
    """Microseconds of a call in each turn, which is a millisecond of calls."""
    calls = {}
    for name, function in functions.items():
        function()
        start = time.thread_time_ns()
        function()
        calls[name] = max(1, 1_000_000 // max(1, time.thread_time_ns() - start))
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(turns):
        for name, function in functions.items():
            start = time.thread_time_ns()
            for _ in range(calls[name]):
                function()
            times[name].append((time.thread_time_ns() - start) / 1e3 / calls[name])
    return times


def _gain(rows: Sequence[Mapping[str, Mapping[str, Sequence[float]]]], a: str, b: str) -> float:
    """Time of `a` over time of `b`, the geomean over cases of the geomean over seeds."""
    return geomean([geomean(times[a]) / geomean(times[b]) for times in rows])


def _compared(rows: Sequence[Mapping[str, Mapping[str, Sequence[float]]]]) -> dict[str, Any]:
    speed = {name: _gain(rows, "tree", name) for name in WAYS}
    by_seed = [
        geomean([times["tree"][0] / times["graph"][seed] for times in rows])
        for seed in range(min(len(times["graph"]) for times in rows))
    ]
    graph = math.log(speed["graph, no virtual threads"])
    interleaving = math.log(speed["graph"]) - graph
    return {
        "speed_over_tree": speed,
        "graph_over_uniform": _gain(rows, "uniform", "graph"),
        "graph_over_all": _gain(rows, "all", "graph"),
        "graph_over_tree_by_seed": by_seed,
        # Of the gain over the tree, in logarithms, with the sign that each has; the paper (Table VI): 0.79, 0.21.
        "log_gain_of_graph": graph,
        "log_gain_of_interleaving": interleaving,
        "worst_graph_over_tree": min(geomean(t["tree"]) / geomean(t["graph"]) for t in rows),
    }


def summary_of(rows: Sequence[Mapping[str, Any]], groups: Mapping[str, Sequence[str]]) -> Any:
    """By group of cases: what is predicted on each machine, what was measured, and the time to construct."""
    made: dict[str, Any] = {}
    for group, names in groups.items():
        of = [row for row in rows if row["name"] in names]
        if not of:
            continue
        found: dict[str, Any] = {"cases": len(of)}
        for machine in of[0]["predicted_us"]:
            found[f"predicted, {machine}"] = _compared([row["predicted_us"][machine] for row in of])
        if all("us" in row for row in of):
            found["measured"] = _compared([row["us"] for row in of])
        found["construct_ms"] = {
            machine: {
                way: statistics.median(row["construct_ms"][machine][way] for row in of)
                for way in WAYS
            }
            for machine in of[0]["construct_ms"]
        }
        made[group] = found
    return made
