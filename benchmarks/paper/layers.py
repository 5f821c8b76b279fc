"""(b) Layer by layer of ResNet-34: convolution, Operators 1 and 2, grouped and bottlenecked convolution.

Grouping and bottlenecking are what NAS-PTE (Turner et al., ASPLOS 2021) does to a convolution. Every
operator runs on its native kernel; the convolution also in eager PyTorch and under `torch.compile`
with freezing, and with `--compile` so does every other operator in its emitted form. All
contestants of a layer take turns; speed-ups refer to the convolution's fastest PyTorch form.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paper import peers, store
from paper.substitutes import OPERATORS, operator_for, replaceable
from syno import _core, models
from syno.operators.operator import Operator
from syno.support.numbers import significant
from syno.timing.bench import measure
from syno.torch import Op
from syno.torch import sites as find_sites
from syno.torch.groups import SiteGroup
from syno.torch.replace import at_fit
from syno.torch.sites import Site

PYTORCH = ("conv, eager", "conv, channels last", "conv, compile")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operators",
        nargs="*",
        default=["operator1", "operator2", "grouped", "bottleneck"],
        choices=list(OPERATORS),
    )
    parser.add_argument("--network", default="resnet34", choices=models.names())
    parser.add_argument("--image", type=int, default=224)
    parser.add_argument("--windows", nargs="*", type=int, default=[3])
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--shrink", type=int, default=4)
    parser.add_argument("--layers", nargs="*", default=[], help="only these, such as 64-64-56-s1")
    parser.add_argument("--compile", action="store_true", help="emitted forms, compiled")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15)


def distinct(sites: list[Site]) -> dict[str, Site]:
    """One site for every shape, by a name such as `64-128-28-s2` (channels in and out, size, stride)."""
    named: dict[str, Site] = {}
    for site in sites:
        layer, call = site.layer, site.calls[0]
        assert layer is not None
        stride = "x".join(map(str, dict.fromkeys(layer.stride)))
        channels = f"{layer.in_channels}-{layer.out_channels}-{call.output[-1]}"
        named.setdefault(f"{channels}-s{stride}", site)
    return named


def run_layer(
    name: str, site: Site, group: SiteGroup, convolution: nn.Module, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Rows by `layer/contestant`."""
    torch._dynamo.reset()
    layer, call, fit = site.layer, site.calls[0], site.fits[0]
    assert layer is not None
    x = torch.randn(call.input, generator=torch.Generator().manual_seed(1))
    wanted = convolution(x)
    runs: dict[str, peers.Run] = {
        "conv, eager": peers.eager(convolution, x, options.threads),
        "conv, channels last": peers.channels_last(convolution, x, options.threads),
    }
    try:
        runs["conv, compile"] = peers.compiled(convolution, x, options.threads)
    except peers.Absent as reason:
        print(f"{name}: {reason}")
    for peer, function in runs.items():
        peers.agree(f"{name}, {peer}", function, wanted)
    native = Operator.from_pgraph(
        _core.named_operator("conv", group.spec(), {"kernel": str(layer.kernel[0])})
    )
    operators = {"conv": native} | {
        operator: operator_for(group, operator, groups=options.groups, shrink=options.shrink)
        for operator in options.operators
    }
    facts: dict[str, dict[str, Any]] = {}
    for operator, symbolic in operators.items():
        concrete = at_fit(symbolic, fit)
        module = Op(concrete, layer=layer).eval()
        plain = module.to_aten()
        runs[operator] = peers.eager(module, x, options.threads)
        error = peers.agree(f"{name}, {operator}", runs[operator], plain(x))
        facts[operator] = {
            "flops": concrete.flops,
            "params": concrete.params,
            "max_rel_err": error,
        }
        if options.compile and operator != "conv":
            label = f"{operator}, emitted, compile"
            runs[label] = peers.compiled(plain, x, options.threads)
            peers.agree(f"{name}, {label}", runs[label], module(x))
            facts[label] = facts[operator]
    timings = {t.name: t for t in measure(runs, turns=options.turns, threads=options.threads)}
    best = max((p for p in PYTORCH if p in timings), key=lambda p: timings[p].speed_up)
    rows = {}
    for label, timing in timings.items():
        known = facts.get(label, {"flops": layer.flops(call.output), "params": layer.params})
        rows[f"{name}/{label}"] = {
            "network": options.network,
            "layer": name,
            "contestant": label,
            "threads": options.threads,
            "us": timing.median_us,
            "iqr_us": timing.iqr_us,
            "samples": timing.samples,
            "speed_up": timing.speed_up / timings[best].speed_up,
            "best_pytorch": best,
            "gflops": 2e-3 * known["flops"] / timing.median_us,
            **known,
        }
    return rows


def run(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = models.make(options.network).eval()
    document: dict[str, Any] = store.read(options.output)
    with torch.inference_mode():
        found = find_sites(model, torch.randn(1, 3, options.image, options.image), repeats=1)
        chosen = replaceable(found, options.windows)
        names = {site.name for site in chosen}
        groups = found.where(predicate=lambda site: site.name in names).groups()
        layers = distinct(chosen)
        for wanted in options.layers:
            if wanted not in layers:
                raise SystemExit(f"no layer {wanted}; there are: {', '.join(layers)}")
        for name, site in layers.items():
            if options.layers and name not in options.layers:
                continue
            group = next(g for g in groups if site.name in {s.name for s in g.sites})
            rows = run_layer(name, site, group, model.get_submodule(site.name), options)
            document = store.add(options.output, rows)
            cells = [
                [
                    row["contestant"],
                    significant(row["us"]),
                    significant(row["iqr_us"], 2),
                    f"{row['speed_up']:.2f}x",
                    significant(row["gflops"]),
                    f"{row['flops'] / 1e6:.1f}",
                    f"{row['params']:,}",
                ]
                for row in rows.values()
            ]
            columns = [name, "us", "IQR", "speed-up", "GFLOP/s", "MMACs", "params"]
            print(store.table(columns, cells), flush=True)
    for contestant, ratio in geomeans(document).items():
        print(f"{contestant:30} {ratio:5.2f}x, geometric mean over the layers")
    return document


def geomeans(document: dict[str, Any]) -> dict[str, float]:
    """Geometric mean of each contestant's speed-ups over the layers it has."""
    ratios: dict[str, list[float]] = {}
    for row in document["rows"].values():
        ratios.setdefault(row["contestant"], []).append(row["speed_up"])
    return {n: math.exp(sum(map(math.log, r)) / len(r)) for n, r in ratios.items()}


def plot(document: dict[str, Any], path: Path) -> None:
    """Time of every contestant by layer, relative to the convolution's fastest PyTorch form."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = document["rows"]
    layers = sorted(
        {r["layer"] for r in rows.values()},
        key=lambda n: [int(p) for p in n.replace("s", "").split("-")],
    )
    names = list(dict.fromkeys(r["contestant"] for r in rows.values()))
    names.sort(key=lambda n: (not n.startswith("conv"), n))
    figure, axes = plt.subplots(figsize=(2 + 1.5 * len(layers), 4))
    width = 0.85 / max(1, len(names))
    for i, name in enumerate(names):
        heights = [rows.get(f"{layer}/{name}", {}).get("speed_up", 0.0) for layer in layers]
        places = [n + (i - (len(names) - 1) / 2) * width for n in range(len(layers))]
        axes.bar(places, heights, width, label=name)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(layers)), layers, fontsize=8)
    axes.set_ylabel("speed-up over the fastest PyTorch convolution")
    axes.legend(fontsize=7, ncols=2)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
