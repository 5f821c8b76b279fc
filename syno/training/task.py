"""What is trained, on what, and how it is judged: every field of a :class:`Task` is the user's to replace."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syno.errors import SynoError, TaskError, shown, told, unknown_name
from syno.support.arguments import check_fields, checked
from syno.support.inputs import batch_of, first
from syno.support.streams import Stream
from syno.training.metrics import LOSSES, METRICS, Metric, cross_entropy, resolve_metric
from syno.training.optimizers import OPTIMIZERS, SCHEDULES

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
