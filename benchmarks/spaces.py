"""What a search of a network may find by default: each group of layers, its space, the known operators in it.

    python benchmarks/spaces.py
    python benchmarks/spaces.py --networks cifar_resnet18 gpt --samples 1000 --json

For each group of a network's layers: how many valuations the space has, which of the operators that people have
named it allows, and why not the others; how many different operators a sample of `--samples` gives within
`--seconds`, in how many seconds of a core, and how many of them have a window. An operator counts as allowed when it is with some of the group's
coefficients as its sizes, and no more multiply-adds than the layers. A cell `-` says that it cannot be written for these
shapes: it is not counted. Exit code 1 when one that can be written, and costs no more, is refused.
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
from syno.known.operators import KINDS, Place, at_every_size
from syno.operators.explain import explain
from syno.searching.plan import default_sites
from syno.torch import SiteGroup

#: Operators that people have named, of `syno.known`; those with a window make no sense where layers have none.
NAMED = tuple(
    dict.fromkeys(
        kind.label for kind in KINDS if kind.name not in ("pointwise", "depthwise", "dense", "pool")
    )
)

DEARER = "costs more than the layers"

#: Sizes of an operator that is refused at all of them, looked at for the reason.
_EXPLAINED = 8


def named_in(spec: Any, window: str = "") -> dict[str, str]:
    """`legal`, the reason why not, or `-` for what cannot be written for these shapes.

    What is in the space but for its multiply-adds says `costs more than the layers`: nothing is gained by it.
    """
    place = Place(spec, window)
    cells = {}
    for label in NAMED:
        made = [one for kind in KINDS if kind.label == label for one in at_every_size(kind, place)]
        written = [one.graph for one in made if one.graph is not None]
        if any(allowed(graph, spec) for graph in written):
            cells[label] = "legal"
        elif written:
            cells[label] = min(
                (why_not(graph, spec) for graph in written[:_EXPLAINED]), key=lambda w: w != DEARER
            )
        else:
            cells[label] = f"- {made[0].problem if made else 'no size fits'}"
    return cells


def allowed(graph: Any, spec: Any) -> bool:
    """Whether an operator is in a space; one of more steps than any search takes is not."""
    try:
        return bool(_core.allowed(spec, graph))
    except SynoError:
        return False


def why_not(graph: Any, spec: Any) -> str:
    """What refuses an operator, the first of it; `spec` allows as many multiply-adds as the layers have."""
    try:
        way = explain(graph, spec)
    except SynoError as error:
        return str(error)
    if way.legal:
        return "duplicate"  # allowed, and not by its own steps
    if way.finished_by:
        return DEARER if way.finished_by == "max_flops" else str(way.finished_by)
    taken = (
        n["pruned_by"]
        for step in _core.derivation(spec, graph, 1)["steps"]
        for n in step.get("neighbours", ())
        # `order` is that of the steps as the operator was written, not a reason.
        if n.get("taken") and n.get("pruned_by") not in (None, "", "order")
    )
    return ", ".join(dict.fromkeys(taken)) or str(way.verdict)


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
    begun = time.process_time()
    drawn = _core.sample_operators(spec, n=samples, seed=0, seconds=seconds)
    took = time.process_time() - begun
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
        "--seconds", type=float, default=20, help="most time to draw a group's sample; 0: no limit"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    try:
        found = rows(arguments.networks, arguments.samples, arguments.seconds)
    except SynoError as error:
        raise SystemExit(str(error)) from None
    cells = [cell for r in found for cell in written(r).values()]
    legal = sum(cell == "legal" for cell in cells)
    dearer = sum(cell == DEARER for cell in cells)
    refused = len(cells) - legal - dearer
    if arguments.json:
        print(json.dumps({"groups": found, "cells": len(cells), "legal": legal, "dearer": dearer}))
        return int(refused > 0)
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
    print(
        f"of {len(cells)} known operators that can be written, {legal} are in the default spaces, {dearer} cost more "
        f"than the layers at every size, {refused} are refused"
    )
    return int(refused > 0)


if __name__ == "__main__":
    sys.exit(main())
