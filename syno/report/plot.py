"""Plots of a search's results. Needs matplotlib (``pip install "syno[plot]"``)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from syno.errors import FormatError
from syno.report.model import Entry, Report

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def pareto_figure(report: Report) -> Figure:
    """Accuracy against whole-network latency: every candidate, the original, and the Pareto front.

    Raises:
        FormatError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise FormatError(
            '[report] there is no plot without matplotlib: pip install "syno[plot]"'
        ) from None

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes: Any = figure.add_subplot()
    scale = 100.0 if report.metric == "accuracy" else 1.0
    apart = any(e.validation is not None or e.test is not None for e in everyone(report))
    parts = ("validation", "test") if apart else ("accuracy",)
    said: set[str] = set()
    for part in reversed(parts):
        _draw_part(axes, report, part, scale, said)
    runner = f", {report.runner.partition(':')[0]}" if report.runner else ""
    axes.set_xlabel(f"network latency{runner}, µs (batch {report.batch}, {report.threads} thread)")
    label = f"{report.metric}, %" if scale == 100.0 else report.metric
    axes.set_ylabel(label if report.higher_is_better else f"{label} (lower is better)")
    axes.grid(alpha=0.25)
    # Below the axes: no point is ever behind it, and no search for free room among thousands of them.
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


def everyone(report: Report) -> list[Entry]:
    """The original and all candidates."""
    return [report.baseline, *report.candidates]


def _draw_part(axes: Any, report: Report, part: str, scale: float, said: set[str]) -> None:
    """The points of one part and their front; the two parts share axes, not a front."""
    large = part == "test"
    known = [
        (entry, value, getattr(entry, f"{part}_stderr") or 0.0)
        for entry in everyone(report)
        if (value := getattr(entry, part)) is not None and entry.latency_us is not None
    ]
    if not known:
        return
    base = report.baseline
    for entry, value, error in known:
        several = large or entry.seeds_count > 1
        original = entry is base
        axes.errorbar(
            entry.latency_us,
            scale * value,
            yerr=scale * error,
            fmt="s" if original else "^" if entry.known else "o",
            ms=(7 if original else 6) if several else 4,
            color=_colour(report, entry),
            alpha=1.0 if several else 0.45,
            elinewidth=0.8,
            label=_label(entry, original, said),
        )
        if entry.id == report.best or (large and not original):
            axes.annotate(
                f"{entry.id}: {entry.known}" if entry.known else entry.id,
                (entry.latency_us, scale * value),
                xytext=(6, 6),
                textcoords="offset points",
            )
    flag = "front_test" if large else "front"
    front = sorted((e.latency_us or 0.0, v) for e, v, _ in known if getattr(e, flag))
    axes.step(
        [latency for latency, _ in front],
        [scale * value for _, value in front],
        where="post",
        color="#64748b",
        lw=1.2,
        ls="--" if part == "validation" else "-",
        label="Pareto front" if part == "accuracy" else f"Pareto front, {part}",
    )


def _colour(report: Report, entry: Entry) -> str:
    if entry is report.baseline:
        return "black"
    if entry.id == report.best:
        return "#c2410c"
    return "#15803d" if entry.known else "#2563a8"


def _label(entry: Entry, original: bool, said: set[str]) -> str | None:
    """What the legend calls a point, once for each kind."""
    kind = "original" if original else "known operators" if entry.known else "found operators"
    if kind in said:
        return None
    said.add(kind)
    return kind


def figure_svg(figure: Figure) -> str:
    """The figure as an SVG element, without the XML prologue, to stand inside HTML."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
