"""Whether the operator key is right: equal keys, equal functions; different keys, different functions.

    python benchmarks/operator_equality.py --spec resnet18 --depth 7
    python benchmarks/operator_equality.py --spec resnet18 --depth 9 --sample 500 --json

Nothing here knows how keys are made. Every operator is read as text, its terms (output coordinate,
input coordinate, element of each weight) are listed at small sizes, and two operators are the same
when a renaming of weight elements and unordered channels maps the terms of one to the other:

 - operators with equal keys: such a renaming is searched and then applied and checked, term by term,
   at two choices of sizes;
 - operators with different keys: a number that no renaming changes must differ at one of the two
   choices. Where it agrees at both, a renaming is searched: one that is found is a duplicate that
   the key missed, and without one the pair is counted as different only when the search was
   exhaustive.

Duplicates that the search itself never emits are listed with `operator_keys=False`. Exit code 1 when
a pair contradicts its keys.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent))

from synthesis import describe

from syno import _core

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Value = Fraction | Ints

# Two choices of sizes for the named specs. What coincides at one (g = s * s) does not at the other.
SIZES: dict[str, list[dict[str, int]]] = {
    "resnet18": [
        {"N": 1, "C_in": 16, "C_out": 24, "H": 6, "k_1": 5, "k_2": 3, "s": 2, "g": 4},
        {"N": 1, "C_in": 12, "C_out": 36, "H": 10, "k_1": 3, "k_2": 5, "s": 2, "g": 6},
    ],
    "simple": [
        {"N": 1, "C_in": 8, "C_out": 16, "H": 8, "W": 16, "k_1": 3, "s": 2, "g": 4},
        {"N": 1, "C_in": 16, "C_out": 24, "H": 16, "W": 8, "k_1": 3, "s": 2, "g": 4},
    ],
    "test": [
        {"N": 1, "C_in": 3, "C_out": 8, "H": 7, "W": 7, "k_1": 3, "s_1": 2},
        {"N": 1, "C_in": 3, "C_out": 8, "H": 8, "W": 8, "k_1": 3, "s_1": 2},
    ],
}


class Text:
    """Index expressions as arrays: `+ - * / % ^`, `inside(e, S)`; `/` is floor division."""

    _TOKEN = re.compile(r"\s*(\d+|[A-Za-z_]\w*|[-+*/%^(),])")

    def __init__(self, text: str, names: Mapping[str, Value]) -> None:
        self.text, self.names = text, names
        self.tokens: list[tuple[str, int, int]] = [
            (m.group(1), m.start(1), m.end(1)) for m in self._TOKEN.finditer(text)
        ]
        self.at = 0
        self.alive: list[npt.NDArray[np.bool_]] = []

    def value(self) -> Value:
        result = self._sum()
        if self.at != len(self.tokens):
            raise ValueError(f"cannot read {self.text!r} from {self.tokens[self.at][0]!r} on")
        return result

    def _peek(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def _next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][0]

    def _sum(self) -> Value:
        result = self._product()
        while self._peek() in ("+", "-"):
            sign = 1 if self._next() == "+" else -1
            result = _plus(result, _times(self._product(), Fraction(sign)))
        return result

    def _product(self) -> Value:
        result = self._power()
        while self._peek() in ("*", "/", "%"):
            operation = self._next()
            begin = self.tokens[self.at - 1][1]
            spaced = operation != "*" and self.text[begin - 1] == " "
            right = self._monomial() if spaced else self._power()
            if operation == "*":
                result = _times(result, right)
                continue
            if not isinstance(right, Fraction):
                raise ValueError(f"a divisor is no size in {self.text!r}")
            if isinstance(result, Fraction):
                result = Fraction(result // right) if operation == "/" else result % right
            else:
                divisor = _integer(right)
                result = result // divisor if operation == "/" else result % divisor
        return result

    def _monomial(self) -> Value:
        """What follows ` / ` or ` % ` as far as there is no space: one divisor."""
        result = self._power()
        while self._peek() == "*" and self.at + 1 < len(self.tokens):
            _, begin, end = self.tokens[self.at]
            if self.tokens[self.at - 1][2] != begin or self.tokens[self.at + 1][1] != end:
                break
            self._next()
            result = _times(result, self._power())
        return result

    def _power(self) -> Value:
        result = self._atom()
        if self._peek() == "^":
            self._next()
            sign = -1 if self._peek() == "-" else 1
            if sign < 0:
                self._next()
            if not isinstance(result, Fraction):
                raise ValueError(f"a power of no size in {self.text!r}")
            result = result ** (sign * int(self._next()))
        return result

    def _atom(self) -> Value:
        token = self._next()
        if token == "(":
            result = self._sum()
            self._next()
            return result
        if token == "-":
            return _times(self._power(), Fraction(-1))
        if token.isdigit():
            return Fraction(int(token))
        if token == "inside":
            self._next()
            index = self._sum()
            self._next()
            extent = self._sum()
            self._next()
            if not isinstance(extent, Fraction):
                raise ValueError(f"inside() needs a size in {self.text!r}")
            array = np.asarray(index if not isinstance(index, Fraction) else _integer(index))
            self.alive.append((array >= 0) & (array < _integer(extent)))
            return index
        if token not in self.names:
            raise ValueError(f"unknown name {token!r} in {self.text!r}")
        return self.names[token]


def _integer(value: Fraction) -> int:
    if value.denominator != 1:
        raise ValueError(f"{value} is no integer at these sizes")
    return int(value)


def _plus(a: Value, b: Value) -> Value:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a + b
    return _array(a) + _array(b)


def _times(a: Value, b: Value) -> Value:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a * b
    if isinstance(b, Fraction):
        a, b = b, a
    if isinstance(a, Fraction) and not isinstance(b, Fraction):
        product: Ints = b * a.numerator // a.denominator
        return product
    raise ValueError("a product of two indices")


def _array(value: Value) -> Ints:
    return np.asarray(_integer(value), dtype=np.int64) if isinstance(value, Fraction) else value


@dataclass
class Terms:
    """All terms of an operator at some sizes. Roles: unordered dimensions, then weights."""

    ordered: Ints  # (terms, ordered coordinates)
    roles: list[Ints]  # element of each term, numbered from 0
    weights: list[int]  # positions in roles; these may change places


def terms_of(operator: Mapping[str, Any], sizes: Mapping[str, int]) -> Terms:
    """The terms of an operator in the format of `synthesis.py --dump`, plus `unordered` dimensions
    of "y" and "x" by number. ValueError where a size is no integer."""
    constants: dict[str, Value] = {name: Fraction(value) for name, value in sizes.items()}
    iterators = [*operator["loops"], *operator["sums"]]
    extents = [_integer(_size(text, constants)) for _, text in iterators]
    names = dict(constants)
    for axis, ((name, _), extent) in enumerate(zip(iterators, extents, strict=True)):
        shape = [1] * len(extents)
        shape[axis] = extent
        names[name] = np.arange(extent, dtype=np.int64).reshape(shape)
    alive = np.ones(extents, dtype=bool)

    def column(text: str) -> Ints:
        nonlocal alive
        reader = Text(text, names)
        value = np.broadcast_to(_array(reader.value()), extents)
        for inside in reader.alive:
            alive = alive & np.broadcast_to(inside, extents)
        return value

    ordered: list[Ints] = []
    unordered: list[Ints] = []
    weights: list[list[Ints]] = []
    for dim, (name, _) in enumerate(operator["loops"]):
        (unordered if dim in operator["unordered"]["y"] else ordered).append(column(name))
    input_shape = operator["shape"]
    for tensor, indices in operator["reads"]:
        columns = [column(text) for text in indices]
        if tensor != "x":
            weights.append(columns)
            continue
        for dim, index in enumerate(columns):
            extent = _integer(_size(input_shape[dim], constants))
            alive = alive & (index >= 0) & (index < extent)
            (unordered if dim in operator["unordered"]["x"] else ordered).append(index)
    kept = alive.ravel()

    def flat(array: Ints) -> Ints:
        return array.reshape(-1)[kept]

    roles = [_numbered([flat(index)]) for index in unordered]
    first = len(roles)
    roles += [_numbered([flat(index) for index in columns]) for columns in weights]
    coordinates = [flat(index) for index in ordered]
    return Terms(np.stack(coordinates, axis=1), roles, list(range(first, first + len(weights))))


def _size(text: str, constants: Mapping[str, Value]) -> Fraction:
    value = Text(text, constants).value()
    if not isinstance(value, Fraction):
        raise ValueError(f"{text!r} is no size")
    return value


def _numbered(columns: Sequence[Ints]) -> Ints:
    if not columns:
        raise ValueError("a weight without dimensions")
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        code = code * (int(column.max(initial=0)) - low + 1) + (column - low)
    return np.unique(code, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _mix(words: Words) -> Words:
    with np.errstate(over="ignore"):
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Words = words ^ (words >> np.uint64(31))
    return mixed


class Coloured:
    """Colour refinement: an element's colour comes to say how its terms lie among the others."""

    def __init__(self, terms: Terms, order: Sequence[int]) -> None:
        """`order`: which role takes which place."""
        self.terms = terms
        self.roles = [terms.roles[r] for r in order]
        self.fixed = np.zeros(len(terms.ordered), dtype=np.uint64)
        for column in terms.ordered.T:
            self.fixed = _mix(self.fixed * np.uint64(3) + column.astype(np.uint64) + np.uint64(1))
        self.sorted = [np.argsort(role, kind="stable") for role in self.roles]
        self.starts = [
            np.flatnonzero(np.diff(role[order], prepend=-1))
            for role, order in zip(self.roles, self.sorted, strict=True)
        ]
        self.colours = [np.zeros(len(starts), dtype=np.uint64) for starts in self.starts]

    def copy(self) -> Coloured:
        other = object.__new__(Coloured)
        other.__dict__ = dict(self.__dict__)
        other.colours = [colours.copy() for colours in self.colours]
        return other

    def term_colours(self) -> Words:
        words = self.fixed
        for place, (role, colours) in enumerate(zip(self.roles, self.colours, strict=True)):
            words = _mix(words * np.uint64(5) + colours[role] + np.uint64(place + 1))
        return words

    def refine(self) -> None:
        before = -1
        while True:
            words = self.term_colours()
            for place, order in enumerate(self.sorted):
                sums = np.add.reduceat(words[order], self.starts[place])
                self.colours[place] = _mix(self.colours[place] * np.uint64(7) + sums)
            now = sum(len(np.unique(colours)) for colours in self.colours)
            if now == before:
                return
            before = now

    def summary(self) -> tuple[int, ...]:
        """The same for every renaming."""
        parts = [self.term_colours(), *self.colours]
        return tuple(int(_mix(part).sum(dtype=np.uint64)) for part in parts)

    def open_class(self) -> tuple[int, list[int]] | None:
        """A smallest class of several elements that look alike: (role, elements)."""
        best: tuple[int, int, int] | None = None
        for place, colours in enumerate(self.colours):
            values, counts = np.unique(colours, return_counts=True)
            for value, count in zip(values, counts, strict=True):
                if count > 1 and (best is None or (int(count), place) < best[:2]):
                    best = (int(count), place, int(value))
        if best is None:
            return None
        place = best[1]
        return place, np.flatnonzero(self.colours[place] == np.uint64(best[2])).tolist()

    def renamed(self) -> Ints:
        """The terms with elements named by the rank of their colours, sorted."""
        columns = [self.terms.ordered]
        for role, colours in zip(self.roles, self.colours, strict=True):
            columns.append(np.unique(colours, return_inverse=True)[1].reshape(-1)[role][:, None])
        table = np.concatenate(columns, axis=1)
        return table[np.lexsort(table.T[::-1])]


