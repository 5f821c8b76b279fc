"""Calls of PyTorch's own functions inside a graph: what no program computes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from syno.graph.building import DTYPES, Builder, Value

#: Element types of a graph's tensors by PyTorch's.
NAMES: dict[torch.dtype, str] = {getattr(torch, name): name for name in DTYPES}


@dataclass(frozen=True, eq=False)
class Slot:
    """The place of a tensor in arguments."""

    value: Value


@dataclass(frozen=True, eq=False)
class Result:
    """In arguments, what another call gives that no edge of a graph can hold, such as complex numbers."""

    call: HostCall
    index: int | None


@dataclass(frozen=True, eq=False)
class Check:
    """A function that raises where a call's result says that it failed, such as at a matrix that has no inverse."""

    function: Callable[..., Any]
    index: int
    """Of the result that it reads."""
    args: tuple[Any, ...]
    named: dict[str, Any]


@dataclass(eq=False)
class HostCall:
    """A function with its constant arguments, from torch tensors to torch tensors."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    named: dict[str, Any]
    strides: tuple[int, ...] | None = None
    """How the first tensor lies in memory, for what depends on it."""
    checks: list[Check] = field(default_factory=list, init=False)
    """Of its results."""
    values: list[Value] = field(init=False)
    """The tensors to pass, in order."""
    _fill: Callable[[_Given], Any] | None = field(default=None, init=False, repr=False)
    """Makes both kinds of arguments; found at the first call, as walking through them takes longer than most functions."""

    def __post_init__(self) -> None:
        found = {slot.value.name: slot.value for slot in _slots((self.args, self.named))}
        self.values = list(found.values())

    def __call__(self, *tensors: Tensor, floats: torch.dtype | None = None) -> Any:
        """The tensors it gives, without those that are None.

        Args:
            floats: the type of the floating point tensors passed, where it is another than in the model: constant
                tensors are of it, too, as functions that write one into the other want.
        """
        names = [value.name for value in self.values]
        made = self._run(_Given(dict(zip(names, tensors, strict=True)), floats))
        if isinstance(made, (tuple, list)):
            return [each for each in made if isinstance(each, Tensor)]
        return made

    def _run(self, given: _Given) -> Any:
        if self._fill is None:
            self._fill = _filling((self.args, self.named)) or (lambda _: (self.args, self.named))
        args, named = self._fill(given)
        if self.strides is not None:
            lain = torch.empty_strided(args[0].shape, self.strides, dtype=args[0].dtype)
            args = (lain.copy_(args[0]), *args[1:])
        made = self.function(*args, **named)
        for check in self.checks:
            check.function(made[check.index], *check.args, **check.named)
        return made

    def attributes(self, random: bool = False) -> str:
        """The constant arguments as JSON, for people.

        Args:
            random: whether the function draws random numbers: two equal calls are never one.
        """
        schema = getattr(self.function, "_schema", None)
        names = [argument.name for argument in schema.arguments] if schema is not None else []
        names += [f"argument {n}" for n in range(len(names), len(self.args))]
        both = {**dict(zip(names, self.args, strict=False)), **self.named}
        plain = {name: _plain(value) for name, value in both.items() if not _holds_tensor(value)}
        return json.dumps({**plain, "random": True} if random else plain)


class _Given:
    """What one call passes: tensors by name, and what other calls gave that their results hold."""

    def __init__(self, tensors: dict[str, Tensor], floats: torch.dtype | None) -> None:
        self.tensors = tensors
        self.floats = floats
        self._done: dict[int, Any] = {}

    def result(self, call: HostCall) -> Any:
        """Of a call, which is made once."""
        if id(call) not in self._done:
            self._done[id(call)] = call._run(self)
        return self._done[id(call)]


def _filling(value: Any) -> Callable[[_Given], Any] | None:
    """What makes an argument of what is given; None: it is always the same."""
    if isinstance(value, Slot):
        name = value.value.name
        return lambda given: given.tensors[name]
    if isinstance(value, Result):
        call, index = value.call, value.index
        if index is None:
            return lambda given: given.result(call)
        return lambda given: given.result(call)[index]
    if isinstance(value, Tensor):
        if not value.is_floating_point():
            return None
        return lambda given: value if given.floats is None else value.to(given.floats)
    if type(value) in (list, tuple):
        return _filling_all(list(value), type(value))
    if type(value) is dict:
        names, named = list(value), _filling_all(list(value.values()), list)
        return named and (lambda given: dict(zip(names, named(given), strict=True)))
    leaves, structure = pytree.tree_flatten(value)
    if len(leaves) == 1 and leaves[0] is value:
        return None
    made = _filling_all(leaves, list)
    return made and (lambda given: pytree.tree_unflatten(made(given), structure))


def _filling_all(values: list[Any], kind: type) -> Callable[[_Given], Any] | None:
    each = [_filling(value) for value in values]
    if not any(each):
        return None
    parts = list(zip(values, each, strict=True))
    return lambda given: kind([value if fill is None else fill(given) for value, fill in parts])


def slots(arguments: Any) -> Any:
    """Arguments with the places of a graph's tensors in the tensors' stead."""
    return pytree.tree_map(
        lambda leaf: Slot(leaf) if isinstance(leaf, Value) else leaf,
        arguments,
    )


def add_call(
    build: Builder,
    call: HostCall,
    outputs: Sequence[tuple[Sequence[int], str]],
    note: str,
    *,
    name: str,
    random: bool = False,
) -> tuple[Value, ...]:
    """The node of a call, with its results; `note` says, once, what runs in PyTorch and why."""
    if note not in build.notes:
        build.notes.append(note)
    return build.call(
        str(call.function),
        call.values,
        outputs,
        attributes=call.attributes(random=random),
        host=call,
        name=name,
    )


def _slots(arguments: Any) -> Iterator[Slot]:
    for leaf in pytree.tree_leaves(arguments):
        if isinstance(leaf, Slot):
            yield leaf
        elif isinstance(leaf, Result):
            yield from _slots((leaf.call.args, leaf.call.named))


def _holds_tensor(value: Any) -> bool:
    return any(isinstance(leaf, (Slot, Result, Tensor)) for leaf in pytree.tree_leaves(value))


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value).removeprefix("torch.")
