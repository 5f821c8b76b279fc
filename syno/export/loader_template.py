"""Loads the model in this directory. Needs PyTorch, nothing else.

    import loader
    model = loader.load()
    y = model(x)          # shapes, batch included, and dtypes as "inputs" in manifest.json

Kernels are machine code for CPUs with the instructions that manifest.json lists; each call runs on one thread.
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
        self._dtype = getattr(torch, entry["dtype"])
        self._takes = entry["takes"]
        self._follows = entry["follows"]
        self.workspace_bytes = entry["workspace_bytes"]
        self._handle = ctypes.CDLL(str(directory / entry["library"]))
        self.function = getattr(self._handle, entry["symbol"])
        self.function.restype = None
        pointer = ctypes.c_void_p
        self.function.argtypes = [ctypes.POINTER(pointer), pointer, pointer, pointer]

    def __call__(self, tensors: Sequence[Tensor]) -> Tensor:
        held = [tensors[i].contiguous().to(self._dtype) for i in self._takes]
        result = torch.empty(self.output, dtype=self._dtype)
        pointers = [t.data_ptr() for t in held] + [result.data_ptr()]
        arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        # Room to start at a multiple of 64 bytes.
        memory = torch.empty(self.workspace_bytes + 64, dtype=torch.uint8)
        workspace = (memory.data_ptr() + 63) // 64 * 64
        self.function(arguments, workspace, None, None)
        return self.empty(tensors).copy_(result) if self.other(tensors) else result

    def other(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the result is another one than a row-major tensor of the kernel's dtype."""
        return tensors[0].dtype != self._dtype or self._format(tensors) != torch.contiguous_format

    def empty(self, tensors: Sequence[Tensor]) -> Tensor:
        """Room for the result of these tensors: it is channels-last where the one it follows is."""
        return torch.empty(
            self.output,
            dtype=tensors[0].dtype,
            device=tensors[0].device,
            memory_format=self._format(tensors),
        )

    def _format(self, tensors: Sequence[Tensor]) -> torch.memory_format:
        if self._follows is None or tensors[self._follows].dim() not in (4, 5):
            return torch.contiguous_format
        followed = tensors[self._follows]
        shape, strides, least = followed.shape, followed.stride(), 0
        for d in (1, *range(followed.dim() - 1, 1, -1), 0):
            if (
                strides[1] == 0
                or shape[d] == 0
                or strides[d] < least
                or (d == 0 and least == strides[1])
            ):
                return torch.contiguous_format
            least = strides[d] * max(int(shape[d]), 1)
        return torch.channels_last if followed.dim() == 4 else torch.channels_last_3d


#: Dtypes that are computed in another one, as a model of syno does.
_COMPUTED_IN = {torch.float16: torch.float32}


def _find(name: str, tensors: Sequence[Tensor]) -> _Kernel:
    given = tensors[0].dtype
    if any(t.dtype != given for t in tensors):
        raise TypeError(f"{name} takes tensors of one dtype, not {[t.dtype for t in tensors]}")
    dtype = str(_COMPUTED_IN.get(given, given)).removeprefix("torch.")
    key = (name, dtype, *(tuple(t.shape) for t in tensors))
    kernel = _kernels.get(key)
    if kernel is None:
        known = sorted({k[1:] for k in _kernels if k[0] == name})
        raise ValueError(f"{name} was exported for {known}, not for {key[1:]}")
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
        return _find(name, tensors)(tensors)

    def fake(*tensors: Tensor) -> Tensor:
        return _find(name, tensors).empty(tensors)

    _library.impl(name, compute, "CPU")
    torch.library.register_fake(f"syno::{name}", fake, lib=_library)


def _tensors(value: Any) -> list[Tensor]:
    """The tensors in tuples, lists and dictionaries, in order."""
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return (
        [t for part in parts for t in _tensors(part)]
        if isinstance(value, (dict, list, tuple))
        else []
    )


