"""What of a space a surrogate looks at: all of a small one; of a large one more and more, and around the best."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from syno.operators.features import NAMES
from syno.policies.gaussian import (
    MOST_KNOWN,
    Covariance,
    Matrix,
    Mixture,
    SquaredExponential,
    Tanimoto,
    Vector,
    standardized,
)
from syno.policies.policy import History, stream
from syno.policies.space import Space, likeness

#: Lengths of the squared exponential in standard deviations of a feature; the evidence chooses.
LENGTHS = (1.0, 2.0, 4.0)

#: Most operators that are looked at at random: what it costs grows with their square.
MOST_VISIBLE = 2_000

#: Trainings between two additions to what is looked at.
GROWS_EVERY = 8


@dataclass(frozen=True)
class Seen:
    """The operators looked at.

    Attributes:
        indices: in the space, ascending; ``places`` their inverse.
        features: ``[n, F]`` in the order of :data:`syno.operators.features.NAMES`.
        covariances: of all of them, to choose from.
    """

    indices: list[int]
    places: dict[int, int]
    features: Matrix
    covariances: list[Covariance]

    def promise(self, names: Sequence[str]) -> Vector:
        """Sum of standardised features, standardised, ``[n]``; zero where none of them varies."""
        columns = [NAMES.index(name) for name in names]
        total: Vector = standardized(self.features[:, columns]).sum(axis=1)
        spread = float(total.std())
        return total / spread if spread > 1e-9 else np.zeros(len(self.features))


class View:
    """Looks at ``visible`` random operators, ``growth`` more for each training, and around some that are trained.

    Args:
        neighbors: operators that share most steps with one to look around.
        steps_share: of the covariance that comes from shared steps rather than features.
    """

    def __init__(
        self, seed: int, *, visible: int, growth: int, neighbors: int, steps_share: float
    ) -> None:
        self._seed = seed
        self._visible = visible
        self._growth = growth
        self._neighbors = neighbors
        self._steps_share = steps_share
        self._near: dict[int, list[int]] = {}
        self._near_of = 0
        self._drawn: list[int] = []
        self._seen = Seen([], {}, np.zeros((0, 0)), [])

    def look(
        self,
        space: Space,
        history: History,
        around: Iterable[int],
        told: Iterable[int],
        wanted: int,
    ) -> Seen:
        """What is looked at; it follows from seed and arguments alone, and never lacks what is awaited, or ``told``: the
        trainings that a surrogate is fitted to, nor ``wanted`` operators that are free where the space has so many."""
        indices = self._indices(space, history, around, {*told, *history.awaited}, wanted)
        if indices != self._seen.indices:
            features = space.vectors(indices)
            columns = standardized(features)
            shared = Tanimoto([space.derivation(index) for index in indices])
            covariances: list[Covariance] = [
                Mixture(SquaredExponential(columns, length), shared, self._steps_share)
                for length in LENGTHS
            ]
            places = {index: place for place, index in enumerate(indices)}
            self._seen = Seen(indices, places, features, covariances)
        return self._seen

    def _indices(
        self, space: Space, history: History, around: Iterable[int], needed: set[int], wanted: int
    ) -> list[int]:
        if len(space) <= self._visible + 5 * self._neighbors:
            return list(range(len(space)))
        count = self._visible + self._growth * (len(history.told) // GROWS_EVERY * GROWS_EVERY)
        order = self._order(len(space))
        taken = history.taken
        if count <= MOST_VISIBLE:
            found = {int(i) for i in order[:count]}
            if len(history.told) <= MOST_KNOWN and len(history.awaited) == len(history.pending):
                needed = needed | taken
            if sum(index not in taken for index in found) < wanted:
                further = (int(i) for i in order[count:] if int(i) not in taken)
                found |= set(itertools.islice(further, max(wanted, self._visible)))
        else:  # so many that are free, further and further on in the same order
            free = (int(i) for i in order if int(i) not in taken)
            found = set(itertools.islice(free, MOST_VISIBLE))
        for index in around:
            found |= set(self._likely(space, index))
        return sorted(found | needed)

    def _order(self, count: int) -> list[int]:
        if len(self._drawn) != count:
            self._drawn = [int(i) for i in stream(self._seed, 0).permutation(count)]
        return self._drawn

    def _likely(self, space: Space, index: int) -> list[int]:
        """The operators that share most steps with one; a policy serves one space, so they are kept until it grows."""
        if self._near_of != len(space):
            self._near, self._near_of = {}, len(space)
        if index not in self._near:
            steps = space.derivation(index)
            ranked = sorted(
                range(len(space)), key=lambda i: (-likeness(steps, space.derivation(i)), i)
            )
            self._near[index] = ranked[: self._neighbors]
        return self._near[index]


__all__ = ["Seen", "View"]
