"""Emitted PyTorch text read as steps: calls of listed functions of torch on numbered values.

The text is parsed and never executed as Python: what a step can do is what `_FUNCTIONS`, `_METHODS`, `_ATTRIBUTES` and
`_OPERATORS` hold, and anything else in a text, from whomever it comes, is an error before the first step runs.
"""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from syno.errors import VerifyError, shown


def _device(value: Any) -> Any:
    return value.device


def _dtype(value: Any) -> Any:
    return value.dtype


def _shape(value: Any) -> Any:
    return value.shape


def _items(*values: Any) -> tuple[Any, ...]:
    return values


_TORCH = (
    "abs", "arange", "as_tensor", "atan", "ceil", "cos", "einsum", "empty", "erf", "exp", "floor", "fmod", "full", "log",
    "maximum", "minimum", "pow", "relu", "round", "rsqrt", "sigmoid", "sin", "sqrt", "tanh", "tensor", "trunc", "where",
)  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"torch.{name}": getattr(torch, name) for name in _TORCH},
    **{f"F.{name}": getattr(F, name) for name in ("conv1d", "conv2d", "conv3d", "gelu", "pad")},
}
_METHODS = {
    "amax", "amin", "diagonal", "expand", "flatten", "flip", "index_add", "index_select", "mean", "narrow", "new_zeros", "permute",
    "prod", "repeat", "repeat_interleave", "reshape", "roll", "squeeze", "sum", "to", "unflatten", "unfold",
    "unsqueeze", "view",
}  # fmt: skip
_ATTRIBUTES = {"device": _device, "dtype": _dtype, "shape": _shape}
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.USub: operator.neg,
}  # fmt: skip


_Called = str | Callable[..., Any]


class Step(NamedTuple):
    """One value: a function of earlier ones, by number, or a method of the first of them; and which of those nobody
    reads again."""

    function: _Called
    args: tuple[int, ...]
    named: tuple[tuple[str, int], ...]
    ended: tuple[int, ...]


@dataclass(frozen=True)
class Steps:
    """A function: its arguments are the values numbered first, constants follow them, then each step's result."""

    arguments: tuple[str, ...]
    attributes: tuple[str, ...]
    """Names of what it reads of its module; they follow the arguments."""
    constants: tuple[Any, ...]
    steps: tuple[Step, ...]
    result: int

    def __call__(self, *given: Any) -> Any:
        """Computes the result from arguments and attributes."""
        values = [*given, *self.constants]
        for called, args, named, ended in self.steps:
            taken = [values[i] for i in args]
            function = getattr(taken.pop(0), called) if isinstance(called, str) else called
            if named:
                values.append(function(*taken, **{name: values[i] for name, i in named}))
            else:
                values.append(function(*taken))
            for i in ended:
                values[i] = None
        return values[self.result]


@dataclass(frozen=True)
class Emitted:
    """What an emitted class is made of."""

    note: str
    """Its docstring: formula and shapes."""
    parameters: dict[str, tuple[int, ...]]
    buffers: dict[str, Steps]
    """Tables, as functions of dtype and device."""
    bounds: dict[str, tuple[float, float]]
    """Between which a parameter's first values are drawn."""
    forward: Steps


@functools.lru_cache(maxsize=1024)
def read(text: str) -> Emitted:
    """Reads an emitted class.

    Raises:
        VerifyError: it is no such class, or holds anything but listed functions.
    """
    try:
        return _Class(text).emitted()
    except (SyntaxError, ValueError, RecursionError) as error:
        raise VerifyError(f"[emit] the emitted text cannot be read: {error}") from None


def _refused(node: ast.AST) -> VerifyError:
    held = shown(ast.unparse(node))
    return VerifyError(f"[emit] line {getattr(node, 'lineno', 1)} of the emitted text holds {held}")


