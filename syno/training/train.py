"""One training: a model and a task in, a metric with its uncertainty and a learning curve out."""

from __future__ import annotations

import contextlib
import copy
import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from syno.errors import TaskError
from syno.support.inputs import batch_of, call, mapped, moved, size
from syno.support.streams import Stream, reached
from syno.training.checkpoint import Attributes, Checkpoint
from syno.training.computing import computing, placed, scaler_of, widened
from syno.training.metrics import MeanCollector, collect, resolve_metric
from syno.training.task import Task, set_epoch

if TYPE_CHECKING:
    from torch import nn

    from syno.training.task import Batches

_log = logging.getLogger("syno.training.train")


@dataclass(frozen=True)
class CurvePoint:
    """One evaluation: the ``metrics`` by name after ``step`` batches and ``seconds`` of training."""

    step: int
    seconds: float
    metrics: dict[str, float]


@dataclass(frozen=True)
class TrainResult:
    """What a training gave.

    Attributes:
        state: ``"done"``, ``"pruned"`` (a stop rule ended it) or ``"failed"``.
        reason: why, when it is not done.
        metric, higher_is_better, value, stderr: the task's metric on ``part`` and the standard error that comes from the
            number of examples (binomial for accuracy); NaN when there was no evaluation.
        metrics: all metrics of the last evaluation.
        count: examples of that evaluation.
        curve: every evaluation, the last one included.
        steps, total_steps: batches trained, and batches a whole training has.
        seconds: wall time of the training without evaluations; ``examples_per_s`` over that time.
        seed, threads: that the training had; the same of both give the same result.
        examples: what the metric is the mean of, in the order of the last evaluation, little-endian float32; empty
            where it is no mean over examples.
    """

    state: str
    reason: str
    metric: str
    higher_is_better: bool
    value: float
    stderr: float
    metrics: dict[str, float]
    count: int
    part: str
    curve: list[CurvePoint]
    steps: int
    total_steps: int
    seconds: float
    examples_per_s: float
    seed: int
    threads: int
    examples: bytes = b""


class Report(Protocol):
    """Receives every evaluation as it is made."""

    def __call__(self, step: int, **metrics: float) -> None: ...


class StopRule(Protocol):
    """Decides after each evaluation but the last whether a training is worth its time."""

    def __call__(self, step: int, total_steps: int, value: float) -> str | None:
        """A reason to stop, or ``None``."""
        ...


