"""An approximation of the directed Steiner tree in polynomial time, for plans that may not take long.

Flows rise from all wanted nodes against the edges, an edge is full when its cost has flowed, and the first full path
to the root is a tree of small cost for each node it reaches; it joins the root, and the rest starts again.
Source: Watel and Weisser, Journal of Combinatorial Optimization 32, 2016 (Greedy_FLAC), the algorithm ETO uses.
"""

from __future__ import annotations

import numpy as np

from syno.errors import ShapeError
from syno.tuning.reuse.graph import ROOT, ChoiceGraph, Edge, Tree, arborescence, make_tree


def greedy_tree(graph: ChoiceGraph) -> Tree:
    """A tree that reaches every wanted node, at most as many times as costly as the best as there are such nodes.

    Its `bound` is the sum of what each wanted node costs at least, and what the first one costs beside that.

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
    tree = min([_improved(graph, tree), *_without(graph)], key=lambda one: one.cost)
    cheapest = [float("inf")] * graph.terminals
    for (_, child), cost in graph.costs.items():
        if child < graph.terminals:
            cheapest[child] = min(cheapest[child], cost)
    # Somewhere it begins: with an operator, which then costs more than that, or with a bridge beside all of them.
    begins = [
        cost - (cheapest[child] if child < graph.terminals else 0.0)
        for (parent, child), cost in graph.costs.items()
        if parent == ROOT
    ]
    least = sum(cheapest) + min(begins, default=0.0)
    return Tree(tree.edges, tree.cost, min(least, tree.cost))


def _rise(graph: ChoiceGraph, missing: set[int], inside: set[int]) -> list[Edge]:
    """Edges of one tree from what is reached already to some of what is missing.

    All edges into a node carry as much, so that the cheapest one that is left is full next.
    """
    into: list[list[tuple[float, int, Edge]]] = [[] for _ in range(graph.nodes + 1)]
    for (parent, child), cost in graph.costs.items():
        if child not in inside:  # what is inside is the root now, which is 0 here
            tail = 0 if parent in inside else parent + 1
            into[child + 1].append((cost, tail, (parent, child)))
    for edges in into:
        edges.sort()
    reaches: list[set[int]] = [set() for _ in into]
    for node in missing:
        reaches[node + 1] = {node}
    rate = np.array([len(found) for found in reaches], float)
    flowed = np.zeros(len(into))
    full_at = np.array([edges[0][0] if edges else np.inf for edges in into])
    done = [0] * len(into)
    full_out: dict[int, list[tuple[int, Edge]]] = {}
    full_in: dict[int, list[int]] = {}
    while True:
        with np.errstate(divide="ignore", invalid="ignore"):
            wait = np.where(rate > 0, (full_at - flowed) / rate, np.inf)
        head = int(np.argmin(wait))
        flowed += rate * max(float(wait[head]), 0.0)
        _, tail, edge = into[head][done[head]]
        done[head] += 1
        full_at[head] = into[head][done[head]][0] if done[head] < len(into[head]) else np.inf
        above = _closure(tail, full_in)
        if tail != 0 and any(reaches[node] & reaches[head] for node in above):
            continue  # a flow would arrive by two ways: this edge is not for this tree
        full_out.setdefault(tail, []).append((head, edge))
        full_in.setdefault(head, []).append(tail)
        if tail == 0:
            found, front = [edge], [head]
            while front:
                for node, below in full_out.get(front.pop(), ()):
                    found.append(below)
                    front.append(node)
            return found
        for node in above:
            reaches[node] |= reaches[head]
            rate[node] = len(reaches[node])


def _closure(node: int, full_in: dict[int, list[int]]) -> list[int]:
    """A node and all above it over full edges."""
    found, front = {node: None}, [node]
    while front:
        for tail in full_in.get(front.pop(), ()):
            if tail not in found:
                found[tail] = None
                front.append(tail)
    return list(found)


def _without(graph: ChoiceGraph) -> list[Tree]:
    """The least tree without bridges; none where operators are reached over bridges alone."""
    try:
        return [arborescence(graph)]
    except ShapeError:
        return []


def _improved(graph: ChoiceGraph, tree: Tree) -> Tree:
    """The least arborescence over the nodes of a tree, where that is cheaper."""
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
