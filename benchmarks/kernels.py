"""Kernels against their peers: how near the machine's limits, how much faster than the best of them.

    python benchmarks/kernels.py --json
    python benchmarks/kernels.py --classes dense odd --peers eager,openvino --threads 2
    python benchmarks/kernels.py --cases mine.json --plots out/
    python benchmarks/kernels.py --cpu x86-64-v3     # everyone held to AVX2, looked at while it runs

Every kernel is verified against the interpreter before it is timed, every peer's result compared with
the kernel's; all take turns inside one run. A peer runs its nearest native call where the expression
is one (convolution, matrix product, einsum, pooling, softmax, ...: recognised, not declared) and the
emitted PyTorch otherwise, traced to one graph; constant inputs are frozen, OpenVINO computes in f32, 4-D tensors are tried
channels-last in eager. `ratio_to_best_peer` is the best peer's time over the kernel's, the median over
the turns: above 1 the kernel is faster; `best of 3 of 5` says that three of five peers ran, and the summary why the
others did not. GFLOP/s count a multiply-add as two.

`--cases FILE` reads a JSON list of {"name", "expr", "sizes": {iterator: extent}, "shapes": {input:
[...]}, "strides"?: {input: [...]}, "dtype"? (float32, float64, bfloat16), "constant"?:
[inputs that may be packed once]}.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from kernelbench.cases import CLASSES, Case, read_cases
from kernelbench.instructions import HELD, sampling_absent
from kernelbench.peers import PEERS
from kernelbench.results import Presence, Result, Settings, geomean, presence, summary
from kernelbench.worker import Worker
from rich.console import Console
from rich.progress import track

from syno.errors import SynoError, unknown_name
from syno.machines.model import describe, machine_model
from syno.support.machine import describe_machine
from syno.support.numbers import significant


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    """The cases of a run, in order. Raises SynoError for a bad file or name."""
    if options.cases is not None:
        cases = read_cases(options.cases)
    else:
        for name in options.classes:
            if name not in CLASSES:
                raise unknown_name("class", name, CLASSES)
        cases = [case for name in options.classes or CLASSES for case in CLASSES[name]()]
    if options.filter:
        words = [word.lower() for word in options.filter]
        cases = [case for case in cases if any(word in case.name.lower() for word in words)]
        if not cases:
            raise unknown_name("case", " ".join(options.filter), ["a part of a case's name"])
    return cases


def arguments() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=Path, metavar="FILE", help="cases instead of the built-in")
    parser.add_argument("--classes", nargs="*", default=[], help=f"of {', '.join(CLASSES)}")
    parser.add_argument("--filter", nargs="*", default=[], help="parts of names of cases")
    parser.add_argument(
        "--peers", default=",".join(PEERS), help=f"of {','.join(PEERS)}; empty for none"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--cpu",
        choices=sorted(HELD),
        help="make kernels for this CPU and hold all peers to its instructions; who runs others is left out",
    )
    parser.add_argument("--turns", type=int, default=11, help="samples of each; at least 3")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write roofline and ratio bars")
    parser.add_argument("--list", action="store_true", help="print the cases and stop")
    parser.add_argument("--json", action="store_true")
    return parser


def main() -> int:
    """Prints a table, or one JSON document with `--json`; 0 if every case was measured."""
    options = arguments().parse_args()
    logging.basicConfig(format="%(message)s")
    try:
        peers = [name for name in options.peers.split(",") if name]
        for name in peers:
            if name not in PEERS:
                raise unknown_name("peer", name, PEERS)
        cases = chosen_cases(options)
        if options.threads < 1 or options.turns < 3:
            raise SynoError("[kernels] --threads must be at least 1 and --turns at least 3")
        if options.cpu:
            if (why := sampling_absent()) is not None:
                raise SynoError(f"[kernels] --cpu {options.cpu}: {why}")
            os.environ |= HELD[options.cpu]  # of the processes that measure, too
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    if options.list:
        for case in cases:
            print(f"{case.klass:12} {case.name:36} {case.operator.expr}")
        return 0
    signal.signal(signal.SIGTERM, interrupted)
    settings = Settings(
        peers,
        options.threads,
        options.turns,
        machine_model(measure=True).to_json(),
        held=options.cpu or "",
    )
    for name in peers:
        if PEERS[name].absent:  # before hours are spent without it
            print(f"{name} is absent: {PEERS[name].absent}", file=sys.stderr, flush=True)
    results, failed = run(cases, settings, quiet=options.json)
    ratios = [r.ratio_to_best_peer for r in results if r.ratio_to_best_peer]
    document: dict[str, Any] = {
        "machine": {
            **msgspec.to_builtins(describe_machine()),
            "model": describe(settings.machine),
        },
        "command": "python benchmarks/kernels.py " + " ".join(sys.argv[1:]),
        "threads": options.threads,
        "held_to": options.cpu,
        "peers": {name: asdict(state) for name, state in presence(peers, results).items()},
        "cases": [result.to_dict() for result in results],
        "failed": failed,
        "classes": summary(results),
        "geomean": geomean(ratios),
    }
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        print_summary(document)
    if options.plots is not None and results:
        from kernelbench.plots import write_plots

        for path in write_plots(results, settings, options.plots):
            print(f"wrote {path}", file=sys.stderr)
    return 1 if failed else 0


def interrupted(number: int, frame: FrameType | None) -> None:
    """A signal that ends the run as Ctrl-C does: what was measured is printed."""
    raise KeyboardInterrupt


def run(cases: list[Case], settings: Settings, quiet: bool) -> tuple[list[Result], dict[str, str]]:
    """Results in order, and the reasons of those that have none.

    Ctrl-C or SIGTERM ends the run; the cases that were not measured say so.
    """
    results: list[Result] = []
    failed: dict[str, str] = {}
    console = Console(stderr=True)
    rows = track(cases, "measuring", console=console, disable=not (quiet and console.is_terminal))
    try:
        with Worker(settings) as worker:
            for case in rows:
                try:
                    result = worker.measure(case)
                except SynoError as error:
                    failed[case.name] = str(error)
                    print(f"{case.name}: {error}", file=sys.stderr, flush=True)
                    continue
                results.append(result)
                if not quiet:
                    print(line(result), flush=True)
    except KeyboardInterrupt:
        done = {*failed, *(result.name for result in results)}
        failed |= {case.name: "interrupted" for case in cases if case.name not in done}
        print(f"interrupted: {len(results)} of {len(cases)} cases", file=sys.stderr)
    return results, failed


def line(result: Result) -> str:
    """A row of the table."""
    ratio = f"{result.ratio_to_best_peer:5.2f}x" if result.ratio_to_best_peer else "     -"
    ran = len(result.peers_us)
    of = f"{ran}" if ran == result.peers_asked else f"{ran} of {result.peers_asked}"
    best = f"{result.best_peer}: {result.best_form}, best of {of}" if result.best_peer else ""
    cold = (
        f"{significant(result.construct_ms, 2):>5}+{significant(result.compile_ms, 2)} ms"
        if result.construct_ms is not None and result.compile_ms is not None
        else ""
    )
    return (
        f"{result.name:34} {significant(result.us):>9} us ±{significant(result.spread, 2):>5} {significant(result.gflops):>6} GFLOP/s "
        f"peak {result.fraction_of_peak:4.2f} roof {result.fraction_of_roof:4.2f} ({result.bound:7}) "
        f"{ratio} {best:28} {cold}"
    )


def print_summary(document: dict[str, Any]) -> None:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    for name, entry in document["classes"].items():
        rest = ", ".join(
            f"{key.replace('_', ' ')} {number(value)}"
            for key, value in entry.items()
            if key != "cases"
        )
        print(f"{name}: {entry['cases']} cases, {rest}")
    print(f"geomean {number(document['geomean'])}")
    for name, state in document["peers"].items():
        print(f"{name} {Presence(**state)}")


if __name__ == "__main__":
    sys.exit(main())
