"""A task is checked before anything starts, in the words of the one who wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from syno.errors import SynoError, TaskError, UnknownName  # noqa: E402
from syno.training import checking, metrics, optimizers, tasks  # noqa: E402

SOURCE = """
import torch
from torch import nn
from syno.training.task import Task

def batches(count, width=4):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(count, 8, width, generator=g)
    return [(b, (b.sum(1) > 0).long()) for b in x]

def good(classes=2):
    return Task(name="toy", model=lambda: nn.Linear(4, classes), train=batches(3), validation=batches(1))

def wrong_shape():
    return good().but(model=lambda: nn.Linear(5, 2))

def empty():
    return good().but(validation=[])

def no_task():
    return 7

def raises():
    raise ZeroDivisionError("divided")

def no_module():
    return good().but(model=lambda: 3)

def many_losses():
    return good().but(loss=lambda outputs, targets: outputs.sum(1))

def leaves():
    raise SystemExit(3)

def model_raises():
    def model():
        raise ValueError("mine")
    return good().but(model=model)

def model_leaves():
    def model():
        raise SystemExit(9)
    return good().but(model=model)

def model_wants():
    return good().but(model=lambda seed: nn.Linear(4, 2))

def nothing():
    return good().but(validation=None)
"""


@pytest.fixture
def source(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(SOURCE.replace("b.sum(1)", "b.sum(-1)"))
    return str(tmp_path / "mine.py")


def test_a_task_loads_from_a_file_with_options(source: str) -> None:
    task = tasks.load_task(f"{source}:good", {"classes": 3})
    found = checking.check_task(task)
    assert found["params"] == 15
    assert found["train"] == [8, 4]
    assert task.example(2).shape == (2, 4)


def test_preflight_answers_from_a_fresh_process(source: str) -> None:
    found = checking.preflight(f"{source}:good")
    assert found["task"] == "toy"
    with pytest.raises(TaskError, match=r"fresh process: 'nowhere:make'|could not import"):
        checking.preflight("nowhere:make")
    with pytest.raises(TaskError, match="fails on inputs of shape"):
        checking.preflight(f"{source}:wrong_shape")


@pytest.mark.parametrize(
    ("name", "words", "code"),
    [
        ("wrong_shape", r"inputs of shape \[8, 4\]", "T009"),
        ("empty", "validation part of task 'toy' has no batches", "T005"),
        ("no_task", "returned a int", "T002"),
        ("raises", "ZeroDivisionError: divided", "T008"),
        ("no_module", "is a int, not a torch module", "T002"),
        ("many_losses", "not one number", "T009"),
        ("none", "has no 'none'", "T007"),
        ("leaves", "failed: SystemExit: 3", "T008"),
        ("model_raises", "model of task 'toy' failed: ValueError: mine", "T008"),
        ("model_leaves", "model of task 'toy' failed: SystemExit: 9", "T008"),
        ("model_wants", "model of task 'toy' failed: TypeError", "T008"),
        ("nothing", "validation part of task 'toy' is a NoneType, no batches", "T005"),
    ],
)
def test_what_is_wrong_with_a_task_is_said(source: str, name: str, words: str, code: str) -> None:
    with pytest.raises(TaskError, match=words) as caught:
        checking.check_task(tasks.load_task(f"{source}:{name}"))
    assert caught.value.code == code
    assert caught.value.fix


@pytest.mark.parametrize(
    ("reference", "kind", "words"),
    [
        ("fashion-mist", UnknownName, "did you mean 'fashion-mnist'"),
        (":make", TaskError, "not of the form"),
        ("json:", TaskError, "not of the form"),
        ("no_such_module:make", TaskError, "ModuleNotFoundError"),
        ("/no/such/file.py:make", TaskError, "is no file"),
        ("json:make", TaskError, "has no 'make'"),
    ],
)
def test_references_that_lead_nowhere(reference: str, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        tasks.load_task(reference)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epochs": 0}, "epochs=0"),
        ({"steps": -1}, "steps=-1"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"seeds": ()}, "without seeds"),
        ({"colour": 1}, "no field 'colour'"),
        ({"evaluations": -1}, "evaluations=-1"),
    ],
)
def test_fields_out_of_range_are_named(source: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TaskError, match=words):
        tasks.load_task(f"{source}:good").but(**changes)


@pytest.mark.parametrize("kind", ["loss", "metric", "optimizer", "schedule"])
def test_unknown_parts_list_the_known_ones(source: str, kind: str) -> None:
    with pytest.raises(UnknownName, match=f"unknown {kind} 'nothing'"):
        tasks.load_task(f"{source}:good").but(**{kind: "nothing"})


@pytest.mark.parametrize("name", sorted(optimizers.SCHEDULES))
def test_schedules_stay_within_the_learning_rate(source: str, name: str) -> None:
    task = tasks.load_task(f"{source}:good").but(schedule=name, learning_rate=0.5)
    optimizer = task.make_optimizer([torch.nn.Parameter(torch.zeros(1))])
    schedule = task.make_schedule(optimizer, 40)
    rates = []
    for _ in range(40):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert max(rates) == pytest.approx(0.5)
    assert min(rates) >= 0
    assert (name == "constant") == (rates[-1] == pytest.approx(0.5))


def test_accuracy_and_its_error_count_right_answers() -> None:
    metric = metrics.Accuracy()
    outputs = torch.tensor([[1.0, 0], [0, 1], [0, 1], [1, 0]])
    values = metric.values(outputs, torch.tensor([0, 1, 0, 0]))
    assert values.tolist() == [1, 1, 0, 1]
    value, stderr = metric.finish(0.75, 0.1875, 400)
    assert value == 0.75
    assert stderr == pytest.approx((0.75 * 0.25 / 400) ** 0.5, rel=0.01)
    assert metric.finish(1.0, 0.0, 100)[1] > 0


def test_perplexity_is_the_exponential_of_the_loss() -> None:
    outputs = torch.randn(6, 5, 7, generator=torch.Generator().manual_seed(0))
    targets = torch.randint(0, 7, (6, 5), generator=torch.Generator().manual_seed(1))
    values = metrics.Perplexity().values(outputs, targets)
    assert values.shape == (6,)
    loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
    assert values.mean().item() == pytest.approx(loss.item(), rel=1e-5)
    value, stderr = metrics.Perplexity().finish(loss.item(), 0.04, 100)
    assert value == pytest.approx(loss.exp().item(), rel=1e-5)
    assert stderr == pytest.approx(value * 0.02)


def test_the_digits_task_is_ready_to_train() -> None:
    pytest.importorskip("sklearn")
    found = checking.check_task(tasks.load_task("digits", {"width": 4}))
    assert found["metric"] == "accuracy"
    assert found["train"] == [32, 1, 8, 8]


def test_text_is_a_task_of_perplexity(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("to be or not to be " * 200)
    found = checking.check_task(tasks.load_task("text", {"path": str(file), "context": 16}))
    assert found["metric"] == "perplexity"
    assert found["train"] == [16, 16]


def test_image_folders_are_a_task(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part, count in (("train", 12), ("test", 4)):
        for number, name in enumerate(("cats", "dogs", "owls")):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                picture = image.new("RGB", (20 + i, 24), (80 * number, 10 * i, 0))
                picture.save(tmp_path / part / name / f"{i}.png")
    options = {"path": str(tmp_path), "size": 16, "batch": 8, "widths": [8, 16]}
    found = checking.check_task(tasks.load_task("image-folder", options))
    assert found["train"] == [8, 3, 16, 16]
    assert found["metric"] == "accuracy"
    with pytest.raises(SynoError, match="one sub-directory of images per class"):
        tasks.load_task("image-folder")


def test_arguments_of_a_task_are_read_from_the_command_line() -> None:
    from syno.cli.targets import task_options

    found = task_options(["path=photos", "size=64", "widths=[8, 16]", "name=a=b"])
    assert found == {"path": "photos", "size": 64, "widths": [8, 16], "name": "a=b"}
    for wrong in (["path"], ["=3"], ["a b=3"], ["a=1", "a=2"]):
        with pytest.raises(TaskError, match="name=value"):
            task_options(wrong)


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"width": "abc"}, TaskError, r"width='abc' of task 'digits' is a str"),
        ({"width": [1]}, TaskError, "is a list"),
        ({"width": None}, TaskError, "is a NoneType"),
        ({"batch": "abc"}, TaskError, "give a value of type int"),
        ({"epochs": 1.5}, TaskError, "is a float"),
        ({"epochs": True}, TaskError, "is a bool"),
        ({"bogus": 3}, UnknownName, "unknown option of digits 'bogus'"),
        ({"widht": 3}, UnknownName, "did you mean 'width'"),
    ],
)
def test_options_a_task_does_not_take_are_refused(
    options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        tasks.load_task("digits", options)


def test_options_fit_their_annotations_where_these_are_plain() -> None:
    for value, hint, fits in [
        (1, float, True), (1, int | None, True), (None, int | None, True), ("a", int | str, True),
        ([1, 2], Sequence[int], True), ([1, "2"], Sequence[int], False), ((1,), list[int], True),
        ({"a": 1}, dict[str, int], True), ("x", Path, True), ("1", float, False), (1, bool, False),
    ]:  # fmt: skip
        assert tasks._fits(value, hint) is fits, (value, hint)
