"""Whose latencies they are: a machine measures for a session only where it is the session's."""

from __future__ import annotations

from typing import Any

import msgspec

#: Of a machine file and of its levels of memory, what is the same at every measurement of a machine.
_OF_MACHINE = ("name", "cores", "threads_per_core", "vector_bits", "vector_registers")
_OF_LEVEL = ("bytes", "line_bytes", "ways", "shared_by")


def traits(machine: str) -> dict[str, Any]:
    """What a machine file (JSON) says that no clock decided: its CPU, cores, vectors and caches."""
    content = msgspec.json.decode(machine)
    if not isinstance(content, dict):
        return {"machine": content}
    found = {name: content.get(name) for name in _OF_MACHINE}
    for level in content.get("levels", []):
        if level.get("ways"):  # a cache: how much memory there is differs from start to start
            found |= {f"{level.get('name')} {name}": level.get(name) for name in _OF_LEVEL}
    return found


def own_traits() -> dict[str, Any]:
    """Those of the machine that this runs on."""
    from syno.machines.model import machine_model

    return traits(machine_model().to_json())


def difference(own: dict[str, Any], other: dict[str, Any]) -> str:
    """In what another machine differs, in words; empty where it does not."""
    names = [name for name in {**own, **other} if own.get(name) != other.get(name)]
    parts = [f"{name} is {other.get(name)!r}, not {own.get(name)!r}" for name in names]
    return ", ".join(parts[:5]) + (f" and {len(parts) - 5} more" if len(parts) > 5 else "")


__all__ = ["difference", "own_traits", "traits"]
