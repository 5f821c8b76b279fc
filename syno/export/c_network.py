"""C for the operators of a network: one function for each place, its trained weights, and a main that checks all.

The other layers of the network have no C form: who builds the whole in C calls these functions in their places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from syno.errors import FormatError
from syno.export.c_source import (
    CONVERSIONS,
    c_names,
    c_type,
    checked_words,
    compiler_for,
    expected_values,
    kernel_for,
)
from syno.export.check import Call, compare
from syno.export.linking import Interface, Toolchain, vector_check
from syno.export.places import Reached, around, reached
from syno.kernels.kernel import APART, DTYPES, Kernel
from syno.kernels.targets import KernelObject, Target
from syno.operators.operator import Operator
from syno.torch.layers import Fit
from syno.torch.module import Op
from syno.torch.ops import computed_in

_ALIGNMENT = 64

_HEADER = """\
/* The operators of {about}, one function for each place in the network; the network's other layers are not in it.
 *
 * For the shapes below only, the batch included. Machine code for {cpu}; one thread, reentrant, no library needed.
 * Weights are in weights.bin at the offsets (bytes) below. `{compiler} main.c kernels/*.o -lm -o main && ./main`
 * runs every function on test_vector.bin.
 */
#ifndef SYNO_NETWORK_H
#define SYNO_NETWORK_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {{
#endif
{conversions}
typedef void syno_body(void* context, int64_t begin, int64_t end, void* private_memory);
typedef void syno_parallel(void* pool, syno_body* body, void* context, int64_t count);

{layers}
#ifdef __cplusplus
}}
#endif
#endif
"""

_LAYER = """\
/* {site}: {expr}
 *
{shapes}{around}
 */
{offsets}void {symbol}(void* const* arguments, void* workspace, syno_parallel* parallel, void* pool);
static inline int {function}({parameters}) {{
  void* arguments[] = {{{arguments}}};
  void* workspace = NULL;
  if ({workspace} > 0 && !(workspace = aligned_alloc(64, {workspace}))) return -1;
  {symbol}(arguments, workspace, NULL, NULL);
  free(workspace);
  return 0;
}}
"""

_MAIN = """\
/* Runs every operator of the network on test_vector.bin:
 * {compiler} main.c kernels/*.o -lm -o main && ./main */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "network.h"
{before_main}
static char* read_file(const char* name, size_t size) {{
  char* data = aligned_alloc({alignment}, size);
  FILE* file = fopen(name, "rb");
  if (!data || !file || fread(data, 1, size, file) != size) return perror(name), exit(2), data;
  fclose(file);
  return data;
}}

static double widest;

#define COMPARE(type, value, site, got, expected, count, tolerance)                   \\
  {{                                                                                   \\
    double worst = 0, scale = 0;                                                      \\
    for (size_t i = 0; i < (count); ++i) {{                                            \\
      worst = fmax(worst, fabs((double)value((got)[i]) - (double)value((expected)[i]))); \\
      scale = fmax(scale, fabs((double)value((expected)[i])));                        \\
    }}                                                                                 \\
    printf("%s: max_abs_err %.9g of values up to %.9g\\n", site, worst, scale);        \\
    if (!(worst <= (tolerance) * scale)) failed = 1;                                  \\
    widest = fmax(widest, worst);                                                     \\
  }}

int main(void) {{
{first}  int failed = 0;
  char* weights = read_file("weights.bin", {weights});
  char* vector = read_file("test_vector.bin", {vector});
{calls}
  printf("max_abs_err %.9g\\n", widest);
  return failed;
}}
"""

_CALL = """\
  {{
    {type}* result = malloc({count} * sizeof({type}));
    if (!result || {function}({arguments}) != 0) return 2;
    COMPARE({type}, {value}, "{site}", result, (const {type}*)(vector + {expected}), {count}, {tolerance})
    free(result);
  }}"""


class _File:
    """Values one after the other, each at a multiple of 64 bytes."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, array: np.ndarray[Any, Any]) -> int:
        """Where it begins."""
        self.data += b"\0" * (-len(self.data) % _ALIGNMENT)
        begin = len(self.data)
        self.data += np.ascontiguousarray(array).tobytes()
        return begin

    def write(self, path: Path) -> int:
        """Its size, greater than 0."""
        self.data += b"\0" * (-len(self.data) % _ALIGNMENT or _ALIGNMENT * (not self.data))
        path.write_bytes(self.data)
        return len(self.data)


