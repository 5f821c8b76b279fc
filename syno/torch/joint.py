"""Gradients of several inputs at once: what they have in common is computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from syno.bounded import Bounded
from syno.errors import SynoError
from syno.kernel import compile
from syno.operator import Operator
from syno.torch.layouts import dense_order, in_place
from syno.torch.native import (
    KEPT_SHAPES,
    NATIVE,
    Shapes,
    call_key,
    call_of,
    new_calls,
    serve,
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
        self._operator_for = operator_for
        self._calls = new_calls()
        self._others: Bounded[Any, Call | Literal[False]] = Bounded(KEPT_SHAPES)

    def __call__(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """One gradient for each wanted input, or None where there is no kernel that computes them together."""
        served = self._calls(tensors)
        if served is not None:
            assert isinstance(served, tuple)
            return served
        orders = tuple(dense_order(t) for t in tensors)
        key = call_key(tensors, orders)
        found = self._others.get(key)
        if found is None:
            found = self._others.setdefault(key, self._made(tensors, orders) or False)
        return found(tensors) if found else None

    def forget(self) -> None:
        """Gives up kernels, which the next call makes again."""
        self._calls.clear()
        self._others.clear()

    def _made(self, tensors: Sequence[Tensor], orders: Sequence[Any]) -> Call | None:
        dtype = NATIVE.get(tensors[0].dtype)
        shapes = shapes_of(tensors)
        same = all(t.dtype == tensors[0].dtype for t in tensors)
        if dtype is None or not same or not all(all(shape) for shape in shapes):
            return None
        try:
            forward = self._operator_for(shapes[1:])
            if not set(self._wanted) <= set(forward.inputs):
                return None  # at these shapes one of them is not read
            operator = Operator(forward.program.derivatives(list(self._wanted)))
            usual = compile(operator, dtype=dtype, threads=torch.get_num_threads())
            kernel, lying = in_place(usual, dict(zip(self._inputs, orders, strict=True)))
        except SynoError:
            return None
        if not any(orders):
            serve(self._calls, kernel, self._inputs, tensors)
        return call_of(kernel, self._inputs, lying)
