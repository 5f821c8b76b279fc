"""From an imported network to a compiled one: folded, cleaned, fused, compiled kernel by kernel, checked."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from syno import _core
from syno.errors import KernelError
from syno.graph.beside import Beside
from syno.graph.building import Array, Network
from syno.graph.calling import random_arrays
from syno.graph.checking import Check, Expected, Sample, judged, relative_error
from syno.graph.compiled import CompiledNetwork
from syno.graph.deriving import Deriving, Wanted, fastest_in_place
from syno.graph.folding import Folded, folded, is_random
from syno.graph.fusing import Cost, Joined, PredictedCost, constants_of, fused, predicted
from syno.graph.in_place import free_slices, is_free_view, joined_in_place
from syno.graph.joined_layers import with_layers_joined
from syno.graph.layout_names import ROW_MAJOR
from syno.graph.layouts import chosen, timing
from syno.graph.reference import run_reference
from syno.graph.remembering import RememberedCheck
from syno.graph.stages import (
    ENGINE,
    Derive,
    Packings,
    Stage,
    asked_of,
    call_stage,
    kernel_stage,
    make_together,
    view_stage,
)
from syno.graph.tensors import array_of, tensor_of
from syno.graph.weights_read import level_of_weights
from syno.kernels.cache import usable_cache
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.support.numbers import MOST_THREADS, whole

_log = logging.getLogger("syno.graph")

#: By how much a compiled network may differ from float64, of an output's largest value, where the network itself differs
#: less: sums are added in other orders.
_ROUNDING = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 3e-2}
#: How many times the error of the uncompiled network may grow.
_GROWTH = 8.0
#: How many times a network's own error is taken with other roundings, where a limit is exceeded.
_ROUNDINGS = 4


@dataclass(frozen=True)
class Compiling:
    """Settings of one compilation."""

    threads: int = 1
    fuse: bool = True
    derive: bool = False
    max_rel_err: float = 1e-5
    """Of one derived kernel, of its output's largest value."""
    seconds: float = 30.0
    """For all derivations together."""
    cache: bool = True
    verify: bool = True
    remember: bool = False
    """Take the check of the whole network from the cache where it passed before, of the same code on the same numbers; then there
    is no sample."""
    layouts: str = ROW_MAJOR
    """Of tensors between kernels: a word of `LAYOUTS`."""
    propagate: bool = True
    """Let layouts spread within programs; without, each is only where it was chosen (ALT-WP)."""


def compile_network(
    network: Network,
    example: Sequence[Any] | None = None,
    *,
    settings: Compiling | None = None,
    cost: Cost | None = None,
    instead: Sequence[Any] | None = None,
) -> tuple[CompiledNetwork, Folded]:
    """Compiles what an importer built.

    Args:
        example: values of the inputs in order, by which the result is checked; default random ones.
        instead: values by which it is checked where those lead to hardly any number, as random variances do.
        cost: what fusion is decided by; default the machine model.
    Returns:
        The compiled network, and its parts before and after folding, for when weights change.
    Raises:
        KernelError: no kernel can be made of a node, or the network computes something else than float64 says.
    """
    settings = settings or Compiling()
    threads = whole("compile", "threads", settings.threads, 1, MOST_THREADS)
    with _Reference(network, example, wanted=settings.verify) as reference:
        if settings.fuse:
            planning = _Planning(settings, threads, cost, reference.begin)
            plan = with_layers_joined(
                network, planning.plan, planning.seconds, planning.kept(network)
            )
        else:
            plan = _Plan.of(folded(network))
        parts, graph, dtype, names = plan.parts, plan.graph, plan.dtype, plan.names
        for decision in plan.decisions:
            _log.debug("joined %s", decision)
        layouts = None
        if settings.derive or settings.layouts != ROW_MAJOR:
            reference.wait()  # nothing else runs while something is timed
        if settings.layouts != ROW_MAJOR:
            plain = replace(settings, derive=False)

            def compiled_so(laid: _core.Graph) -> Callable[[], float]:
                made = _Maker(laid, parts.call, names, plain, threads)
                return timing(made.link(made.stages()), reference.inputs)

            layouts = chosen(
                graph, settings.layouts, cost or PredictedCost(dtype, threads, level_of_weights(graph)), dtype, compiled_so,
                inner=settings.propagate,
            )  # fmt: skip
            _log.debug("%s", layouts)
            graph = layouts.graph
        maker = _Maker(graph, parts.call, names, settings, threads)
        compiled = maker.link(maker.stages())
        if settings.derive:
            compiled = fastest_in_place(compiled, maker.plain, maker.link, reference.inputs)
        compiled.layouts = layouts
        compiled.notes = tuple(network.notes)
        compiled.original = network
        if settings.verify:
            _verify(compiled, network, reference, settings, instead)
    return compiled, parts


