"""Gradients of several inputs at once: what they have in common is computed once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from syno.errors import SynoError
from syno.operators.operator import Operator
from syno.support.bounded import Bounded
from syno.torch.layouts import layout_of
from syno.torch.native import (
    KEPT_SHAPES,
    NATIVE,
    NativeCall,
    call_key,
    new_calls,
    predicted_seconds,
    serve,
    shapes_of,
)

if TYPE_CHECKING:
    from syno.torch.ops import OperatorFunction

Call = Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]

#: The part of the FLOPs of all gradients alone up to which one kernel of them all is made. Where it saves
#: nothing, it is no faster than theirs one after the other: what they read is too much to stay near.
_SHARED = 0.99


def gradients_of(operator: Operator, names: Sequence[str]) -> Operator:
    """The gradients with respect to some inputs as one operator: of the ways to sum up that there are, the one
    whose kernel is predicted to be the fastest."""
    program = operator.program
    staged = Operator(program.derivatives(list(names)))
    at_once = Operator(program.derivatives(list(names), in_two_steps=False))
    if str(staged.program.text()) == str(at_once.program.text()):
        return staged
    try:
        return min(staged, at_once, key=lambda o: predicted_seconds(o, "float32", 1))
    except SynoError:
        return staged


def spares_work(together: Operator, alone: Sequence[Operator]) -> bool:
    """Whether one kernel of all gradients computes less than their own kernels."""
    return together.flops <= _SHARED * sum(operator.flops for operator in alone)


def joint_name(parent: str, wanted: Sequence[int]) -> str:
    """What the operator of these gradients is called under `torch.ops.syno`."""
    return f"{parent}_d{'_'.join(map(str, wanted))}"


class JointGradient:
    """The gradients of an operator with respect to some inputs, of (cotangent, *inputs), as a PyTorch operator.

    One kernel computes them where they have work in common, else their own kernels one after the other.

    Args:
        parent: the operator.
        wanted: of which inputs, at least two, ascending.
        library: where it is registered.
    """

    def __init__(self, parent: OperatorFunction, wanted: Sequence[int], library: Any) -> None:
        self._parent = parent
        self._wanted = tuple(wanted)
        self._inputs = (f"d{parent.output}", *parent.inputs)
        self._follows = tuple(1 + i for i in wanted)
        self._calls = new_calls()
        self._others: Bounded[Any, Call] = Bounded(KEPT_SHAPES)
        self.name = joint_name(parent.name, wanted)
        arguments = ", ".join(f"Tensor {name}_{i}" for i, name in enumerate(self._inputs))
        results = ", ".join("Tensor" for _ in wanted)
        library.define(f"{self.name}({arguments}) -> ({results})")
        library.impl(self.name, self.compute, "CPU")
        library.impl(self.name, self._compute_elsewhere, "CompositeExplicitAutograd")
        qualified = f"syno::{self.name}"
        torch.library.register_fake(qualified, self._fake, lib=library)
        torch.library.register_autograd(
            qualified, self._backward, setup_context=_save_inputs, lib=library
        )
        self._call: Any = getattr(torch.ops.syno, self.name).default

    def __call__(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """One gradient for each wanted input; zeros for one that is not read."""
        return tuple(self._call(*tensors))

    def compute(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The same for CPU tensors of which nothing else is asked: no gradient, transform or trace."""
        served = self._calls(tensors)
        if served is not None:
            assert isinstance(served, tuple)
            return served
        key = call_key(tensors, layout_of(tensors, self._follows))
        call = self._others.get(key)
        if call is None:
            call = self._others.setdefault(key, self._made(tensors))
        return call(tensors)

    def forget(self) -> None:
        """Gives up kernels, which the next call makes again."""
        self._calls.clear()
        self._others.clear()

    def _made(self, tensors: tuple[Tensor, ...]) -> Call:
        natives = self._natives(tensors)
        if natives is None:
            return self._one_by_one
        serve(self._calls, natives, tensors)
        if len(natives) == 1:
            (whole,) = natives
            return lambda ts: tuple(whole(ts))
        return lambda ts: tuple(native(ts) for native in natives)

    def _natives(self, tensors: tuple[Tensor, ...]) -> list[NativeCall] | None:
        """The kernels to run; None where some gradient has none."""
        shapes = shapes_of(tensors)
        same = all(t.dtype == tensors[0].dtype for t in tensors)
        if tensors[0].dtype not in NATIVE or not same or not all(all(shape) for shape in shapes):
            return None
        forward = self._parent.operator_for(shapes[1:])
        names = [self._parent.inputs[i] for i in self._wanted]
        if not set(names) <= set(forward.inputs):
            return None  # at these shapes one of them is not read
        alone = [self._parent.derivative(i) for i in self._wanted]
        try:
            together = gradients_of(forward, names)
            if spares_work(together, [d.operator_for(shapes) for d in alone]):
                return [
                    NativeCall(together, self._inputs, tensors, layout_of(tensors, self._follows))
                ]
        except SynoError:
            pass  # each may have a kernel of its own
        natives = [derivative.native(tensors) for derivative in alone]
        found = [native for native in natives if native is not None]
        return found if len(found) == len(natives) else None

    def _one_by_one(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        gradients = self._parent.each_gradient(self._needed, tensors)
        return tuple(
            torch.zeros_like(tensors[1 + i]) if gradient is None else gradient
            for i, gradient in zip(self._wanted, (gradients[i] for i in self._wanted), strict=True)
        )

    @property
    def _needed(self) -> list[bool]:
        return [i in self._wanted for i in range(len(self._parent.inputs))]

    def _compute_elsewhere(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self._one_by_one(tensors)

    def _fake(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(
            torch.empty_like(
                tensors[1 + i], memory_format=self._parent.derivative(i).format(tensors)
            )
            for i in self._wanted
        )

    def _backward(self, ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        total: list[Tensor | None] = [None] * len(self._inputs)
        for i, cotangent in zip(self._wanted, cotangents, strict=True):
            derivative = self._parent.derivative(i)
            tensors = (cotangent, *ctx.saved_tensors)
            for place, term in enumerate(derivative.gradients(ctx.needs_input_grad, tensors)):
                before = total[place]
                total[place] = term if before is None else before if term is None else before + term
        return tuple(total)


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs)
