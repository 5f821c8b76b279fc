"""The steps of a network as C: calls of kernels, and functions of the engine where its tensors have them.

Numbers are numbers, or expressions of C where they follow the sizes of a call.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from syno.errors import FormatError
from syno.export.sample_c import sample_function
from syno.graph import bundle
from syno.graph.bundle import Step, Tensor

TYPES = {
    "float32": "float", "float64": "double", "bfloat16": "uint16_t", "float16": "uint16_t", "int64": "int64_t",
    "int32": "int32_t", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "bool": "uint8_t",
}  # fmt: skip

#: A number, or an expression of C.
Count = int | str


def product(factors: Sequence[Count]) -> Count:
    """Their product, numbers first."""
    known = math.prod(factor for factor in factors if isinstance(factor, int))
    others = [factor for factor in factors if not isinstance(factor, int)]
    if not others or known == 0:
        return known
    return " * ".join([*([str(known)] if known != 1 else []), *others])


def bytes_of(dtype: str, shape: Sequence[Count]) -> Count:
    return product([bundle.ITEM_BYTES[dtype], *shape])


def comment(text: str) -> str:
    """As it can stand in one of C."""
    return " ".join(text.split()).replace("*/", "* /").replace("/*", "/ *")


class Body:
    """Steps on tensors, each at its place.

    Attributes:
        functions: of the engine, that the steps call, by name.
        first: statements that come before the steps.
        arena_bytes: of what lies between the steps.
    """

    def __init__(self, tensors: Mapping[str, Tensor], arena_bytes: int) -> None:
        self.tensors, self.arena_bytes = tensors, arena_bytes
        self.functions: dict[str, str] = {}
        self.first: list[str] = []
        self._copied: dict[str, int] = {}

    def _at(self, name: str) -> str:
        tensor = self.tensors[name]
        if not _is_together(tensor):
            return f"A({self._part(tensor)})"
        return f"{ {'input': 'I', 'output': 'O', 'arena': 'A', 'weight': 'W'}[tensor.place] }({tensor.at})"

    def step(self, step: Step) -> str:
        places = [self._at(name) for name in (*step.reads, *step.writes)]
        title = f"  /* {comment(step.stage)} */\n" if step.stage else ""
        if step.kernel:
            values = [f"(void*)(intptr_t)({value})" for value in step.sizes]
            listed = ", ".join([*places, *values])
            return f"{title}  {{\n    void* a[] = {{{listed}}};\n    {step.kernel}(a, scratch, NULL, NULL);\n  }}\n"
        tensors = [self.tensors[name] for name in (*step.reads, *step.writes)]
        if step.function not in _FUNCTIONS:
            raise FormatError(f"[export] the engine's function {step.function} has no form in C")
        return title + str(_FUNCTIONS[step.function](self, step, tensors, places))

    def _part(self, tensor: Tensor) -> int:
        """Where a weight lies together that is part of another one: at the end of the arena."""
        if tensor.name not in self._copied:
            self.arena_bytes = -(-self.arena_bytes // 64) * 64
            at = self._copied[tensor.name] = self.arena_bytes
            self.arena_bytes += bundle.bytes_of(tensor.dtype, tensor.held)
            self.functions["part"] = _PART
            shape, held = (", ".join(map(str, each)) for each in (tensor.shape, tensor.held))
            self.first.append(
                f"  {{\n    const int64_t shape[] = {{{shape}}}, whole[] = {{{held}}};\n"
                f"    part(A({at}), W({tensor.at}), {bundle.ITEM_BYTES[tensor.dtype]}, {len(tensor.shape)}, shape, whole);\n"
                "  }\n"
            )
        return self._copied[tensor.name]

    # Functions of the engine

    def _copy(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        size = bytes_of(tensors[1].dtype, tensors[1].shape)
        return f"  memcpy({places[1]}, {places[0]}, {size});\n" if size else ""

    def _gather(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        table, indices = step.shapes[0], step.shapes[1]
        attributes = json.loads(step.attributes)
        if "axis" in attributes:
            return self._gather_along(attributes, tensors, places, table, indices)
        dim = attributes.get("dim", 0) % len(table)
        row = bytes_of(tensors[0].dtype, table[dim + 1 :])
        kind = TYPES[tensors[1].dtype]
        name = f"gather_{tensors[1].dtype}"
        self.functions[name] = f"""\
static int {name}(const char* table, const {kind}* indices, char* result, int64_t tables, int64_t count, int64_t rows,
                  size_t bytes, int64_t least) {{
  for (int64_t i = 0; i < count; ++i)
    if (indices[i] < least || indices[i] >= rows) return SYNO_BAD_INDEX;
  for (int64_t t = 0; t < tables; ++t, table += (size_t)rows * bytes)
    for (int64_t i = 0; i < count; ++i, result += bytes) {{
      const int64_t row = indices[i] < 0 ? indices[i] + rows : indices[i];
      if (bytes) memcpy(result, table + (size_t)row * bytes, bytes);
    }}
  return SYNO_OK;
}}
"""
        least = f"-{table[dim]}" if attributes.get("negative") is True else 0
        sizes = f"{product(table[:dim])}, {product(indices)}, {table[dim]}, {row}, {least}"
        return f"  if ({name}({', '.join(places)}, {sizes}) != SYNO_OK) return SYNO_BAD_INDEX;\n"

    def _gather_along(
        self,
        attributes: Mapping[str, Any],
        tensors: Sequence[Tensor],
        places: Sequence[str],
        table: Sequence[Count],
        indices: Sequence[Count],
    ) -> str:
        axis = attributes["axis"] % len(table)
        name = f"gather_along_{tensors[1].dtype}"
        self.functions[name] = f"""\
