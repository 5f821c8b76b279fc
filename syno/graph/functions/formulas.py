"""How functions write their formulas: iterators, reads with broadcasting, numbers, element types."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from syno.errors import ShapeError
from syno.graph.building import FLOATS, Builder, NotCovered, Value

Number = int | float
Operand = Value | Number

#: Whole numbers of these types are exact as float32.
_SMALL = ("int8", "uint8", "int16")
_ORDER = ("bfloat16", "float16", "float32", "float64")


def axes(rank: int, letter: str = "i") -> list[str]:
    """Names of iterators."""
    return [f"{letter}{d}" for d in range(rank)]


def broadcast(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The common shape, as NumPy has it.

    Raises:
        ShapeError: there is none.
    """
    shapes = [tuple(shape) for shape in shapes]
    try:
        return tuple(np.broadcast_shapes(*shapes))
    except ValueError:
        told = " and ".join(str(list(shape)) for shape in shapes)
        raise ShapeError(f"[graph] shapes {told} do not broadcast") from None


def sizes_of(iterators: Sequence[str], extents: Sequence[int]) -> dict[str, Any]:
    """How far iterators run."""
    return dict(zip(iterators, extents, strict=True))


def reading(key: str, shape: Sequence[int], iterators: Sequence[str], whole: Sequence[int]) -> str:
    """A read of a tensor that is broadcast to `whole`, whose indices `iterators` are."""
    first = len(whole) - len(shape)
    at = [
        "0" if extent == 1 and whole[first + d] != 1 else iterators[first + d]
        for d, extent in enumerate(shape)
    ]
    return f"{key}[{','.join(at)}]"


def dim_of(dim: int, rank: int) -> int:
    """A dimension counted from the front.

    Raises:
        ShapeError: there is none such.
    """
    if not -max(rank, 1) <= dim < max(rank, 1):
        raise ShapeError(f"[graph] no dimension {dim} in a tensor of rank {rank}")
    return dim % max(rank, 1)


def dims_of(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Dimensions counted from the front, in order; all of them for None.

    Raises:
        ShapeError: there is none such, or one is there twice.
    """
    if dims is None:
        return tuple(range(rank))
    given = [dim_of(d, rank) for d in ([dims] if isinstance(dims, int) else dims)]
    if len(set(given)) != len(given):
        raise ShapeError(f"[graph] a dimension is there twice in {dims}")
    return tuple(sorted(given)) if rank else ()


def exact(value: Number) -> str | None:
    """A number as programs write it; None of one that they cannot hold (it becomes a tensor)."""
    if isinstance(value, (bool, int)):
        return f"({int(value)})" if abs(int(value)) < 2**53 else None
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "(-inf)"
    fraction = Fraction(repr(float(value)))
    if max(abs(fraction.numerator), fraction.denominator) >= 2**62:
        return None
    return f"({value!r})"


class Tensors:
    """The tensors of a formula by the keys that its text reads them by; one that is there twice has one key."""

    def __init__(self, build: Builder, dtype: str) -> None:
        self.build, self.dtype = build, dtype
        self.by_key: dict[str, Value] = {}
        self._keys: dict[str, str] = {}

    def key(self, wanted: str, value: Value) -> str:
        value = in_type(self.build, value, self.dtype)
        wanted = "other" if wanted == "y" else wanted  # results are y
        key = self._keys.setdefault(value.name, wanted)
        self.by_key[key] = value
        return key

    def number(self, value: Number) -> str:
        """The text of a number, which is a read of a literal where programs cannot hold it."""
        text = exact(value)
        if text is not None:
            return text
        literal = self.build.literal(float(value), self.dtype)
        return self.key(f"c{len(self.by_key)}", literal) + "[]"


def in_type(build: Builder, value: Value, dtype: str) -> Value:
    """The tensor as numbers of a type that programs compute in."""
    return value if value.dtype == dtype else build.cast(value, dtype)


def is_truth(value: Value) -> bool:
    return value.boolean or value.dtype == "bool"


def float_of(build: Builder, values: Iterable[Operand], *, whole: str = "") -> str:
    """The element type that a function of these computes in, as PyTorch promotes them.

    Args:
        whole: what becomes of whole numbers and truth values alone: "float" (`exp`, division) or "truth"
            (comparisons, logic); otherwise they are not covered.
    Raises:
        NotCovered: there is none that programs compute in.
    """
    values = list(values)
    tensors = [v for v in values if isinstance(v, Value)]
    floating = [v for v in tensors if v.dtype in _ORDER and not v.boolean]
    for group in ([v for v in floating if v.rank], floating):
        types = {v.dtype for v in group}
        if types:
            kind = max(types, key=_ORDER.index)
            kind = "float32" if {"bfloat16", "float16"} <= types and kind == "float16" else kind
            if kind not in FLOATS:
                raise NotCovered(f"[graph] numbers of type {kind}")
            return kind
    if whole == "float" or any(isinstance(v, float) for v in values):
        return build.dtype
    small = all(is_truth(v) or v.dtype in _SMALL for v in tensors)
    if whole == "truth" and small:
        return build.dtype
    kinds = sorted({"bool" if is_truth(v) else v.dtype for v in tensors})
    raise NotCovered(f"[graph] numbers of type {', '.join(kinds)}")


def plain_number(build: Builder, operand: Operand) -> Operand:
    """A literal of rank 0 as its number."""
    if isinstance(operand, Value) and not operand.rank:
        array = build.fixed(operand)
        if array is not None and operand.dtype in FLOATS:
            return float(array)
    return operand


def pointwise(
    build: Builder,
    body: str,
    *,
    name: str,
    boolean: bool = False,
    whole: str = "",
    **operands: Operand,
) -> Value:
    """A node that computes `body` for each element of its operands, broadcast.

    Args:
        body: the formula's right side, its operands in braces: `"{x} * {y} + 1"`.
        name: of the result.
        boolean: whether the result are truth values.
        whole: as `float_of` takes it.
    Raises:
        NotCovered: as `float_of` and `Builder.formula`.
        ShapeError: the operands do not broadcast.
    """
    dtype = float_of(build, operands.values(), whole=whole)
    return formula_of(build, body, operands, dtype=dtype, name=name, boolean=boolean)


def formula_of(
    build: Builder,
    body: str,
    operands: Mapping[str, Operand],
    *,
    dtype: str,
    name: str,
    boolean: bool = False,
) -> Value:
    """The same in an element type that is known."""
    tensors = Tensors(build, dtype)
    plain = {key: plain_number(build, operand) for key, operand in operands.items()}
    if not any(isinstance(operand, Value) for operand in plain.values()):
        plain = dict(operands)
    shapes = [operand.shape for operand in plain.values() if isinstance(operand, Value)]
    whole = broadcast(shapes)
    iterators = axes(len(whole))
    words = {
        key: reading(tensors.key(key, operand), operand.shape, iterators, whole)
        if isinstance(operand, Value)
        else tensors.number(operand)
        for key, operand in plain.items()
    }
    return build.formula(
        f"y[{','.join(iterators)}] = {body.format(**words)}",
        tensors.by_key,
        name=name,
        dtype=dtype,
        boolean=boolean,
        **sizes_of(iterators, whole),
    )
