"""What a training draws follows from its seed, whatever the process did before; and it leaves no trace."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import drawing_task
import numpy as np
import pytest
import torch

from syno.searching.network import NetworkEvaluator
from syno.session.protocols import OperatorText, TrainRequest
from syno.support.streams import Stream, generators, seed_of
from syno.training.tasks import load_task
from syno.training.train import TrainResult, train


def draw() -> list[float]:
    return [float(torch.rand(1)), float(np.random.randn()), random.random()]


def disturb() -> None:
    """Moves every generator that is not a training's own."""
    draw()
    torch.rand(17)
    drawing_task.ALL.random()


def test_a_stream_follows_from_its_key_goes_on_and_leaves_the_others_alone() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    untouched = [draw(), draw()]
    torch.manual_seed(1)
    np.random.seed(1)
    random.seed(1)
    assert draw() == untouched[0]
    stream = Stream("a", 1)
    with stream:
        first = draw()
    with stream:
        second = draw()
    with Stream("a", 1):
        assert [draw(), draw()] == [first, second]
    with Stream("a", 2):
        assert draw() != first
    assert draw() == untouched[1]


def test_an_exception_gives_the_generators_back_too() -> None:
    torch.manual_seed(1)
    expected = float(torch.rand(1))
    torch.manual_seed(1)
    with pytest.raises(ZeroDivisionError), Stream("a"):
        torch.rand(1).item() / 0
    assert float(torch.rand(1)) == expected


def test_seeds_follow_from_the_whole_key() -> None:
    keys = [("a",), ("a", 1), ("a", 12), ("a", 1, 2), ("a1", 2), (("a", 1),), ("a", "1")]
    assert len({seed_of(*key) for key in keys}) == len(keys)
    assert seed_of("weights", 0) == 5543443259633724587
    assert all(0 <= seed_of(n) < 2**63 for n in range(100))


class Slotted:
    __slots__ = ("generator",)

    def __init__(self, generator: Any) -> None:
        self.generator = generator


KINDS: dict[str, Callable[[], Any]] = {
    "torch": torch.Generator,
    "numpy": np.random.default_rng,
    "numpy, another": lambda: np.random.Generator(np.random.Philox()),
    "numpy, legacy": np.random.RandomState,
    "python": random.Random,
}

GLOBAL = np.random.default_rng()


def uses_a_global() -> float:
    return float(GLOBAL.random())


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda g: g,
    "an attribute": lambda g: _with(generator=g),
    "a slot": Slotted,
    "a list in a dictionary": lambda g: {"transforms": [None, g]},
    "an argument": lambda g: partial(max, g),
    "a default": lambda g: lambda x, rng=g: x,
    "a closure": lambda g: lambda: g,
    "a method": lambda g: _with(generator=g).__repr__,
    "an attribute of an attribute": lambda g: _with(inner=_with(inner=[_with(generator=g)])),
}


def _with(**attributes: Any) -> Any:
    found = torch.nn.Module()
    found.__dict__.update(attributes)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_generators_are_found_and_belong_to_the_stream(holder: str, kind: str) -> None:
    generator = KINDS[kind]()
    root = HOLDERS[holder](generator)
    assert generators(root) == [generator]

    def number() -> float:
        if isinstance(generator, torch.Generator):
            return float(torch.rand(1, generator=generator))
        return float(generator.random())

    with Stream("key", of=[root]):
        expected = [number(), number()]
    state = Stream("outer", of=[root])
    with state:
        outside = [number(), number()]
    with Stream("outer", of=[root]):
        assert number() == outside[0]
        with Stream("key", of=[root]):
            assert [number(), number()] == expected
        assert number() == outside[1]


def test_generators_that_functions_name_are_found_and_data_are_passed_over() -> None:
    assert generators(uses_a_global) == [GLOBAL]
    assert generators(lambda: uses_a_global()) == [GLOBAL]
    assert generators([random.Random()] * 5_000, torch.rand(10), random.SystemRandom()) == []
    assert generators(np.random.rand, random.random, torch.default_generator) == []


# --- trainings


def result(found: TrainResult) -> Any:
    return (found.value, found.metrics, [(p.step, p.metrics) for p in found.curve])


def test_a_training_is_the_same_after_any_other_and_leaves_the_generators_alone() -> None:
    for make in (drawing_task.make, drawing_task.counting):
        with Stream("data"):
            task = make()
        expected = {seed: result(train(task, seed=seed)) for seed in (0, 1)}
        assert expected[0] != expected[1]
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        before = [draw(), draw()]
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)
        assert draw() == before[0]
        for seed in (1, 0, 0):
            assert result(train(task, seed=seed)) == expected[seed]
        assert draw() == before[1]
        for _ in task.batches("train"):
            disturb()
        assert result(train(task, seed=0)) == expected[0]


def test_weights_follow_from_their_seed_alone() -> None:
    task = drawing_task.make()
    first = task.make_model(4).state_dict()
    disturb()
    again = task.make_model(4).state_dict()
    assert all(torch.equal(v, again[k]) for k, v in first.items())
    other = task.make_model(5).state_dict()
    assert not torch.equal(first["scale"], other["scale"])


def test_a_task_by_name_has_the_same_data_in_every_process() -> None:
    reference = f"{drawing_task.__file__}:make"
    first = load_task(reference).example(4)
    disturb()
    assert torch.equal(load_task(reference).example(4), first)


def requests() -> list[TrainRequest]:
    from syno import Operator, sites

    task = drawing_task.make()
    group = sites(task.make_model(0), task.example(1)).groups()[0]
    assert [site.name for site in group.sites] == ["first", "second"]
    found: list[TrainRequest] = []
    dense = Operator.parse(
        "y[n,o,h,w] = sum[c,r,s] x[n,c,h+r-1,w+s-1] * k[o,c,r,s]",
        n=1, o=8, c=8, h=6, w=6, r=3, s=3,
    )  # fmt: skip
    pointwise = Operator.parse("y[n,o,h,w] = sum[c] x[n,c,h,w] * k[o,c]", n=1, o=8, c=8, h=6, w=6)
    for number, operator in enumerate([None, dense, pointwise]):
        assignment = {}
        if operator is not None:
            text = OperatorText(
                key=operator.canonical_hash, expr=operator.expr, text=operator.to_json()
            )
            assignment = {"all": text}
        found.append(
            TrainRequest(
                candidate=number,
                assignment=assignment,
                seed=0,
                part="validation",
                threads=1,
                time_limit_s=600.0,
            )
        )
    return found


@pytest.mark.parametrize("name", ["make", "counting", "persistent"])
def test_the_order_of_trainings_in_a_process_changes_none(name: str) -> None:
    asked = requests()
    expected: dict[int, Any] = {}
    for order in ([0, 1, 2], [2, 1, 0, 1], [1], [2]):
        # A new evaluator each time, as in a new worker: its first network is built before it knows the sites.
        evaluator = NetworkEvaluator(
            f"{drawing_task.__file__}:{name}", stages={"all": ["first", "second"]}
        )
        for number in order:
            disturb()
            found = result(evaluator.evaluate(asked[number], lambda step, **metrics: disturb()))
            assert found == expected.setdefault(number, found)
    assert len({repr(found) for found in expected.values()}) == 3
