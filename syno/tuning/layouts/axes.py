"""What the dimensions of a convolution's or product's tensors are: rows, windows, channels, groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from syno import _core
from syno.errors import ScheduleError
from syno.tuning.layouts.instance import KINDS

#: Names of spatial dimensions, the last one last.
SPATIAL = ("d", "h", "w")


@dataclass(frozen=True)
class Index:
    """One index of a factor: constant + sum of coefficient * iterator; 0 where one moves it in another way."""

    terms: Mapping[str, int]
    constant: int
    affine: bool

    def only(self, names: Collection[str]) -> list[str]:
        return [name for name in self.terms if name in names]


@dataclass(frozen=True)
class Window:
    """A dimension of the data that windows move over: window i begins at stride * i + first and is `size` wide."""

    stride: int
    size: int
    first: int


@dataclass(frozen=True)
class Axes:
    """The dimensions of the three tensors, by what moves them.

    A dimension of the output is an outer one (the batch), a tiled row (`rows`: height, width, or the rows of a
    product), or its channels; each tiled row is at one dimension of the data, by `windows` where it has a fixed stride.
    """

    kind: str
    output: str
    data: str
    weight: str
    rows: tuple[int, ...]
    """Dimensions of the output that are tiled, outermost first."""
    channel: int | None
    """Dimension of the output that is tiled last."""
    data_rows: tuple[int | None, ...]
    """Of the data, by row."""
    windows: tuple[Window | None, ...]
    """By row; None: the data's dimension stays whole."""
    data_channel: int | None
    weight_output: int | None
    """Dimension of the weight that moves with the output's channels."""
    weight_input: int | None
    """Dimension of the weight that is summed over with the data's channels."""
    weight_windows: tuple[int, ...]


def axes_of(program: _core.Program) -> Axes:
    """The axes of a concrete program.

    Raises:
        ScheduleError: it is no convolution and no product of matrices; says which kinds have a template, and why.
        ShapeError: it has size variables.
    """
    sums = _core.sums_of_products(program)
    if len(sums) != 1:
        raise _none(f"it has {len(sums)} sums of products")
    output, traversal, summed, factors = sums[0]
    if len(factors) != 2 or factors[0][0] == factors[1][0]:
        raise _none("its sum is not of the products of two tensors")
    tensors = [name for name, _ in factors]
    indices = [
        [Index(dict(terms), constant, affine) for terms, constant, affine in of]
        for _, of in factors
    ]
    extents = {name: end - begin for name, begin, end in (*traversal, *summed)}
    if any(begin != 0 for _, begin, _ in (*traversal, *summed)):
        raise _none("an iterator does not begin at 0")
    real = {name for name, extent in extents.items() if extent > 1}
    outer = [name for name, _, _ in traversal]
    inner = {name for name, _, _ in summed}
    which = _data(program, tensors, indices, outer, inner & real)
    data, weight = indices[which], indices[1 - which]
    of_weight = {name for index in weight for name in index.terms}
    of_data = {name for index in data for name in index.terms}

    def is_window(name: str) -> bool:
        return name not in of_weight and any(
            name in index.terms and (not index.affine or index.only(inner & real)) for index in data
        )

    def is_row(name: str) -> bool:
        return name in of_data and name not in of_weight

    rows = [name for name in outer if is_row(name)]
    channels = [name for name in outer if name in of_weight]
    strided = any(index.terms.get(name, 1) != 1 for name in rows for index in data)
    last_is_channel = bool(outer) and outer[-1] in channels
    convolution = (
        any(map(is_window, rows))
        or strided
        or (len(outer) > 2 and channels and not last_is_channel)
    )
    if convolution:
        if rows and rows[0] == outer[0] and not is_window(rows[0]) and len(rows) > 1:
            rows = rows[1:]
        own = [name for name in channels if name not in of_data]
        channel = (own or channels)[-1] if channels else None
    else:
        own = [name for name in channels if name not in of_data]
        if not own or not rows:
            raise _none("no dimension moves with one of the two tensors alone")
        channel, rows = own[-1], rows[-1:]
    if len(rows) > len(SPATIAL):
        raise _none(f"it has {len(rows)} spatial dimensions; templates have up to {len(SPATIAL)}")
    places = [_place(data, name) for name in rows]
    windows = [
        None if at is None else _window(data[at], name, outer, inner, extents)
        for name, at in zip(rows, places, strict=True)
    ]
    # What is summed over with the weight, or moves both: a channel; the innermost one is tiled.
    data_channels = [
        d for d, index in enumerate(data)
        if d not in places and any(name in of_weight for name in index.terms)
    ]  # fmt: skip
    both = {name for d in data_channels for name in data[d].terms if name in inner}
    weight_output = _place(weight, channel) if channel is not None else None
    weight_inputs = [
        d for d, index in enumerate(weight)
        if d != weight_output and any(name in both for name in index.terms)
    ]  # fmt: skip
    weight_windows = [
        d for d, index in enumerate(weight)
        if d != weight_output and d not in weight_inputs and index.only(inner)
    ]  # fmt: skip
    return Axes(
        kind=KINDS[0] if convolution else KINDS[1],
        output=output,
        data=tensors[which],
        weight=tensors[1 - which],
        rows=tuple(outer.index(name) for name in rows),
        channel=None if channel is None else outer.index(channel),
        data_rows=tuple(places),
        windows=tuple(windows),
        data_channel=data_channels[-1] if data_channels else None,
        weight_output=weight_output,
        weight_input=weight_inputs[-1] if weight_inputs else None,
        weight_windows=tuple(weight_windows),
    )


def _none(why: str) -> ScheduleError:
    return ScheduleError(
        f"[layouts] there is no template of layouts for this operator: {why}; there are templates for "
        f"{' and '.join(KINDS)} (of matrices): sums of products of two tensors, with windows, strides, dilations and "
        "groups. Search its loops alone"
    )


def _data(
    program: _core.Program,
    tensors: Sequence[str],
    indices: Sequence[Sequence[Index]],
    outer: Sequence[str],
    inner: Collection[str],
) -> int:
    """Which of the two is the data: not the weight, where one is; else what windows move over; else the first."""
    roles = [program.role(name) for name in tensors]
    if (roles[0] == "weight") != (roles[1] == "weight"):
        return 1 if roles[0] == "weight" else 0
    for which, own in enumerate(indices):
        if any(index.only(outer) and index.only(inner) for index in own):
            return which
    return 0


def _place(indices: Sequence[Index], name: str) -> int | None:
    """The one dimension that an iterator moves; None where it moves several, or none."""
    found = [d for d, index in enumerate(indices) if name in index.terms]
    return found[0] if len(found) == 1 else None


def _window(
    index: Index,
    name: str,
    outer: Sequence[str],
    inner: Collection[str],
    extents: Mapping[str, int],
) -> Window | None:
    """None where it has no fixed stride: other iterators of the output move it, or quotients."""
    if not index.affine or index.only(outer) != [name] or index.terms[name] < 1:
        return None
    size, first = 1, index.constant
    for other in index.only(inner):
        reach = index.terms[other] * (extents[other] - 1)
        size += abs(reach)
        first += min(reach, 0)
    return Window(index.terms[name], size, first)
