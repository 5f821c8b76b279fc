"""Operators as plain PyTorch: the emitted module, run from its text.

The text comes from syno's own emitter and is checked before it runs: imports of torch and one class
whose code touches no underscored name, so that not even a doctored operator file reaches further.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from syno import _core
from syno.errors import VerifyError
from syno.torch import emitted

if TYPE_CHECKING:
    from syno.operator import Operator

_MODULES = {"torch", "torch.nn", "torch.nn.functional", "math", "__future__"}
_CLASS = "EmittedOperator"


def aten_module(operator: Operator) -> nn.Module:
    """A new module with one parameter for each weight, in order and named alike."""
    module = _module_class(str(operator.program.text()))()
    assert isinstance(module, nn.Module)
    return module


class AtenFunction(nn.Module):
    """The emitted functions of an operator on all its inputs, in the order of `inputs`: no weights of its own."""

    def __init__(
        self, operator: Operator, inputs: Sequence[str], dtype: torch.dtype, device: torch.device
    ) -> None:
        super().__init__()
        # Tables are to be saved for gradients also where this is first called without any; nobody sees
        # the random weights.
        with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
            self._module = _module_class(str(operator.program.text()))(dtype=dtype)
        # The emitted names may differ where a formula's word means something in Python.
        self._names = tuple(name for name, _ in self._module.named_parameters())
        for name in self._names:
            nothing = torch.empty_like(getattr(self._module, name), device="meta")
            setattr(self._module, name, nn.Parameter(nothing))
        for name, table in self._module.named_buffers():
            self._module._buffers[name] = table.to(device)
        self._weights = tuple(inputs.index(name) for name in operator.weights)
        self._data = tuple(inputs.index(name) for name in operator.data)

    def forward(self, *tensors: Tensor) -> Tensor:
        weights = (tensors[i] for i in self._weights)
        parameters = dict(zip(self._names, weights, strict=True))
        data = tuple(tensors[i] for i in self._data)
        result = torch.func.functional_call(self._module, parameters, data)
        assert isinstance(result, Tensor)
        return result


@functools.lru_cache(maxsize=1024)
def _module_class(program_text: str) -> Any:
    program = _core.Program.parse(program_text)
    source = str(_core.emit_pytorch(program, class_name=_CLASS))
    tree = ast.parse(source)
    _check(tree)
    # A module that exists: torch.compile imports the one that a function says it is from.
    names: dict[str, Any] = {"__name__": emitted.__name__}
    exec(compile(tree, "<emitted operator>", "exec"), names)
    return names[_CLASS]


def _check(tree: ast.Module) -> None:
    for statement in tree.body:
        if not isinstance(statement, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Expr)):
            raise VerifyError(f"[emit] line {statement.lineno} of the emitted module is no class")
    for node in ast.walk(tree):
        imported = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imported = [node.module or ""]
        for name in imported:
            if name not in _MODULES:
                raise VerifyError(f"[emit] the emitted module imports {name}")
        attribute = node.attr if isinstance(node, ast.Attribute) else ""
        name = node.id if isinstance(node, ast.Name) else ""
        for word in (attribute, name):
            if word.startswith("__") and word != "__init__":
                raise VerifyError(f"[emit] the emitted module uses {word}")
