"""C for a compiled network for ranges of sizes: as `syno.export.network_c`, with the sizes as arguments of a call."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from syno.errors import FormatError
from syno.export.c_network import _File as File
from syno.export.linking import Toolchain
from syno.export.network_c import (
    BAD_INDEX,
    LIBRARY,
    build,
    cpu_check,
    quoted,
    run_function,
    sum_of,
    tensor_row,
    write_template,
)
from syno.export.steps_c import Body, bytes_of, comment
from syno.graph import bundle
from syno.graph.bundle import Port, Step, Tensor
from syno.graph.loaded_ranged import LoadedRangedNetwork
from syno.graph.ranged_bundle import NUMBER, TEXT, Span


def write(network: LoadedRangedNetwork, directory: Path, about: str = "") -> tuple[str, float]:
    """Writes the files; compiles and runs `main.c`: the check in words, and the largest difference it saw.

    Raises:
        FormatError: there is no C compiler, the program disagrees, or a step has no form in C.
    """
    folder, manifest = network.path, network.manifest
    archive = bundle.read_file(folder, manifest, bundle.ARCHIVE)
    weights = bundle.map_file(folder, manifest, bundle.WEIGHTS)
    with (directory / bundle.WEIGHTS).open("wb") as file:
        file.write(weights)
    program = _Program(network)
    about = " ".join((about or f"The network {manifest.name}").split()).replace("*/", "* /")
    write_template(directory, "network.h", {**program.header(), "ABOUT": about})
    mark = weights[: bundle.MARK_BYTES].decode("ascii")
    marks = {"WEIGHT_MARK": mark, "WEIGHT_SUM": str(sum_of(weights))}
    write_template(directory, "network.c", {**program.source(), **marks})
    write_template(directory, "ranged_main.c", _examples(network, directory))
    (directory / "ranged_main.c").rename(directory / "main.c")
    (directory / "network.json").write_text(json.dumps(network.to_dict(), indent=1), "utf-8")
    build(directory, archive)
    words, said = Toolchain.of(None).check(directory, [LIBRARY])
    return f"main.c {words}, compared with float64 at {len(manifest.examples)} sizes", float(
        said.split()[-1]
    )


def _examples(network: LoadedRangedNetwork, directory: Path) -> dict[str, str]:
    """Writes the examples to one file, outputs as doubles; what `main.c` knows of them."""
    vector = File()
    rows: dict[str, list[Sequence[Any]]] = {"SIZES": [], "GIVEN": [], "WANTED": [], "LIMITS": []}
    for example in network.manifest.examples:
        inputs, outputs = network.at(*example.sizes).sample()
        rows["SIZES"].append(example.sizes)
        rows["GIVEN"].append([vector.add(array.reshape(-1)) for array in inputs])
        rows["WANTED"].append([vector.add(array.astype(np.float64)) for array in outputs])
        limits = [row.limit for row in example.outputs]
        rows["LIMITS"].append(["INFINITY" if each is None else repr(each) for each in limits])
    made = {
        name: ", ".join(f"{{{', '.join([*map(str, each), '0'])}}}" for each in values)
        for name, values in rows.items()
    }
    size = vector.write(directory / "test_vector.bin")
    return {**made, "VECTOR": str(size), "COUNT": str(len(network.manifest.examples))}


class _SpanBody:
    """A span as C."""

    def __init__(self, number: int, span: Span) -> None:
        self.number, self.span = number, span
        content = {key: _symbolic(value) for key, value in span.network.items()}
        self.inputs = [Port(**row) for row in content["inputs"]]
        self.outputs = [Port(**row) for row in content["outputs"]]
        tensors = [Tensor(**row) for row in content["tensors"]]
        steps = [Step(**row) for row in content["steps"]]
        self.body = Body({tensor.name: tensor for tensor in tensors}, content["arena_bytes"])
        self.steps = [self.body.step(step) for step in steps]

    def holds(self) -> str:
        """A condition on the sizes."""
        ends = enumerate(zip(self.span.least, self.span.greatest, strict=True))
        return " && ".join(
            f"sizes[{p}] >= {low} && sizes[{p}] <= {high}" for p, (low, high) in ends
        )

    def numbers(self) -> str:
        """Declares the numbers that follow the sizes."""
        rows = ", ".join(_expression(row) for row in self.span.numbers) or "0"
        return f"  const int64_t n[] = {{{rows}}};\n  (void)n;\n"

    def run(self) -> str:
        first = [self.numbers(), *self.body.first]
        return run_function(f"run_{self.number}", ", const int64_t* sizes", first, self.steps)

    def shapes(self) -> str:
        """Gives tables of tensors the shapes that they have at the sizes."""
        lines = []
        for table, ports in (("inputs", self.inputs), ("outputs", self.outputs)):
            for place, port in enumerate(ports):
                at = f"{table}[{place}]"
                lines += [f"    {at}.shape[{d}] = {n};\n" for d, n in enumerate(port.shape)]
                size = bytes_of(self.body.tensors[port.tensor].dtype, port.shape)
                lines.append(f"    {at}.bytes = (size_t)({size});\n")
        return (
            f"  if ({self.holds()}) {{\n{self.numbers()}{''.join(lines)}    return SYNO_OK;\n  }}\n"
        )


def _symbolic(node: Any) -> Any:
    """A part of a span's network, with expressions of C for numbers that follow the sizes."""
    if isinstance(node, list):
        return [_symbolic(each) for each in node]
    if isinstance(node, dict) and NUMBER in node:
        return f"n[{node[NUMBER]}]"
    if isinstance(node, dict) and TEXT in node:
        return msgspec.UNSET
    return {key: _symbolic(each) for key, each in node.items()} if isinstance(node, dict) else node


