"""Docstrings as the site's parser reads them, which wants more space than people: see mkdocs.yml, `extensions`."""

from __future__ import annotations

import re
from typing import Any

import griffe

_HEADING = re.compile(r"(?:Args|Attributes|Returns|Yields|Raises|Examples?):")
#: ``one, other: what they are``, of parameters or attributes.
_SEVERAL = re.compile(r"    (\*{0,2}\w+(?:, \*{0,2}\w+)+):(.*)")
_NAMED = ("Args:", "Attributes:")


def spread(text: str) -> str:
    """A blank line before each section, and a line for each parameter: without them a section that follows another one
    becomes text, and several names become one of no type."""
    made: list[str] = []
    section, item = "", 0
    names: list[str] = []

    def repeat() -> None:
        """What was said of several names, of each of the others as well."""
        said = made[item:]
        for name in names:
            made.extend([said[0].replace(f"    {first}:", f"    {name}:", 1), *said[1:]])
        names.clear()

    first = ""
    for line in text.split("\n"):
        inside = line.startswith("     ") or not line.strip()
        if not inside:
            repeat()
        if _HEADING.fullmatch(line.rstrip()):
            section = line.strip()
            if made and made[-1].strip():
                made.append("")
        several = _SEVERAL.fullmatch(line) if section in _NAMED else None
        if several is not None:
            first, *names = several[1].split(", ")
            item, line = len(made), f"    {first}:{several[2]}"
        made.append(line)
    repeat()
    return "\n".join(made)


class Sections(griffe.Extension):
    """Spreads the docstrings of everything that is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called once for each."""
        if obj.docstring is not None:
            obj.docstring.value = spread(obj.docstring.value)
