"""(d) A small byte-level GPT on a text file: grouped and synthesised QKV and MLP, loss against steps and time.

After section 9.3 of the paper, which replaces GPT-2's projections. `grouped` splits the channels into
groups; `low-rank` goes through fewer channels; `operator1` is that paper's operator without its
windows (a window over a sequence would see later tokens). `synthesised` is searched: operators of the
projections' space within a FLOPs budget, of which those that let no token see a later one are trained
briefly, and the best is trained in full. Rows that exist with the same recipe are kept.
"""

from __future__ import annotations

import argparse
import glob
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from paper import store
from paper.substitutes import assignment
from syno import _core
from syno.errors import SynoError
from syno.operators.operator import Operator
from syno.timing.bench import measure
from syno.torch import replace
from syno.torch import sites as find_sites
from syno.torch.groups import SiteGroup
from syno.torch.sites import Sites
from syno.training.task import Task
from syno.training.tasks import text
from syno.training.train import TrainResult, train

#: Layers of a block by what is replaced.
PARTS = {"qkv": ("qkv",), "mlp": ("expand", "contract")}
NAMED = {"grouped": "grouped", "low-rank": "bottleneck", "operator1": "operator1"}
VARIANTS = (*NAMED, "synthesised")
#: Real text that Debian installs with Perl.
_TEXTS = "/usr/share/perl/*/pod/perldiag.pod"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--text", help="any text file; default Perl's diagnostics manual, if installed"
    )
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS), choices=VARIANTS)
    parser.add_argument("--seeds", nargs="*", type=int, default=[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=8, help="operators trained briefly")
    parser.add_argument("--search-steps", type=int, default=60, help="of a brief training")
    parser.add_argument("--search-seed", type=int, default=0)
    parser.add_argument("--depth", type=int, default=7, help="most steps of a synthesised operator")
    parser.add_argument("--flops-ratio", type=float, default=0.6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--no-timing", action="store_true", help="train only")
    parser.add_argument("--no-training", action="store_true", help="time what was trained before")


def task_of(options: argparse.Namespace) -> Task:
    """The built-in text task with the wanted sizes."""
    from functools import partial

    from syno.models.gpt import gpt

    path = options.text
    if path is None:
        found = sorted(glob.glob(_TEXTS))
        if not found:
            raise SystemExit(f"there is no {_TEXTS} on this machine: give a text file with --text")
        path = found[-1]
    try:
        task = text(path, context=options.context, batch=options.batch)
        sizes = {"width": options.width, "layers": options.layers, "heads": options.heads}
        task = task.but(
            model=partial(gpt, context=options.context, **sizes),
            steps=options.steps,
            evaluations=11,
            curve_batches=2,
        )
        task.make_model(0)
    except SynoError as error:
        raise SystemExit(str(error)) from None
    return task


def sites_of(task: Task, model: nn.Module, part: str) -> Sites:
    """The projections of every block that a part stands for."""
    found = find_sites(model, task.example(), repeats=1)
    return found.where(
        kind="linear", predicate=lambda site: site.name.rpartition(".")[2] in PARTS[part]
    )


def candidates(group: SiteGroup, options: argparse.Namespace) -> list[Operator]:
    """Different operators of the group's space, drawn at random; they treat every token alike."""
    spec = group.spec(
        flops_ratio=options.flops_ratio, min_flops_ratio=0.05, max_steps=options.depth
    )
    drawn = _core.sample_operators(spec, n=options.candidates, seed=options.search_seed)
    print(f"{len(drawn)} operators to train")
    return [Operator.from_pgraph(graph) for graph in drawn]


def variant(task: Task, part: str, operators: Any, seed: int) -> nn.Module:
    """The GPT with operators in a part's sites: a name, or one operator for each group of sites."""
    model = task.make_model(seed)
    groups = sites_of(task, model, part).groups()
    torch.manual_seed(seed)
    if isinstance(operators, str):
        return replace(model, assignment(groups, NAMED[operators]))
    return replace(model, {site: operators[g.key] for g in groups for site in g.sites})


def synthesise(task: Task, part: str, options: argparse.Namespace) -> dict[str, Operator]:
    """The best operator for each group of sites after a brief training of every candidate."""
    brief = task.but(steps=options.search_steps, evaluations=0)
    chosen: dict[str, Operator] = {}
    for group in sites_of(task, task.make_model(0), part).groups():
        judged = []
        for operator in candidates(group, options):
            model = task.make_model(0)
            torch.manual_seed(0)
            model = replace(model, {site: operator for site in group.sites})
            result = train(brief, model, seed=0, threads=options.threads)
            loss = result.metrics["loss"] if result.state == "done" else float("inf")
            judged.append((loss, operator.expr, operator))
            print(f"  {part}: loss {loss:.4f} after {options.search_steps} steps  {operator.expr}")
        if not judged:
            raise SystemExit(
                f"no causal operator for {group.key} of at most {options.depth} steps and "
                f"{options.flops_ratio} of its FLOPs: raise --depth or --flops-ratio"
            )
        chosen[group.key] = min(judged, key=lambda row: row[:2])[2]
    return chosen


def row_of(
    label: str, part: str, result: TrainResult, model: nn.Module, recipe: dict[str, Any]
) -> dict[str, Any]:
    return {
        "contestant": label,
        "part": part,
        "seed": result.seed,
        "recipe": recipe,
        "state": result.state,
        "reason": result.reason,
        "loss": result.metrics.get("loss"),
        "perplexity": result.value,
        "params": sum(p.numel() for p in model.parameters()),
        "curve": [[p.step, p.metrics["loss"]] for p in result.curve],
    }


def recipe_of(label: str, options: argparse.Namespace) -> dict[str, Any]:
    """All that decides a training but its seed."""
    names = ["steps", "batch", "context", "width", "layers", "heads", "threads"]
    if label.endswith("synthesised"):
        names += ["candidates", "search_steps", "search_seed", "depth", "flops_ratio"]
    return {name: getattr(options, name) for name in names}


def operators_of(row: dict[str, Any]) -> dict[str, Operator]:
    """The synthesised operators of a row, by group of sites."""
    return {
        group: Operator.from_pgraph(_core.PGraph.parse(entry["pgraph"]))
        for group, entry in row.get("operators", {}).items()
    }


def found_before(
    document: dict[str, Any], label: str, recipe: dict[str, Any]
) -> dict[str, Operator]:
    """What the search of another seed's row found; nothing if there is none of the same recipe."""
    for row in document["rows"].values():
        if row["contestant"] == label and row["recipe"] == recipe and "operators" in row:
            return operators_of(row)
    return {}


def timed(
    task: Task, document: dict[str, Any], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """Time of one training step (forward, backward, optimiser) of every variant, in turns."""
    inputs, targets = next(iter(task.batches("train", 0)))
    runs = {}
    for key, row in document["rows"].items():
        label = row["contestant"]
        if row["recipe"] != recipe_of(label, options) or key != f"{label}/seed {options.seeds[0]}":
            continue
        part, _, name = label.partition(", ")
        if label == "original":
            model = task.make_model(0)
        else:
            model = variant(task, part, operators_of(row) or name, 0)
        runs[label] = _step(task, model.train(), inputs, targets)
    if not runs:
        return {}
    runs = {"original": runs.pop("original"), **runs} if "original" in runs else runs
    return {
        f"{t.name}/step": {
            "contestant": t.name,
            "recipe": recipe_of(t.name, options),
            "ms": t.median_us / 1e3,
            "iqr_ms": t.iqr_us / 1e3,
            "samples": t.samples,
            "speed_up": t.speed_up,
        }
        for t in measure(runs, turns=options.turns, threads=options.threads)
    }


def _step(task: Task, model: nn.Module, inputs: Tensor, targets: Tensor) -> Callable[[], None]:
    optimizer = task.make_optimizer([p for p in model.parameters() if p.requires_grad])

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        task.loss_function(model(inputs), targets).backward()
        optimizer.step()

    return step


def run(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    task = task_of(options)
    document = store.read(options.output)
    trainings = [] if options.no_training else options.seeds
    labels = ["original", *(f"{p}, {v}" for p in options.parts for v in options.variants)]
    for seed in trainings:
        for label in labels:
            key = f"{label}/seed {seed}"
            recipe = recipe_of(label, options)
            if document["rows"].get(key, {}).get("recipe") == recipe:
                continue
            part, _, name = label.partition(", ")
            operators: Any = name
            if name == "synthesised":
                operators = found_before(document, label, recipe)
                operators = operators or synthesise(task, part, options)
            if label == "original":
                model = task.make_model(seed)
            else:
                model = variant(task, part, operators, seed)
            result = train(task, model, seed=seed, threads=options.threads)
            row = row_of(label, part, result, model, recipe)
            if name == "synthesised":
                row["operators"] = {
                    group: {"expr": operator.expr, "pgraph": operator.pgraph.text()}
                    for group, operator in operators.items()
                }
            document = store.add(options.output, {key: row})
            print(
                f"{key:26} loss {row['loss']:.4f}  perplexity {row['perplexity']:.3f}  "
                f"{row['params']:,} parameters {row['reason']}",
                flush=True,
            )
    if not options.no_timing:
        document = store.add(options.output, timed(task, document, options))
    cells = []
    for label, rows in by_contestant(document).items():
        losses = [row["loss"] for row in rows if row["loss"] is not None]
        spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
        step = document["rows"].get(f"{label}/step")
        cells.append(
            [
                label,
                f"{statistics.fmean(losses):.4f}{spread}" if losses else "-",
                str(len(losses)),
                f"{rows[0]['params']:,}",
                f"{step['ms']:.1f} ± {step['iqr_ms']:.1f}" if step else "-",
                f"{step['speed_up']:.2f}x" if step else "-",
            ]
        )
    print(store.table(["", "loss", "seeds", "params", "ms a step", "speed-up"], cells))
    return document


def by_contestant(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Trainings by contestant, of the file's longest trainings only: others do not compare."""
    trainings = [row for key, row in document["rows"].items() if "/seed" in key]
    longest = max((row["recipe"]["steps"] for row in trainings), default=0)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in trainings:
        if row["recipe"]["steps"] == longest:
            found.setdefault(row["contestant"], []).append(row)
    return found


def plot(document: dict[str, Any], path: Path) -> None:
    """Validation loss, the mean over seeds, against steps, and against time: steps times what one takes."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (by_step, by_time) = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for index, (label, rows) in enumerate(by_contestant(document).items()):
        curves = [row["curve"] for row in rows if row["curve"]]
        if not curves:
            continue
        # Seeds share their steps; a training that ended early ends the mean.
        points = [list(zip(*point, strict=True)) for point in zip(*curves, strict=False)]
        steps = [point[0][0] for point in points]
        losses = [statistics.fmean(point[1]) for point in points]
        style = {
            "color": f"C{index % 10}",
            "linestyle": "-" if label == "original" else "--",
            "label": f"{label} ({len(curves)} seed{'s' * (len(curves) != 1)})",
        }
        by_step.plot(steps, losses, **style)
        step = document["rows"].get(f"{label}/step")
        if step is not None:
            by_time.plot([n * step["ms"] / 1e3 for n in steps], losses, **style)
    by_step.set_xlabel("steps")
    by_time.set_xlabel("seconds: steps times the measured time of one")
    by_step.set_ylabel("validation loss, nats a byte")
    by_step.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
