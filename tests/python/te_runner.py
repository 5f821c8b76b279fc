"""Runs emitted TVM tensor expressions; started by test_emit.py with an interpreter that has TVM.

Reads JSON lines ``{"text", "inputs": [{"shape", "data"}], "outputs": [[extent, ...]]}`` from standard input and
writes one JSON line of output arrays (flat) for each.
"""

from __future__ import annotations

import json
import sys
import types

import numpy as np
import tvm
from tvm import te


def run(case: dict) -> list[list[float]]:
    module = types.ModuleType("emitted")
    exec(compile(case["text"], "emitted", "exec"), module.__dict__)
    inputs, outputs = module.build()
    function = te.create_prim_func([*inputs, *outputs])
    compiled = tvm.compile(tvm.IRModule({"main": function}), target="llvm")
    arrays = [np.array(i["data"], module.DTYPE).reshape(i["shape"]) for i in case["inputs"]]
    for shape, data in module.CONSTANTS.values():
        arrays.append(np.array(data, module.DTYPE).reshape(shape))
    results = [np.zeros(shape, module.DTYPE) for shape in case["outputs"]]
    tensors = [tvm.runtime.tensor(a) for a in [*arrays, *results]]
    compiled["main"](*tensors)
    return [t.numpy().ravel().tolist() for t in tensors[len(arrays) :]]


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)
