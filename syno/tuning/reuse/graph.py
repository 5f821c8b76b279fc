"""The optimization choice graph: who is tuned, who reuses whom, at what cost (ETO, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syno.errors import ShapeError
from syno.support.notebook import Printed

#: The node from which edges stand for tuning without anything to reuse.
ROOT = -1

Edge = tuple[int, int]


@dataclass(frozen=True)
class ChoiceGraph:
    """Nodes 0 … `nodes` - 1, of which the first `terminals` have to be reached from the root.

    The others are bridges. An edge (parent, child) says what the child costs when it reuses the parent.
    """

    nodes: int
    terminals: int
    costs: Mapping[Edge, float]

    def __post_init__(self) -> None:
        for (parent, child), cost in self.costs.items():
            if not (ROOT <= parent < self.nodes and 0 <= child < self.nodes and parent != child):
                raise ShapeError(
                    f"[reuse] edge ({parent}, {child}) of a graph of {self.nodes} nodes"
                )
            if not 0 <= cost < float("inf"):
                raise ShapeError(f"[reuse] edge ({parent}, {child}) costs {cost}")
        if not 0 <= self.terminals <= self.nodes:
            raise ShapeError(f"[reuse] {self.terminals} of {self.nodes} nodes are to be reached")

    def without_bridges(self) -> ChoiceGraph:
        """Of the operators that are wanted only."""
        kept = {e: c for e, c in self.costs.items() if max(e) < self.terminals}
        return ChoiceGraph(self.terminals, self.terminals, kept)

    def check_reachable(self) -> None:
        """Raises ShapeError where a wanted node cannot be reached from the root, and names it."""
        reached, front = {ROOT}, [ROOT]
        children: dict[int, list[int]] = {}
        for parent, child in self.costs:
            children.setdefault(parent, []).append(child)
        while front:
            for child in children.get(front.pop(), ()):
                if child not in reached:
                    reached.add(child)
                    front.append(child)
        lost = [node for node in range(self.terminals) if node not in reached]
        if lost:
            raise ShapeError(
                f"[reuse] nothing leads to the nodes {lost}; give each an edge from the root"
            )


@dataclass(frozen=True)
class Tree(Printed):
    """Who reuses whom: edges (parent, child) in an order in which every parent comes first."""

    edges: tuple[Edge, ...]
    cost: float
    bound: float
    """No tree costs less; equal to `cost` where this one is optimal."""

    @property
    def gap(self) -> float:
        """How much more than the bound it costs, relative to the bound; 0 of an optimal one."""
        return self.cost / self.bound - 1 if self.bound > 0 else 0.0

    @property
    def tuned(self) -> tuple[int, ...]:
        """Nodes that reuse nothing."""
        return tuple(child for parent, child in self.edges if parent == ROOT)

    def __str__(self) -> str:
        edges = ", ".join(
            f"{child} from {parent}" if parent != ROOT else str(child)
            for parent, child in self.edges
        )
        return f"cost {self.cost:g}, {100 * self.gap:.2g} % above the bound: {edges}"


def make_tree(graph: ChoiceGraph, edges: Iterable[Edge], bound: float | None = None) -> Tree:
    """Orders edges from the root, without those that lead to no wanted node.

    Raises:
        ShapeError: they are no tree that reaches every wanted node.
    """
    parent_of: dict[int, int] = {}
    for parent, child in edges:
        if child in parent_of:
            raise ShapeError(f"[reuse] node {child} would reuse {parent_of[child]} and {parent}")
        parent_of[child] = parent
    depth: dict[int, int] = {ROOT: 0}
    for node in range(graph.terminals):
        path: list[int] = []
        while node not in depth:
            if node in path or node not in parent_of:
                raise ShapeError(f"[reuse] node {node} is not reached from the root")
            path.append(node)
            node = parent_of[node]
        for step in reversed(path):
            depth[step] = depth[parent_of[step]] + 1
    kept = sorted((depth[n], parent_of[n], n) for n in depth if n != ROOT)
    found = tuple((parent, child) for _, parent, child in kept)
    cost = sum(graph.costs[edge] for edge in found)
    return Tree(found, cost, cost if bound is None else min(bound, cost))


def arborescence(graph: ChoiceGraph) -> Tree:
    """The tree of least cost without bridges, exactly (Edmonds' algorithm).

    Raises:
        ShapeError: an operator cannot be reached.
    """
    small = graph.without_bridges()
    small.check_reachable()
    costs = np.full((small.terminals + 1, small.terminals + 1), np.inf)  # the root is 0
    for (parent, child), cost in small.costs.items():
        costs[parent + 1, child + 1] = cost
    parents = _edmonds(costs)
    return make_tree(small, ((parent - 1, node - 1) for node, parent in parents.items()))


def _edmonds(costs: NDArray[np.float64]) -> dict[int, int]:
    """Parents in the least arborescence from node 0, to which costs[parent, child] lead, infinite where no edge is.

    Written here because a plan of 60 operators should take less than a second; networkx, which the tests compare
    it with, takes about that long for this part alone.
    """
    count = len(costs)
    costs = costs.copy()
    np.fill_diagonal(costs, np.inf)
    parents = {node: int(np.argmin(costs[:, node])) for node in range(1, count)}
    cycle = _cycle(parents)
    if not cycle:
        return parents
    # The cycle becomes one node, the last. An edge into it costs what it takes more than the one it replaces.
    inside = np.array(cycle)
    others = np.array([node for node in range(count) if node not in set(cycle)])
    least = costs[[parents[node] for node in cycle], inside]
    entering = costs[np.ix_(others, inside)] - least
    leaving = costs[np.ix_(inside, others)]
    smaller = np.full((len(others) + 1, len(others) + 1), np.inf)
    smaller[:-1, :-1] = costs[np.ix_(others, others)]
    smaller[:-1, -1] = entering.min(axis=1)
    smaller[-1, :-1] = leaving.min(axis=0)
    made = _edmonds(smaller)
    merged = len(others)
    found = {node: parents[node] for node in cycle}
    for node, parent in made.items():
        if node == merged:
            entry = int(np.argmin(entering[parent]))
            found[int(inside[entry])] = int(others[parent])
        else:
            top = (
                int(inside[np.argmin(leaving[:, node])])
                if parent == merged
                else int(others[parent])
            )
            found[int(others[node])] = top
    return found


def _cycle(parents: Mapping[int, int]) -> list[int]:
    """The nodes of one cycle of such a map; empty where there is none."""
    state: dict[int, int] = {}
    for start in parents:
        node = start
        while node in parents and node not in state:
            state[node] = start
            node = parents[node]
        if state.get(node) == start:
            cycle = [node]
            while parents[cycle[-1]] != node:
                cycle.append(parents[cycle[-1]])
            return cycle
    return []


def choice_graph(
    pairs: Iterable[Edge],
    nodes: int,
    terminals: int,
    cost: Callable[[int, int], float],
    search_cost: Callable[[int], float],
) -> ChoiceGraph:
    """The graph of pairs (operator that reuses, operator that is reused).

    Args:
        cost: of such a pair, in this order.
        search_cost: of a node without anything to reuse.
    """
    costs: dict[Edge, float] = {(ROOT, node): search_cost(node) for node in range(nodes)}
    for child, parent in pairs:
        costs[(parent, child)] = cost(child, parent)
    return ChoiceGraph(nodes, terminals, costs)
