"""Derived programs against their originals and against the libraries.

    python benchmarks/derive.py --json
    python benchmarks/derive.py --classes window transposed --peers eager,onnxruntime --seconds 5
    python benchmarks/derive.py --cases mine.json
    python benchmarks/derive.py --curves --classes window transposed --seconds 20 --plot curves.svg --json
    python benchmarks/derive.py --curves --times 2,60 --json           # what a minute finds beyond the default
    python benchmarks/derive.py --einnet --depths 3-11 --seconds 600 --gigabytes 8 --json

Each case is searched for `--seconds`; the best program is compiled with its weights prepacked, compared with the original,
and timed in turns with our kernel of the original (`ratio_to_underived`) and with every peer (`ratio_to_best_peer`: the
fastest form of any of them). Above 1 the derived program is faster; where nothing derived is faster, the original
stands for it. Files of cases are those of kernels.py.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import torch
from derivebench import curves, einnet
from derivebench.cases import CLASSES
from derivebench.run import Result, run_case
from derivebench.training import run_training
from kernelbench.cases import Case, read_cases
from kernelbench.peers import PEERS
from kernelbench.results import Settings, geomean

import syno
from syno._core import RewriteSite
from syno.deriving.derivations import made_by
from syno.deriving.judge import Judge
from syno.errors import SynoError, unknown_name
from syno.machines.model import describe, machine_model
from syno.support.machine import describe_machine


def arguments() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=Path, metavar="FILE", help="cases instead of the built-in")
    parser.add_argument("--classes", nargs="*", default=[], help=f"of {', '.join(CLASSES)}")
    parser.add_argument("--filter", nargs="*", default=[], help="parts of names of cases")
    parser.add_argument(
        "--peers", default="eager,onnxruntime,openvino", help=f"of {','.join(PEERS)}"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="of each search")
    parser.add_argument(
        "--training-seconds",
        type=float,
        default=60.0,
        help="of derivation for each graph of a training step",
    )
    parser.add_argument(
        "--finalists", type=int, default=4, help="derived programs compiled and timed"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=11, help="samples of each; at least 3")
    parser.add_argument(
        "--tiles",
        action="store_true",
        help="instead: every tile of toom_cook on the first case chosen, at both sets of points",
    )
    parser.add_argument(
        "--einnet",
        action="store_true",
        help="instead: the size of EINNET's four spaces at each depth, with and without the key",
    )
    parser.add_argument(
        "--curves",
        action="store_true",
        help="instead: the speed of what is found within 1/64 to all of --seconds, and within each of --depths",
    )
    parser.add_argument(
        "--times",
        metavar="S,S",
        help="of --curves: searches of so many seconds each, with any number of steps, and no others",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="of --curves: draws them")
    parser.add_argument("--depths", default="3-7", help="of --einnet and --curves: 7, or 3-7")
    parser.add_argument("--gigabytes", type=float, default=8.0, help="of --einnet, at most")
    parser.add_argument("--json", action="store_true")
    return parser


def depths_of(text: str) -> list[int]:
    """ "3-7" or "7". Raises SynoError for another text."""
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal():
        raise SynoError(f"[derive] --depths {text}: it is a number, or two as 3-7")
    return list(range(int(first), int(last or first) + 1))


def times_of(text: str) -> list[float]:
    """ "2,60". Raises SynoError for another text."""
    try:
        times = [float(each) for each in text.split(",")]
    except ValueError:
        times = []
    if not times or not all(0 < each < math.inf for each in times):
        raise SynoError(f"[derive] --times {text}: they are seconds, as 2,60")
    return times


def einnet_spaces(options: argparse.Namespace) -> int:
    """Prints what `--einnet` asks for."""
    try:
        depths = depths_of(options.depths)
        rows = einnet.run(
            depths, seconds=options.seconds, gigabytes=options.gigabytes, names=options.filter
        )
        if not rows:
            raise unknown_name(
                "space", " ".join(options.filter), [space.name for space in einnet.spaces()]
            )
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    document = {
        "machine": msgspec.to_builtins(describe_machine()),
        "command": "python benchmarks/derive.py " + " ".join(sys.argv[1:]),
        "spaces": rows,
    }
    print(json.dumps(document, indent=1) if options.json else "\n".join(map(einnet.line, rows)))
    return 0


def curves_of(cases: Sequence[Case], options: argparse.Namespace) -> int:
    """Prints what `--curves` asks for."""
    try:
        depths = [] if options.times is not None else depths_of(options.depths)
        seconds = (
            times_of(options.times)
            if options.times is not None
            else [options.seconds / part for part in (64, 16, 4, 1)]
        )
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    rows: list[dict[str, Any]] = []
    for case in cases:
        rows += curves.run_curves(
            case,
            seconds=seconds,
            depths=depths,
            threads=options.threads,
            finalists=options.finalists,
        )
        if not options.json:
            own = [row for row in rows if row["name"] == case.name]
            print(case.name, ", ".join(f"{row['speed']:.2f}" for row in own), flush=True)
    document = {
        "machine": msgspec.to_builtins(describe_machine()),
        "command": "python benchmarks/derive.py " + " ".join(sys.argv[1:]),
        "rows": rows,
        "geomean": curves.summary(rows),
    }
    if options.plot is not None:
        curves.plot(rows, options.plot)
    print(json.dumps(document, indent=1) if options.json else document["geomean"])
    return 0


def chosen_cases(options: argparse.Namespace) -> list[Case]:
    """The cases of a run, in order. Raises SynoError for a bad file or name."""
    if options.cases is not None:
        cases = read_cases(options.cases)
    else:
        for name in options.classes:
            if name not in CLASSES:
                raise unknown_name("class", name, CLASSES)
        cases = [case for name in options.classes or CLASSES for case in CLASSES[name]()]
    words = [word.lower() for word in options.filter]
    chosen = [case for case in cases if not words or any(w in case.name.lower() for w in words)]
    if not chosen:
        raise unknown_name("case", " ".join(options.filter), [case.name for case in cases])
    return chosen


def main() -> int:
    """Prints a table, or one JSON document with `--json`; 0 if every case was measured."""
    options = arguments().parse_args()
    if options.einnet:
        return einnet_spaces(options)
    try:
        peers = [name for name in options.peers.split(",") if name]
        for name in peers:
            if name not in PEERS:
                raise unknown_name("peer", name, PEERS)
        cases = chosen_cases(options)
        if options.threads < 1 or options.turns < 3:
            raise SynoError("[derive] --threads must be at least 1 and --turns at least 3")
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, interrupted)
    if options.tiles:
        rows = tiles(cases[0], options.threads)
        print(json.dumps(rows, indent=1) if options.json else "\n".join(map(str, rows)))
        return 0
    torch.set_num_threads(options.threads)
    if options.curves:
        return curves_of(cases, options)
    settings = Settings(
        peers, options.threads, options.turns, machine_model(measure=True).to_json()
    )
    results: list[Result] = []
    failed: dict[str, str] = {}
    try:
        for case in cases:
            try:
                results.append(
                    run_training(case, settings, options.training_seconds)
                    if case.training
                    else run_case(case, settings, options.seconds, options.finalists)
                )
            except SynoError as error:
                failed[case.name] = str(error)
                print(f"{case.name}: {error}", file=sys.stderr, flush=True)
                continue
            if not options.json:
                print(line(results[-1]), flush=True)
    except KeyboardInterrupt:
        print(f"interrupted: {len(results)} of {len(cases)} cases", file=sys.stderr)
        failed |= {c.name: "interrupted" for c in cases[len(results) + len(failed) :]}
    document: dict[str, Any] = {
        "machine": {
            **msgspec.to_builtins(describe_machine()),
            "model": describe(settings.machine),
        },
        "command": "python benchmarks/derive.py " + " ".join(sys.argv[1:]),
        "threads": options.threads,
        "cases": [result.to_dict() for result in results],
        "failed": failed,
        "classes": summary(results),
    }
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        for name, entry in document["classes"].items():
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in entry.items()))
    return 1 if failed else 0


#: From six products on, m + n - 1, the two sets of points differ.
_DIFFERENT_POINTS = 7


def tiles(case: Case, threads: int) -> list[dict[str, Any]]:
    """What each tile of Toom-Cook's algorithm costs in accuracy and gains in time, on one window or two, at balanced points and
    at integers."""
    found = syno.derive(
        case.operator,
        rules=["toom_cook"],
        depth=2,
        seconds=0,
        constants=case.constant,
        threads=threads,
        measure=0,
        growth=100,
    )
    timed = [found.original]
    for path in [found[number].path for number in range(1, len(found))]:
        different = any(sum(site.numbers) >= _DIFFERENT_POINTS for _, site in path)
        for integers in ([], [1]) if different else ([],):
            steps = tuple((rule, _with_points(site, integers)) for rule, site in path)
            timed.append(
                replace(found.original, operator=made_by(case.operator, steps), path=steps)
            )
    judge = Judge(case.operator, "float32", threads)
    kernels = [one.prepack() for one in timed]
    times = judge.times(kernels, 15)
    rows = []
    for one, kernel, us in sorted(
        zip(timed, kernels, times, strict=True), key=lambda row: (bool(row[0].path), row[2])
    ):
        rows.append(
            {
                "tiles": [f"F({site.numbers[0]},{site.numbers[1]})" for _, site in one.path],
                "points": "integers"
                if any(len(s.numbers) > 2 for _, s in one.path)
                else "balanced",
                "multiply_adds": one.multiply_adds,
                "constant_bytes": list(one.constant_bytes),
                "us": round(us, 1),
                "speed_up": round(times[0] / us, 3),
                "errors": {k: float(f"{e:.2e}") for k, e in judge.errors(kernel).items()},
            }
        )
    return rows


def _with_points(site: RewriteSite, integers: list[int]) -> RewriteSite:
    return RewriteSite(
        site.scope, site.iterator, site.other, site.made, [*site.numbers[:2], *integers]
    )


def interrupted(number: int, frame: FrameType | None) -> None:
    """A signal that ends the run as Ctrl-C does: what was measured is printed."""
    raise KeyboardInterrupt


def summary(results: Sequence[Result]) -> dict[str, dict[str, Any]]:
    """By class: geometric means and least ratios, and how often a derived program was the fastest of ours."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(result.klass for result in results):
        own = [r for r in results if r.klass == name]
        entry: dict[str, Any] = {"cases": len(own), "derived": sum(bool(r.steps) for r in own)}
        for key in ("ratio_to_underived", "ratio_to_best_peer"):
            ratios = [getattr(r, key) for r in own if getattr(r, key)]
            mean = geomean(ratios)
            if mean is not None:
                entry[key] = round(mean, 3)
                entry[f"least {key}"] = round(min(ratios), 3)
        found[name] = entry
    return found


def line(result: Result) -> str:
    """A row of the table."""
    rules = ", ".join(step.split(" ", 1)[0] for step in result.steps) or "the original"
    peer = (
        f"{result.ratio_to_best_peer:5.2f}x {result.best_peer}"
        if result.ratio_to_best_peer
        else "     -"
    )
    error = f"{result.max_rel_err:.1e}" if result.max_rel_err is not None else "-"
    return (
        f"{result.name:44} {result.derived_us:9.1f} us  {result.ratio_to_underived:5.2f}x ours  {peer:44} "
        f"error {error}  {rules}"
    )


if __name__ == "__main__":
    sys.exit(main())
