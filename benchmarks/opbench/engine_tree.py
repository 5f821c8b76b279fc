"""The engine's own tree search on a table: the same code as sessions run, an operator of no row rejected."""

from __future__ import annotations

import math

from table import HERE

from syno import _core
from syno.operators.operator import Operator
from syno.policies.policy import Choice, History
from syno.policies.space import Space

#: Operators in a row that the table lacks before a search gives up.
PATIENCE = 2_000

#: The authors' factor of the UCB term.
AUTHORS_EXPLORATION = 4 * math.sqrt(2)


class EngineTree:
    """:class:`syno._core.Tree` over the table's spec as a policy; what the table lacks is told a reward of 0.

    Unlike :class:`tree.AuthorsTree` it grows partial operators itself, so that walks fail, and operators that
    are absent from the table cost descents. ``rejected`` counts them: they are no trainings.
    """

    def __init__(self, seed: int, keys: list[str], exploration: float) -> None:
        self._tree = _core.Tree(_spec(), seed=seed, exploration=exploration)
        self._places = {key: index for index, key in enumerate(keys)}
        self._tickets: dict[int, int] = {}
        self._folded = 0
        self.rejected = 0

    def choose(self, space: Space, history: History, count: int) -> list[Choice]:
        """The next ``count`` operators of the tree that are in the table."""
        for index, reward in history.told[self._folded :]:
            self._tree.tell(self._tickets[index], reward)
        self._folded = len(history.told)
        choices: list[Choice] = []
        absent = 0
        while len(choices) < count and absent < PATIENCE:
            asked = self._tree.ask(1)
            if not asked:
                break
            ((ticket, graph),) = asked
            index = self._places.get(Operator.from_pgraph(graph).canonical_hash)
            if index is None:
                self._tree.tell(ticket, 0.0)
                self.rejected += 1
                absent += 1
            else:
                self._tickets[index] = ticket
                choices.append(Choice(index, "tree search"))
        return choices


def _spec() -> _core.Spec:
    return _core.Spec.from_json((HERE / "spec.json").read_text())


__all__ = ["AUTHORS_EXPLORATION", "EngineTree"]
