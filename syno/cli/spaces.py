"""``--space``, ``--set`` and ``--rule``: what is asked of a search's spaces on the command line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from syno.errors import SpecError, require_unicode, shown
from syno.searching.space_settings import BUDGETS, EXTENSIONS, THRESHOLDS, Settings

if TYPE_CHECKING:
    from syno.searching.space_overview import SpaceSizes
    from syno.torch import Sites

_NUMBER = re.compile(r"[-+]?(\d{1,30})(\.\d{1,30})?(e[-+]?\d{1,3})?", re.ASCII | re.IGNORECASE)


def asked(sets: list[str], rules: list[str], source: str | None = None) -> dict[str, Any] | None:
    """The ``space=`` of :func:`syno.search`; ``None`` where nothing is asked.

    Raises:
        UnknownName: a name that does not exist; lists those that do.
        SpecError: a text that is not of the form ``name=value``.
    """
    wanted: dict[str, Any] = {}
    for text in sets:
        name, value = _pair("--set", text, "max_steps=10")
        if name == "extensions":
            wanted[name] = [] if value in ("", "none") else [v.strip() for v in value.split(",")]
        elif name in EXTENSIONS:
            wanted[name] = _switch("--set", name, value)
        else:
            wanted[name] = _number(value) if name in BUDGETS or name in THRESHOLDS else value
    if rules:
        pairs = [_pair("--rule", text, "pools-too-much=off") for text in rules]
        wanted["rules"] = {name: _switch("--rule", name, value) for name, value in pairs}
    Settings.of(wanted)
    if source is not None:
        wanted["spec"] = source
    return wanted or None


def sizes(found: Sites, wanted: dict[str, Any] | None, mix_tokens: bool = False) -> SpaceSizes:
    """What a search of a model with these sites would search; ``wanted``: what :func:`asked` gave.

    Raises:
        SpecError: the space that was given fits no group of layers.
    """
    from syno.searching.search_space import SearchSpace
    from syno.searching.space_overview import sizes_of

    return sizes_of(found, SearchSpace(mix_tokens=mix_tokens).asked(wanted, None))


def _pair(option: str, text: str, example: str) -> tuple[str, str]:
    require_unicode("search", text)
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SpecError(f"[search] {option} {shown(text)}: write name=value, '{example}'")
    return name.strip(), value.strip()


def _switch(option: str, name: str, value: str) -> bool:
    if value not in ("on", "off"):
        raise SpecError(f"[search] {option} {name}={shown(value)[1:-1]}: write on or off")
    return value == "on"


def _number(text: str) -> Any:
    """A number where it is one; else the text, which is refused by name."""
    found = _NUMBER.fullmatch(text)
    if not found:
        return text
    return float(text) if found[2] or found[3] else int(text)
