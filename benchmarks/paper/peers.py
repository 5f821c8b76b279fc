"""Other systems running the original network, each the way its users would for inference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from kernelbench.peers import PEERS as PREPARED
from kernelbench.peers import Unavailable, result_array
from torch import Tensor, nn

Run = Callable[[], Any]


class Absent(RuntimeError):
    """A peer is not installed or cannot run the network; the text says what to do."""


def eager(model: nn.Module, x: Tensor, threads: int) -> Run:
    return lambda: model(x)


def channels_last(model: nn.Module, x: Tensor, threads: int) -> Run:
    last = copy.deepcopy(model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    y = x.to(memory_format=torch.channels_last)
    return lambda: last(y)


def compiled(model: nn.Module, x: Tensor, threads: int) -> Run:
    """`torch.compile` with freezing: constant weights are packed once, not in every call."""
    return _prepared("compile", model, x, threads)


def onnxruntime(model: nn.Module, x: Tensor, threads: int) -> Run:
    """ONNX Runtime on the network's ONNX export."""
    with torch.inference_mode(False):  # the exporter takes no inference tensors
        x = x.clone()
    return _prepared("onnxruntime", model, x, threads)


def _prepared(name: str, model: nn.Module, x: Tensor, threads: int) -> Run:
    peer = PREPARED[name]
    if peer.absent:
        raise Absent(peer.absent)
    try:
        return peer.prepare(model, [x], threads)[""]
    except Unavailable as reason:
        raise Absent(str(reason)) from reason


def openvino(model: nn.Module, x: Tensor, threads: int) -> Run:
    """OpenVINO in f32; left alone it would compute in bf16 where the CPU can."""
    try:
        import openvino as ov
    except ImportError:
        raise Absent("OpenVINO is not installed: pip install openvino") from None
    # From a trace, which takes seconds where the export to ONNX of a deep network takes a minute.
    converted = ov.convert_model(model, example_input=x, input=[tuple(x.shape)])
    options = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    request = ov.Core().compile_model(converted, "CPU", options).create_infer_request()
    request.set_input_tensor(ov.Tensor(x.numpy(), shared_memory=True))

    def run() -> Tensor:
        request.infer()
        return torch.from_numpy(request.get_output_tensor().data)

    return run


PEERS: dict[str, Callable[[nn.Module, Tensor, int], Run]] = {
    "eager": eager,
    "channels-last": channels_last,
    "compile": compiled,
    "onnxruntime": onnxruntime,
    "openvino": openvino,
}


def agree(name: str, run: Run, wanted: Tensor, *, tolerance: float = 2e-3) -> float:
    """The greatest difference over the greatest value. SystemExit when it is above `tolerance`."""
    value = run()
    later = getattr(run, "result", None)  # of a call that leaves its result in buffers of its own
    got = torch.as_tensor(result_array(later() if later else value))
    scale = float(wanted.abs().max()) or 1.0
    error = float((got - wanted).abs().max()) / scale
    if not error <= tolerance:
        raise SystemExit(f"{name} computes something else: relative difference {error:.1e}")
    return error