def _orders(terms: Terms) -> Iterator[list[int]]:
    plain = [r for r in range(len(terms.roles)) if r not in terms.weights]
    for weights in itertools.permutations(terms.weights):
        yield [*plain, *weights]


def invariant(terms: Terms) -> tuple[Any, ...]:
    """Equal for operators that are the same."""
    summaries = []
    for order in _orders(terms):
        coloured = Coloured(terms, order)
        coloured.refine()
        summaries.append(coloured.summary())
    return (len(terms.ordered), len(terms.roles), min(summaries))


def same(a: Terms, b: Terms, effort: int = 400) -> bool | None:
    """Whether a renaming maps `a` to `b`; it is applied and compared term by term. None: not known
    after `effort` choices."""
    if len(a.ordered) != len(b.ordered) or len(a.roles) != len(b.roles):
        return False
    left = Coloured(a, next(_orders(a)))
    left.refine()
    unsure = False
    for order in _orders(b):
        right = Coloured(b, order)
        right.refine()
        found = _match(left, right, [effort])
        if found:
            return True
        unsure = unsure or found is None
    return None if unsure else False


def _match(left: Coloured, right: Coloured, effort: list[int]) -> bool | None:
    if left.summary() != right.summary():
        return False
    chosen = left.open_class()
    if chosen is None:
        return bool(np.array_equal(left.renamed(), right.renamed()))
    place, elements = chosen
    colour = left.colours[place][elements[0]]
    singled = left.copy()
    singled.colours[place][elements[0]] = _mix(np.asarray([colour]) + np.uint64(1))[0]
    singled.refine()
    unsure = False
    for element in np.flatnonzero(right.colours[place] == colour).tolist():
        effort[0] -= 1
        if effort[0] < 0:
            return None
        other = right.copy()
        other.colours[place][element] = _mix(np.asarray([colour]) + np.uint64(1))[0]
        other.refine()
        found = _match(singled, other, effort)
        if found:
            return True
        unsure = unsure or found is None
    return None if unsure else False


