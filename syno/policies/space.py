"""The operators a policy chooses among, with what is known of each before it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from syno.errors import SpecError
from syno.policies.derivation import derivation
from syno.support.machine import usable_cores

if TYPE_CHECKING:
    from syno import _core
    from syno.operators.features import Features

Matrix: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

#: Most primitives of an operator unless something else is asked for; the paper's operators have up to ten.
DEFAULT_STEPS = 12

#: A space is enumerated step by step until it holds this many operators; deeper ones are sampled.
ENOUGH = 4_000

#: ... or until one more step would look at about this many partial operators: some seconds. A count, not a
#: time, so that a space is the same on every machine.
MOST_LOOKED_AT = 1_200_000

_MOST_GROWTH = 16.0

#: Operators sampled beyond the depth that is enumerated, at first; more as they are asked for.
SAMPLED = 256

#: Partial operators that a first sample may look at once it has :data:`LEAST_SAMPLED` operators: a second or two, several
#: where strides are searched. In a space with few operators the last ones take as long as all before.
EFFORT = 16_000

LEAST_SAMPLED = 64

#: Samples go on growing until one ends by itself: what looks at so many in vain has found nearly all.
MOST_EFFORT = 300_000

#: A space grows, where it can, before more than one in so many of its operators was proposed.
ROOM = 4


class Space(Protocol):
    """Operators by their index, ``0 … len - 1``; the same order on every machine."""

    def __len__(self) -> int: ...

    def derivation(self, index: int) -> tuple[str, ...]:
        """Steps of an operator, see :func:`syno.policies.derivation.derivation`."""
        ...

    def features(self, index: int) -> Features:
        """Structural features of an operator."""
        ...

    def vectors(self, indices: Sequence[int]) -> Matrix:
        """Those of several operators, ``[n, F]`` in the order of :data:`syno.operators.features.NAMES`."""
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
    """The operators of a spec: all of them where there are thousands, else all small and some deep ones, more of which come
    with :meth:`grow`. The same on every machine, whatever ``threads`` is.

    Args:
        known: further ones, whether the spec allows them or not; ``known`` are their indices, in this order.
        threads: that search; 0 for one on each core.
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
        threads: int = 0,
    ) -> None:
        self._spec, self._seed, self._sampled = spec, seed, sampled
        self._threads = threads or usable_cores()
        self._effort = EFFORT
        self.graphs: list[_core.PGraph] = []
        reached = 0
        looking = {"threads": self._threads, "most_children": MOST_LOOKED_AT}
        for depth, found, coming in deepening(spec, spec.max_steps, **looking):
            if found.stats["children"] > MOST_LOOKED_AT:
                break
            self.graphs, reached = list(found.operators), depth
            if len(self.graphs) >= enough or coming > MOST_LOOKED_AT:
                break
        self._whole = reached == spec.max_steps
        self._hashes = {graph.hash() for graph in self.graphs}
        self._beside: set[str] = set()  # what known ones compute
        self._derivations: list[tuple[str, ...] | None] = []
        self._features: dict[int, Features] = {}
        self._sample()
        if not self.graphs:
            raise SpecError(
                f"[search] the space has no operator of at most {spec.max_steps} steps; "
                "allow more steps (max_steps), more FLOPs (flops_ratio), or fewer (min_flops_ratio)"
            )
        self.known = self._add(known)

    def grow(self) -> bool:
        """Samples twice as far; whether there are more operators now, or may be when it is asked again. Indices stay."""
        if self._whole:
            return False
        self._sampled *= 2
        self._effort *= 2
        self._sample()
        return True

    def make_room(self, proposed: int) -> None:
        """Grows until no more than one in :data:`ROOM` operators was proposed, or there are no more."""
        while len(self) < ROOM * proposed and self.grow():
            pass

    def _sample(self) -> None:
        """Adds a sample of the deep operators."""
        from syno import _core

        if self._whole:
            return
        self._whole = self._effort > MOST_EFFORT
        deep = _core.sample_operators(
            self._spec,
            n=self._sampled,
            seed=self._seed,
            threads=self._threads,
            effort=0 if self._whole else self._effort,
            least=LEAST_SAMPLED,
        )
        # One that has all it was asked for may have more.
        self._whole = self._whole and len(deep) < self._sampled
        for graph in deep:
            if graph.hash() in self._hashes:
                continue
            self._hashes.add(graph.hash())
            if not self._beside or str(graph.operator_key()) not in self._beside:
                self.graphs.append(graph)

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
            self._beside.add(key)
        return list(dict.fromkeys(found))

    def __len__(self) -> int:
        return len(self.graphs)

    def derivation(self, index: int) -> tuple[str, ...]:
        self._derivations += [None] * (len(self) - len(self._derivations))
        found = self._derivations[index]
        if found is None:
            found = self._derivations[index] = derivation(self.graphs[index])
        return found

    def features(self, index: int) -> Features:
        self._know([index])
        return self._features[index]

    def vectors(self, indices: Sequence[int]) -> Matrix:
        self._know(indices)
        return np.array([self._features[index].vector() for index in indices])

    def _know(self, indices: Sequence[int]) -> None:
        from syno.operators.features import features

        unknown = [index for index in dict.fromkeys(indices) if index not in self._features]
        if unknown:
            graphs = [self.graphs[index] for index in unknown]
            with ThreadPoolExecutor(self._threads) as pool:
                self._features.update(zip(unknown, pool.map(features, graphs), strict=True))


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
