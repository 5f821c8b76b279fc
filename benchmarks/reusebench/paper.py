"""The paper's counts, Example 3 and costs of plans, computed and beside what it prints."""

from __future__ import annotations

import time
from typing import Any

from syno.tuning.reuse.expected import SEARCH_TRIALS, expected_measurements
from syno.tuning.reuse.gpu_program import GpuProgram
from syno.tuning.reuse.graph import arborescence, choice_graph
from syno.tuning.reuse.greedy_steiner import greedy_tree
from syno.tuning.reuse.hierarchical import (
    Ratios,
    best_block_shape,
    best_thread_shape,
    candidates_of,
)
from syno.tuning.reuse.operators import Operator, all_bridges, bridges, dominates, reuse_pairs
from syno.tuning.reuse.sets import SETS, groups, operator_set
from syno.tuning.reuse.steiner import steiner_tree

#: What the paper prints, by set.
PRINTED: dict[str, dict[str, float]] = {
    "ResNet50": {"operators": 20, "bridges": 44, "all bridges": 49, "tuned without bridges": 8},
    "MobileNetV2": {"operators": 31, "bridges": 81, "all bridges": 121},
    "ResNeSt50": {"operators": 33},
    "1D-IR": {"operators": 35},
    "R(2+1)D": {"operators": 25},
    "DCGAN": {"operators": 5},
    "BERT-Base": {
        "operators": 5,
        "pairs": 4,
        "pairs with bridges": 24,
        "cost without bridges": 3190.8,
        "cost with bridges": 1555.2,
    },
    "ResNet50(L)": {"operators": 40},
    "BERT(L)": {"operators": 36},
    "SSD-ResNet50": {"pairs by loops": 106},
}

#: Sets whose exact averages take minutes rather than hours.
PLANNED = ("BERT-Base", "DCGAN", "ResNet50", "MobileNetV2")


def counts(name: str) -> dict[str, float]:
    """Operators, pairs and bridges of a set."""
    found = {"operators": 0, "pairs": 0, "bridges": 0, "pairs with bridges": 0}
    everyone = operator_set(name)
    members = groups(everyone).values()
    found["pairs by loops"] = sum(
        a != b and a.type == b.type and (dominates(a.extents, b.extents) or dominates(b.extents, a.extents))
        for a in everyone
        for b in everyone
    )  # fmt: skip
    for of in members:
        more = bridges(of)
        found["operators"] += len(of)
        found["pairs"] += len(reuse_pairs(of))
        found["bridges"] += len(more)
        found["pairs with bridges"] += len(reuse_pairs(of + more))
    if found["operators"] <= 31:
        found["all bridges"] = sum(len(all_bridges(of)) for of in members)
    return {key: float(value) for key, value in found.items()}


def plans(name: str, samples: int | None) -> dict[str, float]:
    """Costs of the trees of a set: without bridges, by the approximation, and the least; seconds of each."""
    found: dict[str, float] = {}

    def add(key: str, value: float) -> None:
        found[key] = found.get(key, 0.0) + value

    for of in groups(operator_set(name)).values():
        everyone = of + bridges(of)
        start = time.perf_counter()
        graph = choice_graph(
            reuse_pairs(everyone),
            len(everyone),
            len(of),
            lambda a, b, e=everyone: expected_measurements(e[a], e[b], samples=samples),  # type: ignore[misc]
            lambda _: float(SEARCH_TRIALS),
        )
        add("seconds of costs", time.perf_counter() - start)
        for key, solve in (
            ("without bridges", arborescence),
            ("approximation", greedy_tree),
            ("with bridges", steiner_tree),
        ):
            start = time.perf_counter()
            tree = solve(graph)
            add(f"seconds {key}", time.perf_counter() - start)
            add(f"cost {key}", tree.cost)
            add(f"tuned {key}", float(len(tree.tuned)))
            if key == "with bridges":
                add("bound with bridges", tree.bound)
    found["gap of the approximation"] = (
        found["cost approximation"] / found["bound with bridges"] - 1
    )
    return found


def example_3() -> dict[str, Any]:
    """The numbers of Example 3."""
    beta = Operator("conv2d", (1, 128, 28, 28, 512, 1, 1))
    alpha = Operator("conv2d", (1, 128, 28, 28, 256, 1, 1))
    parent = GpuProgram(
        beta,
        ((1, 1, 1, 1, 1), (4, 1, 8, 2, 2), (14, 1, 1, 1, 2), (1, 1, 28, 1, 1)),
        ((4, 64, 2), (1, 1, 1), (1, 1, 1)),
        1024,
        (1, 1),
    )
    ratios = Ratios.of(alpha, beta)
    shape = best_block_shape(alpha, 1792)
    _, (default,), loads = candidates_of(ratios, alpha, parent, 1792)
    threads = sorted(ratios.thread_counts(1792, 1792, 224))
    return {
        "B": sorted(alpha.space_points // size for size in ratios.block_sizes(100352, 1792)),
        "BShape": list(shape),
        "fetches": sorted(loads),
        "default fetches": default,
        "threads": threads,
        "TShapes": [best_thread_shape(alpha, shape, (default, 1, 1), t) for t in threads],
    }


def paper(*, small: bool, show: bool) -> dict[str, Any]:
    """All of it; `small` for the sets that take seconds."""
    document: dict[str, Any] = {"example 3": example_3(), "sets": {}}
    if show:
        print("Example 3:", document["example 3"])
    for name in ("BERT-Base",) if small else SETS:
        row: dict[str, Any] = {"printed": PRINTED[name], "computed": counts(name)}
        if name in PLANNED:
            row["computed"] |= plans(name, None)
        document["sets"][name] = row
        if show:
            print(f"{name}:")
            for key, value in row["computed"].items():
                printed = f"  (paper: {row['printed'][key]:g})" if key in row["printed"] else ""
                print(f"    {key}: {value:.4g}{printed}", flush=True)
    return document
