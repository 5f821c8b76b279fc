"""Training steps of whole networks: forward, loss, backward and update, by `torch.compile(backend="syno")` against eager
PyTorch, the same with channels last, and `torch.compile`.

    python benchmarks/training.py --json
    python benchmarks/training.py --networks cifar_resnet18:32,vit_s:4 --peers eager,last --turns 5
    python benchmarks/training.py --derive 60 --json

A network's number is its batch. All begin with the same weights and see the same batch; `gradient_error` is the distance of all
gradients together from those in float64, as a part of their norm. `ratio_to_best_peer` above 1: ours is faster. `--derive SECONDS`
adds our step with derived kernels, so many seconds of derivation for each of its graphs: `derived_us`, and its ratios.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import torch
from networks import make, names
from torch import Tensor, nn
from torch.nn import functional

from syno.errors import ArgumentError, SynoError, unknown_name
from syno.graph.backend import graphs_compiled
from syno.support.files import write_whole
from syno.support.machine import describe_machine
from syno.timing.bench import measure

#: The small network for 28×28 images at 128 and CIFAR's ResNet-18 at 32.
DEFAULT = "fashion_resnet:128,cifar_resnet18:32"
PEERS = ("eager", "last", "compile")
DERIVED = "derived"
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@dataclass(frozen=True)
class Step:
    """A training step that can be repeated, and the model that it trains."""

    model: nn.Module
    run: Callable[[], float]


def step_of(
    base: nn.Module, x: Tensor, how: str, threads: int, seconds: float = 0.0
) -> Step | None:
    """The step of a copy of the model; None where a way does not apply, such as channels last to words."""
    model = copy.deepcopy(base).train()
    run: Any = model
    if how == "last":
        if x.dim() not in _LAST:
            return None
        model = model.to(memory_format=_LAST[x.dim()])  # type: ignore[call-overload]
        x = x.contiguous(memory_format=_LAST[x.dim()])
        run = model
    elif how == "compile":
        run = torch.compile(model)
    elif how == "syno":
        run = torch.compile(model, backend="syno", options={"threads": threads})
    elif how == DERIVED:
        derive = {"threads": threads, "derive": True, "seconds": seconds}
        run = torch.compile(model, backend="syno", options=derive)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(run(x))
        loss.backward()
        optimizer.step()
        return float(loss.detach())

    return Step(model, step)


def loss_of(y: Any) -> Tensor:
    """Cross entropy where there are classes, to a class that depends on the place in the batch; else a mean of squares."""
    if not isinstance(y, Tensor):
        y = y[0]
    if y.dim() != 2:
        return y.square().mean()
    return functional.cross_entropy(y, torch.arange(y.shape[0]) % y.shape[1])


def gradients(model: nn.Module) -> Tensor:
    """All of them, one after the other, in float64."""
    return torch.cat([p.grad.double().flatten() for p in model.parameters() if p.grad is not None])


def row_of(
    name: str, batch: int, peers: list[str], turns: int, threads: int, seconds: float = 0.0
) -> dict[str, Any]:
    """What is reported of a network; `seconds` of derivation for each graph, 0 for none."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    base, example = make(name)
    shape = (batch, *example.shape[1:])
    floating = example.is_floating_point()
    x = torch.randn(shape) if floating else torch.randint(0, 100, shape)
    exact = copy.deepcopy(base).double().train()
    loss_of(exact(x.double() if floating else x)).backward()
    wanted = gradients(exact)
    steps: dict[str, Step] = {}
    ready: dict[str, float] = {}
    errors: dict[str, float] = {}
    row: dict[str, Any] = {"network": name, "batch": batch, "threads": threads}
    for how in ("syno", *([DERIVED] if seconds > 0 else []), *peers):
        step = step_of(base, x, how, threads, seconds)
        if step is None:
            continue
        begin = time.perf_counter()
        with graphs_compiled() as graphs:
            step.run()
        ready[how] = time.perf_counter() - begin
        errors[how] = float((gradients(step.model) - wanted).norm() / wanted.norm())
        steps[how] = step
        if how == "syno":
            compiled = [made for made in graphs if not isinstance(made, str)]
            row |= {
                "graphs": len(graphs),
                "in_pytorch": [made for made in graphs if isinstance(made, str)],
                "fallbacks": {k: v for made in compiled for k, v in made.fallbacks.items()},
                "kernels": sum(s.kind == "kernel" for made in compiled for s in made.stages),
                "multiply_adds": sum(s.flops for made in compiled for s in made.stages),
            }
    timings = measure({how: step.run for how, step in steps.items()}, turns=turns, threads=threads)
    others = [timing for timing in timings[1:] if timing.name != DERIVED]
    best = min(others, key=lambda t: t.median_us, default=None)
    for derived in (timing for timing in timings if timing.name == DERIVED):
        row |= {
            "derived_us": derived.median_us,
            "derived_spread": derived.iqr_us,
            "ratio_to_underived": derived.speed_up,
            "derived_ratio_to_best_peer": best and derived.speed_up / best.speed_up,
            "derived_gradient_error": errors.pop(DERIVED),
            "derived_ready_s": ready.pop(DERIVED),
        }
    return row | {
        "us": timings[0].median_us,
        "spread": timings[0].iqr_us,
        "peers_us": {t.name: t.median_us for t in others},
        "peers_spread": {t.name: t.iqr_us for t in others},
        "best_peer": best and best.name,
        # Speed-ups refer to ours, turn by turn.
        "ratio_to_best_peer": best and 1 / best.speed_up,
        "ratios": {t.name: 1 / t.speed_up for t in others},
        "gradient_error": errors.pop("syno"),
        "peers_gradient_error": errors,
        "ready_s": ready.pop("syno"),
        "peers_ready_s": ready,
    }


