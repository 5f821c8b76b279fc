"""Copies: nodes whose elements are elements of one tensor, each read at an index expression."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from syno.errors import ShapeError, shown
from syno.graph.building import FLOATS, Array, Builder, NotCovered, Value

_MOST = 2**63 - 1

#: Most elements of whole numbers that are copied by a table of their places.
MOST_MOVED = 1 << 20


def iterators(rank: int, letter: str = "i") -> list[str]:
    """Names of `rank` iterators."""
    return [f"{letter}{number}" for number in range(rank)]


def over(names: Sequence[str], extents: Sequence[int]) -> str:
    """The brackets' content that lets iterators run over these extents."""
    return ", ".join(f"{name}: {extent}" for name, extent in zip(names, extents, strict=True))


def dimension(dim: int, rank: int, what: str = "dim") -> int:
    """A dimension counted from the front.

    Raises:
        ShapeError: there is no such dimension.
    """
    if not -rank <= dim < rank:
        raise ShapeError(f"[graph] {what} is {dim}, but the tensor has {rank} dimensions")
    return dim % rank


def dimensions(dims: Iterable[int], rank: int) -> list[int]:
    """Dimensions counted from the front, each once."""
    result = [dimension(dim, rank) for dim in dims]
    if len(set(result)) < len(result):
        raise ShapeError(f"[graph] dims are {shown(list(dims))}: one appears twice")
    return result


def literal(value: float) -> str | None:
    """A number as the language writes it, exactly; None where it cannot: not a number, very large, very small."""
    if np.isnan(value):
        return None
    if np.isinf(value):
        return "inf" if value > 0 else "-inf"
    exact = Fraction(float(value))
    if abs(exact.numerator) > _MOST or exact.denominator > _MOST:
        return None
    return (
        str(exact.numerator)
        if exact.denominator == 1
        else f"ratio({exact.numerator}, {exact.denominator})"
    )


def is_number(x: Value) -> bool:
    """Whether programs read it: floating point numbers and truth values."""
    return x.dtype in FLOATS or x.dtype == "bool"


def known(build: Builder, x: Value) -> Array | None:
    """The values of a constant tensor that programs do not read (whole numbers) or need not (truth values)."""
    return None if x.dtype in FLOATS else build.fixed(x)


def check_readable(build: Builder, x: Value) -> None:
    """Raises: NotCovered: whole numbers that the graph computes or is given."""
    if not is_number(x) and build.fixed(x) is None:
        raise NotCovered(f"[graph] {x.name} holds numbers of type {x.dtype}")


def copy(
    build: Builder,
    x: Value,
    extents: Sequence[int],
    indices: Callable[[list[str]], Sequence[str]],
    values: Callable[[Array], Any],
    *,
    fill: str = "",
) -> Value:
    """A tensor of these extents whose element at iterators i is the element of `x` at `indices(i)`.

    Args:
        values: the same of an array, for constants.
        fill: what is read where an index is outside `x`, as the language writes it; empty for 0.
    Raises:
        NotCovered: very many whole numbers, or beside a fill, unless they are constants; of a tensor without elements.
    """
    array = known(build, x)
    if array is not None:
        result = np.asarray(values(array))
        if result.shape != tuple(extents):
            raise AssertionError(f"{result.shape} is not {tuple(extents)}")
        return build.literal(result, x.dtype, x.name)
    if 0 in extents:
        return build.literal(np.zeros(tuple(extents)), "bool" if holds_truth(x) else x.dtype)
    if not is_number(x) and not fill and math.prod(x.shape) <= MOST_MOVED:
        return moved(build, x, values)
    check_readable(build, x)
    check_elements(x.shape, extents)
    names = iterators(len(extents))
    where = ", ".join(indices(names))
    text = f"y[{over(names, extents)}] = x[{where}]{' fill ' + fill if fill else ''}"
    return build.formula(text, {"x": x}, boolean=holds_truth(x))


def moved(build: Builder, x: Value, values: Callable[[Array], Any]) -> Value:
    """A copy of numbers that programs do not compute with, by the engine's functions on elements of any type."""
    count = math.prod(x.shape)
    table = np.asarray(values(np.arange(count).reshape(x.shape)))
    if table.size == count and (table.reshape(-1) == np.arange(count)).all():
        return _as_shape(build, x, table.shape)
    flat = _as_shape(build, x, (count,))
    indices = build.literal(table, "int64", "indices")
    return build.call("gather", [flat, indices], [(table.shape, x.dtype)])[0]


def _as_shape(build: Builder, x: Value, shape: Sequence[int]) -> Value:
    if x.shape == tuple(shape):
        return x
    attributes = json.dumps({"shape": list(shape)})
    return build.call("copy", [x], [(shape, x.dtype)], attributes=attributes)[0]


def check_elements(*shapes: Sequence[int]) -> None:
    """Raises: NotCovered: a tensor without elements."""
    for shape in shapes:
        if 0 in shape:
            raise NotCovered(f"[graph] a tensor without elements: {list(shape)}")


def holds_truth(x: Value) -> bool:
    return x.boolean or x.dtype == "bool"


def same_kind(build: Builder, xs: Sequence[Value]) -> list[Value]:
    """Tensors that one program reads as copies: truth values as numbers of the others' type."""
    kinds = sorted({x.dtype for x in xs if x.dtype in FLOATS})
    if len(kinds) > 1:
        raise NotCovered(f"[graph] inputs of several element types: {', '.join(kinds)}")
    return list(xs)
