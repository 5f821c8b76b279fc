"""Multi-objective Bayesian optimisation: train what is expected to extend the front of quality and speed most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syno.policies.bayesian import PROMISING, BayesianOptimization, leaders
from syno.policies.front import expected_gain, front, hypervolume
from syno.policies.gaussian import Believer, Matrix, Surrogate, on_one_thread, telling
from syno.policies.policy import Choice, History, stream
from syno.policies.space import Space
from syno.policies.view import Seen, View

#: Trainings before a front is worth extending: two are the fewest that tell a scale.
LEAST = 2


class HypervolumeImprovement:
    """Expected hypervolume gain under one Gaussian process for the quality and one for the speed.

    Both processes look at the same features and steps as :class:`BayesianOptimization`, which also chooses the
    first operators, and all where a session tells rewards only. Quality is expected to be better for its
    promising features, speed for fewer FLOPs. The choices of one batch are made one after the other, each as
    if those before had given what is expected of them.

    Args:
        exploration: factor of the standard deviations; 1 is the expected gain itself.
        prior, speed_prior: standard deviations expected for each of the promise and of the log FLOPs.
        steps_share, visible, growth, neighbors: as there; neighbours are also those of each operator that was
            on the front when it became known.
    """

    def __init__(
        self,
        seed: int,
        *,
        exploration: float = 1.5,
        prior: float = 0.5,
        speed_prior: float = 0.5,
        steps_share: float = 0.3,
        visible: int = 200,
        growth: int = 5,
        neighbors: int = 20,
    ) -> None:
        self._seed = seed
        self._exploration = exploration
        self._prior = prior
        self._speed_prior = speed_prior
        self._view = View(
            seed, visible=visible, growth=growth, neighbors=neighbors, steps_share=steps_share
        )
        self._first = BayesianOptimization(
            seed,
            prior=prior,
            steps_share=steps_share,
            visible=visible,
            growth=growth,
            neighbors=neighbors,
        )
        self._surrogates: tuple[Seen, Surrogate, Surrogate] | None = None

    @on_one_thread
    def choose(self, space: Space, history: History, count: int) -> list[Choice]:
        """The operators expected to extend the front most."""
        points = _points(history)
        if len(points) < LEAST:
            return self._first.choose(space, history, count)
        chosen = telling([reward for _, reward in history.told])
        told = {history.told[i][0] for i in chosen}
        seen = self._view.look(space, history, [*leaders(history), *_extended(points)], told, count)
        belief = self._belief(seen, history, told)
        taken = {seen.places[index] for index in history.taken if index in seen.places}
        # Ties, of operators that look alike, fall by the seed.
        ties = 1e-6 * stream(self._seed, 2).random(len(seen.indices))
        choices: list[Choice] = []
        while len(choices) < count and len(taken) < len(seen.indices):
            mean, std = belief.predict()
            kept = front(mean[belief.trained])
            gain = expected_gain(kept, mean, self._exploration * std) * (1 + ties)
            gain[list(taken)] = -np.inf
            best = int(np.argmax(gain))
            why = _why(gain[best], kept, mean[best], std[best], len(history.told))
            choices.append(Choice(seen.indices[best], why))
            taken.add(best)
            belief.believe(best)
        return choices

    def _belief(self, seen: Seen, history: History, told: set[int]) -> _Belief:
        if self._surrogates is None or self._surrogates[0] is not seen:
            quality = Surrogate(seen.covariances, self._prior * seen.promise(PROMISING))
            speed = Surrogate(seen.covariances, -self._speed_prior * seen.promise(["log_flops"]))
            self._surrogates = (seen, quality, speed)
        awaited = [seen.places[index] for index in history.awaited]
        fitted = []
        for objective, surrogate in enumerate(self._surrogates[1:]):
            known = [
                (seen.places[index], gain)
                for index, gains in history.gains.items()
                if index in told and (gain := gains[objective]) is not None
            ]
            posterior = surrogate.fit([i for i, _ in known], [gain for _, gain in known])
            fitted.append(posterior.believer(awaited))
        both = [seen.places[index] for index, _ in _points(history) if index in told] + awaited
        return _Belief(fitted[0], fitted[1], both)


@dataclass
class _Belief:
    """What is expected of every operator looked at; ``trained`` are those whose expectations are the front's."""

    quality: Believer
    speed: Believer
    trained: list[int]

    def predict(self) -> tuple[Matrix, Matrix]:
        """Mean and standard deviation of both objectives, ``[n, 2]`` each, in their own units."""
        found = [self.quality.predict(), self.speed.predict()]
        scales = [self.quality.scale, self.speed.scale]
        mean: Matrix = np.stack([m * s for (m, _), s in zip(found, scales, strict=True)], axis=1)
        std: Matrix = np.stack([d * s for (_, d), s in zip(found, scales, strict=True)], axis=1)
        return mean, std

    def believe(self, operator: int) -> None:
        """As if ``operator`` had been trained and gave what is expected."""
        self.quality.believe(operator)
        self.speed.believe(operator)
        self.trained.append(operator)


def _points(history: History) -> list[tuple[int, tuple[float, float]]]:
    """Operators of which both gains are known, in the order told."""
    return [
        (index, (quality, speed))
        for index, (quality, speed) in history.gains.items()
        if quality is not None and speed is not None
    ]


def _extended(points: list[tuple[int, tuple[float, float]]]) -> list[int]:
    """Operators that no earlier one beat in both: of every prefix, so that none is forgotten."""
    found, kept = [], list[tuple[float, float]]()
    for index, (quality, speed) in points:
        if not any(q >= quality and s >= speed for q, s in kept):
            found.append(index)
            kept = [(q, s) for q, s in kept if q > quality or s > speed] + [(quality, speed)]
    return found


def _why(gain: float, kept: Matrix, mean: Matrix, std: Matrix, known: int) -> str:
    area = hypervolume(kept)
    share = f"{gain / area:.1%} of the front's hypervolume" if area > 0 else "a first point of it"
    return (
        f"expected to extend the front by {share}: quality {mean[0]:.3f} ± {std[0]:.3f} above its floor, "
        f"latency {1 - mean[1]:.2f} ± {std[1]:.2f} of its limit, after {known} trainings"
    )


__all__ = ["HypervolumeImprovement"]
