"""Sizes that calls bring along, on the command line: ``--dynamic x:0=batch:1..8``."""

from __future__ import annotations

import re
from typing import Any

_FORM = re.compile(
    r"(?:(?P<argument>[^:=]+):(?P<dim>\d{1,9})=)?(?P<name>[^:=]+)[:=](?P<least>\d{1,9})(?:\.\.(?P<most>\d{1,9}))?"
)


def check_range(text: str) -> re.Match[str]:
    """The parts of such a form.

    Raises:
        ArgumentError: it is another.
    """
    from syno.errors import ArgumentError

    found = _FORM.fullmatch(text.replace(" ", ""))
    if found is None or (found["argument"] and not found["most"]):
        raise ArgumentError(
            f"[dynamic] {text[:80]!r} is no size with its range",
            fix="write argument:dimension=name:least..greatest, such as 'x:0=batch:1..8'; of an .onnx file "
            "name=least..greatest or name=size, such as 'batch=1..64'",
        )
    return found


def check_ranges(texts: list[str] | None) -> None:
    """Raises ArgumentError as `check_range`."""
    for text in texts or []:
        check_range(text)


def of_module(texts: list[str]) -> dict[int | str, dict[int, tuple[str, int, int]]]:
    """By argument, by dimension, as `syno.compile` takes them.

    Raises:
        ArgumentError: one names no argument, or a dimension has two.
    """
    from syno.errors import ArgumentError

    made: dict[int | str, dict[int, tuple[str, int, int]]] = {}
    for text in texts:
        found = check_range(text)
        if not found["argument"]:
            raise ArgumentError(
                f"[dynamic] {text} names no argument of the module",
                fix=f"write 'x:0={text.replace('=', ':')}'",
            )
        argument = int(found["argument"]) if found["argument"].isdigit() else found["argument"]
        dims = made.setdefault(argument, {})
        if int(found["dim"]) in dims:
            raise ArgumentError(
                f"[dynamic] dimension {found['dim']} of {argument} has two sizes",
                fix="leave one out",
            )
        dims[int(found["dim"])] = (found["name"], int(found["least"]), int(found["most"]))
    return made


def of_onnx(texts: list[str]) -> dict[str, Any]:
    """By name of an open dimension, as `load_onnx(…).compile` takes them.

    Raises:
        ArgumentError: one names an argument, or a name has two.
    """
    from syno.errors import ArgumentError

    made: dict[str, Any] = {}
    for text in texts:
        found = check_range(text)
        name, least = found["name"], int(found["least"])
        if found["argument"]:
            raise ArgumentError(
                f"[dynamic] {text}: open dimensions of an .onnx file have names",
                fix=f"write '{name}={least}..{found['most']}'",
            )
        if name in made:
            raise ArgumentError(f"[dynamic] {name} has two ranges", fix="leave one out")
        made[name] = (least, int(found["most"])) if found["most"] else least
    return made
