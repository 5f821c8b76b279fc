"""Which layout each tensor between kernels has (ALT §4, §5): candidates of shapes and lanes, times of every kernel in
each of them, conversions counted, and the assignment with the least sum, exactly.

>>> families = {family.name: family for family in families_of(lanes=16)}
>>> families["blocked 16"].layout((1, 64, 56, 56), 1)
'split(1, 4, 16) reorder(0, 1, 3, 4, 2)'
>>> families["channels last"].layout((1, 64, 56, 56), 1)
'reorder(0, 2, 3, 1)'
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from syno import _core
from syno.errors import SynoError
from syno.graph.assigning import Assignment, Part, Piece, assigned
from syno.graph.fusing import Cost, call_seconds, constants_of
from syno.graph.layout_names import AUTO, CHOSEN, MEASURED, ROW_MAJOR
from syno.machines.model import machine_model
from syno.timing.measuring import measuring

if TYPE_CHECKING:
    from syno.graph.compiled import CompiledNetwork


#: How often each candidate is timed, in turns.
_ROUNDS = 9


@dataclass(frozen=True)
class Family:
    """One way to lay out tensors whose channels are known: each gets the layout that its shape makes of it."""

    name: str
    block: int = 0
    """Channels that lie together innermost; 0: all of them."""

    def layout(self, shape: Sequence[int], channel: int) -> str | None:
        """None where it is row-major, or does not fit."""
        order = [d for d in range(len(shape)) if d != channel]
        if self.name == ROW_MAJOR:
            return None
        if not self.block:
            return None if channel == len(shape) - 1 else f"reorder({_list([*order, channel])})"
        if shape[channel] % self.block or shape[channel] == self.block:
            return None
        places = [d if d <= channel else d + 1 for d in range(len(shape))]
        return (
            f"split({channel}, {shape[channel] // self.block}, {self.block}) "
            f"reorder({_list([*places, channel + 1])})"
        )


def _list(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def families_of(lanes: int) -> tuple[Family, ...]:
    """The candidates: row-major, channels last, channels in blocks of a vector's lanes."""
    return Family(ROW_MAJOR), Family("channels last"), Family(f"blocked {lanes}", lanes)


