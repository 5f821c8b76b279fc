"""The table of ONNX operators: one row each, which builds nodes (rows by kind are in the modules named here)."""

from __future__ import annotations

from syno.graph import (
    onnx_elementwise,
    onnx_host,
    onnx_layers,
    onnx_quantised,
    onnx_recurrent,
    onnx_reductions,
    onnx_resize,
    onnx_shapes,
    onnx_spectra,
)
from syno.graph.onnx_op import HOST_ROWS, ROWS, Row

__all__ = ["HOST_ROWS", "ROWS", "Row"]

_MODULES = (
    onnx_elementwise,
    onnx_host,
    onnx_layers,
    onnx_quantised,
    onnx_recurrent,
    onnx_reductions,
    onnx_resize,
    onnx_shapes,
    onnx_spectra,
)
