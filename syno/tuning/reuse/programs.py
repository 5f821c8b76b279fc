"""The distinct programs of a network, in plain names, with how often each occurs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from syno import _core
from syno.errors import ArgumentError
from syno.operators.operator import Operator
from syno.tuning.reuse.shapes import Shape, shape_of

_DTYPES = ("float32", "float64", "bfloat16")


@dataclass(frozen=True)
class Member:
    """A program of a network."""

    name: str
    """Of the node it is first met at."""
    program: _core.Program
    dtype: str
    count: int
    """How often the network computes it."""
    constants: tuple[str, ...] = ()
    """Inputs that are weights of the network, which packs them before calls."""

    @property
    def shape(self) -> Shape:
        return shape_of(self.program)


def members_of(
    model: Any, example: Any = None, *, threads: int = 1, fuse: bool = True
) -> list[Member]:
    """The programs that `syno.compile` would make kernels of, nodes joined as it joins them.

    Args:
        model: a `torch.nn.Module`, what `syno.load_onnx` gives, or operators and programs in a sequence.
        example: of a module: what it is called with.
    Raises:
        ArgumentError: something else, or a module without an example.
        CannotImport: the module is no graph of tensors.
    """
    if isinstance(model, Sequence) and not isinstance(model, str):
        return _distinct(_listed(model))
    if hasattr(model, "network") and hasattr(model, "compile"):
        return _distinct(_nodes(model.network, threads, fuse))
    from syno.compiling import _is_module

    if not _is_module(model):
        raise ArgumentError(
            f"[tune] {type(model).__name__} is no network",
            fix="pass a torch.nn.Module with an example, what syno.load_onnx gives, or a list of operators",
        )
    if example is None:
        raise ArgumentError(
            "[tune] a module is tuned for the shapes of an example",
            fix="pass one: tune_network(model, torch.zeros(1, 3, 224, 224))",
        )
    from syno.graph.from_torch import from_module

    return _distinct(_nodes(from_module(model, example).network, threads, fuse))


#: Name, program, dtype, constants.
_Found: TypeAlias = tuple[str, _core.Program, str, tuple[str, ...]]


def _listed(given: Sequence[Any]) -> list[_Found]:
    found: list[_Found] = []
    for number, one in enumerate(given):
        if isinstance(one, Operator):
            one = one._one_valuation("tuning").program
        if not isinstance(one, _core.Program):
            raise ArgumentError(
                f"[tune] item {number} is a {type(one).__name__}", fix="pass operators or programs"
            )
        found.append((f"{one.outputs[0]}_{number}", one, "float32", ()))
    return found


def _nodes(network: Any, threads: int, fuse: bool) -> list[_Found]:
    from syno.graph.compile import _main_type
    from syno.graph.folding import folded
    from syno.graph.fusing import PredictedCost, constants_of, fused
    from syno.kernels.prepack import parts_of_calls

    graph = folded(network).call.graph().cleaned()
    if fuse:
        dtype = _main_type(graph)
        graph, _, _ = fused(graph, PredictedCost(dtype, threads), dtype=dtype)
    found: list[_Found] = []
    for node in graph.nodes:
        if node.program is None or graph.is_view(node.name):
            continue
        kind = str(graph.tensor(node.outputs[0])[1])
        if kind in _DTYPES:
            call, constants = parts_of_calls(
                Operator(node.program), tuple(constants_of(graph, node)), kind
            )
            found.append((node.name, call.program, kind, constants))
    return found


def _distinct(found: Sequence[_Found]) -> list[Member]:
    members: dict[tuple[str, str, tuple[str, ...]], Member] = {}
    for name, program, dtype, fixed in found:
        shape = shape_of(program)
        if 0 in shape.extents:
            continue
        constants = tuple(shape.tensors[one] for one in fixed)
        key = shape.plain, dtype, constants
        known = members.get(key)
        members[key] = Member(
            known.name if known else name,
            known.program if known else shape.program(),
            dtype,
            known.count + 1 if known else 1,
            constants,
        )
    return list(members.values())