def readable(graph: Any) -> dict[str, Any]:
    """A pGraph as loops, sums and reads, with what terms_of() needs to know of its signature."""
    entry = describe(graph, 0, 0, 0)
    signature = graph.signature
    entry["unordered"] = {
        "y": [i for i, dim in enumerate(signature["output"]) if dim["unordered"]],
        "x": [i for i, dim in enumerate(signature["input"]) if dim["unordered"]],
    }
    entry["shape"] = [dim["extent"] for dim in signature["input"]]
    return entry


def compare(
    entries: Sequence[dict[str, Any]],
    keys: Sequence[str],
    sizes: Sequence[Mapping[str, int]],
    progress: bool = False,
) -> dict[str, Any]:
    """Checks the keys of operators both ways; counts, and the contradictions as pairs of numbers."""
    started = time.perf_counter()
    representative: dict[str, int] = {}
    report: dict[str, Any] = {
        "operators": len(entries),
        "keys": 0,
        "equal_pairs_checked": 0,
        "equal_keys_different_functions": [],
        "different_keys_equal_functions": [],
        "not_decided": [],
        "same_invariant_but_different": 0,
    }

    def listed(number: int, which: int) -> Terms:
        return terms_of(entries[number], sizes[which])

    for number, key in enumerate(keys):
        first = representative.setdefault(key, number)
        if first == number:
            continue
        for which in range(len(sizes)):
            found = same(listed(first, which), listed(number, which))
            if found is None:
                report["not_decided"].append([first, number])
            elif not found:
                report["equal_keys_different_functions"].append([first, number])
                break
        report["equal_pairs_checked"] += 1
    report["keys"] = len(representative)

    alike: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for done, number in enumerate(representative.values()):
        alike[invariant(listed(number, 0))].append(number)
        if progress and done % 100 == 99:
            seconds = time.perf_counter() - started
            print(f"{done + 1} of {len(representative)} keys, {seconds:.0f} s", file=sys.stderr)
    for group in alike.values():
        if len(group) == 1:
            continue
        again: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for number in group:
            again[invariant(listed(number, 1))].append(number)
        for suspects in again.values():
            for a, b in itertools.combinations(suspects, 2):
                answers = [same(listed(a, w), listed(b, w)) for w in range(len(sizes))]
                if all(answers):
                    report["different_keys_equal_functions"].append([a, b])
                elif False in answers:
                    report["same_invariant_but_different"] += 1
                else:
                    report["not_decided"].append([a, b])
    report["seconds"] = round(time.perf_counter() - started, 1)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--spec", default="resnet18", choices=sorted(SIZES))
    parser.add_argument("--depth", type=int, default=7, help="most steps of an operator")
    parser.add_argument("--sample", type=int, help="check this many operators and equal pairs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()

    spec = _core.spec_named(arguments.spec)
    found = _core.enumerate_operators(spec, max_steps=arguments.depth, operator_keys=False)
    graphs = found.operators
    keys = [graph.operator_key() for graph in graphs]
    if arguments.sample is not None and arguments.sample < len(graphs):
        groups: dict[str, list[int]] = defaultdict(list)
        for number, key in enumerate(keys):
            groups[key].append(number)
        draw = random.Random(arguments.seed)
        repeated = [group for group in groups.values() if len(group) > 1]
        chosen = draw.sample(repeated, min(len(repeated), arguments.sample // 4))
        single = draw.sample(sorted(group[0] for group in groups.values()), arguments.sample)
        numbers = sorted({n for group in chosen for n in group} | set(single))
        graphs, keys = [graphs[n] for n in numbers], [keys[n] for n in numbers]
    entries = [readable(graph) for graph in graphs]
    report = compare(entries, keys, SIZES[arguments.spec], progress=not arguments.json)
    report = {"spec": arguments.spec, "depth": arguments.depth, **report}
    wrong = ("equal_keys_different_functions", "different_keys_equal_functions")
    if arguments.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(f"{name:>32}  {value if not isinstance(value, list) else len(value)}")
        for name in (*wrong, "not_decided"):
            for a, b in report[name][:10]:
                formulas = [graphs[n].one_scope().text().splitlines()[-2] for n in (a, b)]
                print(f"\n{name}:\n  {formulas[0]}\n  {formulas[1]}")
    return 1 if any(report[name] for name in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