class _Reference(Beside):
    """The inputs by which a network is checked and timed, and what float64 says of its outputs: found by a thread of its own
    while kernels are made, which needs nothing of it.

    Args:
        wanted: whether anybody will ask for the outputs.
    """

    def __init__(self, network: Network, example: Sequence[Any] | None, *, wanted: bool) -> None:
        self._network, self._example, self._wanted = network, example, wanted
        super().__init__("syno-reference")
        self._future: Future[Sample] | None = None
        self._inputs: list[Array] | None = None

    @property
    def inputs(self) -> list[Array]:
        """In order."""
        if self._inputs is None:
            self._inputs = telling(self._network, self._example)
        return self._inputs

    def begin(self) -> None:
        """Does not wait. To be called when kernels are to be made: where all are kept, the check may be, too."""
        if self._wanted and self._future is None:
            self._future = self.do(sample_of, self._network, self.inputs, going=self.going)

    def wait(self) -> None:
        """Until what was begun is done."""
        if self._future is not None:
            self._future.exception()

    def sample(self, derived: float) -> Sample:
        """Waits.

        Args:
            derived: error that equal programs may add, of an output's largest value.
        """
        if self._future is None:
            return sample_of(self._network, self.inputs, derived)
        sample = self._future.result()
        return replace(
            sample,
            expected=[replace(each, limit=each.limit + derived) for each in sample.expected],
        )


@dataclass(frozen=True)
class _Plan:
    """What is compiled of a network."""

    parts: Folded
    graph: _core.Graph
    dtype: str
    names: dict[str, tuple[str, ...]]
    """The nodes of `parts` that each node of the graph holds."""
    decisions: Sequence[Joined] = ()

    @staticmethod
    def of(parts: Folded) -> _Plan:
        """Each node by itself."""
        graph = parts.call.graph().cleaned()
        names: dict[str, tuple[str, ...]] = {node.name: (node.name,) for node in graph.nodes}
        return _Plan(parts, graph, _main_type(graph), names)


class _Planning:
    """From a network to what is compiled of it, and to the predicted seconds of a call."""

    def __init__(
        self,
        settings: Compiling,
        threads: int,
        cost: Cost | None,
        deciding: Callable[[], None],
    ) -> None:
        """
        Args:
            deciding: called where decisions are not on record.
        """
        self._settings, self._threads, self._given = settings, threads, cost
        self._deciding = deciding
        self._costs: dict[tuple[str, int], Cost] = {}
        self._directory = usable_cache() if settings.cache and cost is None else None

    def plan(self, network: Network) -> _Plan:
        settings = self._settings
        plan = _Plan.of(folded(network))
        graph, names, decisions = fused(
            plan.graph,
            self._cost(plan),
            dtype=plan.dtype,
            threads=self._threads,
            directory=self._directory,
            in_place=joined_in_place(plan.graph).nodes if settings.layouts == ROW_MAJOR else (),
            derive=settings.derive,
            deciding=self._deciding,
        )
        return replace(plan, graph=graph, names=names, decisions=decisions)

    def seconds(self, plan: _Plan) -> float:
        cost, graph = self._cost(plan), plan.graph
        free = _without_work(graph, self._settings)
        return sum(
            predicted(graph, node, cost)
            for node in graph.nodes
            if node.program is not None and node.name not in free
        )

    def kept(self, network: Network) -> Path | None:
        """Where it is kept which layers of a network are joined."""
        if self._directory is None:
            return None
        about = (
            _core.build_id(),
            str(network.graph().text()),
            self._threads,
            self._settings.layouts,
            self._settings.derive,
            machine_model().to_json(),
        )
        digest = hashlib.blake2b(repr(about).encode(), digest_size=16).hexdigest()
        return self._directory / f"{digest}.layers"

    def _cost(self, plan: _Plan) -> Cost:
        if self._given is not None:
            return self._given
        key = plan.dtype, level_of_weights(plan.graph)
        return self._costs.setdefault(key, PredictedCost(plan.dtype, self._threads, key[1]))


def _without_work(graph: _core.Graph, settings: Compiling) -> set[str]:
    """The nodes whose results lie where others are written or read. Where tensors lie otherwise than row-major, a part is no
    run of the whole."""
    if settings.layouts != ROW_MAJOR:
        return set()
    joined = joined_in_place(graph)
    return {*joined.nodes, *free_slices(graph, joined)}


