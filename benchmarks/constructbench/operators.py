"""One operator under every way to construct its schedule, timed in turns; the search's gap on top."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from constructbench.cases import Case
from syno import _core
from syno.kernels.construct import construct
from syno.machines.model import machine_model
from syno.timing.bench import measure
from syno.tuning.search import tune

#: Nothing beside the policy: the numbers that it leads to are not moved.
_ALONE = {"refinements": 0}

#: Ways to construct, by name. All but the last two take the construction as it comes; "constructed" is
#: what kernels get: the counted schedule stays where nothing is predicted to be better.
METHODS: dict[str, dict[str, Any]] = {
    "tree": {"policy": "tree", "counted": False, **_ALONE},
    "graph, no virtual threads": {"vthreads": False, "counted": False, **_ALONE},
    "graph, no annealing": {"annealing": False, "counted": False, **_ALONE},
    "graph, formula (1) as printed": {"printed": True, "counted": False, **_ALONE},
    "graph": {"counted": False, **_ALONE},
    "counted": {"policy": "counted"},
    "constructed": {},
}


def _runner(kernel: _core.Kernel, pointers: Sequence[int]) -> Callable[[], None]:
    return lambda: kernel.call_pointers(pointers, 1)


def run_case(
    case: Case,
    *,
    turns: int,
    trials: int,
    seed: int,
    peers: bool,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Constructs, verifies and times one operator.

    Args:
        turns: of the timing; trials: of the thorough search, 0 for none; seconds: after which it ends.
        peers: time PyTorch's own matrix product beside it.
    """
    operator = case.operator()
    program = operator.program
    schedules, construct_ms, predicted_us = {}, {}, {}
    for name, options in METHODS.items():
        runs = [construct(operator, seed=seed, **options) for _ in range(3)]
        schedules[name] = runs[0].schedule
        construct_ms[name] = statistics.median(made.construct_ms for made in runs)
        predicted_us[name] = runs[0].predicted_s * 1e6
    distinct: dict[str, str] = {}  # schedule text -> the first method that gave it
    for name, schedule in schedules.items():
        distinct.setdefault(str(schedule.text()), name)
    generator = np.random.default_rng(0)
    inputs = [
        generator.standard_normal(operator.shapes[name], dtype=np.float32)
        for name in operator.inputs
    ]
    outputs = [np.empty(operator.shapes[name], np.float32) for name in operator.outputs]
    pointers = [array.ctypes.data for array in (*inputs, *outputs)]
    functions: dict[str, Callable[[], Any]] = {}
    errors: dict[str, float] = {}
    for name in distinct.values():
        nest = _core.apply_schedule(program, schedules[name])
        kernel = _core.compile_nest(nest)
        check = kernel.verify(program)
        if not check.passed:
            raise SystemExit(f"{case.name}, {name}: error {check.max_rel_err:.1e}; {check.detail}")
        errors[name] = check.max_rel_err
        functions[name] = _runner(kernel, pointers)
    if peers:
        functions["eager"] = _eager(inputs, outputs[0])
    timings = {t.name: t for t in measure(functions, turns=turns, timeout_s=40)}
    of = {name: distinct[str(schedule.text())] for name, schedule in schedules.items()}
    us = {name: timings[same].median_us for name, same in of.items()}
    spread = {name: timings[same].iqr_us for name, same in of.items()}
    if peers:
        us["eager"], spread["eager"] = timings["eager"].median_us, timings["eager"].iqr_us
    row: dict[str, Any] = {
        "name": case.name,
        "scaled": case.scaled,
        "expr": operator.expr,
        "shapes": {name: list(shape) for name, shape in operator.shapes.items()},
        "flops": operator.flops,
        "us": us,
        "spread_us": spread,
        "gflops": {name: 2e-3 * operator.flops / value for name, value in us.items()},
        "predicted_us": predicted_us,
        "construct_ms": construct_ms,
        "max_rel_err": max(errors.values()),
        "bottleneck": _core.predict_nest(
            _core.apply_schedule(program, schedules["constructed"]), machine_model()
        ).bottleneck,
    }
    if trials:
        found = tune(operator, trials=trials, time_limit_s=seconds, seed=seed, keep=False)
        row["search"] = found.to_dict()
    return row


def _eager(inputs: Sequence[Any], output: Any) -> Callable[[], Any]:
    """PyTorch's matrix product on the same arrays."""
    import torch

    torch.set_num_threads(1)
    a, b = (torch.from_numpy(array) for array in inputs)
    out = torch.from_numpy(np.empty_like(output))
    return lambda: torch.matmul(a, b, out=out)


def geomean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Speeds relative to the tree, and what part of the gain the graph and the interleaving have."""
    speed = {
        name: geomean([row["us"]["tree"] / row["us"][name] for row in rows]) for name in METHODS
    }
    graph = math.log(speed["graph, no virtual threads"])
    whole = math.log(speed["graph"])
    found = [row["search"]["gap"] for row in rows if "search" in row]
    return {
        "speed_over_tree": speed,
        # The paper (Table VI): 0.79 and 0.21. Shares mean something only where there is a gain.
        "share_of_graph": graph / whole if whole > 0.01 else None,
        "share_of_virtual_threads": 1 - graph / whole if whole > 0.01 else None,
        "constructed_over_counted": geomean(
            [row["us"]["counted"] / row["us"]["constructed"] for row in rows]
        ),
        "best_found_over_constructed": geomean(found) if found else None,
        "least_found_over_constructed": min(found, default=None),
        "trials": sum(row["search"]["trials"] for row in rows if "search" in row),
        "construct_ms": {
            name: statistics.median(row["construct_ms"][name] for row in rows) for name in METHODS
        },
        "prediction_error": geomean(
            [
                max(row["predicted_us"][n] / row["us"][n], row["us"][n] / row["predicted_us"][n])
                for row in rows
                for n in ("counted", "constructed")
            ]
        ),
    }
