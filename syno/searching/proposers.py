"""Search policies over one space of operators, as sessions use them: propose, be told rewards, resume.

Every policy is chosen by name in :func:`syno.search`; ``POLICIES`` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import FormatError, unknown_name
from syno.known.beside import Beside, Namer, due
from syno.policies import DEFAULT_POLICY
from syno.session.protocols import Gains, OperatorText, Proposal, Proposer

if TYPE_CHECKING:
    from syno import _core
    from syno.policies.policy import Policy
    from syno.policies.space import SpecSpace


#: Steps looked at for the first operator of a space, before a sample is asked for one.
_ONE_LOOKED_FOR = 500_000

#: Partial operators that the sample looks at, and steps for the reason why there is none: some seconds together.
_SAMPLED_FOR = 20_000
_EXPLAINED_BY = 2_000_000


def operator_text(graph: _core.PGraph, **provenance: Any) -> OperatorText:
    """A pGraph as a session keeps it."""
    from syno.operators.operator import Operator

    operator = Operator.from_pgraph(graph)
    return OperatorText(
        key=operator.canonical_hash,
        expr=operator.expr,
        text=operator.to_json(**provenance),
        flops=operator.flops,
        params=operator.params,
    )


def why_empty(spec: _core.Spec) -> str | None:
    """Why a space has no operator, and which limits would let some in; ``None`` where it has one.

    The smallest operator is looked for first: a space that has one is known to in moments.
    """
    from syno import _core
    from syno.policies.space import deepening

    for steps, found, coming in deepening(spec, spec.max_steps, limit=1, operator_keys=False):
        if found.operators:
            return None
        if coming > _ONE_LOOKED_FOR and steps < spec.max_steps:
            if _core.sample_operators(spec, n=1, seed=0, patience=_SAMPLED_FOR):
                return None
            break
    reason = _core.why_empty(spec, most_children=_EXPLAINED_BY) or "no operator was found"
    return re.sub(r"^The space of '[^']*' is empty[^:]*: ", "", reason)


def space_problem(spec: str) -> str | None:
    """Why nothing can be searched in a space, a JSON text: it is empty, or contradicts itself."""
    from syno import _core
    from syno.errors import SpecError

    try:
        return why_empty(_core.Spec.from_json(spec))
    except SpecError as error:
        return str(error)


class _TreeState(msgspec.Struct, forbid_unknown_fields=True):
    """``tickets`` says of each whose it is: a ticket of the tree, or -1 and the place of a known operator; ``untold`` are those
    that wait for a reward."""

    tree: str
    tickets: list[tuple[int, int]]
    trained: list[int]
    untold: list[int] = []


class TreeProposer:
    """Monte Carlo tree search (Syno §7) over the space of ``spec``, a JSON text.

    Known operators stand beside the tree's own; the tree learns of the reward of one when it comes to it by itself.
    """

    def __init__(self, *, seed: int, spec: str, known: Mapping[str, Any] | None = None) -> None:
        from syno import _core

        self._spec = _core.Spec.from_json(spec)
        self._tree = _core.Tree(self._spec, seed=seed)
        kept = Beside.read(known)
        self._known = kept.graphs()
        self._keys = [str(graph.operator_key()) for graph in self._known]
        self._name = Namer(self._spec, kept)
        self._tickets: list[tuple[int, int]] = []
        self._trained: set[int] = set()
        self._untold: set[int] = set()

    def why_empty(self) -> str | None:
        """Why the space has no operator, or ``None`` where it has one."""
        return why_empty(self._spec)

    def ask(self, count: int) -> Sequence[Proposal]:
        """Known operators whose turn it is, and those at the tree's most promising leaves."""
        had = {place for _, place in self._tickets if place >= 0}
        waiting = [place for place in range(len(self._known)) if place not in had]
        counted = self._trained | self._untold
        turn = due(
            trained=len(counted),
            known=sum(self._tickets[ticket][1] >= 0 for ticket in counted),
            next=count,
            waiting=len(waiting),
        )
        proposals = [self._proposal(-1, place, self._known[place]) for place in waiting[:turn]]
        for inner, graph in self._tree.ask(count - turn):
            key = str(graph.operator_key())
            place = self._keys.index(key) if key in self._keys else -1
            proposals.append(self._proposal(inner, place, graph))
        return proposals

    def _proposal(self, inner: int, place: int, graph: _core.PGraph) -> Proposal:
        ticket = len(self._tickets)
        self._tickets.append((inner, place))
        self._untold.add(ticket)
        why = "tree search" if inner >= 0 else "known operator"
        return Proposal(
            ticket=ticket, operator=operator_text(graph), why=why, known=self._name(graph)
        )

    def tell(self, ticket: int, reward: float, gains: Gains) -> None:
        """Backs a reward up the tree."""
        self._untold.discard(ticket)
        if gains.quality is not None:
            self._trained.add(ticket)
        inner, _ = self._tickets[ticket]
        if inner >= 0:
            self._tree.tell(inner, reward)

    def state(self) -> str:
        """The tree as JSON, with the turns of known operators where there are any."""
        tree = str(self._tree.to_json())
        if not self._known:
            return tree
        kept = _TreeState(tree, self._tickets, sorted(self._trained), sorted(self._untold))
        return msgspec.json.encode(kept).decode()

    def restore(self, state: str) -> None:
        """Back to a ``state()``. Raises FormatError when it is another space's."""
        from syno import _core

        if not self._known:
            self._tree = _core.Tree.from_json(self._spec, state)
            told = len(self._tree.results()) + len(self._tree.pending())
            self._tickets = [(ticket, -1) for ticket in range(told)]
            return
        try:
            found = msgspec.json.decode(state, type=_TreeState)
        except msgspec.MsgspecError as error:
            raise FormatError(f"[proposer] not the state of a search: {error}") from error
        wrong = [t for t in (*found.trained, *found.untold) if not 0 <= t < len(found.tickets)]
        if wrong or any(not -1 <= place < len(self._known) for _, place in found.tickets):
            raise FormatError("[proposer] the state is of a search with other known operators")
        self._tree = _core.Tree.from_json(self._spec, found.tree)
        self._tickets, self._trained = found.tickets, set(found.trained)
        self._untold = set(found.untold)


