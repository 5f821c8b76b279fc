"""Triton: an operator, or the operators of a model with their weights, as files of kernels for forward and gradients.

`loader.py` in the directory needs torch and Triton only. What was written is run there, in a process without syno: on the GPU where
there is one, else in Triton's interpreter.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from syno import _core
from syno.errors import FormatError
from syno.export import loader_template
from syno.export.c_source import expected_values
from syno.export.check import Call, example_arrays
from syno.export.places import around, reached
from syno.gpu.models import DEFAULT, GpuModel, gpu_named
from syno.gpu.operators import Code
from syno.gpu.texts import no_triton
from syno.kernels.kernel import APART
from syno.operators.operator import Operator
from syno.torch.native import TORCH

_TIMEOUT_S = 1800
_TEMPLATE = Path(__file__).with_name("triton_template.py")
_IMPORT = "from syno.export.loader_template import read_safetensors\n"

#: Dtypes that Triton text is made for, and by how much its results may differ, of the largest value.
_LIMITS = {**APART, "float16": 2.0**-9}


@dataclass(frozen=True)
class _Place:
    """An operator at one shape of its inputs."""

    site: str
    operator: Operator
    dtype: str
    tensors: dict[str, Tensor]
    """All inputs."""
    data: tuple[str, ...]
    around: tuple[str, ...] = ()

    @property
    def weights(self) -> list[str]:
        return [name for name in self.tensors if name not in self.data]


def write(
    what: Operator | nn.Module,
    directory: Path,
    call: Call | None,
    dtype: str,
    gpu: str = DEFAULT,
) -> tuple[str, float]:
    """Writes the files and has `loader.py` check them in a new process."""
    from safetensors.torch import save

    if missing := no_triton():
        raise FormatError(f"[export] what is written is run before it is kept: {missing}")
    model = gpu_named(gpu)
    places = list(_places(what, call, dtype))
    if not places:
        raise FormatError(
            "[export] the example reaches no operator of the model; Triton holds operators only: export the model with "
            "format='torch' or 'onnx'"
        )
    (directory / "kernels").mkdir()
    weights: dict[str, Tensor] = {}
    vector: dict[str, Tensor] = {}
    entries: dict[str, dict[str, Any]] = {}
    for place in places:
        entry = entries.setdefault(
            place.site,
            {
                "site": place.site,
                "formula": place.operator.expr,
                "data": list(place.data),
                "weights": place.weights,
                "around": list(place.around),
                "calls": [],
            },
        )
        written = _Written(place, model, directory)
        key = f"{place.site}.{len(entry['calls'])}"
        vector |= {f"{key}.{name}": tensor for name, tensor in written.vector(len(vector))}
        weights |= {f"{place.site}.{n}": place.tensors[n].contiguous() for n in place.weights}
        entry["calls"].append(written.entry)
    manifest = {"format": "syno-triton", "version": 1, "gpu": model.name}
    manifest["operators"] = list(entries.values())
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    (directory / "weights.safetensors").write_bytes(save(weights))
    (directory / "test_vector.safetensors").write_bytes(save(vector))
    (directory / "loader.py").write_text(_loader(), encoding="utf-8")
    return _checked(directory)


def _places(what: Operator | nn.Module, call: Call | None, dtype: str) -> Iterator[_Place]:
    if isinstance(what, Operator):
        operator = what._one_valuation("kernels")
        kind = TORCH[dtype]
        arrays = example_arrays(operator)
        tensors = {name: torch.from_numpy(array).to(kind) for name, array in arrays.items()}
        yield _Place("operator", operator, dtype, tensors, tuple(operator.data))
        return
    assert call is not None
    for one in reached(what, call):
        name = str(one.dtype).removeprefix("torch.")
        if name not in _LIMITS:
            raise FormatError(
                f"[export] {one.site} is called on {one.dtype}: Triton kernels compute in {', '.join(_LIMITS)}"
            )
        tensors = {n: t.detach().to(one.dtype).cpu() for n, t in one.tensors.items()}
        data = tuple(n for n in one.module.operator.data if n in tensors)
        yield _Place(
            one.site, one.operator, name, tensors, data, tuple(around(one.fit, one.module))
        )


class _Written:
    """A place's kernels, in their files."""

    def __init__(self, place: _Place, gpu: GpuModel, directory: Path) -> None:
        self._place = place
        code = Code(place.operator, gpu, place.dtype)
        names = tuple(place.operator.inputs)
        self._gradients = code.gradients(names)
        self.entry = {
            "dtype": place.dtype,
            "inputs": [[name, list(place.tensors[name].shape)] for name in names],
            "outputs": [[n, list(place.operator.shapes[n])] for n in place.operator.outputs],
            "limit": _LIMITS[place.dtype],
            "forward": _file(directory, code.text.source),
            "gradients": _file(directory, self._gradients.text.source),
            "takes": [list(each) for each in self._gradients.places],
            "predicted_us": 1e6 * code.text.seconds,
        }

    def vector(self, seed: int) -> Iterator[tuple[str, Tensor]]:
        """Data, what float64 makes of them and the weights, gradients of results, and those of inputs."""
        place = self._place
        for i, name in enumerate(place.data):
            yield f"data.{i}", place.tensors[name].contiguous()
        inputs = [_wide(tensor) for tensor in place.tensors.values()]
        yield from _kept("output", _computed(place.operator, inputs))
        draw = torch.Generator().manual_seed(seed)
        shapes = [place.operator.shapes[name] for name in place.operator.outputs]
        kind = place.tensors[next(iter(place.tensors))].dtype if place.tensors else torch.float32
        cotangents = [torch.randn(shape, generator=draw).to(kind) for shape in shapes]
        for i, each in enumerate(cotangents):
            yield f"cotangent.{i}", each
        wide = [_wide(each) for each in cotangents]
        given = [(inputs if k == "input" else wide)[i] for k, i in self._gradients.places]
        yield from _kept("gradient", _computed(Operator(self._gradients.program), given))


