"""Whether an operator that a search found is one that people know: at any value of its coefficients, or with tied weights.

Tied: elements of a weight that the known operator has one by one are the same element. The weight then lacks a
coordinate, or a part of one. Operators are compared by their keys.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from syno.errors import SynoError
from syno.known.operators import KINDS, MIXED, Kind, Place, Value, built
from syno.known.steps import Step, Steps, extents, inverse

if TYPE_CHECKING:
    from syno import _core

#: Elements of each weight at every valuation, sorted: equal for equal operators.
_Counts = tuple[tuple[int, ...], ...]

#: Coordinates that weights lack: numbers of weights, each with one of its coordinates.
_Dropped = tuple[tuple[int, str], ...]

#: A coordinate in two parts: its name, the extents of the outer and of the inner one.
_Block = tuple[str, str, str]

TIED = " with tied weights"

#: Most coordinates that the weight of an operator lacks, and two of two weights. With all of them gone nothing is left of
#: an operator that one would call by its name.
_MOST_TIES = 3


@dataclass(frozen=True)
class _Form:
    """A known operator whose weights lack coordinates, one of which may be a part of one."""

    label: str
    steps: Steps
    dropped: _Dropped
    block: _Block | None = None

    def graph(self) -> _core.PGraph | None:
        """The operator; ``None`` where steps cannot say it."""
        steps = self.steps
        if self.block is not None:
            parted = _in_two(steps, steps.weights[0], *self.block)
            if parted is None:
                return None
            steps = parted
        return _tied(steps, self.dropped)


class Names:
    """The names of a space's operators.

    Args:
        place: the space's shapes and coefficients, which decide what known operators look like in it.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._forms: dict[_Counts, list[_Form]] | None = None
        self._keys: dict[_Counts, dict[str, str]] = {}

    def of(self, graph: _core.PGraph) -> str:
        """``"grouped(g=4)"``, ``"grouped(g=2) with tied weights"``; empty for what nobody has named.

        Args:
            graph: a complete pGraph of the space.
        """
        counts = _counts_of(graph)
        if counts is None:
            return ""
        if self._forms is None:
            self._forms = {}
            for form, its in _forms(self._place):
                self._forms.setdefault(its, []).append(form)
        if counts not in self._keys:
            keys: dict[str, str] = {}
            for form in self._forms.get(counts, ()):
                made = form.graph()
                if made is not None:
                    # The same by several names: the first, of the fewest ties, is the simplest.
                    keys.setdefault(str(made.operator_key()), form.label)
            self._keys[counts] = keys
        return self._keys[counts].get(str(graph.operator_key()), "")


def _counts_of(graph: _core.PGraph) -> _Counts | None:
    program = graph.one_scope()
    rows = []
    for name in program.inputs:
        if program.role(name) == "weight":
            rows.append(
                tuple(math.prod(program.shape(name, v)) for v in range(program.valuation_count))
            )
    return tuple(sorted(rows)) if rows else None


