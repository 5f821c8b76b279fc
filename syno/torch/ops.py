"""Operators as PyTorch operators: `torch.ops.syno.<name>` with a shape function and gradients.

Every operator gets one PyTorch operator for all its shapes. A kernel is compiled when a shape is
first met and kept for that shape. The result has the memory format of the first data input of its rank
(channels-last in, channels-last out), a gradient that of its input. Gradients are operators of their own, made from the derivative of
the program, so that they too run on native kernels and have gradients again.

On a CPU, float32, float64 and bfloat16 run natively; float16 is converted to float32 and back. On other
devices, and where a kernel cannot be built, the emitted PyTorch functions compute instead.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch._ops import _OpNamespace
from torch.autograd import forward_ad

from syno.errors import ShapeError, SynoError
from syno.operators.operator import Operator
from syno.support.bounded import Bounded
from syno.torch.aten import AtenFunction
from syno.torch.joint import JointGradient, gradients_of, joint_name, spares_work
from syno.torch.layouts import Layout, follows, in_format, layout_of, memory_format
from syno.torch.native import (
    KEPT_SHAPES,
    NATIVE,
    NativeCall,
    Shapes,
    call_key,
    new_calls,
    serve,
    shapes_of,
)
from syno.torch.packed import plain_call
from syno.torch.recorded import WithGradient, WithTransforms, refuse_tangents, spread
from syno.torch.symbols import symbolic_shape, symbols_in

_log = logging.getLogger("syno.torch")
_library: Any = torch.library.Library("syno", "FRAGMENT")  # type: ignore[no-untyped-call]
_lock = threading.RLock()
if hasattr(os, "register_at_fork"):  # a forked child finds it free, and what it guards whole
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
    )

_Key, _Keys = torch._C.DispatchKey, torch._C.DispatchKeySet
#: Keys of a call on plain CPU tensors: no subclass, no mode, nothing traced or transformed.
_PLAIN = (_Keys(_Key.CPU) | _Keys(_Key.AutogradCPU)).raw_repr()
_needs_grad, _grad_enabled = torch._C._any_requires_grad, torch.is_grad_enabled
_transformed = torch._C._are_functorch_transforms_active

_WIDENED = {torch.float16: torch.float32}


def computed_in(dtype: torch.dtype) -> str | None:
    """What kernels compute tensors of this dtype in; None where none does."""
    return NATIVE.get(_WIDENED.get(dtype, dtype))


Plan = Callable[[Sequence[Tensor]], Tensor]

#: Functions, derivatives among them, that keep kernels at all. The registration of an operator stays as long as
#: the process; it takes about 30 KB.
KEPT_FUNCTIONS = 256


class OperatorFunction:
    """An operator, or a derivative of one, as a function of tensors of any fitting shapes.

    Args:
        follows: the input whose memory format the result gets; None: it is contiguous.
    """

    def __init__(
        self, name: str, inputs: Sequence[str], output: str, follows: int | None = None
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.output = output
        self.follows = follows
        self._plans: Bounded[Any, Plan] = Bounded(KEPT_SHAPES)
        self._calls = new_calls()
        self._operators: Bounded[Shapes, Operator] = Bounded(KEPT_SHAPES)
        self._emitted: Bounded[Any, AtenFunction] = Bounded(KEPT_SHAPES)
        self._compiled: dict[Any, str] = {}
        self._derivatives: dict[int, OperatorFunction] = {}
        self._joint: dict[tuple[int, ...], JointGradient] = {}
        self._warned = False
        arguments = ", ".join(f"Tensor {argument}" for argument in _schema_names(self.inputs))
        self.schema = f"{name}({arguments}) -> Tensor"
        _known[name] = self  # before PyTorch asks whether there is such a name
        _library.define(self.schema)
        _library.impl(name, self._compute, "CPU")
        _library.impl(name, self._compute_elsewhere, "CompositeExplicitAutograd")
        qualified = f"syno::{name}"
        torch.library.register_fake(qualified, self._fake, lib=_library)
        torch.library.register_autograd(
            qualified, self._backward, setup_context=_save_inputs, lib=_library
        )
        _library.impl(name, self._on_cpu, "AutogradCPU", with_keyset=True)
        self._call: Any = getattr(torch.ops.syno, name).default
        # For compiled graphs: the same without gradients, by who may have the weights packed.
        by_owner = f"{name}_by_owner"
        _library.define(f"{by_owner}({arguments}, *, str owner) -> Tensor")
        _library.impl(by_owner, self._compute_by_owner, "CPU")
        torch.library.register_fake(
            f"syno::{by_owner}", lambda *tensors, owner: self._fake(*tensors), lib=_library
        )
        self._call_by_owner: Any = getattr(torch.ops.syno, by_owner).default
        _known[name] = self

    def __call__(self, *tensors: Tensor) -> Tensor:
        result = self._call(*tensors)
        assert isinstance(result, Tensor)
        return result

    def by_owner(self, tensors: Sequence[Tensor], owner: str) -> Tensor:
        """The same on CPU tensors that need no gradient, for graphs of `torch.compile`.

        Args:
            owner: a key of `owners`. What stands there may answer from packed weights; where nothing
                does any more, the inputs are computed with as they are.
        """
        result = self._call_by_owner(*tensors, owner=owner)
        assert isinstance(result, Tensor)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> OperatorFunction:
        return self

    def operator_for(self, shapes: Shapes) -> Operator:
        """The concrete operator for inputs of these shapes; it may not need all of them."""
        found = self._operators.get(shapes)
        if found is None:
            make = self._build if all(all(shape) for shape in shapes) else self._without_empty
            found = self._operators.setdefault(shapes, make(shapes))
        return found

    def _without_empty(self, shapes: Shapes) -> Operator:
        """What is left of the operator where inputs have no elements and the result has some."""
        two, three = (self._build(_with_instead(shapes, instead)).program for instead in (2, 3))
        return Operator(two.without_empty(three))

    def output_shape(self, shapes: Shapes) -> tuple[int, ...]:
        """Shape of the result for inputs of these shapes."""
        if all(all(shape) for shape in shapes):
            return self.operator_for(shapes).shapes[self.output]
        # Extents are affine in those of the inputs: go back from one and two to an empty one.
        one, two = (self.output_shape(_with_instead(shapes, instead)) for instead in (1, 2))
        return tuple(max(0, 2 * a - b) for a, b in zip(one, two, strict=True))

    def emitted(self, tensors: Sequence[Tensor]) -> Tensor:
        """The same by plain PyTorch functions, on any device and in any dtype; differentiable."""
        first = tensors[0]
        if torch.compiler.is_dynamo_compiling():
            shapes = tuple(tuple(t.shape) for t in tensors)
            call = getattr(self, _kept_for_compiled(self.name, shapes, first.dtype, first.device))
        else:
            _refuse_symbols(self.name, tensors)
            shapes = shapes_of(tensors)
            if not all(all(shape) for shape in shapes):
                extents = self.output_shape(shapes)
                if not all(extents):
                    return self._empty(tensors, extents)
            call = self.emitted_module(shapes, first.dtype, first.device)
        result = call(*tensors)
        assert isinstance(result, Tensor)
        return result

    def emitted_module(
        self, shapes: Shapes, dtype: torch.dtype, device: torch.device
    ) -> AtenFunction:
        """What `emitted` calls for inputs of these shapes."""
        key = (shapes, dtype, device)
        found = self._emitted.get(key)
        if found is None:
            found = AtenFunction(self.operator_for(shapes), self.inputs, dtype, device)
            if torch._C._len_torch_dispatch_stack():
                return found  # its tables belong to whoever traces this
            self._emitted.setdefault(key, found)
        return found

    def _build(self, shapes: Shapes) -> Operator:
        raise NotImplementedError

    # What PyTorch calls

    def _on_cpu(self, keys: Any, *tensors: Tensor) -> Tensor:
        # What `register_autograd` makes comes back through the dispatcher and Python once more, which
        # costs more than all the rest; calls on plain tensors need none of it.
        if forward_ad._current_level >= 0:
            refuse_tangents(self.name, tensors)
        if keys.raw_repr() == _PLAIN:
            if _grad_enabled() and _needs_grad(*tensors):
                result = WithGradient.apply(self, *tensors)  # type: ignore[attr-defined]
            else:
                result = self._compute(*tensors)
        elif _transformed() and _grad_enabled() and _needs_grad(*tensors):
            with enable_single_level_autograd_function():
                result = WithTransforms.apply(self, keys, *tensors)  # type: ignore[attr-defined]
        else:
            rest = _Keys(_Key.AutogradOther) | (keys & torch._C._after_autograd_keyset)
            result = self._call.redispatch(rest, *tensors)
        assert isinstance(result, Tensor)
        return result

    def _compute(self, *tensors: Tensor) -> Tensor:
        served = self._calls(tensors)
        if served is not None:
            assert isinstance(served, Tensor)
            return served
        return self._planned(tensors)(tensors)

    def _planned(self, tensors: Sequence[Tensor]) -> Plan:
        layout = layout_of(tensors, (self.follows,))
        key = call_key(tensors, layout)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans.setdefault(key, self._plan(tensors, layout))
            _make_room_for(self)
        return plan

    def native(self, tensors: Sequence[Tensor]) -> NativeCall | None:
        """The kernel for such CPU tensors; None where there is none."""
        plan = self._planned(tensors)
        return plan if isinstance(plan, NativeCall) else None

    def _compute_by_owner(self, *tensors: Tensor, owner: str) -> Tensor:
        found = owners.get(owner)
        result = None if found is None else found.packed_result(tensors)
        return self._compute(*tensors) if result is None else result

    def forget(self) -> None:
        """Gives up kernels and everything else that the next call makes again."""
        self._plans.clear()
        self._calls.clear()
        self._operators.clear()
        self._emitted.clear()
        for joint in self._joint.values():
            joint.forget()

    def _compute_elsewhere(self, *tensors: Tensor) -> Tensor:
        for name, tensor in zip(self.inputs, tensors, strict=True):
            if tensor.layout != torch.strided:
                raise TypeError(
                    f"syno::{self.name}: {name} is of layout {tensor.layout}; operators take dense "
                    "tensors: pass .to_dense()"
                )
        return self._emitted_copy(tensors)

    def _emitted_copy(self, tensors: Sequence[Tensor]) -> Tensor:
        result = in_format(self.emitted(tensors), self.format(tensors))
        # A registered operator may not return a view of its inputs.
        return result.clone() if result._is_view() else result

    def _fake(self, *tensors: Tensor) -> Tensor:
        if symbols_in(tensors):
            _refuse_symbols(self.name, tensors)
            return self._empty(tensors, symbolic_shape(self.output_shape, tensors))
        return self._empty(tensors, self.output_shape(shapes_of(tensors)))

    def format(self, tensors: Sequence[Tensor]) -> torch.memory_format:
        """Memory format of the result."""
        if self.follows is None:
            return torch.contiguous_format
        return memory_format(tensors[self.follows])

    def _empty(self, tensors: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
        return torch.empty(
            tuple(shape),
            dtype=tensors[0].dtype,
            device=tensors[0].device,
            memory_format=self.format(tensors),
        )

    def _backward(self, ctx: Any, cotangent: Tensor) -> tuple[Tensor | None, ...]:
        return self.gradients(ctx.needs_input_grad, (cotangent, *ctx.saved_tensors))

    def gradients(
        self, needed: Sequence[bool], tensors: tuple[Tensor, ...]
    ) -> tuple[Tensor | None, ...]:
        """Of the inputs that need one, for (cotangent, *inputs)."""
        wanted = tuple(i for i, need in enumerate(needed) if need)
        if len(wanted) > 1 and tensors[0].device.type == "cpu":
            joint = self.together(wanted)
            if plain_call(tensors, ()):
                return spread(len(needed), wanted, joint.compute(*tensors))
            # What is traced calls it, too: nobody differentiates further there.
            if not _transformed() and not (_grad_enabled() and _needs_grad(*tensors)):
                return spread(len(needed), wanted, joint(*tensors))
        return self.each_gradient(needed, tensors)

    def each_gradient(
        self, needed: Sequence[bool], tensors: tuple[Tensor, ...]
    ) -> tuple[Tensor | None, ...]:
        """The same one by one; each has gradients itself."""
        shapes = shapes_of(tensors[1:])
        return tuple(
            self._gradient(i, tensors, shapes) if n else None for i, n in enumerate(needed)
        )

    def together(self, wanted: tuple[int, ...]) -> JointGradient:
        """The gradients with respect to several inputs, ascending: of (cotangent, *inputs)."""
        with _lock:
            found = self._joint.get(wanted)
            if found is None:
                _known[joint_name(self.name, wanted)] = self  # before PyTorch asks for it
                found = self._joint[wanted] = JointGradient(self, wanted, _library)
            return found

    def _gradient(self, index: int, tensors: Sequence[Tensor], shapes: Shapes) -> Tensor | None:
        if not all(shapes[index]):
            return torch.zeros_like(tensors[1 + index])
        if self.inputs[index] not in self.operator_for(_with_instead(shapes, 2)).inputs:
            return None
        return self.derivative(index)(*tensors)

    def derivative(self, index: int) -> OperatorFunction:
        """The gradient with respect to one input: of (cotangent, *inputs)."""
        with _lock:
            found = self._derivatives.get(index)
            if found is None:
                found = self._derivatives[index] = _Derivative(self, index)
            return found

    def gradient_operators(
        self, wanted: Sequence[int], shapes: Shapes
    ) -> list[tuple[tuple[int, ...], Operator]]:
        """What computes the gradients with respect to some inputs, of (cotangent, *inputs): operators, each with the
        inputs whose gradients are its outputs in order. Inputs that are not read at these shapes have none.

        Args:
            shapes: of the cotangent and of the inputs.
        """
        forward = self.operator_for(shapes[1:])
        read = [i for i in wanted if self.inputs[i] in forward.inputs]
        alone: list[tuple[tuple[int, ...], Operator]] = [
            ((i,), self.derivative(i).operator_for(shapes)) for i in read
        ]
        if len(read) > 1:
            together = gradients_of(forward, [self.inputs[i] for i in read])
            if spares_work(together, [operator for _, operator in alone]):
                return [(tuple(read), together)]
        return alone

    # How a combination of dtype and shapes is computed

    def _plan(self, tensors: Sequence[Tensor], layout: Layout) -> Plan:
        dtype = tensors[0].dtype
        for name, tensor in zip(self.inputs, tensors, strict=True):
            if tensor.dtype != dtype:
                raise TypeError(
                    f"syno::{self.name}: {name} is {tensor.dtype} and {self.inputs[0]} is {dtype}; "
                    "all inputs need one dtype"
                )
        if dtype in _WIDENED:
            wide = _WIDENED[dtype]
            return lambda ts: self(*(t.to(wide) for t in ts)).to(dtype)
        if dtype not in NATIVE:
            raise TypeError(f"syno::{self.name}: {dtype} is not a dtype that operators compute in")
        shapes = shapes_of(tensors)
        if not all(all(shape) for shape in shapes):
            extents = self.output_shape(shapes)
            if not all(extents):
                return lambda ts: self._empty(ts, extents)
            return self._emitted_copy
        try:
            call = NativeCall(self.operator_for(shapes), self.inputs, tensors, layout)
        except ShapeError:
            raise
        except SynoError as error:
            if not self._warned:
                self._warned = True
                _log.warning(
                    "syno::%s runs as plain PyTorch functions, no native kernel: %s",
                    self.name,
                    error,
                )
            return self._emitted_copy
        serve(self._calls, [call], tensors)
        return call


def _with_instead(shapes: Shapes, instead: int) -> Shapes:
    """The same with another extent in the place of each that is 0."""
    return tuple(tuple(n or instead for n in shape) for shape in shapes)


def _refuse_symbols(name: str, tensors: Sequence[Tensor]) -> None:
    if symbols_in(tensors) and torch.onnx.is_in_onnx_export():
        shown = ", ".join(str(list(t.shape)) for t in tensors)
        raise ShapeError(
            f"[torch] syno::{name} is written to ONNX as functions for fixed shapes, not for {shown}: call "
            "torch.onnx.export without dynamic_shapes"
        )


class _Whole(OperatorFunction):
    """An operator itself."""

    def __init__(self, name: str, operator: Operator) -> None:
        self._operator = operator
        followed = follows(operator)
        index = None if followed is None else operator.inputs.index(followed)
        super().__init__(name, operator.inputs, operator.outputs[0], follows=index)

    def _build(self, shapes: Shapes) -> Operator:
        return self._operator.for_shapes(shapes)


class _Derivative(OperatorFunction):
    """The vector-Jacobian product of another function with respect to one of its inputs."""

    def __init__(self, parent: OperatorFunction, index: int) -> None:
        self._parent = parent
        self._index = index
        target = parent.inputs[index]
        super().__init__(
            f"{parent.name}_d{index}",
            (f"d{parent.output}", *parent.inputs),
            f"d{target}",
            follows=1 + index,
        )

    def _build(self, shapes: Shapes) -> Operator:
        operator = self._parent.operator_for(shapes[1:])
        return gradients_of(operator, [self._parent.inputs[self._index]])

    def output_shape(self, shapes: Shapes) -> tuple[int, ...]:
        return shapes[1 + self._index]


def _schema_names(names: Sequence[str]) -> list[str]:
    """Argument names that a schema accepts: the formula's, or numbered where it would clash."""
    return [f"{name}_{i}" for i, name in enumerate(names)]


