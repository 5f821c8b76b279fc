"""Pictures of a run: every case under the machine's roofline, and bars of the ratios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelbench.results import Result, Settings
from syno.machines.model import plot_roofline


def write_plots(results: Sequence[Result], settings: Settings, directory: Path) -> list[Path]:
    """Writes `roofline.svg` and `ratios.svg`; the directory is made."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    directory.mkdir(parents=True, exist_ok=True)
    written = []
    axes = plot_roofline(settings.machine)
    for i, klass in enumerate(dict.fromkeys(r.klass for r in results)):
        rows = [r for r in results if r.klass == klass]
        axes.plot(
            [r.intensity for r in rows],
            [r.gflops / settings.threads for r in rows],
            "o",
            color=f"C{i + 4}",
            markersize=4,
            label=klass,
        )
    axes.legend(fontsize=6)
    written.append(directory / "roofline.svg")
    axes.figure.savefig(written[-1])
    plt.close(axes.figure)

    bars = [r for r in results if r.ratio_to_best_peer]
    if bars:
        figure, axes = plt.subplots(figsize=(7, 1 + 0.22 * len(bars)), layout="constrained")
        order = sorted(bars, key=lambda r: (r.klass, r.ratio_to_best_peer or 0))
        names = [f"{r.name}  ({r.best_peer})" for r in order]
        classes = list(dict.fromkeys(r.klass for r in results))
        colours = [f"C{classes.index(r.klass) + 4}" for r in order]
        axes.barh(names, [r.ratio_to_best_peer or 0 for r in order], color=colours)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlabel("time of the best peer / time of the kernel")
        axes.tick_params(axis="y", labelsize=7)
        axes.margins(y=0.01)
        written.append(directory / "ratios.svg")
        figure.savefig(written[-1])
        plt.close(figure)
    return written
