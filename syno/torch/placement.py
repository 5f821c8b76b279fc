"""Tensors that fill their memory in another order than row-major are read and written where they lie, where the
machine model says that a kernel made for that order takes no longer than copies and the usual kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.torch.layouts import Layout, channels_last, in_format, order_of

#: Measured on transposed tensors of 25,000 to 200,000 elements: 2 to 8 (torch 2.13).
_CYCLES_AN_ELEMENT = 4


class Placement:
    """Which arguments of a call its kernel takes as they lie, and what becomes of the others.

    Args:
        operator: for row-major arguments, at the tensors' shapes.
        inputs: names of the tensors of a call, in order; the operator may not need all of them, and may
            have others that are row-major.
        layout: of those tensors.
        seconds: what a kernel of an operator for row-major arguments is predicted to take.
    Raises:
        KernelError: as `seconds` does.
    """

    def __init__(
        self,
        operator: Operator,
        inputs: Sequence[str],
        layout: Layout,
        seconds: Callable[[Operator], float],
    ) -> None:
        shapes = operator.shapes
        outputs = [(n, f, order_of(f, len(shapes[n])))
                   for n, f in zip(operator.outputs, layout.formats, strict=True)]  # fmt: skip
        orders = dict(zip(inputs, layout.orders, strict=True)) | {
            n: order for n, _, order in outputs
        }
        moved = {n: o for n, o in orders.items() if n in shapes and o and _moves(o, shapes[n])}
        self.operator, lying = _fastest(operator, moved, seconds)
        """What to make a kernel of: dimensions are in the order in which they lie."""
        dense = dict(zip(inputs, layout.dense, strict=True))
        self._inputs = [
            torch.contiguous_format
            if n not in lying
            else None
            if dense[n]
            else channels_last(len(o or ()))
            for n, o in zip(inputs, layout.orders, strict=True)
        ]
        self.results = [(shapes[n], f, n in lying or n not in moved) for n, f, _ in outputs]
        """Shape and memory format of each result, and whether the kernel writes it so: else a row-major one."""

    def takes(self, i: int, tensor: Tensor) -> bool:
        """Whether the kernel takes this tensor, the i-th of a call, as it lies."""
        format = self._inputs[i]
        return format is None or tensor.is_contiguous(memory_format=format)

    def taken(self, i: int, tensor: Tensor) -> Tensor:
        """The tensor as the kernel takes it."""
        format = self._inputs[i]
        return tensor if format is None else tensor.contiguous(memory_format=format)

    @property
    def direct(self) -> bool:
        """Whether the kernel writes all results where they are wanted."""
        return all(direct for _, _, direct in self.results)

    def written_formats(self) -> list[torch.memory_format]:
        """Of what the kernel writes."""
        return [f if direct else torch.contiguous_format for _, f, direct in self.results]

    def finished(self, written: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results, from what the kernel wrote."""
        return tuple(
            t if direct else in_format(t, format)
            for t, (_, format, direct) in zip(written, self.results, strict=True)
        )


def _moves(order: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether the order is another one than row-major for the extents that count."""
    kept = [d for d in order if shape[d] > 1]
    return kept != sorted(kept)


def _fastest(
    operator: Operator, moved: Mapping[str, tuple[int, ...]], seconds: Callable[[Operator], float]
) -> tuple[Operator, frozenset[str]]:
    """The operator for arguments of which some lie in these orders, and which those are; the rest is copied."""
    outputs = set(operator.outputs)
    groups = [names for names in (set(moved) - outputs, set(moved) & outputs) if names]
    if not groups:
        return operator, frozenset()
    best: tuple[float, Operator, frozenset[str]] | None = None
    for choice in itertools.product((True, False), repeat=len(groups)):
        lying = frozenset(
            n for names, lies in zip(groups, choice, strict=True) if lies for n in names
        )
        program = operator.program
        for name in sorted(lying):
            program = program.with_permuted(name, moved[name])
        one = Operator(program) if lying else operator
        time = seconds(one) + sum(
            _copy_seconds(operator.shapes[n]) for n in moved if n not in lying
        )
        if best is None or time < best[0]:
            best = time, one, lying
    assert best is not None
    return best[1], best[2]


def _copy_seconds(shape: Sequence[int]) -> float:
    """What torch takes to bring a tensor into another order: it moves one element at a time."""
    return math.prod(shape) * _CYCLES_AN_ELEMENT / (1e9 * machine_model().ghz)
