"""Tensors sampled at computed places between their elements (`torch.nn.functional.grid_sample`)."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from syno.errors import ShapeError
from syno.graph.building import FLOATS, Builder, NotCovered, Value
from syno.graph.functions.copying import check_elements, iterators, over
from syno.graph.functions.formulas import exact, in_type
from syno.graph.functions.views import permute, reshape

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


@dataclass(frozen=True)
class _Axis:
    """One spatial dimension: how many elements, and how coordinates beyond them are met."""

    extent: int
    padding: str
    align: bool

    def unnormalised(self, g: str) -> str:
        """From -1 .. 1, which are the first and last elements' middles or the outer ends of them."""
        if self.align:
            return f"({g} + 1) * {exact((self.extent - 1) / 2)}"
        return f"(({g} + 1) * {self.extent} - 1) * 0.5"

    def met(self, c: str) -> str:
        """A coordinate that may be outside, as the padding has it."""
        last = self.extent - 1
        if self.padding == "reflection":
            low, high = (0, 2 * last) if self.align else (-1, 2 * last + 1)
            span, first = (high - low) / 2, exact(low / 2)
            if span == 0:
                c = f"(0 * ({c}))"
            else:
                away = f"abs({c} - {first})"
                extra, times = f"fmod({away}, {exact(span)})", f"floor({away} / {exact(span)})"
                c = f"select(fmod({times}, 2) == 0, {extra} + {first}, {exact(span)} - {extra} + {first})"
        return c if self.padding == "zeros" else f"min(max({c}, 0), {last})"


def _cubic(t: str, tap: int) -> str:
    """The weight of neighbour -1, 0, 1 or 2 of a place t behind neighbour 0 (Keys, with -3/4)."""
    away = {0: f"({t} + 1)", 1: t, 2: f"(1 - {t})", 3: f"(2 - {t})"}[tap]
    if tap in (1, 2):
        return f"((1.25 * {away} - 2.25) * {away} * {away} + 1)"
    return f"(((-0.75 * {away} + 3.75) * {away} - 6) * {away} + 3)"


def grid_sample(
    build: Builder, x: Value, grid: Value, mode: str, padding_mode: str, align_corners: bool
) -> Value:
    """`x` (batch, channels, *spatial) at the places of `grid` (batch, *out, dimension; the last dimension first).

    What is not a number lies outside.

    Raises:
        NotCovered: whole numbers; another way of sampling.
        ShapeError: shapes that do not fit together.
    """
    n = x.rank - 2
    if n < 1 or grid.rank != x.rank or grid.shape[-1] != n or grid.shape[0] != x.shape[0]:
        raise ShapeError(f"[graph] a grid {list(grid.shape)} of places in {list(x.shape)}")
    if mode not in MODES or padding_mode not in PADDINGS or (mode == "bicubic" and n != 2):
        raise NotCovered(f"[graph] samples by {mode} of {n} dimensions beside {padding_mode}")
    if x.dtype not in FLOATS or grid.dtype not in FLOATS:
        raise NotCovered(f"[graph] samples of {x.dtype} at {grid.dtype}")
    check_elements(x.shape, grid.shape)
    build_axes = [_Axis(extent, padding_mode, align_corners) for extent in x.shape[2:]]
    grid = in_type(build, grid, x.dtype)
    extents = [x.shape[0], *grid.shape[1:-1]]
    names = iterators(len(extents))
    at, head = ", ".join(names), f"y[{over(names, extents)}]"
    taps = {"nearest": 1, "bilinear": 2, "bicubic": 4}[mode]

    # Coordinates as numbers, and the elements before them.
    coordinates: dict[str, Value] = {}
    for d, axis in enumerate(build_axes):
        c = axis.unnormalised(f"g[{at}, {n - 1 - d}]")
        c = c if mode == "bicubic" else axis.met(c)
        c = f"round({c})" if mode == "nearest" else c
        coordinates[f"c{d}"] = build.formula(f"{head} = {c}", {"g": grid}, name="coordinate")
    strides = [math.prod(x.shape[3 + d :]) for d in range(n)]
    rows = permute(build, x, [0, *range(2, x.rank), 1])
    rows = build.as_itself(reshape(build, rows, [x.shape[0] * math.prod(x.shape[2:]), x.shape[1]]))

    places = {key: build.cast(value, "float64") for key, value in coordinates.items()}
    operands: dict[str, Value] = dict(coordinates)
    terms = []
    for number, chosen in enumerate(itertools.product(range(taps), repeat=n)):
        flat, weights, inside = f"index({names[0]}) * {math.prod(x.shape[2:])}", [], []
        for d, (axis, tap) in enumerate(zip(build_axes, chosen, strict=True)):
            c = f"c{d}[{at}]"
            place = f"(floor({c}) + {tap - (mode == 'bicubic')})"
            place = axis.met(place) if mode == "bicubic" else place
            flat += f" + {place} * {strides[d]}"
            inside.append(f"{place} >= 0 and {place} <= {axis.extent - 1}")
            t = f"({c} - floor({c}))"
            if mode == "bilinear":
                weights.append(t if tap else f"(1 - {t})")
            elif mode == "bicubic":
                weights.append(_cubic(t, tap))
        holds = " and ".join(inside)
        place_of = build.formula(
            f"{head} = select({holds}, {flat}, 0)", places, dtype="float64", name="place"
        )
        picked = build.call(
            "gather",
            [rows, build.cast(place_of, "int64")],
            [([*extents, x.shape[1]], rows.dtype)],
        )[0]
        operands[f"r{number}"] = picked
        weight = " * ".join(weights) or "1"
        terms.append(f"select({holds}, {weight}, 0) * r{number}[{at}, o]")
    result = [names[0], "o", *names[1:]]
    sizes = [extents[0], x.shape[1], *extents[1:]]
    return build.formula(
        f"y[{over(result, sizes)}] = {' + '.join(terms)}", operands, name="samples"
    )