@dataclass
class _Place:
    """An operator at one shape of its input."""

    site: str
    function: str
    module: Op
    operator: Operator
    kernel: Kernel | KernelObject
    arrays: dict[str, np.ndarray[Any, Any]]
    fit: Fit | None
    offsets: dict[str, int] = field(default_factory=dict)
    """Of weights, in bytes; of the bias under "bias"."""
    vector: dict[str, int] = field(default_factory=dict)
    """Of the test's data and result, in bytes."""

    @property
    def weights(self) -> tuple[str, ...]:
        return tuple(n for n in self.operator.inputs if n not in self.module.operator.data)


def write(
    model: nn.Module, directory: Path, call: Call, about: str, target: Target | None = None
) -> tuple[str, float]:
    """Writes the files; compiles and runs `main.c` where there are the tools for it."""
    places = _places(model, call, target)
    if not places:
        raise FormatError(
            "[export] the example reaches no operator of the model; C holds operators only: export the model with "
            "format='torch' or 'onnx'"
        )
    weights, vector = _File(), _File()
    worst = max(_fill(place, weights, vector) for place in places)
    (directory / "kernels").mkdir()
    for kernel in {place.kernel.key: place.kernel for place in places}.values():
        (directory / "kernels" / f"{kernel.key}.o").write_bytes(kernel.object_bytes())
    sizes = weights.write(directory / "weights.bin"), vector.write(directory / "test_vector.bin")
    (directory / "network.h").write_text(_header(places, about, target), encoding="utf-8")
    (directory / "main.c").write_text(_main(places, *sizes, target), encoding="utf-8")
    layers = json.dumps([_described(place) for place in places], indent=1)
    (directory / "layers.json").write_text(layers, encoding="utf-8")
    objects = sorted(f"kernels/{path.name}" for path in (directory / "kernels").iterdir())
    words, said = Toolchain.of(target).check(directory, objects)
    program = f"main.c with {len(places)} functions"
    return checked_words(program, words, target), float(said.split()[-1]) if said else worst


def _places(model: nn.Module, call: Call, target: Target | None) -> list[_Place]:
    """Every operator that the call reaches, at every shape of its input."""
    functions: set[str] = set()
    places = []
    for one in reached(model, call):
        plain = "syno_" + (re.sub(r"\W", "_", one.name) or "operator")
        function = next(n for n in _numbered(plain) if n not in functions)
        functions.add(function)
        places.append(_place(function, one, target))
    return places


def _numbered(name: str) -> Any:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _place(function: str, one: Reached, target: Target | None) -> _Place:
    dtype = computed_in(one.dtype)
    if dtype is None:
        raise FormatError(f"[export] {one.site} is called on {one.dtype}: no kernel computes in it")
    kernel = kernel_for(one.operator, dtype, target)
    arrays = {name: _array(tensor, dtype) for name, tensor in one.tensors.items()}
    return _Place(one.site, function, one.module, one.operator, kernel, arrays, one.fit)


def _array(tensor: Tensor, dtype: str) -> np.ndarray[Any, Any]:
    wide = torch.float64 if dtype == "float64" else torch.float32
    return tensor.detach().to(wide).contiguous().numpy().astype(DTYPES[dtype])


def _fill(place: _Place, weights: _File, vector: _File) -> float:
    """Puts the values into the files; how far the kernel is from the reference."""
    got = place.kernel(*place.arrays.values())
    results = got if isinstance(got, tuple) else (got,)
    wanted = expected_values(place.operator, place.arrays, results)
    dtype = DTYPES[place.kernel.dtype]
    for name, array in place.arrays.items():
        if name in place.weights:
            place.offsets[name] = weights.add(array)
        else:
            place.vector[name] = vector.add(array)
    if place.module.bias is not None:
        place.offsets["bias"] = weights.add(_array(place.module.bias, place.kernel.dtype))
    place.vector[place.operator.outputs[0]] = vector.add(np.asarray(wanted[0]).astype(dtype))
    return compare(place.site, list(results), list(wanted), APART[place.kernel.dtype])