def _check_cpu(directory: pathlib.Path, cpu: dict[str, Any]) -> None:
    """Raises RuntimeError where this CPU lacks instructions that the kernels use; they would end the process."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # another system: nothing is known
    flags = {w for line in text.splitlines() if line.startswith("flags") for w in line.split()}
    missing = [name for name in cpu["needs"] if name not in flags]
    if flags and missing:
        raise RuntimeError(
            f"{directory} holds machine code for {cpu['name']}; this CPU has no {', '.join(missing)}: "
            "export the model again on a machine like this one"
        )


def _shown(inputs: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{each['dtype']} {list(each['shape'])}" for each in inputs) or "no tensors"


def _checking(inputs: Sequence[dict[str, Any]]) -> Callable[..., None]:
    """A hook that refuses other inputs than those the bundle was exported for."""

    def check_inputs(module: Any, args: Any, named: Any) -> None:
        given = [
            {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape)}
            for t in _tensors([args, named])
        ]
        wanted = [{"dtype": each["dtype"], "shape": each["shape"]} for each in inputs]
        if given != wanted:
            raise ValueError(
                f"this bundle was exported for inputs {_shown(wanted)} only, the batch included, and got "
                f"{_shown(given)}: export the model again with an example of that shape"
            )

    return check_inputs


def load(directory: str | pathlib.Path = HERE) -> Callable[..., Any]:
    """The model, as a callable for the shapes, batch included, that it was exported with.

    Raises:
        ValueError: no bundle of this version. A call of the model: for inputs of other shapes or dtypes.
        RuntimeError: this CPU lacks instructions that the kernels use.
    """
    directory = pathlib.Path(directory)
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    if manifest.get("format") != "syno-bundle" or manifest.get("version") != 3:
        raise ValueError(f"{directory} holds no bundle of version 3")
    _check_cpu(directory, manifest["cpu"])
    for entry in manifest["kernels"]:
        shapes = tuple(tuple(shape) for shape in entry["inputs"])
        key = (entry["operator"], entry["dtype"], *shapes)
        _kernels[key] = _Kernel(directory, entry)
        _register(entry["operator"], entry["schema"])
    module = torch.export.load(directory / "model.pt2").module()
    hook = _checking(manifest["inputs"])
    module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
    return module


def read_safetensors(path: str | pathlib.Path) -> dict[str, Tensor]:
    """Tensors of a safetensors file: a length, a JSON header, then the values."""
    data = bytearray(pathlib.Path(path).read_bytes())
    length = int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8 : 8 + length]))
    types = {
        "F32": torch.float32,
        "F64": torch.float64,
        "F16": torch.float16,
        "BF16": torch.bfloat16,
        "I64": torch.int64,
        "I32": torch.int32,
        "I16": torch.int16,
        "I8": torch.int8,
        "U8": torch.uint8,
        "BOOL": torch.bool,
    }
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + n for n in entry["data_offsets"])
            flat = torch.frombuffer(data[begin:end], dtype=types[entry["dtype"]])
            tensors[name] = flat.reshape(entry["shape"]).clone()
    return tensors


def _structured(content: Any, values: Sequence[Tensor]) -> Any:
    ((kind, inner),) = content.items()
    if kind == "tensor":
        return values[inner]
    if kind == "value":
        return inner
    if kind == "dict":
        return {name: _structured(each, values) for name, each in inner.items()}
    made = [_structured(each, values) for each in inner]
    return tuple(made) if kind == "tuple" else made


def check(directory: str | pathlib.Path = HERE) -> None:
    """Runs the model on the test vector and leaves what it returns in `result.pt`."""
    directory = pathlib.Path(directory)
    vector = read_safetensors(directory / "test_vector.safetensors")
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    inputs = [
        vector[f"input{i}"].to(memory_format=getattr(torch, entry["format"]))
        for i, entry in enumerate(manifest["inputs"])
    ]
    args, named = _structured(manifest["call"], inputs)
    with torch.no_grad():
        torch.save(load(directory)(*args, **named), directory / "result.pt")
