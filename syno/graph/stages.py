"""The steps of a compiled network: a kernel for each joined group of nodes, functions of the engine and of the host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from syno import _core
from syno.errors import KernelError, SynoError
from syno.graph.building import Array
from syno.graph.checking import same_bytes
from syno.graph.fusing import constants_of
from syno.kernels.prepack import Packed, PrepackedKernel, prepacked
from syno.operators.operator import Operator
from syno.support.together import together

#: From an operator, its constants and element type to an equal one with its rules and its error; None where there is
#: no better one.
Derive = Callable[[Operator, Sequence[str], str], "tuple[Operator, str, float] | None"]

#: Functions of the engine.
ENGINE = ("gather", "scatter", "cast", "argmax", "sample", "scan", "copy")


@dataclass(frozen=True)
class Stage:
    """One step: what it computes, from which tensors, by what."""

    name: str
    kind: str
    """"kernel"; "view" (the same elements, no work; of several inputs: they lie in the output); "engine" (gather, scatter, cast, argmax, sample, scan, copy); "host" (a function of
    PyTorch)."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    """Of the imported network, in order."""
    what: str
    """A formula, or the function's name."""
    reason: str = ""
    """Why the host computes it."""
    attributes: str = "{}"
    host: Callable[..., Any] | None = None
    kernel: PrepackedKernel | None = None
    packed: Packed | None = None
    operator: Operator | None = None
    """What the kernel computes, before derivation."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Tensors of the network by the operator's names for them."""
    derived: str = ""
    """The steps of the derivation, where the kernel computes an equal program."""
    derived_error: float = 0.0
    predicted_us: float = 0.0
    of_peak: float = 0.0
    """Part of the multiply-add peak that is predicted."""
    limit: str = ""
    """What is predicted to limit it."""
    flops: int = 0


