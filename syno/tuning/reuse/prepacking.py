"""A schedule for calls whose weights stay the same: copies of weights are made once, before calls."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from syno import _core
from syno.errors import SynoError


def with_prepacked(
    program: _core.Program, schedule: _core.Schedule, constants: Sequence[str]
) -> _core.Schedule:
    """The schedule with its copies of constants prepacked, as far as that applies; else the schedule itself.

    Args:
        program: a concrete one, to which the schedule applies.
        constants: names of inputs that stay the same over calls.
    """
    document = json.loads(schedule.to_json())
    copies = [
        decision["words"][0]
        for decision in document["trace"]
        if decision["name"] == "stage"
        and decision.get("tensor") in constants
        and decision["tensor"] != decision["scope"]
        and decision.get("words")
    ]
    made = schedule
    for copy in copies:
        trace = _at_root(program, json.loads(made.to_json())["trace"], copy)
        try:
            tried = _core.Schedule.from_json(json.dumps({**document, "trace": trace}))
            if _core.apply_prepacked(program, tried) is not None:
                made = tried
        except SynoError:  # a layout that follows from where the copy was computed
            continue
    return made


def _at_root(
    program: _core.Program, trace: list[dict[str, Any]], copy: str
) -> list[dict[str, Any]]:
    """The copy whole, in one piece, before everything else: how its loops run matters little then."""
    stage = next(d for d in trace if d["name"] == "stage" and copy in d.get("words", ()))
    extents = list(program.shape(stage["tensor"]))
    kept = []
    for decision in trace:
        if decision["scope"] == copy:
            if decision["name"] not in ("layout", "stage"):
                continue
            if decision["name"] == "layout" and decision.get("tensor") == copy:
                decision = _whole(decision, extents)
        kept.append(decision)
    return [*kept, {"name": "prepack", "scope": copy}]


def _whole(decision: dict[str, Any], extents: list[int]) -> dict[str, Any]:
    """The same layout of all of the tensor, where it was one of a part; `extents` follow."""
    words, numbers = decision.get("words", []), list(decision.get("numbers", []))
    if words == ["split"] and len(numbers) >= 3 and numbers[0] < len(extents):
        at, inner = numbers[0], math.prod(numbers[2:])
        numbers[1] = -(-extents[at] // inner)
        extents[at : at + 1] = numbers[1:]
    elif words == ["reorder"] and sorted(numbers) == list(range(len(extents))):
        extents[:] = [extents[i] for i in numbers]
    elif words == ["fuse"] and len(numbers) == 2 and sum(numbers) <= len(extents):
        at, count = numbers
        extents[at : at + count] = [math.prod(extents[at : at + count])]
    return {**decision, "numbers": numbers}
