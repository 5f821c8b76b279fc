"""EINNET's four spaces (the paper's section 7.3 and its Figures 17 and 18): how many programs there are up to a depth,
how long it takes to look at them all on one core, and whether the paper's target is among them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from syno import _core
from syno.deriving.einnet import CONVERGING
from syno.machines.model import machine_model


class Space(NamedTuple):
    """A case of the paper, what it is to become, and what the authors count at depth 7."""

    name: str
    program: _core.Program
    target: str
    states: int
    seconds: float


def spaces() -> list[Space]:
    """In the paper's order."""
    one = [1, 1]
    window = _core.conv(
        batch=1, in_channels=512, out_channels=512, in_size=[7, 7], kernel=[3, 3],
        pad_begin=one, pad_end=one,
    )  # fmt: skip
    transposed = _core.conv_transposed(
        batch=16, in_channels=448, out_channels=256, in_size=[2, 2], kernel=[4, 4], stride=[2, 2],
        pad_begin=one, pad_end=one,
    )  # fmt: skip
    five = _core.conv(
        batch=16, in_channels=32, out_channels=1, in_size=[224, 224], kernel=[5, 5],
        pad_begin=[2, 2], pad_end=[2, 2],
    )  # fmt: skip
    band = _core.g2bmm(batch=8, length=10000, features=64, width=1000, dilation=4)
    return [
        Space("conv3x3", window, "matmul", 157_966, 7.0),
        Space("conv_transpose", transposed, "matmul", 901_440, 52.7),
        Space("conv5x5", five, "conv:kernel=3,dilation=1", 2_227_699, 98.9),
        Space("g2bmm", band, "g2bmm:dilation=1", 18_286, 0.68),
    ]


def run_space(
    space: Space, depth: int, *, key: bool, converging: int, seconds: float, gigabytes: float
) -> dict[str, Any]:
    """One search. `cpu_seconds` is what the process used: on a busy machine the better measure."""
    machine = machine_model(measure=False)
    began = time.process_time()
    found = _core.search_einnet(
        space.program,
        machine,
        target=space.target,
        depth=depth,
        converging=converging,
        seconds=seconds,
        bytes=int(gigabytes * 2**30),
        key=key,
    )
    used = time.process_time() - began
    counted_there = depth == 7 and key and not converging and found.ended == "exhausted"
    return {
        "name": space.name,
        "target": space.target,
        "depth": depth,
        "key": key,
        "converging": converging,
        "states": found.states,
        "converged": found.converged,
        "applications": found.applications,
        "candidates": found.candidates,
        "seconds": round(found.seconds, 4),
        "cpu_seconds": round(used, 4),
        "target_found": found.target_depth >= 0,
        "target_depth": found.target_depth,
        "megabytes": round(found.bytes / 2**20, 1),
        "ended": found.ended,
        "paper_states": space.states if counted_there else None,
        "paper_seconds": space.seconds if counted_there else None,
    }


def run(
    depths: Sequence[int], *, seconds: float, gigabytes: float, names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """Every space at every depth with the key, the same with the converging stage, and without either as long as searches
    end."""
    rows = []
    for space in spaces():
        if names and not any(name in space.name for name in names):
            continue
        for key, converging in ((True, 0), (True, CONVERGING), (False, 0)):
            for depth in depths:
                row = run_space(
                    space,
                    depth,
                    key=key,
                    converging=converging,
                    seconds=seconds,
                    gigabytes=gigabytes,
                )
                rows.append(row)
                if row["ended"] != "exhausted":
                    break
    return rows


def line(row: dict[str, Any]) -> str:
    """A row of the table."""
    kind = "key, converging" if row["converging"] else "key" if row["key"] else "no key"
    found = f"found at {row['target_depth']}" if row["target_found"] else "not found"
    return (
        f"{row['name']:16} depth {row['depth']:2} {kind:15} "
        f"{row['states']:>12,} states {row['candidates']:>9,} candidates {row['cpu_seconds']:9.3f} s of CPU "
        f"{row['seconds']:9.3f} s  {row['target']} {found}, {row['megabytes']:,.0f} MB, {row['ended']}"
    )
