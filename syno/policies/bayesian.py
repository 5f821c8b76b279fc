"""Bayesian optimisation over the space: train what a surrogate expects to be best, or knows least of."""

from __future__ import annotations

import numpy as np

from syno.features import NAMES
from syno.policies.gaussian import (
    Matrix,
    Posterior,
    Surrogate,
    Vector,
    squared_exponential,
    standardized,
    tanimoto,
)
from syno.policies.policy import Choice, History, stream
from syno.policies.space import Space, likeness

#: Features in which more promises more before anything is trained: what an element sees, and how many
#: independent things the output channels say of it.
PROMISING = ("positions", "effective_rank")

#: Lengths of the squared exponential in standard deviations of a feature; the evidence chooses.
LENGTHS = (1.0, 2.0, 4.0)

#: Trainings between two additions to what is looked at.
GROWS_EVERY = 8


class BayesianOptimization:
    """Upper confidence bounds of a Gaussian process over structural features and derivation steps.

    Before anything is trained, operators with a wide receptive field and independent output channels are
    expected to be better, by ``prior`` standard deviations for each standard deviation of these features. The
    choices of one batch are made one after the other, each as if those before had given what is expected of
    them (Ginsbourger, Le Riche and Carraro 2010: kriging believer).

    In a large space only some operators are looked at: ``visible`` random ones, ``growth`` more for each
    training, and the ``neighbors`` that share most steps with each that was the best so far.

    Args:
        exploration: standard deviations added to what is expected.
        steps_share: of the covariance that comes from shared steps rather than features.
    """

    def __init__(
        self,
        seed: int,
        *,
        exploration: float = 0.3,
        prior: float = 0.5,
        steps_share: float = 0.3,
        visible: int = 200,
        growth: int = 5,
        neighbors: int = 20,
    ) -> None:
        self._seed = seed
        self._exploration = exploration
        self._prior = prior
        self._steps_share = steps_share
        self._visible = visible
        self._growth = growth
        self._neighbors = neighbors
        self._seen: list[int] = []
        self._near: dict[int, list[int]] = {}
        self._surrogate: Surrogate | None = None

    def choose(self, space: Space, history: History, count: int) -> list[Choice]:
        """The operators with the greatest upper confidence bounds."""
        seen = self._look(space, history)
        place = {index: i for i, index in enumerate(seen)}
        surrogate = self._surrogate_of(space, seen)
        posterior = surrogate.fit(
            [place[index] for index, _ in history.told], [reward for _, reward in history.told]
        )
        taken = {place[index] for index in history.taken}
        for index in history.pending:
            posterior = posterior.believing(place[index])
        # Ties, of operators that look alike, fall by the seed.
        ties = 1e-6 * stream(self._seed, 1).random(len(seen))
        choices: list[Choice] = []
        while len(choices) < count and len(taken) < len(seen):
            mean, std = posterior.predict()
            bound = mean + self._exploration * std + ties
            bound[list(taken)] = -np.inf
            best = int(np.argmax(bound))
            choices.append(Choice(seen[best], self._why(posterior, mean, std, best, history)))
            taken.add(best)
            posterior = posterior.believing(best)
        return choices

    def _look(self, space: Space, history: History) -> list[int]:
        """Indices of the operators looked at, ascending."""
        if len(space) <= self._visible + 5 * self._neighbors:
            return list(range(len(space)))
        count = self._visible + self._growth * (len(history.told) // GROWS_EVERY * GROWS_EVERY)
        found = {int(i) for i in stream(self._seed, 0).permutation(len(space))[:count]}
        # Neighbours of the best of every prefix, so that nothing that was looked at is forgotten.
        best = -np.inf
        for index, reward in history.told:
            found.add(index)
            if reward > best:
                best = reward
                found |= set(self._likely(space, index))
        found |= set(history.pending)
        return sorted(found)

    def _likely(self, space: Space, index: int) -> list[int]:
        """The operators that share most steps with one; a policy serves one space, so they are kept."""
        if index not in self._near:
            steps = space.derivation(index)
            ranked = sorted(
                range(len(space)), key=lambda i: (-likeness(steps, space.derivation(i)), i)
            )
            self._near[index] = ranked[: self._neighbors]
        return self._near[index]

    def _surrogate_of(self, space: Space, seen: list[int]) -> Surrogate:
        if self._surrogate is None or seen != self._seen:
            raw: Matrix = np.array([space.features(index).vector() for index in seen])
            columns = standardized(raw)
            shared = tanimoto([space.derivation(index) for index in seen])
            covariances = [
                (1 - self._steps_share) * squared_exponential(columns, length)
                + self._steps_share * shared
                for length in LENGTHS
            ]
            self._seen = seen
            self._surrogate = Surrogate(covariances, self._prior * _promise(raw))
        return self._surrogate

    def _why(
        self, posterior: Posterior, mean: Vector, std: Vector, best: int, history: History
    ) -> str:
        if not history.told:
            return "first guess: wide receptive field, independent output channels"
        scale = posterior.scale
        known = len(history.told)
        return (
            f"expected reward {mean[best] * scale:.3f} ± {std[best] * scale:.3f} "
            f"after {known} training{'s' * (known != 1)}"
        )


def _promise(features: Matrix) -> Vector:
    """Sum of the standardised promising features, standardised."""
    columns = [NAMES.index(name) for name in PROMISING]
    total: Vector = standardized(features[:, columns]).sum(axis=1)
    spread = float(total.std())
    return total / spread if spread > 1e-9 else np.zeros(len(features))


__all__ = ["BayesianOptimization"]
