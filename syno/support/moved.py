"""Modules that sessions and configurations of earlier versions name, and where they are now."""

from __future__ import annotations

_NOW = {
    "syno.metrics": "syno.training.metrics",
    "syno.network": "syno.searching.network",
    "syno.proposers": "syno.searching.proposers",
    "syno.tasks": "syno.training.tasks",
}


def now_at(reference: str) -> str:
    """``"module:name"`` as it is written today; one of any other module as it is.

    >>> now_at("syno.network:NetworkMeasurer"), now_at("train:make")
    ('syno.searching.network:NetworkMeasurer', 'train:make')
    """
    module, separator, name = reference.rpartition(":")
    return f"{_NOW.get(module, module)}{separator}{name}"
