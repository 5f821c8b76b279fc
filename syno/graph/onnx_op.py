"""A node of an ONNX model as the rows of operators see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from syno.errors import ShapeError
from syno.graph.building import Array, Builder, NotCovered, Value

#: What flows along the edges while a model is imported: what is computed, or values that are known.
Tensor = Value | Array


class NeedsConstant(NotCovered):
    """The row must know a tensor's values that only the run gives."""

    def __init__(self, message: str, tensor: str = "") -> None:
        super().__init__(message)
        self.tensor = tensor


@dataclass
class Op:
    """One node.

    Args:
        version: of its operator set.
        inputs: None where one is left out.
        outputs: how many it names.
        used: whether somebody reads them.
        value_of: makes a tensor of the graph of known values.
    """

    build: Builder
    kind: str
    version: int
    attributes: dict[str, Any]
    names: Sequence[str]
    inputs: Sequence[Tensor | None]
    outputs: int
    used: Sequence[bool]
    value_of: Callable[[str, Array], Value]
    read: set[str] = field(default_factory=set)
    """Attributes that the row has looked at."""

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] is not None

    def tensor(self, i: int) -> Tensor:
        each = self.inputs[i] if i < len(self.inputs) else None
        if each is None:
            raise ShapeError(f"[onnx] input {i} of {self.kind} is missing")
        return each

    def x(self, i: int = 0) -> Value:
        """An input as a tensor of the graph."""
        each = self.tensor(i)
        return each if isinstance(each, Value) else self.value_of(self.names[i], each)

    def x_or_none(self, i: int) -> Value | None:
        return self.x(i) if self.has(i) else None

    def values(self) -> list[Value]:
        """All inputs, of which none is left out."""
        return [self.x(i) for i in range(len(self.inputs))]

    def known(self, i: int) -> Array | None:
        """The values of an input where they are known."""
        each = self.inputs[i] if i < len(self.inputs) else None
        if isinstance(each, Value):
            return self.build.fixed(each)
        return each

    def constant(self, i: int) -> Array:
        """The values of an input.

        Raises:
            NeedsConstant: they are not known.
        """
        array = self.known(i)
        if array is None:
            self.tensor(i)
            raise NeedsConstant(
                f"[onnx] input {i} ({self.names[i]}) is not a constant", self.names[i]
            )
        return array

    def ints(self, i: int) -> list[int]:
        """The values of an input as whole numbers."""
        array = self.constant(i)
        if array.dtype.kind not in "iu":
            raise ShapeError(f"[onnx] input {i} of {self.kind} holds numbers of type {array.dtype}")
        return [int(value) for value in array.reshape(-1)]

    def number(self, i: int) -> float:
        """The value of an input that is one number."""
        array = self.constant(i)
        if array.size != 1:
            raise ShapeError(f"[onnx] input {i} of {self.kind} has {array.size} values, not one")
        return float(array.reshape(-1)[0])

    def shape(self, i: int = 0) -> tuple[int, ...]:
        return tuple(self.tensor(i).shape)

    def rank(self, i: int = 0) -> int:
        return len(self.tensor(i).shape)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute."""
        self.read.add(name)
        return self.attributes.get(name, default)

    def only_first(self) -> None:
        """Raises: NotCovered: a further output is used."""
        if any(self.used[1:]):
            raise NotCovered(f"[onnx] further outputs of {self.kind}")

    def dims(self, i: int, attribute: str = "axes") -> list[int] | None:
        """Dimensions by an input or, in older versions, an attribute; None where neither is there."""
        if self.has(i):
            return self.ints(i)
        given = self.get(attribute)
        return None if given is None else [int(d) for d in given]


#: Attributes that say nothing about results, or that rows look at only where they matter.
_HARMLESS = {
    "antialias", "cubic_coeff_a", "exclude_outside", "extrapolation_value", "fmod", "hidden_size", "keep_aspect_ratio_policy",
    "kv_num_heads", "momentum", "nearest_mode", "num_outputs", "q_num_heads", "qk_matmul_output_mode", "saturate",
    "softmax_precision", "stash_type", "storage_order", "coordinate_transformation_mode", "noop_with_empty_axes", "seed",
}  # fmt: skip


def check_attributes(op: Op) -> None:
    """Raises: NotCovered: an attribute that the row does not know."""
    unknown = sorted(set(op.attributes) - op.read - _HARMLESS)
    if unknown:
        raise NotCovered(f"[onnx] attribute {', '.join(unknown)} of {op.kind}")


Row = Callable[[Op], Sequence[Tensor | None] | Tensor]

#: The rows by domain and name.
ROWS: dict[tuple[str, str], Row] = {}


#: Those that PyTorch's functions compute, where a row refuses or there is none.
HOST_ROWS: dict[tuple[str, str], Row] = {}


def row(*kinds: str, domain: str = "", host: bool = False) -> Callable[[Row], Row]:
    """Adds a function to the table of operators."""

    table = HOST_ROWS if host else ROWS

    def add(function: Row) -> Row:
        for kind in kinds:
            assert (domain, kind) not in table, kind
            table[domain, kind] = function
        return function

    return add


def floats(array: Array) -> bool:
    return bool(array.dtype.kind == "f" or array.dtype.name == "bfloat16")


def ones(shape: Sequence[int], dtype: str) -> Array:
    return np.ones(tuple(shape), dtype)
