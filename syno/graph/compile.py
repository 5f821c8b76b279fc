"""From an imported network to a compiled one: folded, cleaned, fused, compiled kernel by kernel, checked."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from syno import _core
from syno.cache import usable_cache
from syno.errors import KernelError, ScheduleError
from syno.graph.building import Array, Network
from syno.graph.calling import random_arrays
from syno.graph.checking import Check, Expected, Sample, judged, relative_error
from syno.graph.compiled import CompiledNetwork
from syno.graph.folding import Folded, folded, is_random
from syno.graph.fusing import Cost, Joined, PredictedCost, fused
from syno.graph.reference import run_reference
from syno.graph.stages import ENGINE, Stage, call_stage, kernel_stage, view_stage
from syno.graph.tensors import array_of, tensor_of
from syno.numbers import MOST_THREADS, whole
from syno.operator import Operator

_log = logging.getLogger("syno.graph")

#: By how much a compiled network may differ from float64, of an output's largest value, where the network itself differs
#: less: sums are added in other orders.
_ROUNDING = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 3e-2}
#: How many times the error of the uncompiled network may grow.
_GROWTH = 8.0


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


def compile_network(
    network: Network,
    example: Sequence[Any] | None = None,
    *,
    settings: Compiling | None = None,
    cost: Cost | None = None,
) -> tuple[CompiledNetwork, Folded]:
    """Compiles what an importer built.

    Args:
        example: values of the inputs in order, by which the result is checked; default random ones.
        cost: what fusion is decided by; default the machine model.
    Returns:
        The compiled network, and its parts before and after folding, for when weights change.
    Raises:
        KernelError: no kernel can be made of a node, or the network computes something else than float64 says.
    """
    settings = settings or Compiling()
    threads = whole("compile", "threads", settings.threads, 1, MOST_THREADS)
    parts = folded(network)
    graph = parts.call.graph().cleaned()
    dtype = _main_type(graph)
    names: dict[str, tuple[str, ...]] = {node.name: (node.name,) for node in graph.nodes}
    decisions: list[Joined] = []
    if settings.fuse:
        graph, names, decisions = fused(
            graph,
            cost or PredictedCost(dtype, threads),
            dtype=dtype,
            threads=threads,
            directory=usable_cache() if settings.cache and cost is None else None,
        )
    for decision in decisions:
        _log.debug("joined %s", decision)
    compiled = CompiledNetwork(
        graph,
        _stages(graph, parts.call, names, settings, threads),
        parts.call.weights,
        threads=threads,
    )
    compiled.notes = tuple(network.notes)
    compiled.original = network
    if settings.verify:
        compiled.sample = sampled(compiled, network, example)
        compiled.verification = judged_on(compiled, network, compiled.sample)
        if not compiled.verification:
            raise KernelError(f"[network] {network.name}: {compiled.verification}")
    return compiled, parts


def _main_type(graph: _core.Graph) -> str:
    """The element type that most programs compute in."""
    counts: dict[str, int] = {}
    for node in graph.nodes:
        if node.program is not None:
            dtype = str(graph.tensor(node.outputs[0])[1])
            counts[dtype] = counts.get(dtype, 0) + 1
    return max(counts, key=lambda name: (counts[name], name), default="float32")


def _stages(
    graph: _core.Graph,
    network: Network,
    names: Mapping[str, tuple[str, ...]],
    settings: Compiling,
    threads: int,
) -> list[Stage]:
    hosts = {node.name: node.host for node in network.nodes}
    derive = Deriving(settings, threads) if settings.derive else None
    stages = []
    for node in graph.nodes:
        if node.program is None:
            host = hosts.get(node.name)
            if host is None and node.function not in ENGINE:
                raise KernelError(f"[network] no function computes {node.function} ({node.name})")
            stages.append(call_stage(node, host, _reason(network, node)))
        elif graph.is_view(node.name) and not _reads_nothing(graph, node):
            stages.append(view_stage(node, names[node.name]))
        else:
            stages.append(
                kernel_stage(
                    graph, node, network.weights, names[node.name],
                    threads=threads, cache=settings.cache, derive=derive,
                )
            )  # fmt: skip
    return stages


def _reason(network: Network, node: _core.GraphNode) -> str:
    """What the importer noted about a function that has no program."""
    for note in network.notes:
        if note.startswith(node.function):
            return note.removeprefix(node.function).lstrip(": ")
    return "no row"


def _reads_nothing(graph: _core.Graph, node: _core.GraphNode) -> bool:
    return any(0 in graph.tensor(name)[0] for name in node.inputs)


class Deriving:
    """Equal programs by `syno.derive`, faster when measured, within an error and a time for all of them."""

    def __init__(self, settings: Compiling, threads: int) -> None:
        self._settings, self._threads = settings, threads
        self._left = settings.seconds
        self._known: dict[tuple[str, tuple[str, ...], str], tuple[Operator, str, float] | None] = {}

    def __call__(
        self, operator: Operator, constants: Sequence[str], dtype: str
    ) -> tuple[Operator, str, float] | None:
        key = (str(operator.program.text()), tuple(constants), dtype)
        if key not in self._known:
            self._known[key] = self._search(operator, constants, dtype)
        return self._known[key]

    def _search(
        self, operator: Operator, constants: Sequence[str], dtype: str
    ) -> tuple[Operator, str, float] | None:
        from time import monotonic

        from syno.deriving import derive

        if self._left <= 0 or operator.flops < 2**16 or not constants:
            return None
        begin = monotonic()
        try:
            found = derive(
                operator,
                seconds=min(2.0, self._left),
                constants=list(constants),
                dtype=dtype,
                threads=self._threads,
                max_rel_err=self._settings.max_rel_err,
            )
            best = found.best()
        except (ScheduleError, KernelError) as error:
            _log.debug("no derivation of %s: %s", operator.expr, error)
            return None
        finally:
            self._left -= monotonic() - begin
        if not best.steps:
            return None
        rules = ", ".join(dict.fromkeys(step.rule for step in best.steps))
        return best.operator, rules, max(best.errors.values(), default=0.0)


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
    kinds = [(value.shape, value.dtype) for value in network.inputs]
    inputs = random_arrays(kinds, seed) if example is None else list(example)
    plain = [each.detach().resolve_neg() if hasattr(each, "detach") else each for each in inputs]
    arrays = [np.array(as_array(each), order="C", copy=True) for each in plain]
    tensors = {
        value.name: tensor_of(array) for value, array in zip(network.inputs, arrays, strict=True)
    }
    derived = sum(stage.derived_error for stage in compiled.stages)
    return Sample(arrays, expected(network, tensors, derived))


def judged_on(compiled: CompiledNetwork, network: Network, sample: Sample) -> Check:
    """The network's outputs for a sample's inputs against what they should be."""
    made = dict(zip((v.name for v in network.outputs), compiled.run(sample.inputs), strict=True))
    return judged(sample.expected, [as_array(made[each.name]) for each in sample.expected])


def expected(
    network: Network, inputs: Mapping[str, torch.Tensor], derived: float = 0.0
) -> list[Expected]:
    """What float64 says of the outputs, but for those that random numbers reach.

    Args:
        inputs: by name.
        derived: error that equal programs may add, of an output's largest value.
    """
    exact = run_reference(network, inputs, dtype=torch.float64)
    eager = run_reference(network, inputs)
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
