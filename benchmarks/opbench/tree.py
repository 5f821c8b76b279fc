"""The paper's tree search as its authors run it, over the operators of a table.

Two-level nodes (the kind of step, then the step), UCB1-tuned with exploration 4 sqrt(2), progressive
widening ``T^0.8``, children revealed by the mean of local and global RAVE (30 % at random), a random
walk from each new child. Two things are easier here than in their search: a walk never fails, since the
tree holds the table's operators only, and no operator is proposed twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from syno.policies.policy import Choice, History, stream
from syno.policies.space import Space

STOP = "stop"


@dataclass
class Score:
    """Mean and variance of rewards."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, reward: float) -> None:
        self.count += 1
        self.total += reward
        self.squares += reward * reward

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        return max(0.0, self.squares / self.count - self.mean**2) if self.count else 0.0


class Lattice:
    """Partial operators as sets of steps (bit masks): all Reduces first, then any order that operands allow."""

    def __init__(self, space: Space) -> None:
        derivations = [space.derivation(index) for index in range(len(space))]
        steps = sorted({step for each in derivations for step in each})
        self.steps = steps
        number = {step: i for i, step in enumerate(steps)}
        self.operators = [sum(1 << number[step] for step in each) for each in derivations]
        self.reduces = sum(1 << i for i, step in enumerate(steps) if step.startswith("reduce"))
        # A step needs the steps that its text names; a repeated one needs those before it.
        self.needs = [0] * len(steps)
        for each in derivations:
            for at, step in enumerate(each):
                i = number[step]
                for earlier in each[:at]:
                    repeated = step.startswith(f"{earlier.split(' #')[0]} #")
                    if f"({earlier})" in step or repeated:
                        self.needs[i] |= 1 << number[earlier]
        self._moves: dict[int, list[tuple[str, int]]] = {}

    def moves(self, node: int) -> list[tuple[str, int]]:
        """What may follow a node: (kind, step), the step -1 - index where it stops as an operator."""
        if node not in self._moves:
            following, stops = 0, []
            for index, operator in enumerate(self.operators):
                if operator & node == node:
                    if operator == node:
                        stops.append((STOP, -1 - index))
                    missing = operator & ~node
                    # As long as a Reduce is missing nothing else may come.
                    following |= missing & self.reduces or missing
            moves = []
            while following:
                bit = following & -following
                following ^= bit
                step = bit.bit_length() - 1
                if self.needs[step] & ~node == 0:
                    moves.append((self.steps[step].split()[0], step))
            self._moves[node] = sorted(moves) + stops
        return self._moves[node]


@dataclass
class Branch:
    """Children of a node that are one kind of step."""

    hidden: list[int]
    shown: list[int] = field(default_factory=list)
    score: Score = field(default_factory=Score)


@dataclass
class Node:
    mask: int
    branches: dict[str, Branch]
    score: Score = field(default_factory=Score)
    children: dict[int, Node] = field(default_factory=dict)
    rave: dict[int, Score] = field(default_factory=dict)
    dead: bool = False


