"""A concrete program read back from its text: scopes with affine indices, for recognising native calls."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from syno import _core

IntArray = np.ndarray[Any, Any]


class NotRecognised(Exception):
    """Expected: this scope is nothing that has a native call; the text says why."""


#: An iterator, or `(i, "/", d)` or `(i, "%", d)` for its quotient or rest.
Term = str | tuple[str, str, int]


@dataclass(frozen=True)
class Affine:
    """Sum of `coefficient * term` plus a constant."""

    terms: tuple[tuple[Term, int], ...]
    constant: int = 0

    @property
    def plain(self) -> str | None:
        """The iterator, where the index is just one."""
        if self.constant == 0 and len(self.terms) == 1:
            term, coefficient = self.terms[0]
            if coefficient == 1 and isinstance(term, str):
                return term
        return None

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.terms)
        for term, coefficient in other.terms:
            total[term] = total.get(term, 0) + coefficient
        kept = tuple((t, c) for t, c in total.items() if c)
        return Affine(kept, self.constant + other.constant)

    def times(self, factor: int) -> Affine:
        return Affine(tuple((t, c * factor) for t, c in self.terms), self.constant * factor)


@dataclass(frozen=True)
class Transposed:
    """Index `a / stride` where `stride` divides `a`, outside the tensor elsewhere."""

    inner: Affine
    stride: int


@dataclass(frozen=True)
class General:
    """Any other index, as it is written."""

    text: str

    @property
    def node(self) -> ast.expr:
        return ast.parse(self.text, mode="eval").body


Index = Affine | Transposed | General


@dataclass(frozen=True)
class Gather:
    """A dimension replaced by one for each of the iterators that its index depends on.

    Made before the first call, so that a call does nothing but gather.
    """

    axis: int
    iterators: tuple[str, ...]
    extents: tuple[int, ...]
    places: Any
    """A flat tensor of places along the axis, one beyond the last for what is outside; None for a roll."""
    outside: bool
    shift: int = 0
    """Of a roll."""


@dataclass(frozen=True)
class Read:
    """`tensor[indices]`, worth `fill` outside.

    `gathers` are made first and are in `indices` already; `shape` is the tensor's after them.
    """

    tensor: str
    indices: tuple[Index, ...]
    fill: float = 0.0
    gathers: tuple[Gather, ...] = ()
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scope:
    """`output[traversal] = reduction over sums of body`; extents by iterator, all from 0."""

    output: str
    traversal: dict[str, int]
    sums: dict[str, int]
    reduction: str
    body: ast.expr
    shapes: Mapping[str, tuple[int, ...]]
    """Of every tensor known before this scope."""

    @property
    def extents(self) -> dict[str, int]:
        return {**self.traversal, **self.sums}

    def product(self) -> tuple[list[Read], float]:
        """Factors of a body that is a product of reads, and the number they are scaled by."""
        reads: list[Read] = []
        scale = _factors(self.body, reads)
        return reads, scale


@dataclass(frozen=True)
class Listing:
    """A program: shapes of its inputs in order, and scopes in order."""

    inputs: dict[str, tuple[int, ...]]
    scopes: tuple[Scope, ...]
    outputs: tuple[str, ...]

    def uses(self, tensor: str) -> int:
        """Reads of a tensor in all bodies."""
        return sum(
            1 for scope in self.scopes for read in reads_of(scope.body) if read.tensor == tensor
        )


def listing(program: _core.Program) -> Listing:
    """Reads the text form of a concrete program.

    Raises:
        NotRecognised: accumulating scopes, constants in the program, ranges that do not start at 0.
    """
    inputs: dict[str, tuple[int, ...]] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    scopes: list[Scope] = []
    outputs: tuple[str, ...] = ()
    for line in filter(None, map(str.strip, str(program.text()).splitlines())):
        word, _, rest = line.partition(" ")
        if word in ("input", "weight"):
            name, _, shape = rest.partition("[")
            extents = tuple(int(n) for n in shape.rstrip("]").split(",") if n.strip())
            inputs[name.strip()] = shapes[name.strip()] = extents
        elif word == "return":
            outputs = tuple(name.strip() for name in rest.split(","))
        elif word == "constant" or "+=" in line:
            raise NotRecognised(f"the statement `{line[:60]}`")
        else:
            scopes.append(_scope(line, dict(shapes)))
            shapes[scopes[-1].output] = tuple(scopes[-1].traversal.values())
    return Listing(inputs, tuple(scopes), outputs)


_HEAD = re.compile(
    r"(?P<name>\w+)\[(?P<traversal>[^\]]*)\] = "
    r"(?:(?P<reduction>sum|max|min|prod|mean)\[(?P<sums>[^\]]*)\] )?(?P<body>.*)$"
)
_FILL = re.compile(r"(\w+\[[^\[\]]*\]) fill (-?\w+(?:\([^)]*\))?(?:\.\d+)?)")
_LABEL = re.compile(r" @\w+\([^)]*\)$")


def _scope(line: str, shapes: Mapping[str, tuple[int, ...]]) -> Scope:
    match = _HEAD.match(_LABEL.sub("", line))
    if match is None:
        raise NotRecognised(f"the statement `{line[:60]}`")
    body = _FILL.sub(r"fill(\1, \2)", match["body"])
    try:
        tree = ast.parse(body, mode="eval").body
    except SyntaxError as error:
        raise NotRecognised(f"the expression `{body[:60]}`") from error
    return Scope(
        match["name"],
        _ranges(match["traversal"]),
        _ranges(match["sums"] or ""),
        match["reduction"] or "",
        tree,
        shapes,
    )


def _ranges(text: str) -> dict[str, int]:
    found = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, extent = part.partition(":")
        if not extent.strip().isdigit():
            raise NotRecognised(f"the range `{part}`")
        found[name.strip()] = int(extent)
    return found


def number(node: ast.expr) -> float | None:
    """The value of a literal; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value)
    if isinstance(node, ast.Name) and node.id == "inf":
        return float("inf")
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "ratio":
        top, bottom = (number(argument) for argument in node.args)
        return None if top is None or not bottom else top / bottom
    return None


