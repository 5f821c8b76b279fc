"""Operators as plain PyTorch: the emitted module, run from its text.

The text comes from syno's own emitter and is checked before it runs: imports of torch and one class
whose code touches no underscored name, so that not even a doctored operator file reaches further.
"""

from __future__ import annotations

import ast
import functools
from typing import TYPE_CHECKING, Any

from torch import nn

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