@dataclass(frozen=True)
class CurveFloor:
    """Stops a training whose metric is below a floor at its point of the curve.

    Attributes:
        floors: pairs of (share of the steps done, least value), ascending; the floor between two points
            is that of the earlier one, and before the first there is none.
        higher_is_better: direction of the metric; where less is better a floor is the greatest value.
        why: what the floor stands for, for the reason.
    """

    floors: Sequence[tuple[float, float]]
    higher_is_better: bool = True
    why: str = "the curves of other candidates"

    def __call__(self, step: int, total_steps: int, value: float) -> str | None:
        share = step / total_steps
        reached = [floor for at, floor in self.floors if at <= share + 1e-9]
        if not reached:
            return None
        sign = 1.0 if self.higher_is_better else -1.0
        if sign * value < sign * reached[-1]:
            relation = "below" if self.higher_is_better else "above"
            return f"{value:.4g} after {share:.0%} of the steps, {relation} {reached[-1]:.4g}: {self.why}"
        return None


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model over some batches.

    Attributes:
        value, stderr: the task's metric and its standard error.
        metrics: that one and the loss, by name.
        count: examples that were judged.
        examples: what the metric is the mean of, in order, little-endian float32; empty where it is no mean over examples.
    """

    value: float
    stderr: float
    metrics: dict[str, float] = field(default_factory=dict)
    count: int = 0
    examples: bytes = b""


def evaluate(model: nn.Module, task: Task, batches: Batches, *, limit: int = 0) -> Evaluation:
    """The task's metric and the loss of a model over some batches, in evaluation mode, without gradients.

    Args:
        model: on the task's device; its mode is left as it was.
        task: whose metric, loss, device and autocast count.
        batches: pairs of inputs and targets.
        limit: only the first so many; 0: all.
    Raises:
        TaskError: there is no batch.
    """
    import torch

    metric = task.metric_object
    main = collect(metric)
    collectors = {metric.name: main}
    if isinstance(task.loss, str):
        loss = resolve_metric("loss", task.loss, task.class_dimension)
        collectors.setdefault(loss.name, collect(loss))
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for index, batch in enumerate(batches):
                if limit and index >= limit:
                    break
                inputs, targets = batch_of(batch, task.name)
                with computing(task):
                    outputs = call(model, placed(inputs, task))
                if task.autocast is not None:
                    outputs = mapped(outputs, widened)
                wanted = moved(targets, task.device)
                for collector in collectors.values():
                    collector.add(outputs, wanted)
    finally:
        model.train(was_training)
    if not main.count:
        raise TaskError(
            f"task {task.name!r} has nothing to evaluate on",
            fix="give a validation loader with at least one batch",
            code="T005",
        )
    finished = {name: collector.finish() for name, collector in collectors.items()}
    value, stderr = finished[metric.name]
    examples = main.examples if isinstance(main, MeanCollector) else b""
    return Evaluation(
        value, stderr, {name: v for name, (v, _) in finished.items()}, main.count, examples
    )


def judge(
    task: Task, model: nn.Module, part: str, *, seed: int = 0, threads: int | None = 1
) -> TrainResult:
    """The task's metric of ``model`` as it is, as the end of a training is judged; the model is not changed.

    Args:
        task: whose metric, data and device count.
        model: a copy of it is judged, on the task's device.
        part: of the data: ``"train"``, ``"validation"`` or ``"test"``.
        seed: of the order of the batches, where they are a function of it.
        threads: torch threads meanwhile; ``None`` leaves them as they are.
    Raises:
        TaskError: there is nothing to evaluate on, or no device as the task names.
        UnknownName: another part.
    """
    task = task.here()
    with torch_threads(threads) as used:
        own = copy.deepcopy(model).to(device=task.device)
        with _evaluation_stream(task, own, part):
            batches = task.batches(part, seed)
            set_epoch(batches, 0)
            found = evaluate(own, task, batches)
    finite = math.isfinite(found.value)
    metric = task.metric_object
    return TrainResult(
        state="done" if finite else "failed",
        reason="" if finite else f"{metric.name} is {found.value}",
        metric=metric.name,
        higher_is_better=metric.higher_is_better,
        value=found.value,
        stderr=found.stderr,
        metrics=found.metrics,
        count=found.count,
        part=part,
        curve=[],
        steps=0,
        total_steps=0,
        seconds=0.0,
        examples_per_s=0.0,
        seed=seed,
        threads=used,
        examples=found.examples,
    )


def _evaluation_stream(task: Task, model: nn.Module, part: str) -> Stream:
    # The same for every training and point of the curve, so that they are judged alike.
    return Stream("evaluation", part, of=[task.loader(part), model], device=task.device)


@contextlib.contextmanager
def torch_threads(threads: int | None) -> Iterator[int]:
    """A fixed number of torch threads for a block: results depend on it, so it is part of a training.

    Args:
        threads: how many; ``None`` leaves them as they are.
    Returns:
        How many there are in the block.
    """
    import torch

    before = torch.get_num_threads()
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def train(
    task: Task,
    model: nn.Module | None = None,
    *,
    seed: int = 0,
    part: str = "validation",
    threads: int | None = 1,
    time_limit_s: float | None = None,
    report: Report | None = None,
    stop: StopRule | None = None,
    share: float = 1.0,
    checkpoint: Checkpoint | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> TrainResult:
    """Trains a model in place by a task's recipe and judges it.

    The same task, model, seed and threads give the same result, whatever ran before in the process; its
    random generators are left as they were (see :mod:`syno.support.streams`). A loss that is not finite and a time
    limit are outcomes (``state="failed"``), not exceptions.

    Args:
        task: data, loss, optimiser, schedule, length and metric.
        model: is changed; default the task's own, its weights drawn with ``seed``.
        seed: of the data order and of everything random in the model.
        part: what the result is judged on: ``"validation"`` or ``"test"``.
        threads: torch threads of this training; ``None`` leaves them as they are.
        time_limit_s: wall time after which the training ends as failed.
        report: called after every evaluation with the step and the metrics.
        stop: asked after every evaluation but the last.
        share: of the task's steps that are trained, with the whole learning-rate schedule over them; at least one.
        checkpoint: where a long training is written down after each epoch, and from where it goes on, to the same digits.
        clock: seconds of a clock that only goes forward, which limits and rates are counted by.

    Raises:
        TaskError: the training has no batches, or no length, or there is no device as the task names.
    """
    import torch

    task = task.here()
    with torch_threads(threads) as used:
        if model is None:
            model = task.make_model(seed)
        model.to(device=task.device)
        if task.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with Stream("loader", seed, of=[task.train], device=task.device):
            batches = task.batches("train", seed)
        drawing = [model, task.train, batches]
        with Stream("training", seed, of=drawing, device=task.device) as stream:
            run = _Run(task, model, batches, seed, part, used, time_limit_s, report, stop, clock)
            run.total = max(1, round(share * run.total))
            if checkpoint is not None and stream.restorable:
                run.keeper = _Keeper(checkpoint, run, stream, Attributes(reached(*drawing)))
            return run.run()


_END: Any = object()


class _Run:
    def __init__(
        self,
        task: Task,
        model: nn.Module,
        batches: Batches,
        seed: int,
        part: str,
        threads: int,
        time_limit_s: float | None,
        report: Report | None,
        stop: StopRule | None,
        clock: Callable[[], float],
    ) -> None:
        self.task, self.model, self.seed, self.part, self.threads = task, model, seed, part, threads
        self.time_limit_s, self.report, self.stop, self.clock = time_limit_s, report, stop, clock
        # A stream of their own: order and augmentation are the same whatever the model draws in between.
        self.batches, self.data = batches, Stream("batches", seed, device=task.device, inner=True)
        self.total = task.steps or task.epochs * self._length()
        if self.total < 1:
            raise TaskError(
                f"the training part of task {task.name!r} has no batches",
                fix="give a loader with at least one batch",
                code="T005",
            )
        self.curve: list[CurvePoint] = []
        self.last: Evaluation | None = None
        self.step = 0
        self.epoch = 0
        self.examples = 0
        self.training_s = 0.0
        self.keeper: _Keeper | None = None
        self.scaler = scaler_of(task)

    def _length(self) -> int:
        try:
            return len(self.batches)  # type: ignore[arg-type]
        except TypeError:
            raise TaskError(
                f"the training loader of task {self.task.name!r} has no length",
                fix="give it __len__, or give the task steps=",
                code="T005",
            ) from None

    def run(self) -> TrainResult:
        task, model = self.task, self.model
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            raise TaskError(
                f"the model of task {task.name!r} has no trainable parameters",
                fix="give a model with parameters that require a gradient",
                code="T002",
            )
        optimizer = task.make_optimizer(parameters)
        schedule = task.make_schedule(optimizer, self.total)
        loss_function = task.loss_function
        marks = {
            round(self.total * (i + 1) / (task.evaluations + 1)) for i in range(task.evaluations)
        } - {0, self.total}
        if self.keeper is not None:
            self.keeper.resume(optimizer, schedule)
        started = self.clock()
        model.train()
        for inputs, targets in self._endless():
            began = self.clock()
            optimizer.zero_grad(set_to_none=True)
            with computing(task):
                outputs = call(model, placed(inputs, task))
                loss = loss_function(outputs, moved(targets, task.device))
            number = float(loss.detach())
            if not math.isfinite(number):
                return self._result(
                    "failed", f"loss is {number} at step {self.step} of {self.total}"
                )
            self.scaler.scale(loss).backward()
            if task.gradient_clip > 0:
                self.scaler.unscale_(optimizer)
            self._clip(parameters)
            self.scaler.step(optimizer)
            self.scaler.update()
            schedule.step()
            self.step += 1
            self.examples += size(inputs)
            self.training_s += self.clock() - began
            if self.time_limit_s is not None and self.clock() - started > self.time_limit_s:
                return self._result(
                    "failed",
                    f"time limit of {self.time_limit_s:g} s reached at step {self.step} of {self.total}",
                )
            if self.step in marks:
                value = self._evaluate("validation", task.curve_batches)
                if not math.isfinite(value):
                    return self._result("failed", self._not_finite(value))
                reason = self.stop and self.stop(self.step, self.total, value)
                if reason:
                    return self._result("pruned", reason)
            if self.step == self.total:
                break
        value = self._evaluate(self.part, 0)
        if not math.isfinite(value):
            return self._result("failed", self._not_finite(value))
        return self._result("done", "")

    def _not_finite(self, value: float) -> str:
        return f"{self.task.metric_object.name} is {value} after step {self.step} of {self.total}"

    def _clip(self, parameters: list[Any]) -> None:
        if self.task.gradient_clip > 0:
            import torch

            torch.nn.utils.clip_grad_norm_(parameters, self.task.gradient_clip)

    def _endless(self) -> Iterator[tuple[Any, Any]]:
        for epoch in itertools.count(self.epoch):
            self.epoch, seen = epoch, 0
            with self.data:
                set_epoch(self.batches, epoch)
                iterator = iter(self.batches)
            while True:
                with self.data:
                    batch = next(iterator, _END)
                if batch is _END:
                    break
                seen += 1
                yield batch_of(batch, self.task.name)
            if not seen:
                raise TaskError(
                    f"the training loader of task {self.task.name!r} ran empty at step {self.step}",
                    fix="give a loader that can be iterated over again, or a function of the seed",
                    code="T005",
                )
            if self.keeper is not None:
                self.keeper.keep()

    def _evaluate(self, part: str, limit: int) -> float:
        with _evaluation_stream(self.task, self.model, part):
            batches = self.task.batches(part, self.seed)
            set_epoch(batches, 0)
            self.last = evaluate(self.model, self.task, batches, limit=limit)
            point = CurvePoint(self.step, self.training_s, self.last.metrics)
            self.curve.append(point)
            if self.report is not None:
                self.report(self.step, **self.last.metrics)
        return self.last.value

    def _result(self, state: str, reason: str) -> TrainResult:
        last = self.last or Evaluation(math.nan, math.nan)
        return TrainResult(
            state=state,
            reason=reason,
            metric=self.task.metric_object.name,
            higher_is_better=self.task.metric_object.higher_is_better,
            value=last.value,
            stderr=last.stderr,
            metrics=last.metrics,
            count=last.count,
            part=self.part,
            curve=self.curve,
            steps=self.step,
            total_steps=self.total,
            seconds=self.training_s,
            examples_per_s=self.examples / self.training_s if self.training_s > 0 else 0.0,
            seed=self.seed,
            threads=self.threads,
            examples=last.examples,
        )


class _Keeper:
    """Writes a training down between two epochs, and takes it up from there."""

    def __init__(
        self, checkpoint: Checkpoint, run: _Run, stream: Stream, attributes: Attributes
    ) -> None:
        self.checkpoint, self.run, self.stream, self.attributes = (
            checkpoint,
            run,
            stream,
            attributes,
        )
        self.parts: tuple[Any, Any] = (None, None)
        self.since, self.steps = run.clock(), 0

    def resume(self, optimizer: Any, schedule: Any) -> None:
        """Brings everything to where it was written down, if it was."""
        self.parts = (optimizer, schedule)
        if not all(hasattr(part, "state_dict") for part in self.parts):
            self.checkpoint.broken = True  # they are of a kind that cannot be written down
            return
        state = self.checkpoint.read()
        if state is not None:
            before = copy.deepcopy(self._state())
            try:
                self._restore(state)
            except (KeyError, ValueError, TypeError, RuntimeError, AttributeError) as error:
                _log.warning("a checkpoint is of another training, which begins again: %s", error)
                self._restore(before)
        self.since, self.steps = self.run.clock(), self.run.step

    def keep(self) -> None:
        """After an epoch: writes the training down if it is a long one."""
        done = self.run.step - self.steps
        spent = self.run.clock() - self.since
        whole = spent * self.run.total / max(1, done)
        if self.checkpoint.broken or self.run.step >= self.run.total:
            return
        if whole < self.checkpoint.long_s:
            return
        self.checkpoint.write(self._state())

    def _state(self) -> dict[str, Any]:
        run, (optimizer, schedule) = self.run, self.parts
        return {
            "step": run.step,
            "epoch": run.epoch + (run.step > 0),
            "examples": run.examples,
            "training_s": run.training_s,
            "curve": [(point.step, point.seconds, point.metrics) for point in run.curve],
            "model": dict(run.model.state_dict()),
            "buffers": dict(run.model.named_buffers()),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "scaler": run.scaler.state_dict(),
            "attributes": self.attributes.state(),
            "stream": self.stream.states(inside=True),
            "data": self.run.data.states(inside=False) if run.data.entered else None,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        run, (optimizer, schedule) = self.run, self.parts
        run.model.load_state_dict(state["model"])
        kept = dict(run.model.named_buffers())
        for name, value in state["buffers"].items():
            kept[name].copy_(value)
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        run.scaler.load_state_dict(state.get("scaler", {}))
        self.attributes.restore(state["attributes"])
        run.step, run.epoch = int(state["step"]), int(state["epoch"])
        run.examples, run.training_s = int(state["examples"]), float(state["training_s"])
        run.curve = [CurvePoint(*point) for point in state["curve"]]
        if state["data"] is not None:
            run.data.restore(state["data"], inside=False)
        self.stream.restore(state["stream"], inside=True)


__all__ = [
    "CurveFloor",
    "CurvePoint",
    "Evaluation",
    "Report",
    "StopRule",
    "TrainResult",
    "evaluate",
    "judge",
    "torch_threads",
    "train",
]
