"""C for a whole compiled network: a header, a static library, its weights, and a program that computes an example."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from syno.errors import FormatError
from syno.export.c_network import _File as File
from syno.export.linking import Toolchain, c_compiler, run_archiver, run_compiler
from syno.export.steps_c import Body, comment
from syno.graph import bundle
from syno.graph.bundle import Port
from syno.graph.loaded import LoadedNetwork

LIBRARY = "libsyno_network.a"
_TEMPLATES = Path(__file__).with_name("templates")


def write(network: LoadedNetwork, directory: Path, about: str = "") -> tuple[str, float]:
    """Writes the files; compiles and runs `main.c`: the check in words, and the largest difference it saw.

    Raises:
        FormatError: there is no C compiler, or the program disagrees.
    """
    folder, manifest = network.path, network.manifest
    archive = bundle.read_file(folder, manifest, bundle.ARCHIVE)
    weights = bundle.map_file(folder, manifest, bundle.WEIGHTS)
    with (directory / bundle.WEIGHTS).open("wb") as file:
        file.write(weights)
    vector, places = _vector(network)
    size = vector.write(directory / "test_vector.bin")
    program = _Program(network)
    about = " ".join((about or f"The network {manifest.name}").split()).replace("*/", "* /")
    write_template(directory, "network.h", {**program.header(), "ABOUT": about})
    mark = weights[: bundle.MARK_BYTES].decode("ascii")
    marks = {"WEIGHT_MARK": mark, "WEIGHT_SUM": str(sum_of(weights))}
    write_template(directory, "network.c", {**program.source(), **marks})
    inputs, outputs = places
    limits = [
        "INFINITY" if row.limit is None else repr(row.limit) for row in manifest.sample.outputs
    ]
    numbers: dict[str, Sequence[Any]] = {"GIVEN": inputs, "WANTED": outputs, "LIMITS": limits}
    listed = {name: "".join(f"{value}, " for value in values) for name, values in numbers.items()}
    write_template(directory, "main.c", {**listed, "VECTOR": str(size)})
    (directory / "network.json").write_text(json.dumps(network.to_dict(), indent=1), "utf-8")
    build(directory, archive)
    words, said = Toolchain.of(None).check(directory, [LIBRARY])
    return f"main.c {words}, compared with float64 on the example", float(said.split()[-1])


def build(directory: Path, kernels: bytes) -> None:
    compiler = c_compiler()
    if compiler is None:
        raise FormatError(
            "[export] no C compiler (cc, gcc or clang) is installed to compile network.c with: "
            "apt-get install gcc libc6-dev"
        )
    with tempfile.TemporaryDirectory(dir=directory, prefix=".objects.") as made:
        place = Path(made)
        for name in ("network.c", "network.h"):
            shutil.copy(directory / name, place / name)
        (place / LIBRARY).write_bytes(kernels)
        run_compiler(
            compiler, ["-std=c11", "-O2", "-fPIC", "-c", "network.c", "-o", "network.o"], place
        )
        run_archiver([LIBRARY, "network.o"], place)
        (place / LIBRARY).rename(directory / LIBRARY)
        (directory / LIBRARY).chmod(0o644)


def sum_of(weights: Any) -> int:
    """As `syno_check` adds: each word of eight bytes times an odd number that says its place."""
    words, total, part = np.frombuffer(weights, "<u8"), 0, 1 << 20
    for first in range(0, len(words), part):
        some = words[first : first + part]
        places = np.arange(first, first + len(some), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        total += int((some * places).sum(dtype=np.uint64))
    return total % 2**64


def _vector(network: LoadedNetwork) -> tuple[File, tuple[list[int], list[int]]]:
    """The sample in one file, outputs as doubles; where each begins."""
    vector = File()
    inputs, outputs = network.sample()
    given = [vector.add(array.reshape(-1)) for array in inputs]
    return vector, (given, [vector.add(array.astype(np.float64)) for array in outputs])


def write_template(directory: Path, name: str, values: dict[str, str]) -> None:
    text = (_TEMPLATES / name).read_text("utf-8")
    for word, value in values.items():
        text = text.replace(f"@{word}@", value)
    (directory / name).write_text(text, encoding="utf-8")


def quoted(text: str) -> str:
    """A C string of any text."""
    plain = "".join(
        chr(byte)
        if (chr(byte).isalnum() and byte < 128) or chr(byte) in "_. -"
        else f"\\{byte:03o}"
        for byte in text.encode("utf-8")
    )
    return f'"{plain}"'


class _Program:
    """The network as C."""

    def __init__(self, network: LoadedNetwork) -> None:
        self.network, self.manifest = network, network.manifest
        self.tensors = {tensor.name: tensor for tensor in self.manifest.tensors}
        kernels = network.kernels
        used = {step.kernel for step in self.manifest.steps if step.kernel}
        self.scratch = max((sum(kernels[name][:2]) for name in used), default=0)
        body = Body(self.tensors, self.manifest.arena_bytes)
        self.steps = [body.step(step) for step in self.manifest.steps]
        self.functions = body.functions
        self.arena = -(-body.arena_bytes // 64) * 64

    def header(self) -> dict[str, str]:
        ports = [("input", p) for p in self.manifest.inputs] + [
            ("output", p) for p in self.manifest.outputs
        ]
        ranks = [len(port.shape) for _, port in ports]
        lines = [
            f" * {kind} {comment(port.name)}: {self.tensors[port.tensor].dtype}{''.join(f'[{n}]' for n in port.shape)}"
            for kind, port in ports
        ]
        workspace = -(-(self.arena + self.scratch) // 64) * 64
        return {
            "CPU": comment(self.network.cpu),
            "FOR": "A network for the shapes below only, the batch included.",
            "STATUSES": BAD_INDEX,
            "SIZES": "",
            "COMPUTES": "Computes",
            "SIZES_GIVEN": "",
            "TENSORS": "\n".join(lines) or " *",
            "INPUTS": str(len(self.manifest.inputs)),
            "OUTPUTS": str(len(self.manifest.outputs)),
            "WORKSPACE": str(max(64, workspace)),
            "RANK": str(max([1, *ranks])),
        }

    def source(self) -> dict[str, str]:
        symbols = sorted({step.kernel for step in self.manifest.steps if step.kernel})
        takes = "void* const* arguments, void* workspace, syno_parallel* parallel, void* pool"
        check, includes = cpu_check(self.manifest.made_for)
        return {
            "CPU": comment(self.network.cpu).replace('"', ""),
            "INCLUDES": includes,
            "ARENA": str(self.arena),
            "WEIGHT_BYTES": str(self.manifest.files[bundle.WEIGHTS].bytes),
            "KERNELS": "".join(f"void {name}({takes});\n" for name in symbols),
            "INPUT_ROWS": self._rows(self.manifest.inputs),
            "OUTPUT_ROWS": self._rows(self.manifest.outputs),
            "CPU_CHECK": check,
            "FUNCTIONS": "\n".join(self.functions.values()) + "\n",
            "SIZES": "",
            "WORDS": "",
            "RUNS": run_function("run", "", [], self.steps),
            "SIZES_GIVEN": "",
            "RUN": "run(network->weights, inputs, outputs, workspace)",
        }

    def _rows(self, ports: Sequence[Port]) -> str:
        return "".join(tensor_row(port, self.tensors[port.tensor].dtype) for port in ports)


BAD_INDEX = "   /* an input names a row that a table does not have */"


def tensor_row(port: Port, dtype: str) -> str:
    """Of the table of inputs or outputs."""
    shape = ", ".join(map(str, port.shape)) or "0"
    size = bundle.bytes_of(dtype, port.shape)
    return f"  {{{quoted(port.name)}, {quoted(dtype)}, {len(port.shape)}, {{{shape}}}, {size}}},\n"


def run_function(name: str, more: str, first: Sequence[str], steps: Sequence[str]) -> str:
    """A function that runs steps.

    Args:
        more: parameters behind the others.
        first: statements before the steps.
    """
    takes = "const char* weights, const void* const* inputs, void* const* outputs, char* arena"
    return f"""\
