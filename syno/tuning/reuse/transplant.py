"""A schedule applied to a program of another shape: the same decisions, tails and borders made anew."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from syno import _core
from syno.errors import SynoError
from syno.tuning.reuse.names import renamed
from syno.tuning.reuse.shapes import _ITERATOR, Shape

_DECISION = re.compile(r"\[decision (\d+)\b")


def transplanted(
    schedule: _core.Schedule, there: Shape, here: Shape, program: _core.Program
) -> _core.Schedule | None:
    """A schedule of a program of shape `there` on `program`, of shape `here` and the same type.

    None where it does not apply.
    """
    document = json.loads(renamed(schedule, there, here).to_json())
    before = _extents(there.plain, {v: k for k, v in here.tensors.items()}, here)
    after = _extents(here.plain, {v: k for k, v in here.tensors.items()}, here)
    for anew in (True, False):
        trace = _retailed(document["trace"], before, after, anew)
        made = _applying(program, document, trace)
        if made is not None:
            return made
    return None


def _applying(
    program: _core.Program, document: dict[str, Any], trace: list[dict[str, Any]]
) -> _core.Schedule | None:
    """With this trace, tails that do not fit left out."""
    for _ in range(len(trace)):
        try:
            made = _core.Schedule.from_json(json.dumps({**document, "trace": trace}))
            _core.apply_schedule(program, made)
            return made
        except SynoError as error:
            wrong = _DECISION.search(str(error))
            if wrong is None or int(wrong[1]) not in range(1, len(trace) + 1):
                return None
            at = int(wrong[1]) - 1
            if trace[at]["name"] not in ("peel", "unroll", "skip"):
                return None
            trace = trace[:at] + trace[at + 1 :]
    return None


_Extents = dict[str, dict[str, int]]


def _extents(plain: str, names: dict[str, str], here: Shape) -> _Extents:
    found: _Extents = {}
    for line in plain.splitlines():
        head, equals, _ = line.partition(" = ")
        if equals:
            scope = names[head.partition("[")[0]]
            own = {short: name for name, short in here.loops.items()}
            found[scope] = {own[loop]: int(n) for loop, n in _ITERATOR.findall(line)}
    return found


def _retailed(
    trace: list[dict[str, Any]], before: _Extents, after: _Extents, anew: bool
) -> list[dict[str, Any]]:
    """The trace with the cuts where this shape's tails begin; with `anew`, also where the other had none."""
    old, new = _Walk(before), _Walk(after)
    made = []
    peeled: set[tuple[str, str]] = set()
    for decision in trace:
        decision = dict(decision)
        scope, loops = decision["scope"], decision.get("loops", [])
        if decision["name"] == "peel" and len(loops) == 1:
            peeled.add((scope, loops[0]))
            if (scope, loops[0]) in new.whole:
                cut = new.whole[scope, loops[0]]
                if cut is None:
                    continue
                if "numbers" in decision and (scope, loops[0]) in old.whole:
                    decision["numbers"] = [cut]
        elif decision["name"] == "relax" and len(loops) == 1:
            was, now = old.of(scope, loops[0]), new.of(scope, loops[0])
            if was is not None and now is not None and decision.get("numbers"):
                decision["numbers"] = [now + decision["numbers"][0] - was]
        old.step(decision)
        new.step(decision)
        made.append(decision)
    if anew:
        for (scope, loop), cut in new.whole.items():
            if (
                cut is not None
                and (scope, loop) not in peeled
                and old.whole.get((scope, loop)) is None
            ):
                made.append({"name": "peel", "scope": scope, "loops": [loop], "numbers": [cut]})
    return made


class _Walk:
    """Extents of loops while decisions split and join them."""

    def __init__(self, extents: _Extents) -> None:
        self.extents = {scope: dict(loops) for scope, loops in extents.items()}
        self.whole: dict[tuple[str, str], int | None] = {}
        """Of loops over parts: how many parts are whole, None where all are."""

    def of(self, scope: str, loop: str) -> int | None:
        return self.extents.get(scope, {}).get(loop)

    def step(self, decision: dict[str, Any]) -> None:
        what, scope = decision["name"], decision["scope"]
        loops, numbers = decision.get("loops", []), decision.get("numbers", [])
        words, tensor = decision.get("words", []), decision.get("tensor", "")
        mine = self.extents.setdefault(scope, {})
        if what == "split" and len(loops) == 1 and loops[0] in mine and numbers:
            extent, factor = mine.pop(loops[0]), numbers[0]
            outer, inner = words if len(words) == 2 else (f"{loops[0]}_o", f"{loops[0]}_i")
            mine[outer], mine[inner] = -(-extent // factor), factor
            self.whole[scope, outer] = (
                extent // factor if extent % factor and extent > factor else None
            )
        elif what == "fuse" and all(loop in mine for loop in loops):
            mine[words[0] if words else "_".join(loops)] = math.prod(mine.pop(x) for x in loops)
        elif what == "relax" and len(loops) == 1 and numbers and loops[0] in mine:
            mine[loops[0]] = numbers[0]
        elif what in ("epilogue", "inline"):
            for name, extent in self.extents.get(tensor, {}).items():
                mine.setdefault(name, extent)
        elif what == "stage" and words and tensor == scope:
            self.extents[words[0]] = dict(mine)
