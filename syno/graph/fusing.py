"""Which nodes of a network become one kernel: decided by what the machine model says of each way.

Two nodes are joined where the program of both is predicted to take less than the two programs one after the other: the
activation behind a convolution, the permutation before a product of matrices, the sum before a normalisation.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from syno import _core
from syno.errors import SynoError
from syno.graph.in_place import byte_of_run
from syno.graph.merging import pairs_of
from syno.graph.parameters import At
from syno.kernels.cache import read_entry, write_entry
from syno.kernels.prepack import prepacked_seconds
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.support.together import together

#: What a call of a further kernel costs beside its work, in seconds.
_CALL_S = 0.3e-6

#: Of the time apart: less is within what predictions say, and a larger program takes longer to compile and to check.
_LEAST_GAIN = 1e-3
#: A program of more scopes is not joined with others: constructing its schedule takes long, and gains by then are small.
_MOST_SCOPES = 16

#: Multiply-adds for each element that is read or written, from which on a node counts as bound by computing. Two of
#: those are joined where the trip to memory that one spares the other is a part of their time that counts.
_BUSY = 8.0
_LEAST_TRIP = 0.03
_BYTES = {"float32": 4, "float64": 8, "bfloat16": 2}

Cost = Callable[[_core.Program, Sequence[str]], float]
"""Predicted seconds of one call of a program; the inputs named stay the same over calls."""


@dataclass(frozen=True)
class Joined:
    """A decision: these nodes, one kernel; the predictions that it rests on."""

    nodes: tuple[str, ...]
    apart_us: float
    joined_us: float
    pair: tuple[str, str] = ("", "")
    """The two nodes, as they were called by then."""

    def __str__(self) -> str:
        return f"{' + '.join(self.nodes)}: {self.apart_us:.1f} us apart, {self.joined_us:.1f} us joined"


class PredictedCost:
    """Predicted seconds by the machine model, kept for programs seen before."""

    def __init__(self, dtype: str = "float32", threads: int = 1, constants_from: int = 0) -> None:
        """
        Args:
            constants_from: the level of the machine model that weights come from, as for `prepacked`.
        """
        self.dtype, self.threads, self.constants_from = dtype, threads, constants_from
        self._known: dict[tuple[str, tuple[str, ...]], float] = {}

    def __call__(self, program: _core.Program, constants: Sequence[str]) -> float:
        neutral, key = _neutral(program, constants)
        if key not in self._known:
            self._known[key] = self._seconds(neutral, key[1])
        return self._known[key]

    def predict(self, programs: Iterable[tuple[_core.Program, Sequence[str]]]) -> None:
        """What it will be asked for, on as many cores as there are."""
        wanted = {key: neutral for neutral, key in (_neutral(*each) for each in programs)}
        fresh = [(key, neutral) for key, neutral in wanted.items() if key not in self._known]
        seconds = together(lambda each: self._seconds(each[1], each[0][1]), fresh)
        self._known.update({key: s for (key, _), s in zip(fresh, seconds, strict=True)})

    def _seconds(self, neutral: _core.Program, constants: Sequence[str]) -> float:
        try:
            return prepacked_seconds(
                Operator(neutral),
                dtype=self.dtype,
                threads=self.threads,
                constants=constants,
                constants_from=self.constants_from,
            )
        except SynoError:  # what no schedule is found for is no better than anything
            return float("inf")


def _neutral(
    program: _core.Program, constants: Sequence[str]
) -> tuple[_core.Program, tuple[str, tuple[str, ...]]]:
    """Equal layers are one, and what tells it from others."""
    neutral, given, _ = program.neutral()
    fixed = tuple(mine for mine, name in given.items() if name in constants)
    return neutral, (str(neutral.text()), fixed)


def fused(
    graph: _core.Graph,
    cost: Cost,
    *,
    dtype: str = "float32",
    threads: int = 1,
    directory: Path | None = None,
    alike: Sequence[_core.Graph] = (),
    in_place: Collection[str] = (),
) -> tuple[_core.Graph, dict[str, tuple[str, ...]], list[Joined]]:
    """The graph with nodes joined where that is predicted to be faster.

    Args:
        graph: nodes that depend on weights alone are computed already.
        cost: of one program, on `threads`.
        dtype: nodes of another element type stay alone.
        directory: where decisions about such a graph are kept, and taken from; for the machine model's cost alone.
        alike: the graph at other sizes. What is joined must not take sizes into its indices, as reshapes by them do: one
            code could not serve them all.
        in_place: nodes that need no work, whose outputs are made by those before: they stay as they are.
    Returns:
        The graph; the names of the original nodes that each node holds; the decisions in order.
    """
    path = (
        directory / f"{_digest(graph, cost, dtype, threads, alike, in_place)}.joined"
        if directory
        else None
    )
    made = _Joining(graph)
    kept = _kept(path) if path else None
    if kept is not None and all(made.join(*step) for step in kept):
        return made.graph, made.holds, made.decisions
    made, others = _Joining(graph), [_Joining(each) for each in alike]
    growing = {node.name for node in graph.nodes if _is_larger_copy(graph, node)}
    if isinstance(cost, PredictedCost):
        cost.predict(_first_asked(graph, dtype, in_place, growing))
    refused: set[tuple[str, str]] = set()
    while found := _first_gain(made.graph, cost, dtype, refused, in_place, growing):
        step, alone, node = found
        joined = made.graph.merged(list(step[:2]))
        if all(_stays_free(made.graph, joined, step, node.name, other) for other in others):
            made.take(step, joined, node.name)
            growing -= {*step[:2]}
            if _is_larger_copy(alone, node):
                growing.add(node.name)
            for other in others:
                other.join(*step)
        else:
            refused.add(step[:2])
    if path:
        write_entry(path, json.dumps(made.steps).encode())
    return made.graph, made.holds, made.decisions


_EXTENT = re.compile(r"(\w+): \d+")
_DECLARED = re.compile(r"^\s*(input|weight) .*$", re.MULTILINE)


def _stays_free(
    before: _core.Graph, joined: _core.Graph, step: _Step, name: str, other: _Joining
) -> bool:
    """Whether a joined node's indices are as free of sizes as those of its parts, and products keep the dimensions that are
    one to their code: joined with a window's, a 1x1 convolution's height and width are two."""
    if not other.holds.keys() >= set(step[:2]):
        return False
    theirs = other.graph.try_merged_alone(list(step[:2]))
    if isinstance(theirs, str):
        return False
    for n in step[:2]:
        program = _program_of(before, n)
        has_them = program is not None and _is_busy(program) and _pairs(before, other.graph, n)
        if has_them and not _pairs(joined, theirs, name):
            return False
    if _without_extents(joined, name) == _without_extents(theirs, name):
        return True
    return any(
        _without_extents(before, n) != _without_extents(other.graph, n)
        for n in step[:2]
        if not before.is_view(n)  # which costs nothing as it is
    )


def _pairs(graph: _core.Graph, other: _core.Graph, name: str) -> tuple[At, ...]:
    """Dimensions of a node that follow the sizes and are one to its code, by the graph at two sizes."""
    here, there = _program_of(graph, name), _program_of(other, name)
    if here is None or there is None or list(here.tensors) != list(there.tensors):
        return ()
    moving = [
        (tensor, dim)
        for tensor in here.tensors
        for dim, (one, two) in enumerate(zip(here.shape(tensor), there.shape(tensor), strict=True))
        if one != two
    ]
    return pairs_of([here, there], moving)


def _program_of(graph: _core.Graph, name: str) -> _core.Program | None:
    return next((node.program for node in graph.nodes if node.name == name), None)


def _without_extents(graph: _core.Graph, name: str) -> str:
    program = _program_of(graph, name)
    if program is None:
        return ""
    return _EXTENT.sub(r"\1", _DECLARED.sub("", str(program.text())))


def fused_alike(graph: _core.Graph, decisions: Sequence[Joined]) -> _core.Graph | None:
    """The graph with the nodes joined that these decisions join; None where it has other ones."""
    made = _Joining(graph)
    same = all(made.join(*each.pair, each.apart_us, each.joined_us) for each in decisions)
    return made.graph if same else None


_Step = tuple[str, str, float, float]
"""Two nodes that are joined; predicted seconds apart and joined."""


class _Joining:
    """A graph on its way, with the nodes that each of its nodes holds."""

    def __init__(self, graph: _core.Graph) -> None:
        self.graph = graph
        self.holds: dict[str, tuple[str, ...]] = {node.name: (node.name,) for node in graph.nodes}
        self.decisions: list[Joined] = []
        self.steps: list[_Step] = []

    def join(self, first: str, second: str, apart: float, together: float) -> bool:
        """Whether the two could be joined, as they now are."""
        if not {first, second} <= self.holds.keys():
            return False
        joined = self.graph.try_merged([first, second])
        if isinstance(joined, str):
            return False
        self.take(
            (first, second, apart, together),
            joined,
            _name_of(joined, self.holds.keys(), (first, second)),
        )
        return True

    def take(self, step: _Step, joined: _core.Graph, name: str) -> None:
        """The graph in which that step was made, and the name of the node that it made."""
        first, second, apart, together = step
        pair = (first, second)
        self.graph = joined
        self.holds[name] = tuple(node for each in pair for node in self.holds.pop(each))
        self.decisions.append(Joined(self.holds[name], apart * 1e6, together * 1e6, pair))
        self.steps.append(step)


def _name_of(joined: _core.Graph, before: Collection[str], pair: tuple[str, str]) -> str:
    """Of the node that two were joined to."""
    return next(node.name for node in joined.nodes if node.name not in before or node.name in pair)


def _digest(
    graph: _core.Graph,
    cost: Cost,
    dtype: str,
    threads: int,
    alike: Sequence[_core.Graph] = (),
    in_place: Collection[str] = (),
) -> str:
    """Of all that decisions depend on."""
    texts = [str(each.text()) for each in (graph, *alike)]
    stay = sorted(in_place)
    level = cost.constants_from if isinstance(cost, PredictedCost) else 0
    parts = (_core.build_id(), *texts, dtype, threads, level, stay, machine_model().to_json())
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def _kept(path: Path) -> list[_Step] | None:
    body = read_entry(path)
    if body is None:
        return None
    try:
        return [
            (str(first), str(second), _seconds_read(apart), _seconds_read(together))
            for first, second, apart, together in json.loads(body)
        ]
    except (ValueError, TypeError):
        return None  # of another version


def _seconds_read(value: object) -> float:
    if not isinstance(value, float) or math.isnan(value):
        raise ValueError("not a number of seconds")
    return value


def _first_gain(
    graph: _core.Graph,
    cost: Cost,
    dtype: str,
    refused: set[tuple[str, str]],
    in_place: Collection[str],
    growing: Collection[str],
) -> tuple[_Step, _core.Graph, _core.GraphNode] | None:
    """The step, a graph of the node that it makes, and that node."""
    nodes = {node.name: node for node in graph.nodes}
    for first, second in _neighbours(nodes.values(), growing):
        pair = (first, second)
        if pair in refused or first in in_place or second in in_place:
            continue
        one, other = nodes[first], nodes[second]
        if not _may_join(graph, one, other, dtype):
            refused.add(pair)
            continue
        alone = graph.try_merged_alone([first, second])
        if isinstance(alone, str):
            refused.add(pair)
            continue
        name = _name_of(alone, nodes.keys(), pair)
        apart = predicted(graph, one, cost) + predicted(graph, other, cost)
        if _are_busy(one, other) and _trip_seconds(graph, one, other) < _LEAST_TRIP * apart:
            refused.add(pair)
            continue
        made = next(node for node in alone.nodes if node.name == name)
        together = predicted(graph, made, cost, alone)
        if together < apart * (1 - _LEAST_GAIN):
            return (first, second, apart, together), alone, made
        refused.add(pair)
    return None


def _first_asked(
    graph: _core.Graph, dtype: str, in_place: Collection[str], growing: Collection[str]
) -> Iterator[tuple[_core.Program, list[str]]]:
    """The programs of nodes that may be joined with others."""
    nodes = {node.name: node for node in graph.nodes}
    asked: dict[str, _core.GraphNode] = {}
    for pair in _neighbours(nodes.values(), growing):
        one, other = nodes[pair[0]], nodes[pair[1]]
        if not {*pair} & {*in_place} and _may_join(graph, one, other, dtype):
            asked |= {one.name: one, other.name: other}
    for node in asked.values():
        if node.program is not None and not _needs_no_work(graph, node):
            yield node.program, constants_of(graph, node)


def _neighbours(
    nodes: Collection[_core.GraphNode], growing: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Producers and their readers: first those whose producer is a copy larger than what it reads, as windows that are
    laid out side by side, which belong to whoever reads them; then in the order of the readers.

    Args:
        growing: names of such copies.
    """
    made_by = {name: node.name for node in nodes for name in node.outputs}
    for first in (True, False) if growing else (False,):
        for node in nodes:
            for name in dict.fromkeys(node.inputs):
                if name in made_by and (made_by[name] in growing) == first:
                    yield made_by[name], node.name


