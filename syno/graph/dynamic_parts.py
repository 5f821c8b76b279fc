"""The networks that a network for ranges of sizes is made of: what has to be kept where it is written to files."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from syno import _core
from syno.errors import ArgumentError, UnsupportedOp
from syno.graph.dynamic import DynamicNetwork, Linked
from syno.graph.extents import Sizes
from syno.graph.families import told
from syno.graph.spans import Span

#: Sizes of a span that are looked at, each of them where it has no more.
_LOOKED_AT = 1024
#: Of those, the most at which a network is recorded again to see that it is the same: where nothing proves it.
_RECORDED = 16


@dataclass(frozen=True)
class Part:
    """Sizes that one machine code computes."""

    span: Span
    linked: Callable[[Sizes], Linked]
    """The network at sizes of the span."""
    codes: dict[str, tuple[_core.Kernel, Callable[[Linked], list[int]]]] = field(
        default_factory=dict
    )
    """By step: code with sizes as its parameters, and their values in a network."""


def parts_of(network: DynamicNetwork) -> list[Part]:
    """All of them, made where they were not yet; together they hold all sizes.

    Raises:
        ArgumentError: each of some sizes is compiled on its own.
        UnsupportedOp: a step is compiled for each size.
    """
    found: dict[Span, Part] = {}
    for part in _parts(network, lambda sizes: sizes):
        found.setdefault(part.span, part)
    return list(found.values())


def _parts(network: DynamicNetwork, full: Callable[[Sizes], Sizes]) -> Iterator[Part]:
    names = network.ranges.names
    if network.by_size:
        raise ArgumentError(
            f"[export] each size of the network is compiled on its own: {network.by_size}",
            fix="export it at one size: syno.export(network.at(…), …)",
        )
    for bucket in network.buckets:
        span = network.regular_span(bucket)
        if span is None:
            continue
        _require_alike(network, span)
        yield _part(network, bucket, (full(span[0]), full(span[1])), full)
    for single in network.single_positions():

        def with_ones(
            few: Sizes, single: tuple[int, ...] = single, full: Callable[[Sizes], Sizes] = full
        ) -> Sizes:
            left = iter(few)
            return full(tuple(1 if p in single else next(left) for p in range(len(names))))

        rest = network.without(single)
        if rest is None:
            ones = full((1,) * len(names))
            yield Part((ones, ones), lambda sizes: network.at((1,) * len(names)))
        else:
            yield from _parts(rest, with_ones)


def _part(
    network: DynamicNetwork, bucket: Span, span: Span, full: Callable[[Sizes], Sizes]
) -> Part:
    """Of a bucket."""
    made = network.made_of(bucket)
    lacking = {node.name: "it is compiled for each size" for node in network.nodes_by_size(bucket)}
    if lacking:
        raise UnsupportedOp(
            f"{len(lacking)} of the network's steps have no code for ranges of sizes: {', '.join(lacking)}",
            fix="export it at one size: syno.export(network.at(…), …)",
            operators=lacking,
        )
    # Positions of the network's own sizes among all.
    marks = full(tuple(-1 - p for p in range(len(network.ranges.names))))
    own = [marks.index(-1 - p) for p in range(len(network.ranges.names))]

    def linked(sizes: Sizes) -> Linked:
        return network.linked(bucket, tuple(sizes[p] for p in own))

    codes = {
        name: (
            kernels.call,
            lambda at, name=name, places=places: network.values_of(at, name, places),
        )
        for name, (kernels, places) in made.general.items()
    }
    return Part(span, linked, codes)  # type: ignore[arg-type]


def _require_alike(network: DynamicNetwork, span: Span) -> None:
    unproven = [each for each in some_of(span, _LOOKED_AT) if not network.is_proven(each)]
    for sizes in unproven[:_RECORDED]:
        if not network.is_as_recorded(sizes):
            raise ArgumentError(
                f"[export] the network at {told(network.ranges.names, sizes)} is another one than elsewhere",
                fix="compile it for ranges without these sizes, and export that",
            )


def some_of(span: Span, count: int) -> list[Sizes]:
    """Sizes of a span: all where it has no more than so many, else its corners, and others drawn."""
    low, high = span
    total = 1
    for one, other in zip(low, high, strict=True):
        total *= other - one + 1
    if total <= count:
        return list(itertools.product(*(range(a, b + 1) for a, b in zip(low, high, strict=True))))
    draw = random.Random(repr(span))
    found = [high, low, *itertools.product(*zip(low, high, strict=True))]
    while len(found) < count:
        found.append(tuple(draw.randint(a, b) for a, b in zip(low, high, strict=True)))
    return list(dict.fromkeys(found))[:count]


__all__ = ["Part", "parts_of", "some_of"]
