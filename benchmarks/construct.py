"""Constructing schedules: how long it takes, how fast the result is, what each idea of Gensor gives.

    python benchmarks/construct.py --json                       # Table IV of the paper, with ablations
    python benchmarks/construct.py operators --names C1 M2 --trials 100 --plot construct.png
    python benchmarks/construct.py all --trials 1000 --json     # what is constructed beside what a search finds, 55 operators
    python benchmarks/construct.py all --trials 1000 --seconds 60 --json   # no operator longer than a minute
    python benchmarks/construct.py policies --json              # all policies, 55 operators, three machines
    python benchmarks/construct.py gemm --json                  # the unbalanced products of Table V
    python benchmarks/construct.py curve --networks resnet34 --trials 64 --plot curve.svg   # time spent against speed
    python benchmarks/construct.py bert --lengths 24 48 96      # a small BERT, sequence length changing
    python benchmarks/construct.py mobilenet --images 50        # MobileNetV2, channels changing three times

`policies` gives every policy the same ranking and number of finalists: the greedy tree, Gensor's graph with
and without virtual threads, a uniform random walk, every state, and the count alone; on Table IV, Table V
and forty further layers; predicted for each machine, timed in turns on this one (`--turns 0`: not).
`operators`, `gemm` and `all` (of these and of forty further layers) construct every case by the greedy tree (Roller-like), by the graph (Gensor) with
and without annealing and virtual threads (register interleaving), and as kernels get it; verify all
results and time them in turns, one thread, arguments warm. `--trials` adds the thorough search, `--seconds`
ends it early: `gap` is best found time / constructed time, `trials` how many there were. `curve` does so for every program of a network (the paper's Figs. 9 and
10) and adds up what the network takes by each way, and by search as it goes on. `bert` and `mobilenet` add up construction or compilation
and inference for each shape, against eager PyTorch and torch.compile, static and dynamic; "packed" are
constructed kernels whose copies of the weights are made once, as `result.apply` does. `--plot` draws speeds
and time to build against speed, or seconds by contestant.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from constructbench.cases import PAPER, UNBALANCED, Case
from constructbench.curve import plot_curves, run_curve
from constructbench.layers import ALL, LAYERS
from constructbench.networks import NETWORKS, run_network
from constructbench.operators import run_case, summary
from constructbench.policies import compare, machines, summary_of

from syno.errors import SynoError, unknown_name
from syno.machines.model import describe, machine_model
from syno.support.machine import describe_machine
from syno.support.numbers import significant


def arguments() -> argparse.ArgumentParser:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "what",
        nargs="?",
        default="operators",
        choices=["operators", "gemm", "all", "policies", "curve", "bert", "mobilenet"],
    )
    parser.add_argument("--names", nargs="*", default=[], metavar="CASE")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--trials", type=int, default=0, help="of the thorough search; 0: none")
    parser.add_argument("--seconds", type=float, help="that a search of one operator may take")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=5, help="of random policies")
    parser.add_argument(
        "--finalists", type=int, default=5, help="of every policy, built and predicted"
    )
    parser.add_argument("--machines", nargs="*", default=["here", "cortex-a76", "neoverse-v1"])
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument(
        "--networks", nargs="*", default=["resnet50", "gpt2", "resnet34"], help="of a curve"
    )
    parser.add_argument("--lengths", type=int, nargs="*", default=[24, 48, 100, 128])
    parser.add_argument("--images", type=int, default=50, help="inferences for each shape")
    parser.add_argument("--peers", default="eager,compile,dynamic")
    parser.add_argument("--json", action="store_true")
    return parser


def chosen(cases: Sequence[Case], names: Sequence[str]) -> list[Case]:
    valid = [case.name for case in cases]
    for name in names:
        if name not in valid:
            raise unknown_name("case", name, valid)
    return [case for case in cases if not names or case.name in names]


def show(row: dict[str, Any]) -> None:
    times = "  ".join(f"{name} {significant(value)}" for name, value in row["us"].items())
    scaled = f" ({row['scaled']})" if row["scaled"] else ""
    print(
        f"{row['name']}{scaled}: us {times}; {significant(row['construct_ms']['constructed'])} ms to construct"
    )
    if "search" in row:
        search = row["search"]
        print(f"    search: {search['gap']:.3f} of the constructed time, {search['trials']} trials")
    sys.stdout.flush()


def main() -> None:
    options = arguments().parse_args()
    model = machine_model(measure=True)
    document: dict[str, Any] = {
        "machine": {**msgspec.to_builtins(describe_machine()), "model": describe(model)},
        "command": "python benchmarks/construct.py " + " ".join(sys.argv[1:]),
    }
    try:
        if options.what in NETWORKS:
            document |= run_network(
                options.what,
                lengths=options.lengths,
                images=options.images,
                peers=options.peers.split(","),
                trials=options.trials,
                show=not options.json,
            )
        elif options.what == "curve":
            document["networks"] = [
                run_curve(
                    name,
                    turns=options.turns,
                    trials=options.trials,
                    seed=options.seed,
                    show=not options.json,
                )
                for name in options.networks
            ]
            document["summary"] = {row["network"]: row["curve"] for row in document["networks"]}
        elif options.what == "policies":
            groups = {
                "Table IV": [case.name for case in PAPER],
                "Table V": [case.name for case in UNBALANCED],
                "layers": [case.name for case in LAYERS],
                "all": [case.name for case in ALL],
            }
            models = machines(options.machines)
            rows = []
            for case in chosen(ALL, options.names):
                rows.append(
                    compare(
                        case,
                        models,
                        seeds=options.seeds,
                        finalists=options.finalists,
                        turns=options.turns,
                    )
                )
                print(case.name, file=sys.stderr, flush=True)
            document |= {"cases": rows, "summary": summary_of(rows, groups)}
        else:
            rows = []
            cases = {"operators": PAPER, "gemm": UNBALANCED, "all": ALL}[options.what]
            try:
                for case in chosen(cases, options.names):
                    rows.append(
                        run_case(
                            case,
                            turns=options.turns,
                            trials=options.trials,
                            seconds=options.seconds,
                            seed=options.seed,
                            peers=options.what == "gemm",
                        )
                    )
                    print(case.name, file=sys.stderr, flush=True)
                    if not options.json:
                        show(rows[-1])
            except KeyboardInterrupt:  # hours of search are not lost
                if not rows:
                    raise
                document["interrupted"] = f"{len(rows)} of {len(cases)} cases"
            document |= {"cases": rows, "summary": summary(rows)}
        if options.plot and options.what != "policies":
            from constructbench.plots import plot_network, plot_operators

            if options.what in NETWORKS:
                plot_network(document, options.plot)
            elif options.what == "curve":
                plot_curves(document, options.plot)
            else:
                plot_operators(document["cases"], options.plot)
    except SynoError as error:
        raise SystemExit(str(error)) from error
    if options.json:
        print(json.dumps(document, indent=1))
    elif "summary" in document:
        print(json.dumps(document["summary"], indent=1))


if __name__ == "__main__":
    main()
