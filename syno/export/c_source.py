"""C: the kernel of an operator as an object with a header, a test vector, and a short main that checks itself.

The operators of a model are in :mod:`syno.export.c_network`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from syno.export.linking import Interface, Toolchain, link_library, vector_check
from syno.kernels.kernel import APART, DTYPES, Kernel
from syno.kernels.targets import KernelObject, Target, compile_object
from syno.operators.operator import Operator

if TYPE_CHECKING:
    from torch import nn

    from syno.export.check import Call

_HEADER = """\
/* {expr}
 *
 * {shapes}
 *
 * For these shapes only. Machine code for {cpu}; one thread, reentrant, no library needed.
 * Link op.o, or libop.so; `{compiler} main.c op.o -lm -o main && ./main` checks it.
 */
#ifndef SYNO_OP_H
#define SYNO_OP_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {{
#endif

#define SYNO_OP_WORKSPACE_BYTES {workspace}
{conversions}
typedef void syno_body(void* context, int64_t begin, int64_t end, void* private_memory);
typedef void syno_parallel(void* pool, syno_body* body, void* context, int64_t count);

/* The kernel: arguments are row-major buffers, inputs then outputs; workspace is 64-byte aligned memory of
 * SYNO_OP_WORKSPACE_BYTES; a null parallel computes in the caller. */
void {symbol}(void* const* arguments, void* workspace, syno_parallel* parallel, void* pool);

/* Computes {outputs}; 0, or -1 when there is no memory for the workspace. */
static inline int syno_op({parameters}) {{
  void* arguments[] = {{{arguments}}};
  void* workspace = NULL;
  if (SYNO_OP_WORKSPACE_BYTES > 0 && !(workspace = aligned_alloc(64, SYNO_OP_WORKSPACE_BYTES))) return -1;
  {symbol}(arguments, workspace, NULL, NULL);
  free(workspace);
  return 0;
}}

#ifdef __cplusplus
}}
#endif
#endif
"""

#: The check of kernels of this process without a C compiler.
NO_COMPILER = "kernel run against the reference (no C compiler here to link main.c)"

CONVERSIONS = """
/* A bfloat16 is the upper half of a float. */
static inline float syno_from_bfloat16(uint16_t half) {
  const uint32_t word = (uint32_t)half << 16;
  float value;
  memcpy(&value, &word, sizeof value);
  return value;
}

/* Rounds to nearest, ties to even; a NaN stays one. */
static inline uint16_t syno_to_bfloat16(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof word);
  if (value != value) return (uint16_t)(word >> 16 | 0x40);
  return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}
"""

_MAIN = """\
/* Runs the operator on test_vector.bin and compares: {compiler} main.c op.o -lm -o main && ./main */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "op.h"
{before_main}
int main(void) {{
{first}  static const size_t sizes[] = {{{sizes}}};
  {type}* buffers[{count}];
  FILE* file = fopen("test_vector.bin", "rb");
  if (!file) return perror("test_vector.bin"), 2;
  for (int i = 0; i < {count}; ++i) {{
    buffers[i] = malloc(sizes[i] * sizeof({type}));
    if (!buffers[i] || fread(buffers[i], sizeof({type}), sizes[i], file) != sizes[i]) return 2;
  }}
  fclose(file);
{results}
  if (syno_op({call}) != 0) return 2;
  double worst = 0, scale = 0;
{comparisons}
  printf("max_abs_err %.9g of values up to %.9g\\n", worst, scale);
  return worst <= {tolerance} * scale ? 0 : 1;
}}
"""

_COMPARISON = """\
  for (size_t i = 0; i < sizes[{expected}]; ++i) {{
    worst = fmax(worst, fabs((double){value}(result{number}[i]) - (double){value}(buffers[{expected}][i])));
    scale = fmax(scale, fabs((double){value}(buffers[{expected}][i])));
  }}"""


def write(
    what: Operator | nn.Module,
    directory: Path,
    call: Call | None,
    dtype: str,
    target: Target | None = None,
) -> tuple[str, float]:
    """Writes the files; compiles and runs `main.c` where there are the tools for it."""
    if not isinstance(what, Operator):
        from syno.export.c_network import write as write_network

        assert call is not None
        return write_network(what, directory, call, type(what).__name__, target)
    operator = what._one_valuation("buffers")
    kernel = kernel_for(operator, dtype, target)
    interface = Interface.of(kernel)
    (directory / "op.o").write_bytes(kernel.object_bytes())
    (directory / "op.h").write_text(_header(operator, interface, target), encoding="utf-8")
    (directory / "main.c").write_text(_main(interface, target), encoding="utf-8")
    (directory / "op.json").write_text(operator.to_json(), encoding="utf-8")
    worst = _write_vector(operator, kernel, directory / "test_vector.bin")
    tools = Toolchain.of(target)
    if tools.compiler is not None:
        link_library(kernel, directory / "libop.so", tools.compiler)
    words, said = tools.check(directory, ["op.o"])
    return checked_words("main.c", words, target), float(said.split()[1]) if said else worst


def kernel_for(operator: Operator, dtype: str, target: Target | None) -> Kernel | KernelObject:
    """A kernel of this process, or for a target."""
    if target is None:
        return operator.compile(dtype)
    return compile_object(operator, target, dtype=dtype)


def checked_words(program: str, words: str, target: Target | None) -> str:
    """The check that was made, for people."""
    if target is None:
        return f"{program} {words}" if words else NO_COMPILER
    if words.endswith("run") or " run by " in words:
        return f"{program} {words}"
    return (
        f"the loop nest run on this machine against the reference, the code for {target.name} not run"
        + (f"; {program} {words}" if words else " (no C compiler for it here)")
    )


def _write_vector(operator: Operator, kernel: Any, path: Path) -> float:
    """Inputs and the reference's outputs; returns how far the kernel is from the latter."""
    from syno.export.check import compare, example_arrays

    dtype = DTYPES[kernel.dtype]
    arrays = {name: array.astype(dtype) for name, array in example_arrays(operator).items()}
    got = kernel(*arrays.values())
    results = got if isinstance(got, tuple) else (got,)
    expected = expected_values(operator, arrays, results)
    with path.open("wb") as out:
        for array in (*arrays.values(), *expected):
            out.write(np.ascontiguousarray(array, dtype).tobytes())
    return compare("kernel", list(results), list(expected), APART[kernel.dtype])


