"""Structures of tensors as plain data: what a model is called with, and what it returns.

A node is a dictionary with one item: `{"tensor": number}`; `{"value": …}`, which stays; `{"tuple": […]}`, `{"list": […]}`;
`{"dict": [[key, node], …]}`; `{"fields": [[name, node], …]}`, a tuple with names; `{"record": [[key, node], …]}`, a
dictionary whose items are attributes, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from syno.errors import ShapeError, shown

_MOST_DEPTH = 64


class Fields(tuple[Any, ...]):
    """A tuple whose items have names, as a `collections.namedtuple` has."""

    _fields: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str], items: Sequence[Any]) -> Fields:
        made = cls(items)
        made._fields = tuple(names)
        return made

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("_fields", ())
        if name in fields:
            return self[fields.index(name)]
        raise AttributeError(f"there is no {name!r}; there are {', '.join(fields)}")


class Record(dict[str, Any]):
    """A dictionary whose items are attributes, too."""

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        raise AttributeError(f"there is no {name!r}; there are {', '.join(map(str, self))}")


def described(value: Any, number: Callable[[Any], int | None]) -> dict[str, Any]:
    """The node of a structure.

    Args:
        number: of a leaf that is a tensor; None of another.
    Raises:
        TypeError: it holds what has no such form.
    """
    found = number(value)
    if found is not None:
        return {"tensor": found}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        names = [str(name) for name in value._fields]
        items = [described(each, number) for each in value]
        return {"fields": [list(pair) for pair in zip(names, items, strict=True)]}
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [described(each, number) for each in value]}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int)):
                raise TypeError(
                    f"the key {shown(key)} of a dictionary is neither a text nor a number"
                )
        pairs = [[key, described(each, number)] for key, each in value.items()]
        plain = type(value).__module__ in ("builtins", "collections")
        return {"dict" if plain else "record": pairs}
    finite = not isinstance(value, float) or math.isfinite(value)
    if value is None or (isinstance(value, (bool, int, float, str)) and finite):
        return {"value": value}
    raise TypeError(f"{shown(value)} ({type(value).__name__}) has no form in a file")


def checked(node: Any, count: int, depth: int = 0) -> None:
    """Raises ValueError where something is no node, or names one of `count` tensors that there is not."""
    if not isinstance(node, dict) or len(node) != 1 or depth > _MOST_DEPTH:
        raise ValueError(f"{shown(node)} is no structure")
    ((kind, inner),) = node.items()
    if kind == "tensor":
        if isinstance(inner, bool) or not isinstance(inner, int) or not 0 <= inner < count:
            raise ValueError(f"there is no tensor {shown(inner)}")
    elif kind in ("tuple", "list") and isinstance(inner, list):
        for each in inner:
            checked(each, count, depth + 1)
    elif kind in ("dict", "record", "fields") and isinstance(inner, list):
        for pair in inner:
            keys = (str,) if kind != "dict" else (str, int)
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], keys):
                raise ValueError(f"{shown(pair)} is no item of a dictionary")
            checked(pair[1], count, depth + 1)
    elif kind != "value" or not (inner is None or isinstance(inner, (bool, int, float, str))):
        raise ValueError(f"{shown(node)} is no structure")


def numbers_in(node: dict[str, Any]) -> list[int]:
    """Of its tensors, in order."""
    ((kind, inner),) = node.items()
    if kind == "tensor":
        return [inner]
    if kind == "value":
        return []
    parts = inner if kind in ("tuple", "list") else [pair[1] for pair in inner]
    return [number for part in parts for number in numbers_in(part)]


def built(node: dict[str, Any], tensors: Sequence[Any]) -> Any:
    """The structure with these tensors."""
    ((kind, inner),) = node.items()
    if kind == "tensor":
        return tensors[inner]
    if kind == "value":
        return inner
    if kind in ("tuple", "list"):
        made = [built(each, tensors) for each in inner]
        return made if kind == "list" else tuple(made)
    items = [(key, built(each, tensors)) for key, each in inner]
    if kind == "fields":
        return Fields.of([key for key, _ in items], [each for _, each in items])
    return Record(items) if kind == "record" else dict(items)


def taken(node: dict[str, Any], value: Any, name: str, tensors: dict[int, Any]) -> None:
    """Puts a structure's tensors into `tensors` by their numbers.

    Raises:
        ShapeError: it is another structure, or what stays is another value.
    """
    ((kind, inner),) = node.items()
    if kind == "tensor":
        tensors[inner] = value
    elif kind == "value":
        if type(value) is not type(inner) or value != inner:
            raise ShapeError(
                f"[call] {name} is {shown(inner)} in this network, not {shown(value)}: export it again for that"
            )
    elif kind in ("tuple", "list", "fields"):
        parts = inner if kind != "fields" else [pair[1] for pair in inner]
        if not isinstance(value, (tuple, list)) or len(value) != len(parts):
            raise ShapeError(
                f"[call] {name} is a {'tuple' if kind == 'fields' else kind} of {len(parts)} in this network, not "
                f"{shown(value)}"
            )
        for position, (part, each) in enumerate(zip(parts, value, strict=True)):
            taken(part, each, f"{name}[{position}]", tensors)
    else:
        keys = [pair[0] for pair in inner]
        if not isinstance(value, Mapping) or set(value) != set(keys):
            raise ShapeError(
                f"[call] {name} has {', '.join(map(str, keys))} in this network; got {shown(value)}"
            )
        for key, part in inner:
            taken(part, value[key], f"{name}[{key!r}]", tensors)
