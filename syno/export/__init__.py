"""Taking results elsewhere: C, PyTorch without LLVM, ONNX, safetensors.

Every format checks what it wrote, by running it where that is possible, before it says so.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
import types
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import FormatError, ShapeError, unknown_name
from syno.kernel import DTYPES

if TYPE_CHECKING:
    from torch import nn

    from syno.operator import Operator

#: Format name -> module with `write(what, directory, example, dtype)`; the dtype is for operators.
FORMATS = {
    "c": "syno.export.c_source",
    "torch": "syno.export.torch_bundle",
    "onnx": "syno.export.onnx_model",
    "safetensors": "syno.export.safetensors_file",
}


@dataclass(frozen=True)
class Exported:
    """What was written and how it was checked."""

    path: Path
    format: str
    files: tuple[str, ...]
    checked: str
    """The check that passed, in words."""
    max_abs_err: float
    """Largest difference that the check saw."""

    def __str__(self) -> str:
        return (
            f"{self.format} written to {self.path} ({', '.join(self.files)}); "
            f"checked: {self.checked}, largest difference {self.max_abs_err:.1e}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "path": str(self.path),
            "format": self.format,
            "files": list(self.files),
            "checked": self.checked,
            "max_abs_err": self.max_abs_err,
        }


def export(
    what: Operator | nn.Module,
    path: str | Path,
    *,
    format: str = "torch",
    example: Any = None,
    dtype: str | None = None,
) -> Exported:
    """Writes an operator, or a model with operators in it, as a directory of files.

    Args:
        what: an operator at one valuation, or a module.
        path: a directory; it must not exist yet, or be empty.
        format: "c" (operators only), "torch", "onnx" or "safetensors".
        example: an input of a module (or a tuple of them); operators know their shapes.
        dtype: of an operator: "float32" (default), "float64" or "bfloat16"; a module has its own.
    Raises:
        UnknownName: no such format or dtype.
        ShapeError: a module without an example, or a symbolic operator.
        FormatError: the directory holds files, cannot be written, or the check failed; nothing is
            left behind.
    """
    if format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if dtype is not None and dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    if dtype is not None and not hasattr(what, "expr"):
        raise FormatError(
            "[export] a module is exported as it is: what.to(dtype) makes another one"
        )
    target = Path(path)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FormatError(f"[export] {target} exists and is not an empty directory")
    inputs = example if isinstance(example, tuple) or example is None else (example,)
    if inputs is None and not hasattr(what, "expr"):
        raise ShapeError("[export] a module is exported for the shapes of an example: example=x")
    writer = importlib.import_module(FORMATS[format])
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    except OSError as error:
        raise FormatError(f"[export] {target} cannot be written: {error.strerror}") from error
    try:
        checked, error_seen = writer.write(what, staging, inputs, dtype or "float32")
        files = tuple(
            sorted(str(f.relative_to(staging)) for f in staging.rglob("*") if f.is_file())
        )
        staging.chmod(0o755)
        if target.exists():
            target.rmdir()
        staging.rename(target)
    except OSError as error:
        raise FormatError(f"[export] {target} cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return Exported(target, format, files, checked, error_seen)


class _CallableModule(types.ModuleType):
    """Lets `syno.export(...)` work however this package was first imported."""

    def __call__(self, *args: Any, **kwargs: Any) -> Exported:
        return export(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
