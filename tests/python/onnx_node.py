"""ONNX models of one node, compiled and run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from syno import onnx_backend


def run(
    op: str,
    inputs: Sequence[Any],
    kinds: str | Sequence[str],
    *,
    known: int | None = None,
    rank: int | None = None,
    **attributes: Any,
) -> tuple[Any, ...]:
    """The results of one node.

    Args:
        inputs: arrays; None for one that is left out.
        kinds: the results' element types.
        known: inputs from this number on are constants of the model.
        rank: of the results; usually the highest of the inputs.
    """
    kinds = [kinds] if isinstance(kinds, str) else kinds
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    there = [(name, x) for name, x in zip(names, inputs, strict=True) if name]
    given = [pair for pair in there if known is None or int(pair[0][1:]) < known]
    rank = max(x.ndim for _, x in there) if rank is None else rank
    element = helper.np_dtype_to_tensor_dtype
    outputs = [
        helper.make_tensor_value_info(
            f"y{k}", element(np.dtype(kind)), [f"y{k}d{d}" for d in range(rank)]
        )
        for k, kind in enumerate(kinds)
    ]
    graph = helper.make_graph(
        [helper.make_node(op, names, [y.name for y in outputs], **attributes)],
        "g",
        [helper.make_tensor_value_info(name, element(x.dtype), x.shape) for name, x in given],
        outputs,
        [numpy_helper.from_array(x, name) for name, x in there[len(given) :]],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    results = onnx_backend.prepare(model, compiled=True).run([x for _, x in given])
    assert [str(result.dtype) for result in results] == list(kinds)
    return results
