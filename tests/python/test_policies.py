"""Search policies: what every one promises, what each is for, and sessions that use them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patience import PATIENCE_S

pytest.importorskip("torch")

from test_synth import site

from syno import _core
from syno.cli.inspect import candidate_details
from syno.errors import FormatError, SpecError, UnknownName
from syno.known.beside import beside
from syno.operators.features import NAMES, features
from syno.policies import DEFAULT_POLICY
from syno.policies import space as space_module
from syno.policies.bayesian import BayesianOptimization
from syno.policies.evolution import Evolution
from syno.policies.front import hypervolume
from syno.policies.gaussian import SquaredExponential, Surrogate, Tanimoto, standardized
from syno.policies.hypervolume import HypervolumeImprovement
from syno.policies.policy import History, Policy
from syno.policies.random_search import RandomSearch
from syno.policies.space import SpecSpace, likeness
from syno.searching.proposers import POLICIES, make
from syno.session import Component, Gains, InlineExecutor, Limits, ProcessExecutor, Session


class Grid:
    """A space of ``size`` x ``size`` operators; two of their features and steps are their place."""

    def __init__(self, size: int = 9) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size**2

    def derivation(self, index: int) -> tuple[str, ...]:
        x, y = divmod(index, self.size)
        return (*(f"x{i}" for i in range(x)), *(f"y{i}" for i in range(y)))

    def vectors(self, indices: Sequence[int]) -> Any:
        places = [divmod(index, self.size) for index in indices]
        rows = [{"log_flops": x, "log_params": y, "positions": 1} for x, y in places]
        return np.array([[float(row.get(name, 0)) for name in NAMES] for row in rows])

    def gains(self, index: int) -> tuple[float, float]:
        """Quality is the reward above 0.2; speed falls with x: the front runs from the best to smaller x."""
        return self.reward(index) - 0.2, 0.9 - (index // self.size) / self.size

    def reward(self, index: int) -> float:
        """Greatest at (6, 2), the same to a third of a step for no two."""
        x, y = divmod(index, self.size)
        return float(np.exp(-(((x - 6) / 3) ** 2) - ((y - 2) / 3) ** 2) - 1e-3 * ((x * 7 + y) % 5))


MAKERS = {
    "bayesian": BayesianOptimization,
    "evolution": Evolution,
    "hypervolume": HypervolumeImprovement,
    "random": RandomSearch,
}


def searched(policy: Policy, space: Grid, count: int, width: int = 1) -> list[int]:
    told: list[tuple[int, float]] = []
    while len(told) < count:
        gains = {index: space.gains(index) for index, _ in told}
        chosen = policy.choose(space, History(told=tuple(told), gains=gains), width)
        if not chosen:
            break
        told += [(c.index, space.reward(c.index)) for c in chosen]
    return [index for index, _ in told]


# --- what all promise


@pytest.mark.parametrize("name", MAKERS)
def test_a_policy_proposes_everything_once_and_then_nothing(name: str) -> None:
    space = Grid(5)
    found = searched(MAKERS[name](3), space, 1_000, width=4)
    assert sorted(found) == list(range(25))


@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 5), data=st.data())
def test_choices_follow_from_seed_and_history_alone(name: str, seed: int, data: Any) -> None:
    space = Grid(6)
    order = data.draw(st.permutations(range(36)))
    told = [(i, space.reward(i)) for i in order[: data.draw(st.integers(0, 20))]]
    pending = list(order[20 : 20 + data.draw(st.integers(0, 4))])
    # Some are known by their reward alone, some by their speed alone.
    known = {i: space.gains(i) for i, _ in told[: data.draw(st.integers(0, 20))]}
    known |= {i: (None, space.gains(i)[1]) for i in list(known)[::3]}
    history = History(told=tuple(told), pending=tuple(pending), gains=known)
    policy = MAKERS[name](seed)
    first = policy.choose(space, history, 4)
    policy.choose(space, History(), 3)  # what was asked in between changes nothing
    assert policy.choose(space, history, 4) == first == MAKERS[name](seed).choose(space, history, 4)
    indices = [choice.index for choice in first]
    assert len(set(indices)) == 4
    assert not set(indices) & history.taken
    assert all(choice.why for choice in first)


@pytest.mark.parametrize("name", MAKERS)
def test_seeds_give_different_searches(name: str) -> None:
    assert searched(MAKERS[name](0), Grid(), 8) != searched(MAKERS[name](1), Grid(), 8)


# --- what each is for


def trainings_to_best(name: str, width: int, most: int = 81) -> float:
    space = Grid()
    best = max(range(len(space)), key=space.reward)
    found = [searched(MAKERS[name](seed), space, most, width).index(best) + 1 for seed in range(10)]
    return float(np.mean(found))


@pytest.mark.parametrize("width", [1, 4])
def test_a_surrogate_needs_a_third_of_the_trainings_of_random_search(width: int) -> None:
    assert trainings_to_best("bayesian", width) < trainings_to_best("random", width) / 3


def coverage(name: str, width: int, share: float = 0.95) -> float:
    """Mean trainings until so much of the whole front's hypervolume is covered."""
    space = Grid()
    points = np.array([space.gains(index) for index in range(len(space))])
    needed = []
    for seed in range(8):
        found = searched(MAKERS[name](seed), space, 81, width)
        areas = [hypervolume(points[found[: n + 1]]) for n in range(len(found))]
        needed.append(next(n for n, a in enumerate(areas, 1) if a >= share * areas[-1]))
    return float(np.mean(needed))


