"""Known operators beside those that a policy chooses: which ones, when they have their turn, and what they are called."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import FormatError, SynoError
from syno.known.naming import Names
from syno.known.operators import Known, Place, chosen, known_operators

if TYPE_CHECKING:
    from syno import _core

#: Greatest part of the trainings that known operators may take.
SHARE = 0.25


class Written(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A known operator as a session keeps it: its name, its pGraph as text."""

    known: str
    pgraph: str


class Beside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a session keeps of the known operators of one space.

    Attributes:
        operators: to be trained, in this order.
        refused: those that are not, by name, with the reason.
        window: the layers' own window, as :class:`syno.known.Place` takes it.
    """

    operators: list[Written] = []
    refused: dict[str, str] = {}
    window: str = ""

    @classmethod
    def read(cls, value: Mapping[str, Any] | None) -> Beside:
        """From a proposer's options.

        Raises:
            FormatError: they are something else.
        """
        try:
            return msgspec.convert(value or {}, cls)
        except (msgspec.ValidationError, RecursionError) as error:
            raise FormatError(f"[proposer] known: {error}") from None

    def graphs(self) -> list[_core.PGraph]:
        """The operators. Raises FormatError where a text is none."""
        from syno import _core

        try:
            return [_core.PGraph.parse(one.pgraph) for one in self.operators]
        except SynoError as error:
            raise FormatError(f"[proposer] known: {error}") from None


def beside(
    spec: _core.Spec,
    names: Sequence[str] | str | None,
    *,
    window: str = "",
    most_flops: float | None = None,
    most_params: float | None = None,
) -> dict[str, Any]:
    """The known operators of these names that may stand beside those found in a space, as a proposer's option.

    They need not be in the space: limits that only judge promise do not hold for them, and rules of the search neither.

    Args:
        names: as for :func:`syno.known.chosen`.
        most_flops, most_params: the space's limits of multiply-adds and weight elements, over all valuations.
    """
    from syno.operators.operator import Operator

    operators: list[Written] = []
    refused: dict[str, str] = {}
    keys: set[str] = set()

    def problem(one: Known) -> str:
        if one.graph is None:
            return one.problem
        made = Operator.from_pgraph(one.graph)
        for what, has, most in (
            ("multiply-adds", made.flops, most_flops),
            ("parameters", made.params, most_params),
        ):
            if most is not None and has > most:
                return f"it has {has:,} {what}; at most {most:,.0f} are asked for"
        if str(one.graph.operator_key()) in keys:
            return "at these sizes it is one of those before it"
        keys.add(str(one.graph.operator_key()))
        return ""

    for one in known_operators(Place(spec, window), chosen(names)):
        why = problem(one)
        if why:
            refused[one.label] = why
        else:
            assert one.graph is not None
            operators.append(Written(one.label, str(one.graph.text())))
    content: dict[str, Any] = msgspec.to_builtins(Beside(operators, refused, window))
    return content


def due(*, trained: int, known: int, next: int, waiting: int) -> int:
    """How many of the next candidates are known operators, so that these take no more than :data:`SHARE` of the trainings.

    Args:
        trained: candidates that were trained, or are about to be, known ones among them.
        known: ... of which known.
        next: candidates that are wanted now.
        waiting: known operators that had no turn yet.
    """
    return max(0, min(waiting, next, int(SHARE * (trained + next)) - known))


@functools.lru_cache(maxsize=16)
def _names_of(spec: str, window: str) -> Names:
    """The catalogue of a space, a JSON text: a second or two of work that every search of this process needs once."""
    from syno import _core

    return Names(Place(_core.Spec.from_json(spec), window))


class Namer:
    """Names operators of one space; the catalogue is made when the first is asked for."""

    def __init__(self, spec: _core.Spec, kept: Beside) -> None:
        self._spec = spec
        self._kept = kept
        self._given: dict[str, str] | None = None

    def __call__(self, graph: _core.PGraph) -> str:
        """The name of a known operator; empty for one that is found."""
        if self._given is None:
            pairs = zip(self._kept.graphs(), self._kept.operators, strict=True)
            self._given = {str(made.operator_key()): one.known for made, one in pairs}
        names = _names_of(self._spec.to_json(), self._kept.window)
        return self._given.get(str(graph.operator_key())) or names.of(graph)


__all__ = ["SHARE", "Beside", "Namer", "Written", "beside", "due"]
