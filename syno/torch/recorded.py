"""Calls whose result needs a gradient, as PyTorch records them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

if TYPE_CHECKING:
    from syno.torch.ops import OperatorFunction


# PyTorch hands a call to one level of torch.func's transforms at a time, so that what is recorded is of that
# level alone; the public Function would start with the outermost one again.
class _Recorded(_SingleLevelFunction):
    """A call that some tensors need a gradient of."""

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        skipped = len(ctx.needs_input_grad) - len(ctx.saved_tensors)
        needed = ctx.needs_input_grad[skipped:]
        gradients = ctx.function.gradients(needed, (cotangent, *ctx.saved_tensors))
        return (*(None,) * skipped, *gradients)


class WithGradient(_Recorded):
    """On plain tensors."""

    @staticmethod
    def forward(ctx: Any, function: OperatorFunction, *tensors: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*tensors)
        return function._compute(*tensors)


class WithTransforms(_Recorded):
    """On tensors of a level of torch.func's transforms."""

    @staticmethod
    def forward(ctx: Any, function: OperatorFunction, keys: Any, *tensors: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*tensors)
        # The level below decides for itself whether it records.
        with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():
            result = function._call.redispatch(keys & torch._C._after_autograd_keyset, *tensors)
        assert isinstance(result, Tensor)
        return result


def spread(
    count: int, wanted: Sequence[int], gradients: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    found = dict(zip(wanted, gradients, strict=True))
    return tuple(found.get(i) for i in range(count))


def refuse_tangents(name: str, tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        dual = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
        if dual.tangent is not None:
            raise NotImplementedError(
                f"syno::{name} has no forward-mode derivative (jvp, jacfwd, hessian); reverse mode works: "
                "vjp, jacrev, or jacrev of jacrev"
            )
