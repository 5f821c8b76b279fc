"""(a) Whole networks with untrained weights: the paper's operators in their sites against the original.

The original runs in eager PyTorch, under `torch.compile` with freezing and in OpenVINO (f32); the
network with operators runs on syno's kernels, alone and under `torch.compile`. Contestants of one
network take turns in one run; every speed-up refers to eager of the same run. A network with
operators is checked against the same network on plain PyTorch functions.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paper import peers, store
from paper.substitutes import OPERATORS, assignment, replaceable
from syno import models
from syno.timing.bench import measure
from syno.torch import replace
from syno.torch import sites as find_sites

#: Size of the input images by network.
NETWORKS = {
    "resnet18": 224,
    "resnet34": 224,
    "resnext29": 32,
    "densenet121": 224,
    "efficientnet_v2_s": 224,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    parser.add_argument("--operators", nargs="*", default=list(OPERATORS), choices=list(OPERATORS))
    parser.add_argument(
        "--compile",
        nargs="*",
        default=["operator1"],
        choices=list(OPERATORS),
        help="networks with these operators run under torch.compile as well (slow to prepare)",
    )
    parser.add_argument(
        "--peers", nargs="*", default=["compile", "openvino"], choices=list(peers.PEERS)
    )
    parser.add_argument(
        "--windows", nargs="*", type=int, default=[1, 3], help="windows of replaced convolutions"
    )
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--shrink", type=int, default=4)
    parser.add_argument("--image", type=int, default=0, help="image size; 0: the network's own")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9)


def settled(name: str) -> nn.Module:
    """The network with random weights and with statistics as after a training: activations of size one."""
    torch.manual_seed(0)
    model = models.make(name)
    model.train()
    with torch.no_grad():
        model(torch.randn(4, 3, min(64, NETWORKS[name]), min(64, NETWORKS[name])))
    return model.eval()


def run_network(name: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Rows by `network/contestant` of one network."""
    torch._dynamo.reset()
    size = options.image or NETWORKS[name]
    model = settled(name)
    x = torch.randn(options.batch, 3, size, size, generator=torch.Generator().manual_seed(1))
    found = find_sites(model, x, repeats=1)
    sites = replaceable(found, options.windows)
    if not sites:
        raise SystemExit(f"{name} has no convolution with a window in {options.windows}")
    names = {site.name for site in sites}
    groups = found.where(predicate=lambda site: site.name in names).groups()
    wanted = model(x).clone()
    runs: dict[str, peers.Run] = {"original": peers.eager(model, x, options.threads)}
    facts: dict[str, dict[str, Any]] = {"original": _facts(model, found, {})}
    for peer in options.peers:
        if peer == "eager":
            continue
        try:
            runs[f"original, {peer}"] = peers.PEERS[peer](model, x, options.threads)
        except peers.Absent as reason:
            print(f"{name}: {peer} left out: {reason}")
            continue
        facts[f"original, {peer}"] = facts["original"]
        peers.agree(f"{name}, {peer}", runs[f"original, {peer}"], wanted)
    for operator in options.operators:
        chosen = assignment(groups, operator, group_count=options.groups, shrink=options.shrink)
        torch.manual_seed(2)
        swapped = replace(model, chosen).eval()
        plain = replace(model, chosen, native=False).eval()
        plain.load_state_dict(swapped.state_dict())
        runs[operator] = peers.eager(swapped, x, options.threads)
        error = peers.agree(f"{name} with {operator}", runs[operator], plain(x))
        facts[operator] = {**_facts(swapped, found, chosen), "max_rel_err": error}
        if operator in options.compile:
            label = f"{operator}, compile"
            runs[label] = peers.compiled(swapped, x, options.threads)
            facts[label] = facts[operator]
            peers.agree(f"{name} with {operator}, compiled", runs[label], swapped(x))
    rows = {}
    for timing in measure(runs, turns=options.turns, threads=options.threads):
        rows[f"{name}/{timing.name}"] = {
            "network": name,
            "contestant": timing.name,
            "image": size,
            "batch": options.batch,
            "threads": options.threads,
            "windows": options.windows,
            "sites": len(sites),
            "ms": timing.median_us / 1e3,
            "iqr_ms": timing.iqr_us / 1e3,
            "samples": timing.samples,
            "speed_up": timing.speed_up,
            **facts[timing.name],
        }
    return rows


def _facts(model: nn.Module, found: Any, chosen: dict[Any, Any]) -> dict[str, Any]:
    from syno.torch.replace import at_fit

    flops = 0
    for site in found:
        operator = chosen.get(site)
        for call, fit in zip(site.calls, site.fits, strict=True):
            flops += (
                site.layer.flops(call.output) if operator is None else at_fit(operator, fit).flops
            ) * call.count
    return {"flops": flops, "params": sum(p.numel() for p in model.parameters())}


def run(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    document: dict[str, Any] = {}
    with torch.inference_mode():
        for name in options.networks:
            rows = run_network(name, options)
            document = store.add(options.output, rows)
            columns = [name, "ms", "IQR", "speed-up", "MMACs", "params"]
            cells = [
                [
                    row["contestant"],
                    f"{row['ms']:.2f}",
                    f"{row['iqr_ms']:.2f}",
                    f"{row['speed_up']:.2f}x",
                    f"{row['flops'] / 1e6:.0f}",
                    f"{row['params']:,}",
                ]
                for row in rows.values()
            ]
            print(store.table(columns, cells), flush=True)
    return document


def plot(document: dict[str, Any], path: Path) -> None:
    """Speed-up over eager PyTorch by network, one bar a contestant."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = list(document["rows"].values())
    networks = [n for n in NETWORKS if any(r["network"] == n for r in rows)]
    names = list(dict.fromkeys(r["contestant"] for r in rows if r["contestant"] != "original"))
    names.sort(key=lambda n: (not n.startswith("original"), n))
    figure, axes = plt.subplots(figsize=(2 + 1.9 * len(networks), 4))
    width = 0.85 / max(1, len(names))
    for i, name in enumerate(names):
        heights = [
            document["rows"].get(f"{network}/{name}", {}).get("speed_up", 0.0)
            for network in networks
        ]
        places = [n + (i - (len(names) - 1) / 2) * width for n in range(len(networks))]
        axes.bar(places, heights, width, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(networks)), networks)
    axes.set_ylabel("speed-up over the original in eager PyTorch")
    axes.legend(fontsize=7, ncols=2)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
