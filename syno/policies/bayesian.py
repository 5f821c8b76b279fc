"""Bayesian optimisation over the space: train what a surrogate expects to be best, or knows least of."""

from __future__ import annotations

import numpy as np

from syno.policies.gaussian import Posterior, Surrogate, Vector, on_one_thread, telling
from syno.policies.policy import Choice, History, stream
from syno.policies.space import Space
from syno.policies.view import Seen, View

#: Features in which more promises more before anything is trained: what an element sees, and how many
#: independent things the output channels say of it.
PROMISING = ("positions", "effective_rank")


class BayesianOptimization:
    """Upper confidence bounds of a Gaussian process over structural features and derivation steps.

    Before anything is trained, operators with a wide receptive field and independent output channels are
    expected to be better, by ``prior`` standard deviations for each standard deviation of these features. The
    choices of one batch are made one after the other, each as if those before had given what is expected of
    them (Ginsbourger, Le Riche and Carraro 2010: kriging believer).

    In a large space only some operators are looked at, see :class:`syno.policies.view.View`: also the
    ``neighbors`` of each that was the best so far.

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
        self._view = View(
            seed, visible=visible, growth=growth, neighbors=neighbors, steps_share=steps_share
        )
        self._surrogate: tuple[Seen, Surrogate] | None = None

    @on_one_thread
    def choose(self, space: Space, history: History, count: int) -> list[Choice]:
        """The operators with the greatest upper confidence bounds."""
        told = [history.told[i] for i in telling([reward for _, reward in history.told])]
        seen = self._view.look(
            space, history, leaders(history), [index for index, _ in told], count
        )
        posterior = self._surrogate_of(seen).fit(
            [seen.places[index] for index, _ in told], [reward for _, reward in told]
        )
        taken = {seen.places[index] for index in history.taken if index in seen.places}
        believer = posterior.believer([seen.places[index] for index in history.awaited])
        # Ties, of operators that look alike, fall by the seed.
        ties = 1e-6 * stream(self._seed, 1).random(len(seen.indices))
        choices: list[Choice] = []
        while len(choices) < count and len(taken) < len(seen.indices):
            mean, std = believer.predict()
            bound = mean + self._exploration * std + ties
            bound[list(taken)] = -np.inf
            best = int(np.argmax(bound))
            choices.append(Choice(seen.indices[best], _why(posterior, mean, std, best, history)))
            taken.add(best)
            believer.believe(best)
        return choices

    def _surrogate_of(self, seen: Seen) -> Surrogate:
        if self._surrogate is None or self._surrogate[0] is not seen:
            prior = self._prior * seen.promise(PROMISING)
            self._surrogate = (seen, Surrogate(seen.covariances, prior))
        return self._surrogate[1]


def leaders(history: History) -> list[int]:
    """Operators whose reward was the greatest so far: of every prefix, so that none is forgotten."""
    best, found = -np.inf, []
    for index, reward in history.told:
        if reward > best:
            best = reward
            found.append(index)
    return found


def _why(posterior: Posterior, mean: Vector, std: Vector, best: int, history: History) -> str:
    if not history.told:
        return "first guess: wide receptive field, independent output channels"
    scale = posterior.scale
    known = len(history.told)
    return (
        f"expected reward {mean[best] * scale:.3f} ± {std[best] * scale:.3f} "
        f"after {known} training{'s' * (known != 1)}"
    )


__all__ = ["PROMISING", "BayesianOptimization", "leaders"]