def _expression(row: Any) -> str:
    if isinstance(row, int):
        return str(row)
    if row[0] == "size":
        _, position, times, plus, by, of, beside, power = row
        inner = f"quotient({times} * sizes[{position}] + ({plus}), {by})"
        return f"{of} * {f'square({inner})' if power == 2 else inner} + ({beside})"
    how, one, other, base = row[0], *map(_expression, row[1:])
    return f"({one}) + ({other}) - ({base})" if how == "+" else f"({one}) * ({other}) / ({base})"


_FUNCTIONS = """\
/* Rounded down. */
static inline int64_t quotient(int64_t of, int64_t by) { return of / by - (of % by < 0); }
static inline int64_t square(int64_t of) { return of * of; }
"""


class _Program:
    """The network as C."""

    def __init__(self, network: LoadedRangedNetwork) -> None:
        self.network, self.manifest = network, network.manifest
        self.spans = [_SpanBody(n, span) for n, span in enumerate(self.manifest.spans)]
        for each in self.spans:
            if any(isinstance(step["attributes"], dict) for step in each.span.network["steps"]):
                raise FormatError(
                    "[export] a function of a step follows the sizes: it has no form in C"
                )
        kernels = network.at(*self.manifest.spans[-1].greatest).kernels
        self.scratch = max((sum(row[:2]) for row in kernels.values()), default=0)
        self.arena = -(-max(each.body.arena_bytes for each in self.spans) // 64) * 64
        self.functions: dict[str, str] = {}
        for each in self.spans:
            self.functions |= each.body.functions
        greatest = network.described_at(*network.ranges.greatest).manifest
        self.tensors = {tensor.name: tensor for tensor in greatest.tensors}
        self.inputs, self.outputs = greatest.inputs, greatest.outputs

    def header(self) -> dict[str, str]:
        ports = [("input", p) for p in self.inputs] + [("output", p) for p in self.outputs]
        lines = [
            f" * {kind} {comment(port.name)}: {self.tensors[port.tensor].dtype}{''.join(f'[{n}]' for n in port.shape)}"
            for kind, port in ports
        ]
        ranges = self.network.ranges
        workspace = -(-(self.arena + self.scratch) // 64) * 64
        return {
            "CPU": comment(self.network.cpu),
            "FOR": f"A network for ranges of sizes: {comment(str(ranges))}. Shapes below are those of the greatest.",
            "TENSORS": "\n".join(lines) or " *",
            "INPUTS": str(len(self.inputs)),
            "OUTPUTS": str(len(self.outputs)),
            "WORKSPACE": str(max(64, workspace)),
            "RANK": str(max([1, *(len(port.shape) for _, port in ports)])),
            "STATUSES": f",{BAD_INDEX}\n  SYNO_OTHER_SIZE = 6 /* a size is outside of its range */",
            "SIZES": f"""\
#define SYNO_SIZES {len(ranges.names)}
/* A size that calls bring along, from the least to the greatest. */
typedef struct {{
  const char* name;
  int64_t least, greatest;
}} syno_size;
extern const syno_size syno_sizes[SYNO_SIZES + 1];
/* The tables above with the shapes that tensors have at these sizes; SYNO_OTHER_SIZE where there are none. */
int syno_at(const int64_t* sizes, syno_tensor* inputs, syno_tensor* outputs);
""",
            "COMPUTES": "At sizes[0 .. SYNO_SIZES), in the order of syno_sizes, computes",
            "SIZES_GIVEN": "const int64_t* sizes, ",
        }

    def source(self) -> dict[str, str]:
        symbols = sorted(self.network.at(*self.manifest.spans[-1].greatest).kernels)
        takes = "void* const* arguments, void* workspace, syno_parallel* parallel, void* pool"
        check, includes = cpu_check(self.manifest.made_for)
        ranges = self.network.ranges
        rows = zip(ranges.names, ranges.least, ranges.greatest, strict=True)
        sizes = "".join(f"  {{{quoted(name)}, {low}, {high}}},\n" for name, low, high in rows)
        calls = "\n".join(
            f"                       : {each.holds()}\n"
            f"                           ? run_{each.number}(network->weights, inputs, outputs, workspace, sizes)"
            for each in self.spans
        )
        return {
            "CPU": comment(self.network.cpu).replace('"', ""),
            "INCLUDES": includes,
            "ARENA": str(self.arena),
            "WEIGHT_BYTES": str(self.manifest.files[bundle.WEIGHTS].bytes),
            "KERNELS": "".join(f"void {name}({takes});\n" for name in symbols),
            "INPUT_ROWS": self._rows(self.inputs),
            "OUTPUT_ROWS": self._rows(self.outputs),
            "CPU_CHECK": check,
            "FUNCTIONS": "\n".join(self.functions.values()) + "\n",
            "SIZES": f"""\
const syno_size syno_sizes[SYNO_SIZES + 1] = {{
{sizes}  {{NULL, 0, 0}}}};

{_FUNCTIONS}
int syno_at(const int64_t* sizes, syno_tensor* inputs, syno_tensor* outputs) {{
  memcpy(inputs, syno_inputs, sizeof syno_inputs);
  memcpy(outputs, syno_outputs, sizeof syno_outputs);
{"".join(each.shapes() for each in self.spans)}  return SYNO_OTHER_SIZE;
}}

""",
            "WORDS": ',\n                                      "a size is outside of its range"',
            "RUNS": "\n".join(each.run() for each in self.spans),
            "SIZES_GIVEN": "const int64_t* sizes, ",
            "RUN": f"0 ? SYNO_OK\n{calls}\n                       : SYNO_OTHER_SIZE",
        }

    def _rows(self, ports: Sequence[Port]) -> str:
        return "".join(tensor_row(port, self.tensors[port.tensor].dtype) for port in ports)


__all__ = ["write"]
