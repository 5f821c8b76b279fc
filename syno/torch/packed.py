"""Calls with packed weights: what a kernel computes of its weights alone is computed once, not in every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import is_
from typing import Any, Literal

import torch
from torch import Tensor

from syno import _core
from syno.errors import SynoError
from syno.kernels.prepack import PrepackedKernel, prepacked, prepacked_seconds
from syno.operators.operator import Operator
from syno.support.bounded import Bounded
from syno.torch.layouts import follows, layout_of
from syno.torch.native import NATIVE, add_call, new_calls, tensor_of
from syno.torch.placement import Placement

#: Shapes and strides of the data that one module keeps kernels for.
KEPT_SHAPES = 16

#: Packed copies of its weights that one module keeps: kernels for some shapes want them otherwise.
KEPT_PACKINGS = 4


_keys, _included_keys = torch._C._dispatch_keys, torch._C._dispatch_tls_local_include_set
_grad_enabled = torch.is_grad_enabled

with torch.inference_mode():
    _INFERENCE, _INCLUDED_IN_INFERENCE = (
        _keys(torch.empty(0)).raw_repr(),
        _included_keys().raw_repr(),
    )
_PLAIN, _INCLUDED = _keys(torch.empty(0)).raw_repr(), _included_keys().raw_repr()


def plain_call(data: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether nothing but the result is asked of a call: no gradient, mode, transform, subclass or trace.

    Parameters are plain although their class is another one. Weights made in inference mode are not:
    they do not count their changes.
    """
    included = _included_keys().raw_repr()
    if included != _INCLUDED and included != _INCLUDED_IN_INFERENCE:
        return False
    watched = _grad_enabled()
    for t in data:
        keys = _keys(t).raw_repr()
        if (keys != _PLAIN and keys != _INFERENCE) or (watched and t.requires_grad):
            return False
    for t in weights:  # noqa: SIM110  (a generator takes longer than the rest)
        if _keys(t).raw_repr() != _PLAIN or (watched and t.requires_grad):
            return False
    return True