def _verify(
    compiled: CompiledNetwork,
    network: Network,
    reference: _Reference,
    settings: Compiling,
    instead: Sequence[Any] | None = None,
) -> None:
    directory = usable_cache() if settings.cache and settings.remember else None
    remembered = (
        RememberedCheck(directory, compiled, network, reference.inputs) if directory else None
    )
    known = remembered.read() if remembered else None
    if known is not None:
        compiled.verification = known
        return
    compiled.sample = reference.sample(_derived_error(compiled))
    if instead is not None and not _are_telling(compiled.sample):
        compiled.sample = sampled(compiled, network, telling(network, instead))
    compiled.verification = judged_on(compiled, network, compiled.sample)
    if not compiled.verification:
        compiled.sample = _with_roundings(compiled.sample, network)
        compiled.verification = judged_on(compiled, network, compiled.sample)
    if not compiled.verification:
        raise KernelError(f"[network] {network.name}: {compiled.verification}")
    if remembered:
        remembered.write(compiled.verification)


def _are_telling(sample: Sample) -> bool:
    """Whether at least half of each output are numbers."""
    return all(2 * np.isfinite(each.values).sum() >= each.values.size for each in sample.expected)


def _main_type(graph: _core.Graph) -> str:
    """The element type that most programs compute in."""
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.program is not None:
            dtype = str(graph.tensor(node.outputs[0])[1])
            counts[dtype] = counts.get(dtype, 0) + 1
    return max(counts, key=lambda name: (counts[name], name), default="float32")


class _Maker:
    """Makes the steps of a graph, and networks of them."""

    def __init__(
        self,
        graph: _core.Graph,
        network: Network,
        names: Mapping[str, tuple[str, ...]],
        settings: Compiling,
        threads: int,
    ) -> None:
        self._graph, self._network = graph, network
        self._weights_from = level_of_weights(graph)
        # Conversions are nodes of nobody else.
        self._names = {node.name: names.get(node.name, (node.name,)) for node in graph.nodes}
        self._settings, self._threads = settings, threads
        self._hosts = {node.name: node.host for node in network.nodes}
        self._nodes = {node.name: node for node in graph.nodes}
        self._packings = Packings()
        self._free = _without_work(graph, settings)

    def stages(self) -> list[Stage]:
        """In the order of the graph."""
        derive = self._derivations() if self._settings.derive else None
        if derive is None:
            wanted = [
                asked_of(self._graph, node) for node in self._graph.nodes if self._is_kernel(node)
            ]
            make_together(
                wanted, threads=self._threads, cache=self._settings.cache, constants_from=self._weights_from
            )  # fmt: skip
        return [self._stage(node, derive) for node in self._graph.nodes]

    def plain(self, stage: Stage) -> Stage:
        """The same step without derivation."""
        return self._stage(self._nodes[stage.name], None)

    def link(self, stages: list[Stage]) -> CompiledNetwork:
        return CompiledNetwork(self._graph, stages, self._network.weights, threads=self._threads)

    def _derivations(self) -> Deriving:
        settings = self._settings
        deriving = Deriving(
            threads=self._threads,
            max_rel_err=settings.max_rel_err,
            seconds=settings.seconds,
            directory=usable_cache() if settings.cache else None,
            constants_from=self._weights_from,
        )
        deriving.prepare(
            [
                Wanted(Operator(node.program), tuple(constants_of(self._graph, node)), dtype)
                for node in self._graph.nodes
                if node.program is not None
                and not self._graph.is_view(node.name)
                and node.name not in self._free
                for dtype in [str(self._graph.tensor(node.outputs[0])[1])]
            ]
        )
        return deriving

    def _stage(self, node: _core.GraphNode, derive: Derive | None) -> Stage:
        graph = self._graph
        if node.program is None:
            host = self._hosts.get(node.name)
            if host is None and node.function not in ENGINE:
                raise KernelError(f"[network] no function computes {node.function} ({node.name})")
            return call_stage(node, host, _reason(self._network, node))
        if not self._is_kernel(node):
            return view_stage(node, self._names[node.name])
        return kernel_stage(
            graph, node, self._network.weights, self._names[node.name],
            threads=self._threads, cache=self._settings.cache, constants_from=self._weights_from, derive=derive,
            packings=self._packings,
        )  # fmt: skip

    def _is_kernel(self, node: _core.GraphNode) -> bool:
        if node.program is None:
            return False
        return node.name not in self._free and not is_free_view(self._graph, node)


def _reason(network: Network, node: _core.GraphNode) -> str:
    """What the importer noted about a function that has no program."""
    for note in network.notes:
        if note.startswith(node.function):
            return note.removeprefix(node.function).lstrip(": ")
    return "no row"


# Checking


def check(
    compiled: CompiledNetwork, network: Network, example: Sequence[Any] | None = None, seed: int = 0
) -> Check:
    """Holds a compiled network against float64, but for outputs that random numbers reach.

    Args:
        example: values of the inputs; default random ones of this seed.
    """
    return judged_on(compiled, network, sampled(compiled, network, example, seed))


def sampled(
    compiled: CompiledNetwork, network: Network, example: Sequence[Any] | None = None, seed: int = 0
) -> Sample:
    """The inputs that `check` takes, and what float64 says of the outputs."""
    return sample_of(network, arrays_for(network, example, seed), _derived_error(compiled))


