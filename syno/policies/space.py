"""The operators a policy chooses among, with what is known of each before it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from syno.errors import SpecError
from syno.policies.derivation import derivation

if TYPE_CHECKING:
    from syno import _core
    from syno.operators.features import Features

#: Most primitives of an operator unless something else is asked for; the paper's operators have up to ten.
DEFAULT_STEPS = 12

#: A space is enumerated step by step until it holds this many operators; deeper ones are sampled.
ENOUGH = 4_000

#: ... or until one more step would look at about this many partial operators: some seconds. A count, not a
#: time, so that a space is the same on every machine.
MOST_LOOKED_AT = 1_200_000

_MOST_GROWTH = 16.0

#: Operators sampled beyond the depth that is enumerated.
SAMPLED = 256


class Space(Protocol):
    """Operators by their index, ``0 … len - 1``; the same order on every machine."""

    def __len__(self) -> int: ...

    def derivation(self, index: int) -> tuple[str, ...]:
        """Steps of an operator, see :func:`syno.policies.derivation.derivation`."""
        ...

    def features(self, index: int) -> Features:
        """Structural features of an operator."""
        ...


def deepening(
    spec: _core.Spec, most: int, **options: Any
) -> Iterator[tuple[int, _core.EnumerationResult, float]]:
    """All operators of one primitive, of up to 2, then 3, ... up to ``most``.

    With each: how many primitives, and about how many partial operators the next will look at, see :func:`expected`.
    """
    from syno import _core

    before = 0
    for depth in range(1, most + 1):
        found = _core.enumerate_operators(spec, max_steps=depth, **options)
        looked_at = max(1, int(found.stats["children"]))
        yield depth, found, expected(looked_at, before)
        before = looked_at


def expected(looked_at: int, before: int) -> float:
    """How many partial operators one primitive more will look at, if that grows as it did from ``before``.

    The least primitives of any operator see little beside the first step's own choices, and the next far more: such
    a jump does not go on.
    """
    growth = looked_at / before if before else 1.0
    return looked_at * min(_MOST_GROWTH, max(growth, 1.0))


class SpecSpace:
    """The operators of a spec: all of them where there are thousands, else all small and some deep ones.

    Args:
        known: further ones, whether the spec allows them or not; ``known`` are their indices, in this order.
    Raises:
        SpecError: the spec allows no operator.
    """

    def __init__(
        self,
        spec: _core.Spec,
        *,
        seed: int = 0,
        enough: int = ENOUGH,
        sampled: int = SAMPLED,
        known: Sequence[_core.PGraph] = (),
    ) -> None:
        from syno import _core

        self.graphs: list[_core.PGraph] = []
        reached = 0
        for depth, found, coming in deepening(spec, spec.max_steps):
            self.graphs, reached = list(found.operators), depth
            if len(self.graphs) >= enough or coming > MOST_LOOKED_AT:
                break
        if reached < spec.max_steps:
            hashes = {graph.hash() for graph in self.graphs}
            deep = _core.sample_operators(spec, n=sampled, seed=seed)
            self.graphs += [graph for graph in deep if graph.hash() not in hashes]
        if not self.graphs:
            raise SpecError(
                f"[search] the space has no operator of at most {spec.max_steps} steps; "
                "allow more steps (max_steps), more FLOPs (flops_ratio), or fewer (min_flops_ratio)"
            )
        self.known = self._add(known)
        self._derivations: list[tuple[str, ...] | None] = [None] * len(self.graphs)
        self._features: list[Features | None] = [None] * len(self.graphs)

    def _add(self, graphs: Sequence[_core.PGraph]) -> list[int]:
        """Indices of these operators, which are there afterwards, each once however it is built."""
        if not graphs:
            return []
        places = {str(graph.operator_key()): i for i, graph in enumerate(self.graphs)}
        found = []
        for graph in graphs:
            key = str(graph.operator_key())
            if key not in places:
                places[key] = len(self.graphs)
                self.graphs.append(graph)
            found.append(places[key])
        return list(dict.fromkeys(found))

    def __len__(self) -> int:
        return len(self.graphs)

    def derivation(self, index: int) -> tuple[str, ...]:
        found = self._derivations[index]
        if found is None:
            found = self._derivations[index] = derivation(self.graphs[index])
        return found

    def features(self, index: int) -> Features:
        found = self._features[index]
        if found is None:
            from syno.operators.features import features

            found = self._features[index] = features(self.graphs[index])
        return found


def likeness(one: Sequence[str], other: Sequence[str]) -> float:
    """Shared steps over all steps of two derivations, 0 … 1."""
    a, b = set(one), set(other)
    return len(a & b) / len(a | b) if a or b else 1.0


__all__ = [
    "DEFAULT_STEPS",
    "ENOUGH",
    "MOST_LOOKED_AT",
    "Space",
    "SpecSpace",
    "deepening",
    "expected",
    "likeness",
]
