"""Weights that networks of several sizes share: each has the beginnings of those of the largest sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from syno import _core
from syno.errors import ShapeError
from syno.graph.building import Array


def cut_weights(graph: _core.Graph, weights: Mapping[str, Array]) -> dict[str, Array]:
    """Weights as long as a graph has them: of those that a size is an extent of, the beginnings."""
    made = dict(weights)
    for name in graph.weights:
        if name in made:
            shape = tuple(graph.tensor(name)[0])
            if made[name].shape != shape:
                made[name] = np.ascontiguousarray(_beginning(made[name], shape))
    return made


def _beginning(array: Array, shape: Sequence[int]) -> Array:
    """Of an array, so much of each dimension; of one without dimensions, all, as an array."""
    at: tuple[Any, ...] = (*map(slice, shape), ...)
    part: Array = array[at]
    return part


def check_weights(largest: Mapping[str, Array], others: Mapping[str, Array], where: str) -> None:
    """That weights are the beginnings of those of the largest sizes.

    Raises:
        ShapeError: one is not.
    """
    for name, array in others.items():
        held = largest.get(name)
        whole_of = (
            held is not None
            and held.ndim == array.ndim
            and all(n <= most for n, most in zip(array.shape, held.shape, strict=True))
        )
        begin = _beginning(held, array.shape) if held is not None and whole_of else None
        same = begin is not None and (
            _same_memory(begin, array)
            or np.array_equal(begin, array, equal_nan=array.dtype.kind == "f")
        )
        if not same:
            raise ShapeError(f"[dynamic] {name} at {where} is no part of what it is at the largest")


def _same_memory(one: Array, other: Array) -> bool:
    """Of two arrays of one shape."""
    return (
        one.dtype == other.dtype
        and one.strides == other.strides
        and one.ctypes.data == other.ctypes.data
    )


__all__ = ["check_weights", "cut_weights"]
