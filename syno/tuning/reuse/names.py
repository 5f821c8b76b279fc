"""A schedule of one program in the names of another that is equal up to names and sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from syno import _core
from syno.tuning.reuse.shapes import Shape
from syno.tuning.trace_parts import REWRITES


def renamed(schedule: _core.Schedule, there: Shape, here: Shape) -> _core.Schedule:
    """A trace for the program of `there`, in the names of `here`'s.

    Names that decisions made are renamed by the names they begin with. Where that goes wrong the trace does not
    apply, which whoever uses it sees; one that applies keeps the program's meaning.
    """
    if there.tensors == here.tensors and there.loops == here.loops:
        return schedule
    document = json.loads(schedule.to_json())
    names = _Names(there, here)
    for decision in document["trace"]:
        names.rename(decision)
    return _core.Schedule.from_json(json.dumps(document))


class _Names:
    """New names by old ones, kept up with what decisions make."""

    def __init__(self, there: Shape, here: Shape) -> None:
        back = {plain: name for name, plain in here.tensors.items()}
        self.tensors = {name: back.get(plain, name) for name, plain in there.tensors.items()}
        theirs = {plain: name for name, plain in here.loops.items()}
        loops = {name: theirs.get(plain, name) for name, plain in there.loops.items()}
        self.loops: dict[str, dict[str, str]] = {scope: dict(loops) for scope in there.scopes}

    def rename(self, decision: dict[str, Any]) -> None:
        what, scope, tensor = decision["name"], decision["scope"], decision.get("tensor", "")
        words = decision.get("words", [])
        # A scope is computed at a loop of the one that reads it.
        loops = self.loops.setdefault(tensor if what == "compute_at" else scope, {})
        before = decision.get("loops", [])
        after = [_part(loops, name) for name in before]
        if what == "split" and len(before) == 1:
            made = words or [f"{before[0]}_o", f"{before[0]}_i"]
            loops.update(zip(made, words or [f"{after[0]}_o", f"{after[0]}_i"], strict=False))
        elif what == "fuse":
            loops["_".join(before)] = "_".join(after)
        elif what in ("epilogue", "inline"):  # one scope gets loops of the other
            for name, new in self.loops.get(tensor, {}).items():
                loops.setdefault(name, new)
        elif what == "lay_out":  # the copy is computed as the tensor was, or by loops of its own
            self.tensors[scope] = self._derived(scope, tensor)
            self.loops[scope] = dict(self.loops.get(tensor, {}))
        elif what == "stage" and words:
            if tensor == scope:  # of what it writes: the copy is computed as the scope was
                self.loops[words[0]] = dict(loops)
            self.tensors[words[0]] = self._derived(words[0], tensor)
            decision["words"] = [self.tensors[words[0]], *words[1:]]
        decision["scope"] = self.tensors.get(scope, scope)
        if tensor:
            decision["tensor"] = self.tensors.get(tensor, tensor)
        if before:
            decision["loops"] = after

    def _derived(self, name: str, tensor: str) -> str:
        """The name of a copy, which begins with the name of what it is a copy of."""
        rest = name.removeprefix(tensor)
        return self.tensors.get(tensor, tensor) + rest if rest.startswith("_") else name


def _part(loops: Mapping[str, str], name: str) -> str:
    """The new name of a loop: of `om`, a part of what a layout split, by that of `o`."""
    if name in loops:
        return loops[name]
    base = name.rstrip("m")
    return loops[base] + name[len(base) :] if base in loops else name


def sketch_of(schedule: _core.Schedule) -> str:
    """The structure of a schedule: what is staged, where, tiled and laid out how, without any number.

    Parts that follow from numbers (peeled tails, unrolled and parallel loops) are left out.
    """
    lines = []
    for decision in json.loads(schedule.to_json())["trace"]:
        name, scope = decision["name"], decision["scope"]
        if name in _STRUCTURE:
            dims = " ".join(map(str, decision.get("numbers", ()))) if name == "innermost" else ""
            lines.append(f"{name} {scope} {decision.get('tensor', '')} {_words(decision)}{dims}")
        elif name in ("register_tile", "vectorize"):
            loops = {_base(loop) for loop in decision.get("loops", ())}
            lines.append(f"{name} {scope} {' '.join(sorted(loops))}")
    return "; ".join(line.strip() for line in lines)


_STRUCTURE = (*REWRITES, "lay_out", "stage", "epilogue", "prepack")


def _words(decision: Mapping[str, Any]) -> str:
    return ",".join(decision.get("words", ()))


def _base(loop: str) -> str:
    while loop.endswith(("_o", "_i")):
        loop = loop[:-2]
    return loop
