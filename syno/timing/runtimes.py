"""Other runtimes for inference on a CPU, as their users run them: a network exported to ONNX once, its memory bound.

>>> [runtime.name for runtime in RUNTIMES]
['onnxruntime', 'openvino']
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from syno.support.inputs import tensors

#: Largest difference from the module's own result, over its largest value: more is another network.
_TOLERANCE = 1e-3

Array = np.ndarray[Any, Any]


class RuntimeUnavailable(RuntimeError):
    """Expected: the runtime is not installed, or cannot run this network; the text says why."""


@dataclass(frozen=True)
class Runtime:
    """One way to run a network of ONNX. `ready` gets the model's bytes, its inputs in order and the threads; it returns a
    call without arguments and what gives the first output of the last one."""

    name: str
    title: str
    needs: tuple[str, ...]
    """Modules; their packages have the same names."""
    ready: Callable[[bytes, Sequence[Array], int], tuple[Callable[[], Any], Callable[[], Array]]]

    @property
    def missing(self) -> str:
        """What is to be installed, in a sentence; empty where all is there."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        if not absent:
            return ""
        verb = "is" if len(absent) == 1 else "are"
        return f"{' and '.join(absent)} {verb} not installed: pip install {' '.join(absent)}"


def running(
    runtime: Runtime,
    model: torch.nn.Module,
    args: Sequence[Any],
    named: Mapping[str, Any],
    *,
    threads: int = 1,
) -> Callable[..., Any]:
    """A call of the network in another runtime, on these inputs whatever it is given, compared with the module once.

    Args:
        model: left as it is; in evaluation mode here.
        args, named: float32, float64, integer or boolean tensors and what else the module takes.
    Raises:
        RuntimeUnavailable: the runtime is not installed, the network cannot be exported, or computes something else there.
    """
    if runtime.missing:
        raise RuntimeUnavailable(runtime.missing)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        content = _exported(model, args, named)
        with torch.no_grad():
            wanted = tensors(model(*args, **named))[0].detach().cpu().double().numpy()
    finally:
        for module, training in modes:
            module.training = training
    arrays = [np.ascontiguousarray(each.detach().cpu().numpy()) for each in tensors((args, named))]
    try:
        call, first = runtime.ready(content, arrays, threads)
        call()
        got = first()
    except Exception as error:  # of the libraries' own, without a common type
        raise RuntimeUnavailable(f"{runtime.title}: {_line(error)}") from error
    largest = max(float(np.abs(wanted).max(initial=0.0)), 1e-30)
    if (
        got.shape != wanted.shape
        or not np.abs(got - wanted).max(initial=0.0) <= _TOLERANCE * largest
    ):
        raise RuntimeUnavailable(f"{runtime.title} computes something else than the module")
    return lambda *_, **__: call()


def _exported(model: torch.nn.Module, args: Sequence[Any], named: Mapping[str, Any]) -> bytes:
    from syno.export.onnx_model import convert

    loud = logging.getLogger("torch.onnx")
    level = loud.level
    loud.setLevel(logging.ERROR)
    try:
        return bytes(convert(model, (tuple(args), dict(named))).SerializeToString())
    except Exception as error:  # whatever the exporter meets in a model is the reason
        raise RuntimeUnavailable(f"no ONNX of it: {_line(error)}") from error
    finally:
        loud.setLevel(level)


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:160]


def onnxruntime_session(content: bytes, threads: int) -> Any:
    """A model's bytes in ONNX Runtime, on so many threads of the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def openvino_request(content: bytes, threads: int) -> Any:
    """A model's bytes in OpenVINO, on so many threads of the CPU, in the precision of the network: on some CPUs its default
    is bfloat16."""
    import openvino

    core = openvino.Core()
    how = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    return core.compile_model(core.read_model(content, b""), "CPU", how).create_infer_request()


def _onnxruntime(
    content: bytes, arrays: Sequence[Array], threads: int
) -> tuple[Callable[[], Any], Callable[[], Array]]:
    import onnxruntime

    session = onnxruntime_session(content, threads)
    binding = session.io_binding()
    held = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in arrays]
    for value, tensor in zip(session.get_inputs(), held, strict=True):
        binding.bind_ortvalue_input(value.name, tensor)
    for value in session.get_outputs():
        binding.bind_output(value.name, "cpu")

    def call() -> Any:
        session.run_with_iobinding(binding)
        return held

    return call, lambda: np.asarray(binding.copy_outputs_to_cpu()[0])


def _openvino(
    content: bytes, arrays: Sequence[Array], threads: int
) -> tuple[Callable[[], Any], Callable[[], Array]]:
    import openvino

    request = openvino_request(content, threads)
    held = [openvino.Tensor(array, shared_memory=True) for array in arrays]
    for place, tensor in enumerate(held):
        request.set_input_tensor(place, tensor)

    def call() -> Any:
        request.infer()
        return held

    return call, lambda: np.array(request.get_output_tensor(0).data)


RUNTIMES = (
    Runtime("onnxruntime", "ONNX Runtime", ("onnxruntime", "onnx", "onnxscript"), _onnxruntime),
    Runtime("openvino", "OpenVINO", ("openvino", "onnx", "onnxscript"), _openvino),
)

__all__ = [
    "RUNTIMES",
    "Runtime",
    "RuntimeUnavailable",
    "onnxruntime_session",
    "openvino_request",
    "running",
]
