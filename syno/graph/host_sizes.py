"""Calls of PyTorch's functions at all sizes, from what they are at some: their numbers follow the sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from syno.errors import ShapeError
from syno.graph.extents import Sizes
from syno.graph.families import Numbers
from syno.graph.host import HostCall, Result, Slot

AtSizes = Callable[[Sizes], Any]


def call_through(calls: Mapping[Sizes, HostCall], numbers: Numbers) -> Callable[[Sizes], HostCall]:
    """A call at all sizes.

    Raises:
        ShapeError: it is another call at other sizes, or a constant of it is.
    """
    first = calls[numbers.base]
    what = str(first.function)
    for sizes, call in calls.items():
        if call.function is not first.function:
            raise ShapeError(
                f"[dynamic] PyTorch computes {call.function} at {numbers.told(sizes)}, {what} elsewhere"
            )
    leaves, spec = pytree.tree_flatten((first.args, first.named))
    rows: dict[Sizes, list[Any]] = {}
    for sizes, call in calls.items():
        rows[sizes], other = pytree.tree_flatten((call.args, call.named))
        if other != spec:
            raise ShapeError(
                f"[dynamic] PyTorch computes {what} of other arguments at {numbers.told(sizes)}"
            )
    made = [
        _leaf_through({sizes: row[n] for sizes, row in rows.items()}, numbers, what)
        for n in range(len(leaves))
    ]
    strides: list[AtSizes] | None = None
    if first.strides is not None:
        strides = [
            _leaf_through(
                {sizes: (call.strides or ())[n] for sizes, call in calls.items()}, numbers, what
            )
            for n in range(len(first.strides))
        ]

    def at(sizes: Sizes) -> HostCall:
        args, named = pytree.tree_unflatten([each(sizes) for each in made], spec)
        lain = None if strides is None else tuple(each(sizes) for each in strides)
        call = HostCall(first.function, args, named, lain)
        assert len(call.values) == len(first.values)
        return call

    return at


def _leaf_through(values: Mapping[Sizes, Any], numbers: Numbers, what: str) -> AtSizes:
    first = values[numbers.base]
    if isinstance(first, Result):
        if not all(
            isinstance(each, Result) and each.index == first.index for each in values.values()
        ):
            raise ShapeError(f"[dynamic] PyTorch computes {what} of other arguments at other sizes")
        inner = call_through({sizes: each.call for sizes, each in values.items()}, numbers)
        return lambda sizes: Result(inner(sizes), first.index)
    if type(first) is int:
        if all(each == first for each in values.values()):
            return lambda sizes: first
        if not all(type(each) is int for each in values.values()) or min(values.values()) < 0:
            raise ShapeError(f"[dynamic] PyTorch computes {what} of other numbers at other sizes")
        return numbers.formula(dict(values), f"a number of {what}").at
    if not all(_same(first, each) for each in values.values()):
        raise ShapeError(f"[dynamic] PyTorch computes {what} of other constants at other sizes")
    return lambda sizes: first


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Slot):
        return bool(one.value.name == other.value.name)
    if isinstance(one, Tensor):
        return bool(
            one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)
        )
    return bool(one == other)
