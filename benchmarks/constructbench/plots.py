"""What the construction benchmark draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

import syno
from constructbench.operators import METHODS, geomean

Rows = Sequence[Mapping[str, Any]]


def plot_operators(rows: Rows, path: str) -> None:
    """Speed over the tree by case and method; time to build against speed, all cases together."""
    names = [name for name in METHODS if name != "tree"]
    width = 0.8 / len(names)
    figure, (bars, trade) = plt.subplots(
        1, 2, figsize=(0.9 * len(rows) + 7, 4), width_ratios=[0.9 * len(rows), 5]
    )
    for i, name in enumerate(names):
        heights = [row["us"]["tree"] / row["us"][name] for row in rows]
        bars.bar([x + i * width for x in range(len(rows))], heights, width, label=name)
    bars.axhline(1, color="black", linewidth=0.6)
    bars.set_xticks([x + 0.4 for x in range(len(rows))], [row["name"] for row in rows], fontsize=7)
    bars.set_ylabel("speed, greedy tree = 1")
    bars.legend(fontsize=6)
    for name, (seconds, speed) in build_against_speed(rows).items():
        trade.plot([seconds], [speed], "o")
        trade.annotate(
            name, (seconds, speed), xytext=(5, 3), textcoords="offset points", fontsize=7
        )
    trade.set_xscale("log")
    trade.set_xlabel("time to build one schedule, s")
    trade.set_ylabel("speed, greedy tree = 1")
    trade.margins(x=0.25, y=0.15)
    figure.suptitle(
        f"Ways to construct a schedule, one thread, syno {syno.__version__}", fontsize=9
    )
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)


def build_against_speed(rows: Rows) -> dict[str, tuple[float, float]]:
    """By way to build, geometric means over the cases: seconds, and speed over the greedy tree."""
    made = {}
    for name in ("tree", "graph", "counted", "constructed"):
        speeds = [row["us"]["tree"] / row["us"][name] for row in rows]
        made[name] = (geomean([row["construct_ms"][name] * 1e-3 for row in rows]), geomean(speeds))
    found = [row for row in rows if "search" in row]
    if len(found) == len(rows):
        speeds = [
            row["us"]["tree"] / (row["us"]["constructed"] * row["search"]["gap"]) for row in rows
        ]
        trials = max(row["search"]["trials"] for row in rows)
        made[f"search, {trials} trials"] = (
            geomean([row["search"]["seconds"] for row in rows]),
            geomean(speeds),
        )
    return made


def plot_network(document: Mapping[str, Any], path: str) -> None:
    """By contestant, summed over the shapes: getting ready below, inferences above."""
    rows = document["rows"]
    names = list(document["summary"]["total_s"])
    ready = [sum(r["ready_s"] for r in rows if r["contestant"] == n) for n in names]
    total = [document["summary"]["total_s"][n] for n in names]
    figure, axes = plt.subplots(figsize=(1.1 * len(names) + 2, 4))
    axes.bar(names, ready, label="getting ready")
    axes.bar(names, [t - r for t, r in zip(total, ready, strict=True)], bottom=ready,
             label=f"{document['images']} inferences a shape")  # fmt: skip
    for i, seconds in enumerate(total):
        axes.annotate(f"{seconds:.2f}", (i, seconds), ha="center", va="bottom", fontsize=8)
    axes.set_yscale("log")
    axes.set_ylabel("seconds, all shapes")
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    axes.set_title(f"{document['network']}: {', '.join(shapes)}; one thread", fontsize=9)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
