"""What one call costs beside the work: a kernel that adds one to eight numbers, called in every way.

python benchmarks/overhead.py --json
"""

from __future__ import annotations

import argparse
import json

import msgspec
import numpy as np
import torch

import syno
from syno.support.machine import describe_machine
from syno.timing.bench import Comparison, measure
from syno.torch import as_function


def contestants() -> dict[str, object]:
    """Functions of no arguments by name; the first is PyTorch's own addition."""
    operator = syno.Operator.parse("y[i] = x[i] + 1", i=8, weights=[])
    kernel = operator.compile()
    x = torch.zeros(8)
    watched = torch.zeros(8, requires_grad=True)
    array, out = np.zeros(8, np.float32), np.zeros(8, np.float32)
    pointers = [array.ctypes.data, out.ctypes.data]
    function = as_function(operator)
    module = syno.nn.Op(operator)
    library = torch.library.Library("syno_overhead", "DEF")
    library.define("empty(Tensor x) -> Tensor")
    library.impl("empty", lambda t: t.new_empty(8), "CPU")
    empty = torch.ops.syno_overhead.empty.default
    contestants.library = library  # the operator lives as long as its library

    def without_gradients(call):
        def run():
            with torch.inference_mode():
                return call(x)

        return run

    return {
        "x + 1 in PyTorch": lambda: x + 1,
        "kernel, addresses": lambda: kernel.call_pointers(pointers, 1),
        "kernel, NumPy, out given": lambda: kernel(array, out=out),
        "kernel, NumPy": lambda: kernel(array),
        "kernel, torch tensor": lambda: kernel(x),
        "empty torch.library operator": lambda: empty(x),
        "torch.ops.syno": lambda: function(x),
        "torch.ops.syno, input with gradient": lambda: function(watched),
        "syno.nn.Op": lambda: module(x),
        "syno.nn.Op, inference mode": without_gradients(module),
    }


def main() -> None:
    """Prints a table, or one JSON document with `--json`."""
    import syno.nn  # noqa: F401

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    timings = measure(contestants(), turns=options.turns)
    result = Comparison(tuple(timings), describe_machine())
    print(json.dumps(msgspec.to_builtins(result.to_dict()), indent=1) if options.json else result)


if __name__ == "__main__":
    main()
