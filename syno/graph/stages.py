"""The steps of a compiled network: a kernel for each joined group of nodes, functions of the engine and of the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from syno import _core
from syno.errors import KernelError, SynoError
from syno.graph.building import Array
from syno.graph.checking import same_bytes
from syno.graph.fusing import constants_of
from syno.kernels.prepack import Packed, PrepackedKernel, prepacked
from syno.operators.operator import Operator

#: From an operator, its constants and element type to an equal one with its rules and its error; None where there is
#: no better one.
Derive = Callable[[Operator, Sequence[str], str], "tuple[Operator, str, float] | None"]

#: Functions of the engine.
ENGINE = ("gather", "cast", "argmax", "copy")


@dataclass(frozen=True)
class Stage:
    """One step: what it computes, from which tensors, by what."""

    name: str
    kind: str
    """"kernel"; "view" (the same elements, no work; of several inputs: they lie in the output); "engine" (gather, cast, argmax, copy); "host" (a function of
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


def kernel_stage(
    graph: _core.Graph,
    node: _core.GraphNode,
    weights: Mapping[str, Array],
    nodes: tuple[str, ...],
    *,
    threads: int,
    cache: bool,
    derive: Derive | None = None,
) -> Stage:
    """Compiles a program node, verified, with its weights packed.

    Args:
        weights: of the graph, by name.
        nodes: of the imported network that it holds.
    Raises:
        KernelError: no kernel can be made of it, or it computes something else.
    """
    assert node.program is not None
    operator = Operator(node.program)
    constants = constants_of(graph, node)
    dtype = graph.tensor(node.outputs[0])[1]
    names = dict(zip(node.program.inputs, node.inputs, strict=True))
    names |= zip(node.program.outputs, node.outputs, strict=True)
    common: dict[str, Any] = {"dtype": dtype, "threads": threads, "cache": cache}
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
    packed = kernel.pack(**{name: weights[names[name]] for name in constants})
    limits = _core.predict_nest(kernel.call.nest, _machine(), threads=kernel.runs_on)
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