def _save_inputs(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _kept_for_compiled(name: str, shapes: Shapes, dtype: torch.dtype, device: torch.device) -> str:
    # `torch.compile` calls this while it traces, and goes on in the attribute that it names. What compiled
    # code refers to is not forgotten.
    function = _known[name]
    key = (shapes, dtype, device)
    place = function._compiled.get(key)
    if place is None:
        place = function._compiled[key] = f"compiled_{len(function._compiled)}"
        setattr(function, place, function.emitted_module(*key))
    return place


# What `torch.compiler.assume_constant_result` does, which imports the whole compiler.
_kept_for_compiled._dynamo_marked_constant = True  # type: ignore[attr-defined]


class Owner(Protocol):
    """Whoever may have an operator's weights packed."""

    def packed_result(self, tensors: Sequence[Tensor]) -> Tensor | None:
        """The operator of all its inputs, or None where they are not what was packed."""


owners: weakref.WeakValueDictionary[str, Owner] = weakref.WeakValueDictionary()
"""By name in compiled graphs."""


class _Namespace(_OpNamespace):
    """`torch.ops.syno`, with derivatives registered when they are asked for: code that `torch.compile` kept
    from another process names them before this one has computed any gradient."""

    __module__ = _OpNamespace.__module__  # by which PyTorch finds operators again

    def __getattr__(self, name: str) -> Any:
        with _lock:
            _named(name)
        return super().__getattr__(name)


torch.ops.syno.__class__ = _Namespace


def _named(name: str) -> OperatorFunction | None:
    """The function of a name, or that whose gradients it names, registered."""
    found = _known.get(name)
    if found is not None:
        return found
    parent, _, numbers = name.rpartition("_d")
    function = _named(parent) if parent else None
    indices = [int(n) for n in numbers.split("_") if n.isdecimal()]
    if function is None or function.name != parent or "_".join(map(str, indices)) != numbers:
        return None
    if indices != sorted(set(indices)) or indices[-1] >= len(function.inputs):
        return None
    if len(indices) == 1:
        return function.derivative(indices[0])
    function.together(tuple(indices))
    return function


def function_named(name: str) -> tuple[OperatorFunction, tuple[int, ...] | None] | None:
    """The function that a name under `torch.ops.syno` stands for, and of which inputs it gives the gradients together
    (None: it is the function itself); None where there is no such function in this process."""
    with _lock:
        function = _named(name.removesuffix("_by_owner"))
        if function is None:
            return None
        for wanted, joint in function._joint.items():
            if joint.name == name:
                return function, wanted
        return function, None


_known: dict[str, OperatorFunction] = {}
"""By every name under `torch.ops.syno`: the function, or whose joint gradients they are."""
_functions: dict[str, OperatorFunction] = {}
_with_kernels: dict[str, OperatorFunction] = {}


def _make_room_for(function: OperatorFunction) -> None:
    """Counts a function among those with kernels; what was called longest ago gives up its own."""
    with _lock:
        _with_kernels[function.name] = function
        if len(_with_kernels) <= KEPT_FUNCTIONS:
            return
        oldest = min(_with_kernels.values(), key=lambda each: each._calls.used)
        del _with_kernels[oldest.name]
    oldest.forget()


#: Counts the ways in which gradients were put together: code that `torch.compile` kept from earlier calls what they
#: were then, and is not found under another name.
_GRADIENTS = 2


def operator_name(operator: Operator) -> str:
    """The name under `torch.ops.syno`: the same for the same text on every machine."""
    source = operator._source.expr if operator._source is not None else ""
    text = f"{operator.symbolic.program.text()}\n{source}\n{_GRADIENTS}"
    return "op_" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def as_function(operator: Operator) -> OperatorFunction:
    """The operator as a differentiable function of tensors, registered with PyTorch.

    Raises:
        ShapeError: the operator has several outputs.
    """
    if len(operator.outputs) != 1:
        raise ShapeError(
            f"[torch] {operator.expr} has {len(operator.outputs)} outputs; a PyTorch operator of "
            "syno has one"
        )
    name = operator_name(operator)
    with _lock:
        found = _functions.get(name)
        if found is None:
            found = _functions[name] = _Whole(name, operator)
        return found
