"""Native kernels called on torch tensors: the short way for row-major ones, the longer one for all others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from syno import _core
from syno.kernel import Kernel

#: The dtypes that kernels compute in, by name.
NATIVE = {torch.float32: "float32", torch.float64: "float64"}
_DTYPES = {name: dtype for dtype, name in NATIVE.items()}

#: Combinations of shapes, dtype and threads that one function keeps kernels for.
KEPT_SHAPES = 64

Shapes = tuple[tuple[int, ...], ...]


def shapes_of(tensors: Sequence[Tensor]) -> Shapes:
    """Extents as plain numbers."""
    return tuple(tuple(int(n) for n in t.shape) for t in tensors)


def call_key(tensors: Sequence[Tensor], orders: Sequence[Any]) -> tuple[Any, ...]:
    """Equal for calls that one kernel serves; `orders` are those of `dense_order`."""
    return (
        torch.get_num_threads(),
        *orders,
        *(t.shape for t in tensors),
        *(t.dtype for t in tensors),
    )


def new_calls() -> _core.TensorCalls:
    """Of one function: its kernels for row-major tensors, found without a key."""
    return _core.TensorCalls(torch.empty, torch.get_num_threads, kept=KEPT_SHAPES)


def serve(
    calls: _core.TensorCalls, kernel: Kernel, inputs: Sequence[str], tensors: Sequence[Tensor]
) -> None:
    """From now on `calls` runs this kernel on row-major tensors of these shapes.

    Args:
        inputs: names of the tensors of a call, in order; the kernel may not need all of them.
    """
    operator = kernel.operator
    calls.add(
        kernel._core,
        shapes=[tuple(t.shape) for t in tensors],
        dtype=_DTYPES[kernel.dtype],
        result_shapes=[kernel.shapes[name] for name in operator.outputs],
        order=[inputs.index(name) for name in operator.inputs],
        threads=kernel.threads,
    )


def call_of(
    kernel: Kernel, inputs: Sequence[str], lying: frozenset[str]
) -> Callable[[Sequence[Tensor]], Any]:
    """A call of this kernel on tensors in the order of `inputs`; those not in `lying` are made row-major.

    It returns a tensor, or a tuple of them where the operator has several outputs.
    """
    operator, threads = kernel.operator, kernel.threads
    shapes, dtype = [kernel.shapes[name] for name in operator.outputs], _DTYPES[kernel.dtype]
    copied = [(inputs.index(name), name not in lying) for name in operator.inputs]
    call = kernel.unchecked

    def run(tensors: Sequence[Tensor]) -> Any:
        held = [tensors[i].contiguous() if copy else tensors[i] for i, copy in copied]
        results = tuple(torch.empty(shape, dtype=dtype) for shape in shapes)
        call([t.data_ptr() for t in (*held, *results)], threads)
        return results if len(results) > 1 else results[0]

    return run
