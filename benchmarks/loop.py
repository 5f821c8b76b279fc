"""What a search spends on a candidate before training, and how fast it trains.

    python benchmarks/loop.py latency --candidates 20 --threads 2 --json
    python benchmarks/loop.py training --json

`latency`: random operators of a spec at batch 1. Each distinct valuation is constructed, compiled,
verified and timed once; beside it the prediction of the machine model, its time, and the rank
correlation of the two. `training`: images a second of a residual network for 28x28 images with an
operator in its sites, native forward and backward kernels against the emitted PyTorch, each in eager and
with `--compile` under `torch.compile`, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import msgspec
import torch
from kernelbench.peers import keep_compiled

import syno
from syno import _core
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.support.machine import describe_machine
from syno.support.numbers import significant
from syno.timing.bench import measure
from syno.tuning.cost_model import rank_correlation
from syno.tuning.latency import latency


def latencies(options: argparse.Namespace) -> dict[str, Any]:
    """One row a candidate; cold: kernels are neither in the process nor in a cache."""
    spec = _core.spec_named(options.spec)
    rows = []
    for graph in _core.sample_operators(spec, n=options.candidates, seed=options.seed):
        operator = Operator.from_pgraph(graph)
        start = time.perf_counter()
        guess = latency(operator, batch=1, threads=options.threads, measured=False)
        predicted_s = time.perf_counter() - start
        found = latency(operator, batch=1, threads=options.threads)
        rows.append(
            {
                "expr": operator.expr,
                "valuations": len(found.valuations),
                "us": found.us,
                "predicted_us": guess.predicted_us,
                "seconds": found.seconds,
                "predict_ms": 1e3 * predicted_s,
                "max_rel_err": max(v.max_rel_err or 0.0 for v in found.valuations),
            }
        )
        if not options.json:
            row = rows[-1]
            print(
                f"{significant(row['us']):>9} us, predicted {significant(row['predicted_us']):>9}  "
                f"{significant(row['seconds'])} s, {significant(row['predict_ms']):>5} ms  {row['expr']}",
                flush=True,
            )
    return {
        "candidates": rows,
        "seconds_median": statistics.median(row["seconds"] for row in rows),
        "seconds_greatest": max(row["seconds"] for row in rows),
        "predict_ms_median": statistics.median(row["predict_ms"] for row in rows),
        "rank_correlation": rank_correlation(
            [row["predicted_us"] for row in rows], [row["us"] for row in rows]
        ),
    }


#: Operators of the training comparison, by the name of `_core.named_operators()`.
OPERATORS = ("conv", "operator1", "grouped_conv", "separable_conv")


def trainings(options: argparse.Namespace) -> dict[str, Any]:
    """Steps of forward, backward and update; images a second, and the ratio to the kernels' turn by turn."""
    from syno.models import make
    from syno.torch import replace, sites

    rows = []
    for name in options.operators:
        torch.manual_seed(0)
        model = make("fashion_resnet")
        x = torch.randn(options.batch, 1, 28, 28)
        labels = torch.randint(0, 10, (options.batch,))
        found = sites(model, x[:1]).where(
            kind="conv2d", predicate=lambda s: s.layer.kernel == (3, 3)
        )
        group = max(found.groups(), key=lambda g: len(g.sites))
        graph = _core.named_operator(name, group.spec(), _sizes(group))
        operator = Operator.from_pgraph(graph)
        chosen = {site: operator for site in group.sites}
        steps = {
            "native": _step(replace(model, chosen), x, labels),
            "emitted, eager": _step(replace(model, chosen, native=False), x, labels),
        }
        if options.compile:
            for label, native in (("native, compile", True), ("emitted, compile", False)):
                # Of one graph, or it would be something else that is timed.
                compiled = torch.compile(replace(model, chosen, native=native), fullgraph=True)
                steps[label] = _step(compiled, x, labels)
        timings = {t.name: t for t in measure(steps, turns=options.turns, min_sample_s=0.05)}
        rows.append(
            {
                "operator": name,
                "images_per_s": {
                    label: 1e6 * options.batch / t.median_us for label, t in timings.items()
                },
                "ratio": {
                    label: 1 / t.speed_up for label, t in timings.items() if label != "native"
                },
            }
        )
        if not options.json:
            print(rows[-1], flush=True)
    return {"batch": options.batch, "operators": rows}


def _sizes(group: Any) -> dict[str, str]:
    names = {name for name, _, _ in group.variables}
    taps = next((n for n in ("k", "k_1") if n in names), "3")
    factor = next((n for n in ("s", "g") if n in names), "2")
    return {"kernel": taps, "groups": factor, "shrink": factor, "dilation": factor, "block": factor}


def _step(model: torch.nn.Module, x: torch.Tensor, labels: torch.Tensor) -> Callable[[], Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()

    return step


def main() -> None:
    """Prints rows, or one JSON document with `--json`."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("latency")
    first.add_argument("--spec", default="resnet18", choices=_core.spec_names())
    first.add_argument("--candidates", type=int, default=20)
    first.add_argument("--seed", type=int, default=0)
    second = commands.add_parser("training")
    second.add_argument("--operators", nargs="*", default=list(OPERATORS))
    second.add_argument("--batch", type=int, default=64)
    second.add_argument("--turns", type=int, default=7)
    second.add_argument("--compile", action="store_true", help="each under torch.compile as well")
    for command in (first, second):
        command.add_argument("--threads", type=int, default=1)
        command.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_compiled()
    machine_model(measure=True)
    result = latencies(options) if options.command == "latency" else trainings(options)
    document = {
        "machine": msgspec.to_builtins(describe_machine()),
        "syno": syno.__version__,
        "command": "python benchmarks/loop.py " + " ".join(sys.argv[1:]),
        "threads": options.threads,
        **result,
    }
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        print({k: v for k, v in result.items() if k not in ("candidates", "operators")})


if __name__ == "__main__":
    main()
