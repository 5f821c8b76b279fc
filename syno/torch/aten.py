"""Operators as plain PyTorch: the emitted module, run from its text.

The text comes from syno's own emitter and is checked before it runs: one class whose methods assign, compute and call
functions of torch and of its tensors, by an explicit grammar; no other name is in reach, not even Python's own functions,
so that not even a doctored operator file reaches further.
"""

from __future__ import annotations

import ast
import functools
import math
import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from syno import _core
from syno.errors import VerifyError
from syno.torch import emitted
from syno.torch.layers import tracing

if TYPE_CHECKING:
    from syno.operator import Operator

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
        if tracing():  # it refuses what functional_call does; the function reads attributes only
            values = types.SimpleNamespace(**parameters, **dict(self._module.named_buffers()))
            result = type(self._module).forward(values, *data)
        else:
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


#: All that an emitted module is made of: assignments, calls, arithmetic, and literals.
_NODES = (
    ast.Module, ast.Import, ast.ImportFrom, ast.alias, ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg,
    ast.Assign, ast.Return, ast.Pass, ast.Expr, ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.expr_context,
    ast.Constant, ast.Tuple, ast.List, ast.Subscript, ast.Slice, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator,
    ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.IfExp, ast.Starred,
)  # fmt: skip
_METHODS = {"__init__", "reset_parameters", "forward"}
_WORDS = {"torch", "F", "math", "super", "float", "int", "min", "max", "len", "abs"}
#: Public functions of torch and methods of its tensors that reach beyond them.
_BEYOND = {
    "from_file",
    "numpy",
    "tolist",
    "storage",
    "untyped_storage",
    "data_ptr",
    "register_hook",
}


def _check(tree: ast.Module) -> None:
    """Raises VerifyError for anything but a class of torch's functions on its own parameters and inputs."""
    classes = [s for s in tree.body if not isinstance(s, (ast.Import, ast.ImportFrom))]
    if [type(s) for s in classes] != [ast.ClassDef]:
        raise VerifyError("[emit] the emitted module is no class alone")
    for member in classes[0].body:  # type: ignore[attr-defined]
        text = isinstance(member, ast.Expr) and isinstance(member.value, ast.Constant)
        if not text and not (isinstance(member, ast.FunctionDef) and member.name in _METHODS):
            raise VerifyError(f"[emit] line {member.lineno} of the emitted class is no method")
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            raise VerifyError(f"[emit] the emitted module holds a {type(node).__name__}")
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            _check_definition(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            _check_import(node)
        elif isinstance(node, ast.Attribute):
            _check_attribute(node)


def _check_import(node: ast.Import | ast.ImportFrom) -> None:
    known = {("torch", None), ("torch.nn.functional", "F"), ("math", None)}
    names = {(alias.name, alias.asname) for alias in node.names}
    if isinstance(node, ast.ImportFrom) or not names <= known:
        raise VerifyError(f"[emit] the emitted module holds '{ast.unparse(node)}'")


def _check_definition(node: ast.ClassDef | ast.FunctionDef) -> None:
    """Names are its arguments', those it assigns, and a few words; what runs when it is defined is nothing."""
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(base) for base in node.bases]
        if (
            bases != ["torch.nn.Module"]
            or node.keywords
            or node.decorator_list
            or node.name != _CLASS
        ):
            raise VerifyError("[emit] the emitted class is no plain torch module")
        return
    defaults = [d for d in (*node.args.defaults, *node.args.kw_defaults) if d is not None]
    notes = [a.annotation for a in ast.walk(node.args) if isinstance(a, ast.arg) and a.annotation]
    if (
        node.decorator_list
        or node.returns
        or notes
        or not all(isinstance(d, ast.Constant) for d in defaults)
    ):
        raise VerifyError(f"[emit] {node.name} of the emitted class is no plain method")
    own = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    own |= {n.id for n in names if isinstance(n.ctx, ast.Store)}
    for name in (*own, *(n.id for n in names)):
        if name.startswith("_") or name not in own | _WORDS:
            raise VerifyError(f"[emit] the emitted module uses {name}")
    if own & _WORDS:
        raise VerifyError(f"[emit] the emitted module gives {min(own & _WORDS)} another meaning")


def _check_attribute(node: ast.Attribute) -> None:
    name, path = node.attr, ast.unparse(node)
    if path == "super().__init__":
        return
    allowed = not name.startswith("_") and name not in _BEYOND
    if isinstance(node.value, ast.Name) and node.value.id in ("torch", "F", "math"):
        module = {"torch": torch, "F": nn.functional, "math": math}[node.value.id]
        found = getattr(module, name, None)
        allowed &= (
            isinstance(found, (types.BuiltinFunctionType, torch.dtype, float))
            or getattr(found, "__module__", "") in ("torch.functional", "torch.nn.functional")
            or path == "torch.nn"
        )
    elif path.startswith(("torch.", "F.", "math.")) and not isinstance(node.value, ast.Call):
        allowed &= path in (
            "torch.nn.Parameter", "torch.nn.Module", "torch.nn.init", "torch.nn.init.uniform_",
            "torch.nn.functional",
        ) or (hasattr(torch.Tensor, name) and any(isinstance(n, ast.Call) for n in ast.walk(node)))  # fmt: skip
    elif not (isinstance(node.value, ast.Name) and node.value.id == "self"):
        allowed &= hasattr(torch.Tensor, name)
    if not allowed:
        raise VerifyError(f"[emit] the emitted module uses {path}")
