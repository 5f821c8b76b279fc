"""The steps of a pGraph under names of their own, to be changed and written down again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from syno.errors import FormatError

if TYPE_CHECKING:
    from syno import _core

_COORDINATE = re.compile(r"c\d+")


@dataclass(frozen=True)
class Step:
    """One primitive: the coordinates it makes of others. ``size`` is an extent, a block, a factor or a shift."""

    kind: str
    made: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    size: str = ""
    matched: tuple[str, ...] = ()
    """Of a weight: the coordinates that it alone is indexed by from here on; ``of`` are those it shares."""


@dataclass
class Steps:
    """A complete pGraph of one data input. ``names`` are those of its output's coordinates."""

    head: list[str]
    names: list[str]
    steps: list[Step]
    input: list[str]
    fresh: int = field(default=0)

    @classmethod
    def of(cls, graph: _core.PGraph) -> Steps:
        """The steps of a graph.

        Raises:
            FormatError: it has several data inputs.
        """
        lines = str(graph.text()).splitlines()
        first = next(i for i, line in enumerate(lines) if _is_step(line))
        steps = [_read(line) for line in lines[first:] if line.strip() and "input =" not in line]
        last = next(line for line in lines if line.startswith("input ="))
        names = [f"c{i}" for i in range(len(graph.signature["output"]))]
        return cls(lines[:first], names, steps, _COORDINATE.findall(last))

    def copy(self) -> Steps:
        return replace(self, steps=list(self.steps), input=list(self.input))

    def new(self) -> str:
        """A name that no coordinate has."""
        self.fresh += 1
        return f"new{self.fresh}"

    def text(self) -> str:
        """What ``PGraph.parse`` reads: coordinates numbered as they are made."""
        numbers = {name: f"c{i}" for i, name in enumerate(self.names)}
        lines = list(self.head)
        for step in self.steps:
            operands = [numbers[name] for name in step.of]
            for name in step.made:
                numbers[name] = f"c{len(numbers)}"
            lines.append(_written(step, operands, [numbers[n] for n in step.matched], numbers))
        lines.append(" ".join(["input =", *(numbers[name] for name in self.input)]))
        return "\n".join(lines) + "\n"

    def graph(self) -> _core.PGraph:
        """The graph. Raises SynoError where the steps make none."""
        from syno import _core

        return _core.PGraph.parse(self.text())

    def makes(self, name: str) -> Step | None:
        """The step that makes a coordinate; ``None`` for the output's."""
        return next((step for step in self.steps if name in step.made), None)

    def renamed(self, old: str, new: str) -> None:
        """Lets everything read ``new`` in the place of ``old``."""

        def put(names: Iterable[str]) -> tuple[str, ...]:
            return tuple(new if name == old else name for name in names)

        self.steps = [replace(s, of=put(s.of), matched=put(s.matched)) for s in self.steps]
        self.input = list(put(self.input))

    @property
    def weights(self) -> list[Step]:
        """Its weights, in order."""
        return [step for step in self.steps if step.kind == "weight"]


def extents(steps: Steps, graph: _core.PGraph, sizes: Sizes) -> dict[str, tuple[int, ...]]:
    """The extent of each coordinate at every valuation."""
    dims = graph.signature["output"]
    found = {n: sizes.values(d["extent"]) for n, d in zip(steps.names, dims, strict=True)}
    for step in steps.steps:
        if step.kind == "reduce":
            found[step.made[0]] = sizes.values(step.size)
        elif step.kind == "merge":
            block = sizes.values(step.size)
            whole = found[step.of[0]]
            found[step.made[0]] = tuple(w // b for w, b in zip(whole, block, strict=True))
            found[step.made[1]] = block
        elif step.kind == "split":
            pairs = zip(*(found[name] for name in step.of), strict=True)
            found[step.made[0]] = tuple(a * b for a, b in pairs)
        elif step.kind == "stride":
            factor = sizes.values(step.size)
            found[step.made[0]] = tuple(
                a * b for a, b in zip(found[step.of[0]], factor, strict=True)
            )
        elif step.made:
            found[step.made[0]] = found[step.of[0]]
    return found


class Sizes:
    """The variables of a space and their values at its valuations."""

    def __init__(
        self, variables: Iterable[tuple[str, str]], valuations: Iterable[Mapping[str, int]]
    ) -> None:
        self.kinds = dict(variables)
        self.valuations = [dict(each) for each in valuations]

    def fractions(self, text: str) -> tuple[Fraction, ...]:
        """``C_in*g^-1`` at every valuation."""
        found = []
        for row in self.valuations:
            value = Fraction(1)
            for part in text.split("*"):
                name, _, power = part.partition("^")
                base = Fraction(row[name]) if name in row else Fraction(name)
                value *= base ** int(power or 1)
            found.append(value)
        return tuple(found)

    def values(self, text: str) -> tuple[int, ...]:
        """The same where it is a whole number at every valuation. Raises FormatError where it is not."""
        found = self.fractions(text)
        if any(value.denominator != 1 or value < 1 for value in found):
            raise FormatError(f"[known operators] {text} is no whole number")
        return tuple(int(value) for value in found)


def inverse(text: str) -> str:
    """``s^-1*g^-2`` of ``s*g^2``."""
    parts = []
    for part in text.split("*"):
        name, _, power = part.partition("^")
        parts.append(f"{name}^{-int(power or 1)}")
    return "*".join(parts)


def _is_step(line: str) -> bool:
    return line.startswith(("weight ", "expand ", "data ", "input =")) or (
        " = " in line and line.startswith("c")
    )


def _read(line: str) -> Step:
    if line.startswith("data ") or line.startswith("x"):
        raise FormatError("[known operators] the operator has several data inputs")
    made, _, right = line.partition(" = ")
    if line.startswith("expand "):
        return Step("expand", of=(line.split()[1],))
    if line.startswith("weight "):
        shared, _, matched = right.partition("match")
        return Step(
            "weight",
            of=tuple(_COORDINATE.findall(shared)),
            matched=tuple(_COORDINATE.findall(matched)),
        )
    words = right.split()
    operands = tuple(word for word in words[1:] if _COORDINATE.fullmatch(word))
    size = next((word for word in reversed(words[1:]) if not _COORDINATE.fullmatch(word)), "")
    if words[0] in ("split", "unfold"):
        size = ""
    return Step(words[0], made=tuple(made.split()), of=operands, size=size)


def _written(
    step: Step, operands: list[str], matched: list[str], numbers: Mapping[str, str]
) -> str:
    if step.kind == "weight":
        text = "weight w ="
        text += f" share {' '.join(operands)}" if operands else ""
        return text + (f" match {' '.join(matched)}" if matched else "")
    made = " ".join(numbers[name] for name in step.made)
    forms = {
        "expand": "expand {0}",
        "reduce": "{made} = reduce {size}",
        "merge": "{made} = merge {0} block {size}",
        "split": "{made} = split {0} {1}",
        "unfold": "{made} = unfold {0} window {1}",
        "shift": "{made} = shift {0} by {size}",
        "stride": "{made} = stride {0} by {size}",
    }
    return forms[step.kind].format(*operands, made=made, size=step.size)


__all__ = ["Sizes", "Step", "Steps", "extents", "inverse"]
