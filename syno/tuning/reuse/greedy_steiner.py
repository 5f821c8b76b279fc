"""An approximation of the directed Steiner tree in polynomial time, for plans that may not take long.

Flows rise from all wanted nodes against the edges, an edge is full when its cost has flowed, and the first full path
to the root is a tree of small cost for each node it reaches; it joins the root, and the rest starts again.
Source: Watel and Weisser, Journal of Combinatorial Optimization 32, 2016 (Greedy_FLAC), the algorithm ETO uses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from syno.tuning.reuse.graph import ROOT, ChoiceGraph, Edge, Tree, make_tree


def greedy_tree(graph: ChoiceGraph) -> Tree:
    """A tree that reaches every wanted node, at most as many times as costly as the best as there are such nodes.

    Its `bound` is the sum of what each wanted node costs at least.

    Raises:
        ShapeError: a wanted node cannot be reached.
    """
    graph.check_reachable()
    parent_of: dict[int, int] = {}
    missing = set(range(graph.terminals))
    while missing:
        for parent, child in _rise(graph, missing, set(parent_of)):
            if child not in parent_of:
                parent_of[child] = parent
        missing -= set(parent_of)
    tree = make_tree(graph, ((parent, child) for child, parent in parent_of.items()))
    tree = _improved(graph, tree)
    least = sum(
        min(cost for (_, child), cost in graph.costs.items() if child == node)
        for node in range(graph.terminals)
    )
    return Tree(tree.edges, tree.cost, min(least, tree.cost))


def _rise(graph: ChoiceGraph, missing: set[int], inside: set[int]) -> list[Edge]:
    """Edges of one tree from what is reached already to some of what is missing."""
    cheapest: dict[Edge, tuple[float, Edge]] = {}
    for (parent, child), cost in sorted(graph.costs.items()):
        if child in inside:
            continue
        key = (ROOT if parent in inside else parent, child)  # what is inside is the root now
        if key not in cheapest or cost < cheapest[key][0]:
            cheapest[key] = cost, (parent, child)
    edges = list(cheapest)
    least = np.array([cheapest[edge][0] for edge in edges])
    tails = np.array([parent for parent, _ in edges]) + 1
    heads = np.array([child for _, child in edges]) + 1
    reaches: list[set[int]] = [set() for _ in range(graph.nodes + 1)]
    for node in missing:
        reaches[node + 1] = {node}
    flowed: NDArray[np.float64] = np.zeros(len(edges))
    open_ = np.ones(len(edges), bool)
    full_out: dict[int, list[int]] = {}
    full_in: dict[int, list[int]] = {}
    rate = np.array([len(found) for found in reaches], float)
    while True:
        speed = rate[heads] * open_
        with np.errstate(divide="ignore", invalid="ignore"):
            wait = np.where(speed > 0, (least - flowed) / speed, np.inf)
        at = int(np.argmin(wait))
        flowed += speed * max(float(wait[at]), 0.0)
        open_[at] = False
        tail, head = int(tails[at]), int(heads[at])
        above = _closure(tail, full_in, tails)
        if tail != 0 and any(reaches[node] & reaches[head] for node in above):
            continue  # a flow would arrive by two ways: this edge is not for this tree
        full_out.setdefault(tail, []).append(at)
        full_in.setdefault(head, []).append(at)
        if tail == 0:
            found, front = [cheapest[edges[at]][1]], [head]
            while front:
                for edge in full_out.get(front.pop(), ()):
                    found.append(cheapest[edges[edge]][1])
                    front.append(int(heads[edge]))
            return found
        for node in above:
            reaches[node] |= reaches[head]
            rate[node] = len(reaches[node])


def _closure(node: int, full_in: dict[int, list[int]], tails: NDArray[np.int64]) -> list[int]:
    """A node and all above it over full edges."""
    found, front = [node], [node]
    while front:
        for edge in full_in.get(front.pop(), ()):
            tail = int(tails[edge])
            if tail not in found:
                found.append(tail)
                front.append(tail)
    return found


def _improved(graph: ChoiceGraph, tree: Tree) -> Tree:
    """The least arborescence over the nodes of a tree, where that is cheaper."""
    from syno.tuning.reuse.graph import arborescence

    used = sorted({child for _, child in tree.edges})
    place = {node: i for i, node in enumerate(used)} | {ROOT: ROOT}
    inner = {
        (place[p], place[c]): cost
        for (p, c), cost in graph.costs.items()
        if p in place and c in place
    }
    least = arborescence(ChoiceGraph(len(used), len(used), inner))
    better = make_tree(graph, ((used[p] if p != ROOT else ROOT, used[c]) for p, c in least.edges))
    return min(tree, better, key=lambda one: one.cost)
