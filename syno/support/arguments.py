"""Arguments of public functions, held against their annotations before any work.

What is of another kind is a caller's mistake, and ends in a sentence that names the argument, not in what the first line
that uses it raises, deep inside the engine or PyTorch.
"""

from __future__ import annotations

import ast
import functools
import inspect
import numbers
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from syno.errors import ArgumentError, require_unicode, shown

F = TypeVar("F", bound=Callable[..., Any])
Rule = Callable[[Any], bool]


def checked(*, but: Sequence[str] = ()) -> Callable[[F], F]:
    """Makes a function raise ArgumentError for an argument that its annotations exclude, or that it does not have.

    Args:
        but: arguments of which it says more itself, such as numbers of a range.
    """
    return lambda function: _checked(function, frozenset(but))


def _checked(function: F, but: frozenset[str]) -> F:
    signature = inspect.signature(function)
    where = function.__qualname__
    rules: dict[str, tuple[Rule, str]] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not rules:
            rules.update(_rules(function, signature))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentError(f"{where}: {error}", fix=f"it takes {_named(signature)}") from None
        for name, value in bound.arguments.items():
            if name not in rules or name in but:
                continue
            rule, wanted = rules[name]
            if not rule(value):
                raise _misfit(where, name, value, wanted)
            if "Path" not in wanted:  # names of files need not be Unicode
                require_unicode(where, value)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def check_fields(
    made: Any, wrong: Callable[[str, str], Exception], but: Sequence[str] = ()
) -> None:
    """Holds the fields of a dataclass against their annotations, but some; raises what ``wrong(what, fix)`` makes."""
    kind = type(made)
    scope = vars(inspect.getmodule(kind) or object())
    for name, annotation in inspect.get_annotations(kind).items():
        value = getattr(made, name)
        if name not in but and not _rule(_parsed(annotation), scope)(value):
            raise wrong(f"{name}={shown(value)} is {_kind(value)}", f"give {annotation}")


def in_sentences(kind: type) -> None:
    """Makes the methods of a class of the engine name the arguments that do not fit, once."""
    for name, method in list(vars(kind).items()):
        own = name == "__init__" or not name.startswith("_")
        if not own or (getattr(method, "__func__", None) is None and not callable(method)):
            continue
        inner = getattr(kind, name)
        if hasattr(inner, "says_what_does_not_fit"):
            continue
        call = _in_sentences(
            inner, kind.__name__ if own and name == "__init__" else f"{kind.__name__}.{name}"
        )
        setattr(kind, name, staticmethod(call) if isinstance(method, staticmethod) else call)


def _in_sentences(function: Any, where: str) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            said = str(error)
            if "incompatible" not in said or "arguments" not in said:
                raise
        require_unicode(where, *args, *kwargs.values())
        given = [shown(a, 60) for a in args if not type(a).__module__.startswith("syno")]
        given += [f"{name}={shown(value, 60)}" for name, value in kwargs.items()]
        forms = re.findall(r"^\s*\d+\. (.*)$", said, re.MULTILINE)
        takes = "; or ".join(_plainly(form) for form in forms)
        raise ArgumentError(
            f"{where} cannot take ({', '.join(given)})", fix=f"it takes {takes}"
        ) from None

    call.says_what_does_not_fit = True  # type: ignore[attr-defined]
    return call


def _plainly(form: str) -> str:
    """A signature as the binding prints it, without what only concerns type checkers."""
    form = re.sub(r"\(self: [\w.]+(, )?", "(", form.split(" -> ")[0])
    form = re.sub(r"typing\.(SupportsInt|SupportsIndex)( \| typing\.SupportsIndex)?", "int", form)
    return re.sub(r"\b(collections\.abc|typing|syno\._core)\.", "", form)


