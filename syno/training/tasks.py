"""What is trained, on what, and how it is judged: every field of a :class:`Task` is the user's to replace.

A task is named in three ways: a built-in (``"fashion-mnist"``), ``"module:function"``, or
``"path/to/file.py:function"``; the function returns a :class:`Task`. Worker processes build theirs from
that name, so nothing has to be sent to them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import math
import re
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import SynoError, TaskError, shown, told, unknown_name
from syno.support.arguments import check_fields, checked
from syno.support.fresh import python_command, python_environment
from syno.support.inputs import batch_of, call, described, first, moved, tensors, why_not
from syno.support.moved import now_at
from syno.support.streams import Stream
from syno.training.metrics import LOSSES, METRICS, cross_entropy, resolve_metric
from syno.training.metrics import Accuracy as Accuracy
from syno.training.metrics import CrossEntropy as CrossEntropy
from syno.training.metrics import Metric as Metric
from syno.training.metrics import Perplexity as Perplexity

if TYPE_CHECKING:
    import torch
    from torch import nn

    Batches = Iterable[tuple[Any, Any]]
    Loader = Batches | Callable[[int], Batches]

    from syno.training.metrics import Loss


_PARTS = ("train", "validation", "test")
#: What torch.autocast may compute in.
AUTOCASTS = ("bfloat16", "float16")
_DEVICE = re.compile(r"auto|[a-z]+(:\d+)?")


@dataclass(frozen=True, kw_only=True)
class Task:
    """A training: model, data, recipe and metric.

    Attributes:
        name: what messages, progress and reports call it.
        model: a name of :mod:`syno.models`, or a function without arguments that returns a new module.
        train, validation, test: batches ``(inputs, targets)`` of tensors or NumPy arrays to iterate over once
            an epoch, or a function of a seed that returns such. Several inputs of a model are a tuple or a
            dictionary, ``((a, b), targets)``. Candidates are chosen on ``validation``; finalists are judged on
            ``test``, which is ``validation`` when left out. Whatever they draw from the generators of torch,
            NumPy and Python, global or their own, follows from the training's seed; a loader that keeps other
            state between epochs has ``set_epoch(number)``, or is a function of the seed.
        loss: ``"cross_entropy"``, ``"mse"``, ``"mae"``, or a function of outputs and targets.
        optimizer: ``"sgd"``, ``"adam"``, ``"adamw"``, or a function of parameters.
        schedule: ``"one_cycle"``, ``"cosine"``, ``"constant"``, or a function of optimiser and total steps;
            stepped after every batch.
        metric: ``"accuracy"``, ``"loss"``, ``"perplexity"``, ``"mse"``, ``"mae"``, ``"r2"``, or a :class:`Metric`; left
            out, it follows the loss: accuracy for cross-entropy and functions, else the loss itself.
        class_dimension: of the outputs, for ``"cross_entropy"`` and metrics of classes by name; default what the
            shapes of outputs and targets say (see :mod:`syno.training.metrics`).
        epochs, steps: length of a training; ``steps`` decides when given.
        learning_rate, momentum, weight_decay: for the optimisers known by name.
        gradient_clip: greatest norm of the gradient; 0 for no limit.
        evaluations: points of the learning curve before the last, evenly spaced.
        curve_batches: validation batches a point; 0 for all. The last point always uses all.
        device: torch device of the training, such as ``"cuda"``; ``"auto"`` is a CUDA device where there is one, else the
            CPU (name the device where several machines train). Native kernels run on ``"cpu"``; elsewhere operators
            compute by the emitted PyTorch functions, stage by stage.
        autocast: ``"bfloat16"`` or ``"float16"``, which torch.autocast computes in where that is safe; None: as it is.
            The gradients of float16 are scaled.
        channels_last: memory format of the model's convolution weights, and of images on a CUDA device.
        seeds: seeds of the finalists' trainings; candidates are trained with ``seeds[0]`` derived.
    """

    name: str = "task"
    model: str | Callable[[], nn.Module]
    train: Loader
    validation: Loader
    test: Loader | None = None
    loss: str | Loss = "cross_entropy"
    optimizer: str | Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = "sgd"
    schedule: str | Callable[[torch.optim.Optimizer, int], Any] = "one_cycle"
    metric: str | Metric | None = None
    class_dimension: int | None = None
    epochs: int = 1
    steps: int | None = None
    learning_rate: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 5e-4
    gradient_clip: float = 0.0
    evaluations: int = 3
    curve_batches: int = 0
    device: str = "cpu"
    autocast: str | None = None
    channels_last: bool = False
    seeds: tuple[int, ...] = (0, 1, 2)

    def __post_init__(self) -> None:
        # Of loaders more is said where they are read.
        check_fields(self, lambda what, fix: TaskError(what, fix=fix, code="T003"), _PARTS)
        for field in ("epochs", "steps"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise TaskError(f"{field}={value}", fix="choose at least 1", code="T003")
        if self.evaluations < 0 or self.curve_batches < 0:
            raise TaskError(
                f"evaluations={self.evaluations}, curve_batches={self.curve_batches}",
                fix="choose 0 or more",
                code="T003",
            )
        if not self.learning_rate > 0 or not math.isfinite(self.learning_rate):
            raise TaskError(
                f"learning_rate={self.learning_rate}", fix="choose a positive number", code="T003"
            )
        if not self.seeds:
            raise TaskError("a task without seeds", fix="give at least one", code="T003")
        for kind, table in (
            ("loss", LOSSES),
            ("metric", METRICS),
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
        ):
            value = getattr(self, kind)
            if isinstance(value, str) and value not in table:
                raise unknown_name(kind, value, table)
        if self.autocast is not None and self.autocast not in AUTOCASTS:
            raise unknown_name("autocast", self.autocast, AUTOCASTS)
        if not _DEVICE.fullmatch(self.device):
            raise TaskError(
                f"device={shown(self.device)} is no torch device",
                fix="choose 'cpu', 'cuda', 'cuda:0', ..., or 'auto': a CUDA device where there is one",
                code="T003",
            )
        resolve_metric(self.metric, self.loss)

    @checked()
    def here(self) -> Task:
        """This task on a device of this machine, where ``"auto"`` is decided.

        Raises:
            TaskError: it is for a CUDA device, and there is none: the message says why and what to do.
        """
        from syno.gpu.devices import usable_device

        device = usable_device(self.device)
        return self if device == self.device else self.but(device=device)

    @checked()
    def but(self, **changes: Any) -> Task:
        """This task with some fields replaced.

        Args:
            changes: new values by field: ``task.but(epochs=5, learning_rate=0.01)``.
        Raises:
            TaskError: no such field.
        """
        fields = {f.name for f in dataclasses.fields(self)}
        unknown = sorted(set(changes) - fields)
        if unknown:
            raise TaskError(
                f"a task has no field {unknown[0]!r}",
                fix=f"it has {', '.join(sorted(fields))}",
                code="T003",
            )
        return dataclasses.replace(self, **changes)

    @checked()
    def make_model(self, seed: int) -> nn.Module:
        """A new model, its weights drawn with ``seed``, whatever was drawn before; see :mod:`syno.support.streams`."""
        import torch

        from syno import models

        try:
            with Stream("weights", seed, of=[self.model], device=self.device):
                model = models.make(self.model) if isinstance(self.model, str) else self.model()
        except (SynoError, MemoryError):
            raise
        except (Exception, SystemExit) as error:  # whatever a user's own function raises
            raise TaskError(
                f"the model of task {self.name!r} failed: {told(error)}",
                fix="make it yourself once: it is called without arguments and returns a new torch.nn.Module",
                code="T008",
            ) from error
        if not isinstance(model, torch.nn.Module):
            raise TaskError(
                f"the model of task {self.name!r} is a {type(model).__name__}, not a torch module",
                fix="return a new torch.nn.Module from the model function",
                code="T002",
            )
        return model

    @checked()
    def batches(self, part: str, seed: int = 0) -> Batches:
        """The batches of one part of the data.

        Args:
            part: ``"train"``, ``"validation"`` or ``"test"``.
            seed: of the order of training batches.

        A loader that keeps a count of its epochs is told them through ``set_epoch``, see :func:`set_epoch`.
        """
        loader = self.loader(part)
        batches = loader(seed) if callable(loader) else loader
        if not isinstance(batches, Iterable):
            raise TaskError(
                f"the {part} part of task {self.name!r} is a {type(batches).__name__}, no batches",
                fix="give a list or DataLoader of (inputs, targets), or a function of the seed that returns one",
                code="T005",
            )
        return batches

    def loader(self, part: str) -> Loader:
        """What :meth:`batches` come from: the field itself, ``validation`` where there is no ``test``.

        Args:
            part: ``"train"``, ``"validation"`` or ``"test"``.
        Raises:
            UnknownName: another part.
        """
        if part not in _PARTS:
            raise unknown_name("part", part, _PARTS)
        found: Loader | None = getattr(self, part)
        return self.validation if found is None else found

    @checked()
    def example(self, batch: int = 1) -> Any:
        """The first ``batch`` inputs of the validation part, as the model gets them: a tensor, or several
        in a tuple, list or dictionary (:func:`syno.support.inputs.call`)."""
        with Stream("example", of=[self.validation]):
            batches = self.batches("validation")
            set_epoch(batches, 0)
            for pair in batches:
                return first(batch_of(pair, self.name)[0], batch)
        raise TaskError(
            f"the validation part of task {self.name!r} has no batches",
            fix="give a loader that can be iterated over again and again",
            code="T005",
        )

    @property
    def metric_object(self) -> Metric:
        """The metric itself."""
        return resolve_metric(self.metric, self.loss, self.class_dimension)

    @property
    def loss_function(self) -> Loss:
        """The loss itself."""
        if self.loss == "cross_entropy" and self.class_dimension is not None:
            return functools.partial(cross_entropy, class_dimension=self.class_dimension)
        return LOSSES[self.loss] if isinstance(self.loss, str) else self.loss

    def recipe(self) -> dict[str, str]:
        """How a training goes, for people: optimiser, schedule, length, loss, metric."""
        optimizer = _named(self.optimizer)
        if isinstance(self.optimizer, str):
            optimizer += f", learning rate {self.learning_rate:g}"
            if self.optimizer == "sgd":
                optimizer += f", momentum {self.momentum:g}"
            optimizer += f", weight decay {self.weight_decay:g}"
        if self.gradient_clip > 0:
            optimizer += f", gradients clipped at {self.gradient_clip:g}"
        epochs = f"{self.epochs} epoch{'s' if self.epochs > 1 else ''}"
        return {
            "task": self.name,
            "optimizer": optimizer,
            "schedule": _named(self.schedule),
            "length": epochs if self.steps is None else f"{self.steps} steps",
            **({} if self.device == "cpu" else {"device": self.device}),
            **({} if self.autocast is None else {"autocast": self.autocast}),
            "loss": _named(self.loss),
            "metric": self.metric_object.name,
            "judged on": "validation, finalists on test"
            if self.test is not None
            else "validation, finalists too (the task has no test part)",
        }

    def make_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """A new optimiser over ``parameters``."""
        if isinstance(self.optimizer, str):
            return OPTIMIZERS[self.optimizer](self, parameters)
        return self.optimizer(parameters)

    def make_schedule(self, optimizer: torch.optim.Optimizer, total_steps: int) -> Any:
        """The learning-rate schedule of a training.

        Args:
            optimizer: of :meth:`make_optimizer`, whose learning rates it changes.
            total_steps: batches that will be trained; ``step()`` is to be called after each.
        """
        if isinstance(self.schedule, str):
            return SCHEDULES[self.schedule](self, optimizer, total_steps)
        return self.schedule(optimizer, total_steps)


def _named(value: Any) -> str:
    if isinstance(value, str):
        return value
    inner = getattr(value, "func", value)  # of a functools.partial
    return str(getattr(inner, "__qualname__", type(value).__name__))


def set_epoch(batches: Batches, epoch: int) -> None:
    """Tells a loader, its samplers and its data set which epoch begins, each that has ``set_epoch``.

    What a loader counts by itself goes on from training to training, in an order that depends on the workers.
    """
    sampler = getattr(batches, "batch_sampler", None)
    parts = [batches, getattr(batches, "sampler", None), sampler, getattr(sampler, "sampler", None)]
    told: list[int] = []
    for part in [*parts, getattr(batches, "dataset", None)]:
        tell = getattr(part, "set_epoch", None)
        if callable(tell) and id(part) not in told:
            told.append(id(part))
            tell(epoch)


def _sgd(task: Task, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.SGD(
        parameters,
        lr=task.learning_rate,
        momentum=task.momentum,
        weight_decay=task.weight_decay,
        nesterov=task.momentum > 0,
    )


def _adam(task: Task, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.Adam(parameters, lr=task.learning_rate, weight_decay=task.weight_decay)


def _adamw(task: Task, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    import torch

    return torch.optim.AdamW(parameters, lr=task.learning_rate, weight_decay=task.weight_decay)


OPTIMIZERS: dict[str, Callable[[Task, Iterable[nn.Parameter]], torch.optim.Optimizer]] = {
    "adam": _adam,
    "adamw": _adamw,
    "sgd": _sgd,
}


def _factor(optimizer: torch.optim.Optimizer, factor: Callable[[int], float]) -> Any:
    import torch

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _one_cycle(task: Task, optimizer: torch.optim.Optimizer, total: int) -> Any:
    """Linear warm-up over the first quarter, then linear down to almost nothing."""
    peak = max(1, total // 4)

    def factor(step: int) -> float:
        if step < peak:
            return (step + 1) / peak
        return max(0.01, (total - step) / max(1, total - peak))

    return _factor(optimizer, factor)


def _cosine(task: Task, optimizer: torch.optim.Optimizer, total: int) -> Any:
    return _factor(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * min(1.0, step / total))))


def _constant(task: Task, optimizer: torch.optim.Optimizer, total: int) -> Any:
    return _factor(optimizer, lambda step: 1.0)


SCHEDULES: dict[str, Callable[[Task, torch.optim.Optimizer, int], Any]] = {
    "constant": _constant,
    "cosine": _cosine,
    "one_cycle": _one_cycle,
}


# --- built-in tasks -----------------------------------------------------------------------------------


def fashion_mnist(
    path: str | None = None,
    *,
    widths: tuple[int, ...] = (32, 48, 64),
    examples: int = 8_000,
    validation_examples: int = 4_000,
    test_examples: int = 10_000,
    batch: int = 32,
    epochs: int = 1,
    device: str = "cpu",
) -> Task:
    """Fashion-MNIST with :func:`syno.models.fashion.fashion_resnet`, about ten seconds a training on one core.

    Training and validation come from the 60,000 training images and do not overlap; finalists are
    judged on the 10,000 test images. The defaults reach 83 % with the original convolutions; seeds differ
    by about half a point, so that only differences beyond one point tell operators apart. More
    ``examples`` and ``epochs`` tell more.
    """
    from functools import partial

    from syno import data
    from syno.models.fashion import fashion_resnet

    splits = data.fashion_mnist(path)
    rest, validation = splits.train.split(validation_examples)
    return _classification(
        "fashion-mnist",
        partial(fashion_resnet, widths=tuple(widths)),
        rest.subset(examples),
        validation,
        splits.test.subset(test_examples),
        batch=batch,
        epochs=epochs,
        optimizer="adamw",
        learning_rate=3e-3,
        weight_decay=0.01,
        curve_batches=2,
        device=device,
    )


def digits(*, width: int = 8, batch: int = 32, epochs: int = 3, device: str = "cpu") -> Task:
    """scikit-learn's digits with a network of two small stages: a second or two a training."""
    from functools import partial

    from syno import data
    from syno.models.fashion import fashion_resnet

    splits = data.digits()
    train, validation = splits.train.split(300)
    return _classification(
        "digits",
        partial(fashion_resnet, widths=(width, 2 * width), strides=(1, 1)),
        train,
        validation,
        splits.test,
        batch=batch,
        epochs=epochs,
        learning_rate=0.1,
        device=device,
    )


