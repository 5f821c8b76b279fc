"""A training learns, repeats itself, and ends with an outcome whatever happens inside it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from syno.errors import TaskError  # noqa: E402
from syno.training.task import Task  # noqa: E402
from syno.training.train import CurveFloor, evaluate, torch_threads, train  # noqa: E402


def batches(seed: int, count: int) -> list[tuple[Any, Any]]:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, 20, 6, generator=generator)
    return [(x, (x[:, 0] > x[:, 1]).long()) for x in inputs]


def make_task(**changes: Any) -> Task:
    task = Task(
        name="toy",
        model=lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)),
        train=lambda seed: batches(seed, 30),
        validation=batches(1_000, 10),
        test=batches(2_000, 20),
        epochs=2,
        learning_rate=0.1,
    )
    return task.but(**changes)


def test_training_learns_and_reports_its_curve() -> None:
    seen = []
    result = train(make_task(), report=lambda step, **metrics: seen.append((step, metrics)))
    assert result.state == "done"
    assert result.value > 0.9
    assert [point.step for point in result.curve] == [15, 30, 45, 60] == [step for step, _ in seen]
    assert result.curve[-1].metrics["accuracy"] == result.value
    assert result.curve[0].metrics["loss"] > result.curve[-1].metrics["loss"]
    assert result.count == 200
    assert result.stderr == pytest.approx(
        (result.value * (1 - result.value) / 200) ** 0.5, abs=0.004
    )
    assert result.examples_per_s > 0


def test_same_seed_same_result_and_another_seed_another() -> None:
    first, again, other = (train(make_task(), seed=seed) for seed in (3, 3, 4))
    assert first.curve[-1].metrics == again.curve[-1].metrics
    assert first.curve[-1].metrics != other.curve[-1].metrics


def test_finalists_are_judged_on_the_test_part() -> None:
    result = train(make_task(), part="test")
    assert result.part == "test"
    assert result.count == 400


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_an_outcome(bad: float) -> None:
    calls = itertools.count()

    def loss(outputs: Any, targets: Any) -> Any:
        value = nn.functional.cross_entropy(outputs, targets)
        return value * bad if next(calls) == 7 else value

    result = train(make_task(loss=loss))
    assert result.state == "failed"
    assert result.reason == f"loss is {bad} at step 7 of 60"


def test_weights_that_overflow_are_an_outcome_too() -> None:
    result = train(make_task(learning_rate=1e30, momentum=0.0, schedule="constant"))
    assert result.state == "failed"
    assert "nan" in result.reason or "inf" in result.reason


def test_the_time_limit_is_an_outcome() -> None:
    ticks = itertools.count()
    result = train(make_task(), time_limit_s=100, clock=lambda: 10.0 * next(ticks))
    assert result.state == "failed"
    assert "time limit of 100 s reached at step" in result.reason


@pytest.mark.parametrize("higher", [True, False])
def test_a_curve_below_its_floor_is_pruned_at_its_point(higher: bool) -> None:
    impossible = 1.01 if higher else -0.01
    floors = [(0.3, 0.0 if higher else 1e9), (0.5, impossible)]
    stop = CurveFloor(floors, higher_is_better=higher, why="the others do better")
    result = train(make_task(metric="accuracy" if higher else "loss"), stop=stop)
    assert result.state == "pruned"
    assert result.steps == 30
    assert "the others do better" in result.reason


def test_a_curve_above_its_floor_goes_on() -> None:
    assert train(make_task(), stop=CurveFloor([(0.0, 0.01)])).state == "done"


def test_loaders_without_a_length_or_without_batches_are_named() -> None:
    def endless(seed: int) -> Any:
        return itertools.cycle(batches(seed, 2))

    assert train(make_task(train=endless, steps=5)).steps == 5
    with pytest.raises(TaskError, match="no length"):
        train(make_task(train=endless))
    with pytest.raises(TaskError, match="no batches"):
        train(make_task(train=[]))
    with pytest.raises(TaskError, match="nothing to evaluate on"):
        train(make_task(validation=[]))
    with pytest.raises(TaskError, match="ran empty at step 3"):
        train(make_task(train=iter(batches(0, 3)), steps=9))


def test_a_model_without_parameters_is_named() -> None:
    with pytest.raises(TaskError, match="no trainable parameters"):
        train(make_task(model=nn.Identity))


def test_evaluation_leaves_the_model_as_it_was() -> None:
    task = make_task(model=lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 2)))
    model = task.make_model(0).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, task, batches(5, 4), limit=2)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_threads_are_fixed_for_a_training_only() -> None:
    before = torch.get_num_threads()
    with torch_threads(1) as used:
        assert used == torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
    assert train(make_task(), threads=1).threads == 1