def _is_larger_copy(graph: _core.Graph, node: _core.GraphNode) -> bool:
    read, written = (
        sum(math.prod(graph.tensor(name)[0]) for name in names)
        for names in (node.inputs, node.outputs)
    )
    return written > read and node.program is not None and node.program.cost(0).flops == 0


def _may_join(graph: _core.Graph, one: _core.GraphNode, other: _core.GraphNode, dtype: str) -> bool:
    if one.program is None or other.program is None:
        return False
    if _scopes(one.program) + _scopes(other.program) > _MOST_SCOPES:
        return False
    types = {graph.tensor(name)[1] for node in (one, other) for name in node.outputs}
    return types == {dtype}


def _are_busy(*nodes: _core.GraphNode) -> bool:
    return all(node.program is not None and _is_busy(node.program) for node in nodes)


def _trip_seconds(graph: _core.Graph, one: _core.GraphNode, other: _core.GraphNode) -> float:
    """What it takes to write and read again what one node leaves to another, where all of it fits."""
    bytes_left = 0
    for name in set(one.outputs) & set(other.inputs):
        shape, dtype, _ = graph.tensor(name)
        bytes_left += math.prod(shape) * _BYTES[dtype]
    levels = machine_model().levels
    level = next((each for each in levels if bytes_left <= each.usable_bytes), levels[-1])
    return 2 * bytes_left / (level.copy_gbs * 1e9)