def test_a_front_is_covered_in_fewer_trainings_than_by_a_search_for_the_best() -> None:
    assert coverage("hypervolume", 4) < 0.8 * coverage("bayesian", 4)
    assert coverage("hypervolume", 4) < coverage("random", 4) / 2


def test_a_front_policy_told_rewards_only_chooses_as_the_surrogate_does() -> None:
    space = Grid()
    told = tuple((index, space.reward(index)) for index in (3, 40, 62))
    for known in ({}, {3: space.gains(3)}, {3: (0.1, None), 40: (None, 0.2), 62: (None, None)}):
        front_policy, surrogate = HypervolumeImprovement(5), BayesianOptimization(5)
        history = History(told=told, gains=known)
        assert front_policy.choose(space, history, 3) == surrogate.choose(space, history, 3)


def test_an_operator_worth_nothing_is_no_point_of_the_front() -> None:
    space = Grid()
    told = tuple((index, 0.1) for index in (0, 9, 18))
    slow = {index: (space.gains(index)[0], -0.5) for index in (0, 9, 18)}
    (choice,) = HypervolumeImprovement(0).choose(space, History(told=told, gains=slow), 1)
    assert "a first point of it" in choice.why
    fast = {index: (0.3, 0.5) for index in (0, 9, 18)}
    (choice,) = HypervolumeImprovement(0).choose(space, History(told=told, gains=fast), 1)
    assert "% of the front's hypervolume" in choice.why


def test_mutants_are_among_those_most_like_their_parent() -> None:
    space = Grid()
    told = tuple((index, 0.9 if index == 40 else 0.1) for index in range(30, 46))
    policy = Evolution(0, population=16, sample=16, mutants=4)
    chosen = policy.choose(space, History(told=told), 4)
    steps = space.derivation(40)
    taken = {index for index, _ in told}
    ranked = sorted(
        (likeness(steps, space.derivation(i)) for i in range(len(space)) if i not in taken),
        reverse=True,
    )
    for choice in chosen:
        assert likeness(steps, space.derivation(choice.index)) >= ranked[6]
        assert "parent with reward 0.9" in choice.why


def test_a_large_space_is_looked_at_in_part_and_around_the_best() -> None:
    space = Grid(30)
    policy = BayesianOptimization(0, visible=60, neighbors=12)
    asked: list[int] = []
    vectors = space.vectors
    space.vectors = lambda indices: asked.extend(indices) or vectors(indices)  # type: ignore[assignment, func-returns-value]
    policy.choose(space, History(), 2)
    assert len(set(asked)) == 60
    policy.choose(space, History(told=((905 % 900, 0.1), (450, 0.9))), 2)
    near = sorted(
        range(900), key=lambda i: (-likeness(space.derivation(450), space.derivation(i)), i)
    )
    assert set(near[:12]) <= set(asked)
    assert len(set(asked)) <= 60 + 2 * 5 + 2 * 12 + 2


# --- the surrogate


