"""Random search: any operator as likely as any other."""

from __future__ import annotations

from syno.policies.policy import Choice, History, stream
from syno.policies.space import Space


class RandomSearch:
    """Operators in an order that the seed alone decides."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def choose(self, space: Space, history: History, count: int) -> list[Choice]:
        """The next of the order."""
        taken = history.taken
        order = stream(self._seed).permutation(len(space))
        free = [int(index) for index in order if int(index) not in taken]
        return [Choice(index, "random") for index in free[:count]]


__all__ = ["RandomSearch"]
