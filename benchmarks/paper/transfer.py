"""(f) Operators that a search found, in other networks: legality, multiply-adds, parameters, latency, untrained.

The operators are those that `searched` found (its results file) and of which none beats another in both time and
test, or any pGraph or operator file. Each is written
again for every group of layers of another network: the same steps, that group's shapes and coefficients. Where that
makes an operator, it takes the place of the group's layers. Networks are untrained; a network with operators is
compared with the same one on plain PyTorch, and all take turns with the original: as modules in eager PyTorch, and
compiled whole, which is what a user of the search ends with. `--known` puts operators that people have named, of
the same results, beside them; `--beside` another network's original, such as a smaller one of the same family.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networks
import torch
from torch import nn

import syno
from paper import peers, searched_report, store
from paper.end_to_end import _facts
from syno import _core
from syno.errors import SynoError
from syno.known.operators import NAMES, Place, known_operators
from syno.operators.operator import Operator
from syno.searching.plan import default_sites
from syno.timing.bench import measure
from syno.torch import replace
from syno.torch import sites as find_sites
from syno.torch.groups import SiteGroup
from syno.torch.replace import at_fit

NETWORKS = ("resnet18", "resnet34", "resnext29", "densenet121", "efficientnet_v2_s", "gpt2")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--found",
        nargs="*",
        type=Path,
        help="results of `searched`, operator files or pGraphs; default those of `searched images`, else of its reduced run; none with --named",
    )
    parser.add_argument(
        "--known",
        nargs="*",
        default=[],
        metavar="NAME",
        help="known operators of those results, as `grouped` or `Operator 1`: the best of each name",
    )
    parser.add_argument(
        "--named",
        nargs="*",
        default=[],
        metavar="LABEL",
        help="known operators with their values, as 'Operator 1(g=4, s=2)' or 'separable', of each group's own space",
    )
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), choices=networks.names())
    parser.add_argument(
        "--beside", choices=networks.names(), help="a network whose original takes turns, too"
    )
    parser.add_argument("--peers", nargs="*", default=["compile"], choices=list(peers.PEERS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--no-timing", action="store_true", help="legality and sizes only")


def operators_of(path: Path, known: Sequence[str] = ()) -> dict[str, str]:
    """pGraphs by name: of a results file the found ones that no other found one beats, else the one that is there.

    Args:
        known: names of known operators that are wanted of a results file, too: of each the one that tested best.

    Raises:
        SystemExit: there is none, or the file is something else.
    """
    try:
        if path.suffix != ".json":
            return {path.stem: str(_core.PGraph.parse(path.read_text()).text())}
        content = json.loads(path.read_text())
        if not isinstance(content, dict) or "rows" not in content:
            graph = Operator.load(path).pgraph
            if graph is None:
                raise SystemExit(f"{path} has no pGraph: it cannot be written for other layers")
            return {path.stem: str(graph.text())}
    except (OSError, ValueError, SynoError) as error:
        raise SystemExit(f"{path}: {error}") from None
    rows = content["rows"]
    found = {id: row for id, row in rows.items() if row["origin"] == "found"}
    chosen = searched_report.front_of(found)
    if not chosen:
        raise SystemExit(f"{path} has no found operator that was tested and timed")
    labels = {id: id for id in chosen} | {_known(rows, name, path): name for name in known}
    return {
        label if len(rows[id]["operators"]) == 1 else f"{label}, {stage}": text
        for id, label in labels.items()
        for stage, text in rows[id]["operators"].items()
    }


def _known(rows: Mapping[str, Any], name: str, path: Path) -> str:
    """The row of the known operator of this name that tested best, at whichever sizes."""
    origins = {
        id: row["origin"].removeprefix("known: ").partition("(")[0] for id, row in rows.items()
    }
    rated = [
        id for id, row in rows.items() if row["origin"].startswith("known: ") and "test" in row
    ]
    named = [id for id in rated if origins[id] == name]
    if not named:
        there = ", ".join(sorted({origins[id] for id in rated})) or "none"
        raise SystemExit(f"{path} has no known operator '{name}' that was tested; it has: {there}")
    sign = -1 if rows[named[0]]["metric"] == "loss" else 1
    return max(named, key=lambda id: sign * rows[id]["test"])


def written_for(text: str, spec: _core.Spec) -> _core.PGraph:
    """The same steps over the shapes and coefficients of another space.

    Raises:
        SynoError: these make no operator there; says why.
    """
    head = str(_core.named_operator("conv1x1", spec).text()).splitlines()
    lines = [*_head(head), *_steps(text.splitlines())]
    return _core.PGraph.parse("\n".join(lines) + "\n")


def _first_step(lines: Sequence[str]) -> int:
    """Where the steps begin: after what says the variables, valuations and dimensions."""
    header = (
        "#",
        "syno-pgraph",
        "variable ",
        "valuation ",
        "output ",
        "input n",
        "fixed ",
        "data ",
    )
    return next(
        i
        for i, line in enumerate(lines)
        if line.strip() and not line.startswith(header) and not _is_signature(line)
    )


def _is_signature(line: str) -> bool:
    return line.startswith("input ") and "=" not in line


def _head(lines: Sequence[str]) -> list[str]:
    return list(lines[: _first_step(lines)])


def _steps(lines: Sequence[str]) -> list[str]:
    return list(lines[_first_step(lines) :])


Write = Callable[[SiteGroup], "_core.PGraph"]
"""An operator for a group of layers; raises SynoError where there is none."""


def from_text(text: str, group: SiteGroup) -> _core.PGraph:
    """The steps of a pGraph over the shapes and coefficients of a group's space."""
    return written_for(text, group.spec())


