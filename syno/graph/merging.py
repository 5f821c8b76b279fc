"""Of a node's program, neighbouring dimensions that are one to its code: height and width of a 1x1 convolution whose image
comes with a call. Code then has one loop whose end is their product, as code for one size has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from syno import _core
from syno.errors import ShapeError
from syno.graph.parameters import At


def pairs_of(programs: Sequence[_core.Program], moving: Iterable[At]) -> tuple[At, ...]:
    """The dimensions that are one with those behind them.

    Args:
        programs: of one node at several sizes, with the same names.
        moving: places of extents that are not the same at all of them.
    Returns:
        Places of the first of two each; none where they are not neighbours at every size.
    """
    places = set(moving)
    wanted = sorted((name, dim) for name, dim in places if (name, dim + 1) in places)
    if not wanted:
        return ()
    pairs = [(str(name), int(dim)) for name, dim in _core.mergeable(programs[0], wanted)]
    try:
        for program in programs if pairs else ():
            _core.merge_dims(program, pairs)
    except ShapeError:
        return ()
    return tuple(sorted(pairs))


def merged(program: _core.Program, pairs: Sequence[At]) -> _core.Program:
    """The program with them merged.

    Raises:
        ShapeError: at its sizes they are not neighbours.
    """
    return _core.merge_dims(program, list(pairs)) if pairs else program


def columns_merged(
    columns: Mapping[At, Sequence[int]], pairs: Sequence[At]
) -> dict[At, Sequence[int]]:
    """Extents by their places in the merged program, a value for each sample."""
    found: dict[At, Sequence[int]] = {}
    for (name, dim), column in columns.items():
        if (name, dim - 1) in pairs:
            continue
        before = sum(other == name and at < dim for other, at in pairs)
        if (name, dim) in pairs:
            behind = columns[name, dim + 1]
            column = [one * other for one, other in zip(column, behind, strict=True)]
        found[name, dim - before] = column
    return found


def viewed(code: _core.Kernel, program: _core.Program) -> _core.Kernel:
    """Code of the merged program, whose arrays have the shapes of the program before."""
    known = {*program.inputs, *program.outputs}
    return code.viewed(
        [
            list(program.shape(name)) if name in known else list(shape)
            for name, _, shape in code.arguments
        ]
    )


__all__ = ["columns_merged", "merged", "pairs_of", "viewed"]