class _Class:
    """The class level: imports, one class, and the form of its three methods."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.note = ""
        self.parameters: dict[str, tuple[int, ...]] = {}
        self.buffers: dict[str, Steps] = {}
        self.bounds: dict[str, tuple[float, float]] = {}

    def emitted(self) -> Emitted:
        tree = ast.parse(self.text)
        texts = [ast.unparse(node) for node in tree.body[:-1]]
        if texts != ["import torch", "import torch.nn.functional as F"]:
            raise VerifyError("[emit] the emitted text is not two imports and a class")
        methods = self._methods(tree.body[-1])
        for line in methods["__init__"].body:
            self._made(line)
        for line in methods["reset_parameters"].body:
            if not isinstance(line, ast.Pass):
                self._drawn(line)
        forward = _function(methods["forward"], {*self.parameters, *self.buffers})
        return Emitted(self.note, self.parameters, self.buffers, self.bounds, forward)

    def _methods(self, node: ast.stmt) -> dict[str, ast.FunctionDef]:
        if not isinstance(node, ast.ClassDef) or node.decorator_list or node.keywords:
            raise _refused(node)
        if [ast.unparse(base) for base in node.bases] != ["torch.nn.Module"]:
            raise _refused(node)
        self.note = ast.get_docstring(node) or ""
        found: dict[str, ast.FunctionDef] = {}
        for member in node.body[1:] if ast.get_docstring(node) is not None else node.body:
            if not isinstance(member, ast.FunctionDef) or member.name in found:
                raise _refused(member)
            found[member.name] = member
        heads = {name: ast.unparse(method.args) for name, method in found.items()}
        heads.pop("forward", None)
        expected = {"__init__": "self, dtype=None, device=None", "reset_parameters": "self"}
        if heads != expected or "forward" not in found:
            raise VerifyError("[emit] the emitted class has other methods than it is to have")
        for method in found.values():
            if method.decorator_list or method.returns or getattr(method, "type_params", None):
                raise _refused(method)
        return found

    def _made(self, line: ast.stmt) -> None:
        """A line of __init__: a parameter of a shape, or a table."""
        match line:
            case ast.Expr(ast.Call()) if ast.unparse(line) in (
                "super().__init__()",
                "self.reset_parameters()",
            ):
                return
            case ast.Assign(
                [ast.Attribute(ast.Name("self"), name)], ast.Call(called, [empty], [])
            ) if ast.unparse(called) == "torch.nn.Parameter":
                match empty:
                    case ast.Call(called, [shape], named) if ast.unparse(
                        called
                    ) == "torch.empty" and _of_dtype(named):
                        self.parameters[self._new(name, line)] = _whole_numbers(shape)
                        return
            case ast.Expr(
                ast.Call(
                    ast.Attribute(ast.Name("self"), "register_buffer"),
                    [ast.Constant(str(name)), value],
                    [ast.keyword("persistent", ast.Constant(False))],
                )
            ):
                reader = _Function(("dtype", "device"), set())
                self.buffers[self._new(name, line)] = reader.steps(reader.value(value))
                return
        raise _refused(line)

    def _new(self, name: str, line: ast.stmt) -> str:
        if name in self.parameters or name in self.buffers:
            raise _refused(line)
        return name

    def _drawn(self, line: ast.stmt) -> None:
        match line:
            case ast.Expr(
                ast.Call(called, [ast.Attribute(ast.Name("self"), name), low, high], [])
            ) if ast.unparse(called) == "torch.nn.init.uniform_" and name in self.parameters:
                self.bounds[name] = (_number(low), _number(high))
                return
        raise _refused(line)


def _of_dtype(named: list[ast.keyword]) -> bool:
    return [ast.unparse(each) for each in named] == ["dtype=dtype", "device=device"]


def _number(node: ast.expr) -> float:
    value = ast.literal_eval(node)
    if type(value) not in (int, float):
        raise _refused(node)
    return float(value)


def _whole_numbers(node: ast.expr) -> tuple[int, ...]:
    value = ast.literal_eval(node)
    if type(value) is not tuple or not all(type(each) is int for each in value):
        raise _refused(node)
    return value


def _function(node: ast.FunctionDef, attributes: set[str]) -> Steps:
    """The steps of a method whose lines assign to names, the last one returning."""
    args = node.args
    if args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults:
        raise _refused(node)
    if not args.args or args.args[0].arg != "self" or any(a.annotation for a in args.args):
        raise _refused(node)
    reader = _Function(tuple(a.arg for a in args.args[1:]), attributes)
    for line in node.body[:-1]:
        match line:
            case ast.Assign([ast.Name(name)], value):
                reader.names[name] = reader.value(value)
            case _:
                raise _refused(line)
    match node.body[-1]:
        case ast.Return(ast.expr() as value):
            return reader.steps(reader.value(value))
    raise _refused(node.body[-1])


_Value = tuple[str, int]


class _Function:
    """Expressions as numbered values: of arguments, of the module's attributes, constants, and steps."""

    def __init__(self, arguments: tuple[str, ...], attributes: set[str]) -> None:
        self.arguments = arguments
        self.known = attributes
        self.names: dict[str, _Value] = {name: ("argument", i) for i, name in enumerate(arguments)}
        self.attributes: list[str] = []
        self.constants: list[Any] = []
        self.made: list[tuple[_Called, list[_Value], list[tuple[str, _Value]]]] = []

    def steps(self, result: _Value) -> Steps:
        """What was read, numbered one kind after the other."""
        first: dict[str, int] = {"argument": 0}
        first["attribute"] = len(self.arguments)
        first["constant"] = first["attribute"] + len(self.attributes)
        first["step"] = first["constant"] + len(self.constants)

        def number(value: _Value) -> int:
            return first[value[0]] + value[1]

        last: dict[int, int] = {}
        for at, (_, args, named) in enumerate(self.made):
            for value in (*args, *(value for _, value in named)):
                if value[0] == "step":
                    last[number(value)] = at
        last.pop(number(result), None)
        ended: dict[int, list[int]] = {}
        for value_number, at in last.items():
            ended.setdefault(at, []).append(value_number)
        steps = (
            Step(
                function,
                tuple(number(value) for value in args),
                tuple((name, number(value)) for name, value in named),
                tuple(ended.get(at, ())),
            )
            for at, (function, args, named) in enumerate(self.made)
        )
        return Steps(
            self.arguments,
            tuple(self.attributes),
            tuple(self.constants),
            tuple(steps),
            number(result),
        )

    def step(
        self,
        function: _Called,
        args: Sequence[_Value],
        named: Sequence[tuple[str, _Value]] = (),
    ) -> _Value:
        self.made.append((function, list(args), list(named)))
        return ("step", len(self.made) - 1)

    def constant(self, value: Any) -> _Value:
        self.constants.append(value)
        return ("constant", len(self.constants) - 1)

    def value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Constant(value) if value is None or type(value) in (bool, int, float, str):
                return self.constant(value)
            case ast.Name(name) if name in self.names:
                return self.names[name]
            case ast.Attribute(ast.Name("self"), name) if name in self.known:
                if name not in self.attributes:
                    self.attributes.append(name)
                return ("attribute", self.attributes.index(name))
            case ast.Attribute(of, name) if name in _ATTRIBUTES and not _is_module(of, self.names):
                return self.step(_ATTRIBUTES[name], [self.value(of)])
            case ast.Tuple(items) | ast.List(items):
                return self.items(items)
            case ast.UnaryOp(ast.USub(), ast.Constant(int() | float() as value)):
                return self.constant(-value)
            case ast.UnaryOp(sign, of) if type(sign) in _OPERATORS:
                return self.step(_OPERATORS[type(sign)], [self.value(of)])
            case ast.BinOp(left, sign, right) | ast.Compare(left, [sign], [right]) if (
                type(sign) in _OPERATORS
            ):
                return self.step(_OPERATORS[type(sign)], [self.value(left), self.value(right)])
            case ast.Subscript(of, index):
                return self.step(operator.getitem, [self.value(of), self.index(index)])
            case ast.Call(called, args, named):
                return self.call(node, called, args, named)
        raise _refused(node)

    def items(self, items: list[ast.expr]) -> _Value:
        values = [self.value(item) for item in items]
        if all(kind == "constant" for kind, _ in values):
            return self.constant(tuple(self.constants[i] for _, i in values))
        return self.step(_items, values)

    def index(self, node: ast.expr) -> _Value:
        if isinstance(node, ast.Tuple):
            return self.constant(tuple(_place(each) for each in node.elts))
        return self.constant(_place(node))

    def call(
        self, node: ast.Call, called: ast.expr, args: list[ast.expr], named: list[ast.keyword]
    ) -> _Value:
        match called, args, named:
            case ast.Name("float"), [ast.Constant(("inf" | "-inf") as value)], []:
                return self.constant(float(value))
        if not isinstance(called, ast.Attribute) or any(each.arg is None for each in named):
            raise _refused(node)
        given = [] if _is_module(called.value, self.names) else [self.value(called.value)]
        function: _Called | None = _FUNCTIONS.get(ast.unparse(called))
        if given:
            function = called.attr if called.attr in _METHODS else None
        if function is None:
            raise _refused(node)
        return self.step(
            function,
            [*given, *(self.value(each) for each in args)],
            [(str(each.arg), self.value(each.value)) for each in named],
        )


def _is_module(node: ast.expr, names: dict[str, _Value]) -> bool:
    return isinstance(node, ast.Name) and node.id in ("torch", "F") and node.id not in names


def _place(node: ast.expr) -> Any:
    """An index that is written out: a number, None, or a slice of numbers."""
    if isinstance(node, ast.Slice):
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if each is None else _place(each) for each in parts))
    value = ast.literal_eval(node)
    if value is not None and type(value) is not int:
        raise _refused(node)
    return value
