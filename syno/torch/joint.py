"""Gradients of several inputs at once: what they have in common is computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch import Tensor

from syno.bounded import Bounded
from syno.errors import SynoError
from syno.operator import Operator
from syno.torch.layouts import Layout, layout_of
from syno.torch.native import (
    KEPT_SHAPES,
    NATIVE,
    NativeCall,
    Shapes,
    call_key,
    new_calls,
    shapes_of,
)

Call = Callable[[Sequence[Tensor]], tuple[Tensor, ...]]


class JointGradient:
    """The gradients of an operator with respect to some inputs, of (cotangent, *inputs).

    It is not registered with PyTorch and has no gradient of its own: for plain tensors, where only the
    results are wanted.

    Args:
        inputs: names of the cotangent and the operator's inputs, as they are given.
        wanted: of which inputs, at least two.
        operator_for: the operator for inputs of these shapes.
    """

    def __init__(
        self,
        inputs: Sequence[str],
        wanted: Sequence[str],
        operator_for: Callable[[Shapes], Operator],
    ) -> None:
        self._inputs = tuple(inputs)
        self._wanted = tuple(wanted)
        self._follows = tuple(self._inputs.index(name) for name in wanted)
        self._operator_for = operator_for
        self._calls = new_calls()
        self._others: Bounded[Any, Call | Literal[False]] = Bounded(KEPT_SHAPES)

    def __call__(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """One gradient for each wanted input, or None where there is no kernel that computes them together."""
        served = self._calls(tensors)
        if served is not None:
            assert isinstance(served, tuple)
            return served
        layout = layout_of(tensors, self._follows)
        key = call_key(tensors, layout)
        found = self._others.get(key)
        if found is None:
            found = self._others.setdefault(key, self._made(tensors, layout) or False)
        return found(tensors) if found else None

    def forget(self) -> None:
        """Gives up kernels, which the next call makes again."""
        self._calls.clear()
        self._others.clear()

    def _made(self, tensors: Sequence[Tensor], layout: Layout) -> Call | None:
        shapes = shapes_of(tensors)
        same = all(t.dtype == tensors[0].dtype for t in tensors)
        if tensors[0].dtype not in NATIVE or not same or not all(all(shape) for shape in shapes):
            return None
        try:
            forward = self._operator_for(shapes[1:])
            if not set(self._wanted) <= set(forward.inputs):
                return None  # at these shapes one of them is not read
            operator = Operator(forward.program.derivatives(list(self._wanted)))
            call = NativeCall(operator, self._inputs, tensors, layout)
        except SynoError:
            return None
        call.serve(self._calls, tensors)
        return call