def _named(signature: inspect.Signature) -> str:
    """Arguments in their order, and those that are given by name alone as a call writes them."""
    alone = {p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    names = [name for name in signature.parameters if name != "self"]
    more = {p.name for p in signature.parameters.values() if p.kind is p.VAR_KEYWORD}
    return ", ".join(
        f"{name}=" if name in alone else f"**{name}" if name in more else name for name in names
    )


def _misfit(where: str, name: str, value: Any, wanted: str) -> ArgumentError:
    return ArgumentError(f"{where}: {name}={shown(value)} is {_kind(value)}", fix=f"give {wanted}")


def _kind(value: Any) -> str:
    if isinstance(value, type):
        return "a class, not an object of it"
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def _rules(function: Any, signature: inspect.Signature) -> dict[str, tuple[Rule, str]]:
    found: dict[str, tuple[Rule, str]] = {}
    for name, parameter in signature.parameters.items():
        text = "Any" if parameter.annotation is parameter.empty else str(parameter.annotation)
        rule = _rule(_parsed(text), function.__globals__)
        if parameter.kind is parameter.VAR_POSITIONAL:
            rule = functools.partial(_all, rule)
        elif parameter.kind is parameter.VAR_KEYWORD:
            continue  # names of the caller's own, which the function knows more of
        found[name] = (rule, text)
    return found


def _all(rule: Rule, values: Iterable[Any]) -> bool:
    return all(map(rule, values))


def _parsed(annotation: Any) -> ast.expr:
    return ast.parse(str(annotation), mode="eval").body


def _rule(node: ast.expr, scope: Mapping[str, Any]) -> Rule:
    """Whether a value is of the kind that an annotation names; what is no plain kind takes anything that is no plain value."""
    if isinstance(node, ast.BinOp):
        sides = [_rule(side, scope) for side in (node.left, node.right)]
        return lambda value: any(rule(value) for rule in sides)
    if isinstance(node, ast.Constant):
        return lambda value: value is node.value
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return _holder(_leaf(node.value), inner, scope)
    name = _leaf(node)
    if name in _KINDS:
        return _KINDS[name]
    if name in _HOLDERS:
        return _HOLDERS[name]
    if name == "Any":
        return _anything
    return _of_class(name, _looked_up(node, scope))


def _leaf(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _looked_up(node: ast.expr, scope: Mapping[str, Any]) -> Any:
    """What a dotted name stands for where the function was written; None for names that only type checkers see."""
    if isinstance(node, ast.Name):
        return scope.get(node.id)
    if isinstance(node, ast.Attribute):
        return getattr(_looked_up(node.value, scope), node.attr, None)
    return None


def _of_class(name: str, found: Any) -> Rule:
    if isinstance(found, type):
        if getattr(found, "_is_protocol", False):
            return lambda value: True
        return lambda value: isinstance(value, found)
    if found is not None:  # another name of something
        return lambda value: True

    def rule(value: Any) -> bool:
        if any(one.__name__ == name for one in type(value).__mro__):
            return True
        return type(value).__module__ != "builtins" or callable(value)

    return rule


def _holder(name: str, inner: Sequence[ast.expr], scope: Mapping[str, Any]) -> Rule:
    if name == "Literal":
        values = [node.value for node in inner if isinstance(node, ast.Constant)]
        return lambda value: any(value is one or value == one for one in values)
    outer = _HOLDERS.get(name)
    if outer is None:
        return lambda value: True
    if name == "Callable":
        return outer
    # Of whole numbers in a list functions say more themselves: which one, and of what.
    rules = [_anything if _leaf(node) == "int" else _rule(node, scope) for node in inner]
    if name in ("Mapping", "dict"):
        key, item = rules
        return lambda value: (
            outer(value) and all(key(k) and item(v) for k, v in dict(value).items())
        )
    if name == "tuple" and len(rules) > 1:
        return outer
    return lambda value: (
        outer(value) and (not isinstance(value, (list, tuple)) or all(map(rules[0], value)))
    )


def _anything(value: Any) -> bool:
    return True


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) or (
        hasattr(value, "__index__") and not hasattr(value, "__len__")
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (numbers.Real, np.number)) or (
        hasattr(value, "__float__") and getattr(value, "ndim", 1) == 0
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_)) or (type(value) is int and value in (0, 1))


def _is_sequence(value: Any) -> bool:
    if isinstance(value, (str, bytes, Mapping, set)):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")


_KINDS: dict[str, Rule] = {
    "int": _is_whole,
    "float": _is_number,
    "bool": _is_bool,
    "str": lambda value: isinstance(value, str),
    "bytes": lambda value: isinstance(value, (bytes, bytearray)),
    "Path": lambda value: isinstance(value, os.PathLike),
}
_HOLDERS: dict[str, Rule] = {
    "Sequence": _is_sequence,
    "list": lambda value: isinstance(value, list),
    "tuple": lambda value: isinstance(value, (tuple, list)),
    "Iterable": lambda value: hasattr(value, "__iter__") and not isinstance(value, (str, bytes)),
    "Mapping": lambda value: isinstance(value, Mapping),
    "dict": lambda value: isinstance(value, dict),
    "Callable": callable,
}

__all__ = ["check_fields", "checked", "in_sentences"]
