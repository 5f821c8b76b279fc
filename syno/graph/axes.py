"""Which dimensions of which arguments have sizes that calls bring along."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor

from syno.errors import ArgumentError, ShapeError, unknown_name
from syno.graph.extents import Sizes
from syno.graph.sizes import MOST_NAMES, Ranges, range_of
from syno.support.inputs import arguments, described, unwrapped
from syno.support.numbers import whole

Place = tuple[int | str, int]
"""(argument, dimension)."""


@dataclass(frozen=True)
class Axes:
    """Sizes, and the dimensions of arguments that have them."""

    ranges: Ranges
    places: tuple[tuple[Place, ...], ...]
    """Of each size."""

    def out_of(self, name: str, argument: int | str, given: Any, dim: int, size: int) -> ShapeError:
        position = self.ranges.names.index(name)
        low, high = self.ranges.least[position], self.ranges.greatest[position]
        return ShapeError(
            f"[dynamic] the argument {argument!r} is {described(given)}: its dimension {dim} gives {name}={size}, and "
            f"the model was compiled for {low} to {high}; pass a size within, or compile for a wider range"
        )


class Finder:
    """Reads the sizes off a call's arguments."""

    def __init__(
        self, model: Any, axes: Axes, args: Sequence[Any], named: Mapping[str, Any]
    ) -> None:
        self._model, self._axes = model, axes
        everything = by_place(args, named)
        self._leaves = {
            places[0]: sum(
                len(pytree.tree_leaves(everything[each]))
                for each in list(everything)[: list(everything).index(places[0][0])]
            )
            for places in axes.places
        }

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sizes:
        """Raises: ShapeError: a size is outside of its range, or an argument has no such dimension."""
        ranges = self._axes.ranges
        found = []
        for position, name in enumerate(ranges.names):
            argument, dim = place = self._axes.places[position][0]
            given = self._given(place, args, kwargs)
            if not hasattr(given, "shape") or len(given.shape) <= dim:
                raise ShapeError(
                    f"[dynamic] the argument {argument!r} is {described(given)}; its dimension {dim} gives {name}"
                )
            size = int(given.shape[dim])
            if not ranges.least[position] <= size <= ranges.greatest[position]:
                raise self._axes.out_of(name, argument, given, dim, size)
            found.append(size)
        return tuple(found)

    def _given(self, place: Place, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        argument = place[0]
        if isinstance(argument, int) and argument < len(args):
            return args[argument]
        if argument in kwargs:
            return kwargs[argument]
        leaves = pytree.tree_leaves(_bound(self._model, args, kwargs))
        at = self._leaves[place]
        return leaves[at] if at < len(leaves) else None


def _bound(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    try:
        return dict(inspect.signature(unwrapped(model).forward).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        return (args, kwargs)


def by_place(args: Sequence[Any], named: Mapping[str, Any]) -> dict[int | str, Any]:
    """Arguments by position, or by name."""
    made: dict[int | str, Any] = dict(enumerate(args))
    made.update(named)
    return made


def axes_of(dynamic: Any, model: Any, example: Any) -> Axes:
    """What a caller gave: {argument: {dimension: (name, least, greatest)}}, or with `torch.export.Dim` for the triple.

    Raises:
        ArgumentError: it is no such dictionary, or has too many sizes.
        UnknownName: there is no such argument.
        ShapeError: a dimension that a tensor has not, a range that is none, or two of one name.
    """
    form = 'such as {"ids": {1: ("n", 24, 512)}}: by argument, by dimension, the size\'s name and range'
    if not isinstance(dynamic, Mapping) or not dynamic:
        raise ArgumentError(f"[dynamic] dynamic={dynamic!r}", fix=f"give a dictionary {form}")
    args, named = arguments(model, example)
    everything = by_place(args, named)
    positions = _names(model)
    places: dict[str, list[Place]] = {}
    ends: dict[str, tuple[int, int]] = {}
    for argument, dims in dynamic.items():
        place = argument
        if isinstance(argument, str) and argument not in everything and argument in positions:
            place = positions.index(argument)
        if place not in everything or isinstance(place, bool):
            raise unknown_name(
                "argument", str(argument), [str(key) for key in everything] + positions
            )
        tensor = everything[place]
        if not isinstance(dims, Mapping) or not dims or not isinstance(tensor, Tensor):
            raise ArgumentError(
                f"[dynamic] {argument!r}: {described(dims)} for {described(tensor)}",
                fix=f"give dimensions of a tensor, {form}",
            )
        for dim, size in dims.items():
            dim = whole("dynamic", "the dimension", dim, 0, tensor.ndim - 1, ShapeError)
            name, least, greatest = range_of(size, form)
            if ends.setdefault(name, (least, greatest)) != (least, greatest):
                raise ShapeError(
                    f"[dynamic] {name} is from {ends[name][0]} to {ends[name][1]} and from {least} to {greatest}; one "
                    "size has one range"
                )
            if tensor.shape[dim] == 0:
                raise ShapeError(
                    f"[dynamic] the example's {argument!r} is {described(tensor)}: it has no elements to compile for"
                )
            places.setdefault(name, []).append((place, dim))
    if len(places) > MOST_NAMES:
        raise ArgumentError(
            f"[dynamic] {len(places)} sizes: {', '.join(places)}",
            fix=f"a network has at most {MOST_NAMES} sizes that calls bring along",
        )
    names = tuple(places)
    ranges = Ranges(names, tuple(ends[n][0] for n in names), tuple(ends[n][1] for n in names))
    return Axes(ranges, tuple(tuple(places[name]) for name in names))


def _names(model: Any) -> list[str]:
    try:
        return list(inspect.signature(unwrapped(model).forward).parameters)
    except (TypeError, ValueError):
        return []


def resized(axes: Axes, args: Sequence[Any], named: Mapping[str, Any], sizes: Sizes) -> Any:
    """Arguments of these sizes: rows of the given ones again and again, or fewer of them."""
    everything = by_place(args, named)
    for size, places in zip(sizes, axes.places, strict=True):
        for argument, dim in places:
            tensor = everything[argument]
            if tensor.shape[dim] != size:
                rows = torch.arange(size) % tensor.shape[dim]
                everything[argument] = tensor.index_select(dim, rows).contiguous()
    if named:
        return {name: everything[name] for name in named}
    return tuple(everything[place] for place in range(len(args)))
