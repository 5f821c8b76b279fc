"""(c) Trained on Fashion-MNIST: convolution, Operator 1, the stack of Fig. 10, what our search found, INT8.

Every operator takes the place of the network's 3x3 convolutions without stride and is trained by the
same recipe with every seed; the 10,000 test images judge it. INT8 is the trained original, quantised
after training (per channel, calibrated on training images). Rows that exist already with the same
recipe are kept, so that an interrupted run continues. At the end all networks are timed in turns.
"""

from __future__ import annotations

import argparse
import math
import statistics
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paper import peers, store
from paper.substitutes import OPERATORS, assignment
from syno import _core
from syno.errors import SynoError
from syno.operators.operator import Operator
from syno.support.numbers import significant
from syno.timing.bench import measure
from syno.torch import replace
from syno.torch import sites as find_sites
from syno.training.task import Task
from syno.training.tasks import fashion_mnist
from syno.training.train import TrainResult, evaluate, train

#: Found by `syno demo` with seed 0; `--searched` takes any other operator file or pGraph.
SEARCHED = store.RESULTS / "searched.pgraph"
CONTESTANTS = ("conv", *OPERATORS, "searched", "int8")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--operators",
        nargs="*",
        default=["conv", "operator1", "stacked", "searched", "int8"],
        choices=CONTESTANTS,
    )
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--data", help="directory of Fashion-MNIST's four files")
    parser.add_argument("--examples", type=int, default=16_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--widths", nargs="*", type=int, default=[32, 48, 64])
    parser.add_argument(
        "--searched", type=Path, default=SEARCHED, help="an operator file, or a pGraph as text"
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--no-timing", action="store_true", help="train only")
    parser.add_argument("--no-training", action="store_true", help="time only")


def searched_operator(path: Path) -> Operator:
    """The operator of a file that a search wrote, or of a pGraph's text.

    Raises:
        SynoError: the file is neither.
        OSError: it cannot be read.
    """
    if path.suffix == ".json":
        return Operator.load(path)
    return Operator.from_pgraph(_core.PGraph.parse(path.read_text()))


def network(task: Task, contestant: str, seed: int, searched: Path) -> nn.Module:
    """The task's network with a contestant's operators in it, its weights drawn with `seed`."""
    model = task.make_model(seed)
    if contestant in ("conv", "int8"):
        return model
    found = find_sites(model, task.example(), repeats=1)
    sites = found.where(
        kind="conv2d",
        predicate=lambda s: (
            s.layer.kernel == (3, 3) and set(s.layer.stride) == {1} and s.layer.in_channels > 1
        ),
    )
    torch.manual_seed(seed)
    if contestant == "searched":
        operator = searched_operator(searched)
        return replace(model, {site: operator for site in sites})
    return replace(model, assignment(sites.groups(), contestant))


def quantised(model: nn.Module, task: Task, batches: int = 16) -> nn.Module:
    """The model in INT8 by PyTorch's post-training quantisation for x86."""
    from torch.ao.quantization import get_default_qconfig_mapping
    from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

    torch.backends.quantized.engine = "x86"
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        mapping = get_default_qconfig_mapping("x86")
        prepared = prepare_fx(model.eval(), mapping, (task.example(),))
        for count, (inputs, _) in enumerate(task.batches("train", 0)):
            if count == batches:
                break
            prepared(inputs)
        result: nn.Module = convert_fx(prepared)
    return result


@dataclass(frozen=True)
class Trained:
    """A trained network and how its training went."""

    model: nn.Module
    result: TrainResult


def train_network(contestant: str, seed: int, task: Task, options: argparse.Namespace) -> Trained:
    """One training, judged on the test images."""
    model = network(task, contestant, seed, options.searched)
    return Trained(model, train(task, model, seed=seed, part="test", threads=options.threads))


def row_of(
    contestant: str, seed: int, task: Task, found: Trained, recipe: dict[str, Any]
) -> dict[str, Any]:
    """A training as a row of results; of INT8, the original's training and the test after quantisation."""
    model, result = found.model, found.result
    row = {
        "contestant": contestant,
        "seed": seed,
        "recipe": recipe,
        "accuracy": result.value,
        "stderr": result.stderr,
        "state": result.state,
        "reason": result.reason,
        "params": sum(p.numel() for p in model.parameters()),
        "seconds": result.seconds,
        "images_per_s": result.examples_per_s,
    }
    if contestant == "int8":
        judged = evaluate(quantised(model, task), task, task.batches("test"))
        row |= {
            "accuracy": judged.value,
            "stderr": judged.stderr,
            "accuracy_before": result.value,
        }
    return row


def timed(task: Task, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Latency of every contestant's network at batch 1, eager, in turns."""
    x = task.example()
    runs: dict[str, peers.Run] = {}
    for contestant in dict.fromkeys(["conv", *options.operators]):
        model = network(task, contestant, 0, options.searched).eval()
        if contestant == "int8":
            model = quantised(model, task)
        runs[contestant] = peers.eager(model, x, options.threads)
    with torch.inference_mode():
        try:
            original = network(task, "conv", 0, options.searched).eval()
            runs["conv, compile"] = peers.compiled(original, x, options.threads)
        except peers.Absent as reason:
            print(reason)
        timings = measure(runs, turns=options.turns, threads=options.threads)
    return {
        f"{t.name}/latency": {
            "contestant": t.name,
            "us": t.median_us,
            "iqr_us": t.iqr_us,
            "samples": t.samples,
            "speed_up": t.speed_up,
            "threads": options.threads,
            "batch": 1,
        }
        for t in timings
    }


def run(options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    recipe = {
        "examples": options.examples,
        "epochs": options.epochs,
        "widths": options.widths,
        "threads": options.threads,
    }
    try:
        task = fashion_mnist(
            options.data,
            widths=tuple(options.widths),
            examples=options.examples,
            epochs=options.epochs,
        )
        if "searched" in options.operators:
            searched_operator(options.searched)
    except (SynoError, OSError) as error:
        raise SystemExit(str(error)) from None
    document = store.read(options.output)
    for seed in options.seeds if not options.no_training else []:
        original: Trained | None = None
        for contestant in options.operators:
            key = f"{contestant}/seed {seed}"
            if document["rows"].get(key, {}).get("recipe") == recipe:
                continue
            if contestant in ("conv", "int8"):  # one training serves both
                found = original = original or train_network("conv", seed, task, options)
            else:
                found = train_network(contestant, seed, task, options)
            row = row_of(contestant, seed, task, found, recipe)
            document = store.add(options.output, {key: row})
            print(
                f"{key:20} {row['accuracy']:.4f} ± {row['stderr']:.4f}  {row['params']:,} parameters  "
                f"{row['images_per_s']:.0f} images/s  {row['reason']}",
                flush=True,
            )
    if not options.no_timing:
        document = store.add(options.output, timed(task, options))
    columns = ["", "accuracy", "spread", "seeds", "params", "us", "speed-up"]
    print(store.table(columns, [_cells(*item) for item in summary(document).items()]))
    return document


def summary(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """By contestant: mean accuracy, standard deviation over the seeds, parameters, latency.

    Only the longest recipe of the file counts: accuracies of different trainings do not compare.
    """
    result: dict[str, dict[str, Any]] = {}
    recipes = [row["recipe"] for row in document["rows"].values() if "recipe" in row]
    longest = max(recipes, key=lambda recipe: recipe["examples"] * recipe["epochs"], default=None)
    for key, row in document["rows"].items():
        entry = result.setdefault(row["contestant"], {"values": []})
        if key.endswith("/latency"):
            entry["us"], entry["speed_up"] = row["us"], row["speed_up"]
        elif row["state"] == "done" and row["recipe"] == longest:
            entry["values"].append(row["accuracy"])
            entry["params"] = row["params"]
    for entry in result.values():
        values = entry.pop("values")
        entry["seeds"] = len(values)
        entry["accuracy"] = statistics.fmean(values) if values else math.nan
        entry["spread"] = statistics.stdev(values) if len(values) > 1 else math.nan
    return result


def _cells(name: str, entry: dict[str, Any]) -> list[str]:
    return [
        name,
        f"{entry['accuracy']:.4f}",
        f"{entry['spread']:.4f}",
        str(entry["seeds"]),
        f"{entry.get('params', 0):,}",
        significant(entry["us"]) if "us" in entry else "-",
        f"{entry['speed_up']:.2f}x" if "us" in entry else "-",
    ]


def plot(document: dict[str, Any], path: Path) -> None:
    """Accuracy with its spread over the seeds against latency."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, entry in summary(document).items():
        if "us" not in entry or not entry["seeds"]:
            continue
        spread = 0.0 if math.isnan(entry["spread"]) else entry["spread"]
        accuracy = 100 * entry["accuracy"]
        axes.errorbar(entry["us"], accuracy, 100 * spread, fmt="o", capsize=3)
        axes.annotate(name, (entry["us"], accuracy), (5, 4), textcoords="offset points")
    axes.set_xlabel("latency of the network, batch 1, µs")
    axes.set_ylabel("accuracy on the test images, %")
    axes.margins(0.15)
    figure.tight_layout()
    figure.savefig(path)
    plt.close(figure)
