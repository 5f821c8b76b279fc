"""What depends on a network's weights alone: computed once, and again when they change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from syno import _core
from syno.graph.building import Array, Network, Node, Value
from syno.graph.reference import run_reference
from syno.graph.tensors import array_of, tensor_of


@dataclass(frozen=True)
class Folded:
    """A network in two: `once`, of weights alone, and `call`, whose weights are those and what `once` makes."""

    once: Network
    call: Network

    def weights(self, given: Mapping[str, Array]) -> dict[str, Array]:
        """The weights of `call`, from values of the network's own weights."""
        values = {name: given[name] for name in self.call.weights if name in given}
        if self.once.nodes:
            tensors = {name: tensor_of(given[name]) for name in self.once.weights}
            made = run_reference(self.once, {}, weights=tensors)
            values |= {name: array_of(tensor) for name, tensor in made.items()}
        return values


def is_random(node: Node) -> bool:
    """Whether a function of the host draws random numbers."""
    return node.program is None and json.loads(node.attributes).get("random") is True


def scaled(network: Network) -> Network:
    """The network with factors that weights alone give in the weights of the layers before them, where these can take
    them: batch normalisation in a convolution's. Its inputs, outputs and weights stay."""
    graph = network.graph().scales_in_weights()
    if len(graph.nodes) == len(network.nodes):  # a layer that takes a factor brings a node a weight
        return network
    return rewritten(network, graph)


def rewritten(network: Network, graph: _core.Graph) -> Network:
    """The network whose graph became another one: what its new nodes make is not of the network that was imported."""
    before = {node.name: node for node in network.nodes}
    values = dict(network.values)
    nodes: list[Node] = []
    for node in graph.nodes:
        was = before.get(node.name)
        inputs, outputs = tuple(node.inputs), tuple(node.outputs)
        if was is not None:
            nodes.append(replace(was, program=node.program, inputs=inputs, outputs=outputs))
            continue
        nodes.append(Node(node.name, node.program, inputs, outputs))
        for name in outputs:
            shape, dtype, _ = graph.tensor(name)
            values[name] = Value(name, tuple(shape), dtype)
    return replace(network, nodes=nodes, values=values)


def folded(network: Network) -> Folded:
    """Parts a network, after :func:`scaled`; all its nodes are of `call` where none depends on weights alone.

    What draws random numbers is computed in every call.
    """
    network = scaled(network)
    constant = set(network.weights)
    once: list[Node] = []
    call: list[Node] = []
    for node in network.nodes:
        if constant.issuperset(node.inputs) and not is_random(node):
            constant.update(node.outputs)
            once.append(node)
        else:
            call.append(node)
    wanted = {name for node in call for name in node.inputs}
    wanted |= {value.name for value in network.outputs}
    made = [name for node in once for name in node.outputs if name in wanted]
    read = {name for node in once for name in node.inputs}
    before = replace(
        network,
        inputs=[],
        outputs=[network.values[name] for name in made],
        nodes=once,
        weights={name: array for name, array in network.weights.items() if name in read},
    )
    given = {name: array for name, array in network.weights.items() if name in wanted}
    values = Folded(before, replace(network, nodes=call, weights=given)).weights(network.weights)
    return Folded(before, replace(network, nodes=call, weights={**given, **values}))
