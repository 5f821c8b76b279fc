"""How a call of a PyTorch model becomes one of its network: arguments to inputs, outputs to what the model returns."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn

from syno.errors import ShapeError, told
from syno.graph.building import Network
from syno.support.inputs import described


@dataclass(frozen=True)
class Given:
    """One leaf of a call's arguments: a tensor, by its name in the network, or what has to stay as it was."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    constant: Any = None


@dataclass
class Imported:
    """A network, and how a call of the model it was becomes one of it."""

    network: Network
    given: list[Given]
    """The arguments' leaves, in order."""
    returned: list[int | None]
    """For each leaf of what the model returns, which output of the network it is; None of a constant."""
    constants: list[Any]
    """The leaves that are no tensors; None in the place of outputs."""
    in_spec: pytree.TreeSpec | None = None
    """Of (args, kwargs)."""
    out_spec: pytree.TreeSpec | None = None
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """The model's own parameters and buffers by the names of the network's weights."""
    frozen: list[tuple[str, Tensor, int]] = field(default_factory=list)
    """Buffers of whole numbers whose values became part of programs: name, tensor, its version then."""
    arrange: Callable[[tuple[Any, ...], dict[str, Any]], Any] | None = None

    def flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The network's inputs by name.

        Raises:
            ShapeError: an argument has another structure, shape or dtype than in the example, or another value where
                it is no tensor.
        """
        both = (tuple(args), dict(kwargs))
        if self.arrange is not None:
            both = self.arrange(*both)
        leaves, spec = pytree.tree_flatten(both)
        if self.in_spec is not None and spec != self.in_spec:
            names = ", ".join(each.name for each in self.given)
            raise ShapeError(
                f"[call] the network takes {names}, as its example had them; got {described(args)} and "
                f"{described(kwargs)}; compile again for other arguments"
            )
        return {
            each.name: self._checked(each, leaf)
            for each, leaf in zip(self.given, leaves, strict=True)
            if each.dtype is not None or not self._is_same(each, leaf)
        }

    @staticmethod
    def _checked(each: Given, leaf: Any) -> Tensor:
        if isinstance(leaf, np.ndarray):
            leaf = torch.from_numpy(leaf)
        expected = f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}"
        if (
            not isinstance(leaf, Tensor)
            or leaf.dtype != each.dtype
            or tuple(leaf.shape) != each.shape
            or leaf.device.type != "cpu"
        ):
            got = described(leaf)
            if isinstance(leaf, Tensor) and leaf.device.type != "cpu":
                got += f" on {leaf.device}"
            raise ShapeError(
                f"[call] input {each.name}: expected {expected} as in the example, got {got}; compile again for it"
            )
        return leaf

    @staticmethod
    def _is_same(each: Given, leaf: Any) -> bool:
        if type(leaf) is not type(each.constant) or leaf != each.constant:
            raise ShapeError(
                f"[call] input {each.name}: expected {each.constant!r} as in the example, got {described(leaf)}; "
                "compile again for it"
            )
        return True

    def unflatten(self, outputs: Sequence[Tensor]) -> Any:
        """What the model returns, of the network's outputs in order."""
        leaves = [
            constant if at is None else outputs[at]
            for at, constant in zip(self.returned, self.constants, strict=True)
        ]
        if self.out_spec is None:
            return leaves
        flat = self._flat
        return pytree.tree_unflatten(leaves, self.out_spec) if flat is None else flat(leaves)

    @functools.cached_property
    def _flat(self) -> Callable[[list[Any]], Any] | None:
        return None if self.out_spec is None else _flat_kind(self.out_spec)

    def stale(self) -> str | None:
        """The name of a buffer that is part of programs and was changed since; None where there is none."""
        for name, tensor, version in self.frozen:
            if tensor._version != version:
                return name
        return None


def _flat_kind(structure: pytree.TreeSpec) -> Callable[[list[Any]], Any] | None:
    """What makes a structure of its leaves where it is a leaf, or a list or tuple of leaves; else None."""
    if structure.is_leaf():
        return operator.itemgetter(0)
    kind = structure.type
    flat = kind in (list, tuple) and all(child.is_leaf() for child in structure.children())
    return kind if flat else None


class Arrangement:
    """Arguments of a later call as the example had them: by position or by name, with what the signature leaves out."""

    def __init__(self, model: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        try:
            self.signature: inspect.Signature | None = inspect.signature(model.forward)
        except (TypeError, ValueError):
            self.signature = None
        self.count, self.names = len(args), list(named)
        self.kinds = (
            {n: p.kind for n, p in self.signature.parameters.items()} if self.signature else {}
        )
        self.variadic = any(
            k in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            for k in self.kinds.values()
        )

    def __call__(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if (
            self.signature is None
            or self.variadic
            or (len(args) == self.count and list(named) == self.names)
        ):
            return args, {n: named[n] for n in self.names} if set(named) == set(
                self.names
            ) else named
        try:
            bound = self.signature.bind(*args, **named)
        except TypeError as error:
            raise ShapeError(f"[call] the model's arguments: {told(error)}") from None
        usual = {n: p.default for n, p in self.signature.parameters.items()}
        given = dict(bound.arguments)
        wanted = [*list(usual)[: self.count], *self.names]
        for name, value in given.items():
            if name not in wanted and not (value is usual[name] or value == usual[name]):
                raise ShapeError(f"[call] {name} was not in the example; compile again with it")
        values = {n: given.get(n, usual[n]) for n in wanted}
        return tuple(values[n] for n in wanted[: self.count]), {n: values[n] for n in self.names}