class Packings:
    """The packed weights of one network. Steps that pack the same weights in the same way, as those of a recurrent layer do at
    every moment, read the same memory: so much of it stays in a near cache."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], Packed] = {}

    def pack(
        self, kernel: PrepackedKernel, names: Mapping[str, str], weights: Mapping[str, Array]
    ) -> Packed:
        """
        Args:
            names: the network's weights by the kernel's names for them.
            weights: by the network's names.
        """
        key = (kernel.packing, tuple((name, names[name]) for name in kernel.constants))
        if (known := self._known.get(key)) is not None:
            return Packed(kernel, kernel.call, known.buffers)
        packed = kernel.pack(**{name: weights[names[name]] for name in kernel.constants})
        return self._known.setdefault(key, packed)


def kernel_stage(
    graph: _core.Graph,
    node: _core.GraphNode,
    weights: Mapping[str, Array],
    nodes: tuple[str, ...],
    *,
    threads: int,
    cache: bool,
    constants_from: int = 0,
    derive: Derive | None = None,
    packings: Packings | None = None,
) -> Stage:
    """Compiles a program node, verified, with its weights packed.

    Args:
        weights: of the graph, by name.
        nodes: of the imported network that it holds.
        constants_from: the level of the machine model that weights come from, as for `prepacked`.
        packings: of the network; None: no other step has its weights.
    Raises:
        KernelError: no kernel can be made of it, or it computes something else.
    """
    assert node.program is not None
    asked = asked_of(graph, node)
    operator, constants, dtype = asked.operator, asked.constants, asked.dtype
    names = dict(zip(operator.inputs, node.inputs, strict=True))
    names |= zip(operator.outputs, node.outputs, strict=True)
    common: dict[str, Any] = {
        "dtype": dtype, "threads": threads, "cache": cache, "constants_from": constants_from
    }  # fmt: skip
    derived, error, chosen = "", 0.0, operator
    if derive is not None:
        found = derive(operator, constants, dtype)
        if found is not None:
            chosen, derived, error = found
    try:
        kernel = prepacked(chosen, constants, **common)
    except SynoError as failure:
        if chosen is operator:
            raise KernelError(f"[graph] {node.name}: {failure}") from failure
        derived, error = "", 0.0
        kernel = prepacked(operator, constants, **common)
    packed = (packings or Packings()).pack(kernel, names, weights)
    limits = _core.predict_nest(
        kernel.call.nest,
        _machine(),
        threads=kernel.runs_on,
        near=list(kernel.data) if constants_from else None,
        far=constants_from,
    )
    return Stage(
        node.name,
        "kernel",
        tuple(node.inputs),
        tuple(node.outputs),
        nodes,
        str(node.program.short_text()),
        kernel=kernel,
        packed=packed,
        operator=operator,
        names=names,
        derived=derived,
        derived_error=error,
        predicted_us=limits.seconds * 1e6,
        of_peak=limits.fraction_of_peak,
        limit=limits.bottleneck,
        flops=operator.flops,
    )


@dataclass(frozen=True)
class AskedKernel:
    """What a program node needs a kernel of: under names that equal layers share, so that one kernel, checked once, serves
    them all, each with weights of its own."""

    operator: Operator
    constants: tuple[str, ...]
    """Inputs that are weights."""
    dtype: str

    def key(self) -> tuple[str, tuple[str, ...], str]:
        """Equal for what one kernel serves."""
        return str(self.operator.program.text()), self.constants, self.dtype


def asked_of(graph: _core.Graph, node: _core.GraphNode) -> AskedKernel:
    """The kernel of a program node."""
    assert node.program is not None
    neutral, given, _ = node.program.neutral()
    fixed = set(constants_of(graph, node))
    constants = tuple(name for name in neutral.inputs if given[name] in fixed)
    return AskedKernel(Operator(neutral), constants, str(graph.tensor(node.outputs[0])[1]))


def make_together(
    asked: Iterable[AskedKernel], *, threads: int, cache: bool, constants_from: int = 0
) -> None:
    """Makes kernels that stages will ask for, each once, on as many cores as there are. What goes wrong is told who asks
    again. An interruption leaves those that nobody began."""
    different = {each.key(): each for each in asked}
    if len(different) < 2:
        return

    def make(each: AskedKernel) -> None:
        with contextlib.suppress(SynoError):
            prepacked(
                each.operator, each.constants, dtype=each.dtype, threads=threads, cache=cache,
                constants_from=constants_from,
            )  # fmt: skip

    # Those with most work first: the last ones are short.
    together(make, sorted(different.values(), key=lambda each: each.operator.flops, reverse=True))


def _machine() -> Any:
    from syno.machines.model import machine_model

    return machine_model()


def call_stage(node: _core.GraphNode, host: Callable[..., Any] | None, reason: str) -> Stage:
    """What is no program: a function of the engine or of the host."""
    inside = node.function in ENGINE
    return Stage(
        node.name,
        "engine" if inside else "host",
        tuple(node.inputs),
        tuple(node.outputs),
        (node.name,),
        node.function,
        reason="" if inside else reason,
        attributes=node.attributes,
        host=host,
    )


def view_stage(node: _core.GraphNode, nodes: tuple[str, ...]) -> Stage:
    assert node.program is not None
    return Stage(
        node.name, "view", tuple(node.inputs), tuple(node.outputs), nodes, str(node.program.short_text())
    )  # fmt: skip


def pack_anew(stage: Stage, weights: Mapping[str, Array]) -> bool:
    """Packs other values of a kernel's weights into the memory that the old ones have: whether they are others."""
    if stage.kernel is None or stage.packed is None:
        return False
    fresh = stage.kernel.pack(
        **{name: weights[stage.names[name]] for name in stage.kernel.constants}
    )
    changed = False
    for name, buffer in stage.packed.buffers.items():
        if not same_bytes(buffer, fresh.buffers[name]):
            buffer[...] = fresh.buffers[name]
            changed = True
    return changed


def order_of(stage: Stage) -> Sequence[tuple[str, int | None]]:
    """(tensor of the network, address of a packed buffer or None) of a kernel's arguments, in order."""
    assert stage.packed is not None
    return [(stage.names.get(name, name), address) for name, address in stage.packed.arguments()]
