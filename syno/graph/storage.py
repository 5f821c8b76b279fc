"""Where each tensor of a compiled network lies: in a caller's array, beside the weights, or in the arena."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from syno import _core
from syno.graph.building import DTYPES
from syno.graph.in_place import joined_in_place
from syno.graph.stages import Stage


@dataclass(frozen=True)
class Place:
    """`kind` "arena": at the offset `at` (bytes). "external": the caller's array number `at`. "fixed": the weight `name`."""

    kind: str
    at: int = 0
    name: str = ""


@dataclass(frozen=True)
class Storage:
    places: dict[str, Place]
    copies: tuple[tuple[str, int], ...]
    """(tensor, number of the caller's array): outputs that lie elsewhere and are copied at the end."""
    arena_bytes: int
    live_bytes: int
    """Of the tensors that are alive together at most: no plan needs less."""
    room: dict[str | int, int]
    """Bytes that the plan has for each tensor of the arena, by its name, and for each block that several lie in, by number."""


def bytes_of(shape: Sequence[int], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * DTYPES[dtype].itemsize


def stored(
    graph: _core.Graph, stages: Sequence[Stage], room: Mapping[str | int, int] | None = None
) -> Storage:
    """Places for all tensors; the caller's arrays are the graph's inputs, then its outputs.

    Args:
        room: bytes that items of the arena have at least, as `Storage.room` gives them: with the most that they need at
            any sizes, they lie in the same places at all.
    """
    inputs, outputs = list(graph.inputs), list(graph.outputs)
    weights = set(graph.weights)
    # Of a view: the tensor that it is of, and from which byte on.
    shown: dict[str, tuple[str, int]] = {}

    def root_of(name: str) -> str:
        while name in shown:
            name = shown[name][0]
        return name

    for stage in stages:
        if stage.kind == "view" and len(stage.inputs) == 1:
            base = stage.inputs[0]
            element = bytes_of((1,), graph.tensor(base)[1])
            shown[stage.outputs[0]] = base, (graph.run_of(stage.name) or 0) * element
    joins = [stage.name for stage in stages if stage.kind == "view" and len(stage.inputs) > 1]
    blocks = joined_in_place(graph, joins).blocks if joins else []
    block_of = {name: number for number, block in enumerate(blocks) for name in block.at}
    places = {name: Place("external", number) for number, name in enumerate(inputs)}
    places |= {name: Place("fixed", name=name) for name in weights}
    copies: list[tuple[str, int]] = []
    for number, name in enumerate(outputs, len(inputs)):
        held = root_of(name)
        if held in places:
            copies.append((name, number))
        else:
            places[held] = Place("external", number)
    first: dict[str | int, int] = {}  # of a tensor, or of a block that several lie in
    last: dict[str | int, int] = {}
    sizes: dict[str | int, int] = {}
    for step, stage in enumerate(stages):
        if stage.kind == "view":
            continue
        for name in stage.outputs:
            if name not in places:
                shape, dtype, _ = graph.tensor(name)
                item = block_of.get(name, name)
                first.setdefault(item, step)
                last[item] = step
                sizes[item] = (
                    blocks[item].bytes if isinstance(item, int) else bytes_of(shape, dtype)
                )
        for name in stage.inputs:
            held = root_of(name)
            item = block_of.get(held, held)
            if item in last:
                last[item] = step
    for name, _ in copies:
        held = root_of(name)
        item = block_of.get(held, held)
        if item in last:
            last[item] = len(stages)
    for item, least in (room or {}).items():
        if item in sizes:
            sizes[item] = max(sizes[item], least)
    items = list(first)
    offsets, arena, live = _core.plan_memory([(sizes[i], first[i], last[i]) for i in items])
    for item, at in zip(items, offsets, strict=True):
        inside = blocks[item].at if isinstance(item, int) else {item: 0}
        places |= {name: Place("arena", at + begin) for name, begin in inside.items()}
    for name in shown:  # each behind the tensor that it is of
        base, begin = shown[name]
        places[name] = replace(places[base], at=places[base].at + begin) if begin else places[base]
    return Storage(places, tuple(copies), int(arena), int(live), sizes)