class AuthorsTree:
    """Monte Carlo tree search; a policy like those of :mod:`syno.policies`, told rewards in order."""

    def __init__(
        self,
        seed: int,
        lattice: Lattice,
        *,
        exploration: float = 4 * math.sqrt(2),
        widening: float = 0.8,
        rave_random: float = 0.3,
    ) -> None:
        self._random = stream(seed)
        self._lattice = lattice
        self._exploration = exploration
        self._widening = widening
        self._rave_random = rave_random
        self._root = self._node(0)
        self._rave: dict[int, Score] = {}
        self._paths: dict[int, tuple[list[Node], list[str]]] = {}
        self._folded = 0

    def choose(self, space: Space, history: History, count: int) -> list[Choice]:
        """The operators that ``count`` descents end with."""
        for index, reward in history.told[self._folded :]:
            self._fold(index, reward)
        self._folded = len(history.told)
        taken = history.taken
        choices: list[Choice] = []
        while len(choices) < count and len(taken) < len(space) and not self._root.dead:
            index = self._descend(taken)
            if index is not None:
                choices.append(Choice(index, "tree search"))
                taken.add(index)
        return choices

    def _node(self, mask: int) -> Node:
        branches: dict[str, Branch] = {}
        for kind, step in self._lattice.moves(mask):
            branches.setdefault(kind, Branch([])).hidden.append(step)
        return Node(mask, branches)

    def _descend(self, taken: set[int]) -> int | None:
        node, nodes, kinds = self._root, [self._root], []
        while True:
            alive = {k: b for k, b in node.branches.items() if b.hidden or self._alive(node, b)}
            if not alive:
                node.dead = True
                return None
            total = sum(b.score.count for b in alive.values())
            kind = self._best({k: self._bound(b.score, total) for k, b in alive.items()})
            branch = alive[kind]
            kinds.append(kind)
            shown = self._alive(node, branch)
            target = max(1, math.floor((branch.score.count + 1) ** self._widening))
            if branch.hidden and len(shown) < target:
                step = self._reveal(node, branch)
                branch.hidden.remove(step)
                branch.shown.append(step)
                child = Node(node.mask, {}) if step < 0 else self._node(node.mask | 1 << step)
                node.children[step] = child
                index = self._walk(child.mask, taken) if step >= 0 else self._free(step, taken)
                if index is None:
                    child.dead = True
                    return None
                if step < 0:
                    child.dead = True
                self._paths[index] = ([*nodes, child], kinds)
                return index
            bounds = {s: self._bound(node.children[s].score, branch.score.count) for s in shown}
            node = node.children[self._best(bounds)]
            nodes.append(node)

    @staticmethod
    def _alive(node: Node, branch: Branch) -> list[int]:
        return [step for step in branch.shown if not node.children[step].dead]

    @staticmethod
    def _free(step: int, taken: set[int]) -> int | None:
        index = -1 - step
        return None if index in taken else index

    def _walk(self, mask: int, taken: set[int]) -> int | None:
        """A random walk that avoids operators already trained; None where all below are."""
        below = [
            index
            for index, operator in enumerate(self._lattice.operators)
            if operator & mask == mask and index not in taken
        ]
        if not below:
            return None
        wanted = {self._lattice.operators[index] for index in below}
        while True:
            moves = [
                (kind, step)
                for kind, step in self._lattice.moves(mask)
                if (step < 0 and -1 - step not in taken)
                or (step >= 0 and any((mask | 1 << step) & ~op == 0 for op in wanted))
            ]
            # As their sampler: a kind first, then a step of that kind.
            kinds = sorted({kind for kind, _ in moves})
            kind = kinds[int(self._random.integers(len(kinds)))]
            steps = [step for k, step in moves if k == kind]
            step = steps[int(self._random.integers(len(steps)))]
            if step < 0:
                return -1 - step
            mask |= 1 << step

    def _bound(self, score: Score, total: int) -> float:
        if not score.count:
            return math.inf
        log = math.log(max(total, 2))
        spread = min(0.25, score.variance + math.sqrt(2 * log / score.count))
        return score.mean + self._exploration * math.sqrt(log / score.count * spread)

    def _best(self, values: dict) -> object:  # type: ignore[type-arg]
        best = max(values.values())
        tied = [key for key, value in values.items() if value == best]
        return tied[int(self._random.integers(len(tied)))]

    def _reveal(self, node: Node, branch: Branch) -> int:
        if self._random.random() < self._rave_random:
            return branch.hidden[int(self._random.integers(len(branch.hidden)))]

        def optimistic(table: dict[int, Score], step: int) -> tuple[float, int]:
            score = table.get(step)
            if score is None or not score.count:
                return 0.5, 0
            value = score.mean + math.sqrt(score.variance) - 1 / score.count
            return value, score.count

        values = {}
        for step in branch.hidden:
            local, count = optimistic(node.rave, step)
            overall, _ = optimistic(self._rave, step)
            beta = 3 / (3 + count)
            values[step] = (1 - beta) * local + beta * overall
        return self._best(values)  # type: ignore[return-value]

    def _fold(self, index: int, reward: float) -> None:
        nodes, kinds = self._paths.pop(index)
        operator = self._lattice.operators[index]
        steps: Sequence[int] = [i for i in range(len(self._lattice.steps)) if operator >> i & 1]
        for step in steps:
            self._rave.setdefault(step, Score()).add(reward)
        for node in nodes:
            node.score.add(reward)
            for step in steps:
                if not node.mask >> step & 1:
                    node.rave.setdefault(step, Score()).add(reward)
        for node, kind in zip(nodes, kinds, strict=False):
            node.branches[kind].score.add(reward)


__all__ = ["AuthorsTree", "Lattice"]
