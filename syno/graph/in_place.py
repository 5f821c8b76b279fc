"""Concatenations and slices without work: the tensors that are joined are written where the joined one lies, and a slice that
is a run of a tensor's memory is read there.

A node that puts tensors one behind the other is a step of its own, or part of one that reads them, as long as one of them
lies elsewhere. Otherwise each part's producer writes straight into the whole, and whatever reads the whole reads it as any
tensor. Parts of parts, and parts that several wholes share, have one place in all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from syno import _core
from syno.graph.building import DTYPES

#: Bytes. Parts begin at such places, so that vectors of their first row lie in one line.
_ALIGNMENT = 64
#: A smaller whole is read from the nearest cache wherever it lies: its parts are better computed where they are read.
_LEAST_BYTES = 32 << 10


@dataclass
class Block:
    """Memory that several tensors lie in."""

    at: dict[str, int]
    """Where each of them begins, in bytes, those of joined ones included; the least is 0."""
    bytes: int
    written: dict[str, tuple[int, int]]
    """From where to where each that a step writes lies: apart from each other."""


@dataclass
class InPlace:
    """The nodes that need no work, and where what they join lies.

    Attributes:
        nodes: by name, the byte at which each input begins in the output.
        blocks: memory, with the tensors in it; of a view, the tensor that it shows.
    """

    nodes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)


class Views:
    """Which tensor's memory each tensor of a graph lies in."""

    def __init__(self, graph: _core.Graph) -> None:
        self._shown: dict[str, str] = {}
        for node in graph.nodes:
            if node.program is not None and is_free_view(graph, node):
                self._shown[node.outputs[0]] = node.inputs[0]

    def root(self, name: str) -> str:
        """The tensor whose memory this one is."""
        while name in self._shown:
            name = self._shown[name]
        return name


def is_free_view(graph: _core.Graph, node: _core.GraphNode) -> bool:
    """Whether a node's output is its input's memory."""
    return graph.is_view(node.name) and all(0 not in graph.tensor(name)[0] for name in node.inputs)


def byte_of_run(graph: _core.Graph, node: _core.GraphNode) -> int | None:
    """From which byte of its input on a node's output could be read there, in whole lines; None where it could not."""
    if node.program is None or any(0 in graph.tensor(name)[0] for name in node.inputs):
        return None
    first = graph.run_of(node.name)
    if first is None:
        return None
    byte = int(first) * DTYPES[str(graph.tensor(node.inputs[0])[1])].itemsize
    return None if byte % _ALIGNMENT else byte


def free_slices(graph: _core.Graph, joined: InPlace) -> set[str]:
    """The nodes that need no work since their outputs are runs of memory within a tensor that the network computes.

    Args:
        joined: concatenations that need no work; what lies in them is written there.
    """
    views = Views(graph)
    written = {name for block in joined.blocks for name in block.written}
    fixed = {views.root(name) for name in (*graph.inputs, *graph.outputs)} | set(graph.weights)
    found: set[str] = set()
    within: dict[str, str] = {}  # of a slice's memory, the tensor that it is a slice of
    for node in graph.nodes:
        if node.program is None or is_free_view(graph, node):
            continue
        if byte_of_run(graph, node) is None or views.root(node.outputs[0]) in fixed | written:
            continue
        base = views.root(node.inputs[0])
        while base in within:
            base = views.root(within[base])
        if base not in fixed:
            found.add(node.name)
            within[node.outputs[0]] = node.inputs[0]
    return found


def joined_in_place(graph: _core.Graph, only: Collection[str] | None = None) -> InPlace:
    """The concatenations of a graph that need no work.

    Args:
        only: look at these nodes alone.
    """
    views = Views(graph)
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    outside = {views.root(name) for name in (*graph.inputs, *graph.outputs)} | set(graph.weights)
    readers: dict[str, int] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs):
            readers[name] = readers.get(name, 0) + 1
    found = InPlace()
    lies_in: dict[str, Block] = {}
    for node in graph.nodes:
        if node.program is None or (only is not None and node.name not in only):
            continue
        elements = graph.joined_parts(node.name)
        if not elements:
            continue
        whole = node.outputs[0]
        size = DTYPES[str(graph.tensor(whole)[1])].itemsize
        offsets = tuple(size * each for each in elements)
        parts = [views.root(name) for name in node.inputs]
        if (
            _bytes(graph, whole) < _LEAST_BYTES
            or any(offset % _ALIGNMENT for offset in offsets)
            or not outside.isdisjoint((whole, *parts))
            or len(set(parts)) < len(parts)
            or any(_moves_only(graph, made_by[part], readers) for part in parts)
        ):
            continue
        blocks = [lies_in.get(part) or _alone(graph, part) for part in parts]
        if any(block.at[part] % _ALIGNMENT for block, part in zip(blocks, parts, strict=True)):
            continue
        merged = _merged(blocks, parts, offsets)
        if merged is None:
            continue
        merged.at[whole] = merged.at[parts[0]] - offsets[0]
        for name in merged.at:
            lies_in[name] = merged
        found.nodes[node.name] = offsets
    unique = {id(block): block for block in lies_in.values()}
    found.blocks = list(unique.values())
    return found


def _bytes(graph: _core.Graph, name: str) -> int:
    shape, dtype, _ = graph.tensor(name)
    return math.prod(shape) * DTYPES[str(dtype)].itemsize


def _moves_only(graph: _core.Graph, node: _core.GraphNode, readers: Mapping[str, int]) -> bool:
    """Whether a part is elements of another tensor, for this whole alone: it is better read from there."""
    return graph.only_reads(node.name) and readers.get(node.outputs[0], 0) < 2


def _alone(graph: _core.Graph, name: str) -> Block:
    size = _bytes(graph, name)
    return Block({name: 0}, size, {name: (0, size)})


def _merged(blocks: list[Block], parts: list[str], offsets: tuple[int, ...]) -> Block | None:
    """One block of several, in which these parts lie one behind the other; None where something else lies between them,
    or one has another place already."""
    shifts: dict[int, tuple[Block, int]] = {}
    for block, part, offset in zip(blocks, parts, offsets, strict=True):
        shift = offset - block.at[part]
        if shifts.setdefault(id(block), (block, shift))[1] != shift:
            return None
    least = min(shift for _, shift in shifts.values())
    at: dict[str, int] = {}
    written: dict[str, tuple[int, int]] = {}
    end = 0
    for block, shift in shifts.values():
        move = shift - least
        at |= {name: place + move for name, place in block.at.items()}
        written |= {name: (a + move, b + move) for name, (a, b) in block.written.items()}
        end = max(end, block.bytes + move)
    spans = sorted(written.values())
    if any(after[0] < before[1] for before, after in itertools.pairwise(spans)):
        return None
    return Block(at, end, written)
