"""What a network computes, node by node in PyTorch: the yardstick that compiled networks are held to.

Programs run as their emitted text (`syno.torch.aten`), which knows nothing of schedules and kernels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from syno.errors import KernelError, SynoError
from syno.graph.building import Network, Node
from syno.graph.host import HostCall
from syno.graph.left_copies import as_one, steps
from syno.graph.tensors import TYPES, tensor_of
from syno.kernels.ranged import neutral_names
from syno.operators.operator import Operator
from syno.support.bounded import Bounded
from syno.torch.aten import AtenFunction

#: A program whose emitted text needs a larger tensor than this runs as its kernel in the same precision; a copy that is larger
#: is not made, but computed with what reads it.
_MOST_BYTES = 1 << 30


class HostRefusal(KernelError):
    """A function of PyTorch within a network refuses the values that it is given, such as offsets that do not start at 0."""


def run_reference(
    network: Network,
    inputs: Mapping[str, Tensor],
    *,
    dtype: torch.dtype | None = None,
    weights: Mapping[str, Tensor] | None = None,
    keep: bool = False,
    rounded: Callable[[Tensor], Tensor] | None = None,
    going: Callable[[], None] | None = None,
) -> dict[str, Tensor]:
    """The outputs by name.

    Args:
        inputs: by name.
        dtype: of all floating point numbers; default that of each tensor.
        weights: values in place of the network's own.
        keep: every tensor by name, in place of the outputs alone.
        rounded: what becomes of floating point results.
        going: called before each node, so that it can end this by raising.
    Raises:
        HostRefusal: a function of PyTorch refuses the values it gets.
    """

    wide = None if dtype is None else dtype.itemsize
    most = math.inf if keep else _MOST_BYTES
    held: dict[str, Tensor] = {}
    for value in network.inputs:
        held[value.name] = as_float(inputs[value.name], dtype)

    def tensor(name: str) -> Tensor:
        if name not in held:  # a weight, as floats of `dtype` no earlier than somebody reads it
            given = weights[name] if weights and name in weights else None
            given = tensor_of(network.weights[name]) if given is None else given
            held[name] = as_float(given, dtype)
        return held[name]

    with torch.no_grad():
        for step in steps(network, most, wide):
            one = as_one(network, step.nodes)
            for node in step.nodes if one is None else [one]:
                if going is not None:
                    going()
                made = _run(network, node, [tensor(name) for name in node.inputs], dtype)
                if rounded is not None:
                    made = [rounded(each) if each.is_floating_point() else each for each in made]
                held.update(zip(node.outputs, made, strict=True))
            if not keep:
                copies = [name for node in step.nodes[:-1] for name in node.outputs]
                for name in (*step.done, *copies):
                    held.pop(name, None)
    if keep:
        return {**{name: tensor(name) for name in network.weights}, **held}
    return {value.name: tensor(value.name) for value in network.outputs}


class _Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest tensor that functions make; views of what is there take nothing."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        there = {_storage(each) for each in _tensors((args, *(kwargs or {}).values()))}
        for each in _tensors([made]):
            if _storage(each) not in there:
                self.bytes = max(self.bytes, each.numel() * each.element_size())
        return made


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _storage(tensor: Tensor) -> int:
    """The same number for tensors that share their memory; of those without data, too."""
    return int(tensor.untyped_storage()._cdata)


_largest: Bounded[tuple[str, torch.dtype], int] = Bounded(1024)


def _largest_bytes(operator: Operator, given: list[Tensor], kind: torch.dtype) -> int:
    """Of a tensor that the emitted text makes on its way, found without making it: some programs' text writes out every
    term of their sums. A program's text holds its shapes, so one look is enough."""
    key = str(operator.program.text()), kind
    found = _largest.get(key)
    return _largest.setdefault(key, _looked_at(operator, given, kind)) if found is None else found


def _looked_at(operator: Operator, given: list[Tensor], kind: torch.dtype) -> int:
    meta = torch.device("meta")
    sizes = _Sizes()  # type: ignore[no-untyped-call]
    try:
        function = AtenFunction(operator, operator.inputs, kind, meta)
        inputs = [torch.empty(each.shape, dtype=kind, device=meta) for each in given]
        with sizes:
            function(*inputs)
    except (RuntimeError, NotImplementedError):  # a function that has no form without data
        return 0
    return sizes.bytes


def _run(
    network: Network, node: Node, given: list[Tensor], dtype: torch.dtype | None
) -> list[Tensor]:
    if node.program is not None:
        kind = dtype or TYPES[network.values[node.outputs[0]].dtype]
        # Equal layers have one text, and so one form in PyTorch.
        operator = Operator(node.program.renamed(neutral_names(node.program)))
        result: Any
        if _largest_bytes(operator, given, kind) > _MOST_BYTES:
            # Verified against the interpreter, point by point.
            name = str(kind).removeprefix("torch.")
            result = operator.compile(name)(*[each.to(kind).contiguous() for each in given])
        else:
            result = AtenFunction(operator, operator.inputs, kind, torch.device("cpu"))(*given)
    elif node.host is not None:
        named = {"floats": dtype} if dtype is not None and isinstance(node.host, HostCall) else {}
        try:
            made = node.host(*given, **named)
        except SynoError:
            raise
        except (RuntimeError, ValueError, IndexError, NotImplementedError) as error:
            raise HostRefusal(
                f"[network] {node.function} refuses its inputs: {error}; pass inputs that the model takes"
            ) from error
        result = [
            as_float(each, dtype) for each in (made if isinstance(made, (tuple, list)) else [made])
        ]
    else:
        result = _builtin(node, given, network, dtype)
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    return results


