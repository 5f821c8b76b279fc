"""Who proposes layouts: the actor and critic of ALT (§5.2.1), or chance.

What the paper leaves open is decided so:

- One generic actor proposes every factor of every tensor: it sees the state, the factors of all primitives of all tensors
  (`Template.state`, as base-2 logarithms over 16), which parameter is next and on which level, and how large its dimension
  is. Its action a in (0, 1) is drawn from a Beta distribution; the factor is R(D * a), R being the nearest divisor
  of D in ratio, of what the outer level left on an inner one.
- One critic, beside the actor and of the same input, shared by all parameters. Both are networks of two layers of 64.
- A layout is an episode. Its reward, the same at each of its actions, is (U - l) / U, U being twice the first time that was measured;
  gamma is 1, so that an action's advantage is the reward less the critic's value.
- Proximal policy optimisation: clipped at 0.2, four passes over an episode's batch, Adam at 0.003, entropy weighed by 0.01.
- Loops are explored by the sketch search, which is not learned: there are no loop actors, so the critic judges layouts alone.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from syno.errors import KernelError, unknown_name
from syno.tuning.layouts.instance import Instance
from syno.tuning.layouts.template import Template, nearest

WIDTH, CLIP, PASSES, RATE, ENTROPY, VALUE = 64, 0.2, 4, 3e-3, 0.01, 0.5
_SCALE = 16.0


@dataclass
class Proposal:
    """A layout, and how it was decided.

    Attributes:
        choice: the layout.
        states: what the actor saw before each factor; empty where chance decided.
        actions: its answer to each, 0 to 1.
        log_probabilities: of these answers, as the actor was then.
    """

    choice: Instance
    states: list[list[float]] = field(default_factory=list)
    actions: list[float] = field(default_factory=list)
    log_probabilities: list[float] = field(default_factory=list)


class Proposer(Protocol):
    """Proposes layouts, and learns what they were worth."""

    def propose(self) -> Proposal:
        """The layout to measure next."""
        ...

    def learn(self, proposals: Sequence[Proposal], rewards: Sequence[float]) -> None:
        """Takes what proposals were worth.

        Args:
            proposals: of `propose`, an episode.
            rewards: of each, at most 1; more is better, and what takes twice the time of the first trial is worth 0.
        """
        ...


class RandomProposer:
    """Each factor a divisor drawn uniformly: the ablation without learning.

    Args:
        template: whose parameters are drawn.
        seed: of the draws.
    """

    def __init__(self, template: Template, seed: int) -> None:
        self._template, self._random = template, np.random.default_rng([seed, 22])

    def propose(self) -> Proposal:
        """A layout, drawn."""
        tiles: dict[str, tuple[int, ...]] = {}
        for parameter in self._template.parameters:
            tile, left = [], parameter
            for _ in range(self._template.levels):
                divisors = left.divisors
                tile.append(divisors[int(self._random.integers(len(divisors)))])
                left = type(left)(left.name, left.extent // tile[-1])
            tiles[parameter.name] = tuple(tile)
        return Proposal(Instance(self._template.kind, tiles))

    def learn(self, proposals: Sequence[Proposal], rewards: Sequence[float]) -> None:
        """Nothing is learned of what it is told, as `Proposer.learn` takes it."""


class LearnedProposer:
    """The actor and the critic.

    Args:
        template: whose parameters are decided, in its order.
        seed: of the first weights and of the draws.
    Raises:
        KernelError: torch is not installed.
    """

    def __init__(self, template: Template, seed: int) -> None:
        try:
            import torch
        except ImportError:
            raise KernelError(
                '[tune] layouts are proposed by a network of torch, which is not installed: pip install "syno[torch]", or '
                'take proposals="random"'
            ) from None
        self._torch, self._template = torch, template
        self._random = np.random.default_rng([seed, 23])
        generator = torch.Generator().manual_seed(seed & (2**63 - 1))
        width = len(self._input(template.whole(), 0, 0, 1))

        def network(outputs: int) -> Any:
            layers = []
            for given, made in ((width, WIDTH), (WIDTH, WIDTH), (WIDTH, outputs)):
                layer = torch.nn.Linear(given, made)
                with torch.no_grad():
                    bound = 1 / math.sqrt(given)
                    layer.weight.uniform_(-bound, bound, generator=generator)
                    layer.bias.zero_()
                layers += [layer, torch.nn.Tanh()]
            return torch.nn.Sequential(*layers[:-1])

        self._actor, self._critic = network(2), network(1)
        parameters = [*self._actor.parameters(), *self._critic.parameters()]
        self._optimiser = torch.optim.Adam(parameters, lr=RATE)

    def propose(self) -> Proposal:
        """A layout, drawn from what was learned."""
        with self._alone():
            return self._proposed()

    def learn(self, proposals: Sequence[Proposal], rewards: Sequence[float]) -> None:
        """Improves the actor and the critic by an episode, as `Proposer.learn` is told it."""
        if any(each.actions for each in proposals):
            with self._alone():
                self._learned(proposals, rewards)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """On one thread: what is so small gains nothing by more, and sums add in one order."""
        before = self._torch.get_num_threads()
        self._torch.set_num_threads(1)
        try:
            yield
        finally:
            self._torch.set_num_threads(before)

    def _proposed(self) -> Proposal:
        template = self._template
        tiles = dict(template.whole().tiles)
        made = Proposal(template.whole())
        for number, parameter in enumerate(template.parameters):
            tile: list[int] = []
            left = parameter.extent
            for level in range(template.levels):
                state = self._input(Instance(template.kind, tiles), number, level, left)
                with self._torch.no_grad():
                    a, b = (float(n) for n in self._shape(self._torch.tensor([state]))[0])
                action = float(np.clip(self._random.beta(a, b), 1e-4, 1 - 1e-4))
                made.states.append(state)
                made.actions.append(action)
                made.log_probabilities.append(_log_beta(action, a, b))
                tile.append(nearest(left, left * action))
                left //= tile[-1]
            tiles[parameter.name] = tuple(tile)
        made.choice = Instance(template.kind, tiles)
        return made

    def _learned(self, proposals: Sequence[Proposal], rewards: Sequence[float]) -> None:
        torch = self._torch
        states = torch.tensor([state for each in proposals for state in each.states])
        actions = torch.tensor([action for each in proposals for action in each.actions])
        before = torch.tensor([p for each in proposals for p in each.log_probabilities])
        worth = torch.tensor(
            [r for each, r in zip(proposals, rewards, strict=True) for _ in each.actions]
        )
        for _ in range(PASSES):
            shape = self._shape(states)
            policy = torch.distributions.Beta(shape[:, 0], shape[:, 1])
            value = self._critic(states)[:, 0]
            advantage = worth - value.detach()
            ratio = torch.exp(policy.log_prob(actions) - before)
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
            loss = (
                -gain.mean()
                + VALUE * (worth - value).pow(2).mean()
                - ENTROPY * policy.entropy().mean()
            )
            self._optimiser.zero_grad()
            loss.backward()
            self._optimiser.step()

    def _shape(self, states: Any) -> Any:
        """Both parameters of the Beta distribution, above 1: it has one mode, inside."""
        return 1 + self._torch.nn.functional.softplus(self._actor(states))

    def _input(self, choice: Instance, number: int, level: int, extent: int) -> list[float]:
        template = self._template
        factors = template.state(choice, number)
        which = [float(n == number) for n in range(len(template.parameters))]
        return [
            *(math.log2(factor) / _SCALE for factor in factors),
            *which,
            float(level),
            math.log2(extent) / _SCALE,
        ]


def _log_beta(x: float, a: float, b: float) -> float:
    norm = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return (a - 1) * math.log(x) + (b - 1) * math.log1p(-x) - norm


PROPOSERS: dict[str, Callable[[Template, int], Proposer]] = {
    "ppo": LearnedProposer,
    "random": RandomProposer,
}


def make_proposer(name: str, template: Template, seed: int) -> Proposer:
    """A new proposer of layouts.

    Args:
        name: "ppo" (the actor that learns) or "random".
        template: whose parameters it decides.
        seed: of all that it draws.
    Raises:
        UnknownName: not one of `PROPOSERS`.
        KernelError: it needs torch, which is not installed.
    """
    if name not in PROPOSERS:
        raise unknown_name("proposals", name, PROPOSERS)
    return PROPOSERS[name](template, seed)
