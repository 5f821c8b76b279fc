"""Operators as ETO sees them: a type, the extents of the major loop nest, and which sketches there are.

Source: ETO (PVLDB 15(2), 2022), sections 2 and 3; the loops of each type as its public implementation orders them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from syno.errors import ShapeError, unknown_name
from syno.support.notebook import Printed

#: An index of an input: the sum of loop // over * times over its terms.
Term: TypeAlias = tuple[int, int, int]
Access: TypeAlias = tuple[tuple[Term, ...], ...]

MULTI_LEVEL = "multi-level tile"
CROSS_THREAD = "cross-thread reduction"
TWO_LEVEL = "two-level tile"
UNROLL_CONSTANT = "unroll constant tensor"
COMPOSITE = "composite"

#: Output points from which on a block of threads has enough of them, so that no sum is shared out: Ansor's rule.
ENOUGH_POINTS = 1024


@dataclass(frozen=True)
class OperatorType:
    """Loops of a type, outermost first; space loops before reduction loops."""

    name: str
    space: tuple[str, ...]
    reduction: tuple[str, ...]
    load_loop: int | None
    """Index of the reduction loop that cooperative fetches split; None: fetches are not tuned."""

    @property
    def loops(self) -> tuple[str, ...]:
        return self.space + self.reduction


def _type(name: str, space: str, reduction: str, load: str | None) -> OperatorType:
    loops = (*space.split(), *reduction.split())
    return OperatorType(
        name,
        tuple(space.split()),
        tuple(reduction.split()),
        None if load is None else loops.index(load),
    )


#: By name.
TYPES = {
    made.name: made
    for made in (
        _type("conv1d", "n f ow", "ic kw", "ic"),
        _type("conv2d", "n f oh ow", "ic kh kw", "ic"),
        _type("conv3d", "n f od oh ow", "ic kd kh kw", "ic"),
        _type("group_conv2d", "n f oh ow", "ic kh kw", "ic"),
        _type("depthwise_conv2d", "n c oh ow", "kh kw", "kh"),
        _type("transposed_conv2d", "n f oh ow", "ic kh kw", "ic"),
        _type("capsule_conv2d", "n oh ow ci cj f", "kh kw ck ic", "ic"),
        _type("batch_matmul", "b m n", "k", "k"),
        _type("winograd_bgemm", "eps nu p co", "ci", "ci"),
        _type("frobenius_norm", "b", "i j", None),
        _type("constant_transform", "p c", "eps nu", None),
        _type("points", "p c", "", None),
    )
}


@dataclass(frozen=True)
class Operator(Printed):
    """One operator. Its loop vector, type and sketches decide whose programs it can reuse."""

    type: str
    extents: tuple[int, ...]
    """Of the loops of its type, in their order."""
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    """Of a group convolution; `ic` is the number of channels of one group."""

    def __post_init__(self) -> None:
        if self.type not in TYPES:
            raise unknown_name("operator type", self.type, tuple(TYPES))
        loops = TYPES[self.type].loops
        if len(self.extents) != len(loops):
            raise ShapeError(
                f"[reuse] {self.type} has the loops {', '.join(loops)}; {len(self.extents)} extents were given"
            )
        for loop, extent in zip(loops, self.extents, strict=True):
            if extent < 1:
                raise ShapeError(
                    f"[reuse] {self.type}: loop {loop} has the extent {extent}; give at least 1"
                )
        if min(self.stride, self.dilation, self.groups) < 1:
            raise ShapeError(f"[reuse] {self.type}: stride, dilation and groups are at least 1")
        if self.type == "group_conv2d" and self.extents[1] % self.groups:
            raise ShapeError(
                f"[reuse] {self.groups} groups do not divide {self.extents[1]} output channels"
            )

    @property
    def kind(self) -> OperatorType:
        return TYPES[self.type]

    @property
    def space(self) -> tuple[int, ...]:
        """Extents of the space loops."""
        return self.extents[: len(self.kind.space)]

    @property
    def reduction(self) -> tuple[int, ...]:
        """Extents of the reduction loops."""
        return self.extents[len(self.kind.space) :]

    @property
    def space_points(self) -> int:
        return math.prod(self.space)

    @property
    def reduction_points(self) -> int:
        return math.prod(self.reduction)

    @property
    def sketches(self) -> tuple[str, ...]:
        """What Ansor's rules of sketches make of it on a GPU.

        A sum is also shared out to threads where it is longer than the output, and the output small.
        """
        if self.type == "frobenius_norm":
            return (CROSS_THREAD, COMPOSITE)
        if self.type == "winograd_bgemm":
            return (COMPOSITE,)
        if self.type in ("constant_transform", "points"):
            return (UNROLL_CONSTANT if self.type == "constant_transform" else TWO_LEVEL,)
        if self.space_points < min(self.reduction_points, ENOUGH_POINTS + 1):
            return (MULTI_LEVEL, CROSS_THREAD)
        return (MULTI_LEVEL,)

    @property
    def stages(self) -> tuple[tuple[str, Operator], ...]:
        """What a composite sketch computes one after the other: sub-sketches, each with its major loop nest.

        A Winograd convolution transforms tiles of its input by a constant matrix, multiplies, transforms tiles back and
        puts them beside each other; tiles are of (eps - 2) × (nu - 2) outputs. A norm sums squares, then takes roots.
        Empty where no sketch is composite. Source: section 7.1.
        """
        if self.type == "winograd_bgemm":
            eps, nu, tiles, out, channels = self.extents
            outputs = tiles * max(1, eps - 2) * max(1, nu - 2)
            return (
                (UNROLL_CONSTANT, Operator("constant_transform", (tiles, channels, eps, nu))),
                (MULTI_LEVEL, self),
                (UNROLL_CONSTANT, Operator("constant_transform", (tiles, out, eps, nu))),
                (TWO_LEVEL, Operator("points", (outputs, out))),
            )
        if self.type == "frobenius_norm":
            return (TWO_LEVEL, self), (TWO_LEVEL, Operator("points", (self.extents[0], 1)))
        return ()

    @property
    def group(self) -> tuple[str, tuple[str, ...]]:
        """Type and sketches: the first reuse condition compares these."""
        return self.type, self.sketches

    def inputs(self) -> tuple[Access, ...]:
        """Which element of each input an iteration reads, a sum of terms for each dimension.

        Convolutions read an input that is padded already.
        """
        s, d = self.stride, self.dilation
        x: Access

        def at(loop: int, times: int = 1, over: int = 1) -> tuple[Term, ...]:
            return ((loop, times, over),)

        def window(out: int, tap: int) -> tuple[Term, ...]:
            return (out, s, 1), (tap, d, 1)

        match self.type:
            case "conv1d":
                return (at(0), at(3), window(2, 4)), (at(1), at(3), at(4))
            case "conv2d":
                x = (at(0), at(4), window(2, 5), window(3, 6))
                return x, (at(1), at(4), at(5), at(6))
            case "conv3d":
                x = (at(0), at(5), window(2, 6), window(3, 7), window(4, 8))
                return x, (at(1), at(5), at(6), at(7), at(8))
            case "group_conv2d":
                channel = ((1, self.extents[4], self.extents[1] // self.groups), (4, 1, 1))
                x = (at(0), channel, window(2, 5), window(3, 6))
                return x, (at(1), at(4), at(5), at(6))
            case "depthwise_conv2d":
                return (at(0), at(1), window(2, 4), window(3, 5)), (at(1), at(4), at(5))
            case "transposed_conv2d":  # of an input that zeros were put into: steps of one
                x = (at(0), at(4), ((2, 1, 1), (5, 1, 1)), ((3, 1, 1), (6, 1, 1)))
                return x, (at(4), at(1), at(5), at(6))
            case "capsule_conv2d":
                x = (at(0), window(1, 6), window(2, 7), at(3), at(8), at(9))
                return x, (at(6), at(7), at(8), at(4), at(9), at(5))
            case "batch_matmul":
                return (at(0), at(1), at(3)), (at(0), at(2), at(3))
            case "winograd_bgemm":
                return (at(0), at(1), at(2), at(4)), (at(0), at(1), at(3), at(4))
            case "constant_transform":
                return ((at(0), at(1), at(2), at(3)),)
            case "points":
                return ((at(0), at(1)),)
            case _:
                return ((at(0), at(1), at(2)),)

    def __str__(self) -> str:
        more = "".join(
            f" {name} {value}"
            for name, value in (
                ("stride", self.stride),
                ("dilation", self.dilation),
                ("groups", self.groups),
            )
            if value != 1
        )
        return f"{self.type} [{', '.join(map(str, self.extents))}]{more}"


def dominates(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether no extent of `a` is smaller than that of `b`: a partial order of vectors of one length."""
    return len(a) == len(b) and all(x >= y for x, y in zip(a, b, strict=True))