def as_float(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The tensor in the type that all floating point numbers have."""
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor


def _builtin(
    node: Node, given: list[Tensor], network: Network, dtype: torch.dtype | None
) -> Tensor:
    attributes: dict[str, Any] = json.loads(node.attributes)
    axis = attributes.get("axis")
    if node.function in ("gather", "scatter") and axis is not None:
        places = _within(given[1].long(), given[0].shape[axis], axis)
        if node.function == "gather":
            return given[0].gather(axis, places)
        return _scattered_along(given[0], axis, places, given[2], attributes.get("reduce", "set"))
    if node.function == "gather":
        before: list[Any] = [slice(None)] * int(attributes.get("dim", 0))
        return given[0][tuple([*before, given[1].long()])]
    if node.function == "scatter":
        table, places, rows = given
        return _scattered(table, places, rows, attributes.get("reduce", "set"))
    if node.function == "cast":
        wanted = TYPES[network.values[node.outputs[0]].dtype]
        if dtype is not None and wanted.is_floating_point:
            wanted = dtype
        return given[0].to(wanted)
    if node.function == "argmax":
        numbers = given[0].to(torch.uint8) if given[0].dtype == torch.bool else given[0]
        return numbers.argmax(attributes.get("axis"), attributes.get("keepdim", False))
    if node.function == "sample":
        return _sampled(given[0], given[1], **attributes)
    if node.function == "scan":
        return _running(given[0], **attributes)
    assert node.function == "copy", node.function
    return given[0].clone().reshape(network.values[node.outputs[0]].shape)


def _sampled(x: Tensor, grid: Tensor, mode: str, padding: str, align: bool) -> Tensor:
    """By PyTorch, which samples images and volumes: a row is an image of one row."""
    if x.dtype == torch.bfloat16:
        return _sampled(x.float(), grid.float(), mode, padding, align).to(x.dtype)
    if x.ndim > 3:
        return F.grid_sample(x, grid, mode, padding, align)
    grid = torch.cat([grid, torch.zeros_like(grid)], -1).unsqueeze(1)
    return F.grid_sample(x.unsqueeze(2), grid, mode, padding, align).squeeze(2)


def _running(
    x: Tensor, axis: int, by: str = "sum", exclusive: bool = False, reverse: bool = False
) -> Tensor:
    """Of each element and those before it along an axis the sum, the product or the logarithm of the sum."""
    function = {"sum": torch.cumsum, "prod": torch.cumprod, "logsumexp": torch.logcumsumexp}[by]
    x = x.flip(axis) if reverse else x
    made: Tensor = function(x, axis)
    made = made.to(x.dtype)  # whole numbers are added up in 64 bits
    if exclusive:
        neutral = {"sum": 0.0, "prod": 1.0, "logsumexp": -math.inf}[by]
        first = torch.full_like(made.narrow(axis, 0, min(1, made.shape[axis])), neutral)
        made = torch.cat([first, made.narrow(axis, 0, max(0, made.shape[axis] - 1))], axis)
    return made.flip(axis) if reverse else made


def _within(places: Tensor, extent: int, axis: int) -> Tensor:
    """Indices along an axis, those below 0 counted from the end. Raises IndexError where one is outside."""
    outside = places[(places < -extent) | (places >= extent)]
    if outside.numel():
        raise IndexError(
            f"index {int(outside[0])} is out of bounds for dimension {axis} with size {extent}"
        )
    return torch.where(places < 0, places + extent, places)


def _scattered_along(
    table: Tensor, axis: int, places: Tensor, given: Tensor, reduce: str
) -> Tensor:
    """Elements put to places along an axis; of several set to one place the last stays."""
    every = torch.arange(table.numel()).reshape(table.shape).gather(axis, places)
    flat = _scattered(table.reshape(-1), every.reshape(-1), given.reshape(-1), reduce)
    return flat.reshape(table.shape)


def _scattered(table: Tensor, places: Tensor, rows: Tensor, reduce: str) -> Tensor:
    """Rows put to places of a table, or combined with what is there; of several set to one place the last stays."""
    result, at = table.clone(), places.long().reshape(-1) % max(len(table), 1)
    given = rows.reshape(len(at), *table.shape[1:])
    if reduce == "add":
        return result.index_add_(0, at, given)
    if reduce != "set":
        name = {"mul": "prod", "max": "amax", "min": "amin"}[reduce]
        every = at.reshape(-1, *[1] * (given.ndim - 1)).expand_as(given)
        return result.scatter_reduce_(0, every, given, name, include_self=True)
    order = torch.arange(len(at))
    last = torch.full((len(table),), -1).scatter_reduce_(0, at, order, "amax")
    stays = last[at] == order
    result[at[stays]] = given[stays]
    return result