class _State(msgspec.Struct, forbid_unknown_fields=True):
    """Hashes of the operators proposed, by ticket, with their rewards and gains so far."""

    policy: str
    proposed: list[str]
    rewards: list[float | None]
    gains: list[tuple[float | None, float | None]] | None = None  # absent in older sessions


class PolicyProposer:
    """A policy of :mod:`syno.policies` over the space of ``spec``, a JSON text.

    Everything it decides follows from seed, space and the rewards told, in ticket order; its state is
    that history. Known operators are part of the space: the policy learns of their rewards as of all others', and
    leaves them alone until they had their turn.
    """

    def __init__(
        self,
        name: str,
        policy: Policy,
        *,
        seed: int,
        spec: str,
        known: Mapping[str, Any] | None = None,
    ) -> None:
        from syno import _core

        self._name = name
        self._policy = policy
        self._seed = seed
        self._spec = _core.Spec.from_json(spec)
        self._kept = Beside.read(known)
        self._called = Namer(self._spec, self._kept)
        self._made: SpecSpace | None = None
        self._proposed: list[int] = []
        self._rewards: list[float | None] = []
        self._gains: list[tuple[float | None, float | None]] = []

    @property
    def _space(self) -> SpecSpace:
        """Enumerated when the first operator is asked for."""
        if self._made is None:
            from syno.policies.space import SpecSpace

            self._made = SpecSpace(self._spec, seed=self._seed, known=self._kept.graphs())
        return self._made

    def why_empty(self) -> str | None:
        """Why the space has no operator, or ``None`` where it has one."""
        return why_empty(self._spec)

    def ask(self, count: int) -> Sequence[Proposal]:
        """The policy's next choices, each with its reason."""
        from syno.policies.policy import History

        self._space.make_room(len(self._proposed) + count)
        rewarded = list(zip(self._proposed, self._rewards, strict=True))
        known, proposed = set(self._space.known), set(self._proposed)
        waiting = [index for index in self._space.known if index not in proposed]
        # What was given up before its training took nothing of the budget.
        counted = [
            index
            for (index, reward), (quality, _) in zip(rewarded, self._gains, strict=True)
            if reward is None or quality is not None
        ]
        turn = due(
            trained=len(counted),
            known=sum(index in known for index in counted),
            next=count,
            waiting=len(waiting),
        )
        history = History(
            told=[(index, reward) for index, reward in rewarded if reward is not None],
            pending=[index for index, reward in rewarded if reward is None] + waiting[:turn],
            reserved=frozenset(waiting[turn:]),
            gains={
                index: gains
                for (index, reward), gains in zip(rewarded, self._gains, strict=True)
                if reward is not None
            },
        )
        proposals = [self._proposal(index, "known operator") for index in waiting[:turn]]
        for choice in self._policy.choose(self._space, history, count - turn):
            proposals.append(self._proposal(choice.index, f"{self._name}: {choice.why}"))
        return proposals

    def _proposal(self, index: int, why: str) -> Proposal:
        graph = self._space.graphs[index]
        ticket = len(self._proposed)
        self._proposed.append(index)
        self._rewards.append(None)
        self._gains.append((None, None))
        return Proposal(
            ticket=ticket, operator=operator_text(graph), why=why, known=self._called(graph)
        )

    def tell(self, ticket: int, reward: float, gains: Gains) -> None:
        """Keeps a reward and its gains. Raises IndexError for a ticket that was never given."""
        self._rewards[ticket] = reward
        self._gains[ticket] = (gains.quality, gains.speed)

    def state(self) -> str:
        """The history as JSON."""
        hashes = [self._space.graphs[index].hash() for index in self._proposed]
        return msgspec.json.encode(_State(self._name, hashes, self._rewards, self._gains)).decode()

    def restore(self, state: str) -> None:
        """Back to a ``state()``. Raises FormatError when it is another policy's or another space's."""
        try:
            found = msgspec.json.decode(state, type=_State)
        except msgspec.MsgspecError as error:
            raise FormatError(f"[proposer] not the state of a search: {error}") from error
        count = len(found.proposed)
        unknown: list[tuple[float | None, float | None]] = [(None, None)] * count
        gains = found.gains if found.gains is not None else unknown
        if found.policy != self._name or len(found.rewards) != count or len(gains) != count:
            raise FormatError(
                f"[proposer] the state is of the policy {found.policy!r} with {count} operators, "
                f"{len(found.rewards)} rewards and {len(gains)} gains, not of {self._name!r}"
            )
        if not found.proposed:
            self._proposed, self._rewards, self._gains = [], [], []
            return
        self._space.make_room(count)
        places = {graph.hash(): index for index, graph in enumerate(self._space.graphs)}
        foreign = [key for key in found.proposed if key not in places]
        if foreign:
            raise FormatError(
                f"[proposer] {len(foreign)} of {len(found.proposed)} operators of the state are not in the "
                f"space ({foreign[0]}, …): it is another space's, or of another version of syno"
            )
        self._proposed = [places[key] for key in found.proposed]
        self._rewards = found.rewards
        self._gains = gains


