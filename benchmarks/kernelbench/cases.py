"""Cases of the kernel benchmark: the built-in classes, and a strict reader of case files."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from kernelbench.native import attention_text
from syno import _core
from syno.errors import FormatError, ShapeError, SynoError
from syno.kernels.kernel import DTYPES
from syno.operators.operator import Operator

#: Elements that one tensor of a case may have: 4 GiB in float32.
MOST_ELEMENTS = 1 << 30


@dataclass(frozen=True)
class Case:
    """One operator at one size.

    Attributes:
        expr: the program text form; zero outside a shape.
        sizes: extents of iterators; shapes: of inputs; both may leave out what follows from the rest.
        strides: of inputs, in elements, where they are views of a bigger tensor.
        constant: inputs that may be packed before the time counts.
        training: a step of forward and backward, everything changing, is timed instead of a call.
    """

    name: str
    expr: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    strides: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dtype: str = "float32"
    constant: tuple[str, ...] = ()
    klass: str = "file"
    training: bool = False

    @cached_property
    def operator(self) -> Operator:
        """The operator, its constant inputs as weights. Raises what `Operator.parse` does."""
        try:
            return Operator.parse(
                self.expr, shapes=self.shapes, weights=list(self.constant), **self.sizes
            )
        except SynoError as error:
            raise type(error)(f"[cases] {self.name}: {error}") from error

    @property
    def synthesised(self) -> bool:
        return self.klass in ("synthesised", "training")


# Files

_KEYS = {"name", "expr", "sizes", "shapes", "strides", "dtype", "constant"}


def read_cases(path: Path) -> list[Case]:
    """Reads a JSON list of cases.

    Raises:
        FormatError: the file is not such a list; the message has the path of what is wrong.
        SynoError: a case's expression, sizes or shapes do not make an operator.
    """
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"[cases] {path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise FormatError(f"[cases] {path} is not JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise FormatError(f"[cases] {path} must hold a list of at least one case")
    cases: list[Case] = []
    for i, entry in enumerate(entries):
        case = _case(entry, f"{path.name}[{i}]")
        if any(case.name == other.name for other in cases):
            raise FormatError(f"[cases] {path.name}[{i}].name: {case.name!r} is there twice")
        cases.append(case)
    return cases


def _case(entry: Any, where: str) -> Case:
    if not isinstance(entry, dict):
        raise FormatError(f"[cases] {where} is a {type(entry).__name__}, not an object")
    for key in entry:
        if key not in _KEYS:
            raise FormatError(
                f"[cases] {where}.{key} is unknown; there are: {', '.join(sorted(_KEYS))}"
            )
    for key in ("name", "expr"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise FormatError(f"[cases] {where}.{key} must be a text that is not empty")
    sizes = _object(entry, "sizes", where)
    for name, extent in sizes.items():
        _extent(extent, f"{where}.sizes.{name}")
    shapes = {
        name: tuple(
            _extent(n, f"{where}.shapes.{name}") for n in _list(value, f"shapes.{name}", where)
        )
        for name, value in _object(entry, "shapes", where).items()
    }
    dtype = entry.get("dtype", "float32")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FormatError(f"[cases] {where}.dtype is {dtype!r}; there are: {', '.join(DTYPES)}")
    constant = entry.get("constant", [])
    if not isinstance(constant, list) or not all(isinstance(n, str) for n in constant):
        raise FormatError(f"[cases] {where}.constant must be a list of names of inputs")
    strides = {
        name: tuple(
            _stride(n, f"{where}.strides.{name}") for n in _list(value, f"strides.{name}", where)
        )
        for name, value in _object(entry, "strides", where).items()
    }
    case = Case(entry["name"], entry["expr"], sizes, shapes, strides, dtype, tuple(constant))
    _check(case, where)
    return case


def _check(case: Case, where: str) -> None:
    operator = case.operator
    if not operator.concrete:
        raise ShapeError(f"[cases] {where} has symbolic sizes; give each a number")
    if len(operator.outputs) != 1:
        raise ShapeError(
            f"[cases] {where} has {len(operator.outputs)} outputs; a case has one: end the program "
            "with `return y`"
        )
    for name, shape in operator.shapes.items():
        if math.prod(shape) > MOST_ELEMENTS:
            raise ShapeError(
                f"[cases] {where}: {name} {list(shape)} has {math.prod(shape):,} elements; "
                f"at most {MOST_ELEMENTS:,} are allowed"
            )
    for name, strides in case.strides.items():
        if name not in operator.inputs:
            raise FormatError(
                f"[cases] {where}.strides.{name} is no input; there are: "
                + ", ".join(operator.inputs)
            )
        shape = operator.shapes[name]
        if len(strides) != len(shape):
            raise ShapeError(
                f"[cases] {where}.strides.{name} has {len(strides)} numbers for the shape "
                f"{list(shape)}"
            )
        if sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) >= MOST_ELEMENTS:
            raise ShapeError(
                f"[cases] {where}.strides.{name} reach beyond {MOST_ELEMENTS:,} elements"
            )


def _object(entry: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value = entry.get(key, {})
    if not isinstance(value, dict):
        raise FormatError(f"[cases] {where}.{key} must be an object")
    return value


def _list(value: Any, key: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise FormatError(f"[cases] {where}.{key} must be a list of integers")
    return value


def _extent(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 1 << 31:
        raise FormatError(f"[cases] {where} is {value!r}; it must be an integer from 1 to 2^31 - 1")
    return value


def _stride(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise FormatError(
            f"[cases] {where} is {value!r}; a stride is an integer from 0 to 2^31 - 1, in elements"
        )
    return value


# Built-in classes

CONV1D = "y[n,o,h] = sum[c,r] x[n,c,{h}] * k[o,c,r]"
CONV2D = "y[n,o,h,w] = sum[c,r,s] x[n,{c},{h},{w}] * k[o,c,r,s]"
CONV3D = "y[n,o,d,h,w] = sum[c,q,r,s] x[n,c,{d},{h},{w}] * k[o,c,q,r,s]"


def _window(position: str, tap: str, taps: int, stride: int, dilation: int) -> str:
    pad = dilation * (taps // 2)
    start = position if stride == 1 else f"{stride}*{position}"
    step = tap if dilation == 1 else f"{dilation}*{tap}"
    return f"{start}+{step}" + (f"-{pad}" if pad else "")


def conv2d(
    name: str,
    klass: str,
    c: int,
    o: int,
    size: int,
    taps: int = 3,
    *,
    stride: int = 1,
    dilation: int = 1,
    groups: int = 1,
    batch: int = 1,
) -> Case:
    """A convolution of square images, `size` pixels in, padded to `size / stride` out."""
    inner = c // groups
    channel = "c" if groups == 1 else f"{inner}*(o/{o // groups})+c"
    h, w = (_window(p, t, taps, stride, dilation) for p, t in ("hr", "ws"))
    text = CONV2D.format(c=channel, h=h, w=w)
    sizes = {"n": batch, "o": o, "c": inner, "h": size // stride, "w": size // stride}
    return Case(
        name,
        text,
        {**sizes, "r": taps, "s": taps},
        {"x": (batch, c, size, size)},
        constant=("k",),
        klass=klass,
    )


def depthwise(name: str, c: int, size: int, taps: int = 3, stride: int = 1) -> Case:
    """One filter a channel."""
    h, w = (_window(p, t, taps, stride, 1) for p, t in ("hr", "ws"))
    return Case(
        name,
        f"y[n,c,h,w] = sum[r,s] x[n,c,{h},{w}] * k[c,r,s]",
        {"n": 1, "c": c, "h": size // stride, "w": size // stride, "r": taps, "s": taps},
        {"x": (1, c, size, size)},
        constant=("k",),
        klass="grouped",
    )


def gemm(name: str, klass: str, m: int, n: int, k: int, constant: bool = True) -> Case:
    """`y = a b`, `b` constant."""
    text = "y[m,n] = sum[k] a[m,k] * b[k,n]"
    sizes = {"m": m, "n": n, "k": k}
    return Case(name, text, sizes, constant=("b",) if constant else (), klass=klass)


def _dense() -> Iterator[Case]:
    kind = "dense"
    yield gemm("GEMM 512^3", kind, 512, 512, 512)
    yield gemm("GEMM 1024^3", kind, 1024, 1024, 1024)
    yield gemm("GEMM 512x3072x768", kind, 512, 3072, 768)
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        yield conv2d(f"conv 3x3 {c}->{c} {size}^2", kind, c, c, size)
    yield conv2d("conv 7x7 s2 3->64 224^2", kind, 3, 64, 224, 7, stride=2)
    yield conv2d("conv 3x3 s2 64->128 56^2", kind, 64, 128, 56, stride=2)
    yield conv2d("conv 5x5 64->64 28^2", kind, 64, 64, 28, 5)
    yield conv2d("conv 3x3 d2 128->128 28^2", kind, 128, 128, 28, dilation=2)
    yield conv2d("conv 3x3 64->64 32^2 batch 16", kind, 64, 64, 32, batch=16)
    d, h, w = (_window(p, t, 3, 1, 1) for p, t in ("dq", "hr", "ws"))
    sizes = {"n": 1, "o": 32, "c": 32, "d": 16, "h": 28, "w": 28, "q": 3, "r": 3, "s": 3}
    text = CONV3D.format(d=d, h=h, w=w)
    yield Case("conv3d 3^3 32->32 16x28^2", text, sizes, constant=("k",), klass=kind)


def _odd() -> Iterator[Case]:
    kind = "odd"
    yield gemm("GEMM 128^3", kind, 128, 128, 128)
    yield gemm("GEMM 64x3072x768", kind, 64, 3072, 768)
    yield gemm("GEMM 100^3", kind, 100, 100, 100)
    yield gemm("GEMM 127x129x131", kind, 127, 129, 131)
    yield gemm("GEMM 300x17x250", kind, 300, 17, 250)
    yield gemm("GEMM 16x768x768", kind, 16, 768, 768)
    yield Case(
        "linear 128x768x768",
        "y[m,n] = sum[k] x[m,k] * w[n,k]",
        {"m": 128, "n": 768, "k": 768},
        constant=("w",),
        klass=kind,
    )
    bmm = "y[b,i,j] = sum[k] a[b,i,k] * c[b,k,j]"
    yield Case("bmm 12x(128x64x128)", bmm, {"b": 12, "i": 128, "j": 128, "k": 64}, klass=kind)
    yield Case("bmm 96x(512x64x64)", bmm, {"b": 96, "i": 512, "j": 64, "k": 64}, klass=kind)
    yield Case(
        "q k^T 12x(128x128x64)",
        "y[b,i,j] = sum[k] q[b,i,k] * k_[b,j,k]",
        {"b": 12, "i": 128, "j": 128, "k": 64},
        klass=kind,
    )
    yield conv2d("conv 1x1 256->64 56^2", kind, 256, 64, 56, 1)
    yield conv2d("conv 1x1 64->256 14^2", kind, 64, 256, 14, 1)
    yield conv2d("conv 1x1 s2 128->256 28^2", kind, 128, 256, 28, 1, stride=2)
    yield conv2d("conv 3x3 23->41 31^2", kind, 23, 41, 31)
    yield Case(
        "conv1d k3 128->128 1024",
        CONV1D.format(h="h+r-1"),
        {"n": 1, "o": 128, "c": 128, "h": 1024, "r": 3},
        constant=("k",),
        klass=kind,
    )
    transposed = _core.conv_transposed(
        in_channels=256,
        out_channels=128,
        in_size=[8, 8],
        kernel=[4, 4],
        stride=[2, 2],
        pad_begin=[1, 1],
        pad_end=[1, 1],
    )
    yield Case("transposed 4x4 s2 256->128 8^2", transposed.text(), constant=("w",), klass=kind)
    yield Case(
        "GEMM 256^3 of strided views",
        "y[m,n] = sum[k] a[m,k] * b[k,n]",
        {"m": 256, "n": 256, "k": 256},
        strides={"a": (1024, 1), "b": (1, 300)},
        klass=kind,
    )
    yield Case(
        "conv 3x3 64->64 28^2 of a crop",
        CONV2D.format(c="c", h="h+r-1", w="w+s-1"),
        {"n": 1, "o": 64, "c": 64, "h": 28, "w": 28, "r": 3, "s": 3},
        strides={"x": (64 * 56 * 56, 56 * 56, 56, 1)},
        constant=("k",),
        klass=kind,
    )


def _grouped() -> Iterator[Case]:
    yield depthwise("depthwise 3x3 128 56^2", 128, 56)
    yield depthwise("depthwise 3x3 512 14^2", 512, 14)
    yield depthwise("depthwise 3x3 s2 96 112^2", 96, 112, stride=2)
    yield depthwise("depthwise 5x5 240 28^2", 240, 28, 5)
    yield depthwise("depthwise 7x7 96 56^2", 96, 56, 7)
    yield conv2d("grouped(32) 3x3 256 28^2", "grouped", 256, 256, 28, groups=32)
    yield conv2d("grouped(4) 3x3 128 28^2", "grouped", 128, 128, 28, groups=4)
    yield conv2d("grouped(2) 3x3 64 56^2", "grouped", 64, 64, 56, groups=2)
    yield conv2d("grouped(8) 1x1 256 14^2", "grouped", 256, 256, 14, 1, groups=8)


def _memory() -> Iterator[Case]:
    kind = "memory"

    def case(name: str, text: str, constant: Sequence[str] = (), **sizes: int) -> Case:
        return Case(name, text, sizes, constant=tuple(constant), klass=kind)

    gemv = "y[m] = sum[k] a[m,k] * x[k]"
    yield case("GEMV 4096^2", gemv, ["a"], m=4096, k=4096)
    yield case("GEMV 1000x512", gemv, ["a"], m=1000, k=512)
    add = "y[c,h,w] = max(x[c,h,w] + z[c,h,w], 0)"
    yield case("add+ReLU 64x112^2", add, c=64, h=112, w=112)
    yield case("gelu 128x3072", "y[i,j] = gelu(x[i,j])", i=128, j=3072)
    yield case("scale+shift 256x28^2", "y[c,h,w] = x[c,h,w] * a[c] + b[c]", c=256, h=28, w=28)
    for name, shape in (("softmax 12x128x128", (12, 128, 128)), ("softmax 128x1000", (128, 1000))):
        program = _core.softmax(shape=shape, dim=len(shape) - 1)
        yield Case(name, program.text(), klass=kind)
    norm = _core.layer_norm(shape=[128, 768])
    yield Case("layer norm 128x768", norm.text(), constant=("gamma", "beta"), klass=kind)
    for word, n in (("max", 3), ("average", 2)):
        pool = _core.pool(
            word,
            channels=64,
            in_size=[112, 112],
            kernel=[n, n],
            stride=[2, 2],
            pad_begin=[n // 2 if word == "max" else 0] * 2,
            pad_end=[n // 2 if word == "max" else 0] * 2,
        )
        yield Case(f"{word} pool {n}x{n} s2 64 112^2", pool.text(), klass=kind)
    yield case("global average pool 512 7^2", "y[c] = mean[h,w] x[c,h,w]", c=512, h=7, w=7)
    yield case("transpose 512x768", "y[j,i] = x[i,j]", i=512, j=768)
    shuffle = "y[n,c,h,w] = x[n,4*c+2*(h%2)+w%2,h/2,w/2]"
    yield case("pixel shuffle 64 56^2", shuffle, n=1, c=16, h=112, w=112)


def _fused() -> Iterator[Case]:
    conv = "sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]"
    for c, size in ((64, 56), (256, 14)):
        sizes = {"n": 1, "o": c, "c": c, "h": size, "w": size, "r": 3, "s": 3}
        text = f"y[n,o,h,w] = max({conv} + b[o], 0)"
        yield Case(f"conv+bias+ReLU {c} {size}^2", text, sizes, constant=("k", "b"), klass="fused")
        text = f"y[n,o,h,w] = max({conv} + b[o] + z[n,o,h,w], 0)"
        name = f"conv+bias+add+ReLU {c} {size}^2"
        yield Case(name, text, sizes, constant=("k", "b"), klass="fused")
    yield Case(
        "matmul+bias+GELU 128x3072x768",
        "y[m,n] = gelu(sum[k] x[m,k] * w[n,k] + b[n])",
        {"m": 128, "n": 3072, "k": 768},
        constant=("w", "b"),
        klass="fused",
    )
    yield Case(
        "attention 12x128x64",
        attention_text(["b"], " / 8"),
        {"b": 12, "i": 128, "j": 128, "c": 64, "d": 64},
        klass="fused",
    )


def operator1(
    c: int, o: int, size: int, groups: int = 4, shrink: int = 4
) -> tuple[str, dict[str, int]]:
    """The paper's Operator 1 (Syno, Figs. 8 and 9): text and sizes."""
    channel = f"{c // groups}*g+c"
    text = (
        f"t[n,g,d,s,h,w] = sum[c] x[n,{channel},h,w+s-1] * a[d,{channel},s]; "
        "y[n,o,h,w] = sum[r,s,g,d] t[n,g,d,s,h+r-1,w] * b[o,r,s,g,d]"
    )
    sizes = {"n": 1, "o": o, "h": size, "w": size, "r": 3, "s": 3, "g": groups, "c": c // groups}
    return text, {**sizes, "d": o // groups // shrink}


#: What the named operators are called in the spec, with their sizes over its variables.
_SIZES = {"kernel": "k_1", "groups": "s", "dilation": "s", "shrink": "s", "block": "s"}


def _synthesised(training: bool = False) -> Iterator[Case]:
    kind = "training" if training else "synthesised"
    for c, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        text, sizes = operator1(c, c, size)
        yield Case(
            f"Operator 1 {c} {size}^2",
            text,
            sizes,
            constant=("a", "b"),
            klass=kind,
            training=training,
        )
    spec = _core.spec_named("resnet18")
    for name in _core.named_operators():
        try:
            graph = _core.named_operator(name, spec, _SIZES)
        except SynoError:
            continue  # for another signature, such as pooling
        yield _of_graph(f"named {name}", graph, 6, kind, training)
    for i, (graph, valuation) in enumerate(random_graphs()):
        yield _of_graph(f"random {i}", graph, valuation, kind, training)


def random_graphs() -> Iterator[tuple[_core.PGraph, int]]:
    """Fifty operators of at most seven steps, the same each time, with the valuation that each is to have."""
    valuations = (0, 6, 13, 17)  # 64 @ 56, 128 @ 28, 256 @ 14, 512 @ 7
    space = _core.enumerate_operators(_core.spec_named("resnet18"), max_steps=7).operators
    space.sort(key=lambda graph: str(graph.hash()))
    for i, graph in enumerate(random.Random(0).sample(space, min(50, len(space)))):
        yield graph, valuations[i % 4]


def _of_graph(name: str, graph: _core.PGraph, valuation: int, kind: str, training: bool) -> Case:
    symbolic = graph.staged()
    values = {**symbolic.valuations[valuation], "N": 1}
    program = symbolic.with_valuations([values]).at(0)
    weights = tuple(n for n in program.inputs if program.role(n) == "weight")
    return Case(name, program.text(), constant=weights, klass=kind, training=training)


#: Built-in classes of cases, by name.
CLASSES: dict[str, Callable[[], Iterator[Case]]] = {
    "dense": _dense,
    "odd": _odd,
    "grouped": _grouped,
    "memory": _memory,
    "fused": _fused,
    "synthesised": _synthesised,
    "training": lambda: _synthesised(training=True),
}
