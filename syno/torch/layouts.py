"""Tensors that fill their memory in another order than row-major (channels last) are read where they lie, where the
machine model says that a kernel made for that order takes no longer than a copy and the usual kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from syno.kernel import DTYPES, Kernel, compile
from syno.operator import Operator
from syno.tuning.machine import machine_model

#: Of each input: None where it is row-major, or no permutation of a row-major tensor.
Orders = tuple["tuple[int, ...] | None", ...]


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
    copies = sum(_copy_seconds(usual.shapes[name], usual.dtype) for name in moved)
    if direct.predict().seconds <= usual.predict().seconds + copies:
        return direct, frozenset(moved)
    return usual, frozenset()


def _copy_seconds(shape: tuple[int, ...], dtype: str) -> float:
    """Reading and writing at the bandwidth of the level that holds both, which no transposition exceeds."""
    size = math.prod(shape) * DTYPES[dtype].itemsize
    levels = machine_model().levels
    level = next((each for each in levels if each.bytes >= 2 * size), levels[-1])
    return size / (1e9 * level.read_gbs) + size / (1e9 * level.write_gbs)
