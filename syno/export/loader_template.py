"""Loads the model in this directory. Needs PyTorch, nothing else.

    import loader
    model = loader.load()
    y = model(x)          # shapes as in test_vector.safetensors

Kernels are machine code for the CPU they were exported on; each call runs on one thread.
"""

from __future__ import annotations

import ctypes
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

HERE = pathlib.Path(__file__).resolve().parent
_library: Any = None
_kernels: dict[tuple[Any, ...], _Kernel] = {}


class _Kernel:
    """One shared library: a kernel for fixed shapes."""

    def __init__(self, directory: pathlib.Path, entry: dict[str, Any]) -> None:
        self.output = entry["output"]
        self.workspace_bytes = entry["workspace_bytes"]
        self._handle = ctypes.CDLL(str(directory / entry["library"]))
        self.function = getattr(self._handle, entry["symbol"])
        self.function.restype = None
        pointer = ctypes.c_void_p
        self.function.argtypes = [ctypes.POINTER(pointer), pointer, pointer, pointer]

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        held = [t.contiguous() for t in tensors]
        result = held[0].new_empty(self.output)
        pointers = [t.data_ptr() for t in held] + [result.data_ptr()]
        arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        # Room to start at a multiple of 64 bytes.
        memory = torch.empty(self.workspace_bytes + 64, dtype=torch.uint8)
        workspace = (memory.data_ptr() + 63) // 64 * 64
        self.function(arguments, workspace, None, None)
        return result


def _find(name: str, tensors: Sequence[Tensor]) -> _Kernel:
    key = (name, *(tuple(t.shape) for t in tensors))
    kernel = _kernels.get(key)
    if kernel is None:
        known = sorted({k[1:] for k in _kernels if k[0] == name})
        raise ValueError(f"{name} was exported for the shapes {known}, not for {key[1:]}")
    return kernel


def _register(name: str, schema: str) -> None:
    """Tells PyTorch about an operator, unless a package in this process has done so."""
    global _library
    if hasattr(torch.ops.syno, name):
        return
    if _library is None:
        _library = torch.library.Library("syno", "FRAGMENT")  # type: ignore[no-untyped-call]
    _library.define(schema)

    def compute(*tensors: Tensor) -> Tensor:
        if any(t.dtype != torch.float32 for t in tensors):
            raise TypeError(f"{name} computes in float32, not {[t.dtype for t in tensors]}")
        return _find(name, tensors)(tensors)

    def fake(*tensors: Tensor) -> Tensor:
        return tensors[0].new_empty(_find(name, tensors).output)

    _library.impl(name, compute, "CPU")
    torch.library.register_fake(f"syno::{name}", fake, lib=_library)


def load(directory: str | pathlib.Path = HERE) -> Callable[..., Any]:
    """The model, as a callable for the shapes it was exported with."""
    directory = pathlib.Path(directory)
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    if manifest.get("format") != "syno-bundle" or manifest.get("version") != 1:
        raise ValueError(f"{directory} holds no bundle of version 1")
    for entry in manifest["kernels"]:
        shapes = tuple(tuple(shape) for shape in entry["inputs"])
        key = (entry["operator"], *shapes)
        _kernels[key] = _Kernel(directory, entry)
        _register(entry["operator"], entry["schema"])
    return torch.export.load(directory / "model.pt2").module()


def read_safetensors(path: str | pathlib.Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file: a length, a JSON header, then the values."""
    data = bytearray(pathlib.Path(path).read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8 : 8 + length]))
    types = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64, "I32": torch.int32}
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + n for n in entry["data_offsets"])
            flat = torch.frombuffer(data[begin:end], dtype=types[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def check(directory: str | pathlib.Path = HERE) -> None:
    """Runs the model on the test vector and leaves what it returns in `result.pt`."""
    directory = pathlib.Path(directory)
    vector = read_safetensors(directory / "test_vector.safetensors")
    inputs = [vector[f"input{i}"] for i in range(len(vector))]
    with torch.no_grad():
        torch.save(load(directory)(*inputs), directory / "result.pt")
