"""Table and picture of the experiment `searched`, from its document alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paper.store import table
from syno.support.numbers import significant


def _points(row: Mapping[str, Any], value: float, digits: int = 2) -> str:
    return f"{100 * value:.{digits}f}" if row["metric"] == "accuracy" else f"{value:.4f}"


def named(id: str, row: Mapping[str, Any]) -> str:
    """``c7: grouped(g=2)``, ``c9: found``, ``original``."""
    origin = str(row["origin"])
    return origin if id == "baseline" else f"{id}: {origin.removeprefix('known: ')}"


def as_text(document: Mapping[str, Any]) -> str:
    """What is there: how far, the check of the task, counts, a table, what may be said."""
    lines = [f"{document['experiment']}: sizes {document['size']}; {document['state']}"]
    if "resolution" in document:
        lines.append(document["resolution"]["said"])
        if document["resolution"]["changes"]:
            lines.append(f"hardened: {document['resolution']['changes']}")
    if "search" in document:
        lines.append(", ".join(f"{n} {what}" for what, n in document["search"].items()))
        lines += document["rungs"]
    rows = document["rows"]
    if not rows:
        return "\n".join(lines)
    timed = any("us" in row for row in rows.values())
    stepped = any("step" in row for row in rows.values())
    metric = next(iter(rows.values()))["metric"]
    columns = [
        "",
        f"test {metric}",
        "std",
        "seeds",
        "against the original, 95 % each way",
        "validation",
    ]
    columns += ["multiply-adds", "parameters"]
    columns += ["us", "speed-up"] if timed else []
    columns += ["ms a step", "speed-up"] if stepped else []
    columns += ["beside known operators"]
    cells = []
    order = sorted(rows, key=lambda id: (id != "baseline", rows[id].get("us") or 0.0, id))
    for id in order:
        row = rows[id]
        one = row.get("against original")
        interval = "" if one is None else (
            f"{_points(row, one['gain'])} ({_points(row, one['lower'])} … {_points(row, one['upper'])})"
        )  # fmt: skip
        line = [
            named(id, row),
            _points(row, row["test"]),
            "-" if row["std"] is None else _points(row, row["std"]),
            str(len(row["seeds"])),
            interval,
            "-" if row["validation"] is None else _points(row, row["validation"]),
            f"{row['flops']:,}" if row["flops"] else "-",
            f"{row['params']:,}" if row["params"] else "-",
        ]
        if timed:
            line += [significant(row["us"]) if "us" in row else "-"]
            line += [f"{row['speed_up']:.2f}x" if row.get("speed_up") else "-"]
        if stepped:
            line += [f"{row['step']['ms']:.1f}" if "step" in row else "-"]
            line += [f"{row['step_speed_up']:.2f}x" if "step" in row else "-"]
        beside = row.get("beside known", {})
        words = {w: sum(v == w for v in beside.values()) for w in ("stands", "tie", "beaten")}
        line.append(", ".join(f"{w} {n}" for w, n in words.items() if n))
        cells.append(line)
    lines.append(table(columns, cells))
    for goal, met in document.get("goals", {}).items():
        lines.append(f"{goal}: {', '.join(met) if met else 'none'}")
    note = next((row["note"] for row in rows.values() if row.get("note")), "")
    if note:
        lines.append(f"timed although {note}")
    return "\n".join(lines)


def front_of(rows: Mapping[str, Any]) -> list[str]:
    """Those that no other beats in both time and test, the fastest first."""
    higher = all(row["metric"] == "accuracy" for row in rows.values())
    timed = [id for id in rows if "us" in rows[id]]
    timed.sort(key=lambda id: (rows[id]["us"], id))
    front: list[str] = []
    for id in timed:
        value = rows[id]["test"] if higher else -rows[id]["test"]
        best = None if not front else rows[front[-1]]["test"] * (1 if higher else -1)
        if best is None or value > best:
            front.append(id)
    return front


def draw(document: Mapping[str, Any], path: Path) -> None:
    """Test against latency of the whole network: original, known and found, with intervals; the front."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = {id: row for id, row in document["rows"].items() if "us" in row}
    if not rows:
        return
    percent = 100.0 if all(row["metric"] == "accuracy" for row in rows.values()) else 1.0
    styles = {"original": ("s", "black"), "known": ("^", "#15803d"), "found": ("o", "#2563a8")}
    figure, axes = plt.subplots(figsize=(8, 5))
    said: set[str] = set()
    sign = 1.0 if percent == 100.0 else -1.0
    for id, row in rows.items():
        kind = str(row["origin"]).partition(":")[0]
        marker, colour = styles[kind]
        one = row.get("against original")
        error = None
        if one is not None:
            below, above = one["gain"] - one["lower"], one["upper"] - one["gain"]
            low, high = (below, above) if sign > 0 else (above, below)
            error = [[percent * low], [percent * high]]
        axes.errorbar(
            row["us"],
            percent * row["test"],
            yerr=error,
            xerr=row["iqr_us"] / 2,
            fmt=marker,
            color=colour,
            elinewidth=0.8,
            label=None if kind in said else f"{kind} operators" if kind != "original" else kind,
        )
        said.add(kind)
        label = named(id, row) if kind != "found" else id
        axes.annotate(
            label,
            (row["us"], percent * row["test"]),
            (5, 4),
            textcoords="offset points",
            fontsize=7,
        )
    front = front_of(rows)
    axes.step(
        [rows[id]["us"] for id in front],
        [percent * rows[id]["test"] for id in front],
        where="post",
        color="#64748b",
        lw=1.2,
        label="front",
    )
    metric = next(iter(rows.values()))["metric"]
    axes.set_xlabel("latency of the whole network, µs; bars: half the interquartile range")
    unit = ", %" if percent == 100.0 else ", nats a byte (less is better)"
    axes.set_ylabel(f"test {metric}{unit}; bars: one-sided 95 % against the original")
    axes.set_title(
        f"{document['experiment']}; sizes {document['size']}; {document['state']}", fontsize=8
    )
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    axes.margins(0.1)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
