"""Latency of a whole network as a machine file predicts it: without running a kernel, the same on every machine.

The sum of

* what each call of an operator, and of each layer that could have one, takes as a kernel (:func:`syno.predict`, by its
  program and the machine file, at the sizes of the call), and
* the original's other operations: bytes read and written at the bandwidth of the nearest level of memory that holds
  them, or multiply-adds at the peak rate, whichever takes longer,

each with :data:`CALL_US` for being called. Predictions compare networks that differ in some layers; eager PyTorch may
take longer than the kernels that its layers are predicted as.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from syno.errors import SynoError
from syno.support.inputs import arguments

if TYPE_CHECKING:
    from torch import nn

    from syno.machines.model import MachineModel
    from syno.operators.operator import Operator
    from syno.torch import Site, Sites
    from syno.torch.sites import Call

#: Microseconds in which PyTorch calls an operation, whatever it computes. Of all machines: files of machines hold rates
#: of kernels, and networks are compared.
CALL_US = 3.0


class Predictor:
    """Predicts networks that are ``model`` with operators in some of ``sites``; each distinct call once.

    Args:
        model: the original.
        example: of one call.
        threads: of kernels.
        dtype: of a site, by the kernels' name for it.
    """

    def __init__(
        self,
        model: nn.Module,
        example: Any,
        sites: Sites,
        machine: MachineModel,
        *,
        threads: int,
        dtype: Callable[[Site], str],
    ) -> None:
        self._sites = sites
        self._machine = machine
        self._threads = threads
        self._dtype = dtype
        self._known: dict[tuple[str, str], float] = {}
        own = {site.name for site in sites if site.layer is not None}
        self._others_us = _others_us(model, example, own, machine, threads)

    def latency_us(self, operators: Mapping[str, Operator]) -> float:
        """Of one run of the example with ``operators`` in the sites of those names."""
        from syno.torch.replace import at_fit

        total = self._others_us
        for site in self._sites:
            if site.layer is None:
                continue
            operator = operators.get(site.name)
            for call, fit in zip(site.calls, site.fits, strict=True):
                one = layer_operator(site, call) if operator is None else at_fit(operator, fit)
                total += call.count * (self._kernel_us(one, self._dtype(site)) + CALL_US)
        return total

    def _kernel_us(self, operator: Operator, dtype: str) -> float:
        from syno.tuning.predict import predict

        key = str(operator.program.text()), dtype
        if key not in self._known:
            try:
                found = (
                    1e6
                    * predict(
                        operator, threads=self._threads, dtype=dtype, machine=self._machine
                    ).seconds
                )
            except SynoError:  # no schedule is constructed for it: what bounds any kernel of it
                numbers = sum(math.prod(shape) for shape in operator.shapes.values())
                found = _bound_us(operator.flops, 4 * numbers, self._machine, self._threads)
            self._known[key] = found
        return self._known[key]


def layer_operator(site: Site, call: Call) -> Operator:
    """What a convolution or linear layer computes in a call, its bias apart."""
    from syno.operators.operator import Operator

    layer = site.layer
    assert layer is not None
    if layer.kind == "linear":
        rows = math.prod(call.input[:-1])
        return Operator.parse(
            "y[m,o] = sum[c] x[m,c] * w[o,c]", m=rows, o=layer.out_channels, c=layer.in_channels
        )
    axes = "hwd"[: len(layer.kernel)]
    taps = [f"r{axis}" for axis in axes]
    reads = [
        f"{stride}*{axis}+{dilation}*{tap}-{before}"
        for axis, tap, stride, dilation, (before, _) in zip(
            axes, taps, layer.stride, layer.dilation, layer.pad, strict=True
        )
    ]
    inner, outer = layer.in_channels // layer.groups, layer.out_channels // layer.groups
    channel = "c" if layer.groups == 1 else f"c+o/{outer}*{inner}"
    sizes: dict[str, Any] = dict(zip(taps, layer.kernel, strict=True))
    sizes |= dict(zip(axes, call.output[-len(axes) :], strict=True))
    batch = math.prod(call.input[: -len(axes) - 1])
    return Operator.parse(
        f"y[n,o,{','.join(axes)}] = sum[c,{','.join(taps)}] x[n,{channel},{','.join(reads)}] "
        f"* w[o,c,{','.join(taps)}]",
        shapes={"x": (batch, *call.input[-len(axes) - 1 :])},
        n=batch,
        o=layer.out_channels,
        c=inner,
        **sizes,
    )


def _bound_us(flops: int, size: int, machine: MachineModel, threads: int) -> float:
    """The least that so many multiply-adds and bytes take."""
    held = next((level for level in machine.levels if level.bytes >= size), machine.levels[-1])
    memory_us = 1e-3 * size / held.copy_gbs
    compute_us = 2e-3 * flops / (machine.peak_gflops() * min(threads, machine.cores))
    return max(memory_us, compute_us)


def _others_us(
    model: nn.Module, example: Any, sites: set[str], machine: MachineModel, threads: int
) -> float:
    """Everything that one run of ``model`` does outside of the modules of those names."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    total = 0.0
    inside = [0]

    class Count(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            nonlocal total
            result = function(*args, **(kwargs or {}))
            if inside[0] or function.is_view:
                return result
            size = sum(t.numel() * t.element_size() for t in _tensors((args, kwargs, result)))
            count = flop_registry.get(function.overloadpacket)
            flops = 0
            if count is not None:
                # It counts multiplications and additions apart.
                flops = count(*args, **(kwargs or {}), out_val=result) // 2
            total += _bound_us(flops, size, machine, threads) + CALL_US
            return result

    with contextlib.ExitStack() as stack:
        for name in sites:
            stack.enter_context(_marked(model.get_submodule(name), inside))
        stack.enter_context(_evaluating(model))
        stack.enter_context(torch.no_grad())
        stack.enter_context(Count())  # type: ignore[no-untyped-call]
        args, named = arguments(model, example)
        model(*args, **named)
    return total


@contextlib.contextmanager
def _marked(module: nn.Module, inside: list[int]) -> Iterator[None]:
    """While the module runs, ``inside[0]`` is positive."""

    def enter(*_: Any) -> None:
        inside[0] += 1

    def leave(*_: Any) -> None:
        inside[0] -= 1

    hooks = [module.register_forward_pre_hook(enter), module.register_forward_hook(leave)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _evaluating(model: nn.Module) -> contextlib.AbstractContextManager[None]:
    from syno.torch.sites import evaluating

    return evaluating(model)


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
