"""Zero-cost scores of the table's operators, and what each is worth: rank correlation with the accuracy.

    python benchmarks/opbench/scores.py make    # scores.jsonl: a minute or two
    python benchmarks/opbench/scores.py show    # Spearman's correlations, those of learning curves too

Each score looks at the untrained network with an operator in it and one batch of 32 images:

* ``gradient_norm``: norm of the loss's gradient (Abdelfattah et al. 2021);
* ``synflow``: sum of ``|w dR/dw|`` of the linearised network with absolute weights (Tanaka et al. 2020);
* ``naswot``: log determinant of how alike the images' activation patterns are (Mellor et al. 2021), patterns
  taken where a normalisation's output is positive;
* ``expressivity``: entropy of the eigenvalues of the last features' covariance over the batch.

They are compared with structural features that need no network at all (:mod:`syno.operators.features`).
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from make import Trainer
from table import HERE, Row, read_lines, read_table
from torch import Tensor, nn
from torch.nn import functional

from syno import _core
from syno.operators.features import features
from syno.tuning.cost_model import rank_correlation

STRUCTURAL = ("positions", "effective_rank", "log_flops", "log_params")


def gradient_norm(model: nn.Module, images: Tensor, classes: Tensor) -> float:
    """Euclidean norm of the gradient of the loss."""
    model.train().zero_grad()
    functional.cross_entropy(model(images), classes).backward()
    squares = [float((p.grad**2).sum()) for p in model.parameters() if p.grad is not None]
    return math.log(max(sum(squares), 1e-300)) / 2


def synflow(model: nn.Module, images: Tensor, classes: Tensor) -> float:
    """Log of the synaptic flow."""
    model = model.double().eval()
    model.zero_grad()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    model(torch.ones_like(images[:1], dtype=torch.float64)).sum().backward()
    flows = [
        float((p.detach() * p.grad).abs().sum()) for p in model.parameters() if p.grad is not None
    ]
    return math.log(max(sum(flows), 1e-300))


def naswot(model: nn.Module, images: Tensor, classes: Tensor) -> float:
    """Log determinant of the agreement of activation patterns, ``[N, N]``."""
    patterns: list[Tensor] = []
    handles = [
        module.register_forward_hook(lambda _m, _i, out: patterns.append((out > 0).flatten(1)))
        for module in model.modules()
        if isinstance(module, nn.BatchNorm2d)
    ]
    with torch.no_grad():
        model.train()(images)
    for handle in handles:
        handle.remove()
    codes = torch.cat(patterns, dim=1).double()
    agreement = codes @ codes.T + (1 - codes) @ (1 - codes).T
    return float(torch.linalg.slogdet(agreement)[1])


def expressivity(model: nn.Module, images: Tensor, classes: Tensor) -> float:
    """Entropy of the spectrum of the features before the last layer."""
    kept: list[Tensor] = []
    handle = model.get_submodule("head").register_forward_hook(lambda _m, i, _o: kept.append(i[0]))
    with torch.no_grad():
        model.train()(images)
    handle.remove()
    centered = (kept[0] - kept[0].mean(0)).double()
    values = torch.linalg.svdvals(centered) ** 2
    shares = (values / values.sum().clamp_min(1e-300)).clamp_min(1e-300)
    return float(-(shares * shares.log()).sum())


SCORES = {
    "gradient_norm": gradient_norm,
    "synflow": synflow,
    "naswot": naswot,
    "expressivity": expressivity,
}


def make(directory: Path) -> None:
    """Scores every operator that has none yet."""
    from syno.searching.proposers import operator_text

    torch.set_num_threads(1)
    path = directory / "scores.jsonl"
    done = {line["operator"] for line in read_lines(path)} if path.exists() else set()
    trainer = Trainer(directory, "table")
    images, classes = next(iter(trainer.task.batches("train", 0)))
    for row in read_table(directory).operators:
        if row.hash in done:
            continue
        graph = _core.PGraph.parse(row.text)
        structure = features(graph).to_dict()
        line: dict[str, Any] = {"operator": row.hash}
        for name, score in SCORES.items():
            model = trainer.evaluators[False, False].build({"sites": operator_text(graph)}, 0)
            started = time.process_time()
            line[name] = round(score(model, images, classes), 6)
            line[f"{name}_s"] = round(time.process_time() - started, 4)
        line |= {name: structure[name] for name in STRUCTURAL}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def correlations(directory: Path) -> dict[str, float]:
    """Spearman's correlation of every score, and of learning curves, with the mean accuracy."""
    rows = {row.hash: row for row in read_table(directory).operators if row.scores}
    lines = [line for line in read_lines(directory / "scores.jsonl") if line["operator"] in rows]
    accuracy = np.array([rows[line["operator"]].accuracy for line in lines])
    found = {
        name: rank_correlation(np.array([line[name] for line in lines]), accuracy)
        for name in (*SCORES, *STRUCTURAL)
    }
    found["positions + effective_rank"] = rank_correlation(_promise(lines), accuracy)
    curved = [row for row in rows.values() if any(row.curves.values())]
    for at in (0.25, 0.5, 0.75):
        values = np.array([_curve_at(row, at) for row in curved])
        means = np.array([row.accuracy for row in curved])
        found[f"accuracy after {at:.0%} of the training"] = rank_correlation(values, means)
    return {name: round(value, 3) for name, value in found.items()}


def _promise(lines: list[dict[str, Any]]) -> np.ndarray[Any, Any]:
    total = np.zeros(len(lines))
    for name in ("positions", "effective_rank"):
        column = np.array([line[name] for line in lines])
        total += (column - column.mean()) / column.std()
    return total


def _curve_at(row: Row, share: float) -> float:
    curve = next(curve for curve in row.curves.values() if curve)
    return min(curve, key=lambda point: abs(point[0] - share))[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("make", "show"))
    parser.add_argument("--directory", type=Path, default=HERE, help="where the table is")
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.directory)
    print(json.dumps(correlations(arguments.directory), indent=1))


if __name__ == "__main__":
    main()
