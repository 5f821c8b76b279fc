"""Layers of one input as one, where that is predicted to be faster: queries, keys and values, first convolutions of branches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from syno import _core
from syno.graph.building import Network
from syno.graph.folding import rewritten

_log = logging.getLogger("syno.graph")

#: Of the network's time: less is within what predictions say.
_LEAST_GAIN = 2e-3

Made = TypeVar("Made")


def with_layers_joined(
    network: Network, planned: Callable[[Network], tuple[float, Made]]
) -> tuple[Network, Made]:
    """The network with layers joined (the rewrite `joins`), those of one kind all or none.

    Args:
        planned: of a network, the predicted seconds of a call and what they are of, which is given back for the network
            that is taken.
    """
    seconds, made = planned(network)
    refused: set[str] = set()
    while True:
        kinds = [kind for kind in _kinds(network.graph()) if kind not in refused]
        if not kinds:
            return network, made
        refused.add(kinds[0])  # or made, and then there is none left of it
        tried = _joined(network, kinds[0])
        after, then = planned(tried)
        better = after < seconds * (1 - _LEAST_GAIN)
        _log.debug(
            "%s of kind %s: %.1f us apart, %.1f us joined",
            "layers joined" if better else "layers left", kinds[0].splitlines()[-1], seconds * 1e6, after * 1e6,
        )  # fmt: skip
        if better:
            network, seconds, made = tried, after, then


def _kind(graph: _core.Graph, site: _core.GraphSite) -> str:
    """Of layers that begin with the same program."""
    node = next(node for node in graph.nodes if node.name == site.node)
    assert node.program is not None
    neutral, _, _ = node.program.neutral()
    return str(neutral.text())


def _kinds(graph: _core.Graph) -> list[str]:
    return list(dict.fromkeys(_kind(graph, site) for site in _core.graph_sites(graph, "joins")))


def _joined(network: Network, kind: str) -> Network:
    graph = network.graph()
    while True:
        sites = [s for s in _core.graph_sites(graph, "joins") if _kind(graph, s) == kind]
        if not sites:
            return rewritten(network, graph)
        graph = _core.graph_rewrite(graph, "joins", sites[0])
