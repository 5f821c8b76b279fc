"""Names of a package that are imported when they are first used: who reads a session needs nothing of what fills one."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def late(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose names lie in modules of it.

    A name is looked up once: from then on the package has it. Its users' type checkers see plain imports, under
    ``TYPE_CHECKING``.

    Args:
        package: the package's ``__name__``.
        homes: each name, with the module that has it.

    >>> found = late("json", {"JSONDecoder": "json.decoder"})
    >>> found("JSONDecoder").__module__
    'json.decoder'
    >>> found("JSONEncoded")
    Traceback (most recent call last):
    AttributeError: module 'json' has no attribute 'JSONEncoded'
    """

    def found(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return found