static int {name}(const char* table, const {TYPES[tensors[1].dtype]}* indices, char* result, int rank,
                  const int64_t* shape, const int64_t* wanted, int axis, size_t item, int negative) {{
  int64_t count = 1;
  for (int d = 0; d < rank; ++d) count *= wanted[d];
  for (int64_t i = 0; i < count; ++i) {{
    int64_t place = 0, stride = 1, rest = i, index = indices[i];
    if (index < (negative ? -shape[axis] : 0) || index >= shape[axis]) return SYNO_BAD_INDEX;
    if (index < 0) index += shape[axis];
    for (int d = rank - 1; d >= 0; rest /= wanted[d], stride *= shape[d], --d)
      place += stride * (d == axis ? index : rest % wanted[d]);
    memcpy(result + (size_t)i * item, table + (size_t)place * item, item);
  }}
  return SYNO_OK;
}}
"""
        shape, wanted = (", ".join(map(str, each)) for each in (table, indices))
        negative = int(attributes.get("negative") is True)
        sizes = f"{len(table)}, shape, wanted, {axis}, {bundle.ITEM_BYTES[tensors[0].dtype]}, {negative}"
        return (
            f"  {{\n    const int64_t shape[] = {{{shape}}}, wanted[] = {{{wanted}}};\n"
            f"    if ({name}({', '.join(places)}, {sizes}) != SYNO_OK) return SYNO_BAD_INDEX;\n  }}\n"
        )

    def _sample(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        attributes = json.loads(step.attributes)
        dtype = tensors[0].dtype
        name = f"sample_{dtype}"
        self.functions[name] = sample_function(name, dtype, TYPES[dtype])
        x, grid = step.shapes[0], step.shapes[1]
        shape = ", ".join(map(str, x))
        mode = ("nearest", "bilinear", "bicubic").index(attributes.get("mode", "bilinear"))
        padding = ("zeros", "border", "reflection").index(attributes.get("padding", "zeros"))
        said = f"{mode}, {padding}, {int(attributes.get('align') is True)}"
        return (
            f"  {{\n    const int64_t shape[] = {{{shape}}};\n"
            f"    {name}({', '.join(places)}, {len(x)}, shape, {product(grid[1:-1])}, {said});\n  }}\n"
        )

    def _scatter(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        table, indices = step.shapes[0], step.shapes[1]
        attributes = json.loads(step.attributes)
        if "axis" in attributes:
            raise FormatError("[export] elements scattered along an axis have no form in C")
        negative, reduce = attributes.get("negative") is True, attributes.get("reduce", "set")
        dtype, index = tensors[0].dtype, tensors[1].dtype
        kind, name = TYPES[dtype], f"scatter_{reduce}_{dtype}_{index}"
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
static int {name}(const {kind}* table, const {TYPES[index]}* indices, const {kind}* given, {kind}* result,
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
        least = f"-{table[0]}" if negative else 0
        sizes = f"{product(indices)}, {table[0]}, {product(table[1:])}, {least}"
        return f"  if ({name}({', '.join(places)}, {sizes}) != SYNO_OK) return SYNO_BAD_INDEX;\n"

    def _cast(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        source, target = tensors[0].dtype, tensors[1].dtype
        name = f"cast_{source}_{target}"
        self.functions[name] = _cast_function(name, source, target)
        return f"  {name}({', '.join(places)}, {product(step.shapes[0])});\n"

    def _argmax(self, step: Step, tensors: Sequence[Tensor], places: Sequence[str]) -> str:
        dtype, shape = tensors[0].dtype, step.shapes[0]
        axis = json.loads(step.attributes).get("axis")
        outer, along, inner = product([]), product(shape), product([])
        if axis is not None:
            axis %= len(shape)
            parts = (shape[:axis], shape[axis : axis + 1], shape[axis + 1 :])
            outer, along, inner = map(product, parts)
        name = f"argmax_{dtype}"
        wide = _WIDE.get(dtype, "int64_t")
        value = _widened(dtype, "first[a * inner]")
        not_nan = " && best == best" if dtype in _WIDE else ""
        self.functions[name] = f"""\
static void {name}(const {TYPES[dtype]}* from, int64_t* result, int64_t outer, int64_t along, int64_t inner) {{
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {{
      const {TYPES[dtype]}* first = from + o * along * inner + i;
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
    "copy": Body._copy,
    "gather": Body._gather,
    "sample": Body._sample,
    "scatter": Body._scatter,
    "cast": Body._cast,
    "argmax": Body._argmax,
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
    kind = TYPES[target]
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
static void {name}(const {TYPES[source]}* from, {kind}* to, int64_t count) {{
  for (int64_t i = 0; i < count; ++i) {{
{body}
  }}
}}
"""


def _is_together(tensor: Tensor) -> bool:
    """Whether a weight's elements lie one behind the other, also where it is part of another one."""
    if isinstance(tensor.within, msgspec.UnsetType):
        return True
    first = next((d for d, extent in enumerate(tensor.held) if extent != 1), len(tensor.held))
    return tensor.shape[first + 1 :] == tensor.held[first + 1 :]


#: Copies the beginning of a tensor in every dimension; returns where the copy ends.
_PART = """\
static char* part(char* to, const char* from, size_t item, int rank, const int64_t* shape, const int64_t* whole) {
  size_t row = item;
  for (int d = 1; d < rank; ++d) row *= (size_t)whole[d];
  if (rank <= 1) {
    const size_t bytes = rank == 1 ? (size_t)shape[0] * item : item;
    memcpy(to, from, bytes);
    return to + bytes;
  }
  for (int64_t i = 0; i < shape[0]; ++i) to = part(to, from + (size_t)i * row, item, rank - 1, shape + 1, whole + 1);
  return to;
}
"""
