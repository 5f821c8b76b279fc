"""Nodes of known values computed while a model is imported, by the standard's own evaluator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from syno.errors import shown
from syno.graph.building import Array, NotCovered
from syno.graph.onnx_file import MOST_ELEMENTS, bad, shown_text

#: Most elements of a result that is computed while importing, and most terms of a sum of products.
MOST_FOLDED = 1 << 28
_HEAVY = {
    "Conv", "ConvTranspose", "MatMul", "Gemm", "Einsum", "LSTM", "GRU", "RNN", "Attention", "DeformConv",
    "LinearAttention", "QLinearConv", "ConvInteger", "MatMulInteger", "QLinearMatMul", "FlexAttention",
}  # fmt: skip
_MOST_HEAVY = 1 << 12


def folded(
    node: Any, arrays: Sequence[Array | None], opsets: Mapping[str, int], *, has_row: bool
) -> list[Any] | None:
    """The outputs of a node of known values by the standard's own evaluator; None where it has none, or too large."""
    total = sum(array.size for array in arrays if array is not None)
    if node.op_type in _HEAVY and total > _MOST_HEAVY:
        return None
    if total > MOST_FOLDED or size_made(node, arrays) > MOST_FOLDED:
        if size_made(node, arrays) > MOST_ELEMENTS:
            raise bad(
                f"node {shown(node.name)} ({node.op_type}) makes more than {MOST_ELEMENTS} elements"
            )
        return None
    names = [f"i{k}" if array is not None else "" for k, array in enumerate(arrays)]
    single = onnx.NodeProto()
    single.CopyFrom(node)
    del single.input[:]
    single.input.extend(names)
    outputs = [f"o{k}" if name else "" for k, name in enumerate(node.output)]
    del single.output[:]
    single.output.extend(outputs)
    function = onnx.helper.make_function(
        "syno",
        "folded",
        [name for name in names if name],
        [name for name in outputs if name],
        [single],
        [onnx.helper.make_opsetid(key, version) for key, version in opsets.items()],
    )
    feeds = {name: array for name, array in zip(names, arrays, strict=True) if array is not None}
    try:
        with np.errstate(all="ignore"):
            made = ReferenceEvaluator(function).run(None, feeds, attributes={})
    except NotImplementedError:
        return None
    except Exception as error:  # it raises whatever NumPy does
        if has_row:
            return None
        raise NotCovered(
            f"[onnx] its inputs are known, but it cannot be computed: {shown_text(error)}"
        ) from error
    results = iter(made)
    found = [next(results) if name else None for name in outputs]
    if not all(each is None or isinstance(each, (np.ndarray, np.generic)) for each in found):
        raise NotCovered(f"[onnx] {node.op_type} gives no tensor")
    return [None if each is None else np.asarray(each) for each in found]


def size_made(node: Any, arrays: Sequence[Array | None]) -> int:
    """About how many elements a node makes."""
    sizes = [array for array in arrays if array is not None]
    kind = node.op_type
    try:
        if kind in ("ConstantOfShape",) and sizes:
            return math.prod(int(n) for n in sizes[0].reshape(-1))
        if kind == "Tile" and len(sizes) > 1:
            return sizes[0].size * math.prod(int(n) for n in sizes[1].reshape(-1))
        if kind == "Expand" and len(sizes) > 1:
            return math.prod(np.broadcast_shapes(sizes[0].shape, tuple(sizes[1].tolist())))
        if kind == "Range" and len(sizes) > 2:
            start, limit, delta = (float(each.reshape(-1)[0]) for each in sizes[:3])
            return int(abs(limit - start) / abs(delta)) + 1 if delta else 0
        if kind == "OneHot" and len(sizes) > 1:
            return sizes[0].size * abs(int(sizes[1].reshape(-1)[0]))
        if kind == "Pad" and len(sizes) > 1:
            pads = np.abs(sizes[1].reshape(-1).astype(np.float64))
            return int((np.max(sizes[0].shape, initial=1) + pads.max(initial=0)) ** sizes[0].ndim)
        if kind in (
            "Resize",
            "CenterCropPad",
            "BlackmanWindow",
            "HannWindow",
            "HammingWindow",
            "MelWeightMatrix",
        ):
            last = np.abs(sizes[-1].reshape(-1).astype(np.float64))
            return int(min(np.prod(np.maximum(last, 1)) * max(1, sizes[0].size), 1 << 62))
        return math.prod(np.broadcast_shapes(*(each.shape for each in sizes)))
    except (ValueError, OverflowError, ZeroDivisionError, IndexError, TypeError):
        return 0
