"""Losses and metrics read classes where they lie, judge numbers as numbers, and know which way is better."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
nn = torch.nn
functional = torch.nn.functional

from syno.errors import TaskError  # noqa: E402
from syno.training.checking import check_task  # noqa: E402
from syno.training.metrics import (  # noqa: E402
    IGNORED,
    LOSSES,
    METRICS,
    R2,
    Accuracy,
    CrossEntropy,
    collect,
    find_class_dimension,
)
from syno.training.task import Task  # noqa: E402
from syno.training.train import evaluate, train  # noqa: E402


def drawn(*shape: int, seed: int = 0) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# --- where classes lie


@given(
    batch=st.integers(1, 4),
    rest=st.lists(st.integers(1, 4), max_size=3),
    classes=st.integers(2, 5),
    last=st.booleans(),
)
def test_the_dimension_of_classes_follows_from_the_shapes(
    batch: int, rest: list[int], classes: int, last: bool
) -> None:
    targets = (batch, *rest)
    outputs = (batch, *rest, classes) if last else (batch, classes, *rest)
    other = (batch, classes, *rest) if last else (batch, *rest, classes)
    meant = len(rest) + 1 if last else 1
    if rest and outputs == other:
        with pytest.raises(TaskError, match="dimension 1 or in the last"):
            find_class_dimension(outputs, targets)
        assert find_class_dimension(outputs, targets, -1) == len(rest) + 1
        assert find_class_dimension(outputs, targets, 1) == 1
    else:
        assert find_class_dimension(outputs, targets) == meant
        assert find_class_dimension(outputs, targets, meant - len(outputs)) == meant


@pytest.mark.parametrize(
    ("outputs", "targets"),
    [
        ((4,), (4,)),
        ((4, 3), (4, 3)),
        ((4, 3), (5,)),
        ((4, 3, 8, 8), (4, 8, 7)),
        ((4, 3), ()),
        ((), ()),
    ],
)
def test_shapes_that_are_no_logits_and_classes_are_refused(
    outputs: tuple[int, ...], targets: tuple[int, ...]
) -> None:
    with pytest.raises(TaskError, match="no logits and class numbers"):
        find_class_dimension(outputs, targets)


def test_one_class_numbers_as_floats_and_a_wrong_option_are_refused() -> None:
    with pytest.raises(TaskError, match="one class"):
        find_class_dimension((4, 1), (4,))
    with pytest.raises(TaskError, match="float32 are no class numbers"):
        Accuracy().values(drawn(4, 3), drawn(4))
    with pytest.raises(TaskError, match="class_dimension=2 does not fit"):
        find_class_dimension((4, 3, 8, 8), (4, 8, 8), 2)


@pytest.mark.parametrize("shape", [(5, 3), (5, 3, 4, 7), (5, 3, 4, 3), (5, 3, 6)])
def test_classes_second_agree_with_torch(shape: tuple[int, ...]) -> None:
    outputs = drawn(*shape)
    targets = drawn(shape[0], *shape[2:], seed=1).gt(0).long() + 1
    targets[0] = 0
    expected = functional.cross_entropy(outputs, targets)
    assert torch.allclose(LOSSES["cross_entropy"](outputs, targets), expected)
    assert CrossEntropy().values(outputs, targets).mean().item() == pytest.approx(expected.item())
    right = (outputs.argmax(1) == targets).float()
    assert Accuracy().values(outputs, targets).mean().item() == pytest.approx(right.mean().item())


def test_ignored_targets_are_not_judged() -> None:
    outputs, targets = drawn(3, 4, 6), torch.zeros(3, 4, dtype=torch.long)
    targets[0, 1:], targets[1] = IGNORED, IGNORED
    values = CrossEntropy().values(outputs, targets)
    assert values.shape == (2,)
    assert values[0].item() == pytest.approx(
        functional.cross_entropy(outputs[0, :1], targets[0, :1]).item()
    )
    assert Accuracy().values(outputs, targets)[0].item() in (0.0, 1.0)


def segmentation(**changes: Any) -> Task:
    """Images as wide as there are classes: which of three channels is greatest, at every pixel."""

    def batches(count: int, seed: int) -> list[tuple[Any, Any]]:
        images = drawn(count, 8, 3, 5, 3, seed=seed)
        return [(batch, batch.argmax(1)) for batch in images]

    return Task(
        model=lambda: nn.Conv2d(3, 3, 1),
        train=batches(40, 0),
        validation=batches(5, 1),
        learning_rate=0.5,
        **changes,
    )


def test_images_as_wide_as_there_are_classes_are_segmented() -> None:
    result = train(segmentation(), seed=0)
    assert result.value > 0.9
    check_task(segmentation())


def test_square_ambiguity_is_refused_before_a_training_and_settled_by_an_option() -> None:
    images = drawn(6, 4, 3, 3, 3)
    batches = [(batch, batch.argmax(1)) for batch in images]
    task = Task(model=lambda: nn.Conv2d(3, 3, 1), train=batches, validation=batches)
    with pytest.raises(TaskError, match="class_dimension=1 "):
        check_task(task)
    found = check_task(task.but(class_dimension=1))
    assert found["loss"] == pytest.approx(
        functional.cross_entropy(task.make_model(0)(batches[0][0]), batches[0][1]).item()
    )


# --- numbers


def regression(**changes: Any) -> Task:
    def batches(count: int, seed: int) -> list[tuple[Any, Any]]:
        inputs = drawn(count, 20, 4, seed=seed)
        return [(x, 100 * x[:, :2] + 7) for x in inputs]

    return Task(
        model=lambda: nn.Linear(4, 2),
        train=batches(60, 0),
        validation=batches(6, 1),
        learning_rate=0.1,
        epochs=2,
        **{"loss": "mse", **changes},
    )


@pytest.mark.parametrize(
    ("loss", "metric"), [("cross_entropy", "accuracy"), ("mse", "mse"), ("mae", "mae")]
)
def test_the_metric_follows_the_loss(loss: str, metric: str) -> None:
    assert regression(loss=loss).metric_object.name == metric


@pytest.mark.parametrize(
    ("loss", "metric"),
    [
        *((loss, m) for loss in ("mse", "mae") for m in ("accuracy", "perplexity", Accuracy())),
        *(("cross_entropy", m) for m in ("mse", "mae", "r2", R2())),
    ],
)
def test_a_loss_and_a_metric_that_contradict_each_other_are_refused(loss: str, metric: Any) -> None:
    with pytest.raises(TaskError, match="leave metric out"):
        regression(loss=loss, metric=metric)


def test_the_loss_as_a_metric_is_the_tasks_own() -> None:
    assert regression(metric="loss").metric_object.name == "mse"

    def huber(outputs: Any, targets: Any) -> Any:
        return functional.huber_loss(outputs, targets)

    task = regression(loss=huber, metric="loss")
    model = task.make_model(0)
    inputs, targets = next(iter(task.batches("validation")))
    values = task.metric_object.values(model(inputs), targets)
    assert values.shape == (20,)
    assert values.mean().item() == pytest.approx(huber(model(inputs), targets).item(), rel=1e-5)
    assert not task.metric_object.higher_is_better


def test_a_loss_function_of_numbers_without_a_metric_is_refused_before_a_training() -> None:
    with pytest.raises(TaskError, match="metric='mae'"):
        check_task(regression(loss=lambda outputs, targets: (outputs - targets).abs().mean()))


@pytest.mark.parametrize("name", ["mse", "mae", "r2"])
def test_metrics_of_numbers_agree_with_their_definitions_however_batches_fall(name: str) -> None:
    targets = 3 * drawn(50, 3) + 1000
    outputs = targets + 0.1 * drawn(50, 3, seed=1)
    difference = (outputs - targets).double()
    expected = {
        "mse": difference.square().mean(),
        "mae": difference.abs().mean(),
        "r2": 1
        - difference.square().sum() / (targets.double() - targets.double().mean(0)).square().sum(),
    }[name]
    for size in (1, 7, 50):
        collector = collect(METRICS[name]())
        for start in range(0, 50, size):
            collector.add(outputs[start : start + size], targets[start : start + size])
        value, stderr = collector.finish()
        assert collector.count == 50
        assert value == pytest.approx(expected.item(), rel=1e-4)
        assert 0 < stderr < abs(value)


def test_r2_of_equal_targets_is_nothing() -> None:
    collector = collect(R2())
    collector.add(drawn(4, 1), torch.ones(4, 1))
    assert math.isnan(collector.finish()[0])


def test_a_column_meets_a_vector_and_other_shapes_are_not_broadcast() -> None:
    column, vector = drawn(6, 1), drawn(6, seed=1)
    expected = functional.mse_loss(column[:, 0], vector).item()
    assert LOSSES["mse"](column, vector).item() == pytest.approx(expected)
    assert METRICS["mse"]().values(column, vector).mean().item() == pytest.approx(expected)
    for kind in (LOSSES["mse"], LOSSES["mae"], METRICS["r2"]().values):
        with pytest.raises(TaskError, match="same shape"):
            kind(drawn(6, 2), vector)


@pytest.mark.parametrize("metric", ["mse", "mae", "r2"])
def test_a_regression_is_trained_and_judged(metric: str) -> None:
    task = regression(metric=metric)
    before = evaluate(task.make_model(0), task, task.batches("validation"))
    result = train(task, seed=0)
    assert result.metric == metric
    assert result.higher_is_better == (metric == "r2")
    assert "mse" in result.curve[-1].metrics and "loss" not in result.curve[-1].metrics
    assert (result.value > before.value) == result.higher_is_better


# --- which way is better


@pytest.mark.parametrize("name", sorted(METRICS))
def test_best_keeps_the_metrics_direction_and_its_scale(name: str, tmp_path: Path) -> None:
    from syno.session import Component, Session

    higher = METRICS[name]().higher_is_better
    with Session.open(
        tmp_path / name,
        proposer=Component(reference="session_fakes:Climber"),
        evaluator=Component(reference="session_fakes:Trainer"),
    ) as session:
        for quality, latency in ((0.5, 100.0), (0.9, 60.0), (0.1, 40.0), (0.495, 50.0)):
            # What is to be made small may have any unit.
            value = quality if higher else 1000 * (1 - quality)
            session.tell(session.ask(), latency_us=latency, **{name: value})
        assert session.higher_is_better == higher
        original, good, bad, near = [session.baseline, *session.candidates()[:3]]
        assert session.best(max_drop=0.02) == near
        assert session.best(max_drop=1e-9) == good
        assert session.pareto() == [bad, near, good]
        assert original is not None


def test_a_metric_nobody_knows_is_told_with_its_direction(tmp_path: Path) -> None:
    from syno.errors import SessionError
    from syno.session import Component, Session

    with Session.open(
        tmp_path,
        proposer=Component(reference="session_fakes:Climber"),
        evaluator=Component(reference="session_fakes:Trainer"),
    ) as session:
        trial = session.ask()
        with pytest.raises(SessionError, match="'rmse' better when it is higher"):
            session.tell(trial, rmse=0.5)
        session.tell(trial, rmse=0.5, higher_is_better=False)
        assert not session.higher_is_better
