"""ONNX models whose dimensions have names: compiled for ranges of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from syno.errors import ArgumentError, ShapeError, unknown_name
from syno.graph.sizes import LARGEST, MOST_NAMES, ends_of
from syno.support.notebook import Printed
from syno.support.numbers import whole

if TYPE_CHECKING:
    from syno.graph.dynamic_onnx import DynamicOnnxModel
    from syno.graph.from_onnx import OnnxModel

Shape = tuple[int | str, ...]

#: Operators that choose by values, shapes among them, which nodes are computed.
_CHOOSING = ("If", "Loop", "Scan", "SequenceMap")


class OpenOnnxModel(Printed):
    """An ONNX model of which dimensions are open, by the names that the file gives them (`dim_param`).

    Attributes:
        shapes: of the inputs, in order: numbers, and names of open dimensions.
        names: of the open dimensions.
    """

    def __init__(
        self,
        name: str,
        shapes: Mapping[str, Shape],
        operators: frozenset[str],
        build: Callable[[Mapping[str, Sequence[int]]], OnnxModel],
    ) -> None:
        self.name = name
        self.shapes = dict(shapes)
        extents = [extent for shape in self.shapes.values() for extent in shape]
        self.names = tuple(dict.fromkeys(e for e in extents if isinstance(e, str)))
        self.chooses = bool(operators & set(_CHOOSING))
        self._build = build

    def at(self, **sizes: int) -> OnnxModel:
        """The model with these sizes of all its open dimensions.

        Raises:
            UnknownName: there is no such dimension.
            ShapeError: one is missing, or the model does not allow them.
            UnsupportedOp: operators that syno does not compute.
        """
        for name in sizes:
            if name not in self.names:
                raise unknown_name("dimension", name, self.names)
        self._refuse_missing(sizes)
        values = {name: whole("onnx", name, n, 1, LARGEST, ShapeError) for name, n in sizes.items()}
        return self._build(
            {
                each: [values[e] if isinstance(e, str) else e for e in shape]
                for each, shape in self.shapes.items()
            }
        )

    @property
    def network(self) -> NoReturn:
        """There is none before the open dimensions are known. Raises: ShapeError."""
        self._refuse_missing({})
        raise AssertionError("an open model has open dimensions")

    def compile(
        self,
        example: Any = None,
        *,
        dynamic: Mapping[str, Any] | None = None,
        background: bool = False,
        **settings: Any,
    ) -> DynamicOnnxModel:
        """A callable of the inputs in order, for ranges of the open dimensions.

        Args:
            dynamic: by name of an open dimension its least and greatest value, `{"batch": (1, 64)}`, or one number.
            background: as of `syno.compile`.
            settings: as `syno.compile` takes them.
        Raises:
            UnknownName: there is no such dimension.
            ShapeError: one is missing or its range is none, or the model does not allow these.
            ArgumentError: an example, or options that are for one size.
        """
        from syno.compiling import _settings
        from syno.graph.dynamic_model import refuse_one_size
        from syno.graph.dynamic_onnx import DynamicOnnxModel

        checked = _settings(settings)
        refuse_one_size(checked)
        if example is not None:
            raise ArgumentError(
                "[dynamic] an example has one size",
                fix="leave it out: the network is checked on random inputs of several sizes",
            )
        if dynamic is not None and not isinstance(dynamic, Mapping):
            raise ArgumentError(
                f"[dynamic] dynamic={dynamic!r}",
                fix='give ranges by name, such as {"batch": (1, 64)}',
            )
        ranges: dict[str, tuple[int, int]] = {}
        fixed: dict[str, int] = {}
        for name, ends in (dynamic or {}).items():
            if name not in self.names:
                raise unknown_name("dimension", str(name), self.names)
            if isinstance(ends, int):
                fixed[name] = whole("dynamic", name, ends, 1, LARGEST, ShapeError)
            else:
                ranges[name] = ends_of(name, ends)
        self._refuse_missing(dynamic or {})
        if not 1 <= len(ranges) <= MOST_NAMES:
            raise ArgumentError(
                f"[dynamic] {len(ranges)} ranges: {', '.join(ranges)}",
                fix=f"give 1 to {MOST_NAMES} of them, and numbers for the other dimensions",
            )
        return DynamicOnnxModel(self, ranges, fixed, checked, background=bool(background))

    def _refuse_missing(self, given: Mapping[str, Any]) -> None:
        missing = [name for name in self.names if name not in given]
        if missing:
            shapes = "; ".join(
                f"input {name} has shape {told(s)}" for name, s in self.shapes.items()
            )
            first = next(name for name, s in self.shapes.items() if missing[0] in s)
            ranges = ", ".join(f"{name!r}: (1, 64)" for name in self.names)
            raise ShapeError(
                f"[onnx] {shapes}: give its open dimensions {', '.join(missing)} by shapes={{{first!r}: [...]}}, or their "
                f"ranges by compile(dynamic={{{ranges}}})"
            )

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {told(shape)}" for name, shape in self.shapes.items())
        return f"OpenOnnxModel({self.name}: {inputs})"


def told(shape: Shape) -> str:
    """`[batch, 3, 224, 224]`."""
    return "[" + ", ".join(map(str, shape)) + "]"


__all__ = ["OpenOnnxModel"]
