"""Operators as Triton kernels, forward and gradients. Needs PyTorch and Triton, nothing else.

    import loader
    operator = loader.load()       # the only one; else by name: loader.load("layer1.0.conv1"), see manifest.json
    y = operator.cuda()(x)         # shapes and dtype as in manifest.json, the batch included

What `load` returns is a module whose parameters are the operator's weights, as they were exported. Its gradients are kernels,
too, which have none themselves. `python loader.py` checks everything: on the GPU where there is one, else in Triton's interpreter on the
CPU, which TRITON_INTERPRET=1 in the environment, before Triton is imported, asks for.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from syno.export.loader_template import read_safetensors

HERE = pathlib.Path(__file__).resolve().parent
_modules: dict[str, Any] = {}


def _kernels(directory: pathlib.Path, file: str) -> Any:
    """The Python module of a file of kernels; Triton reads their source from it."""
    path = str(directory / file)
    if path not in _modules:
        spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        _modules[path] = module
    return _modules[path]


class _Code:
    """The kernels of an operator at fixed shapes."""

    def __init__(self, directory: pathlib.Path, entry: dict[str, Any]) -> None:
        self.entry, self._directory = entry, directory

    def forward(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        made: tuple[Tensor, ...] = _kernels(self._directory, self.entry["forward"]).run(*tensors)
        return made

    def gradients(
        self, cotangents: Sequence[Tensor], tensors: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """With respect to all inputs."""
        given = [(tensors if kind == "input" else cotangents)[i] for kind, i in self.entry["takes"]]
        made: tuple[Tensor, ...] = _kernels(self._directory, self.entry["gradients"]).run(*given)
        return made


class _Call(torch.autograd.Function):
    """A call of the kernels that has gradients, by kernels too."""

    @staticmethod
    def forward(ctx: Any, code: _Code, *tensors: Tensor) -> Any:
        ctx.code = code
        ctx.save_for_backward(*tensors)
        made = code.forward(tensors)
        return made if len(made) > 1 else made[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        made = ctx.code.gradients(cotangents, ctx.saved_tensors)
        needed = ctx.needs_input_grad[1:]
        return (None, *(each if need else None for each, need in zip(made, needed, strict=True)))


class TritonOperator(torch.nn.Module):
    """One operator at the shapes it was exported for."""

    def __init__(
        self, directory: pathlib.Path, entry: dict[str, Any], weights: dict[str, Tensor]
    ) -> None:
        super().__init__()
        self.entry = entry
        self._names = {name: f"{name}_" if hasattr(self, name) else name for name in weights}
        for name, values in weights.items():
            self.register_parameter(self._names[name], torch.nn.Parameter(values))
        self.codes = [_Code(directory, call) for call in entry["calls"]]

    def forward(self, *data: Tensor) -> Any:
        """The operator of its inputs that are no weights, in order."""
        code = self._code(data)
        named = dict(zip(self.entry["data"], data, strict=True))
        tensors = [
            named[name] if name in named else getattr(self, self._names[name])
            for name, _ in code.entry["inputs"]
        ]
        return _Call.apply(code, *tensors)  # type: ignore[no-untyped-call]

    def _code(self, data: Sequence[Tensor]) -> _Code:
        names = self.entry["data"]
        given = [[str(t.dtype).removeprefix("torch."), list(t.shape)] for t in data]
        known = []
        for code in self.codes:
            shapes = dict(code.entry["inputs"])
            wanted = [[code.entry["dtype"], shapes[name]] for name in names]
            if given == wanted:
                return code
            known.append(wanted)
        raise ValueError(
            f"{self.entry['site']} was exported for {names} of {known}, the batch included, and got {given}: export it "
            "again with an example of that shape"
        )


def _manifest(directory: pathlib.Path) -> dict[str, Any]:
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    if manifest.get("format") != "syno-triton" or manifest.get("version") != 1:
        raise ValueError(f"{directory} holds no Triton kernels of version 1")
    assert isinstance(manifest, dict)
    return manifest


def load(site: str = "", directory: str | pathlib.Path = HERE) -> TritonOperator:
    """An operator as a module; by the name of its place in the network where there are several.

    Raises:
        KeyError: there is no such one, or several and none is named.
        ValueError: the folder holds none of this version. A call of the module: for inputs of other shapes or dtypes.
    """
    directory = pathlib.Path(directory)
    entries = {entry["site"]: entry for entry in _manifest(directory)["operators"]}
    if not site and len(entries) == 1:
        site = next(iter(entries))
    if site not in entries:
        raise KeyError(f"{site!r} is none of {', '.join(entries)}")
    values = read_safetensors(directory / "weights.safetensors")
    weights = {name: values[f"{site}.{name}"] for name in entries[site]["weights"]}
    return TritonOperator(directory, entries[site], weights)


def _difference(got: Sequence[Tensor], wanted: Sequence[Tensor], limit: float, what: str) -> float:
    """The largest one; ValueError beyond that part of the largest value."""
    worst = 0.0
    for a, b in zip(got, wanted, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"{what} is {list(a.shape)}, not {list(b.shape)}")
        if b.numel() == 0:
            continue
        scale = b.abs().max().item()
        apart = (a.detach().cpu().double() - b).abs().max().item()
        if not apart <= limit * max(scale, 1e-30):
            raise ValueError(f"{what} differs by {apart:.1e} where values reach {scale:.1e}")
        worst = max(worst, apart)
    return worst


def check(directory: str | pathlib.Path = HERE, device: str = "cuda") -> float:
    """Runs every operator and its gradients on the test vector; the largest difference from float64.

    Raises:
        ValueError: a kernel computes something else.
    """
    directory = pathlib.Path(directory)
    vector = read_safetensors(directory / "test_vector.safetensors")
    worst = 0.0
    for entry in _manifest(directory)["operators"]:
        operator = load(entry["site"], directory).to(device)
        for number, code in enumerate(operator.codes):
            place = f"{entry['site']}.{number}"

            def kept(kind: str, place: str = place) -> list[Tensor]:
                count = sum(name.startswith(f"{place}.{kind}.") for name in vector)
                return [vector[f"{place}.{kind}.{i}"] for i in range(count)]

            data = [tensor.to(device).requires_grad_() for tensor in kept("data")]
            made = operator(*data)
            results = made if isinstance(made, tuple) else (made,)
            limit = code.entry["limit"]
            worst = max(worst, _difference(results, kept("output"), limit, place))
            cotangents = [tensor.to(device) for tensor in kept("cotangent")]
            operator.zero_grad()
            torch.autograd.backward(results, cotangents)
            named = dict(zip(entry["data"], data, strict=True))
            named |= {name: getattr(operator, own) for name, own in operator._names.items()}
            grads = [named[name].grad for name, _ in code.entry["inputs"]]
            wanted = kept("gradient")
            worst = max(worst, _difference(grads, wanted, limit, f"the gradient of {place}"))
    return worst


if __name__ == "__main__":
    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        os.environ["TRITON_INTERPRET"] = "1"
        torch.set_num_threads(1)
    where = torch.cuda.get_device_name() if on_gpu else "Triton's interpreter"
    try:
        print(f"max_abs_err {check(device='cuda' if on_gpu else 'cpu'):.9g} by {where}")
    except ValueError as error:
        sys.exit(str(error))