def can_reuse(a: Operator, b: Operator) -> bool:
    """The reuse conditions (Definition 2): same type and sketches, and one loop vector dominates the other."""
    return a.group == b.group and (
        dominates(a.extents, b.extents) or dominates(b.extents, a.extents)
    )


def reuse_pairs(operators: tuple[Operator, ...]) -> tuple[tuple[int, int], ...]:
    """All ordered pairs (operator that reuses, operator that is reused), as indices."""
    return tuple(
        (i, j)
        for i, a in enumerate(operators)
        for j, b in enumerate(operators)
        if i != j and can_reuse(a, b)
    )


def bridge(a: Operator, b: Operator) -> Operator | None:
    """The bridge of two operators that cannot reuse each other (Definition 5).

    None where they can, are of different groups, or the element-wise minimum has other sketches.
    """
    if a.group != b.group or can_reuse(a, b):
        return None
    made = Operator(
        a.type,
        tuple(min(x, y) for x, y in zip(a.extents, b.extents, strict=True)),
        groups=math.gcd(a.groups, b.groups),
    )
    return made if made.sketches == a.sketches else None


def bridges(operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """All 1-hop bridges that are no operators yet, in the order of the pairs they are for."""
    known = {(operator.group, operator.extents) for operator in operators}
    found: dict[tuple[int, ...], Operator] = {}
    for i, a in enumerate(operators):
        for b in operators[i + 1 :]:
            made = bridge(a, b)
            if made is not None and (made.group, made.extents) not in known:
                found.setdefault((list(TYPES).index(made.type), *made.extents), made)
    return tuple(found.values())


def all_bridges(operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Bridges of operators and bridges until there are no new ones: at most loops - 1 hops."""
    everyone = operators
    while new := bridges(everyone):
        everyone += new
    return everyone[len(operators) :]
