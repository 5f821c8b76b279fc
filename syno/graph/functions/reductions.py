"""Functions that reduce dimensions, named and defined as in `torch`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from syno.graph.building import Builder, NotCovered, Value
from syno.graph.functions.elementwise import unary
from syno.graph.functions.formulas import (
    Number,
    Tensors,
    axes,
    dim_of,
    dims_of,
    exact,
    float_of,
    is_truth,
    sizes_of,
)

Dims = int | Sequence[int] | None


class Reduced:
    """The iterators and texts of a reduction of `x` over some of its dimensions."""

    def __init__(
        self, build: Builder, x: Value, dims: Dims, keepdim: bool, *, whole: str = ""
    ) -> None:
        self.build, self.name = build, ""
        self.dtype = float_of(build, [x], whole=whole)
        self.tensors = Tensors(build, self.dtype)
        self.dims = dims_of(dims, x.rank)
        self.count = math.prod(x.shape[d] for d in self.dims)
        names = axes(x.rank)
        self.at = [f"r{d}" if d in self.dims else names[d] for d in range(x.rank)]
        """Indices of an element of `x`: `r` and a number is reduced."""
        self.kept = [name for d, name in enumerate(names) if d not in self.dims]
        self.left = names if keepdim else self.kept
        """Indices of the result."""
        self.over = ",".join(f"r{d}" for d in self.dims)
        self.sizes: dict[str, Any] = {
            **{name: x.shape[d] for d, name in enumerate(self.at)},
            **({names[d]: 1 for d in self.dims} if keepdim else {}),
        }
        key = self.tensors.key("x", x)
        self.x = f"{key}[{','.join(self.at)}]"

    def reduce(self, word: str, body: str) -> str:
        """`word` over the reduced dimensions; of one element itself where there are none."""
        return f"({word}[{self.over}] ({body}))" if self.dims else f"({body})"

    def number(self, value: Number) -> str:
        return self.tensors.number(value)

    def stage(self, name: str, body: str) -> tuple[str, str]:
        """A scope of one element for each that is kept: its statement, and how it is read."""
        read = f"{name}[{','.join(self.kept)}]"
        return f"{read} = {body}; ", read

    def node(self, body: str, *, name: str, before: str = "", boolean: bool = False) -> Value:
        return self.build.formula(
            f"{before}y[{','.join(self.left)}] = {body}",
            self.tensors.by_key,
            name=name,
            dtype=self.dtype,
            boolean=boolean,
            **self.sizes,
        )


def sum(build: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    reduced = Reduced(build, x, dim, keepdim)
    return reduced.node(reduced.reduce("sum", reduced.x), name="sum")


def mean(build: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    reduced = Reduced(build, x, dim, keepdim)
    return reduced.node(reduced.reduce("mean", reduced.x), name="mean")


def prod(build: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    reduced = Reduced(build, x, dim, keepdim)
    return reduced.node(reduced.reduce("prod", reduced.x), name="prod")


def amax(build: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    reduced = Reduced(build, x, dim, keepdim, whole="truth" if is_truth(x) else "")
    return reduced.node(reduced.reduce("max", reduced.x), name="amax", boolean=is_truth(x))


def amin(build: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    reduced = Reduced(build, x, dim, keepdim, whole="truth" if is_truth(x) else "")
    return reduced.node(reduced.reduce("min", reduced.x), name="amin", boolean=is_truth(x))


def all(build: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    reduced = Reduced(build, x, dim, keepdim, whole="truth")
    body = reduced.reduce("min", f"{reduced.x} != 0")
    return reduced.node(body, name="all", boolean=True)


def any(build: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    reduced = Reduced(build, x, dim, keepdim, whole="truth")
    body = reduced.reduce("max", f"{reduced.x} != 0")
    return reduced.node(body, name="any", boolean=True)


def var(
    build: Builder, x: Value, dim: Dims = None, correction: Number = 1, keepdim: bool = False
) -> Value:
    return _spread(build, x, dim, correction, keepdim, "var")


def std(
    build: Builder, x: Value, dim: Dims = None, correction: Number = 1, keepdim: bool = False
) -> Value:
    return _spread(build, x, dim, correction, keepdim, "std")


def _spread(
    build: Builder, x: Value, dim: Dims, correction: Number, keepdim: bool, name: str
) -> Value:
    reduced = Reduced(
        build, x, dim if dim is None or isinstance(dim, int) or dim else None, keepdim
    )
    left = reduced.count - correction
    if left <= 0 or not reduced.dims:
        raise NotCovered(
            f"[graph] a variance of {reduced.count} elements with correction {correction}"
        )
    before, mean = reduced.stage("middle", reduced.reduce("mean", reduced.x))
    away = f"({reduced.x} - {mean})"
    body = f"{reduced.reduce('sum', f'{away} * {away}')} / {exact(left)}"
    return reduced.node(f"sqrt({body})" if name == "std" else body, name=name, before=before)


def logsumexp(build: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    reduced = Reduced(build, x, dim, keepdim, whole="float")
    first, most = reduced.stage("greatest", reduced.reduce("max", reduced.x))
    second, shift = reduced.stage("shift", f"select(abs({most}) == inf, 0, {most})")
    total = reduced.reduce("sum", f"exp({reduced.x} - {shift})")
    return reduced.node(f"log({total}) + {shift}", name="logsumexp", before=first + second)


def vector_norm(
    build: Builder, x: Value, ord: Number = 2, dim: Dims = None, keepdim: bool = False
) -> Value:
    reduced = Reduced(build, x, dim, keepdim)
    return reduced.node(_norm(reduced, ord), name="norm")


def _norm(reduced: Reduced, ord: Number) -> str:
    x = reduced.x
    if ord == math.inf:
        return reduced.reduce("max", f"abs({x})")
    if ord == -math.inf:
        return reduced.reduce("min", f"abs({x})")
    if ord == 0:
        return reduced.reduce("sum", f"{x} != 0")
    if ord == 1:
        return reduced.reduce("sum", f"abs({x})")
    if ord == 2:
        return f"sqrt({reduced.reduce('sum', f'{x} * {x}')})"
    power, root = reduced.number(float(ord)), reduced.number(1.0 / ord)
    return f"pow({reduced.reduce('sum', f'pow(abs({x}), {power})')}, {root})"


def normalize(build: Builder, x: Value, p: Number = 2.0, dim: int = 1, eps: float = 1e-12) -> Value:
    """x over its norm along a dimension, which counts as at least eps."""
    reduced = Reduced(build, x, dim, False)
    before, norm = reduced.stage("norm", f"max({_norm(reduced, p)}, {reduced.number(eps)})")
    whole = axes(x.rank)
    key = reduced.x.split("[")[0]
    reduced.left = whole
    reduced.sizes |= sizes_of(whole, x.shape)
    return reduced.node(f"{key}[{','.join(whole)}] / {norm}", name="normalize", before=before)


def cumsum(
    build: Builder, x: Value, dim: int, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """Running sums along a dimension."""
    return _scan(build, x, dim, "sum", exclusive=exclusive, reverse=reverse)


def cumprod(
    build: Builder, x: Value, dim: int, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """Running products along a dimension."""
    return _scan(build, x, dim, "prod", exclusive=exclusive, reverse=reverse)


def logcumsumexp(build: Builder, x: Value, dim: int) -> Value:
    """Logarithms of the running sums of exponentials along a dimension."""
    return _scan(build, x, dim, "logsumexp")


def _scan(
    build: Builder,
    x: Value,
    dim: int,
    by: str,
    *,
    exclusive: bool = False,
    reverse: bool = False,
) -> Value:
    if by == "logsumexp" or x.boolean or x.dtype not in ("int64", "int32"):
        dtype = float_of(build, [x])
        x = x if x.dtype == dtype else build.cast(x, dtype)
    dim = dim_of(dim, x.rank)
    if not x.rank:
        return build.formula("y[] = x[] * 1", {"x": x})
    said = {"axis": dim, "by": by, "exclusive": exclusive, "reverse": reverse}
    return build.call("scan", [x], [(x.shape, x.dtype)], attributes=json.dumps(said))[0]


def argmax(build: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The first place of the greatest element (of what is no number, where there is such)."""
    dtype = float_of(build, [x])
    rank = x.rank
    if dim is None or not rank:
        raise NotCovered("[graph] the greatest element of a whole tensor")
    dim = dim_of(dim, rank)
    if 0 in x.shape:
        raise NotCovered("[graph] a tensor without elements")
    shape = [1 if d == dim else n for d, n in enumerate(x.shape) if d != dim or keepdim]
    x = x if x.dtype == dtype else build.cast(x, dtype)
    attributes = json.dumps({"axis": dim, "keepdim": keepdim})
    return build.call("argmax", [x], [(shape, "int64")], attributes=attributes)[0]


def argmin(build: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """The first place of the least element."""
    float_of(build, [x])
    return argmax(build, unary("neg")(build, x), dim, keepdim)
