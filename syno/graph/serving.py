"""Modules whose calls in inference a compiled network answers: for the rest, training among it, they stay what they are.

As `torch.nn.Module.compile` does it, the module itself is kept: its class, its parameters and `state_dict`, its layers.
Copies of it, pickled ones too, are without the compiled network.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils import _pytree as pytree

from syno.errors import ShapeError, SynoError, told
from syno.graph.from_torch import CannotImport
from syno.graph.model import CompiledModel, compile_model

_log = logging.getLogger("syno.graph")
_transformed = torch._C._are_functorch_transforms_active


class CompiledCalls:
    """What a module is called through: the compiled network where that is the same function, else the module's layers.

    It is the same in evaluation mode of all modules, where no gradient is asked for, at the example's shapes and types,
    with no hook, transform, autocast or trace that would see the layers, and with the modules in their places as they were.
    Changed values of parameters and buffers are seen as by `CompiledModel`; after a call in training mode or for
    gradients all are read anew, however they were written.
    """

    def __init__(self, module: nn.Module, compiled: CompiledModel) -> None:
        self.module = module
        self.compiled = compiled
        self._states = [each.__dict__ for each in module.modules()]
        self._children = [list(state["_modules"].values()) for state in self._states]
        self._hooks = _hooks(module)
        self._trained = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and self._is_same(args, kwargs):
            try:
                given = self.compiled.flatten(args, kwargs)
                self.compiled.renew(everything=self._trained)
            except SynoError as why:
                # Other shapes are usual; what does not fit any more will not fit again.
                if not isinstance(why, ShapeError):
                    _log.warning("%s runs layer by layer from now on: %s", self._name, told(why))
                    withdraw(self.module)
            else:
                self._trained = False
                return self.compiled.run(given, num_threads=torch.get_num_threads())
        return self.module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]

    @property
    def _name(self) -> str:
        return type(self.module).__name__

    def _is_same(self, args: Any, kwargs: Any) -> bool:
        top = self.module
        if _hooks(top) != self._hooks:
            return False
        for state, children in zip(self._states, self._children, strict=True):
            if state["training"]:
                self._trained = True
                return False
            if list(state["_modules"].values()) != children:
                return False
            if state is not top.__dict__ and (
                state["_forward_hooks"] or state["_forward_pre_hooks"]
            ):
                return False
        if _seen_by_others() or torch.is_autocast_enabled("cpu"):
            return False
        leaves: Sequence[Any] = args
        if kwargs or any(type(leaf) is not Tensor for leaf in args):
            leaves = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
            if any(type(leaf) is not Tensor and type(leaf) is not nn.Parameter for leaf in leaves):
                return False
        if torch.is_grad_enabled() and (
            any(leaf.requires_grad for leaf in leaves) or self.compiled.requires_grad
        ):
            self._trained = True
            return False
        return True


def _hooks(module: nn.Module) -> list[Any]:
    return [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]


def _hooked(module: nn.Module) -> str | None:
    """The name of a module with hooks that are not syno's own, which a compiled network would not call."""
    from syno.torch.images import changes_format

    for name, each in module.named_modules():
        if any(each is not module or not changes_format(hook) for hook in _hooks(each)):
            return name or type(module).__name__
    return None


def _seen_by_others() -> bool:
    """Whether what the layers do is traced, transformed, or watched by hooks of all modules."""
    return bool(
        torch._C._get_tracing_state()
        or _transformed()
        or torch._C._len_torch_dispatch_stack()
        or torch._C._len_torch_function_stack()
        or torch_module._global_forward_hooks
        or torch_module._global_forward_pre_hooks
    )


def serve_compiled(
    module: nn.Module, example: Any, *, threads: int = 1, derive: bool = False
) -> CompiledModel:
    """Compiles a module and has it answer the module's calls in inference from now on.

    Args:
        module: in any mode; it stays in it.
        example: what it is called with.
        threads: that schedules are made for; a call runs on as many as PyTorch has then.
        derive: as for `syno.compile`.
    Raises:
        CannotImport: the module is no graph of tensors that can be recorded; it has hooks.
        KernelError: the compiled network computes something else.
    """
    if (name := _hooked(module)) is not None:
        raise CannotImport(f"[import] {name} has hooks, which a compiled network would not call")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.is_inference():
            raise CannotImport(
                f"[import] {name} was made in inference mode: nobody can see when its values change"
            )
    compiled = compile_model(module, example, {"threads": threads, "derive": derive})
    module._compiled_call_impl = CompiledCalls(module, compiled)
    return compiled


def withdraw(module: nn.Module) -> None:
    """Has the module's layers answer its calls again."""
    if isinstance(module._compiled_call_impl, CompiledCalls):
        module._compiled_call_impl = None


def compiled_of(module: Any) -> CompiledModel | None:
    """What answers a module's calls in inference, where that is a compiled network."""
    calls = getattr(module, "_compiled_call_impl", None)
    return calls.compiled if isinstance(calls, CompiledCalls) else None


def compiled_or_why(
    module: nn.Module, example: Any, *, threads: int = 1, derive: bool = False
) -> CompiledModel | str:
    """As `serve_compiled`; in a sentence why not, where it cannot be: then the module's layers go on answering."""
    try:
        return serve_compiled(module, example, threads=threads, derive=derive)
    except SynoError as why:
        return " ".join(str(why).split())
    except (
        Exception
    ) as error:  # PyTorch's own, of models that nobody tried before: the layers still run
        _log.debug("not compiled", exc_info=True)
        return told(error)


__all__ = ["CompiledCalls", "compiled_of", "compiled_or_why", "serve_compiled", "withdraw"]