def _derived_error(compiled: CompiledNetwork) -> float:
    return sum(stage.derived_error for stage in compiled.stages)


def sample_of(
    network: Network,
    arrays: list[Array],
    derived: float = 0.0,
    doubled: Mapping[str, torch.Tensor] | None = None,
    going: Callable[[], None] | None = None,
) -> Sample:
    """Inputs in order, and what float64 says of the outputs; further arguments as of `expected`."""
    tensors = {
        value.name: tensor_of(array) for value, array in zip(network.inputs, arrays, strict=True)
    }
    return Sample(arrays, expected(network, tensors, derived, doubled, going))


def arrays_for(
    network: Network, example: Sequence[Any] | None = None, seed: int = 0
) -> list[Array]:
    """Row-major copies of an example's inputs; random ones of this seed where there is no example."""
    if example is None:
        return random_arrays([(value.shape, value.dtype) for value in network.inputs], seed)
    plain = [each.detach().resolve_neg() if hasattr(each, "detach") else each for each in example]
    return [np.array(as_array(each), order="C", copy=True) for each in plain]


def _with_roundings(sample: Sample, network: Network) -> Sample:
    """The sample with limits by the network's own errors where each of its steps rounds otherwise, too. Where an output is what
    rounding leaves of 0, a distance of equals say, its error may be small by chance."""
    inputs = {
        value.name: tensor_of(array)
        for value, array in zip(network.inputs, sample.inputs, strict=True)
    }
    generator = torch.Generator().manual_seed(0)

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        step = torch.randint(-1, 2, tensor.shape, generator=generator)
        return tensor * (1 + step * torch.finfo(tensor.dtype).eps).to(tensor.dtype)

    own = {each.name: each.eager_rel_err for each in sample.expected}
    for _ in range(_ROUNDINGS):
        made = run_reference(network, inputs, rounded=rounded)
        for each in sample.expected:
            error = relative_error(as_array(made[each.name]), each.values)
            own[each.name] = max(own[each.name], error if np.isfinite(error) else 0.0)
    return replace(
        sample,
        expected=[
            replace(each, limit=max(each.limit, _GROWTH * own[each.name]))
            for each in sample.expected
        ],
    )


def telling(network: Network, example: Sequence[Any] | None) -> list[Array]:
    """Inputs by which a network is checked and timed: those of the example, but random numbers for tensors of nothing but
    zeros. Of `torch.zeros(1, 3, 224, 224)` convolutions compute their biases, whatever their weights are."""
    given, random = arrays_for(network, example), arrays_for(network)
    return [
        other if array.size > 1 and array.dtype.kind not in "iub" and not array.any() else array
        for array, other in zip(given, random, strict=True)
    ]


def judged_on(compiled: CompiledNetwork, network: Network, sample: Sample) -> Check:
    """The network's outputs for a sample's inputs against what they should be."""
    made = dict(zip((v.name for v in network.outputs), compiled.run(sample.inputs), strict=True))
    return judged(sample.expected, [as_array(made[each.name]) for each in sample.expected])


def expected(
    network: Network,
    inputs: Mapping[str, torch.Tensor],
    derived: float = 0.0,
    doubled: Mapping[str, torch.Tensor] | None = None,
    going: Callable[[], None] | None = None,
) -> list[Expected]:
    """What float64 says of the outputs, but for those that random numbers reach.

    Args:
        inputs: by name.
        derived: error that equal programs may add, of an output's largest value.
        doubled: weights by name, as float64 has them already.
        going: called now and then, so that it can end this by raising.
    """
    exact = run_reference(network, inputs, dtype=torch.float64, weights=doubled, going=going)
    eager = run_reference(network, inputs, going=going)
    drawn: set[str] = set()
    for node in network.nodes:
        if is_random(node) or not drawn.isdisjoint(node.inputs):
            drawn.update(node.outputs)
    found = []
    for value in network.outputs:
        if value.name not in drawn:
            wanted = as_array(exact[value.name])
            own = relative_error(as_array(eager[value.name]), wanted)
            limit = max(_ROUNDING.get(value.dtype, 0.0), _GROWTH * own) + derived
            found.append(Expected(value.name, wanted, limit, own))
    return found


def as_array(value: Any) -> Array:
    """As NumPy counts: bfloat16 as that of `ml_dtypes`."""
    return array_of(value) if hasattr(value, "detach") else np.asarray(value)


def refreshed(compiled: CompiledNetwork, parts: Folded, weights: Mapping[str, Array]) -> None:
    """Takes other values of the imported network's weights (by its names) into a compiled one."""
    compiled.update_weights(parts.weights({**parts.once.weights, **parts.call.weights, **weights}))


__all__ = ["Compiling", "check", "compile_network", "refreshed"]