@dataclass(frozen=True)
class _Kernel:
    """What serves calls on data of one shape, strides, dtype and number of threads."""

    kernel: PrepackedKernel
    placement: Placement
    calls: _core.TensorCalls = field(default_factory=new_calls)

    def run(self, data: Sequence[Tensor], packed: Sequence[Tensor]) -> Tensor:
        """The result of one call."""
        placement = self.placement
        tensors = self.arguments([placement.taken(i, t) for i, t in enumerate(data)], packed)
        result = self.calls(tensors)
        if result is None:
            self._serve(tensors)
            result = self.calls(tensors)
        assert isinstance(result, Tensor)
        return result if placement.direct else placement.finished((result,))[0]

    def arguments(self, data: Sequence[Tensor], packed: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What the kernel takes, in its order."""
        rest = iter(packed)
        return tuple([next(rest) if i is None else data[i] for i in self._places])

    @cached_property
    def _places(self) -> tuple[int | None, ...]:
        """By argument of the kernel: which data input it is; None: the next one of the packed tensors."""
        data = self.kernel.data
        read = (name for name, written, _ in self.kernel.call.arguments if not written)
        return tuple(data.index(name) if name in data else None for name in read)

    def _serve(self, tensors: Sequence[Tensor]) -> None:
        shapes = [shape for shape, _, _ in self.placement.results]
        add_call(
            self.calls,
            [self.kernel.call],
            tensors,
            list(zip(shapes, self.placement.written_formats(), strict=True)),
            orders=[range(len(tensors))],
            threads=self.kernel.threads,
            runs_on=[self.kernel.runs_on],
        )


@dataclass(frozen=True)
class _Values:
    """Weights as they were when they were packed, in all the ways that kernels asked for."""

    weights: tuple[Tensor, ...]
    state: list[tuple[Any, ...]]
    packed: Bounded[str, tuple[Tensor, ...]] = field(default_factory=lambda: Bounded(KEPT_PACKINGS))


class PackedWeights:
    """One operator's weights as its kernels want them.

    Packed again when a weight was changed in place or is another tensor. What is written past autograd
    (`weight.data`, a NumPy view) is not noticed, as autograd does not notice it.

    Args:
        operator: its weights are what is packed; any valuation.
    """

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._kernels: Bounded[Any, _Kernel | Literal[False]] = Bounded(KEPT_SHAPES)
        self._values = _Values((), [])
        self._last: tuple[_Kernel, tuple[Tensor, ...]] | None = None

    def __call__(self, data: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor | None:
        """The operator of plain CPU tensors (`plain_call`), or None where no kernel of such packs weights.

        Args:
            data: the operator's data inputs, in order.
            weights: its weights, in order.
        """
        current = self._current(weights)
        if current and self._last is not None:
            # Most calls are like the one before; the kernel itself tells those that it cannot serve.
            kernel, packed = self._last
            result = kernel.calls(kernel.arguments(data, packed))
            if result is not None:
                assert isinstance(result, Tensor)
                return result
        found = self._kernel_for(data, weights)
        if found is None:
            return None
        if not current:
            self._values = _Values(tuple(weights), _state(weights))
        packed = self._packed_for(found.kernel, weights)
        # What was copied for this call may lie like the data of another one, whose result has another format.
        as_given = all(found.placement.takes(i, t) for i, t in enumerate(data))
        self._last = (found, packed) if found.placement.direct and as_given else None
        return found.run(data, packed)

    def _current(self, weights: Sequence[Tensor]) -> bool:
        """Whether the weights are those that were packed, unchanged."""
        held = self._values.weights
        return (
            len(held) == len(weights)
            and all(map(is_, held, weights))
            and _state(weights) == self._values.state
        )

    @property
    def bytes(self) -> int:
        """Memory that packed weights take at present."""
        return sum(t.nbytes for tensors in self._values.packed.values() for t in tensors)

    def _kernel_for(self, data: Sequence[Tensor], weights: Sequence[Tensor]) -> _Kernel | None:
        shapes = tuple(t.shape for t in (*data, *weights))
        strides = tuple(t.stride() for t in data)
        key = (torch.get_num_threads(), *(t.dtype for t in (*data, *weights)), shapes, strides)
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels.setdefault(key, self._compiled(data, weights) or False)
        return found or None

    def _compiled(self, data: Sequence[Tensor], weights: Sequence[Tensor]) -> _Kernel | None:
        dtype = NATIVE.get(data[0].dtype)
        if dtype is None or any(t.dtype != data[0].dtype for t in (*data, *weights)):
            return None
        names = dict(zip(self._operator.data, data, strict=True))
        names |= dict(zip(self._operator.weights, weights, strict=True))
        shapes = {name: tuple(tensor.shape) for name, tensor in names.items()}
        if not all(all(shape) for shape in shapes.values()):
            return None
        threads = torch.get_num_threads()

        def seconds(one: Operator) -> float:
            return prepacked_seconds(one, dtype=dtype, threads=threads)

        try:
            operator = self._operator.for_shapes(shapes)
            if set(operator.inputs) != set(names):
                return None
            followed, inputs = follows(operator), self._operator.data
            layout = layout_of(data, (None if followed is None else inputs.index(followed),))
            placement = Placement(operator, inputs, layout, seconds)
            kernel = prepacked(placement.operator, operator.weights, dtype=dtype, threads=threads)
        except SynoError:
            return None
        return _Kernel(kernel, placement) if kernel.packs else None

    def _packed_for(self, kernel: PrepackedKernel, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        values = self._values
        found = values.packed.get(kernel.packing)
        if found is None:
            named = dict(zip(self._operator.weights, (w.detach() for w in weights), strict=True))
            packed = kernel.pack(**named)
            found = tuple(tensor_of(buffer) for buffer in packed.buffers.values())
            found = values.packed.setdefault(kernel.packing, found)
        return found


def _state(weights: Sequence[Tensor]) -> list[tuple[Any, ...]]:
    """Another one when a weight was changed in place or got other memory."""
    return [(t._version, t.data_ptr(), t.shape, t.dtype) for t in weights]
