"""Plots of a search's results. Needs matplotlib (``pip install "syno[plot]"``)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from syno.errors import FormatError
from syno.report.model import Report

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
    measured = [e for e in report.candidates if e.accuracy is not None and e.latency_us is not None]
    for entry in measured:
        axes.errorbar(
            entry.latency_us,
            scale * (entry.accuracy or 0.0),
            yerr=scale * (entry.accuracy_stderr or 0.0),
            fmt="o",
            ms=6 if entry.seeds_count > 1 else 4,
            color="#2563a8" if entry.id != report.best else "#c2410c",
            alpha=1.0 if entry.seeds_count > 1 else 0.55,
            elinewidth=0.8,
        )
        if entry.id == report.best:
            axes.annotate(
                entry.id,
                (entry.latency_us, scale * (entry.accuracy or 0.0)),
                xytext=(6, 6),
                textcoords="offset points",
            )
    base = report.baseline
    if base.accuracy is not None and base.latency_us is not None:
        axes.errorbar(
            base.latency_us,
            scale * base.accuracy,
            yerr=scale * (base.accuracy_stderr or 0.0),
            fmt="s",
            ms=7,
            color="black",
            label="original",
        )
    front = sorted(
        (e for e in [*measured, base] if e.front and e.latency_us is not None),
        key=lambda e: e.latency_us or 0.0,
    )
    axes.step(
        [e.latency_us for e in front],
        [scale * (e.accuracy or 0.0) for e in front],
        where="post",
        color="#64748b",
        lw=1.2,
        label="Pareto front",
    )
    axes.set_xlabel(f"network latency, µs (batch {report.batch}, {report.threads} thread)")
    label = f"{report.metric}, %" if scale == 100.0 else report.metric
    axes.set_ylabel(label if report.higher_is_better else f"{label} (lower is better)")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def figure_svg(figure: Figure) -> str:
    """The figure as an SVG element, without the XML prologue, to stand inside HTML."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]
