"""Whole networks, and the propagation study's two, with layouts chosen in several ways."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from syno.graph.compile import Compiling, check, compile_network
from syno.graph.from_torch import from_module
from syno.graph.layouts import timing
from syno.timing.measuring import measuring

METHODS = {
    "row-major": Compiling(),
    "ALT-OL": Compiling(layouts="channels-last"),
    "blocked": Compiling(layouts="blocked"),
    "ALT-WP": Compiling(layouts="auto", propagate=False),
    "auto": Compiling(layouts="auto"),
    "measured": Compiling(layouts="measured"),
}
"""ALT-OL: loops alone, of NHWO; ALT-WP: chosen, without propagation; auto: with it; measured: the fastest of all uniform
choices and auto."""


def study(number: int, channels: int = 512) -> tuple[nn.Module, torch.Tensor]:
    """The propagation study's sub-graph 1 or 2: pad, 3x3, 1x1."""
    image, made = ((7, channels), (14, 4 * channels))[number - 1]
    module = nn.Sequential(
        nn.ZeroPad2d(1),
        nn.Conv2d(channels, channels, 3, bias=False),
        nn.Conv2d(channels, made, 1, bias=False),
    )
    return module.eval(), torch.randn(1, channels, image, image)


def run_network(
    name: str, model: nn.Module, x: torch.Tensor, methods: Sequence[str], rounds: int
) -> dict[str, Any]:
    """Microseconds of the compiled whole by method, timed in turns, each compared with float64."""
    with torch.no_grad():
        network = from_module(model, x).network
    row: dict[str, Any] = {
        "case": name,
        "us": {},
        "predicted_us": {},
        "compile_s": {},
        "conversions": {},
        "max_rel_err": {},
    }
    compiled = {}
    for method in methods:
        begin = time.perf_counter()
        made, _ = compile_network(network, [x], settings=METHODS[method])
        row["compile_s"][method] = time.perf_counter() - begin
        row["predicted_us"][method] = sum(stage.predicted_us for stage in made.stages)
        row["conversions"][method] = [] if made.layouts is None else list(made.layouts.conversions)
        row["max_rel_err"][method] = check(made, network, [x]).max_rel_err
        compiled[method] = made
    times: dict[str, list[float]] = {method: [] for method in methods}
    array = x.numpy()
    with measuring() as had:
        for _ in range(rounds):
            for method, made in compiled.items():
                times[method].append(timing(made, [array])() * 1e6)
    row["us"] = {method: min(values) for method, values in times.items()}
    row["note"] = had.note
    uniform = [row["us"][m] for m in ("row-major", "ALT-OL") if m in row["us"]]
    if uniform and "auto" in row["us"]:
        row["auto_over_best_uniform"] = min(uniform) / row["us"]["auto"]
    return row