def _forms(place: Place) -> Iterator[tuple[_Form, _Counts]]:
    """Every form of every known operator: untied ones first, then those with the fewest ties."""
    rows: list[tuple[int, _Form, _Counts]] = []
    blocks = place.values(windows=True)
    for label, graph, own in _everything(place):
        steps = Steps.of(graph)
        sizes = extents(steps, graph, place.sizes)
        parts = [_parts(steps, weight) for weight in steps.weights]
        whole = _elements(parts, sizes, len(place.sizes.valuations))
        ties = list(_ties(steps, parts, (_MOST_TIES if len(parts) == 1 else 2) if own else 1))
        for dropped in ties:
            counts = [_less(whole[i], dropped, i, sizes) for i in range(len(parts))]
            name = label + (TIED if dropped else "")
            rows.append((len(dropped), _Form(name, steps, dropped), tuple(sorted(counts))))
        if len(parts) != 1 or not own:
            continue
        texts = _extent_texts(steps, graph)
        for block, part, size in _parted(parts[0], texts, blocks, place):
            for dropped in ties:
                names = {name for _, name in dropped}
                if block[0] in names or len(names) > 1:
                    continue
                left = _less(whole[0], dropped, 0, sizes)
                counts = [tuple(a // b for a, b in zip(left, size, strict=True))]
                form = _Form(label + TIED, steps, (*dropped, (0, part)), block)
                rows.append((len(dropped) + 1, form, tuple(counts)))
    rows.sort(key=lambda row: row[0])
    for _, form, counts_of in rows:
        yield form, counts_of


def _parted(
    parts: list[str], texts: dict[str, str], values: list[Value], place: Place
) -> Iterator[tuple[_Block, str, tuple[int, ...]]]:
    """A coordinate in two parts, one of a value that coefficients have: which part goes, and its extent."""
    for atom in parts:
        for value in values:
            rest = f"{texts[atom]}*{inverse(value.text)}"
            try:
                others = place.sizes.values(rest)
            except SynoError:
                continue
            if min(others) == 1:
                continue
            for outer, inner in ((rest, value.text), (value.text, rest)):
                for part, text in (("outer", outer), ("inner", inner)):
                    yield (atom, outer, inner), part, others if text == rest else value.values


def _everything(place: Place) -> Iterator[tuple[str, _core.PGraph, bool]]:
    """Known operators at every value, with every window, or the layers' own along some of the axes; and whether it is
    the layers' own along all of them."""
    values = place.values(windows=True)
    first = [] if place.window == MIXED else [place.window]
    windows = dict.fromkeys([*first, *(v.text for v in _windows(place)), "1"])
    seen: set[str] = set()
    for window in windows:
        for kind in KINDS:
            if kind.windowed and window == "1":
                continue  # without a window it is another one
            if len(kind.coefficients) > 1 and window not in (place.window, "1"):
                continue
            for row in itertools.product(
                _coefficients(kind, place, values), repeat=len(kind.coefficients)
            ):
                one = built(kind, place, row, window)
                if one.graph is None:
                    continue
                own = window == place.window
                more = _narrower(one.label, one.graph) if own else ()
                for label, graph in [(one.label, one.graph), *more]:
                    key = str(graph.hash())
                    if key not in seen:
                        seen.add(key)
                        yield label, graph, own and graph is one.graph


def _coefficients(kind: Kind, place: Place, values: list[Value]) -> list[Value]:
    """Of the groups of one weight also those that leave so many channels to each; of two coefficients, each value in one
    form: there are as many pairs as values squared."""
    if len(kind.coefficients) > 1:
        return list({value.values: value for value in reversed(values)}.values())[::-1]
    if kind.coefficients != ("groups",):
        return values
    channels = {d["extent"] for d in _dims(place) if d.get("unordered")}
    found = list(values)
    for extent in sorted(channels):
        for size in [None, *values]:
            text = extent if size is None else f"{extent}*{inverse(size.text)}"
            try:
                found.append(Value(text, place.sizes.values(text)))
            except SynoError:
                continue
    return found


def _dims(place: Place) -> list[dict[str, Any]]:
    content = json.loads(place.spec.to_json())
    return [*content["output"], *content["input"]]


def _windows(place: Place) -> list[Value]:
    return [v for v in place.values(windows=True) if all(n % 2 for n in v.values)]


def _narrower(label: str, graph: _core.PGraph) -> Iterator[tuple[str, _core.PGraph]]:
    """The same with a window along some of the axes alone."""
    steps = Steps.of(graph)
    windows = [_source(steps, s.of[1]) for s in steps.steps if s.kind == "unfold"]
    if len(windows) < 2 or len(set(windows)) < len(windows):
        return
    for count in range(1, len(windows)):
        for gone in itertools.combinations(windows, count):
            made = _without(steps, gone)
            try:
                yield (
                    f"{label} with {len(windows) - count} of its {len(windows)} windows",
                    made.graph(),
                )
            except SynoError:
                continue


def _source(steps: Steps, name: str) -> str:
    """The coordinate that a window's taps come from, before they are spread and shifted."""
    step = steps.makes(name)
    while step is not None and step.kind in ("stride", "shift"):
        name = step.of[0]
        step = steps.makes(name)
    return name


def _without(steps: Steps, gone: tuple[str, ...]) -> Steps:
    """Steps without these windows."""
    made = steps.copy()
    removed = set(gone)
    kept: list[Step] = []
    aliases: dict[str, str] = {}
    for step in made.steps:
        if step.kind in ("stride", "shift") and step.of[0] in removed:
            removed |= set(step.made)
        elif step.kind == "unfold" and step.of[1] in removed:
            aliases[step.made[0]] = aliases.get(step.of[0], step.of[0])
        elif not (step.kind == "reduce" and step.made[0] in removed):
            kept.append(replace(step, of=tuple(n for n in step.of if n not in removed)))
    made.steps = kept
    for old, new in aliases.items():
        made.renamed(old, new)
    return made


def _in_two(steps: Steps, weight: Step, atom: str, outer: str, inner: str) -> Steps | None:
    """Steps in which a coordinate of the weight comes in two parts; ``None`` where it is neither summed nor matched."""
    made = steps.copy()
    if atom in weight.matched:
        where = made.steps.index(weight)
        matched = tuple(
            n for m in weight.matched for n in (("outer", "inner") if m == atom else (m,))
        )
        made.steps[where] = replace(weight, matched=matched)
        made.steps.insert(where, Step("merge", ("outer", "inner"), (atom,), inner))
        return made
    step = made.makes(atom)
    if step is None or step.kind != "reduce":
        return None
    where = made.steps.index(step)
    use = next(i for i, later in enumerate(made.steps) if atom in (*later.of, *later.matched))
    made.steps.insert(use, Step("split", (atom,), ("outer", "inner")))
    made.steps[where : where + 1] = [
        replace(step, made=("outer",), size=outer),
        replace(step, made=("inner",), size=inner),
    ]
    return made


def _extent_texts(steps: Steps, graph: _core.PGraph) -> dict[str, str]:
    """Extents of coordinates as sizes, of those that steps say them of."""
    dims = graph.signature["output"]
    found = {n: str(d["extent"]) for n, d in zip(steps.names, dims, strict=True)}
    for step in steps.steps:
        if step.kind == "reduce":
            found[step.made[0]] = step.size
        elif step.kind == "merge":
            found[step.made[0]] = f"{found[step.of[0]]}*{inverse(step.size)}"
            found[step.made[1]] = step.size
        elif step.kind == "split":
            found[step.made[0]] = "*".join(found[name] for name in step.of)
        elif step.made:
            found[step.made[0]] = found[step.of[0]]
    return found


def _parts(steps: Steps, weight: Step) -> list[str]:
    """The coordinates that say which element of a weight is read, those joined into one apart."""

    def apart(name: str) -> list[str]:
        step = steps.makes(name)
        if step is not None and step.kind == "split":
            return [part for operand in step.of for part in apart(operand)]
        return [name]

    return [part for name in weight.of for part in apart(name)] + list(weight.matched)


def _ties(steps: Steps, parts: list[list[str]], most: int) -> Iterator[_Dropped]:
    """Sets of up to ``most`` coordinates that a weight does not depend on any more; each weight keeps one at least.

    What one weight sums of another stays: without it the two would be one.
    """
    matched = {n for weight in steps.weights for n in weight.matched}
    between = {n for n in matched if not _of_output(steps, n)}
    free = [(i, n) for i, row in enumerate(parts) for n in row if n not in between]
    for count in range(min(len(free), most + 1)):
        for dropped in itertools.combinations(free, count):
            if all({n for k, n in dropped if k == i} < set(row) for i, row in enumerate(parts)):
                yield dropped


def _of_output(steps: Steps, name: str) -> bool:
    step = steps.makes(name)
    while step is not None and step.kind == "merge":
        name = step.of[0]
        step = steps.makes(name)
    return step is None


def _elements(
    parts: list[list[str]], sizes: dict[str, tuple[int, ...]], rows: int
) -> list[tuple[int, ...]]:
    """Of each weight, at every valuation."""
    return [
        tuple(math.prod(sizes[name][row] for name in part) for row in range(rows)) for part in parts
    ]


def _less(
    whole: tuple[int, ...], dropped: _Dropped, number: int, sizes: dict[str, tuple[int, ...]]
) -> tuple[int, ...]:
    """The elements of a weight that lacks coordinates."""
    for i, name in dropped:
        if i == number:
            whole = tuple(a // b for a, b in zip(whole, sizes[name], strict=True))
    return whole


def _tied(steps: Steps, dropped: _Dropped) -> _core.PGraph | None:
    """The operator whose weights do not depend on these coordinates; ``None`` where steps cannot say it."""
    made = steps.copy()
    for number, weight in enumerate(steps.weights):
        gone = {name for i, name in dropped if i == number}
        if not gone:
            continue
        where = next(i for i, step in enumerate(made.steps) if step is weight)
        shared: list[str] = []
        apart: list[str] = []
        for name in weight.of:
            of = _parts(steps, Step("weight", of=(name,)))
            if gone & set(of):
                apart += [part for part in of if part not in gone]
            else:
                shared.append(name)
        changed = replace(
            weight,
            of=(*shared, *apart),
            matched=tuple(n for n in weight.matched if n not in gone),
        )
        repeated = [Step("expand", of=(n,)) for n in weight.matched if n in gone]
        del made.steps[where]
        # Parts are read before they are joined.
        joins = [
            i
            for i, step in enumerate(made.steps[:where])
            if step.kind == "split" and set(step.of) & set(apart)
        ]
        where = min([where, *joins])
        made.steps[where:where] = [changed, *repeated]
    try:
        return made.graph()
    except (SynoError, KeyError):
        return None


__all__ = ["TIED", "Names"]
