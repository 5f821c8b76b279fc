"""Copies of a network that nobody lays out, since what reads them can be computed with them: windows of 481 places around each of
400 tokens are some hundred times what they are taken from.

The float64 check computes a network node by node; here is which results it makes, and until when it holds them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from syno import _core
from syno.graph.building import DTYPES, Network, Node, Value


@dataclass(frozen=True)
class Step:
    """What is computed next."""

    nodes: tuple[Node, ...]
    """One node; or one behind the copies that it reads, which are computed as one program with it."""
    done: tuple[str, ...]
    """Tensors that nobody reads any more."""


def steps(network: Network, most_bytes: float, float_bytes: int | None = None) -> list[Step]:
    """A network's nodes in order, those left out that are copies larger than what they copy and than `most_bytes`: they are
    in the steps of the nodes that read them. What a function of PyTorch reads, or the network returns, is always made.

    Args:
        float_bytes: of each floating point number; default that of its type.
    """
    left: dict[str, Node] = {}
    returned = {value.name for value in network.outputs}
    laid_out = {name for node in network.nodes if node.program is None for name in node.inputs}
    for node in network.nodes:
        # Sizes first: few are that large, and what a program computes takes longer to say.
        name = node.outputs[0]
        if _bytes(network.values[name], float_bytes) <= most_bytes:
            continue
        if name not in returned | laid_out and _is_copy(network, node, left):
            left[name] = node
    made: list[tuple[Node, ...]] = []
    for node in network.nodes:
        if left.get(node.outputs[0]) is not node:
            made.append((*_behind(node, left), node))
    last = {name: at for at, nodes in enumerate(made) for node in nodes for name in node.inputs}
    ends: list[list[str]] = [[] for _ in made]
    for at, nodes in enumerate(made):
        for name in nodes[-1].outputs:
            last.setdefault(name, at)
    for name, at in last.items():
        if name not in returned and name not in left:
            ends[at].append(name)
    return [Step(nodes, tuple(done)) for nodes, done in zip(made, ends, strict=True)]


def as_one(network: Network, nodes: Sequence[Node]) -> Node | None:
    """Copies and the node that reads them as one program; None where they cannot be one."""
    if len(nodes) == 1:
        return nodes[0]
    last = nodes[-1]
    graph = _core.Graph("step")
    inside = {name for node in nodes for name in node.outputs}
    for name in dict.fromkeys(name for node in nodes for name in node.inputs):
        if name not in inside:
            graph.add_input(name, list(network.values[name].shape), network.values[name].dtype)
    for node in nodes:
        assert node.program is not None
        dtype = network.values[node.outputs[0]].dtype
        graph.add_program(node.name, node.program, list(node.inputs), list(node.outputs), dtype)
    graph.set_outputs(list(last.outputs))
    one = graph.try_merged([node.name for node in nodes])
    if isinstance(one, str):
        return None
    (made,) = one.nodes
    assert made.program is not None
    program = _without_copies(str(made.program.text()))
    return replace(last, program=program, inputs=tuple(made.inputs), outputs=tuple(made.outputs))


@lru_cache(maxsize=64)
def _without_copies(text: str) -> _core.Program:
    """Equal layers are one."""
    return _core.without_copies(_core.Program.parse(text))


def _behind(node: Node, left: dict[str, Node]) -> list[Node]:
    """The copies that were left out and a node needs, in order."""
    found: dict[str, Node] = {}
    for name in node.inputs:
        if name in left:
            found |= {each.outputs[0]: each for each in _behind(left[name], left)}
            found[name] = left[name]
    return list(found.values())


def _is_copy(network: Network, node: Node, left: Iterable[str]) -> bool:
    """Whether a node writes more than it reads, or reads what is left out, and computes nothing."""
    if node.program is None or len(node.outputs) != 1 or node.program.cost(0).flops:
        return False
    read, written = (
        sum(math.prod(network.values[name].shape) for name in names)
        for names in (node.inputs, node.outputs)
    )
    return written > read or not {*node.inputs}.isdisjoint(left)


def _bytes(value: Value, float_bytes: int | None) -> int:
    wide = DTYPES[value.dtype].itemsize if float_bytes is None else float_bytes
    return math.prod(value.shape) * wide
