"""Misses of the first cache (ALT's Tables 2 and 3): loop nests run through simulated caches, and `perf` where it can count.

python -m altbench.misses LAYOUT PIXELS COUNT     # what `perf` looks at: the stem in a layout, called so many times
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from altbench.operators import one_node, stem_layouts, stem_module
from syno import _core, machines
from syno.graph.layouts import relaid
from syno.kernels.prepack import PrepackedKernel, prepacked
from syno.machines.model import load_machine, machine_model
from syno.operators.operator import Operator

#: Width of a tile of 512 rows: misses of a tile that lies together, by the paper's prediction and measured, and of rows that
#: lie apart, measured; on a Cortex-A76.
PAPER = {4: (32, 32, 208), 16: (128, 96, 262), 64: (512, 501, 785), 256: (2048, 2037, 2952)}
#: The paper's: a miss brings the lines behind it, too.
LINES = 4
#: Elements from a row to the next one where rows lie apart: of a matrix of 1,024 columns.
PITCH = 1024
#: In instructions of this process alone.
EVENTS = ("instructions:u", "L1-dcache-loads:u", "L1-dcache-load-misses:u", "L1-dcache-stores:u")


def table_2(machine: _core.MachineModel | None = None) -> list[dict[str, Any]]:
    """Each tile read once, together and row by row, as nests constructed for the machine; default a Cortex-A76."""
    if machine is None:
        machine = load_machine(Path(machines.__file__).with_name("cortex-a76.json"))
    rows = []
    for width, (predicted, together, apart) in PAPER.items():
        row: dict[str, Any] = {"tile": f"512x{width}", "paper": [predicted, together, apart]}
        for name, pitch in (("together", width), ("apart", PITCH)):
            nest = tile_nest(width, pitch, machine)
            row[name] = _core.simulate_caches(nest, machine, lines_per_miss=LINES).misses[0]
            row[f"{name}, a line a miss"] = _core.simulate_caches(nest, machine).misses[0]
        rows.append(row)
    return rows


def tile_nest(width: int, pitch: int, machine: _core.MachineModel) -> _core.LoopNest:
    """All of a tile of 512 rows added up, rows so many elements apart."""
    program = _core.Program.parse("y[] = sum[i,j] x[i,j]", shapes={"x": [512, width]})
    strides = {"x": [pitch, 1]}
    made = _core.construct_schedule(program, machine, strides=strides)
    return _core.apply_schedule(program, made.schedule)


def table_3(image: int = 224, *, counted: bool = True) -> list[dict[str, Any]]:
    """ResNet-18's first layer in the layouts of Table 3: loads, stores and misses of a call, weights packed before.

    Args:
        counted: ask `perf`, too.
    """
    machine = machine_model()
    rows = []
    for name, kernel, _ in stem_kernels(image):
        made = _core.simulate_caches(kernel.call.nest, machine)
        row: dict[str, Any] = {
            "layout": name,
            "loads": made.loads,
            "stores": made.stores,
            "misses": list(made.misses),
        }
        if counted:
            row["perf"] = perf(["-m", "altbench.misses", name, str(image)])
        rows.append(row)
    return rows


def stem_kernels(
    image: int, only: str | None = None
) -> Iterator[tuple[str, PrepackedKernel, dict[str, Any]]]:
    """Layouts, their kernels, and arguments of a call."""
    module, shape = stem_module(64, image)
    graph, node = one_node(module, shape)
    weights = [
        mine
        for mine, name in zip(node.program.inputs, node.inputs, strict=True)
        if graph.tensor(name)[2] == "weight"
    ]
    for name, layouts in stem_layouts(graph, node, 64, image).items():
        if only not in (None, name):
            continue
        made = Operator(relaid(graph, node, layouts))
        kernel = prepacked(made, weights)
        rng = np.random.default_rng(0)
        yield (
            name,
            kernel,
            {n: rng.standard_normal(made.program.shape(n)).astype(np.float32) for n in made.inputs},
        )


def perf(script: Sequence[str], calls: tuple[int, int] = (20, 220)) -> dict[str, float] | str:
    """What a call of a script's kernel counts: the script is run with two numbers of calls, as its last argument.

    Returns:
        Counts by event; a sentence where this machine has no counters.
    """
    program = shutil.which("perf")
    if program is None:
        return "perf is not installed"
    counts: list[dict[str, float]] = []
    for count in calls:
        command = [program, "stat", "-x", ",", "-e", ",".join(EVENTS), "--"]
        ran = subprocess.run(
            [*command, sys.executable, *script, str(count)],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": _path()},
            check=False,
        )
        if ran.returncode:
            return (
                f"perf does not count here: {(ran.stderr.strip().splitlines() or ['?'])[-1][:160]}"
            )
        found = read_counts(ran.stderr)
        if isinstance(found, str):
            return found
        counts.append(found)
    few, many = counts
    return {event: (many[event] - few[event]) / (calls[1] - calls[0]) for event in few}


def read_counts(text: str) -> dict[str, float] | str:
    """Of `perf stat -x ,`: a number and its event a line; a sentence where there are none."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        parts = line.split(",")
        if len(parts) < 3:
            continue
        if parts[0].startswith("<"):
            return f"this machine does not count {parts[2]}"
        try:
            found[parts[2]] = float(parts[0])
        except ValueError:
            continue
    return found if len(found) == len(EVENTS) else "perf counted nothing"


def _path() -> str:
    here = str(Path(__file__).resolve().parents[1])
    return os.pathsep.join([here, *sys.path])


def main(name: str, image: int, count: int) -> None:
    for _, kernel, arrays in stem_kernels(image, name):
        packed = kernel.pack(**{n: arrays[n] for n in kernel.constants})
        data = [arrays[n] for n in kernel.data]
        for _ in range(count):
            packed(*data)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