def from_name(label: str, group: SiteGroup) -> _core.PGraph:
    """A known operator as a group's own space has it: strided layers get a Stride.

    Args:
        label: its name with its values, `Operator 1(g=4, s=2)`.
    """
    place = Place(group.spec(), group.window)
    known = known_operators(place, NAMES)
    named = [one for one in known if one.label == label]
    if not named:
        there = ", ".join(dict.fromkeys(one.label for one in known))
        raise SynoError(f"[transfer] no known operator {label!r} here; there are {there}")
    if named[0].graph is None:
        raise SynoError(f"[transfer] {label}: {named[0].problem}")
    return named[0].graph


def placed(write: Write, groups: Sequence[SiteGroup]) -> tuple[dict[str, str], dict[Any, Operator]]:
    """What becomes of an operator in every group, and which sites it serves.

    A group says ``legal``; ``refused by default`` where a search of it would not propose it, as it uses more than such
    a search allows; ``dearer`` where it takes more multiply-adds than the layers, which stay; ``- …`` where it cannot be
    written for these shapes.
    """
    said: dict[str, str] = {}
    assigned: dict[Any, Operator] = {}
    for group in groups:
        try:
            spec = group.spec()
            graph = write(group)
            operator = Operator.from_pgraph(graph)
            for index in range(operator.valuation_count):
                operator.at(index)
        except SynoError as error:
            said[group.key] = "- " + " ".join(str(error).split())[:200]
            continue
        if _multiply_adds(group, operator) > _multiply_adds(group, None):
            said[group.key] = "dearer"
            continue
        said[group.key] = "legal" if _core.allowed(spec, graph) else "refused by default"
        assigned.update((site, operator) for site in group.sites)
    return said, assigned


def _multiply_adds(group: SiteGroup, operator: Operator | None) -> int:
    """Of a group's layers in one call of the network, with an operator in their places or as they are."""
    return sum(
        call.count
        * (site.layer.flops(call.output) if operator is None else at_fit(operator, fit).flops)
        for site in group.sites
        for call, fit in zip(site.calls, site.fits, strict=True)
    )


