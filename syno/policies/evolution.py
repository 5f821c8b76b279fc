"""Regularised evolution (Real et al., *Regularized Evolution for Image Classifier Architecture Search*, 2019)."""

from __future__ import annotations

from syno.policies.policy import Choice, Generator, History, stream
from syno.policies.space import Space, likeness


class Evolution:
    """Mutates the best of a random sample of the youngest operators; the oldest die, however good.

    A mutation is one of the operators that differ least from the parent in the steps of their derivation.

    Args:
        population: operators alive; the first so many are random.
        sample: of which the best is the parent.
        mutants: nearest operators not yet trained, of which one is drawn.
    """

    def __init__(
        self, seed: int, *, population: int = 16, sample: int = 5, mutants: int = 6
    ) -> None:
        self._seed = seed
        self._population = population
        self._sample = sample
        self._mutants = mutants

    def choose(self, space: Space, history: History, count: int) -> list[Choice]:
        """Random ones until the population is full, then mutants."""
        taken = history.taken
        choices: list[Choice] = []
        for _ in range(min(count, len(space) - len(taken))):
            random = stream(self._seed, len(taken))
            free = [index for index in range(len(space)) if index not in taken]
            if len(taken) < self._population or not history.told:
                choice = Choice(free[int(random.integers(len(free)))], "random: first population")
            else:
                choice = self._mutant(space, history, free, random)
            choices.append(choice)
            taken.add(choice.index)
        return choices

    def _mutant(self, space: Space, history: History, free: list[int], random: Generator) -> Choice:
        alive = list(history.told)[-self._population :]
        drawn = random.choice(len(alive), size=min(self._sample, len(alive)), replace=False)
        parent, reward = max((alive[int(i)] for i in drawn), key=lambda pair: (pair[1], -pair[0]))
        steps = space.derivation(parent)
        # Equally near ones in random order.
        ties = random.random(len(free))
        nearest = sorted(
            range(len(free)), key=lambda i: (-likeness(steps, space.derivation(free[i])), ties[i])
        )
        near = nearest[: self._mutants]
        child = free[near[int(random.integers(len(near)))]]
        shared = likeness(steps, space.derivation(child))
        return Choice(
            child,
            f"mutant: {shared:.0%} of its steps are those of a parent with reward {reward:.3f}",
        )


__all__ = ["Evolution"]