def _header(places: Sequence[_Place], about: str, target: Target | None) -> str:
    from syno.export import cpu_text

    bfloat = any(place.kernel.dtype == "bfloat16" for place in places)
    return _HEADER.format(
        about=_comment(about),
        cpu=cpu_text(target),
        compiler=compiler_for(target),
        conversions=CONVERSIONS if bfloat else "",
        layers="\n".join(map(_layer, places)),
    )


def _comment(text: str) -> str:
    return " ".join(text.split()).replace("*/", "* /")


def _macro(place: _Place, name: str) -> str:
    return f"{place.function}_{name}".upper()


def _layer(place: _Place) -> str:
    interface = Interface.of(place.kernel)
    kind, names = c_type(interface.dtype), c_names(interface)
    tensors = [*interface.inputs, *interface.outputs]
    shapes = [
        f" *   {name}: {kind}{''.join(f'[{n}]' for n in shape)}"
        + (f", in weights.bin at {_macro(place, own)}" if own in place.offsets else "")
        for name, (own, shape) in zip(names, tensors, strict=True)
    ]
    lines = [f" *   {line}" for line in around(place.fit, place.module)]
    count = len(interface.inputs)
    parameters = [f"const {kind}* {name}" for name in names[:count]]
    parameters += [f"{kind}* {name}" for name in names[count:]]
    return _LAYER.format(
        site=_comment(place.site),
        expr=_comment(place.operator.expr),
        shapes="\n".join(shapes),
        around="".join("\n" + line for line in lines),
        offsets="".join(
            f"#define {_macro(place, name)} {offset}\n" for name, offset in place.offsets.items()
        ),
        symbol=interface.symbol,
        function=place.function,
        parameters=", ".join(parameters),
        arguments=", ".join(f"(void*){name}" for name in names),
        workspace=interface.workspace_bytes,
    )


def _main(places: Sequence[_Place], weights: int, vector: int, target: Target | None) -> str:
    before_main, first = vector_check(target)
    calls = []
    for place in places:
        interface = Interface.of(place.kernel)
        kind = c_type(interface.dtype)
        arguments = [
            f"(const {kind}*)(weights + {_macro(place, name)})"
            if name in place.offsets
            else f"(const {kind}*)(vector + {place.vector[name]})"
            for name, _ in interface.inputs
        ]
        output, shape = interface.outputs[0]
        calls.append(
            _CALL.format(
                type=kind,
                count=int(np.prod(shape, dtype=np.int64)),
                function=place.function,
                arguments=", ".join([*arguments, "result"]),
                value="syno_from_bfloat16" if interface.dtype == "bfloat16" else "",
                site=json.dumps(place.site)[1:-1],
                expected=place.vector[output],
                tolerance=APART[interface.dtype],
            )
        )
    return _MAIN.format(
        compiler=compiler_for(target),
        before_main=before_main,
        first=first,
        alignment=_ALIGNMENT,
        weights=weights,
        vector=vector,
        calls="\n".join(calls),
    )


def _described(place: _Place) -> dict[str, Any]:
    interface = Interface.of(place.kernel)
    return {
        "site": place.site,
        "function": place.function,
        "formula": place.operator.expr,
        "dtype": interface.dtype,
        "inputs": [
            {"name": name, "shape": list(shape), "weights_bin_at": place.offsets.get(name)}
            for name, shape in interface.inputs
        ],
        "output": {"name": interface.outputs[0][0], "shape": list(interface.outputs[0][1])},
        "bias_at": place.offsets.get("bias"),
        "around": around(place.fit, place.module),
        "kernel": f"kernels/{place.kernel.key}.o",
        "symbol": interface.symbol,
    }
