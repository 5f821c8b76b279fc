"""Extents that stand for many, as `torch.export` and `torch.compile` have them: shapes of results as functions of them.

A shape function of plain numbers is asked at several; results are affine in the extents of inputs, so that this
tells the whole function. An extent that an operator takes one value of only (or that enters otherwise) becomes a
number, which PyTorch reports where it was to stay free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from syno.errors import SynoError

Shapes = tuple[tuple[int, ...], ...]


def symbols_in(tensors: Sequence[Tensor]) -> bool:
    """Whether an extent stands for many."""
    return any(isinstance(n, torch.SymInt) for t in tensors for n in t.shape)


def symbolic_shape(
    shape_of: Callable[[Shapes], tuple[int, ...]], tensors: Sequence[Tensor]
) -> tuple[Any, ...]:
    """The shape of the result of these tensors, in terms of their extents.

    Args:
        shape_of: the same for plain numbers; raises SynoError for shapes that do not fit.
    """
    values = tuple(tuple(map(_value, t.shape)) for t in tensors)
    groups: dict[Any, list[tuple[int, int]]] = {}
    for i, t in enumerate(tensors):
        for d, n in enumerate(t.shape):
            if isinstance(n, torch.SymInt):
                groups.setdefault(n.node.expr, []).append((i, d))
    base = shape_of(values)
    slopes = {expr: _slope(shape_of, values, base, places) for expr, places in groups.items()}
    free = {expr: slope for expr, slope in slopes.items() if slope is not None}
    if len(free) > 1:
        # Extents that enter together, as a product, are told apart from a sum by changing all.
        everywhere = [place for expr in free for place in groups[expr]]
        together = tuple(b + sum(s[j] for s in free.values()) for j, b in enumerate(base))
        if _asked(shape_of, values, everywhere, 1) != together:
            free = {}
    result: list[Any] = list(base)
    for expr, places in groups.items():
        i, d = places[0]
        symbol, value = tensors[i].shape[d], values[i][d]
        if expr not in free:
            for i, d in places:
                int(tensors[i].shape[d])  # tells PyTorch that it is this number
            continue
        for j, slope in enumerate(free[expr]):
            if slope == 1 and result[j] is base[j] and base[j] == value:
                result[j] = symbol  # the same symbol, so that comparisons see it
            elif slope:
                result[j] = result[j] + slope * (symbol - value)
    return tuple(result)


def _value(extent: Any) -> int:
    hint = extent.node.hint if isinstance(extent, torch.SymInt) else None
    return int(extent if hint is None else hint)


def _asked(
    shape_of: Callable[[Shapes], tuple[int, ...]],
    values: Shapes,
    places: Sequence[tuple[int, int]],
    more: int,
) -> tuple[int, ...] | None:
    """The result where these extents are greater; None where such inputs do not fit."""
    changed = [list(shape) for shape in values]
    for i, d in places:
        changed[i][d] += more
    try:
        return shape_of(tuple(map(tuple, changed)))
    except SynoError:
        return None


def _slope(
    shape_of: Callable[[Shapes], tuple[int, ...]],
    values: Shapes,
    base: tuple[int, ...],
    places: Sequence[tuple[int, int]],
) -> tuple[int, ...] | None:
    """By how much each extent of the result grows with these; None where it is not by the same each time."""
    one, two = (_asked(shape_of, values, places, more) for more in (1, 2))
    if one is None or two is None or len(one) != len(base) or len(two) != len(base):
        return None
    steps = tuple(a - b for a, b in zip(one, base, strict=True))
    again = tuple(a - b for a, b in zip(two, one, strict=True))
    return steps if steps == again else None