def _scopes(program: _core.Program) -> int:
    return len(program.tensors) - len(program.inputs)


def _is_busy(program: _core.Program) -> bool:
    moved = sum(_elements(program, name) for name in (*program.inputs, *program.outputs))
    return float(program.cost(0).flops) >= _BUSY * max(moved, 1)


def _elements(program: _core.Program, name: str) -> int:
    count = 1
    for extent in program.shape(name):
        count *= extent
    return count


def predicted(
    graph: _core.Graph, node: _core.GraphNode, cost: Cost, within: _core.Graph | None = None
) -> float:
    """The seconds of a program node in a call of the network.

    Args:
        within: the graph that the node is in, where it would be made of nodes of `graph`.
    """
    if _needs_no_work(graph, node, within):
        return 0.0
    assert node.program is not None
    return cost(node.program, constants_of(graph, node)) + _CALL_S


def _needs_no_work(
    graph: _core.Graph, node: _core.GraphNode, within: _core.Graph | None = None
) -> bool:
    """Of a view, or a slice that its readers find where it lies."""
    within = graph if within is None else within
    if within.is_view(node.name):
        return True
    if node.outputs[0] in graph.outputs or node.inputs[0] in graph.inputs:
        return False
    return byte_of_run(within, node) is not None


def call_seconds() -> float:
    """What a call of a further kernel costs beside its work."""
    return _CALL_S


def constants_of(graph: _core.Graph, node: _core.GraphNode) -> list[str]:
    """The inputs of a node's program that are weights of the graph."""
    assert node.program is not None
    return [
        mine
        for mine, name in zip(node.program.inputs, node.inputs, strict=True)
        if graph.tensor(name)[2] == "weight"
    ]