@st.composite
def problems(draw: Any) -> tuple[Any, Any, list[int]]:
    n, count = draw(st.integers(4, 14)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    raw = np.stack([rng.permutation(n) for _ in range(count)], axis=1).astype(float)
    if draw(st.booleans()):
        raw = np.hstack([raw, np.ones((n, 1))])
    known = draw(st.permutations(range(n)))[: draw(st.integers(2, n))]
    return raw, rng.random(n), list(known)


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_predictions_meet_what_is_known_and_are_less_sure_elsewhere(problem: Any) -> None:
    raw, values, known = problem
    columns = standardized(raw)
    assert np.allclose(columns.mean(axis=0), 0)
    assert np.allclose(columns.std(axis=0), 1)
    covariance = SquaredExponential(columns, 0.1)
    surrogate = Surrogate([covariance], np.zeros(len(raw)), noises=[1e-6])
    posterior = surrogate.fit(known, values[known])
    mean, std = posterior.predict()
    assert np.allclose(mean[known] * posterior.scale, values[known], atol=1e-2)
    assert std[known].max() < 0.01
    assert (std <= 1 + 1e-9).all()
    before = posterior.predict()
    unknown = sorted(set(range(len(raw))) - set(known))
    for operator in unknown[:1]:
        believer = posterior.believer()
        believer.believe(operator)
        after = believer.predict()
        assert np.allclose(after[0], before[0], atol=1e-4)
        assert after[1][operator] < 0.01
        assert (after[1] <= before[1] + 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sets(st.sampled_from("abcdefg")), min_size=2, max_size=8))
