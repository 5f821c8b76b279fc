"""Calls with packed weights: what a kernel computes of its weights alone is computed once, not in every call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Literal

import torch
from torch import Tensor

from syno import _core
from syno.bounded import Bounded
from syno.errors import SynoError
from syno.operator import Operator
from syno.prepack import PrepackedKernel, prepacked
from syno.torch.native import NATIVE, new_calls

#: Shapes of the data that one module keeps kernels for.
KEPT_SHAPES = 16


def _keys(tensor: Tensor) -> int:
    return torch._C._dispatch_keys(tensor).raw_repr()


def _included() -> int:
    return torch._C._dispatch_tls_local_include_set().raw_repr()


with torch.inference_mode():
    _INFERENCE, _INCLUDED_IN_INFERENCE = _keys(torch.empty(0)), _included()
_PLAIN, _INCLUDED = _keys(torch.empty(0)), _included()


def plain_call(data: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    """Whether nothing but the result is asked of a call: no gradient, mode, transform, subclass or trace.

    Parameters are plain although their class is another one. Weights made in inference mode are not:
    they do not count their changes.
    """
    return (
        _included() in (_INCLUDED, _INCLUDED_IN_INFERENCE)
        and all(_keys(t) in (_PLAIN, _INFERENCE) for t in data)
        and all(_keys(t) == _PLAIN for t in weights)
        and not (torch.is_grad_enabled() and any(t.requires_grad for t in (*data, *weights)))
    )


@dataclass(frozen=True)
class _Kernel:
    """What serves calls on data of one shape, dtype and number of threads."""

    kernel: PrepackedKernel
    calls: _core.TensorCalls
    places: tuple[int | None, ...]
    """By argument of the kernel: which data input it is; None: the next one of the packed tensors."""

    def run(self, data: Sequence[Tensor], packed: Sequence[Tensor]) -> Tensor | None:
        """The result; None where the data are not contiguous."""
        rest = iter(packed)
        result = self.calls(tuple(next(rest) if i is None else data[i] for i in self.places))
        assert result is None or isinstance(result, Tensor)
        return result


@dataclass(frozen=True)
class _Values:
    """Weights as they were when they were packed, in all the ways that kernels asked for."""

    weights: tuple[Tensor, ...]
    state: tuple[int, ...]
    packed: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)


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
        self._values = _Values((), ())

    def __call__(self, data: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor | None:
        """The operator of plain CPU tensors (`plain_call`), or None where no kernel of such packs weights.

        Args:
            data: the operator's data inputs, in order.
            weights: its weights, in order.
        """
        kernel = self._kernel_for(data, weights)
        if kernel is None:
            return None
        packed = self._packed_for(kernel.kernel, weights)
        result = kernel.run(data, packed)
        if result is None:
            result = kernel.run([t.contiguous() for t in data], packed)
            assert result is not None
        return result

    @property
    def bytes(self) -> int:
        """Memory that packed weights take at present."""
        return sum(t.nbytes for tensors in self._values.packed.values() for t in tensors)

    def _kernel_for(self, data: Sequence[Tensor], weights: Sequence[Tensor]) -> _Kernel | None:
        shapes = tuple(t.shape for t in (*data, *weights))
        key = (torch.get_num_threads(), *(t.dtype for t in (*data, *weights)), shapes)
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
        try:
            threads = torch.get_num_threads()
            operator = self._operator.for_shapes(shapes)
            if set(operator.inputs) != set(names):
                return None
            kernel = prepacked(operator, dtype=dtype, threads=threads)
        except SynoError:
            return None
        if not kernel.packs:
            return None
        call = kernel.call
        arguments = [(name, tuple(shape)) for name, written, shape in call.arguments if not written]
        outputs = [tuple(shape) for _, written, shape in call.arguments if written]
        calls = new_calls()
        calls.add(
            call,
            shapes=[shape for _, shape in arguments],
            dtype=data[0].dtype,
            result_shapes=outputs,
            order=range(len(arguments)),
            threads=threads,
        )
        data_names = list(self._operator.data)
        places = tuple(
            data_names.index(name) if name in data_names else None for name, _ in arguments
        )
        return _Kernel(kernel, calls, places)

    def _packed_for(self, kernel: PrepackedKernel, weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
        state = tuple(n for t in weights for n in (t._version, t.data_ptr()))
        values = self._values
        same = len(values.weights) == len(weights) and all(map(is_, values.weights, weights))
        if not same or state != values.state:
            values = self._values = _Values(tuple(weights), state)
        found = values.packed.get(kernel.packing)
        if found is None:
            named = dict(zip(self._operator.weights, (w.detach() for w in weights), strict=True))
            packed = kernel.pack(**named)
            found = tuple(torch.from_numpy(buffer) for buffer in packed.buffers.values())
            values.packed[kernel.packing] = found
        return found
