"""Ranges of a network's sizes, as its machine code is made for them."""

from __future__ import annotations

from syno.graph.extents import Sizes

#: Sizes of which linked networks, and nodes, are kept; each takes its plan and, while it runs, the memory between its steps.
KEPT_SIZES = 64

_VECTOR = 16

Span = tuple[Sizes, Sizes]
"""Least and greatest sizes."""


def with_size(sizes: Sizes, position: int, size: int) -> Sizes:
    """With another size at a position."""
    return (*sizes[:position], size, *sizes[position + 1 :])


def holds(span: Span, sizes: Sizes) -> bool:
    """Whether sizes are within a span."""
    return all(low <= size <= high for low, size, high in zip(span[0], sizes, span[1], strict=True))


def span_text(span: Span) -> str:
    """As people read it."""
    return ", ".join(f"{low}-{high}" for low, high in zip(*span, strict=True))


def rounded(size: int) -> int:
    """Up to whole vectors; to halves, quarters of them and so on, where that would be more than a sixteenth larger."""
    unit = _VECTOR
    while -(-size // unit) * unit > size + size // _VECTOR:
        unit //= 2
    return -(-size // unit) * unit


__all__ = ["KEPT_SIZES", "Span", "holds", "rounded", "span_text", "with_size"]