static int {name}({takes}{more}) {{
  char* const scratch = arena + ARENA_BYTES;
  (void)weights, (void)inputs, (void)outputs, (void)scratch; /* not every network has all */
{"".join(first)}{"".join(steps)}  return SYNO_OK;
}}
"""


#: What every compiler's __builtin_cpu_supports knows, and what this asks the CPU itself.
_SUPPORTED = frozenset(
    [
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "popcnt",
        "avx",
        "avx2",
        "fma",
        "bmi",
        "bmi2",
        "avx512f",
        "avx512cd",
        "avx512dq",
        "avx512bw",
        "avx512vl",
        "avx512vnni",
        "avx512vbmi",
        "avx512vbmi2",
        "avx512ifma",
        "avx512bitalg",
        "avx512vpopcntdq",
        "gfni",
    ]
)


def cpu_check(cpu: bundle.MadeFor) -> tuple[str, str]:
    """Statements that return 0 on a CPU that lacks something, and what they include."""
    if cpu.triple.startswith("x86_64"):
        lines = ["#if !defined(__x86_64__)", '#error "the code is for x86-64"', "#endif"]
        lines += ["  __builtin_cpu_init();"]
        lines += [
            f'  if (!__builtin_cpu_supports("{name}")) return 0;'
            for name in cpu.needs
            if name in _SUPPORTED
        ]
        return "\n".join(lines), ""
    if cpu.scalable_bits:
        length = f"prctl(PR_SVE_SET_VL, {cpu.scalable_bits} / 8)"
        return (
            f"  const int length = {length};\n"
            f"  if (length < 0 || (length & PR_SVE_VL_LEN_MASK) != {cpu.scalable_bits} / 8) return 0;"
        ), "#include <sys/prctl.h>\n"
    return "", ""
