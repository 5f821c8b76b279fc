"""How good what is found is, by the time of the search and by the steps it may take (the paper's Figures 17 and 19, with
measured times for estimated ones)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelbench.cases import Case
from kernelbench.results import geomean

import syno
from syno.deriving import Derived
from syno.deriving.judge import Judge

_TURNS = 15


def run_curves(
    case: Case, *, seconds: Sequence[float], depths: Sequence[int], threads: int, finalists: int
) -> list[dict[str, Any]]:
    """A row for each search: within so many seconds with any number of steps, and at most so many steps within the most
    seconds. What each found fastest is timed in the same turns; `speed` is as a part of the best one's."""
    searches: list[dict[str, Any]] = [{"seconds": each, "depth": None} for each in seconds]
    searches += [{"seconds": max(seconds), "depth": each} for each in depths]
    best: dict[str, Derived] = {}
    rows = []
    for limits in searches:
        found = syno.derive(
            case.operator,
            **limits,
            constants=case.constant,
            threads=threads,
            measure=finalists,
        )
        one = found.best()
        key = str([(rule, str(site)) for rule, site in one.path])
        best.setdefault(key, one)
        rows.append(
            {
                "name": case.name,
                **limits,
                "states": found.states,
                "steps": len(one.path),
                "found": key,
            }
        )
    judge = Judge(case.operator, case.dtype, threads)
    times = dict(
        zip(best, judge.times([one.prepack() for one in best.values()], _TURNS), strict=True)
    )
    fastest = min(times.values())
    for row in rows:
        us = times[row["found"]]
        row |= {"us": us, "speed": fastest / us}
    return rows


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Geometric means of the speeds over the cases, by seconds and by steps."""
    by: dict[str, dict[str, float | None]] = {"seconds": {}, "depth": {}}
    for row in rows:
        what = "seconds" if row["depth"] is None else "depth"
        by[what][str(row[what])] = geomean(
            [
                r["speed"]
                for r in rows
                if r[what] == row[what] and (r["depth"] is None) == (what == "seconds")
            ]
        )
    return by


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Two curves a case: speed against seconds, and against steps."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
    for axis, what in zip(axes, ("seconds", "depth"), strict=True):
        for name in dict.fromkeys(row["name"] for row in rows):
            own = [
                r for r in rows if r["name"] == name and (r["depth"] is None) == (what == "seconds")
            ]
            axis.plot([r[what] for r in own], [r["speed"] for r in own], marker="o", label=name)
        axis.set_xlabel({"seconds": "seconds of search", "depth": "most steps"}[what])
    axes[0].set_xscale("log")
    axes[0].set_ylabel("speed, as a part of the best one found")
    axes[1].legend(fontsize="xx-small")
    figure.savefig(path)
