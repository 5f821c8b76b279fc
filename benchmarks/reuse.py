"""Reuse of tuned programs: what ETO counts and estimates, and what reuse gives on this machine.

    python benchmarks/reuse.py paper --json       # operators, pairs, bridges, Example 3, costs of plans; minutes
    python benchmarks/reuse.py pairs --json       # ten types: a program tuned, another one by its record, beside controls
    python benchmarks/reuse.py sets --json        # operator sets of networks, by each selection
    python benchmarks/reuse.py controls --files S.json   # of these sets, what a search makes a tenth faster, beside controls
    python benchmarks/reuse.py changing --json    # networks whose sizes change from call to call, beside others; minutes
    python benchmarks/reuse.py kernels --json     # kernels for ranges of sizes beside those for one; minutes
    python benchmarks/reuse.py candidates --json  # what it takes to know the latency of a search's candidates; minutes
    python benchmarks/reuse.py pairs --small      # a few trials: to see that it works; seconds to a minute

`paper` computes the tables of the paper (PVLDB 15(2), 2022) for GPUs: exact averages of the expected
measurements beside the printed, sampled ones, the optimal trees beside the paper's approximation.
`pairs` and `sets` measure here. `quality` is the time of what full searches found / that of what a way found, called in
turns; the controls of `pairs` have as many measurements as the reuse: a search, the schedules that the machine model
ranks first, the three best of the other program as they are, and none (constructed). `--plot` draws quality against
measurements. `controls` takes what `sets --json` printed, and does for each operator that a search made a tenth faster there what
`pairs` does; it reuses the nearest operator of its set. `kernels`: time of the kernel for one size / of the one for the range, and first calls. `changing`: how long each contestant takes until all sizes ran once, from an empty cache, and for a call then.
`candidates`: seconds of `syno.latency` and processor time of its stages for operators of a search's spaces, and what their
valuations would lose with the sketch of the first one.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import msgspec
from reusebench.candidates import NETWORKS, candidates
from reusebench.changing import CASES, changing
from reusebench.measured import PAIRS, controls, pairs, sets
from reusebench.paper import paper
from reusebench.ranged import KERNELS, ranged

from syno.errors import SynoError, unknown_name
from syno.support.machine import describe_machine
from syno.tuning.network import SELECTIONS

#: Sets whose programs are measured.
MEASURED = (
    "ResNet50", "MobileNetV2", "ResNeSt50", "1D-IR", "R(2+1)D", "DCGAN", "BERT-Base",
)  # fmt: skip


def arguments() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="paper",
        choices=["paper", "pairs", "sets", "controls", "kernels", "changing", "candidates"],
    )
    parser.add_argument(
        "--files", nargs="*", default=[], type=Path, metavar="FILE", help="of `controls`"
    )
    parser.add_argument("--names", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--trials", type=int, default=1000, help="of a full search")
    parser.add_argument("--budget", type=int, default=14, help="candidates of a reuse")
    parser.add_argument(
        "--smaller", type=int, default=4, help="by what extents of sets are divided"
    )
    parser.add_argument(
        "--selections", nargs="*", default=list(SELECTIONS), choices=SELECTIONS, metavar="NAME",
        help="of sets: " + ", ".join(SELECTIONS),
    )  # fmt: skip
    parser.add_argument("--turns", type=int, default=15, help="calls of each size")
    parser.add_argument("--drawn", type=int, default=3, help="operators of each group's space")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="seconds instead of hours")
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--json", action="store_true")
    return parser


def chosen(names: list[str], known: tuple[str, ...], few: int | None) -> list[str]:
    for name in names:
        if name not in known:
            raise unknown_name("case", name, known)
    return names or list(known[:few])


def plot(document: dict[str, Any], path: str) -> None:
    """Quality against measurements, one dot for each way and pair or set."""
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(figsize=(7, 4))
    rows: dict[str, list[tuple[float, float]]] = {}
    for row in document.get("pairs", {}).values():
        for way, quality in row["quality"].items():
            rows.setdefault(way, []).append((row["measurements"][way], quality))
    for row in document["sets"].values() if "sets" in document else ():
        for way, result in row.get("selections", {}).items():
            rows.setdefault(way, []).append((result["measurements"], result["quality"]))
    for way, points in rows.items():
        axes.plot([max(x, 0.5) for x, _ in points], [y for _, y in points], "o", label=way)
    axes.axhline(1, color="grey", linewidth=0.5)
    axes.set_xscale("log")
    axes.set_xlabel("measurements")
    axes.set_ylabel("speed / that of full searches")
    axes.legend(fontsize=7)
    plt.tight_layout()
    plt.savefig(path)


def main() -> None:
    options = arguments().parse_args()
    document: dict[str, Any] = {
        "machine": msgspec.to_builtins(describe_machine()),
        "command": "python benchmarks/reuse.py " + " ".join(sys.argv[1:]),
    }
    few = 2 if options.small else None
    trials = min(options.trials, 10) if options.small else options.trials
    show = not options.json
    try:
        if options.what == "paper":
            document |= paper(small=options.small, show=show)
        elif options.what == "pairs":
            document |= pairs(
                chosen(options.names, tuple(PAIRS), few), threads=options.threads, trials=trials,
                budget=min(options.budget, 4) if options.small else options.budget, show=show,
            )  # fmt: skip
        elif options.what == "controls":
            document |= controls(
                options.files, threads=options.threads, trials=trials,
                budget=min(options.budget, 4) if options.small else options.budget, show=show, few=few,
            )  # fmt: skip
        elif options.what == "kernels":
            document |= ranged(
                chosen(options.names, tuple(KERNELS), few), turns=3 if options.small else options.turns,
                show=show, few=few,
            )  # fmt: skip
        elif options.what == "candidates":
            document |= candidates(
                chosen(options.names, tuple(NETWORKS), 1 if options.small else None),
                drawn=1 if options.small else options.drawn, show=show,
            )  # fmt: skip
        elif options.what == "changing":
            document |= changing(
                chosen(options.names, tuple(CASES), 1 if options.small else None),
                threads=options.threads, turns=min(options.turns, 3) if options.small else options.turns,
                show=show, few=2 if options.small else None,
            )  # fmt: skip
        else:
            document |= sets(
                chosen(options.names, tuple(reversed(MEASURED)), 1 if options.small else None),
                threads=options.threads, trials=trials,
                times=max(options.smaller, 8) if options.small else options.smaller, show=True,
                selections=options.selections,
            )  # fmt: skip
        if options.plot and options.what in ("pairs", "sets"):
            plot(document, options.plot)
    except SynoError as error:
        raise SystemExit(str(error)) from error
    if options.json:
        print(json.dumps(document, indent=1))
    elif "summary" in document:
        print(json.dumps(document["summary"], indent=1))


if __name__ == "__main__":
    main()