def asked(text: str) -> list[tuple[str, int]]:
    """Networks with their batches.

    Raises:
        UnknownName: no such network.
        ArgumentError: a batch that is no whole number above 0.
    """
    made = []
    for each in filter(None, text.split(",")):
        name, _, batch = each.partition(":")
        if name not in names():
            raise unknown_name("network", name, names())
        if not (batch or "1").isdecimal() or int(batch or "1") < 1:
            raise ArgumentError(
                f"[training] {each}: the batch is {batch!r}", fix=f"write {name}:32, for example"
            )
        made.append((name, int(batch or "1")))
    return made


def main() -> int:
    """Prints a table, or one JSON document with `--json`; 0 if every network was trained."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--networks", default=DEFAULT, help="NAME:BATCH,... of " + ",".join(names())
    )
    parser.add_argument("--peers", default="eager,last", help=f"of {','.join(PEERS)}")
    parser.add_argument(
        "--derive", type=float, default=0.0, metavar="SECONDS", help="of each graph's derivation"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9, help="samples of each, at least 3")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the JSON document, too")
    options = parser.parse_args()
    try:
        networks = asked(options.networks)
        peers = [each for each in options.peers.split(",") if each]
        for each in peers:
            if each not in PEERS:
                raise unknown_name("peer", each, PEERS)
        if options.threads < 1 or options.turns < 3:
            raise ArgumentError("[training] --threads must be at least 1 and --turns at least 3")
        if not 0 <= options.derive < float("inf"):
            raise ArgumentError("[training] --derive is a number of seconds, at least 0")
    except SynoError as error:
        print(error, file=sys.stderr)
        return 2
    torch.set_num_threads(options.threads)
    document: dict[str, Any] = {
        "machine": msgspec.to_builtins(describe_machine()),
        "versions": {name: version(name) for name in ("syno", "torch", "numpy")},
        "load_before": os.getloadavg()[0],
        "command": "python benchmarks/training.py " + " ".join(sys.argv[1:]),
        "networks": [],
    }
    for name, batch in networks:
        row = row_of(name, batch, peers, options.turns, options.threads, options.derive)
        document["networks"].append(row)
        print(line(row), file=sys.stderr if options.json else sys.stdout, flush=True)
        if options.output is not None:
            write_whole(options.output, json.dumps(document, indent=1) + "\n")
    if options.json:
        print(json.dumps(document, indent=1))
    return 0


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    others = ", ".join(f"{name} {us / 1e3:.1f}" for name, us in row["peers_us"].items())
    ratio = f"{row['ratio_to_best_peer']:.2f}x {row['best_peer']}  ({others})" if others else ""
    if "derived_us" in row:
        against = row["derived_ratio_to_best_peer"]
        ratio += (
            f"  derived {row['derived_us'] / 1e3:.1f} ms, {row['ratio_to_underived']:.2f}x ours"
        )
        ratio += f", {against:.2f}x {row['best_peer']}" if against else ""
    return (
        f"{row['network']}:{row['batch']:<6} {row['us'] / 1e3:.1f} ms ±{row['spread'] / 1e3:.1f}  {ratio}  gradients "
        f"{row['gradient_error']:.1e}  {row['kernels']} kernels, {len(row['fallbacks'])} by PyTorch, ready in {row['ready_s']:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
