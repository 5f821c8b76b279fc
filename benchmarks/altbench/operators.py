"""Single operators in several layouts of their data: constructed, and searched."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn

from syno import _core
from syno.errors import SynoError, unknown_name
from syno.graph.from_torch import from_module
from syno.graph.layouts import families_of, relaid
from syno.kernels.prepack import prepacked, prepacked_seconds
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.timing.measuring import measuring
from syno.tuning.search import tune

CHANNELS = (3, 16, 32, 64, 512, 960, 1280)
"""The paper's."""
_IMAGE = {"C1D": (256,), "C3D": (8, 14, 14), "T3D": (4, 7, 7)}

KINDS = ("C2D", "GRP", "DEP", "DIL", "C3D", "C1D", "GMM", "T2D", "T3D")


@dataclass(frozen=True)
class Case:
    """An operator as a module without bias, and the shape of its data."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]


def drawn(kind: str, count: int, seed: int, most: float) -> list[Case]:
    """Random configurations of a kind, as the paper draws them, of at most so many multiply-adds.

    Raises:
        UnknownName: there is no such kind.
    """
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    rng = random.Random(f"{kind} {seed}")
    cases: list[Case] = []
    for _ in range(200 * count):
        if len(cases) == count:
            break
        batch, given, made = rng.choice((1, 16)), rng.choice(CHANNELS), rng.choice(CHANNELS)
        kernel, stride = rng.choice((1, 3)), rng.choice((1, 2))
        image = _IMAGE.get(kind, (rng.choice((7, 14, 28)),) * 2)
        made_points = np.prod(image) / (1 if kind[0] == "T" else stride ** len(image))
        groups = 1
        if kind == "GMM":
            rows = rng.choice((64, 128, 512))
            if batch * rows * given * made <= most:
                cases.append(
                    Case(
                        f"GMM {batch} {rows}x{given}x{made}",
                        nn.Linear(given, made, bias=False),
                        (batch, rows, given),
                    )
                )
            continue
        if kind == "DEP":
            groups, made, kernel = given, given, 3
        elif kind == "GRP":
            groups = rng.choice((2, 4, 8))
            if given % groups or made % groups:
                continue
        dilation = 2 if kind == "DIL" else 1
        if dilation == 2:
            kernel = 3
        work = batch * made * (given // groups) * made_points * kernel ** len(image)
        if work > most or (kernel == 1 and kind[0] == "T"):
            continue
        rank = len(image)
        layer = [nn.Conv1d, nn.Conv2d, nn.Conv3d][rank - 1]
        if kind[0] == "T":
            layer = [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d][rank - 1]
        module = layer(
            given, made, kernel, stride=stride, padding=dilation * (kernel // 2), dilation=dilation, groups=groups,
            bias=False,
        )  # fmt: skip
        size = "x".join(map(str, image))
        name = f"{kind} {batch}x{given}->{made} {size} k{kernel} s{stride}" + (
            f" g{groups}" if groups > 1 else ""
        )
        cases.append(Case(name, module.eval(), (batch, given, *image)))
    return cases


def with_layouts(
    graph: _core.Graph, node: _core.GraphNode, layouts: dict[str, str]
) -> dict[str, Any]:
    """Microseconds of a node whose tensors lie so, predicted and measured, weights packed."""
    made = Operator(relaid(graph, node, layouts))
    assert node.program is not None
    weights = [
        mine
        for mine, name in zip(node.program.inputs, node.inputs, strict=True)
        if graph.tensor(name)[2] == "weight"
    ]
    predicted = prepacked_seconds(made, dtype="float32", threads=1, constants=weights)
    kernel = prepacked(made, weights)
    rng = np.random.default_rng(0)
    arrays = {
        n: rng.standard_normal(made.program.shape(n)).astype(np.float32)
        for n in made.program.inputs
    }
    packed = kernel.pack(**{n: arrays[n] for n in kernel.constants})
    data = [arrays[n] for n in kernel.data]
    return {"predicted_us": predicted * 1e6, "us": timed(lambda: packed(*data)), "operator": made}


def timed(call: Any, rounds: int = 5, least_s: float = 0.02) -> float:
    """Microseconds: the least median of some calls."""
    call()
    with measuring():
        begin = time.perf_counter()
        call()
        count = max(3, min(200, int(least_s / max(time.perf_counter() - begin, 1e-7))))
        medians = []
        for _ in range(rounds):
            times = []
            for _ in range(count):
                begin = time.perf_counter()
                call()
                times.append(time.perf_counter() - begin)
            medians.append(median(times))
    return min(medians) * 1e6


def one_node(module: nn.Module, shape: Sequence[int]) -> tuple[_core.Graph, _core.GraphNode]:
    """A module's graph after merging, and its one node."""
    with torch.no_grad():
        graph = from_module(module, torch.randn(*shape)).network.graph().cleaned()
    names = [node.name for node in graph.nodes]
    if len(names) > 1:
        graph = graph.merged(names)
    return graph, graph.nodes[0]


