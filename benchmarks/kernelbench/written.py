"""The PyTorch text of an operator as whoever pastes it into a program has it: a class of Python."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

from syno import _core
from syno.operators.operator import Operator


def written_module(operator: Operator) -> nn.Module:
    """A module of the emitted text, from a file that holds nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.py"
        path.write_text(_core.emit_pytorch(operator.program, "Written"), encoding="utf-8")
        spec = importlib.util.spec_from_file_location("written", path)
        assert spec is not None and spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    made = module.Written()
    assert isinstance(made, nn.Module)
    return made
