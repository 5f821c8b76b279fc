"""A whole network by every way to construct its kernels, and by search: time spent against speed (Gensor's Figs. 9 and 10).

The programs are those that `syno.compile` makes kernels of; each counts as often as the network computes it. Weights lie
as PyTorch has them, so that a kernel that packs them does so in each call: ways to construct are compared, networks are
faster compiled whole.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import networks
import torch

import syno
from constructbench.operators import METHODS, run_case
from syno import _core
from syno.tuning.reuse.programs import members_of

#: Ways to construct that the curve has, and what they are called in the paper.
SHOWN = {"tree": "Roller-like", "graph": "Gensor", "counted": "", "constructed": ""}


@dataclass(frozen=True)
class Program:
    """A program of a network, as a case of `run_case`."""

    name: str
    program: _core.Program
    count: int
    scaled: str = ""

    def operator(self) -> syno.Operator:
        return syno.Operator(self.program)


def programs_of(name: str) -> list[Program]:
    """The float32 programs of a network, that do more than lie.

    Raises:
        UnknownName: no network of that name.
    """
    model, x = networks.make(name)
    with torch.no_grad():
        members = members_of(model.eval(), x)
    return [
        Program(f"{name}: {one.name}", one.program, one.count)
        for one in members
        if one.dtype == "float32" and one.program.cost(0).flops > 0
    ]


def run_curve(
    name: str, *, turns: int, trials: int, seed: int, show: bool = False
) -> dict[str, Any]:
    """The document of one network."""
    begun = time.perf_counter()
    programs, rows = programs_of(name), []
    for program in programs:
        row = run_case(program, turns=turns, trials=trials, seed=seed, peers=False)  # type: ignore[arg-type]
        rows.append({**row, "count": program.count})
        if show:
            print(f"{program.name}: {program.count} times", flush=True)
    return {
        "network": name,
        "programs": rows,
        "curve": curve_of(rows),
        "seconds": time.perf_counter() - begun,
    }


def curve_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[list[float]]]:
    """By way: points of seconds that were spent on the network's programs, and milliseconds of all its kernels.

    A search's points are those where it has found something faster for any of them; it goes through them side by side, and
    its times are those of the constructed kernels in turns times what the search found of those.
    """

    def network_ms(us: Sequence[float]) -> float:
        return sum(row["count"] * each for row, each in zip(rows, us, strict=True)) / 1e3

    curve = {
        name: [
            [
                sum(row["construct_ms"][name] for row in rows) / 1e3,
                network_ms([row["us"][name] for row in rows]),
            ]
        ]
        for name in METHODS
    }
    if rows and all("search" in row for row in rows):
        curve["search"] = [
            [
                part * sum(row["search"]["seconds"] for row in rows),
                network_ms([_found(row, part) for row in rows]),
            ]
            for part in _parts(rows)
        ]
    return curve


def _parts(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Of all trials, after which something was found."""
    found = {
        (trial + 1) / row["search"]["trials"] for row in rows for trial, _ in row["search"]["curve"]
    }
    return sorted(found | {1.0})


def _found(row: Mapping[str, Any], part: float) -> float:
    """Microseconds of the best program after a part of the trials; of the constructed one before any was timed."""
    search, constructed = row["search"], row["us"]["constructed"]
    last = part * search["trials"]
    best = list(itertools.takewhile(lambda point: point[0] < last, search["curve"]))
    if not best:
        return float(constructed)
    # Medians of two occasions hardly compare: the last one was called in turns with the constructed schedule.
    return float(constructed * search["gap"] * best[-1][1] / search["curve"][-1][1])


def plot_curves(document: Mapping[str, Any], path: str) -> None:
    """Seconds spent against speed over the tree, a network in each picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    made = document["networks"]
    figure, every = plt.subplots(1, len(made), figsize=(4.5 * len(made), 3.8), squeeze=False)
    for axes, network in zip(every[0], made, strict=True):
        tree = network["curve"]["tree"][0][1]
        for name, points in network["curve"].items():
            if name not in (*SHOWN, "search"):
                continue
            label = f"{name} ({SHOWN[name]})" if SHOWN.get(name) else name
            axes.plot(
                [seconds for seconds, _ in points],
                [tree / ms for _, ms in points],
                "o" if len(points) == 1 else "-",
                label=label,
            )
        axes.set_xscale("log")
        axes.set_xlabel("time to make all schedules, s")
        axes.set_ylabel("speed, greedy tree = 1")
        axes.set_title(f"{network['network']}, one thread", fontsize=9)
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
