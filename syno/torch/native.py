"""Native kernels called on torch tensors: the short way for those taken as they lie, the longer one for all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from syno import _core
from syno.kernels.choosing import schedule_of
from syno.kernels.kernel import DTYPES, compile, gainful_threads
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.torch.layers import plain_shape
from syno.torch.layouts import Layout, tells
from syno.torch.placement import Placement

#: The dtypes of kernels, by name.
NATIVE = {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "bfloat16"}
#: The other way round.
TORCH = {name: dtype for dtype, name in NATIVE.items()}

#: Combinations of shapes, dtype and threads that one function keeps kernels for.
KEPT_SHAPES = 64

Shapes = tuple[tuple[int, ...], ...]


def tensor_of(array: np.ndarray[Any, Any]) -> Tensor:
    """A tensor of an array's memory; torch does not know NumPy's bfloat16."""
    if array.dtype == DTYPES["bfloat16"]:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def shapes_of(tensors: Sequence[Tensor]) -> Shapes:
    """Extents as plain numbers."""
    return tuple(tuple(int(n) for n in plain_shape(t)) for t in tensors)


def call_key(tensors: Sequence[Tensor], layout: Layout) -> tuple[Any, ...]:
    """Equal for calls that one kernel serves."""
    return (
        torch.get_num_threads(),
        layout,
        *(t.shape for t in tensors),
        *(t.dtype for t in tensors),
    )


def new_calls() -> _core.TensorCalls:
    """Of one function: its kernels for tensors taken as they lie, found without a key."""
    return _core.TensorCalls(torch.empty, torch.get_num_threads, kept=KEPT_SHAPES)


def predicted_seconds(operator: Operator, dtype: str, threads: int) -> float:
    """What a kernel of the operator is predicted to take.

    Raises:
        KernelError: as `compile`.
    """
    schedule = schedule_of(operator, dtype=dtype, threads=threads).schedule
    nest = _core.apply_schedule(operator.program, schedule)
    used = gainful_threads(nest, threads)
    return _core.predict_nest(nest, machine_model(), threads=used).seconds


class NativeCall:
    """A kernel called on tensors that lie as those it was made for.

    Args:
        operator: for row-major arguments, at the tensors' shapes.
        inputs: names of the tensors of a call, in order; the operator may not need all of them.
        tensors: of the first call.
    Raises:
        KernelError: as `compile`.
    """

    def __init__(
        self,
        operator: Operator,
        inputs: Sequence[str],
        tensors: Sequence[Tensor],
        layout: Layout,
    ) -> None:
        self._dtype, threads = tensors[0].dtype, torch.get_num_threads()
        name = NATIVE[self._dtype]

        def seconds(one: Operator) -> float:
            return predicted_seconds(one, name, threads)

        self._placement = Placement(operator, inputs, layout, seconds)
        self._kernel = compile(self._placement.operator, dtype=name, threads=threads)
        self._places = [inputs.index(name) for name in operator.inputs]
        self._written = [
            (shape, format)
            for (shape, _, _), format in zip(
                self._placement.results, self._placement.written_formats(), strict=True
            )
        ]

    def takes_as_they_lie(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the kernel runs on these tensors without any copy."""
        placement = self._placement
        return placement.direct and all(placement.takes(i, tensors[i]) for i in self._places)

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        """The result, or a tuple of them where the operator has several outputs."""
        held = [self._placement.taken(i, tensors[i]) for i in self._places]
        written = [
            torch.empty(shape, dtype=self._dtype, memory_format=format)
            for shape, format in self._written
        ]
        self._kernel.unchecked([t.data_ptr() for t in (*held, *written)], self._kernel.runs_on)
        results = self._placement.finished(written)
        return results if len(results) > 1 else results[0]


def serve(
    calls: _core.TensorCalls, natives: Sequence[NativeCall], tensors: Sequence[Tensor]
) -> None:
    """From now on `calls` runs these kernels, one after the other, on tensors of these shapes and strides, if
    they copy none; each writes the next results."""
    if all(native.takes_as_they_lie(tensors) for native in natives):
        add_call(
            calls,
            [native._kernel._core for native in natives],
            tensors,
            [written for native in natives for written in native._written],
            orders=[native._places for native in natives],
            threads=natives[0]._kernel.threads,
            runs_on=[native._kernel.runs_on for native in natives],
        )


def add_call(
    calls: _core.TensorCalls,
    kernels: Sequence[_core.Kernel],
    tensors: Sequence[Tensor],
    results: Sequence[tuple[tuple[int, ...], torch.memory_format]],
    *,
    orders: Sequence[Sequence[int]],
    threads: int,
    runs_on: Sequence[int],
) -> None:
    """From now on `calls` runs these kernels on tensors of these shapes, strides and dtypes.

    Args:
        results: shape and format of what the kernels write.
        orders: of each kernel, which of the tensors it takes, in its order.
        threads: that torch has at such calls.
        runs_on: that each kernel gets.
    """
    calls.add(
        kernels,
        shapes=[tuple(t.shape) for t in tensors],
        dtypes=[t.dtype for t in tensors],
        result_dtype=TORCH[kernels[0].dtypes[-1]],
        result_shapes=[shape for shape, _ in results],
        orders=orders,
        threads=threads,
        runs_on=runs_on,
        strides=[None if t.is_contiguous() and tells(t.shape) else t.stride() for t in tensors],
        result_formats=[None if f == torch.contiguous_format else f for _, f in results],
    )
