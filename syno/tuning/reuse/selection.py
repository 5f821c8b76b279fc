"""The paper's baseline ST: operators of similar search spaces form clusters, one of each is tuned.

As ETO (PVLDB 15(2), 2022, sections 1 and 7) describes it: similarity is the overlap of the search spaces, clusters are
maximal cliques of operators at least `THRESHOLD` alike, and the others of a cluster take the K best programs of its
representative as they are (TopK). The overlap here is that of the tile sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from syno.errors import KernelError
from syno.tuning.reuse.divisors import divisors
from syno.tuning.reuse.graph import ROOT, Edge

THRESHOLD = 0.01
#: Programs that TopK applies.
TOP_K = 3


def similarity(a: Sequence[int], b: Sequence[int]) -> float:
    """Overlap of the tile sizes that loops of these extents have: 1 of equal ones, 0 of other numbers of loops."""
    if len(a) != len(b):
        return 0.0
    return math.prod(
        len(set(divisors(x)) & set(divisors(y))) / len(set(divisors(x)) | set(divisors(y)))
        for x, y in zip(a, b, strict=True)
    )


def clusters(members: Sequence[Sequence[int]], threshold: float = THRESHOLD) -> list[list[int]]:
    """A partition into cliques of similar members, the largest clique taken first, again and again.

    Raises:
        KernelError: networkx is not installed.
    """
    try:
        import networkx
    except ImportError:
        raise KernelError(
            '[reuse] there are no clusters of programs without networkx: pip install "syno[tune]"'
        ) from None
    drawn = networkx.Graph()
    drawn.add_nodes_from(range(len(members)))
    drawn.add_edges_from(
        (i, j)
        for i in range(len(members))
        for j in range(i + 1, len(members))
        if similarity(members[i], members[j]) >= threshold
    )
    found = []
    while drawn:
        cliques = [sorted(clique) for clique in networkx.find_cliques(drawn)]
        largest = min(cliques, key=lambda clique: (-len(clique), clique))
        found.append(largest)
        drawn.remove_nodes_from(largest)
    return sorted(found)


def selected(members: Sequence[Sequence[int]], threshold: float = THRESHOLD) -> tuple[Edge, ...]:
    """Edges (parent, child): of each cluster the member most alike to the others is tuned, they reuse it."""
    edges: list[Edge] = []
    for cluster in clusters(members, threshold):
        best = max(
            cluster,
            key=lambda i, of=cluster: (sum(similarity(members[i], members[j]) for j in of), -i),  # type: ignore[misc]
        )
        edges.append((ROOT, best))
        edges.extend((best, other) for other in cluster if other != best)
    return tuple(edges)