def read_of(node: ast.expr) -> Read | None:
    """The read that a node is, `fill` included; None for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fill":
        inner, fill = read_of(node.args[0]), number(node.args[1])
        return None if inner is None or fill is None else Read(inner.tensor, inner.indices, fill)
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
        return None
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return Read(node.value.id, tuple(_index(part) for part in parts))


def reads_of(node: ast.expr) -> Iterator[Read]:
    """Every read in an expression."""
    for child in ast.walk(node):
        if isinstance(child, ast.Subscript):
            read = read_of(child)
            if read is not None:
                yield read


def _factors(node: ast.expr, reads: list[Read]) -> float:
    literal = number(node)
    if literal is not None:
        return literal
    read = read_of(node)
    if read is not None:
        reads.append(read)
        return 1.0
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factors(node.left, reads) * _factors(node.right, reads)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        divisor = number(node.right)
        if divisor:
            return _factors(node.left, reads) / divisor
    raise NotRecognised(f"`{ast.unparse(node)[:60]}` is no product of reads")


def _index(node: ast.expr) -> Index:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        transposed = _transposed(node)
        if transposed is not None:
            return transposed
    try:
        return _affine(node)
    except NotRecognised:
        return General(ast.unparse(node))


def _transposed(node: ast.BinOp) -> Transposed | None:
    # a / s + inside(a % s, 1)
    guard = node.right
    if not (
        isinstance(guard, ast.Call)
        and isinstance(guard.func, ast.Name)
        and guard.func.id == "inside"
    ):
        return None
    divided, rest = node.left, guard.args[0]
    if not (
        isinstance(divided, ast.BinOp)
        and isinstance(divided.op, ast.Div)
        and isinstance(rest, ast.BinOp)
        and isinstance(rest.op, ast.Mod)
        and ast.dump(divided.left) == ast.dump(rest.left)
        and ast.dump(divided.right) == ast.dump(rest.right)
        and number(guard.args[1]) == 1
    ):
        return None
    stride = number(divided.right)
    return None if stride is None else Transposed(_affine(divided.left), int(stride))


def _affine(node: ast.expr) -> Affine:
    literal = number(node)
    if literal is not None:
        return Affine((), int(literal))
    if isinstance(node, ast.Name):
        return Affine(((node.id, 1),))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _affine(node.operand).times(-1)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, (ast.Add, ast.Sub)):
            sign = 1 if isinstance(node.op, ast.Add) else -1
            return _affine(node.left) + _affine(node.right).times(sign)
        if isinstance(node.op, ast.Mult):
            for factor, other in ((node.left, node.right), (node.right, node.left)):
                value = number(factor)
                if value is not None:
                    return _affine(other).times(int(value))
        if isinstance(node.op, (ast.Div, ast.Mod)):
            divisor, inner = number(node.right), _affine(node.left).plain
            word = "/" if isinstance(node.op, ast.Div) else "%"
            if divisor is not None and inner is not None:
                return Affine((((inner, word, int(divisor)), 1),))
    raise NotRecognised(f"the index `{ast.unparse(node)[:60]}`")


def iterators_of(index: Index) -> list[str]:
    """Iterators that an index depends on, each once."""
    if isinstance(index, Transposed):
        return iterators_of(index.inner)
    if isinstance(index, Affine):
        names = [term if isinstance(term, str) else term[0] for term, _ in index.terms]
    else:
        names = [n.id for n in ast.walk(index.node) if isinstance(n, ast.Name) and n.id != "inside"]
    return list(dict.fromkeys(names))


def table(index: Index, extents: Mapping[str, int]) -> tuple[IntArray, IntArray]:
    """An index at every value of its iterators, and whether every guard in it holds there."""
    names = iterators_of(index)
    grids = np.meshgrid(*(np.arange(extents[name]) for name in names), indexing="ij")
    values = dict(zip(names, grids, strict=True))
    valid = np.ones(tuple(extents[name] for name in names), dtype=bool)

    def affine(of: Affine) -> Any:
        total: Any = np.full(valid.shape, of.constant)
        for term, factor in of.terms:
            if isinstance(term, str):
                total = total + factor * values[term]
            else:
                name, word, divisor = term
                part = values[name] // divisor if word == "/" else values[name] % divisor
                total = total + factor * part
        return total

    def general(node: ast.expr) -> Any:
        literal = number(node)
        if literal is not None:
            return int(literal)
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -general(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _INTEGER:
            return _INTEGER[type(node.op)](general(node.left), general(node.right))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            inner, extent = (general(argument) for argument in node.args)
            nonlocal valid
            valid = valid & (inner >= 0) & (inner < extent)
            return inner
        raise NotRecognised(f"the index `{ast.unparse(node)[:60]}`")

    if isinstance(index, Affine):
        result = affine(index)
    elif isinstance(index, Transposed):
        inner = affine(index.inner)
        valid = valid & (inner % index.stride == 0)
        result = inner // index.stride
    else:
        result = general(index.node)
    return np.broadcast_to(result, valid.shape), valid


_INTEGER: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}
