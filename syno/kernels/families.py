"""An operator at all values of some of its sizes, and the same with sizes of neighbouring dimensions as their product."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from syno import _core
from syno.errors import ShapeError, SynoError
from syno.operators.operator import Operator
from syno.support.bounded import Bounded

Sizes = tuple[int, ...]

#: Elements that sizes are rounded up to where code is made for them: those of the widest vectors there are.
VECTOR = 16

#: Sizes at which a program is held against what it is with merged dimensions.
_TRIED = 3


class Family:
    """An operator at all values of some of its sizes.

    Args:
        at: the operator at values of the sizes.
        ranges: least and greatest value by name.
        tied: sizes that have the value of one of these, by name: the other iterators of a dimension.
    Raises:
        ShapeError: no input shows a size.
    """

    def __init__(
        self,
        at: Callable[[dict[str, int]], Operator],
        ranges: Mapping[str, tuple[int, int]],
        tied: Mapping[str, str] | None = None,
    ) -> None:
        self._at = at
        self.tied = dict(tied or {})
        self.names = tuple(ranges)
        self.least = tuple(low for low, _ in ranges.values())
        self.greatest = tuple(high for _, high in ranges.values())
        self._kept: Bounded[Sizes, Operator] = Bounded(256)
        self.largest = self.at(self.greatest)
        self._seen = [self._where(position) for position in range(len(self.names))]

    def at(self, sizes: Sizes) -> Operator:
        found = self._kept.get(sizes)
        if found is None:
            made = self._at(dict(zip(self.names, sizes, strict=True)))
            found = self._kept.setdefault(sizes, made)
        return found

    def representative(self, greatest: Sizes) -> Sizes:
        """Sizes that code for sizes up to these is made for: whole vectors, so that no tile holds parts of two rows."""
        rounded = tuple(
            -(-size // VECTOR) * VECTOR if size > VECTOR // 2 else 1 << (size - 1).bit_length()
            for size in greatest
        )
        try:
            self.at(rounded)
        except SynoError:  # the formula cannot have them
            return greatest
        return rounded

    def program(self, least: Sizes, greatest: Sizes) -> _core.Program:
        """The program of the largest sizes, its extents following them down to the least.

        Raises:
            ShapeError: more than extents does.
        """
        instances = [(greatest, self.at(greatest).program)]
        for position, (low, high) in enumerate(zip(least, greatest, strict=True)):
            for size in sorted({low, low + 1, (low + high) // 2, high - 2, high - 1}):
                if low <= size < high:
                    sizes = (*greatest[:position], size, *greatest[position + 1 :])
                    instances.append((sizes, self.at(sizes).program))
        return _core.with_live_ends(
            [(list(sizes), program) for sizes, program in instances], list(self.names)
        )

    def sizes_of(self, shapes: Sequence[Sequence[int]]) -> Sizes:
        """The sizes that inputs of these shapes have.

        Raises:
            ShapeError: none within the ranges, or there are too few or too many inputs.
        """
        inputs = self.largest.inputs
        if len(shapes) != len(inputs):
            raise ShapeError(
                f"[dynamic] {len(shapes)} arrays for {len(inputs)} inputs: {', '.join(inputs)}"
            )
        found = []
        for position, (tensor, dim, times, plus) in enumerate(self._seen):
            name, shape = inputs[tensor], tuple(shapes[tensor])
            if len(shape) <= dim:
                raise ShapeError(
                    f"[dynamic] {name} has shape {shape}; it needs {len(self.largest.shapes[name])} dimensions"
                )
            size, rest = divmod(shape[dim] - plus, times)
            low, high = self.least[position], self.greatest[position]
            if rest or not low <= size <= high:
                raise ShapeError(
                    f"[dynamic] {name} has shape {shape}: its dimension {dim} gives "
                    f"{self.names[position]}={size if not rest else f'{size} and a rest'}, and the kernel was made for "
                    f"{low} to {high}; pass a size within, or compile for a wider range"
                )
            found.append(size)
        return tuple(found)

    def _where(self, position: int) -> tuple[int, int, int, int]:
        """(input, dimension, times, plus): an extent times * size + plus."""
        low, high = self.least[position], self.greatest[position]
        if low == high:
            shapes = self.largest.shapes
            for tensor, name in enumerate(self.largest.inputs):
                if high in shapes[name]:
                    return tensor, shapes[name].index(high), 1, 0
        smaller = self.at((*self.greatest[:position], low, *self.greatest[position + 1 :]))
        for tensor, name in enumerate(self.largest.inputs):
            pairs = zip(self.largest.shapes[name], smaller.shapes[name], strict=True)
            for dim, (large, small) in enumerate(pairs):
                times, rest = divmod(large - small, max(high - low, 1))
                if times > 0 and rest == 0:
                    return tensor, dim, times, large - times * high
        raise ShapeError(
            f"[dynamic] no input's shape shows {self.names[position]}: inputs have the shapes "
            f"{self.largest.shapes} at {high}; name a size that an input has"
        )


@dataclass(frozen=True)
class Merged:
    """A family of which two neighbouring dimensions, whose sizes both come with a call, are one wherever they are: of
    ``y[c,h,w] = relu(x[c,h,w])``, ``y[c,p] = relu(x[c,p])`` with ``p = h * w``."""

    family: Family
    first: int
    second: int
    """Places of the two sizes among those of the family before. Their product is the last of this one."""
    pairs: frozenset[tuple[str, int]]
    """Tensors and their dimensions that hold the first size; the second one is behind it."""

    def within(self, sizes: Sizes) -> Sizes:
        """Sizes of this family from those of the one before."""
        others = (size for i, size in enumerate(sizes) if i not in (self.first, self.second))
        return (*others, sizes[self.first] * sizes[self.second])

    def apart(self, name: str, shape: Sequence[int], sizes: Sizes) -> list[int]:
        """The shape of a tensor in the family before, at sizes of that."""
        found: list[int] = []
        taken = 0  # dimensions of the one before that are merged further left
        for d, extent in enumerate(shape):
            if (name, d + taken) in self.pairs:
                found += [sizes[self.first], sizes[self.second]]
                taken += 1
            else:
                found.append(extent)
        return found


def merged(family: Family) -> tuple[Merged, ...]:
    """Families of which more and more dimensions are one, as far as there are such; none where they are not."""
    steps: list[Merged] = []
    while True:
        last = steps[-1].family if steps else family
        count = len(last.names)
        ways = [(a, b) for a in range(count) for b in range(count) if a != b]
        step = next(filter(None, (_merged(last, a, b) for a, b in ways)), None)
        if step is None:
            return tuple(steps)
        steps.append(step)


def _merged(family: Family, first: int, second: int) -> Merged | None:
    largest = family.largest.program
    try:
        wanted = _neighbours(family, largest, first, second)
        if not wanted:
            return None
        pairs = _core.mergeable(largest, wanted)
        if not pairs:
            return None
        names = [name for i, name in enumerate(family.names) if i not in (first, second)]
        product = f"{family.names[first]}_{family.names[second]}"
        while product in names:
            product += "_"
        ends = [
            (family.least[i], family.greatest[i])
            for i in range(len(family.names))
            if i not in (first, second)
        ]
        least = family.least[first] * family.least[second]
        greatest = family.greatest[first] * family.greatest[second]

        def at(values: dict[str, int]) -> Operator:
            sizes = list(family.greatest)
            for i, name in enumerate(family.names):
                if i not in (first, second):
                    sizes[i] = values[name]
            program = family.at(tuple(sizes)).program
            return Operator(_core.merge_dims(program, pairs, values[product]))

        ranges = {**dict(zip(names, ends, strict=True)), product: (least, greatest)}
        made = Merged(Family(at, ranges), first, second, frozenset(pairs))
        return made if _same(family, made) else None
    except SynoError:  # no formula at some size, or a size that no input shows
        return None


def _neighbours(
    family: Family, largest: _core.Program, first: int, second: int
) -> list[tuple[str, int]]:
    """Tensors and dimensions whose extent is the first size, before one whose extent is the second."""
    lower = []
    for place in (first, second):
        low, high = max(2, family.least[place]), family.greatest[place]
        if low >= high:
            return []
        lower.append(family.at((*family.greatest[:place], low, *family.greatest[place + 1 :])))

    def follows(name: str, d: int, place: int) -> bool:
        own, other = lower if place == first else reversed(lower)
        extents = (largest.shape(name)[d], own.program.shape(name)[d], other.program.shape(name)[d])
        return extents == (
            family.greatest[place],
            max(2, family.least[place]),
            family.greatest[place],
        )

    return [
        (name, d)
        for name in largest.tensors
        for d in range(len(largest.shape(name)) - 1)
        if follows(name, d, first) and follows(name, d + 1, second)
    ]


def _same(family: Family, made: Merged) -> bool:
    """Whether programs of the family, merged, are those of the other one, at the ends and at random sizes."""
    draw = random.Random(repr((family.least, family.greatest)))
    ranges = list(zip(family.least, family.greatest, strict=True))
    tried = [family.greatest, tuple(max(2, low) for low in family.least)]
    tried += [tuple(draw.randint(min(2, high), high) for _, high in ranges) for _ in range(_TRIED)]
    return all(
        _core.merge_dims(family.at(sizes).program, sorted(made.pairs)).text()
        == made.family.at(made.within(sizes)).program.text()
        for sizes in tried
    )


__all__ = ["VECTOR", "Family", "Merged", "Sizes", "merged"]
