"""Search policies over one space of operators, as sessions use them: propose, be told rewards, resume.

Every policy is chosen by name in :func:`syno.search`; ``POLICIES`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import FormatError, unknown_name
from syno.session.protocols import OperatorText, Proposal, Proposer

if TYPE_CHECKING:
    from syno import _core


def operator_text(graph: _core.PGraph, **provenance: Any) -> OperatorText:
    """A pGraph as a session keeps it."""
    from syno.operator import Operator

    operator = Operator.from_pgraph(graph)
    return OperatorText(
        key=operator.canonical_hash,
        expr=operator.expr,
        text=operator.to_json(**provenance),
        flops=operator.flops,
        params=operator.params,
    )


class TreeProposer:
    """Monte Carlo tree search (Syno §7) over the space of ``spec``, a JSON text."""

    def __init__(self, *, seed: int, spec: str) -> None:
        from syno import _core

        self._spec = _core.Spec.from_json(spec)
        self._tree = _core.Tree(self._spec, seed=seed)

    def ask(self, count: int) -> Sequence[Proposal]:
        """Operators at the tree's most promising leaves."""
        return [
            Proposal(ticket=ticket, operator=operator_text(graph), why="tree search")
            for ticket, graph in self._tree.ask(count)
        ]

    def tell(self, ticket: int, reward: float) -> None:
        """Backs a reward up the tree."""
        self._tree.tell(ticket, reward)

    def state(self) -> str:
        """The tree as JSON."""
        return str(self._tree.to_json())

    def restore(self, state: str) -> None:
        """Back to a ``state()``. Raises FormatError when it is another space's."""
        from syno import _core

        self._tree = _core.Tree.from_json(self._spec, state)


class _RandomState(msgspec.Struct, forbid_unknown_fields=True):
    proposed: int


class RandomProposer:
    """Random operators of the space, none twice, whatever the rewards."""

    def __init__(self, *, seed: int, spec: str) -> None:
        from syno import _core

        self._spec = _core.Spec.from_json(spec)
        self._seed = seed
        self._proposed = 0

    def ask(self, count: int) -> Sequence[Proposal]:
        """The next ``count`` of one seeded sequence."""
        from syno import _core

        start = self._proposed
        # A sample of n starts with the sample of fewer: the sequence is drawn anew and continued.
        graphs = _core.sample_operators(self._spec, n=start + count, seed=self._seed)[start:]
        self._proposed += len(graphs)
        return [
            Proposal(ticket=start + i, operator=operator_text(graph), why="random")
            for i, graph in enumerate(graphs)
        ]

    def tell(self, ticket: int, reward: float) -> None:
        """Ignored."""

    def state(self) -> str:
        """How many were proposed."""
        return msgspec.json.encode(_RandomState(self._proposed)).decode()

    def restore(self, state: str) -> None:
        """Back to a ``state()``."""
        try:
            self._proposed = msgspec.json.decode(state, type=_RandomState).proposed
        except msgspec.MsgspecError as error:
            raise FormatError(f"[proposer] not the state of a random search: {error}") from error


POLICIES: dict[str, Callable[..., Proposer]] = {"mcts": TreeProposer, "random": RandomProposer}


def make(*, seed: int, spec: str, policy: str = "mcts") -> Proposer:
    """The policy of that name over the space ``spec``.

    Raises:
        UnknownName: no such policy.
        SpecError, FormatError: the space contradicts itself, or its text is damaged.
    """
    if policy not in POLICIES:
        raise unknown_name("policy", policy, POLICIES)
    proposer = POLICIES[policy](seed=seed, spec=spec)
    return proposer


__all__ = ["POLICIES", "RandomProposer", "TreeProposer", "make", "operator_text"]
