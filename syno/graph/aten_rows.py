"""The rows of the PyTorch importer: one for each function of ATen that programs compute."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syno.graph.building import Builder, Value

Made = Value | Sequence[Value | None]


@dataclass(frozen=True)
class Arguments:
    """A call's arguments by the names of its schema, with what it leaves out; tensors are values of the graph."""

    named: Mapping[str, Any]
    shapes: tuple[tuple[int, ...] | None, ...]
    """Of the results; None of what is no tensor."""
    dtypes: tuple[str | None, ...]
    used: frozenset[int]
    """Which of the results something reads."""
    row_major: bool = False
    """Whether PyTorch holds the first argument row-major, from the begin of its memory, and nothing else there."""

    def __getitem__(self, name: str) -> Any:
        return self.named[name]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.named[name]
        except KeyError:
            raise AttributeError(name) from None


Row = Callable[[Builder, Arguments], Made]


@functools.cache
def rows() -> Mapping[str, Row]:
    """Every row by the name of its overload, such as `aten.add.Tensor`."""
    from syno.graph.aten_backward import BACKWARD
    from syno.graph.aten_elementwise import ELEMENTWISE
    from syno.graph.aten_layers import LAYERS
    from syno.graph.aten_recurrent import RECURRENT
    from syno.graph.aten_shapes import SHAPES

    made: dict[str, Row] = {}
    for table in (ELEMENTWISE, SHAPES, LAYERS, RECURRENT, BACKWARD):
        for name, row in table.items():
            assert f"aten.{name}" not in made, name
            made[f"aten.{name}"] = row
    return made
