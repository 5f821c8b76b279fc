"""What a search of a network may find by default: each group of layers, its space, the known operators in it.

    python benchmarks/spaces.py
    python benchmarks/spaces.py --networks cifar_resnet18 gpt --samples 1000 --json

For each group of a network's layers: how many valuations the space has, which of the operators that people have
named it allows, and why not the others; how many different operators a sample of `--samples` gives within
`--seconds`, and how many of them have a window. A cell `-` says that the operator cannot be written for these
shapes: it is not counted. Exit code 1 when an operator that can be written is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

import networks

from syno import _core
from syno.errors import SynoError
from syno.explain import explain
from syno.pipeline import default_sites
from syno.torch import SiteGroup

#: Known operators; `stacked` and Operator 2 have windows along two dimensions and say so where there are not.
NAMED = (
    "grouped_conv",
    "bottleneck_conv",
    "separable_conv",
    "dilated_conv",
    "operator1",
    "operator2",
    "stacked_conv",
)


def parameters(spec: Any) -> dict[str, str]:
    """The sizes of known operators, from a group's coefficients."""
    names = [v["name"] for v in json.loads(spec.to_json())["variables"]]
    window = next((name for name in ("k", "k_1") if name in names), "1")
    sizes = {"kernel": window, "groups": "g", "shrink": "s", "dilation": "s"}
    return {size: name for size, name in sizes.items() if name in names or name == "1"}


def named_in(spec: Any) -> dict[str, str]:
    """`legal`, the reason why not, or `-` for what cannot be written for these shapes."""
    cells = {}
    for name in NAMED:
        try:
            graph = _core.named_operator(name, spec, parameters(spec))
            way = explain(graph, spec)
        except SynoError as error:
            cells[name] = f"- {error}"
            continue
        if way.legal:
            cells[name] = "legal"
            continue
        reasons = [
            n["pruned_by"]
            for step in _core.derivation(spec, graph, 1)["steps"]
            for n in step.get("neighbours", ())
            if n.get("taken") and n.get("pruned_by")
        ]
        cells[name] = ", ".join(dict.fromkeys(reasons)) or way.finished_by or way.verdict
    return cells


def has_window(graph: Any) -> bool:
    """Whether an operator slides a window over anything."""
    return any(" unfold " in f" {line} " for line in graph.text().splitlines())


def row(network: str, group: SiteGroup, samples: int, seconds: float) -> dict[str, Any]:
    """One group of the report."""
    try:
        spec = group.spec(flops_ratio=0.9, min_flops_ratio=0.15)
    except SynoError as error:
        return {
            "network": network,
            "group": group.key,
            "sites": len(group.sites),
            "problem": str(error),
        }
    begun = time.perf_counter()
    drawn = _core.sample_operators(spec, n=samples, seed=0, seconds=seconds)
    took = time.perf_counter() - begun
    return {
        "network": network,
        "group": group.key,
        "sites": len(group.sites),
        "valuations": len(group.valuations),
        "named": named_in(group.spec()),
        "sampled": len(drawn),
        "with_windows": sum(map(has_window, drawn)),
        "seconds": round(took, 2),
        "steps": spec.max_steps,
    }


def rows(names: Iterable[str], samples: int, seconds: float) -> list[dict[str, Any]]:
    result = []
    for name in names:
        model, example = networks.make(name)
        with torch.inference_mode():
            groups = default_sites(model.eval(), example).groups()
        del model
        result += [row(name, group, samples, seconds) for group in groups]
        print(f"{name}: {len(groups)} groups", file=sys.stderr)
    return result


def written(row: dict[str, Any]) -> dict[str, str]:
    """The named operators that can be written for a group."""
    return {name: cell for name, cell in row.get("named", {}).items() if not cell.startswith("-")}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=networks.names(), metavar="NAME")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument(
        "--seconds", type=float, default=20, help="most time to draw a group's sample"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    try:
        found = rows(arguments.networks, arguments.samples, arguments.seconds)
    except SynoError as error:
        raise SystemExit(str(error)) from None
    cells = [cell for r in found for cell in written(r).values()]
    legal = sum(cell == "legal" for cell in cells)
    if arguments.json:
        print(json.dumps({"groups": found, "cells": len(cells), "legal": legal}))
        return int(legal < len(cells))
    for r in found:
        print(f"{r['network']}  {r['group']}  {r['sites']} sites")
        if "problem" in r:
            print(f"    {r['problem']}")
            continue
        print(
            f"    {r['valuations']} valuations, {r['sampled']} samples in {r['seconds']} s, "
            f"{r['with_windows']} with windows"
        )
        for name, cell in written(r).items():
            if cell != "legal":
                print(f"    {name}: {cell}")
    print(f"{legal} of {len(cells)} known operators that can be written are in the default spaces")
    return int(legal < len(cells))


if __name__ == "__main__":
    sys.exit(main())