def run_case(case: Case, trials: int, seed: int) -> dict[str, Any]:
    """Times of an operator in each family of layouts, the same for its data and its result."""
    graph, node = one_node(case.module, case.shape)
    lanes = machine_model().vector_bits // 32
    x = next(name for name in node.inputs if graph.tensor(name)[2] != "weight")
    y = node.outputs[0]
    channel = len(case.shape) - 1 if isinstance(case.module, nn.Linear) else 1
    row: dict[str, Any] = {"case": case.name, "us": {}, "predicted_us": {}, "searched": {}}
    for family in families_of(lanes):
        layouts = {}
        for name in (x, y):
            text = family.layout(graph.tensor(name)[0], channel)
            if text:
                layouts[name] = text
        if not layouts and family.name != "row-major":
            continue
        try:
            made = with_layouts(graph, node, layouts)
        except SynoError as error:
            row.setdefault("failed", {})[family.name] = str(error)[:200]
            continue
        row["us"][family.name] = made["us"]
        row["predicted_us"][family.name] = made["predicted_us"]
        if trials:
            found = tune(made["operator"], trials=trials, seed=seed, keep=False, progress="off")
            row["searched"][family.name] = found.to_dict()
    if "row-major" not in row["us"]:
        return row
    best = min(row["us"], key=lambda name: row["us"][name])
    chosen = min(row["predicted_us"], key=lambda name: row["predicted_us"][name])
    row |= {
        "best": best,
        "chosen": chosen,
        "gain_of_best": row["us"]["row-major"] / row["us"][best],
        "gain_of_chosen": row["us"]["row-major"] / row["us"][chosen],
    }
    return row


def data_of(graph: _core.Graph, node: _core.GraphNode) -> tuple[str, str]:
    """The names of a node's data and of its result."""
    return next(n for n in node.inputs if graph.tensor(n)[2] != "weight"), node.outputs[0]


FIGURE_1 = {"NOHW": "", "NHWO": "reorder(0, 2, 3, 1)", "HWON": "reorder(2, 3, 1, 0)"}


def figure_1(channels: int, image: int, batch: int) -> dict[str, Any]:
    """A 3x3 convolution in the paper's three layouts, data and result alike."""
    module = nn.Conv2d(channels, channels, 3, padding=1, bias=False).eval()
    graph, node = one_node(module, (batch, channels, image, image))
    x, y = data_of(graph, node)
    row: dict[str, Any] = {
        "case": f"{batch}x{channels} {image}x{image}",
        "us": {},
        "predicted_us": {},
    }
    for name, text in FIGURE_1.items():
        made = with_layouts(graph, node, {x: text, y: text} if text else {})
        row["us"][name], row["predicted_us"][name] = made["us"], made["predicted_us"]
    return row


def stem_module(channels: int = 64, image: int = 224) -> tuple[nn.Module, tuple[int, ...]]:
    """ResNet-18's first layer, and the shape of its data."""
    module = nn.Sequential(nn.Conv2d(3, channels, 7, stride=2, padding=3), nn.ReLU()).eval()
    return module, (1, 3, image, image)


def stem_layouts(
    graph: _core.Graph, node: _core.GraphNode, channels: int, image: int
) -> dict[str, dict[str, str]]:
    """The layouts of Table 3 by tensor, and the last one with the data in the tiles that it reads."""
    half, block, rows, columns = image // 2, 16, 4, 16
    x, y = data_of(graph, node)
    tiles = (
        f"split(1, {channels // block}, {block}) split(3, {half // rows}, {rows}) "
        f"split(5, {half // columns}, {columns}) reorder(0, 3, 5, 1, 4, 6, 2)"
    )
    windows = [(2 * (tile - 1) + 7, 2 * tile) for tile in (rows, columns)]
    unfolded = (
        "pad(2, 3, 3) pad(3, 3, 3) "
        f"unfold(2, {windows[0][0]}, {windows[0][1]}) unfold(4, {windows[1][0]}, {windows[1][1]}) reorder(0, 2, 4, 1, 3, 5)"
    )
    return {
        "NHWO": {y: "reorder(0, 2, 3, 1)"},
        "NOHW": {},
        "N(O/ot)HWot": {y: f"split(1, {channels // block}, {block}) reorder(0, 1, 3, 4, 2)"},
        "N(H/ht)(W/wt)(O/ot)htwtot": {y: tiles},
        "the same, data unfolded": {y: tiles, x: unfolded},
    }


def stem(channels: int = 64, image: int = 224) -> dict[str, Any]:
    """ResNet-18's first layer in the layouts of Table 3, and with the data in the tiles that the last one reads."""
    module, shape = stem_module(channels, image)
    graph, node = one_node(module, shape)
    row: dict[str, Any] = {
        "case": f"3->{channels} {image}x{image} k7 s2",
        "us": {},
        "predicted_us": {},
    }
    for name, layouts in stem_layouts(graph, node, channels, image).items():
        try:
            made = with_layouts(graph, node, layouts)
        except SynoError as error:
            row.setdefault("failed", {})[name] = str(error)[:200]
            continue
        row["us"][name], row["predicted_us"][name] = made["us"], made["predicted_us"]
    return row
