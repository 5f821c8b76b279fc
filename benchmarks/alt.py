"""Layouts chosen with loops: the ALT paper's experiments, as far as a CPU without counters shows them.

    python benchmarks/alt.py --json                            # everything but networks and searches; minutes
    python benchmarks/alt.py operators --kinds C2D DEP --configs 10 --trials 64
    python benchmarks/alt.py networks --networks resnet18,mobilenet_v2

`figure1`: a 3x3 convolution in NOHW, NHWO and HWON. `stem`: ResNet-18's first layer in Table 3's layouts.
`misses`: Table 2, a tile that lies together or row by row, and Table 3's loads, stores and misses, in simulated caches, and by
`perf` where it can count. `propagation`: the study's sub-graphs, pad, 3x3 and 1x1, in one layout or in chosen ones with conversions.
`joint`: each of the nine kinds again, layouts and loops searched together (templates, `--proposals`) against loops alone at
`--trials` each, row-major; ALT-OL, ALT-WP and ALT as `altbench/joint.py` says; written to `--out` case by case.
`operators`: nine kinds of random configurations (of at most `--most` multiply-adds), row-major, channels last and
blocked, constructed and with `--trials` searched, the same budget for each. `networks`: row-major, ALT-OL (NHWO
everywhere), blocked, ALT-WP (chosen, without propagation), auto, measured; in turns. Microseconds, one thread, weights packed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import networks as known_networks
from altbench.joint import METHODS as JOINT
from altbench.joint import run_joint
from altbench.misses import table_2, table_3
from altbench.networks import METHODS, run_network, study
from altbench.operators import KINDS, drawn, figure_1, run_case, stem

from syno.errors import SynoError, unknown_name
from syno.machines.model import describe, machine_model
from syno.support.files import write_whole
from syno.support.machine import describe_machine

PARTS = ("figure1", "stem", "misses", "propagation", "operators", "networks", "joint")


def arguments() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", default=list(PARTS[:-2]), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), help=f"of {', '.join(KINDS)}")
    parser.add_argument("--configs", type=int, default=3, help="of each kind")
    parser.add_argument("--most", type=float, default=2e8, help="multiply-adds of a configuration")
    parser.add_argument("--trials", type=int, default=0, help="of a search in each layout; 0: none")
    parser.add_argument("--proposals", default="ppo", help="joint: ppo or random")
    parser.add_argument("--levels", type=int, default=1, help="joint: of tiles")
    parser.add_argument("--share", type=float, default=0.6, help="joint: of trials, for layouts")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="joint: begin no case after"
    )
    parser.add_argument("--out", help="joint: a file for what there is so far")
    parser.add_argument("--networks", default="resnet18,mobilenet_v2,bert_base,bert_tiny,r3d_18")
    parser.add_argument("--methods", default=",".join(METHODS), help=f"of {', '.join(METHODS)}")
    parser.add_argument("--rounds", type=int, default=9, help="of timing")
    parser.add_argument("--channels", type=int, default=512, help="of the propagation study")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser


def geomean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def run(options: argparse.Namespace) -> dict[str, Any]:
    """The document.

    Raises:
        UnknownName: of a part, a kind, a method or a network.
    """
    methods = options.methods.split(",")
    for names, known, kind in (
        (options.what, PARTS, "part"), (options.kinds, KINDS, "kind"), (methods, METHODS, "method"),
    ):  # fmt: skip
        for name in names:
            if name not in known:
                raise unknown_name(kind, name, known)
    made: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/alt.py", *sys.argv[1:]]),
        "machine": describe_machine(),
        "model": describe(machine_model()),
    }

    def told(row: dict[str, Any]) -> dict[str, Any]:
        times = "  ".join(f"{name} {us:.1f}" for name, us in row["us"].items())
        print(f"{row['case']}: {times}", file=sys.stderr, flush=True)
        return row

    if "figure1" in options.what:
        sizes = ((64, 56, 1), (128, 28, 1), (256, 14, 1), (512, 7, 1), (64, 28, 16))
        made["figure1"] = [told(figure_1(*size)) for size in sizes]
    if "stem" in options.what:
        made["stem"] = told(stem())
    if "misses" in options.what:
        made["table2"], made["table3"] = table_2(), table_3()
        for row in (*made["table2"], *made["table3"]):
            print("  ".join(f"{k} {v}" for k, v in row.items()), file=sys.stderr, flush=True)
    if "propagation" in options.what:
        made["propagation"] = [
            told(
                run_network(f"sub-graph {n}", *study(n, options.channels), methods, options.rounds)
            )
            for n in (1, 2)
        ]
    if "operators" in options.what:
        rows = [
            told(run_case(case, options.trials, options.seed))
            for kind in options.kinds
            for case in drawn(kind, options.configs, options.seed, options.most)
        ]
        made["operators"] = rows
        timed = [row for row in rows if "best" in row]
        made["operators_geomean"] = {
            "gain_of_best": geomean([row["gain_of_best"] for row in timed]),
            "gain_of_chosen": geomean([row["gain_of_chosen"] for row in timed]),
            "searched_over_constructed": geomean(
                [found["gap"] for row in timed for found in row["searched"].values()]
            ),
        }
    if "joint" in options.what:
        made["joint"] = joint_rows(options, made, told)
    if "networks" in options.what:
        rows = []
        for name in options.networks.split(","):
            model, x = known_networks.make(name)
            rows.append(told(run_network(name, model.eval(), x, methods, options.rounds)))
        made["networks"] = rows
        made["networks_geomean"] = geomean(
            [row["auto_over_best_uniform"] for row in rows if "auto_over_best_uniform" in row]
        )
    return made


def joint_rows(
    options: argparse.Namespace, made: dict[str, Any], told: Callable[[dict[str, Any]], Any]
) -> list[dict[str, Any]]:
    """The first configuration of each kind, then the second, until time is over."""
    begin = time.monotonic()
    by_kind = [drawn(k, options.configs, options.seed, options.most) for k in options.kinds]
    cases = [case for each in itertools.zip_longest(*by_kind) for case in each if case]
    trials = options.trials or 16
    how = {
        "proposals": options.proposals,
        "levels": options.levels,
        "share": options.share,
        "top": 4,
    }
    made["joint_settings"] = {**how, "trials": trials, "most": options.most, "cases": len(cases)}
    rows: list[dict[str, Any]] = []
    for case in cases:
        if time.monotonic() - begin > options.seconds:
            break
        rows.append(told(run_joint(case, list(JOINT), trials, options.seed, **how)))
        made["joint_geomean"] = {
            method: {
                "of": len(ratios),
                "over_loops": geomean(ratios),
                "over_loops_or_loops": geomean([max(1.0, ratio) for ratio in ratios]),
                "below_1": sum(ratio < 1 for ratio in ratios),
            }
            for method in JOINT
            if (ratios := [r["over_loops"][method] for r in rows if method in r["over_loops"]])
        }
        made["joint_searched_over_constructed"] = geomean(
            [r["searched_over_constructed"] for r in rows if "searched_over_constructed" in r]
        )
        made["joint_kinds"] = {
            kind: {
                method: geomean(
                    [r["over_loops"][method] for r in rows
                     if r["case"].startswith(kind) and method in r["over_loops"]]
                )
                for method in JOINT
            }
            for kind in options.kinds
        }  # fmt: skip
        if options.out:
            text = json.dumps(msgspec.to_builtins({**made, "joint": rows}), indent=1)
            write_whole(Path(options.out), text.encode())
    return rows


def main() -> int:
    options = arguments().parse_args()
    try:
        made = run(options)
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(msgspec.to_builtins(made), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
