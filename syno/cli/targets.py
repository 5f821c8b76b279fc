"""Names on the command line: 'module:function' and shapes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from syno.errors import TaskError

if TYPE_CHECKING:
    import torch


def load_target(target: str) -> Any:
    """The object 'package.module:name' stands for.

    Raises:
        TaskError: the form is wrong, the module cannot be imported, or has no such name.
    """
    module_name, separator, name = target.partition(":")
    if not separator or not module_name or not name:
        raise TaskError(f"[target] '{target}' is not of the form 'package.module:function'")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise TaskError(
            f"[target] cannot import '{module_name}': {error}. Run from the project's root, or install it"
        ) from error
    try:
        return getattr(module, name)
    except AttributeError:
        public = ", ".join(n for n in dir(module) if not n.startswith("_")) or "nothing public"
        raise TaskError(f"[target] '{module_name}' has no '{name}'; it has {public}") from None


def example_tensor(text: str) -> torch.Tensor:
    """Random input of the shape ``text`` gives, like '1,3,32,32'."""
    import torch

    try:
        shape = [int(part) for part in text.split(",")]
    except ValueError:
        shape = []
    if not shape or min(shape) < 1:
        raise TaskError(f"[example] '{text}' is not a shape; write positive integers: '1,3,32,32'")
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))
