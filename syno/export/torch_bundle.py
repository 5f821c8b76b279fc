"""PyTorch without LLVM: a directory with the model's graph, its kernels as shared libraries, a loader.

`loader.py` in it needs torch only; `loader.load()` returns the model for the example's shapes, batch included, on
CPUs that have the instructions of this one. `manifest.json` says both, and the loader before it computes.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from syno import _core
from syno.errors import FormatError
from syno.export.check import (
    Call,
    as_module,
    call_of,
    compare,
    operators_in,
    write_weights,
)
from syno.export.linking import Interface, instructions, link_library
from syno.kernels.kernel import compile
from syno.operators.operator import Operator
from syno.support.inputs import plain
from syno.torch.layouts import memory_format
from syno.torch.native import Shapes, shapes_of
from syno.torch.ops import OperatorFunction, as_function, computed_in

_TIMEOUT_S = 300
_TEMPLATE = Path(__file__).with_name("loader_template.py")


def write(
    what: Operator | nn.Module, directory: Path, call: Call | None, dtype: str
) -> tuple[str, float]:
    """Writes the bundle and runs it in a new process that may not import syno."""
    from safetensors.torch import save

    model = as_module(what, dtype)
    args, named = call_of(what, call, dtype)
    tensors: list[Tensor] = []
    try:
        structure = plain([list(args), named], tensors)
    except TypeError as error:
        raise FormatError(
            f"[export] the example cannot be kept with the bundle: {error}"
        ) from error
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            expected = model(*args, **named)
            program = torch.export.export(model, args, named or None, strict=False)
    except FormatError:
        raise
    except Exception as error:  # whatever torch.export meets in the user's model is the reason
        raise FormatError(
            "[export] torch.export cannot take this model: "
            f"{str(error).strip().splitlines()[0]}. format='safetensors' needs no graph"
        ) from error
    finally:
        model.train(was)
    functions = {
        as_function(module.operator).name: as_function(module.operator)
        for _, module in operators_in(model)
    }
    kernels = [
        _write_kernel(functions[name], computed, shapes, directory)
        for name, computed, shapes in sorted(set(_calls(program.graph_module, functions)))
    ]
    graph = io.BytesIO()  # torch ends the process when it cannot write a file
    torch.export.save(program, graph)
    (directory / "model.pt2").write_bytes(graph.getbuffer())
    write_weights(model, directory / "weights.safetensors")
    for name, module in operators_in(model):
        path = directory / "operators" / f"{name or 'operator'}.json"
        module.operator.save(path)
    manifest = {
        "format": "syno-bundle",
        "version": 3,
        "cpu": {"name": _core.host_cpu().name, "needs": instructions()},
        "inputs": [_input(x) for x in tensors],
        "call": structure,
        "kernels": kernels,
    }
    (directory / "manifest.json").write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    (directory / "loader.py").write_text(_TEMPLATE.read_text("utf-8"), encoding="utf-8")
    vector = {f"input{i}": x.detach().contiguous() for i, x in enumerate(tensors)}
    (directory / "test_vector.safetensors").write_bytes(save(vector))
    got = _run_elsewhere(directory)
    return "loaded and run in a process without syno", compare("bundle", got, expected)


def _input(x: Tensor) -> dict[str, Any]:
    return {
        "dtype": str(x.dtype).removeprefix("torch."),
        "shape": list(x.shape),
        "format": str(memory_format(x)).removeprefix("torch."),
    }


def _calls(
    graph: torch.fx.GraphModule, functions: dict[str, OperatorFunction]
) -> Iterator[tuple[str, str, Shapes]]:
    """Every operator call of the graph: the operator, the dtype it computes in, the shapes of its arguments."""
    for node in graph.graph.nodes:
        name = getattr(node.target, "_schema", None)
        short = name.name.removeprefix("syno::") if name is not None else ""
        if short in functions:
            values = [argument.meta["val"] for argument in node.args]
            dtype = computed_in(values[0].dtype)
            if dtype is None:
                raise FormatError(
                    f"[export] {short} is called on {values[0].dtype}: no kernel computes in it"
                )
            yield short, dtype, shapes_of(values)


def _write_kernel(
    function: OperatorFunction, dtype: str, shapes: Shapes, directory: Path
) -> dict[str, Any]:
    operator = function.operator_for(shapes)
    kernel = compile(operator, dtype=dtype)
    library = f"kernels/{kernel.key}.so"
    link_library(kernel, directory / library)
    interface = Interface.of(kernel)
    return {
        "operator": function.name,
        "schema": function.schema,
        "library": library,
        "symbol": interface.symbol,
        "workspace_bytes": interface.workspace_bytes,
        "dtype": dtype,
        "takes": [function.inputs.index(name) for name in operator.inputs],
        "follows": function.follows,
        "inputs": [list(shape) for shape in shapes],
        "output": list(interface.outputs[0][1]),
    }


def _run_elsewhere(directory: Path) -> Any:
    """The outputs of the bundle on its test vector, in a process where syno cannot be imported."""
    script = (
        "import sys; sys.modules['syno'] = None; sys.path.insert(0, sys.argv[1]); "
        "import loader; loader.check(sys.argv[1])"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, str(directory)],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise FormatError(f"[export] the bundle did not run within {_TIMEOUT_S} s") from error
    result = directory / "result.pt"
    if done.returncode != 0 or not result.exists():
        reason = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise FormatError(f"[export] the bundle does not run on its own: {reason}")
    try:
        return torch.load(result, weights_only=True)
    finally:
        result.unlink()
        for cached in directory.glob("__pycache__/*"):
            cached.unlink()
        if (directory / "__pycache__").exists():
            (directory / "__pycache__").rmdir()
