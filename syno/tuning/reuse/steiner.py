"""The directed Steiner tree of a choice graph, exactly: an integer program with cuts, solved by HiGHS.

Variables are edges and the bridges that are used. Every wanted node has one parent, a bridge has one where it has
children, and every cut around a wanted node is crossed: those are added as they are found to be violated.
Source of the formulation: Wong, Mathematical Programming 28, 1984; Koch and Martin, Networks 32, 1998.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syno.errors import KernelError
from syno.tuning.reuse.graph import ROOT, ChoiceGraph, Edge, Tree, make_tree

#: Capacities of the flows that look for cuts: whole numbers, as the library wants them.
_UNIT = 1 << 20
_VIOLATED = 1e-4
#: Rounds of cuts; each adds at least one that was violated, so that this bounds a loop that ends anyway.
_ROUNDS = 10_000

Row = tuple[NDArray[np.int64], NDArray[np.float64], float, float]


def steiner_tree(graph: ChoiceGraph, *, limit_s: float = 60.0, start: Tree | None = None) -> Tree:
    """The tree of least cost that reaches every wanted node, over bridges where they pay.

    Args:
        limit_s: after so long `start` is returned, with the best bound known.
        start: a tree to fall back on; default that of :func:`syno.tuning.reuse.greedy_steiner.greedy_tree`.
    Raises:
        ShapeError: a wanted node cannot be reached.
        KernelError: scipy is not installed.
    """
    from syno.tuning.reuse.greedy_steiner import greedy_tree

    optimize, sparse, csgraph = _scipy()
    graph.check_reachable()
    if not graph.terminals:
        return Tree((), 0.0, 0.0)
    fallback = start or greedy_tree(graph)
    edges = _useful(graph)
    program = _Program(graph, edges, optimize, sparse, csgraph)
    end = time.monotonic() + limit_s
    bound = 0.0
    for integral in (False, True):
        for _ in range(_ROUNDS):
            left = end - time.monotonic()
            if left <= 0:
                return Tree(fallback.edges, fallback.cost, min(bound, fallback.cost))
            found = program.solve(integral, left)
            if found is None:
                return Tree(fallback.edges, fallback.cost, min(bound, fallback.cost))
            bound, values = max(bound, found[0]), found[1]
            if not program.cut(values):
                break
        if _whole(values):
            chosen = [edge for edge, value in zip(edges, values, strict=False) if value > 0.5]
            return make_tree(graph, chosen)
    return Tree(fallback.edges, fallback.cost, min(bound, fallback.cost))


def _whole(values: NDArray[np.float64]) -> bool:
    return bool(np.all(np.abs(values - values.round()) < 1e-6))


def _useful(graph: ChoiceGraph) -> list[Edge]:
    """Edges that an optimal tree may have: none that costs as much as to do without."""
    return [
        (parent, child)
        for (parent, child), cost in sorted(graph.costs.items())
        if parent == ROOT or cost < graph.costs.get((ROOT, child), float("inf"))
    ]


class _Program:
    def __init__(
        self, graph: ChoiceGraph, edges: Sequence[Edge], optimize: Any, sparse: Any, csgraph: Any
    ) -> None:
        self.graph, self.edges = graph, edges
        self.optimize, self.sparse, self.csgraph = optimize, sparse, csgraph
        self.costs = np.array([graph.costs[edge] for edge in edges])
        self.parents = np.array([parent for parent, _ in edges]) + 1  # the root is 0
        self.children = np.array([child for _, child in edges]) + 1
        self.rows: list[Row] = list(self._degrees())

    def _row(self, indices: NDArray[np.int64], low: float, high: float) -> Row:
        return indices, np.ones(len(indices)), low, high

    def _degrees(self) -> list[Row]:
        rows = []
        for node in range(1, self.graph.nodes + 1):
            into = np.flatnonzero(self.children == node)
            wanted = node <= self.graph.terminals
            rows.append(self._row(into, 1.0 if wanted else 0.0, 1.0))
            if wanted:
                continue
            out = np.flatnonzero(self.parents == node)
            # A bridge without children is in no tree of least cost.
            signs = np.concatenate([np.ones(len(out)), -np.ones(len(into))])
            rows.append((np.concatenate([out, into]), signs, 0.0, np.inf))
            for edge in out:  # a child has another parent than itself
                others = into[self.parents[into] != self.children[edge]]
                signs = np.concatenate([np.ones(len(others)), [-1.0]])
                rows.append((np.concatenate([others, [edge]]), signs, 0.0, np.inf))
        return rows

    def solve(self, integral: bool, limit_s: float) -> tuple[float, NDArray[np.float64]] | None:
        """Bound and values of the program so far; None: not within the limit."""
        count = len(self.edges)
        columns = np.concatenate([row[0] for row in self.rows])
        values = np.concatenate([row[1] for row in self.rows])
        places = np.repeat(np.arange(len(self.rows)), [len(row[0]) for row in self.rows])
        matrix = self.sparse.csr_array((values, (places, columns)), shape=(len(self.rows), count))
        found = self.optimize.milp(
            self.costs,
            integrality=np.full(count, 1 if integral else 0),
            bounds=self.optimize.Bounds(0, 1),
            constraints=self.optimize.LinearConstraint(
                matrix, [row[2] for row in self.rows], [row[3] for row in self.rows]
            ),
            options={"time_limit": max(limit_s, 0.01), "mip_rel_gap": 0.0},
        )
        if found.x is None or found.status != 0:
            return None
        return float(found.fun), np.asarray(found.x)

    def cut(self, values: NDArray[np.float64]) -> bool:
        """Adds a cut for every wanted node that too little flows to; False: there is none."""
        capacity = (values.clip(0, 1) * _UNIT).round().astype(np.int32)
        used = capacity > 0
        nodes = self.graph.nodes + 1
        flows = self.sparse.csr_array(
            (capacity[used], (self.parents[used], self.children[used])), shape=(nodes, nodes)
        )
        known: set[bytes] = set()
        for node in range(1, self.graph.terminals + 1):
            result = self.csgraph.maximum_flow(flows, 0, node)
            if result.flow_value >= _UNIT * (1 - _VIOLATED):
                continue
            left = flows - result.flow
            left.data[left.data < 0] = 0
            left.eliminate_zeros()
            # Both smallest cuts: around what the root reaches, and around what reaches the node.
            for graph, start in ((left, 0), (left.T.tocsr(), node)):
                order = self.csgraph.breadth_first_order(graph, start, return_predecessors=False)
                side = np.zeros(nodes, bool)
                side[order] = True
                if start:
                    side = ~side
                crossing = np.flatnonzero(side[self.parents] & ~side[self.children])
                if crossing.tobytes() not in known:
                    known.add(crossing.tobytes())
                    self.rows.append(self._row(crossing, 1.0, np.inf))
        return bool(known)


def _scipy() -> tuple[Any, Any, Any]:
    try:
        from scipy import optimize, sparse
        from scipy.sparse import csgraph
    except ImportError:
        raise KernelError(
            '[reuse] there is no exact plan without scipy: pip install "syno[tune]"'
        ) from None
    return optimize, sparse, csgraph
