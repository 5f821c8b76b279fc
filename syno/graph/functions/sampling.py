"""Tensors sampled at computed places between their elements (`torch.nn.functional.grid_sample`)."""

from __future__ import annotations

import json

from syno.errors import ShapeError
from syno.graph.building import FLOATS, Builder, NotCovered, Value
from syno.graph.functions.copying import check_elements
from syno.graph.functions.formulas import in_type

MODES = ("bilinear", "nearest", "bicubic")
PADDINGS = ("zeros", "border", "reflection")


def grid_sample(
    build: Builder, x: Value, grid: Value, mode: str, padding_mode: str, align_corners: bool
) -> Value:
    """`x` (batch, channels, *spatial) at the places of `grid` (batch, *out, dimension; the last dimension first).

    What is not a number lies outside.

    Raises:
        NotCovered: whole numbers; another way of sampling; more than three spatial dimensions.
        ShapeError: shapes that do not fit together.
    """
    n = x.rank - 2
    if n < 1 or grid.rank != x.rank or grid.shape[-1] != n or grid.shape[0] != x.shape[0]:
        raise ShapeError(f"[graph] a grid {list(grid.shape)} of places in {list(x.shape)}")
    if mode not in MODES or padding_mode not in PADDINGS or (mode == "bicubic" and n != 2) or n > 3:
        raise NotCovered(f"[graph] samples by {mode} of {n} dimensions beside {padding_mode}")
    if x.dtype not in FLOATS or grid.dtype not in FLOATS:
        raise NotCovered(f"[graph] samples of {x.dtype} at {grid.dtype}")
    check_elements(x.shape, grid.shape)
    said = {"mode": mode, "padding": padding_mode, "align": bool(align_corners)}
    made = [([*x.shape[:2], *grid.shape[1:-1]], x.dtype)]
    given = [x, in_type(build, grid, x.dtype)]
    return build.call("sample", given, made, attributes=json.dumps(said), name="samples")[0]
