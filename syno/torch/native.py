"""Native kernels called on torch tensors: the short way for those taken as they lie, the longer one for all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from syno import _core
from syno.kernel import DTYPES, compile, gainful_threads, schedule_of
from syno.operator import Operator
from syno.torch.layouts import Layout, tells
from syno.torch.placement import Placement
from syno.tuning.machine import machine_model

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
    return tuple(tuple(int(n) for n in t.shape) for t in tensors)


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
            schedule = schedule_of(one, dtype=name, threads=threads).schedule
            nest = _core.apply_schedule(one.program, schedule)
            return _core.predict_nest(
                nest, machine_model(), threads=gainful_threads(nest, threads)
            ).seconds

        self._placement = Placement(operator, inputs, layout, seconds)
        self._kernel = compile(self._placement.operator, dtype=name, threads=threads)
        self._places = [inputs.index(name) for name in operator.inputs]
        self._written = [
            (shape, format)
            for (shape, _, _), format in zip(
                self._placement.results, self._placement.written_formats(), strict=True
            )
        ]

    def serve(self, calls: _core.TensorCalls, tensors: Sequence[Tensor]) -> None:
        """From now on `calls` runs this kernel on tensors of these shapes and strides, if it copies none."""
        placement = self._placement
        if placement.direct and all(placement.takes(i, tensors[i]) for i in self._places):
            add_call(
                calls,
                self._kernel._core,
                tensors,
                self._written,
                order=self._places,
                threads=self._kernel.threads,
                runs_on=self._kernel.runs_on,
            )

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


def add_call(
    calls: _core.TensorCalls,
    kernel: _core.Kernel,
    tensors: Sequence[Tensor],
    results: Sequence[tuple[tuple[int, ...], torch.memory_format]],
    *,
    order: Sequence[int],
    threads: int,
    runs_on: int,
) -> None:
    """From now on `calls` runs this kernel on tensors of these shapes, strides and dtypes.

    Args:
        results: shape and format of what the kernel writes.
        order: which of the tensors the kernel takes, in its order.
        threads: that torch has at such calls.
        runs_on: that the kernel gets.
    """
    calls.add(
        kernel,
        shapes=[tuple(t.shape) for t in tensors],
        dtypes=[t.dtype for t in tensors],
        result_dtype=TORCH[kernel.dtypes[-1]],
        result_shapes=[shape for shape, _ in results],
        order=order,
        threads=threads,
        runs_on=runs_on,
        strides=[None if t.is_contiguous() and tells(t.shape) else t.stride() for t in tensors],
        result_formats=[None if f == torch.contiguous_format else f for _, f in results],
    )