@dataclass(frozen=True)
class Chosen:
    """A network with layouts, and what it is predicted to take beside the uniform choices."""

    graph: _core.Graph
    families: Mapping[str, str]
    """By tensor, where it is not row-major."""
    conversions: tuple[str, ...]
    """Nodes that copy from one layout to another."""
    predicted_us: Mapping[str, float]
    """Of all nodes that have tensors with channels, and of conversions, by choice."""
    choice: str = AUTO
    measured_us: Mapping[str, float] = field(default_factory=dict)
    """Of the compiled whole, by choice, where they were measured."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "choice": self.choice, "tensors": dict(self.families), "conversions": list(self.conversions),
            "predicted_us": dict(self.predicted_us), "measured_us": dict(self.measured_us),
        }  # fmt: skip

    def __str__(self) -> str:
        times = ", ".join(f"{name} {us:.1f} us" for name, us in self.predicted_us.items())
        return f"layouts {self.choice}: {len(self.families)} tensors, {len(self.conversions)} conversions ({times})"


@dataclass(frozen=True)
class _Node:
    """A node that layouts are about: its tensors that have channels, and which of them move together."""

    node: _core.GraphNode
    sides: tuple[tuple[str, ...], tuple[str, ...]]
    """What follows the data that it sums over, and what follows its outputs."""


class Layouts:
    """The choices of a graph.

    Args:
        graph: after fusion.
        cost: of one program.
        families: the candidates; the first one is row-major.
        inner: let layouts spread within programs.
    """

    def __init__(
        self, graph: _core.Graph, cost: Cost, families: Sequence[Family], *, inner: bool = True
    ) -> None:
        self.graph, self.cost, self.inner = graph, cost, inner
        self.families = {family.name: family for family in families}
        self.channel = channels(graph)
        self._known: dict[tuple[str, tuple[str, ...]], float] = {}
        self._nodes = [found for node in graph.nodes if (found := self._node(node)) is not None]
        self._free = self._tensors()
        self._pieces: list[Piece] | None = None

    # What may be chosen

    def _node(self, node: _core.GraphNode) -> _Node | None:
        if node.program is None or self.graph.is_view(node.name):
            return None
        own = {name for name, _ in self.graph.channels(node.name)}
        outputs = [name for name in node.outputs if name in self.channel]
        shapes = {tuple(self.graph.tensor(name)[0]) for name in outputs}
        data: list[str] = []
        with_outputs = list(outputs)
        for name in dict.fromkeys(node.inputs):
            if name not in self.channel or self.graph.tensor(name)[2] == "weight":
                continue
            # Beside a sum of products, what has the output's shape is added to it.
            beside = own and name not in own and tuple(self.graph.tensor(name)[0]) in shapes
            (with_outputs if beside else data).append(name)
        if not data and not with_outputs:
            return None
        return _Node(node, (tuple(data), tuple(with_outputs)))

    def _tensors(self) -> set[str]:
        """Tensors that programs compute and only programs read."""
        of_programs = {name for each in self._nodes for name in each.node.outputs}
        others = [
            node
            for node in self.graph.nodes
            if node.program is None or self.graph.is_view(node.name)
        ]
        fixed = {name for node in others for name in (*node.inputs, *node.outputs)}
        return (of_programs & self.channel.keys()) - fixed - set(self.graph.outputs)

    def _layout(self, name: str, family: str) -> str | None:
        if name not in self.channel:
            return None
        return self.families[family].layout(self.graph.tensor(name)[0], self.channel[name])

    def _choices(self, names: Collection[str]) -> list[str]:
        """Families that make a difference to one of them."""
        return [
            family
            for family in self.families
            if family == ROW_MAJOR or any(self._layout(name, family) for name in names)
        ]

    # What it takes

    def _seconds(self, each: _Node, data: str, made: str) -> float:
        """Of a node whose tensors lie so."""
        families = dict.fromkeys(each.sides[0], data) | dict.fromkeys(each.sides[1], made)
        wanted = {
            name: text for name, family in families.items() if (text := self._layout(name, family))
        }
        key = (
            each.node.program_text,
            tuple(wanted.get(name, "") for name in (*each.node.inputs, *each.node.outputs)),
        )
        if key not in self._known:
            try:
                program = relaid(self.graph, each.node, wanted, inner=self.inner)
                self._known[key] = (
                    self.cost(program, constants_of(self.graph, each.node)) + call_seconds()
                )
            except SynoError:  # no schedule, or indices that cannot be written
                self._known[key] = math.inf
        return self._known[key]

    def _conversion_seconds(self, name: str, source: str, target: str) -> float:
        shape = tuple(self.graph.tensor(name)[0])
        texts = [self._layout(name, family) or "" for family in (source, target)]
        key = (f"convert {shape}", tuple(texts))
        if key not in self._known:
            try:
                program = copy_program(shape)
                for tensor, text in zip("xy", texts, strict=True):
                    program = _core.laid_out(program, tensor, text)
                self._known[key] = self.cost(program, []) + call_seconds()
            except SynoError:
                self._known[key] = math.inf
        return self._known[key]

    def pieces(self) -> list[Piece]:
        """What an assignment is made of: for each node its times, by what its tensors are."""
        if self._pieces is not None:
            return self._pieces
        made = []
        for each in self._nodes:
            data, results = each.sides
            reads = tuple(name for name in (*data, *results) if name in each.node.inputs)
            writes = tuple(name for name in results if name in each.node.outputs)
            parts = []
            kinds = self._choices(data) if data else [ROW_MAJOR]
            for first, second in itertools.product(
                kinds, self._choices(results) if results else [ROW_MAJOR]
            ):
                families = dict.fromkeys(data, first) | dict.fromkeys(results, second)
                families = {
                    name: family if self._layout(name, family) else ROW_MAJOR
                    for name, family in families.items()
                }
                if any(families[name] != ROW_MAJOR for name in writes if name not in self._free):
                    continue
                seconds = self._seconds(each, first, second)
                if seconds < math.inf:
                    parts.append(
                        Part(
                            {n: families[n] for n in reads},
                            {n: families[n] for n in writes},
                            seconds,
                        )
                    )
            made.append(Piece(each.node.name, tuple(parts)))
        self._pieces = made
        return made

    # The choice

    def assign(self, only: Collection[str] | None = None) -> Assignment:
        """The best assignment.

        Args:
            only: families that tensors have where they can; default any.
        """
        kinds = {}
        for name in sorted(self._free):
            own = [
                family
                for family in self.families
                if family == ROW_MAJOR or self._layout(name, family)
            ]
            if only is not None:
                own = [family for family in own if family in only] or [ROW_MAJOR]
            kinds[name] = own
        return assigned(self.pieces(), kinds, self._conversion_seconds)

    def applied(self, assignment: Assignment) -> tuple[_core.Graph, tuple[str, ...]]:
        """The graph that an assignment makes, and its conversions."""
        graph = self.graph
        wanted = dict(assignment.made)
        conversions = []
        for (name, family), nodes in assignment.conversions.items():
            graph, copy = graph.with_copy(name, list(nodes))
            conversions.append(next(node.name for node in graph.nodes if copy in node.outputs))
            wanted[copy] = family
            self.channel[copy] = self.channel[name]
        texts = {}
        for name, family in wanted.items():
            text = self.families[family].layout(graph.tensor(name)[0], self.channel[name])
            if text:
                texts[name] = text
        return graph.lay_out(texts, self.inner), tuple(conversions)


class Choices:
    """The choices that a user has for a graph, each made once.

    Args:
        graph: after fusion.
        lanes: of a vector.
    """

    def __init__(self, graph: _core.Graph, cost: Cost, lanes: int, *, inner: bool = True) -> None:
        self._layouts = Layouts(graph, cost, families_of(lanes), inner=inner)
        self._words = dict(zip(CHOSEN[1:], self._layouts.families, strict=True))
        self._assigned: dict[str, Assignment] = {}

    def _assignment(self, choice: str) -> Assignment:
        if choice not in self._assigned:
            only = None if choice == AUTO else [self._words[choice]]
            self._assigned[choice] = self._layouts.assign(only)
        return self._assigned[choice]

    def of(self, choice: str) -> Chosen:
        """The graph with these layouts.

        Args:
            choice: one of `CHOSEN`: the least predicted time, or one family wherever it fits.
        Raises:
            ArgumentError: there is no solver.
        """
        wanted = self._assignment(choice)
        graph, conversions = self._layouts.applied(wanted)
        lie = {name: family for name, family in wanted.made.items() if family != ROW_MAJOR}
        times = {each: self._assignment(each).seconds * 1e6 for each in CHOSEN}
        return Chosen(graph, lie, conversions, times, choice)


def chosen(
    graph: _core.Graph,
    choice: str,
    cost: Cost,
    dtype: str,
    compiled: Callable[[_core.Graph], Callable[[], float]],
    *,
    inner: bool = True,
) -> Chosen:
    """What a user asked for, of a graph after fusion.

    Args:
        choice: one of `LAYOUTS` but "row-major".
        dtype: that most programs compute in.
        compiled: from a graph to what times a call of the compiled whole, in seconds; asked where that decides.
        inner: let layouts spread within programs.
    """
    lanes = machine_model().vector_bits // (8 * {"float64": 8, "bfloat16": 2}.get(dtype, 4))
    choices = Choices(graph, cost, lanes, inner=inner)
    if choice != MEASURED:
        return choices.of(choice)
    candidates = {each: choices.of(each) for each in CHOSEN}
    different = {str(each.graph.text()): name for name, each in reversed(candidates.items())}
    calls = {name: compiled(candidates[name].graph) for name in reversed(different.values())}
    times: dict[str, float] = {}
    with measuring():
        for _ in range(_ROUNDS):  # in turns: what disturbs one disturbs the others
            for name, call in calls.items():
                times[name] = min(times.get(name, math.inf), call())
    best = min(times, key=lambda name: times[name])
    return replace(candidates[best], measured_us={name: s * 1e6 for name, s in times.items()})


def timing(compiled: CompiledNetwork, arrays: Sequence[Any]) -> Callable[[], float]:
    """What times a call on these inputs: the median of a few, in seconds."""
    return lambda: compiled.timed(arrays, 5)[1] * 1e-6


def channels(graph: _core.Graph) -> dict[str, int]:
    """Dimensions of tensors that sums of products run over or make: those of convolutions and products first, then of
    what nodes between them read and make with as many dimensions."""
    found: dict[str, int] = {}
    rest = []
    for node in graph.nodes:
        if node.program is None:
            continue
        own = graph.channels(node.name)
        for name, dim in own:
            if graph.tensor(name)[2] != "weight" and len(graph.tensor(name)[0]) > 2:
                found.setdefault(name, dim)
        rest.append(node)
    changed = True
    while changed:
        changed = False
        for node in rest:
            names = [n for n in (*node.inputs, *node.outputs) if graph.tensor(n)[2] != "weight"]
            for known in [name for name in names if name in found]:
                shape = graph.tensor(known)[0]
                for name in names:
                    other = graph.tensor(name)[0]
                    dim = found[known]
                    if name not in found and len(other) == len(shape) and other[dim] == shape[dim]:
                        found[name] = dim
                        changed = True
    return found


def relaid(
    graph: _core.Graph, node: _core.GraphNode, layouts: Mapping[str, str], *, inner: bool = True
) -> _core.Program:
    """The program of a node whose tensors lie so, by the graph's names."""
    assert node.program is not None
    alone = _core.Graph("node")
    names = list(dict.fromkeys(node.inputs))
    for name in names:
        shape, dtype, role = graph.tensor(name)
        if role == "weight":
            alone.add_weight(name, shape, dtype)
        else:
            alone.add_input(f"{name}.given", shape, dtype)
            alone.add_program(f"{name}.give", copy_program(shape), [f"{name}.given"], [name], dtype)
    dtype = graph.tensor(node.outputs[0])[1]
    alone.add_program("node", node.program, list(node.inputs), list(node.outputs), dtype)
    for name in node.outputs:
        alone.add_program(
            f"{name}.take", copy_program(graph.tensor(name)[0]), [name], [f"{name}.taken"], dtype
        )
    alone.set_outputs([f"{name}.taken" for name in node.outputs])
    made = next(each for each in alone.lay_out(dict(layouts), inner).nodes if each.name == "node")
    assert made.program is not None
    return made.program


def copy_program(shape: Sequence[int]) -> _core.Program:
    """y = x."""
    at = ",".join(f"i{d}" for d in range(len(shape)))
    return _core.Program.parse(f"y[{at}] = x[{at}]", shapes={"x": list(shape)})
