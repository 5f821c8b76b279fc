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
#: The same of a part of a tensor that its readers find where it lies, such as a step's row: joined, each reader has code of
#: its own for the place of its part, so that it has to be worth that.
_LEAST_GAIN_OF_PARTS = 0.03
#: The same of two windows over weights where derivation is asked for: each alone is more likely to have a faster program, by
#: far more than predictions tell such ways apart.
_LEAST_GAIN_OF_WINDOWS = 0.03
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
    """Equal layers are one, as are steps that read other parts of the same tensors; and what tells it from others."""
    neutral, given, _ = program.with_least_offsets().neutral()
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
    derive: bool = False,
    deciding: Callable[[], None] | None = None,
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
        derive: faster programs of nodes will be looked for.
        deciding: called where decisions are not on record.
    Returns:
        The graph; the names of the original nodes that each node holds; the decisions in order.
    """
    path = (
        directory / f"{_digest(graph, cost, dtype, threads, alike, in_place, derive)}.joined"
        if directory
        else None
    )
    made = _Joining(graph)
    kept = _kept(path) if path else None
    if kept is not None and all(made.join(*step) for step in kept):
        return made.graph(), made.holds, made.decisions
    if deciding is not None:
        deciding()
    made, others = _Joining(graph), [_Joining(each) for each in alike]
    if isinstance(cost, PredictedCost):
        cost.predict(_first_asked(graph, dtype, in_place))
    gains = _Gains(graph, made.merging, cost, dtype, in_place, derive)
    for number, node in enumerate(graph.nodes):
        if _is_larger_copy(graph, node):
            made.merging.goes_first(number)
    while pair := made.merging.next():
        gain = gains.of(*pair)
        if gain is None or not all(_stays_free(made, pair, other) for other in others):
            made.merging.refuse(*pair)
            continue
        names = made.names(pair)
        joined = made.take(pair, gain.apart, gain.together)
        if joined is None:
            made.merging.refuse(*pair)
            continue
        gains.made(joined, gain)
        if gain.node.larger_copy:
            made.merging.goes_first(joined)
        for other in others:
            other.join(*names, gain.apart, gain.together)
    if path:
        write_entry(path, json.dumps(made.steps).encode())
    return made.graph(), made.holds, made.decisions


_EXTENT = re.compile(r"(\w+): \d+")
_DECLARED = re.compile(r"^\s*(input|weight) .*$", re.MULTILINE)


def _stays_free(made: _Joining, pair: tuple[int, int], other: _Joining) -> bool:
    """Whether a joined node's indices are as free of sizes as those of its parts, and products keep the dimensions that are
    one to their code: joined with a window's, a 1x1 convolution's height and width are two."""
    names = made.names(pair)
    theirs = other.alone(*names)
    ours = made.merging.alone(*pair)
    if theirs is None or isinstance(ours, str):
        return False
    mine, yours = ours.nodes[0].program, theirs.nodes[0].program
    assert mine is not None and yours is not None
    parts = [(made.program(name), other.program(name)) for name in names]
    for here, there in parts:
        if _is_busy(here) and _pairs(here, there) and not _pairs(mine, yours):
            return False
    if _without_extents(mine) == _without_extents(yours):
        return True
    return any(
        _without_extents(here) != _without_extents(there)
        for (here, there), number in zip(parts, pair, strict=True)
        if not made.merging.is_view(number)  # which costs nothing as it is
    )


def _pairs(here: _core.Program, there: _core.Program) -> tuple[At, ...]:
    """Dimensions of a node that follow the sizes and are one to its code, by its program at two sizes."""
    if list(here.tensors) != list(there.tensors):
        return ()
    moving = [
        (tensor, dim)
        for tensor in here.tensors
        for dim, (one, two) in enumerate(zip(here.shape(tensor), there.shape(tensor), strict=True))
        if one != two
    ]
    return pairs_of([here, there], moving)


def _without_extents(program: _core.Program) -> str:
    return _EXTENT.sub(r"\1", _DECLARED.sub("", str(program.text())))


def fused_alike(graph: _core.Graph, decisions: Sequence[Joined]) -> _core.Graph | None:
    """The graph with the nodes joined that these decisions join; None where it has other ones."""
    made = _Joining(graph)
    same = all(made.join(*each.pair, each.apart_us, each.joined_us) for each in decisions)
    return made.graph() if same else None


_Step = tuple[str, str, float, float]
"""Two nodes that are joined; predicted seconds apart and joined."""


class _Joining:
    """A graph on its way, with the nodes that each of its nodes holds."""

    def __init__(self, graph: _core.Graph) -> None:
        self.merging = _core.Merging(graph)
        self.holds: dict[str, tuple[str, ...]] = {node.name: (node.name,) for node in graph.nodes}
        self.decisions: list[Joined] = []
        self.steps: list[_Step] = []
        self._graph = graph

    def graph(self) -> _core.Graph:
        return self.merging.graph() if self.steps else self._graph

    def names(self, pair: tuple[int, int]) -> tuple[str, str]:
        first, second = pair
        return self.merging.node(first).name, self.merging.node(second).name

    def program(self, name: str) -> _core.Program:
        number = self.merging.find(name)
        assert number is not None
        program = self.merging.node(number).program
        assert program is not None
        return program

    def join(self, first: str, second: str, apart: float, together: float) -> bool:
        """Whether the two could be joined, as they now are."""
        pair = self._pair(first, second)
        return pair is not None and self.take(pair, apart, together) is not None

    def alone(self, first: str, second: str) -> _core.Graph | None:
        """The node that the two would be, in a graph of its own."""
        pair = self._pair(first, second)
        alone = None if pair is None else self.merging.alone(*pair)
        return None if isinstance(alone, str) else alone

    def take(self, pair: tuple[int, int], apart: float, together: float) -> int | None:
        """The number of the node that a producer and its reader are now; None where they cannot be one."""
        first, second = self.names(pair)
        number = self.merging.merge(*pair)
        if isinstance(number, str):
            return None
        holds = tuple(node for each in (first, second) for node in self.holds.pop(each))
        self.holds[self.merging.node(number).name] = holds
        self.decisions.append(Joined(holds, apart * 1e6, together * 1e6, (first, second)))
        self.steps.append((first, second, apart, together))
        return number

    def _pair(self, first: str, second: str) -> tuple[int, int] | None:
        producer, reader = self.merging.find(first), self.merging.find(second)
        if producer is None or reader is None:
            return None
        written = self.merging.node(producer).outputs
        is_pair = not {*written}.isdisjoint(self.merging.node(reader).inputs)
        return (producer, reader) if is_pair else None


@dataclass(frozen=True)
class _Part:
    """What decisions ask of a node; equal for nodes of equal programs of weights and inputs in the same places."""

    key: int
    scopes: int
    seconds: float
    busy: bool
    larger_copy: bool
    lies_there: bool = False
    """Whether it is a part of what it reads, found by its readers where it lies."""
    window: bool = False
    """Whether it slides weights over something, and derivation is asked for."""


@dataclass(frozen=True)
class _Gain:
    """Two nodes that are to be one, and what they are then."""

    apart: float
    together: float
    node: _Part


class _Gains:
    """What joining two nodes gains, by the predictions; found once for all pairs that are equal but for names."""

    def __init__(
        self,
        graph: _core.Graph,
        merging: _core.Merging,
        cost: Cost,
        dtype: str,
        in_place: Collection[str],
        derive: bool,
    ) -> None:
        self._graph, self._merging, self._cost, self._dtype = graph, merging, cost, dtype
        self._derive = derive
        self._parts: dict[int, _Part | None] = {
            number: None for number, node in enumerate(graph.nodes) if node.name in in_place
        }
        self._levels = machine_model().levels
        self._keys: dict[object, int] = {}
        self._known: dict[tuple[int, int, tuple[int, ...]], _Gain | None] = {}

    def of(self, producer: int, reader: int) -> _Gain | None:
        """None: nothing is gained, or they cannot be one."""
        one, other = self._part(producer), self._part(reader)
        if one is None or other is None or one.scopes + other.scopes > _MOST_SCOPES:
            return None
        key = (one.key, other.key, tuple(self._merging.wiring(producer, reader)))
        if key not in self._known:
            alone = self._merging.alone(producer, reader)
            if isinstance(alone, str):
                return None  # what lies between them differs from pair to pair
            nodes = self._merging.node(producer), self._merging.node(reader)
            self._known[key] = self._found(key, nodes, (one, other), alone)
        return self._known[key]

    def made(self, number: int, gain: _Gain) -> None:
        """Two nodes were made one."""
        self._parts[number] = gain.node

    def _found(
        self,
        key: object,
        nodes: tuple[_core.GraphNode, _core.GraphNode],
        parts: tuple[_Part, _Part],
        alone: _core.Graph,
    ) -> _Gain | None:
        one, other = parts
        apart = one.seconds + other.seconds
        if _shared_weight_bytes(self._graph, *nodes) > self._levels[0].usable_bytes:
            return None
        if (
            one.busy
            and other.busy
            and _trip_seconds(self._graph, *nodes, self._levels) < _LEAST_TRIP * apart
        ):
            return None
        node = alone.nodes[0]
        assert node.program is not None
        together = predicted(self._graph, node, self._cost, alone)
        least = _LEAST_GAIN_OF_PARTS if one.lies_there else _LEAST_GAIN
        if one.window and other.window:
            least = max(least, _LEAST_GAIN_OF_WINDOWS)
        if not together < apart * (1 - least):
            return None
        joined = _Part(
            self._keys.setdefault(key, len(self._keys)),
            _scopes(node.program),
            together,
            _is_busy(node.program),
            _is_larger_copy(alone, node),
            window=one.window or other.window,
        )
        return _Gain(apart, together, joined)

    def _part(self, number: int) -> _Part | None:
        """None: the node stays as it is."""
        if number not in self._parts:
            self._parts[number] = self._part_of(self._merging.node(number))
        return self._parts[number]

    def _part_of(self, node: _core.GraphNode) -> _Part | None:
        if node.program is None or {self._graph.tensor(n)[1] for n in node.outputs} != {
            self._dtype
        }:
            return None
        _, key = _neutral(node.program, constants_of(self._graph, node))
        seconds = predicted(self._graph, node, self._cost)
        return _Part(
            self._keys.setdefault((key, seconds), len(self._keys)),
            _scopes(node.program),
            seconds,
            _is_busy(node.program),
            _is_larger_copy(self._graph, node),
            seconds == 0.0 and not self._graph.is_view(node.name),
            self._derive and _is_window(self._graph, node),
        )


def _digest(
    graph: _core.Graph,
    cost: Cost,
    dtype: str,
    threads: int,
    alike: Sequence[_core.Graph] = (),
    in_place: Collection[str] = (),
    derive: bool = False,
) -> str:
    """Of all that decisions depend on."""
    texts = [str(each.text()) for each in (graph, *alike)]
    stay = sorted(in_place)
    level = cost.constants_from if isinstance(cost, PredictedCost) else 0
    how = (dtype, threads, level, stay, derive)
    parts = (_core.build_id(), *texts, *how, machine_model().to_json())
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


def _first_asked(
    graph: _core.Graph, dtype: str, in_place: Collection[str]
) -> Iterator[tuple[_core.Program, list[str]]]:
    """The programs of nodes that may be joined with others."""
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    asked: dict[str, _core.GraphNode] = {}
    for node in graph.nodes:
        for name in node.inputs:
            one = made_by.get(name)
            if one is None or {one.name, node.name} & {*in_place}:
                continue
            if _may_join(graph, one, node, dtype):
                asked |= {one.name: one, node.name: node}
    for node in asked.values():
        if node.program is not None and not _needs_no_work(graph, node):
            yield node.program, constants_of(graph, node)


def _is_window(graph: _core.Graph, node: _core.GraphNode) -> bool:
    assert node.program is not None
    return (
        _is_busy(node.program)
        and bool(constants_of(graph, node))
        and bool(_core.slides(_core.without_copies(node.program)))
    )


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


def _shared_weight_bytes(graph: _core.Graph, one: _core.GraphNode, other: _core.GraphNode) -> int:
    """Of weights that both read, as steps of a recurrent layer do: one kernel of both would hold them twice, packed for each."""
    tensors = [graph.tensor(name) for name in {*one.inputs} & {*other.inputs}]
    return sum(
        math.prod(shape) * _BYTES.get(dtype, 4)
        for shape, dtype, role in tensors
        if role == "weight"
    )


def _trip_seconds(
    graph: _core.Graph,
    one: _core.GraphNode,
    other: _core.GraphNode,
    levels: Sequence[_core.MemoryLevel],
) -> float:
    """What it takes to write and read again what one node leaves to another, where all of it fits."""
    bytes_left = 0
    for name in set(one.outputs) & set(other.inputs):
        shape, dtype, _ = graph.tensor(name)
        bytes_left += math.prod(shape) * _BYTES[dtype]
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
