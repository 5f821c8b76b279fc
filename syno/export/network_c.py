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
from syno.graph import bundle
from syno.graph.bundle import Port, Step, Tensor
from syno.graph.loaded import LoadedNetwork

LIBRARY = "libsyno_network.a"
_TEMPLATES = Path(__file__).with_name("templates")

_TYPES = {
    "float32": "float", "float64": "double", "bfloat16": "uint16_t", "float16": "uint16_t", "int64": "int64_t",
    "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip


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
    _write(directory, "network.h", {**program.header(), "ABOUT": about})
    mark = weights[: bundle.MARK_BYTES].decode("ascii")
    marks = {"WEIGHT_MARK": mark, "WEIGHT_SUM": str(_sum(weights))}
    _write(directory, "network.c", {**program.source(), **marks})
    inputs, outputs = places
    limits = [
        "INFINITY" if row.limit is None else repr(row.limit) for row in manifest.sample.outputs
    ]
    numbers: dict[str, Sequence[Any]] = {"GIVEN": inputs, "WANTED": outputs, "LIMITS": limits}
    listed = {name: "".join(f"{value}, " for value in values) for name, values in numbers.items()}
    _write(directory, "main.c", {**listed, "VECTOR": str(size)})
    (directory / "network.json").write_text(json.dumps(network.to_dict(), indent=1), "utf-8")
    _build(directory, archive)
    words, said = Toolchain.of(None).check(directory, [LIBRARY])
    return f"main.c {words}, compared with float64 on the example", float(said.split()[-1])


def _build(directory: Path, kernels: bytes) -> None:
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


def _sum(weights: Any) -> int:
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


def _write(directory: Path, name: str, values: dict[str, str]) -> None:
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
        self.functions: dict[str, str] = {}
        kernels = network.kernels
        used = {step.kernel for step in self.manifest.steps if step.kernel}
        self.scratch = max((sum(kernels[name][:2]) for name in used), default=0)
        self.arena = -(-self.manifest.arena_bytes // 64) * 64
        self.steps = [self._step(step) for step in self.manifest.steps]

    def header(self) -> dict[str, str]:
        ports = [("input", p) for p in self.manifest.inputs] + [
            ("output", p) for p in self.manifest.outputs
        ]
        ranks = [len(port.shape) for _, port in ports]
        lines = [
            f" * {kind} {_comment(port.name)}: {self.tensors[port.tensor].dtype}{''.join(f'[{n}]' for n in port.shape)}"
            for kind, port in ports
        ]
        workspace = -(-(self.arena + self.scratch) // 64) * 64
        return {
            "CPU": _comment(self.network.cpu),
            "TENSORS": "\n".join(lines) or " *",
            "INPUTS": str(len(self.manifest.inputs)),
            "OUTPUTS": str(len(self.manifest.outputs)),
            "WORKSPACE": str(max(64, workspace)),
            "RANK": str(max([1, *ranks])),
        }

    def source(self) -> dict[str, str]:
        symbols = sorted({step.kernel for step in self.manifest.steps if step.kernel})
        takes = "void* const* arguments, void* workspace, syno_parallel* parallel, void* pool"
        check, includes = _cpu_check(self.manifest.made_for)
        return {
            "CPU": _comment(self.network.cpu).replace('"', ""),
            "INCLUDES": includes,
            "ARENA": str(self.arena),
            "WEIGHT_BYTES": str(self.manifest.files[bundle.WEIGHTS].bytes),
            "KERNELS": "".join(f"void {name}({takes});\n" for name in symbols),
            "INPUT_ROWS": "".join(map(self._row, self.manifest.inputs)),
            "OUTPUT_ROWS": "".join(map(self._row, self.manifest.outputs)),
            "CPU_CHECK": check,
            "FUNCTIONS": "\n".join(self.functions.values()) + "\n",
            "STEPS": "".join(self.steps),
        }

    def _row(self, port: Port) -> str:
        dtype = self.tensors[port.tensor].dtype
        shape = ", ".join(map(str, port.shape)) or "0"
        size = bundle.bytes_of(dtype, port.shape)
        return (
            f"  {{{quoted(port.name)}, {quoted(dtype)}, {len(port.shape)}, {{{shape}}}, {size}}},\n"
        )

    def _at(self, name: str) -> str:
        tensor = self.tensors[name]
        return f"{ {'input': 'I', 'output': 'O', 'arena': 'A', 'weight': 'W'}[tensor.place] }({tensor.at})"

    def _step(self, step: Step) -> str:
        places = [self._at(name) for name in (*step.reads, *step.writes)]
        title = f"  /* {_comment(step.stage)} */\n" if step.stage else ""
        if step.kernel:
            listed = ", ".join(places)
            return f"{title}  {{\n    void* a[] = {{{listed}}};\n    {step.kernel}(a, scratch, NULL, NULL);\n  }}\n"
        tensors = [self.tensors[name] for name in (*step.reads, *step.writes)]
        return title + str(_FUNCTIONS[step.function](self, step, tensors, places))

    # Functions of the engine

    def _copy(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        size = bundle.bytes_of(tensors[1].dtype, tensors[1].shape)
        return f"  memcpy({places[1]}, {places[0]}, {size});\n" if size else ""

    def _gather(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        table, indices = step.shapes[0], step.shapes[1]
        negative = json.loads(step.attributes).get("negative") is True
        row = bundle.bytes_of(tensors[0].dtype, table[1:])
        kind = _TYPES[tensors[1].dtype]
        name = f"gather_{tensors[1].dtype}"
        self.functions[name] = f"""\
static int {name}(const char* table, const {kind}* indices, char* result, int64_t count, int64_t rows,
                  size_t bytes, int64_t least) {{
  for (int64_t i = 0; i < count; ++i) {{
    int64_t row = indices[i];
    if (row < least || row >= rows) return SYNO_BAD_INDEX;
    if (row < 0) row += rows;
    if (bytes) memcpy(result + (size_t)i * bytes, table + (size_t)row * bytes, bytes);
  }}
  return SYNO_OK;
}}
"""
        count, least = int(np.prod(indices, dtype=np.int64)), -table[0] if negative else 0
        return (
            f"  if ({name}({', '.join(places)}, {count}, {table[0]}, {row}, {least}) != SYNO_OK) "
            "return SYNO_BAD_INDEX;\n"
        )

    def _scatter(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        table, indices = step.shapes[0], step.shapes[1]
        attributes = json.loads(step.attributes)
        negative, reduce = attributes.get("negative") is True, attributes.get("reduce", "set")
        dtype, index = tensors[0].dtype, tensors[1].dtype
        kind, name = _TYPES[dtype], f"scatter_{reduce}_{dtype}_{index}"
        wide = _WIDE.get(dtype, "int64_t")
        old, value = _widened(dtype, "*to"), _widened(dtype, "from[j]")
        if reduce == "set":
            made = "from[j]"
        elif reduce in ("add", "mul"):
            sign = "+" if reduce == "add" else "*"
            whole = f"(uint64_t){old} {sign} (uint64_t){value}"
            made = f"({kind})({whole})" if wide == "int64_t" else f"{old} {sign} {value}"
        else:
            stays = f"{old} {'>' if reduce == 'max' else '<'} {value}"
            stays += "" if wide == "int64_t" else f" || {old} != {old}"
            made = f"{stays} ? {old} : {value}"
        if reduce != "set" and dtype in ("bfloat16", "float16"):
            made = f"to_{dtype}({made})"
        self.functions[name] = f"""\
static int {name}(const {kind}* table, const {_TYPES[index]}* indices, const {kind}* given, {kind}* result,
                  int64_t count, int64_t rows, int64_t row, int64_t least) {{
  if (rows * row != 0) memcpy(result, table, (size_t)(rows * row) * sizeof(*result));
  for (int64_t i = 0; i < count; ++i) {{
    const {kind}* from = given + i * row;
    int64_t at = indices[i];
    if (at < least || at >= rows) return SYNO_BAD_INDEX;
    if (at < 0) at += rows;
    for (int64_t j = 0; j < row; ++j) {{
      {kind}* to = result + at * row + j;
      *to = {made};
    }}
  }}
  return SYNO_OK;
}}
"""
        count, row = (int(np.prod(part, dtype=np.int64)) for part in (indices, table[1:]))
        sizes = f"{count}, {table[0]}, {row}, {-table[0] if negative else 0}"
        return f"  if ({name}({', '.join(places)}, {sizes}) != SYNO_OK) return SYNO_BAD_INDEX;\n"

    def _cast(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        source, target = tensors[0].dtype, tensors[1].dtype
        name = f"cast_{source}_{target}"
        self.functions[name] = _cast_function(name, source, target)
        count = int(np.prod(step.shapes[0], dtype=np.int64))
        return f"  {name}({', '.join(places)}, {count});\n"

    def _argmax(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        dtype, shape = tensors[0].dtype, step.shapes[0]
        axis = json.loads(step.attributes).get("axis")
        outer, along, inner = 1, int(np.prod(shape, dtype=np.int64)), 1
        if axis is not None:
            axis %= len(shape)
            parts = (shape[:axis], shape[axis : axis + 1], shape[axis + 1 :])
            outer, along, inner = (int(np.prod(part, dtype=np.int64)) for part in parts)
        name = f"argmax_{dtype}"
        wide = _WIDE.get(dtype, "int64_t")
        value = _widened(dtype, "first[a * inner]")
        not_nan = " && best == best" if dtype in _WIDE else ""
        self.functions[name] = f"""\
static void {name}(const {_TYPES[dtype]}* from, int64_t* result, int64_t outer, int64_t along, int64_t inner) {{
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {{
      const {_TYPES[dtype]}* first = from + o * along * inner + i;
      int64_t a = 0, place = 0;
      {wide} best = {value};
      for (a = 1; a < along{not_nan}; ++a) {{
        const {wide} value = {value};
        if (value <= best) continue;
        best = value;
        place = a;
      }}
      result[o * inner + i] = place;
    }}
}}
"""
        return f"  {name}({', '.join(places)}, {outer}, {along}, {inner});\n"


_FUNCTIONS: dict[str, Any] = {
    "copy": _Program._copy,
    "gather": _Program._gather,
    "scatter": _Program._scatter,
    "cast": _Program._cast,
    "argmax": _Program._argmax,
}

#: What elements are computed with: 64-bit integers where nothing is said.
_WIDE = {"float32": "float", "float64": "double", "bfloat16": "float", "float16": "float"}


def _widened(dtype: str, value: str) -> str:
    if dtype in ("bfloat16", "float16"):
        return f"from_{dtype}({value})"
    return f"({value} != 0)" if dtype == "bool" else value


def _cast_function(name: str, source: str, target: str) -> str:
    """As the engine converts: floats to integers towards 0, ending at the last one, NaN to 0."""
    wide = _WIDE.get(source, "int64_t")
    lines = [f"    const {wide} value = {_widened(source, 'from[i]')};"]
    kind = _TYPES[target]
    if target in ("bfloat16", "float16"):
        lines.append(f"    to[i] = to_{target}((float)value);")
    elif target == "bool":
        lines.append("    to[i] = value != 0;")
    elif wide != "int64_t" and target not in _WIDE:
        bits = 8 * bundle.ITEM_BYTES[target]
        signed = target != "uint8"
        least = f"-0x1p{bits - 1}" if signed else "0"
        above = f"0x1p{bits - 1 if signed else bits}"
        low, high = (f"INT{bits}_MIN", f"INT{bits}_MAX") if signed else ("0", f"UINT{bits}_MAX")
        lines.append(
            f"    to[i] = !(value == value) ? 0 : value <= {least} ? {low} : value >= {above} ? {high} : ({kind})value;"
        )
    else:
        lines.append(f"    to[i] = ({kind})value;")
    body = "\n".join(lines)
    return f"""\
static void {name}(const {_TYPES[source]}* from, {kind}* to, int64_t count) {{
  for (int64_t i = 0; i < count; ++i) {{
{body}
  }}
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


def _cpu_check(cpu: bundle.MadeFor) -> tuple[str, str]:
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


def _comment(text: str) -> str:
    return " ".join(text.split()).replace("*/", "* /").replace("/*", "/ *")