def cifar10(
    path: str | None = None, *, epochs: int = 20, batch: int = 128, device: str = "cpu"
) -> Task:
    """CIFAR-10 with the ResNet-18 for 32x32 images."""
    from syno import data

    return _cifar("cifar10", data.cifar10(path), 10, epochs, batch, device)


def cifar100(
    path: str | None = None, *, epochs: int = 20, batch: int = 128, device: str = "cpu"
) -> Task:
    """CIFAR-100 with the ResNet-18 for 32x32 images."""
    from syno import data

    return _cifar("cifar100", data.cifar100(path), 100, epochs, batch, device)


def _cifar(name: str, splits: Any, classes: int, epochs: int, batch: int, device: str) -> Task:
    from functools import partial

    from syno.models.resnet import cifar_resnet18

    train, validation = splits.train.split(min(5_000, len(splits.train) // 10))
    return _classification(
        name,
        partial(cifar_resnet18, classes=classes),
        train,
        validation,
        splits.test,
        batch=batch,
        epochs=epochs,
        learning_rate=0.2,
        augment="flip+shift",
        device=device,
    )


def image_folder(
    path: str | None = None,
    *,
    size: int = 64,
    channels: int = 3,
    widths: tuple[int, ...] = (32, 64, 128),
    epochs: int = 10,
    batch: int = 32,
    device: str = "cpu",
) -> Task:
    """Images in one sub-directory a class, with a small residual network for as many classes; needs Pillow.

    Training and validation come from the training images and do not overlap; finalists are judged on the test
    images (see :func:`syno.data.image_folder`).
    """
    from functools import partial

    from syno import data
    from syno.models.fashion import fashion_resnet

    splits = data.image_folder(path, size=size, channels=channels)
    if len(splits.train) < 2:
        raise TaskError(
            f"{path} has {len(splits.train)} training image, none is left for validation",
            fix="give more images",
            code="T005",
        )
    train, validation = splits.train.split(max(1, len(splits.train) // 5))
    return _classification(
        "image-folder",
        partial(
            fashion_resnet,
            widths=tuple(widths),
            channels=channels,
            classes=len(splits.train.classes),
        ),
        train,
        validation,
        splits.test,
        batch=batch,
        epochs=epochs,
        optimizer="adamw",
        learning_rate=3e-3,
        weight_decay=0.01,
        augment="flip+shift",
        device=device,
    )


def text(
    path: str | None = None,
    *,
    context: int = 128,
    epochs: int = 1,
    batch: int = 16,
    device: str = "cpu",
) -> Task:
    """Byte-level language modelling of a text file with a small GPT, judged by perplexity."""
    from functools import partial

    from syno import data
    from syno.models.gpt import gpt

    splits = data.text_bytes(path, context=context)
    return Task(
        name="text",
        model=partial(gpt, context=context),
        train=lambda seed: data.BatchLoader(splits.train, batch=batch, seed=seed),
        validation=data.BatchLoader(splits.test, batch=64, shuffle=False),
        optimizer="adamw",
        learning_rate=2e-3,
        weight_decay=0.01,
        gradient_clip=1.0,
        schedule="cosine",
        metric="perplexity",
        class_dimension=-1,
        epochs=epochs,
        device=device,
    )


def _classification(
    name: str,
    model: Callable[[], nn.Module],
    train: Any,
    validation: Any,
    test: Any,
    *,
    batch: int,
    augment: str | None = None,
    **recipe: Any,
) -> Task:
    from syno.data import BatchLoader

    return Task(
        name=name,
        model=model,
        train=lambda seed: BatchLoader(
            train, batch=min(batch, len(train)), seed=seed, drop_last=True, augment=augment
        ),
        validation=BatchLoader(validation, batch=500, shuffle=False),
        test=BatchLoader(test, batch=500, shuffle=False),
        **recipe,
    )


TASKS: dict[str, Callable[..., Task]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "digits": digits,
    "fashion-mnist": fashion_mnist,
    "image-folder": image_folder,
    "text": text,
}


# --- by name ------------------------------------------------------------------------------------------


def resolve(reference: str) -> Callable[..., Any]:
    """What ``"module:name"`` or ``"path/to/file.py:name"`` stands for; built-in tasks by their name.

    Raises:
        TaskError: the form is wrong, the module cannot be imported, or has no such name.
        UnknownName: no colon, and no built-in task of that name.
    """
    module_name, separator, name = now_at(reference).rpartition(":")
    if not separator:
        try:
            return TASKS[reference]
        except KeyError:
            raise unknown_name("task", reference, [*TASKS, "module:function"]) from None
    if not module_name or not name:
        raise TaskError(
            f"{reference!r} is not of the form 'module:function'",
            fix="write for example 'train:make_task'",
            code="T006",
        )
    try:
        if module_name.endswith(".py"):
            module = _import_file(Path(module_name))
        else:
            module = importlib.import_module(module_name)
    except SynoError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(
            f"could not import {reference!r}: {told(error)}",
            fix="run from the project's root, or install it (pip install -e .); functions defined in a "
            "notebook cell can't be sent to workers: put them into a file",
            code="T007",
        ) from error
    try:
        found: Callable[..., Any] = getattr(module, name)
    except AttributeError:
        public = ", ".join(n for n in dir(module) if not n.startswith("_")) or "nothing public"
        raise TaskError(
            f"{module_name!r} has no {name!r}", fix=f"it has {public}", code="T007"
        ) from None
    return found


def _import_file(path: Path) -> Any:
    """Imports a source file under a name of its own, once a process."""
    path = path.resolve()
    if not path.is_file():
        raise TaskError(f"{path} is no file", fix="check the path", code="T007")
    name = f"syno_task_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def load_task(reference: str | Task, options: Mapping[str, Any] | None = None) -> Task:
    """The task a reference stands for; a :class:`Task` is itself.

    Raises:
        TaskError: it cannot be imported, its function fails, or it returns something else.
    """
    if isinstance(reference, Task):
        return reference
    with contextlib.suppress(ImportError):
        import torch  # noqa: F401 (what the function draws is to be the same in every process)
    try:
        with Stream("task", reference):
            function = resolve(reference)
            _check_options(reference, function, options or {})
            task = function(**dict(options or {}))
    except SynoError:
        raise
    except (Exception, SystemExit) as error:
        raise TaskError(
            f"{reference!r} failed: {told(error)}",
            fix=f"call it yourself: {reference.partition(':')[2] or reference}"
            f"({', '.join(f'{k}={v!r}' for k, v in (options or {}).items())})",
            code="T008",
        ) from error
    if not isinstance(task, Task):
        raise TaskError(
            f"{reference!r} returned a {type(task).__name__}, not a syno.Task",
            fix="return syno.Task(model=…, train=…, validation=…)",
            code="T002",
        )
    return task


def _check_options(
    reference: str, function: Callable[..., Any], options: Mapping[str, Any]
) -> None:
    """Raises UnknownName for an option that a task's function does not have, TaskError for a value of another type
    than its annotation asks for; what has no plain annotation takes anything."""
    try:
        parameters = inspect.signature(function).parameters
        hints = typing.get_type_hints(function)
    except Exception:  # whatever evaluating a stranger's annotations raises
        return
    kinds = {p.kind for p in parameters.values()}
    known = [
        name for name, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
    ]
    for name, value in options.items():
        if name not in known and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise unknown_name(f"option of {reference}", name, known)
        if name in hints and not _fits(value, hints[name]):
            wanted = getattr(hints[name], "__name__", "") if type(hints[name]) is type else ""
            raise TaskError(
                f"{name}={shown(value)} of task {reference!r} is a {type(value).__name__}",
                fix=f"give a value of type {wanted or str(hints[name]).replace('typing.', '')}",
                code="T003",
            )


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value of JSON is of a plain type; True where the type is no plain one."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(_fits(value, each) for each in arguments)
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if hint in (str, bool, type(None)):
        return isinstance(value, hint)
    if typing.get_origin(hint) in (Sequence, list) and len(arguments) == 1:
        return isinstance(value, (list, tuple)) and all(_fits(v, arguments[0]) for v in value)
    return True


def check_task(task: Task) -> dict[str, Any]:
    """Makes the model and runs it on one batch with its loss; what it found as plain data.

    Raises:
        TaskError: a part is empty, the model fails on the data, or the loss is not one number.
    """
    import torch

    model = task.make_model(task.seeds[0])
    found: dict[str, Any] = {
        "task": task.name,
        "metric": task.metric_object.name,
        "params": sum(p.numel() for p in model.parameters()),
    }
    for part in ("train", "validation", "test"):
        batches = task.batches(part)
        if iter(batches) is batches:
            raise TaskError(
                f"the {part} part of task {task.name!r} can be read once only: it is a "
                f"{type(batches).__name__}",
                fix="give a list, a DataLoader, or a function of the seed that returns a new iterator",
                code="T005",
            )
        batch = next(iter(batches), None)
        if batch is None:
            raise TaskError(
                f"the {part} part of task {task.name!r} has no batches",
                fix="give a loader with at least one batch that can be iterated over again",
                code="T005",
            )
        inputs, targets = (moved(part, "cpu") for part in batch_of(batch, task.name))
        shapes = [list(t.shape) for t in tensors(inputs)]
        found[part] = shapes[0] if len(shapes) == 1 else shapes
        if part == "validation":
            _check_metric(task, model, inputs, targets)
        if part != "train":
            continue
        try:
            outputs = call(model, inputs)
        except SynoError:
            raise
        except Exception as error:
            shown = "shape " + ", ".join(map(str, shapes)) if shapes else "no tensors"
            raise TaskError(
                f"the model of task {task.name!r} fails on inputs of {shown}: "
                f"{why_not(model, inputs, error)}",
                fix="make model and loader fit together: model(inputs)",
                code="T009",
            ) from error
        try:
            loss = task.loss_function(outputs, targets)
        except SynoError:
            raise
        except Exception as error:
            raise TaskError(
                f"the loss of task {task.name!r} fails on outputs {described(outputs)} and targets "
                f"{described(targets)}: {told(error)}",
                fix="make model, loader and loss fit together: loss(model(inputs), targets)",
                code="T009",
            ) from error
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise TaskError(
                f"the loss of task {task.name!r} is not one number",
                fix="return a scalar tensor, the mean over the batch",
                code="T009",
            )
        found["loss"] = float(loss.detach())
    return found


def _check_metric(task: Task, model: nn.Module, inputs: Any, targets: Any) -> None:
    """Judges one batch. Raises TaskError where the metric cannot."""
    import torch

    metric = task.metric_object
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            values = metric.values(call(model, inputs), targets)
    except SynoError:
        raise
    except Exception as error:
        raise TaskError(
            f"metric {metric.name!r} of task {task.name!r} fails on a validation batch: {error}",
            fix="make model, validation loader and metric fit together: metric.values(model(inputs), targets)",
            code="T009",
        ) from error
    finally:
        model.train(was_training)
    if not isinstance(values, torch.Tensor) or values.ndim != 1 or len(values) > len(targets):
        shape = list(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
        raise TaskError(
            f"metric {metric.name!r} of task {task.name!r} gives {shape} for {len(targets)} examples",
            fix="return one float an example from values(), a tensor [N]",
            code="T009",
        )


def preflight(
    reference: str, options: Mapping[str, Any] | None = None, *, timeout_s: float = 600.0
) -> dict[str, Any]:
    """Loads and checks a task in a fresh process, as workers will; what :func:`check_task` found.

    Raises:
        TaskError: with what the fresh process said, before any search starts.
    """
    command = python_command(
        "from syno.training.tasks import _main; sys.exit(_main(sys.argv[1:]))",
        reference,
        json.dumps(dict(options or {})),
    )
    try:
        done = subprocess.run(
            command,
            env=python_environment(),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TaskError(
            f"task {reference!r} was not ready after {timeout_s:.0f} s in a fresh process",
            fix="make it load less, or give a longer timeout_s",
            code="T010",
        ) from None
    lines = done.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {}
    except json.JSONDecodeError:
        answer = {}
    if done.returncode == 0 and "found" in answer:
        found: dict[str, Any] = answer["found"]
        return found
    error = answer.get("error") or done.stderr.strip()[-500:] or f"exit code {done.returncode}"
    raise TaskError(
        f"worker could not load {reference!r} in a fresh process: {error}",
        fix=answer.get("fix") or "run it alone to see why",
        code=answer.get("code", "T007"),
    )


def _main(arguments: list[str]) -> int:
    try:
        found = check_task(load_task(arguments[0], json.loads(arguments[1])))
    except SynoError as error:
        what = getattr(error, "what", str(error))
        answer = {"error": what, "fix": getattr(error, "fix", ""), "code": error.code}
        print(json.dumps(answer))
        return 1
    print(json.dumps({"found": found}))
    return 0
