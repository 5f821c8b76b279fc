"""Where a network's weights lie when they are read: how much has been read since they were read before."""

from __future__ import annotations

from collections import Counter

from syno import _core
from syno.graph.bundle import bytes_of
from syno.graph.fusing import constants_of
from syno.machines.model import machine_model

#: Of a cache, the share that weights may take.
_FOR_WEIGHTS = 0.8


def level_of_weights(graph: _core.Graph) -> int:
    """The level of the machine model that kernels read a network's weights from, as an index.

    The nearest that holds what is read between two times that the same weights are: all weights, one call after the other;
    those of a layer alone where it is run step by step, as recurrent ones are. Half of all bytes are read from no further.
    Of a cache that cores share each has its part, and never all of it for weights. Tables that rows are picked from do not
    count.
    """
    distance = _usual_distance(_read(graph))
    levels = machine_model().levels
    holds = [_FOR_WEIGHTS * level.usable_bytes / max(1, level.shared_by) for level in levels[:-1]]
    return next((at for at, most in enumerate(holds) if distance <= most), len(levels) - 1)


def _read(graph: _core.Graph) -> list[tuple[str, int]]:
    """The weights that programs read in the order of the graph, and their bytes."""
    read = []
    for node in graph.nodes:
        if node.program is None:
            continue
        mine = dict(zip(node.program.inputs, node.inputs, strict=True))
        for name in constants_of(graph, node):
            shape, dtype, _ = graph.tensor(mine[name])
            read.append((mine[name], bytes_of(dtype, shape)))
    return read


def _usual_distance(read: list[tuple[str, int]]) -> int:
    """Bytes of different weights from one time that some are read to the next, in calls that follow each other: the median
    over all bytes that are read."""
    size, times = dict(read), Counter(name for name, _ in read)
    twice, total = [*read, *read], sum(size.values())
    last: dict[str, int] = {}
    distances: list[tuple[int, int]] = []  # and bytes for which it holds
    for at, (name, own) in enumerate(twice):
        if times[name] == 1:
            if at < len(read):
                distances.append((total, own))
            continue
        if at >= len(read):
            between = {other for other, _ in twice[last[name] : at]}
            distances.append((sum(size[other] for other in between), own))
        last[name] = at
    distances.sort()
    half, passed = sum(own for _, own in distances) / 2, 0
    for distance, own in distances:
        passed += own
        if passed >= half:
            return distance
    return 0
