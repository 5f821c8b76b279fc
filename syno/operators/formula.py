"""A formula as it was written: what it was read with, which iterators index which tensor, what can be a size."""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syno.errors import ShapeError, shown


@dataclass(frozen=True)
class Source:
    """How a concrete operator was written, so that it can be read again for other shapes."""

    expr: str
    sizes: tuple[tuple[str, int], ...]
    weights: tuple[str, ...] | None
    data: tuple[str, ...] | None


@dataclass(frozen=True)
class Formula:
    """Which iterators index which tensor in a formula, as far as its text shows."""

    reads: dict[str, list[list[str]]]
    """Index expressions of every occurrence of a tensor."""
    written: frozenset[str]
    """Iterators of the left sides."""

    @classmethod
    def read(cls, expr: str) -> Formula:
        reads: dict[str, list[list[str]]] = {}
        written: set[str] = set()
        for match in re.finditer(r"(\w+)\s*\[((?:[^\[\]]|\[[^\[\]]*\])*)\](\s*=(?!=))?", expr):
            indices = [part.strip() for part in _split_commas(match[2])]
            reads.setdefault(match[1], []).append(indices)
            if match[3]:
                written.update(indices)
        return cls(reads, frozenset(written))

    def implied_by(self, tensors: Mapping[str, Any]) -> set[str]:
        """Iterators whose extents follow from these tensors' shapes."""
        implied: set[str] = set()
        for name in tensors:
            for index in (i for indices in self.reads.get(name, []) for i in indices):
                names = set(re.findall(r"[A-Za-z_]\w*", index))
                implied |= names if index in names else names & self.written
        return implied

    def extents_of(
        self, name: str, shape: Sequence[int], sizes: Mapping[str, int]
    ) -> dict[str, int]:
        """Extents of the iterators that are whole indices of a tensor, where sizes gave them."""
        indices = self.reads.get(name, [[]])[-1]
        if len(indices) != len(shape):
            return {}
        return {i: n for i, n in zip(indices, shape, strict=True) if i in sizes}


def checked_whole(name: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ShapeError(
            f"[parse] size {name}={shown(value)} is a {type(value).__name__}; sizes are whole numbers"
        ) from None


def checked_extent(name: str, value: Any) -> int:
    """A size as the engine takes it, which says itself what is too small or too large."""
    size = checked_whole(name, value)
    if not 1 <= size <= 2**40:
        raise ShapeError(f"[parse] size {name}={shown(size)} is not between 1 and 2^40")
    return size


def _split_commas(text: str) -> list[str]:
    """Parts between commas that are in no parentheses."""
    parts, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]