def expected_values(
    operator: Operator, arrays: dict[str, Any], results: Sequence[Any]
) -> list[np.ndarray[Any, Any]]:
    """The interpreter's values; where that would take minutes, a float64 kernel's, also verified."""
    if operator.flops < 20_000_000:
        values = operator.reference(*arrays.values())
    else:
        wide = [array.astype(np.float64) for array in arrays.values()]
        values = operator.compile(dtype="float64")(*wide)
    if isinstance(values, dict):
        return [values[name] for name in operator.outputs]
    return list(values) if isinstance(values, tuple) else [values]


def c_type(dtype: str) -> str:
    return {"float32": "float", "float64": "double", "bfloat16": "uint16_t"}[dtype]


CROSS_COMPILER = "aarch64-linux-gnu-gcc -static -O1"


def compiler_for(target: Target | None) -> str:
    """As the comments of exported files call it."""
    return "cc -O2" if target is None or target.cpu.runs_here else CROSS_COMPILER


def _header(operator: Operator, interface: Interface, target: Target | None) -> str:
    from syno.export import cpu_text

    kind = c_type(interface.dtype)
    names = c_names(interface)
    tensors = [*interface.inputs, *interface.outputs]
    shapes = "\n * ".join(
        f"{name}: {kind}{''.join(f'[{n}]' for n in shape)}"
        for name, (_, shape) in zip(names, tensors, strict=True)
    )
    count = len(interface.inputs)
    parameters = [f"const {kind}* {name}" for name in names[:count]]
    parameters += [f"{kind}* {name}" for name in names[count:]]
    return _HEADER.format(
        expr=operator.expr.strip().replace("*/", "* /").replace("\n", "\n * "),
        shapes=shapes,
        cpu=cpu_text(target),
        compiler=compiler_for(target),
        workspace=interface.workspace_bytes,
        conversions=CONVERSIONS if interface.dtype == "bfloat16" else "",
        symbol=interface.symbol,
        outputs=", ".join(names[count:]),
        parameters=", ".join(parameters),
        arguments=", ".join(f"(void*){name}" for name in names),
    )


def c_names(interface: Interface) -> list[str]:
    """Argument names; the position is appended to those that C could misread."""
    reserved = {"arguments", "workspace", "int", "float", "double", "for", "if", "do", "char"}
    names = [name for name, _ in (*interface.inputs, *interface.outputs)]
    return [f"{n}_{i}" if n in reserved or len(n) > 8 else n for i, n in enumerate(names)]


def _main(interface: Interface, target: Target | None) -> str:
    before_main, first = vector_check(target)
    kind = c_type(interface.dtype)
    tensors = [*interface.inputs, *interface.outputs]
    count = len(interface.inputs)
    results = "\n".join(
        f"  {kind}* result{i} = malloc(sizes[{count + i}] * sizeof({kind}));"
        for i in range(len(interface.outputs))
    )
    call = [f"buffers[{i}]" for i in range(count)]
    call += [f"result{i}" for i in range(len(interface.outputs))]
    value = "syno_from_bfloat16" if interface.dtype == "bfloat16" else ""
    comparisons = "\n".join(
        _COMPARISON.format(expected=count + i, number=i, value=value)
        for i in range(len(interface.outputs))
    )
    return _MAIN.format(
        compiler=compiler_for(target),
        before_main=before_main,
        first=first,
        sizes=", ".join(str(int(np.prod(shape, dtype=np.int64))) for _, shape in tensors),
        type=kind,
        count=len(tensors),
        results=results,
        call=", ".join(call),
        comparisons=comparisons,
        tolerance=APART[interface.dtype],
    )