def test_shared_steps_are_a_covariance(sets: list[set[str]]) -> None:
    covariance = Tanimoto([sorted(each) for each in sets])
    matrix = covariance.block(slice(None))
    assert len(covariance) == len(sets)
    assert (covariance.block(np.array([1, 0]), np.array([1])) == matrix[[1, 0]][:, [1]]).all()
    assert np.allclose(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > -1e-9
    for i, one in enumerate(sets):
        for j, other in enumerate(sets):
            assert matrix[i, j] == pytest.approx(likeness(sorted(one), sorted(other)))


def test_the_evidence_chooses_the_covariance_that_fits() -> None:
    x = np.linspace(-2, 2, 40)[:, None]
    smooth, rough = SquaredExponential(x, 1.0), SquaredExponential(x, 0.05)
    wavy = np.sin(2 * x[:, 0])
    surrogate = Surrogate([rough, smooth], np.zeros(40))
    assert surrogate.fit(range(0, 40, 2), wavy[::2]).covariance is smooth
    noise = np.random.default_rng(0).standard_normal(40)
    fitted = surrogate.fit(range(40), noise)
    assert fitted.covariance is rough or fitted.noise == max(surrogate.noises)


def test_a_prior_leads_until_trainings_say_otherwise() -> None:
    columns = standardized(np.arange(20.0)[:, None])
    prior = columns[:, 0]
    surrogate = Surrogate([SquaredExponential(columns, 1.0)], prior)
    assert int(np.argmax(surrogate.fit([], []).predict()[0])) == 19
    known = list(range(0, 20, 3))
    falling = surrogate.fit(known, [1.0 - 0.04 * i for i in known]).predict()[0]
    assert falling[1] > falling[18]


# --- the operators of a spec


def small() -> str:
    return json.dumps(site(max_steps=4))


def test_a_space_has_every_operator_once_with_its_features() -> None:
    spec = _core.Spec.from_json(small())
    space = SpecSpace(spec)
    expected = _core.enumerate_operators(spec, max_steps=4)
    assert [g.hash() for g in space.graphs] == [g.hash() for g in expected.operators]
    found = space.vectors(range(len(space)))
    assert space.features(1) is space.features(1)
    assert np.array_equal(found, [features(graph).vector() for graph in space.graphs])
    assert np.array_equal(space.vectors([2, 0, 2]), found[[2, 0, 2]])
    assert space.derivation(2) == space.derivation(2)


def test_a_space_too_large_to_list_is_listed_in_part_and_sampled() -> None:
    spec = _core.Spec.from_json(small())
    space = SpecSpace(spec, enough=2, sampled=12)
    whole = len(SpecSpace(spec))
    assert 2 <= len(space) <= whole
    hashes = [g.hash() for g in space.graphs]
    assert len(set(hashes)) == len(hashes)
    assert max(len(g.steps) for g in space.graphs) > min(len(g.steps) for g in space.graphs)


def test_a_space_of_one_step_is_listed_like_any_other() -> None:
    document = site(max_steps=1)
    document["input"][1]["extent"] = "C_out"  # one weight a channel is all that fits
    space = SpecSpace(_core.Spec.from_json(json.dumps(document)))
    assert [len(graph.steps) for graph in space.graphs] == [1]


def test_an_empty_space_is_refused_with_what_to_allow() -> None:
    document = site(max_steps=5)
    document["budgets"] |= {"max_flops": 1, "min_flops": 0}
    with pytest.raises(SpecError, match=r"max_steps|FLOPs|flops"):
        SpecSpace(_core.Spec.from_json(json.dumps(document)))


# --- proposers


@pytest.mark.parametrize("name", POLICIES)
def test_a_proposer_resumes_from_its_state(name: str) -> None:
    def ask(proposer: Any, times: int) -> list[tuple[int, str]]:
        found = []
        for _ in range(times):
            batch = proposer.ask(3)
            found += [(p.ticket, p.operator.key) for p in batch]
            for proposal in batch:
                reward = 1 / (2 + proposal.operator.params % 7)
                speed = 1 / (1 + proposal.operator.flops / 1e6)
                proposer.tell(proposal.ticket, reward, Gains(quality=reward - 0.2, speed=speed))
        return found

    whole = make(seed=2, spec=small(), policy=name)
    expected = ask(whole, 4)
    assert [ticket for ticket, _ in expected] == list(range(len(expected)))
    assert len({key for _, key in expected}) == len(expected)
    first = make(seed=2, spec=small(), policy=name)
    begun = ask(first, 2)
    again = make(seed=2, spec=small(), policy=name)
    again.restore(first.state())
    assert begun + ask(again, 2) == expected


def grown_step_by_step(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Spaces begin with few operators; how many they have after each sample."""
    monkeypatch.setattr(space_module, "MOST_LOOKED_AT", 1)
    monkeypatch.setattr(space_module, "EFFORT", 100)
    monkeypatch.setattr(space_module, "MOST_EFFORT", 1_000)
    monkeypatch.setattr(space_module, "LEAST_SAMPLED", 2)
    sizes: list[int] = []
    real = SpecSpace._sample

    def sampled(self: SpecSpace) -> None:
        real(self)
        sizes.append(len(self))

    monkeypatch.setattr(SpecSpace, "_sample", sampled)
    return sizes


def test_a_space_grows_as_its_operators_are_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same whatever the threads, indices stay, and in the end nothing is missing."""
    spec = _core.Spec.from_json(small())
    every = {str(g.operator_key()) for g in SpecSpace(spec).graphs}
    sizes = grown_step_by_step(monkeypatch)
    spaces = [SpecSpace(spec, seed=3, threads=threads) for threads in (1, 3)]
    assert len(spaces[0]) == len(spaces[1]) < len(every)
    for proposed in (1, 3, 10, len(every)):
        before = [g.hash() for g in spaces[0].graphs]
        for space in spaces:
            space.make_room(proposed)
        hashes = [g.hash() for g in spaces[0].graphs]
        assert hashes == [g.hash() for g in spaces[1].graphs]
        assert hashes[: len(before)] == before
        assert len(hashes) >= min(space_module.ROOM * proposed, len(every))
    assert len(set(sizes)) > 2, "it did not grow step by step"
    assert {str(g.operator_key()) for g in spaces[0].graphs} == every
    assert not spaces[0].grow()


def test_what_is_known_comes_no_second_time_when_a_space_grows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = _core.Spec.from_json(small())
    known = SpecSpace(spec).graphs[-6:]
    grown_step_by_step(monkeypatch)
    space = SpecSpace(spec, known=known)
    space.make_room(1_000)
    keys = [str(graph.operator_key()) for graph in space.graphs]
    assert len(set(keys)) == len(keys)
    assert [keys[index] for index in space.known] == [str(g.operator_key()) for g in known]


@pytest.mark.parametrize(
    ("known", "grows"), [(False, False), (True, False), (True, True)], ids=["", "known", "growing"]
)
@pytest.mark.parametrize("name", POLICIES)
def test_a_proposer_resumes_while_tickets_wait(
    name: str, known: bool, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for three, told of three asked for long before, and kept in between: the same proposals."""
    if grows:
        grown_step_by_step(monkeypatch)
    spec = small()
    more = {"known": beside(_core.Spec.from_json(spec), "all")} if known else {}

    def proposed(kept: bool) -> list[tuple[int, str]]:
        proposer = make(seed=2, spec=spec, policy=name, **more)
        found: list[Any] = []
        told = 0
        for turn in range(7):
            found += proposer.ask(3)
            if turn >= 3:
                for proposal in found[told : told + 3]:
                    reward = 1 / (2 + proposal.operator.params % 7)
                    proposer.tell(proposal.ticket, reward, Gains(quality=reward - 0.2, speed=0.1))
                    told += 1
            if kept:
                state = proposer.state()
                proposer = make(seed=2, spec=spec, policy=name, **more)
                proposer.restore(state)
        return [(proposal.ticket, proposal.operator.key) for proposal in found]

    expected = proposed(kept=False)
    assert len(expected) > 9
    assert proposed(kept=True) == expected


class Part(Grid):
    """The first ``count`` operators of a grid."""

    count = 0

    def __len__(self) -> int:
        return self.count


@pytest.mark.parametrize("policy", [BayesianOptimization, HypervolumeImprovement])
def test_a_policy_forgets_what_it_saw_where_its_space_grew(policy: Any) -> None:
    """As one that begins with the larger space, which a search is that goes on."""
    space = Part(40)
    told = [(i, i / 850) for i in range(0, 850, 60)]
    history = History(told=told, gains={i: (reward, 1 - reward) for i, reward in told})
    old = policy(0, visible=20, neighbors=4)
    for space.count in (850, 1200, 1600):
        fresh = policy(0, visible=20, neighbors=4)
        assert old.choose(space, history, 30) == fresh.choose(space, history, 30)
        assert old._view._seen.indices == fresh._view._seen.indices


def test_more_are_looked_at_where_all_that_are_seen_are_under_way() -> None:
    """Without a reward so far, as where very many train at the same time."""
    space = Grid(40)
    policy = BayesianOptimization(0, visible=60, neighbors=2)
    pending: list[int] = []
    while len(pending) < 600:
        chosen = [choice.index for choice in policy.choose(space, History(pending=pending), 50)]
        assert len(set(chosen)) == 50 and not set(chosen) & set(pending)
        pending += chosen
    assert len(policy._view._seen.indices) < 900  # not with all that are under way


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "mcts"])
def test_a_damaged_or_foreign_state_is_refused(name: str) -> None:
    proposer = make(seed=0, spec=small(), policy=name)
    for state in ("", "[]", '{"policy": 3}', '{"policy": "other", "proposed": [], "rewards": []}'):
        with pytest.raises(FormatError, match="state"):
            proposer.restore(state)
    foreign = json.dumps({"policy": name, "proposed": ["0" * 32], "rewards": [0.5]})
    with pytest.raises(FormatError, match="another space"):
        proposer.restore(foreign)
    uneven = json.dumps({"policy": name, "proposed": [], "rewards": [0.5]})
    with pytest.raises(FormatError, match="1 rewards"):
        proposer.restore(uneven)
    gains = json.dumps({"policy": name, "proposed": [], "rewards": [], "gains": [[0.1, None]]})
    with pytest.raises(FormatError, match="1 gains"):
        proposer.restore(gains)
    proposer.restore(
        json.dumps({"policy": name, "proposed": [], "rewards": []})
    )  # an older session's


def test_an_unknown_policy_is_refused_with_the_known_ones() -> None:
    assert DEFAULT_POLICY in POLICIES
    with pytest.raises(UnknownName, match=r"bayesian.*evolution.*hypervolume.*mcts.*random"):
        make(seed=0, spec=small(), policy="annealing")


# --- sessions


def story(path: Path, policy: str, executor: Any) -> list[tuple[Any, ...]]:
    options = {"spec": small(), "policy": policy}
    with Session.open(
        path,
        proposer=Component(reference="syno.searching.proposers:make", options=options),
        evaluator=Component(reference="session_operators:Reader"),
        measurer=Component(reference="session_operators:Meter"),
        batch_width=3,
        seed=4,
        limits=Limits(start_limit_s=PATIENCE_S),
    ) as session:
        session.run(budget=9, finalists=0, executor=executor, progress="off")
        return [(c.id, c.key, c.ticket, c.why, c.reward) for c in session.candidates()]


@pytest.mark.parametrize("policy", POLICIES)
def test_any_number_of_workers_gives_the_same_candidates_in_the_same_order(
    tmp_path: Path, policy: str
) -> None:
    expected = story(tmp_path / "inline", policy, InlineExecutor())
    assert len(expected) == 9
    for workers in (1, 2, 4):
        with ProcessExecutor(workers) as executor:
            assert story(tmp_path / f"{workers}", policy, executor) == expected


@pytest.mark.parametrize(
    ("policy", "first", "later"),
    [
        ("bayesian", "first guess: wide", "expected reward"),
        ("evolution", "random: first population", "random: first population"),
        ("hypervolume", "first guess: wide", "expected to extend the front by"),
        ("random", "random", "random"),
    ],
)
def test_a_session_says_why_each_candidate_was_chosen(
    tmp_path: Path, policy: str, first: str, later: str
) -> None:
    rows = story(tmp_path / "a", policy, InlineExecutor())
    assert rows[0][3].startswith(f"{policy}: {first}")
    assert all(row[3].startswith(f"{policy}: {later}") for row in rows[3:])
    shown = candidate_details(tmp_path / "a", rows[5][0])["history"]
    assert rows[5][3] in shown
