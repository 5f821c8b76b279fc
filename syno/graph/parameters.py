"""Which extents of a program its code for a range takes as parameters, and from which sizes it learns the others.

Loops of kernels end at (times * p + plus) / by of one parameter p (`_core.with_live_ends`). Sizes of a network multiply and
add up on their way: batch * length, height / 2. So parameters are extents of the program itself: as few as all its others
follow from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from syno.errors import ShapeError
from syno.graph.extents import Extent

#: Of ends of loops, over one parameter (`cpp/schedule/live.cpp`).
_LARGEST_DIVISOR = 16

At = tuple[str, int]
"""(tensor, dimension)."""


def parameters(
    columns: Mapping[At, Sequence[int]], known: Sequence[int]
) -> tuple[tuple[At, ...], list[int]]:
    """Parameters of a program, and samples that are enough to tell how its extents follow from them.

    Args:
        columns: extents that are not always the same, by their places: a value for each sample, the first of which has the
            largest sizes.
        known: samples that are looked at anyway, the first among them.
    Returns:
        Places of the parameters; `known` and further samples.
    Raises:
        ShapeError: an extent is not largest at the largest sizes, which code is made for.
    """
    rows: dict[tuple[int, ...], At] = {}
    for place, column in columns.items():
        rows.setdefault(tuple(column), place)
    for values, (name, dim) in rows.items():
        if values[0] != max(values):
            raise ShapeError(
                f"[dynamic] the extent {dim} of {name} is {max(values)} where sizes are smaller than at its {values[0]}"
            )
    follows = {one: [other for other in rows if _through(one, other) is not None] for one in rows}
    chosen: list[tuple[int, ...]] = []
    left = list(rows)
    while left:
        best = max(rows, key=lambda one: sum(other in left for other in follows[one]))
        chosen.append(best)
        left = [other for other in left if other not in follows[best]]
    return tuple(rows[each] for each in chosen), _enough(list(rows), chosen, known)


def _enough(
    rows: Sequence[tuple[int, ...]], chosen: Sequence[tuple[int, ...]], known: Sequence[int]
) -> list[int]:
    """Samples from which each row is learnt as it is at all of them."""
    samples = list(dict.fromkeys(known))
    for row in rows:
        while True:
            wrong = _misread(row, chosen, samples)
            if wrong is None:
                break
            samples.append(wrong)
    return samples


def _misread(
    row: tuple[int, ...], chosen: Sequence[tuple[int, ...]], samples: Sequence[int]
) -> int | None:
    """A sample at which the row is another than those say; None where it is the same at all."""
    seen = [row[n] for n in samples]
    if len(set(seen)) == 1:
        return next((n for n, value in enumerate(row) if value != seen[0]), None)
    for parameter in chosen:
        extent = _through([parameter[n] for n in samples], seen)
        if extent is not None:
            pairs = enumerate(zip(parameter, row, strict=True))
            return next((n for n, (size, value) in pairs if extent.at(size) != value), None)
    raise ShapeError("[dynamic] an extent follows from none of the parameters")


def _through(sizes: Sequence[int], values: Sequence[int]) -> Extent | None:
    """(times * size + plus) / by through all points, as `with_live_ends` reads it off them; None where none goes."""
    points: dict[int, int] = {}
    for size, value in zip(sizes, values, strict=True):
        if points.setdefault(size, value) != value:
            return None
    least, greatest = min(points), max(points)
    run, rise = greatest - least, points[greatest] - points[least]
    if run == 0:
        return None
    for by in range(1, _LARGEST_DIVISOR + 1):
        near = rise * by // run
        for times in range(max(near - 1, 1), near + 2):
            low = max(by * value - times * size for size, value in points.items())
            high = min(by * value - times * size for size, value in points.items()) + by - 1
            if low <= high:
                return Extent(times, low, by)
    return None
