"""Sizes that calls bring along: their names, and from where to where they go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno.errors import ArgumentError, ShapeError, unknown_name
from syno.support.numbers import whole

if TYPE_CHECKING:
    from syno.graph.extents import Sizes

#: The greatest size that can be named.
LARGEST = 2**20
#: Sizes that one network can have.
MOST_NAMES = 5


@dataclass(frozen=True)
class Ranges:
    """Sizes by name, with the least and the greatest value of each."""

    names: tuple[str, ...]
    least: Sizes
    greatest: Sizes

    @property
    def whole(self) -> tuple[Sizes, Sizes]:
        """The least sizes and the greatest ones."""
        return self.least, self.greatest

    def without(self, positions: Sequence[int]) -> Ranges:
        """Of the other sizes."""
        kept = [p for p in range(len(self.names)) if p not in positions]
        return Ranges(
            tuple(self.names[p] for p in kept),
            tuple(self.least[p] for p in kept),
            tuple(self.greatest[p] for p in kept),
        )

    def checked(self, sizes: Mapping[str, Any]) -> Sizes:
        """Values of all sizes in order.

        Raises:
            UnknownName: of a size that there is not.
            ShapeError: one is missing, no whole number or outside of its range.
        """
        for name in sizes:
            if name not in self.names:
                raise unknown_name("size", name, self.names)
        found = []
        for name, low, high in zip(self.names, self.least, self.greatest, strict=True):
            if name not in sizes:
                raise ShapeError(
                    f"[dynamic] the size {name} is missing; it is from {low} to {high}"
                )
            found.append(whole("dynamic", name, sizes[name], low, high, ShapeError))
        return tuple(found)

    def __str__(self) -> str:
        rows = zip(self.names, self.least, self.greatest, strict=True)
        return ", ".join(f"{name} {low} to {high}" for name, low, high in rows)


def range_of(size: Any, form: str) -> tuple[str, int, int]:
    """(name, least, greatest) of such a triple, or of a `torch.export.Dim`.

    Raises:
        ArgumentError: it is neither.
        ShapeError: the range is none.
    """
    if hasattr(size, "min") and hasattr(size, "max") and hasattr(size, "__name__"):
        size = (size.__name__, size.min, size.max)
    if not isinstance(size, (tuple, list)) or len(size) != 3 or not isinstance(size[0], str):
        raise ArgumentError(f"[dynamic] {size!r} is no size with its range", fix=f"give one {form}")
    return (size[0], *ends_of(size[0], size[1:]))


def ends_of(name: str, ends: Any) -> tuple[int, int]:
    """(least, greatest) of a size.

    Raises:
        ShapeError: they are no such numbers.
    """
    if not isinstance(ends, (tuple, list)) or len(ends) != 2:
        raise ShapeError(
            f"[dynamic] {name}={ends!r}: give the least and the greatest value, such as (1, 64)"
        )
    least = whole("dynamic", f"the least {name}", ends[0], 1, LARGEST, ShapeError)
    greatest = whole("dynamic", f"the greatest {name}", ends[1], 1, LARGEST, ShapeError)
    if greatest < least:
        raise ShapeError(
            f"[dynamic] {name}=({least}, {greatest}): its least value is above its greatest"
        )
    return least, greatest
