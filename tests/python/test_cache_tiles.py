"""What a policy finds is what is built: every tile of a cache in the chosen state is a loop of the nest."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from syno import _core
from syno.kernels.construct import construct

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from constructbench.layers import ALL


def built_tiles(schedule: str, nest: str) -> set[int]:
    """Points that a step of each loop around others takes, for the loops that the nest has.

    Of `split y loops=m numbers=4`, then `split y loops=m_o numbers=12`: 4 and 48.
    """
    loops = set(re.findall(r"for (\w+) in", nest))
    units: dict[str, int] = {}
    tiles = set()
    for line in schedule.splitlines():
        found = re.match(r"split (\w+) loops=(\w+) numbers=(\d+)", line)
        if not found:
            continue
        scope, loop, factor = found[1], f"{found[1]} {found[2]}", int(found[3])
        unit = units.get(loop, 1)
        outer = f"{found[2]}_o"
        units[f"{scope} {outer}"] = factor * unit
        units[f"{scope} {found[2]}_i"] = unit
        split_again = f"split {scope} loops={outer} " in schedule
        cut = (
            f"peel {scope} loops={outer}" in schedule
        )  # one step whole, one of the rest: no loop is left
        if split_again or cut or outer in loops:
            tiles.add(factor * unit)
    return tiles


def wanted_tiles(scope: dict[str, Any]) -> set[int]:
    """Of the chosen state, as far as a tile is less than its loop and no more than one step."""
    wanted = set()
    for block in scope["blocks"]:
        extent = 1
        for loop in block["loops"]:
            extent *= scope["extents"][loop]
        wanted |= {tile for tile in block["tiles"] if 1 < tile < extent}
    return wanted


@pytest.mark.parametrize("policy", ["graph", "tree"])
def test_every_tile_of_the_chosen_state_is_a_loop(policy: str) -> None:
    assert len(ALL) == 55
    seen = 0
    for case in ALL:
        program = case.operator().program
        made = construct(program, policy=policy, counted=False)
        nest = str(_core.apply_schedule(program, made.schedule).text())
        built = built_tiles(str(made.schedule.text()), nest)
        for scope in json.loads(made.to_json())["scopes"]:
            assert not scope["counted"], case.name
            wanted = wanted_tiles(scope)
            assert wanted <= built, (case.name, scope["choice"], built)
            seen += len(wanted)
    assert seen > 20