def _bayesian(*, seed: int, spec: str, **more: Any) -> Proposer:
    from syno.policies.bayesian import BayesianOptimization

    return PolicyProposer("bayesian", BayesianOptimization(seed), seed=seed, spec=spec, **more)


def _evolution(*, seed: int, spec: str, **more: Any) -> Proposer:
    from syno.policies.evolution import Evolution

    return PolicyProposer("evolution", Evolution(seed), seed=seed, spec=spec, **more)


def _hypervolume(*, seed: int, spec: str, **more: Any) -> Proposer:
    from syno.policies.hypervolume import HypervolumeImprovement

    return PolicyProposer("hypervolume", HypervolumeImprovement(seed), seed=seed, spec=spec, **more)


def _random(*, seed: int, spec: str, **more: Any) -> Proposer:
    from syno.policies.random_search import RandomSearch

    return PolicyProposer("random", RandomSearch(seed), seed=seed, spec=spec, **more)


POLICIES: dict[str, Callable[..., Proposer]] = {
    "bayesian": _bayesian,
    "evolution": _evolution,
    "hypervolume": _hypervolume,
    "mcts": TreeProposer,
    "random": _random,
}


def make(
    *,
    seed: int,
    spec: str,
    policy: str = DEFAULT_POLICY,
    known: Mapping[str, Any] | None = None,
) -> Proposer:
    """The policy of that name over the space ``spec``.

    Args:
        known: operators to train beside those it chooses, as :func:`syno.known.beside.beside` gives them.
    Raises:
        UnknownName: no such policy.
        SpecError, FormatError: the space contradicts itself, or its text is damaged.
    """
    if policy not in POLICIES:
        raise unknown_name("policy", policy, POLICIES)
    return POLICIES[policy](seed=seed, spec=spec, known=known)


__all__ = ["POLICIES", "PolicyProposer", "TreeProposer", "make", "operator_text"]