def _wide(tensor: Tensor) -> np.ndarray[Any, Any]:
    return tensor.double().contiguous().numpy()


def _computed(operator: Operator, inputs: Sequence[np.ndarray[Any, Any]]) -> list[Any]:
    return list(expected_values(operator, dict(zip(operator.inputs, inputs, strict=True)), ()))


def _kept(kind: str, arrays: Sequence[Any]) -> Iterator[tuple[str, Tensor]]:
    for i, array in enumerate(arrays):
        wide = np.array(array, dtype=np.float64, order="C")
        yield f"{kind}.{i}", torch.from_numpy(wide)


def _file(directory: Path, source: str) -> str:
    """A file of kernels, by what is in it."""
    name = f"kernels/k{_core.hash_bytes(source.encode())}.py"
    (directory / name).write_text(source, encoding="utf-8")
    return name


def _loader() -> str:
    """The template, and in the place of its import the reader of safetensors that bundles of torch have."""
    reader = "\n" + inspect.getsource(loader_template.read_safetensors)
    return _TEMPLATE.read_text("utf-8").replace(_IMPORT, reader, 1)


def _checked(directory: Path) -> tuple[str, float]:
    """Runs `loader.py` where syno cannot be imported."""
    script = (
        "import sys, runpy; sys.modules['syno'] = None; sys.dont_write_bytecode = True; "
        "runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script, str(directory / "loader.py")],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FormatError(
            f"[export] the kernels were not checked within {_TIMEOUT_S} s: give an example of smaller shapes"
        ) from error
    said = done.stdout.strip().splitlines()
    if done.returncode != 0 or not said:
        reason = (done.stderr.strip() or "no message").splitlines()[-1]
        raise FormatError(f"[export] the exported kernels do not pass their check: {reason}")
    _, error_seen, _, where = said[-1].split(" ", 3)
    return f"forward and gradients run by {where} in a process without syno", float(error_seen)
