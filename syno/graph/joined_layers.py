"""Layers of one input as one, where that is predicted to be faster: queries, keys and values, first convolutions of branches."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from syno import _core
from syno.graph.building import Network
from syno.graph.folding import rewritten
from syno.kernels.cache import read_entry, write_entry

_log = logging.getLogger("syno.graph")

#: Of the network's time: less is within what predictions say.
_LEAST_GAIN = 2e-3

Made = TypeVar("Made")


def with_layers_joined(
    network: Network,
    planned: Callable[[Network], Made],
    predicted: Callable[[Made], float],
    path: Path | None = None,
) -> Made:
    """What is planned of a network with layers joined (the rewrite `joins`), those of one kind all or none.

    Args:
        planned: what is compiled of a network.
        predicted: the seconds of a call of that; asked only where there are layers to join.
        path: where the decision about this network is kept, and taken from.
    """
    kept = _kept(path)
    known = None if kept is None else _with_kinds(network, kept)
    if known is not None:
        return planned(known)
    made = planned(network)
    seconds: float | None = None
    refused: set[str] = set()
    accepted: list[str] = []
    while kinds := [kind for kind in _kinds(network.graph()) if kind not in refused]:
        if seconds is None:
            seconds = predicted(made)
        refused.add(kinds[0])  # or made, and then there is none left of it
        tried = _joined(network, kinds[0])
        then = planned(tried)
        after = predicted(then)
        better = after < seconds * (1 - _LEAST_GAIN)
        _log.debug(
            "%s of kind %s: %.1f us apart, %.1f us joined",
            "layers joined" if better else "layers left", kinds[0].splitlines()[-1], seconds * 1e6, after * 1e6,
        )  # fmt: skip
        if better:
            network, seconds, made = tried, after, then
            accepted.append(_digest(kinds[0]))
    if path and refused:
        write_entry(path, json.dumps(accepted).encode())
    return made


def _digest(kind: str) -> str:
    return hashlib.blake2b(kind.encode(), digest_size=16).hexdigest()


def _kept(path: Path | None) -> list[str] | None:
    """The kinds on record; None without a record."""
    body = read_entry(path) if path else None
    try:
        read = None if body is None else json.loads(body)
    except ValueError:
        return None
    known = isinstance(read, list) and all(isinstance(each, str) for each in read)
    return read if known else None


def _with_kinds(network: Network, accepted: Sequence[str]) -> Network | None:
    """With the layers of these kinds joined; None where one of them is not there."""
    for digest in accepted:
        kind = next((k for k in _kinds(network.graph()) if _digest(k) == digest), None)
        if kind is None:
            return None
        network = _joined(network, kind)
    return network


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
