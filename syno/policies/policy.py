"""What a search policy is: a choice of operators from what was chosen and rewarded so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from syno.policies.space import Space

Generator: TypeAlias = np.random.Generator


@dataclass(frozen=True)
class Choice:
    """An operator to train next.

    Attributes:
        index: of the operator in the policy's space.
        why: it was chosen, a sentence for people.
    """

    index: int
    why: str


#: Most operators under way whose rewards are guessed for what is chosen beside them; what it costs grows with their square.
MOST_AWAITED = 200


@dataclass(frozen=True)
class History:
    """What a policy knows.

    Attributes:
        told: (operator, reward) in the order of their tickets; rewards in 0 … 1.
        pending: operators chosen whose rewards are not known yet.
        reserved: operators that others choose: not to be chosen, and nothing is known of them.
        gains: (quality, speed) of operators told, each in units of its own and 0 where an operator ceases to
            be worth having; ``None`` where it is not known.
    """

    told: Sequence[tuple[int, float]] = ()
    pending: Sequence[int] = ()
    reserved: frozenset[int] = frozenset()
    gains: Mapping[int, tuple[float | None, float | None]] = field(default_factory=dict)

    @property
    def awaited(self) -> Sequence[int]:
        """Of those pending the latest, for which something is believed; where more are under way, the others are left
        alone all the same."""
        return self.pending[-MOST_AWAITED:]

    @property
    def taken(self) -> set[int]:
        """Operators that are not to be chosen again."""
        return {index for index, _ in self.told} | set(self.pending) | self.reserved


class Policy(Protocol):
    """Chooses from the space, the history and its seed alone, so that a search can be repeated and resumed."""

    def choose(self, space: Space, history: History, count: int) -> list[Choice]:
        """Up to ``count`` operators that are not taken; fewer when no more are left.

        Args:
            space: the operators by index, with their features and derivations.
            history: what was chosen before, and the rewards told so far.
            count: how many are wanted.
        """
        ...


def stream(seed: int, *numbers: int) -> Generator:
    """Random numbers of their own for each seed and position in a search.

    Args:
        seed: of the search.
        numbers: which position it is, such as the ticket and what is drawn; equal ones give equal random numbers.
    """
    return np.random.default_rng([seed, *numbers])


__all__ = ["MOST_AWAITED", "Choice", "Generator", "History", "Policy", "stream"]
