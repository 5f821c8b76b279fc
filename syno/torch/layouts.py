"""Tensors that fill their memory in another order than row-major (channels last) are read where they lie, where the
machine model says that a kernel made for that order takes no longer than a copy and the usual kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from syno.kernel import Kernel, compile
from syno.operator import Operator
from syno.tuning.machine import machine_model

#: Of each input: None where it is row-major, or no permutation of a row-major tensor.
Orders = tuple["tuple[int, ...] | None", ...]

#: Measured on transposed tensors of 30,000 to 200,000 elements: 4 to 8 (torch 2.13).
_CYCLES_AN_ELEMENT = 4


def dense_order(tensor: Tensor) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor is row-major, where that is another one than its own.

    None for a row-major tensor and for one that does not fill its memory.
    """
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()
    order = sorted(range(len(strides)), key=lambda d: -strides[d])
    return tuple(order) if tensor.permute(order).is_contiguous() else None


def in_place(
    usual: Kernel, orders: Mapping[str, tuple[int, ...] | None]
) -> tuple[Kernel, frozenset[str]]:
    """A kernel for inputs that lie in memory in these orders, and which of them it reads as they lie.

    Args:
        usual: the kernel for row-major inputs.
        orders: by input, of `dense_order`; the others are row-major or copied.
    Raises:
        KernelError: as `compile`.
    """
    moved = {name: order for name in usual.operator.inputs if (order := orders[name]) is not None}
    if not moved:
        return usual, frozenset()
    program = usual.operator.program
    for name, order in moved.items():
        program = program.with_input_permuted(name, order)
    direct = compile(Operator(program), dtype=usual.dtype, threads=usual.threads)
    copies = sum(_copy_seconds(usual.shapes[name]) for name in moved)
    if direct.predict().seconds <= usual.predict().seconds + copies:
        return direct, frozenset(moved)
    return usual, frozenset()


def _copy_seconds(shape: tuple[int, ...]) -> float:
    """What torch takes to make a tensor row-major: it moves one element at a time."""
    return math.prod(shape) * _CYCLES_AN_ELEMENT / (1e9 * machine_model().ghz)