def run_network(
    name: str, operators: Mapping[str, Write], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Rows by `network/operator`; `…, whole` are compiled by `syno.compile`."""
    torch._dynamo.reset()
    model, x = _settled(name)
    found = find_sites(model, x, repeats=1)
    worth = {site.name for site in default_sites(model, x)}
    groups = found.where(predicate=lambda site: site.name in worth).groups()
    whole = sum(site.flops for site in found)
    facts: dict[str, dict[str, Any]] = {"original": _facts(model, found, {})}
    runs: dict[str, peers.Run] = {"original": peers.eager(model, x, options.threads)}
    wanted = model(x).clone()
    if not options.no_timing:
        for peer in options.peers:
            try:
                runs[f"original, {peer}"] = peers.PEERS[peer](model, x, options.threads)
            except peers.Absent as reason:
                print(f"{name}: {peer} left out: {reason}")
                continue
            facts[f"original, {peer}"] = facts["original"]
            peers.agree(f"{name}, {peer}", runs[f"original, {peer}"], wanted)
        whole_runs = _Whole(options.threads, runs, facts)
        whole_runs.add("original", model, x, facts["original"])
        if options.beside:
            other, y = _settled(options.beside)
            own = _facts(other, find_sites(other, y, repeats=1), {})
            whole_runs.add(options.beside, other, y, own)
    for label, write in operators.items():
        said, assigned = placed(write, groups)
        replaced = sum(site.flops for site in assigned) / whole
        facts[label] = {**_facts(model, found, assigned), "groups": said, "replaced": replaced}
        if not assigned or options.no_timing:
            continue
        torch.manual_seed(2)
        swapped: nn.Module = replace(model, assigned).eval()
        plain = replace(model, assigned, native=False).eval()
        plain.load_state_dict(swapped.state_dict())
        runs[label] = peers.eager(swapped, x, options.threads)
        facts[label]["max_rel_err"] = peers.agree(f"{name} with {label}", runs[label], plain(x))
        facts[label]["params"] = sum(p.numel() for p in swapped.parameters())
        whole_runs.add(label, swapped, x, facts[label])
    rows = {
        f"{name}/{label}": {"network": name, "contestant": label, **fact}
        for label, fact in facts.items()
    }
    if not options.no_timing:
        for timing in measure(runs, turns=options.turns, threads=options.threads):
            rows[f"{name}/{timing.name}"] |= {
                "ms": timing.median_us / 1e3,
                "iqr_ms": timing.iqr_us / 1e3,
                "samples": timing.samples,
                "speed_up": timing.speed_up,
                "threads": options.threads,
            }
        of_peers = [
            rows[f"{name}/{who}"]["ms"]
            for who in ("original", *(f"original, {peer}" for peer in options.peers))
            if who in runs
        ]
        for label in runs:
            rows[f"{name}/{label}"]["of_best_peer"] = min(of_peers) / rows[f"{name}/{label}"]["ms"]
    return rows


def _settled(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network with random weights and statistics as after a training: activations of size one."""
    torch.manual_seed(0)
    model, x = networks.make(name)
    if x.is_floating_point():
        x = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
        model.train()(torch.cat([x, -x]))
    return model.eval(), x


class _Whole:
    """Adds networks that are compiled whole to what takes turns."""

    def __init__(
        self, threads: int, runs: dict[str, peers.Run], facts: dict[str, dict[str, Any]]
    ) -> None:
        self._threads, self._runs, self._facts = threads, runs, facts

    def add(self, label: str, model: nn.Module, x: torch.Tensor, facts: Mapping[str, Any]) -> None:
        with torch.inference_mode(False):  # exported without inference tensors
            x = x.clone()
        begun = time.perf_counter()
        net = syno.compile(model, x, threads=self._threads)
        seconds = time.perf_counter() - begun
        run: peers.Run = lambda: net(x)  # noqa: E731
        error = peers.agree(f"{label}, compiled whole", run, model(x))
        self._runs[f"{label}, whole"] = run
        self._facts[f"{label}, whole"] = {
            **facts,
            "compile_s": round(seconds, 2),
            "max_rel_err": error,
        }


def run(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    whole = store.RESULTS / "paper_searched_images.json"
    reduced = store.RESULTS / "paper_searched_images_reduced.json"
    files = options.found or ([] if options.named else [whole if whole.exists() else reduced])
    operators: dict[str, Write] = {
        name: partial(from_text, text)
        for path in files
        for name, text in operators_of(path, options.known).items()
    }
    operators |= {label: partial(from_name, label) for label in options.named}
    document: dict[str, Any] = {}
    with torch.inference_mode():
        for name in options.networks:
            rows = run_network(name, operators, options)
            document = store.add(options.output, rows)
            columns = [name, "ms", "IQR", "of eager", "of best peer", "MMACs", "params"]
            columns += ["replaced", "groups"]
            print(store.table(columns, [_cells(row) for row in rows.values()]), flush=True)
    return document


def _cells(row: Mapping[str, Any]) -> list[str]:
    timed = "ms" in row
    words = row.get("groups", {})
    counts = Counter("unwritten" if word.startswith("-") else word for word in words.values())
    groups = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return [
        str(row["contestant"]),
        f"{row['ms']:.2f}" if timed else "-",
        f"{row['iqr_ms']:.2f}" if timed else "-",
        f"{row['speed_up']:.2f}x" if timed else "-",
        f"{row['of_best_peer']:.2f}x" if timed else "-",
        f"{row['flops'] / 1e6:.0f}",
        f"{row['params']:,}",
        f"{row['replaced']:.0%}" if "replaced" in row else "-",
        groups if words else "-",
    ]


def plot(document: dict[str, Any], path: Path) -> None:
    """Speed-up over the original in eager PyTorch by network."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [row for row in document["rows"].values() if "speed_up" in row]
    rows = [row for row in rows if row["contestant"] != "original"]
    if not rows:
        return
    names = list(dict.fromkeys(row["network"] for row in rows))
    who = list(dict.fromkeys(row["contestant"] for row in rows))
    figure, axes = plt.subplots(figsize=(2 + 1.6 * len(names), 4))
    width = 0.85 / len(who)
    for i, one in enumerate(who):
        own = {row["network"]: row["speed_up"] for row in rows if row["contestant"] == one}
        places = [n + (i - (len(who) - 1) / 2) * width for n in range(len(names))]
        axes.bar(places, [own.get(name, 0.0) for name in names], width, label=one)
    axes.axhline(1, color="black", linewidth=0.8)
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("speed-up over the original in eager PyTorch")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
