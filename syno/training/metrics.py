"""Losses and metrics by name, and where classes lie in a network's outputs.

Classes may lie in dimension 1, as PyTorch has it (``[N, C]``, images ``[N, C, H, W]`` with targets
``[N, H, W]``), or in the last, as sequence models have it (``[N, T, C]`` with targets ``[N, T]``). The shapes
decide; where both readings fit, ``class_dimension`` must.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from syno.errors import TaskError

if TYPE_CHECKING:
    from torch import Tensor

    Loss = Callable[[Tensor, Tensor], Tensor]

#: Targets of this class are neither trained on nor judged, as in ``torch.nn.functional.cross_entropy``.
IGNORED = -100


class Metric(Protocol):
    """How an evaluation is judged. ``values`` are per example, so that their spread gives an error."""

    name: str
    higher_is_better: bool

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """What each example is worth.

        Args:
            outputs: the model's, ``[N, ...]``.
            targets: of the same examples, as the data give them.
        Returns:
            One float an example, ``[N]``; fewer where an example has nothing to judge.
        """
        ...

    def finish(self, mean: float, variance: float, count: int) -> tuple[float, float]:
        """The metric and its standard error from what :meth:`values` gave over a whole evaluation.

        Args:
            mean: of the values.
            variance: of the values, about their mean.
            count: how many there were, at least 1.
        """
        ...


class Collector(Protocol):
    """What an evaluation gathers of one metric, batch by batch."""

    @property
    def count(self) -> int:
        """How many examples were judged."""
        ...

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Takes a batch.

        Args:
            outputs, targets: as for :meth:`Metric.values`.
        """
        ...

    def finish(self) -> tuple[float, float]:
        """The metric and its standard error over all that was added; NaN where a value was not finite."""
        ...


@runtime_checkable
class Collected(Protocol):
    """A metric that is no mean over examples and gathers what it needs itself."""

    def collector(self) -> Collector:
        """A new, empty one."""
        ...


#: Of an evaluation with more examples, the values of the single ones are not kept.
MOST_EXAMPLES = 1 << 21


class MeanCollector:
    """Gathers the mean of a metric's per-example values, their variance, and the values.

    Args:
        metric: whose ``values`` are gathered.
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.count = 0
        self.total = 0.0
        self.squares = 0.0
        self._parts: list[bytes] = []

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        """Takes a batch, as :meth:`Collector.add`."""
        doubles = self.metric.values(outputs, targets).double()
        self.count += doubles.numel()
        self.total += float(doubles.sum())
        self.squares += float((doubles * doubles).sum())
        if self.count <= MOST_EXAMPLES:
            self._parts.append(doubles.reshape(-1).cpu().numpy().astype("<f4").tobytes())

    @property
    def examples(self) -> bytes:
        """The value of each example in order, little-endian float32; empty where there are too many."""
        return b"".join(self._parts) if self.count <= MOST_EXAMPLES else b""

    def finish(self) -> tuple[float, float]:
        """The metric and its standard error."""
        mean = self.total / self.count
        if not math.isfinite(mean):
            return math.nan, math.nan
        variance = max(0.0, self.squares / self.count - mean * mean)
        return self.metric.finish(mean, variance, self.count)


def collect(metric: Metric) -> Collector:
    """What gathers ``metric`` over an evaluation."""
    return metric.collector() if isinstance(metric, Collected) else MeanCollector(metric)


# --- classes ------------------------------------------------------------------------------------------


def find_class_dimension(
    outputs: Sequence[int], targets: Sequence[int], given: int | None = None
) -> int:
    """The dimension of ``outputs`` that holds the classes: without it the shape is that of ``targets``.

    Args:
        outputs: shape of the logits, batch first.
        targets: shape of the class numbers.
        given: the answer, checked; negative counts from the end.

    Raises:
        TaskError: no dimension fits, two do and none is given, or there is a single class.
    """
    shape, wanted = tuple(outputs), tuple(targets)
    both = f"outputs of shape {list(shape)} and targets of shape {list(wanted)}"
    fitting = [
        d
        for d in sorted({1, len(shape) - 1})
        if 0 < d < len(shape) and shape[:d] + shape[d + 1 :] == wanted
    ]
    if given is not None:
        dimension = given + len(shape) if given < 0 else given
        if not 0 < dimension < len(shape) or shape[:dimension] + shape[dimension + 1 :] != wanted:
            raise TaskError(
                f"class_dimension={given} does not fit {both}",
                fix="without the dimension of the classes, outputs must have the targets' shape",
                code="T009",
            )
    elif not fitting:
        raise TaskError(
            f"{both} are no logits and class numbers",
            fix="give outputs [N, C] for targets [N], [N, C, H, W] for [N, H, W], or [N, T, C] for [N, T]; "
            "for numbers to be met, loss='mse'; else a loss function and a Metric of your own",
            code="T009",
        )
    elif len(fitting) > 1:
        raise TaskError(
            f"{both} can be read with the classes in dimension 1 or in the last",
            fix="say which in the task: class_dimension=1 (images) or class_dimension=-1 (sequences)",
            code="T009",
        )
    else:
        dimension = fitting[0]
    if shape[dimension] == 1:
        raise TaskError(
            f"{both} leave one class to choose from, so that every answer is right",
            fix="give two outputs for a yes or no, or a loss function and a Metric of your own",
            code="T009",
        )
    return dimension


def classes_second(
    outputs: Tensor, targets: Tensor, given: int | None = None
) -> tuple[Tensor, Tensor]:
    """Outputs with the classes in dimension 1, and targets as 64-bit class numbers.

    Args:
        outputs: logits, batch first, the classes in dimension 1 or in the last.
        targets: class numbers, in the shape of ``outputs`` without its classes.
        given: the dimension of the classes; default what the shapes say, see :func:`find_class_dimension`.
    Raises:
        TaskError: see :func:`find_class_dimension`; or the targets are no integers.
    """
    if targets.is_floating_point() or targets.is_complex():
        raise TaskError(
            f"targets of dtype {str(targets.dtype).removeprefix('torch.')} are no class numbers",
            fix="give integers; for numbers to be met, loss='mse' or a Metric such as metric='mae'; for "
            "probabilities, a loss function and a Metric of your own",
            code="T009",
        )
    dimension = find_class_dimension(outputs.shape, targets.shape, given)
    return outputs.movedim(dimension, 1), targets.long()


class _Classes:
    """A metric of class numbers."""

    targets = "classes"

    def __init__(self, class_dimension: int | None = None) -> None:
        self.class_dimension = class_dimension


class Accuracy(_Classes):
    """Share of right answers, in 0 … 1; the error is the binomial one.

    Args:
        class_dimension: of the outputs; default what the shapes say.
    """

    name = "accuracy"
    higher_is_better = True

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The share of each example's answers that are right, ``[N]``; arguments as :meth:`Metric.values` has them."""
        logits, classes = classes_second(outputs, targets, self.class_dimension)
        return _per_example((logits.argmax(1) == classes).float(), classes)

    def finish(self, mean: float, variance: float, count: int) -> tuple[float, float]:
        """The accuracy and its binomial error, arguments as :meth:`Metric.finish` has them."""
        # One pseudo-example either way keeps the error above zero where every answer was right.
        adjusted = (mean * count + 1) / (count + 2)
        return mean, math.sqrt(adjusted * (1 - adjusted) / count)


class CrossEntropy(_Classes):
    """Mean negative log likelihood, in nats.

    Args:
        class_dimension: of the outputs; default what the shapes say.
    """

    name = "loss"
    higher_is_better = False

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over each example's answers, ``[N]``; arguments as :meth:`Metric.values` has them."""
        from torch.nn import functional

        logits, classes = classes_second(outputs, targets, self.class_dimension)
        return _per_example(functional.cross_entropy(logits, classes, reduction="none"), classes)

    def finish(self, mean: float, variance: float, count: int) -> tuple[float, float]:
        """The mean and its standard error, arguments as :meth:`Metric.finish` has them."""
        return mean, math.sqrt(variance / count)


class Perplexity(CrossEntropy):
    """``exp`` of the mean negative log likelihood of a token.

    Args:
        class_dimension: of the outputs; default what the shapes say.
    """

    name = "perplexity"

    def finish(self, mean: float, variance: float, count: int) -> tuple[float, float]:
        """The perplexity and its standard error, arguments as :meth:`Metric.finish` has them."""
        value = math.exp(min(mean, 700.0))
        return value, value * math.sqrt(variance / count)


def _per_example(values: Tensor, classes: Tensor) -> Tensor:
    """Means over the counted answers of each example; without the examples that have none."""
    values, counted = values.reshape(len(values), -1), (classes != IGNORED).reshape(len(values), -1)
    number = counted.sum(1)
    means: Tensor = (values * counted).sum(1) / number.clamp(min=1)
    return means[number > 0]


# --- numbers ------------------------------------------------------------------------------------------


def same_shape(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the targets' shape and the outputs' dtype; only dimensions of size 1 may differ.

    Args:
        outputs: numbers of the model, batch first.
        targets: those to be met, as many in the same order.
    Raises:
        TaskError: other shapes, which PyTorch would broadcast into every pair of examples.
    """
    if [n for n in outputs.shape if n != 1] != [n for n in targets.shape if n != 1]:
        raise TaskError(
            f"outputs of shape {list(outputs.shape)} are not numbers for targets of shape "
            f"{list(targets.shape)}",
            fix="give both the same shape, batch first",
            code="T009",
        )
    return outputs.reshape(targets.shape), targets.to(outputs.dtype)


class _Numbers:
    """A metric of numbers that are to be met."""

    targets = "numbers"
    higher_is_better = False

    def finish(self, mean: float, variance: float, count: int) -> tuple[float, float]:
        """The mean and its standard error, arguments as :meth:`Metric.finish` has them."""
        return mean, math.sqrt(variance / count)


class MeanSquaredError(_Numbers):
    """Mean squared difference, in the targets' unit squared."""

    name = "mse"

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over each example's numbers, ``[N]``; arguments as :meth:`Metric.values` has them."""
        given, wanted = same_shape(outputs, targets)
        return ((given - wanted) ** 2).reshape(len(wanted), -1).mean(1)


class MeanAbsoluteError(_Numbers):
    """Mean absolute difference, in the targets' unit."""

    name = "mae"

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean over each example's numbers, ``[N]``; arguments as :meth:`Metric.values` has them."""
        given, wanted = same_shape(outputs, targets)
        return (given - wanted).abs().reshape(len(wanted), -1).mean(1)


class R2(_Numbers):
    """Coefficient of determination: 1 for all targets met, 0 for what their mean would do.

    With several numbers an example, each is compared with its own mean over the examples; the sums of squares are
    then added. The error is that of the squared differences: the targets are the same for every model judged.
    """

    name = "r2"
    higher_is_better = True

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The squared difference of each example, ``[N]``; arguments as :meth:`Metric.values` has them."""
        given, wanted = same_shape(outputs, targets)
        return ((given - wanted) ** 2).reshape(len(wanted), -1).sum(1)

    def collector(self) -> Collector:
        """Sums of squares of the differences and of the targets about their means."""
        return _R2Collector(self)


class _R2Collector:
    def __init__(self, metric: R2) -> None:
        self.errors = MeanCollector(metric)
        self.mean: Tensor | None = None
        self.spread = 0.0

    @property
    def count(self) -> int:
        return self.errors.count

    def add(self, outputs: Tensor, targets: Tensor) -> None:
        before = self.count
        self.errors.add(outputs, targets)
        rows = targets.double().reshape(len(targets), -1)
        mean = rows.mean(0)
        self.spread += float(((rows - mean) ** 2).sum())
        if self.mean is None:
            self.mean = mean
            return
        # Two groups' squares about the common mean (Chan, Golub, LeVeque, 1979).
        step = mean - self.mean
        self.spread += float((step**2).sum()) * before * len(rows) / self.count
        self.mean = self.mean + step * (len(rows) / self.count)

    def finish(self) -> tuple[float, float]:
        error, stderr = self.errors.finish()
        variance = self.spread / self.count
        if not variance > 0:  # all targets equal: nothing to explain
            return math.nan, math.nan
        return 1 - error / variance, stderr / variance


class MeanLoss:
    """The mean of a loss function, asked example by example.

    Args:
        function: of outputs ``[1, ...]`` and their targets.
    """

    name = "loss"
    higher_is_better = False

    def __init__(self, function: Loss) -> None:
        self.function = function

    def values(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example, ``[N]``; arguments as :meth:`Metric.values` has them."""
        import torch

        pairs = ((outputs[i : i + 1], targets[i : i + 1]) for i in range(len(outputs)))
        return torch.stack([self.function(given, wanted).reshape(()) for given, wanted in pairs])

    def finish(self, mean: float, variance: float, count: int) -> tuple[float, float]:
        """The mean and its standard error, arguments as :meth:`Metric.finish` has them."""
        return mean, math.sqrt(variance / count)


METRICS: dict[str, Callable[[], Metric]] = {
    "accuracy": Accuracy,
    "loss": CrossEntropy,
    "mae": MeanAbsoluteError,
    "mse": MeanSquaredError,
    "perplexity": Perplexity,
    "r2": R2,
}


# --- losses -------------------------------------------------------------------------------------------


def cross_entropy(outputs: Tensor, targets: Tensor, class_dimension: int | None = None) -> Tensor:
    """Mean cross-entropy of logits and class numbers, in nats.

    Args:
        outputs: logits, batch first.
        targets: class numbers; those that are -100 do not count.
        class_dimension: of the outputs; default what the shapes say.
    Raises:
        TaskError: the shapes are no logits and class numbers, or can be read in two ways.
    """
    from torch.nn import functional

    return functional.cross_entropy(
        *classes_second(outputs, targets, class_dimension), ignore_index=IGNORED
    )


def mean_squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared difference over all numbers.

    Args:
        outputs, targets: as :func:`same_shape` takes them.
    Raises:
        TaskError: the shapes differ.
    """
    from torch.nn import functional

    return functional.mse_loss(*same_shape(outputs, targets))


def mean_absolute_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean absolute difference over all numbers.

    Args:
        outputs, targets: as :func:`same_shape` takes them.
    Raises:
        TaskError: the shapes differ.
    """
    from torch.nn import functional

    return functional.l1_loss(*same_shape(outputs, targets))


LOSSES: dict[str, Loss] = {
    "cross_entropy": cross_entropy,
    "mae": mean_absolute_error,
    "mse": mean_squared_error,
}

#: What a loss by name is judged by where a task names no metric; other losses are judged by accuracy.
METRIC_OF_LOSS: Mapping[str, str] = {"cross_entropy": "accuracy", "mae": "mae", "mse": "mse"}
#: A loss by name as a metric.
LOSS_AS_METRIC: Mapping[str, str] = {"cross_entropy": "loss", "mae": "mae", "mse": "mse"}


def resolve_metric(
    metric: str | Metric | None, loss: str | Loss, class_dimension: int | None = None
) -> Metric:
    """The metric of a task: what it names, or what follows from its loss.

    ``"loss"`` is the mean of the task's own loss. A loss *function* without a metric is judged by accuracy, which
    refuses targets that are no class numbers.

    Args:
        metric: a name of ``METRICS``, ``"loss"``, a metric, or None: what follows from the loss.
        loss: a name of ``LOSSES``, or a function of outputs and targets.
        class_dimension: of the outputs, for a metric of classes by name; default what the shapes say.
    Raises:
        TaskError: the loss is one of classes and the metric one of numbers, or the other way round.
    """
    if metric == "loss" and not isinstance(loss, str):
        return MeanLoss(loss)
    known = loss if isinstance(loss, str) else "cross_entropy"
    if metric is None:
        metric = METRIC_OF_LOSS[known]
    elif metric == "loss":
        metric = LOSS_AS_METRIC[known]
    made = METRICS[metric]() if isinstance(metric, str) else metric
    judged = getattr(made, "targets", None)
    if isinstance(loss, str) and judged is not None:
        trained = METRICS[METRIC_OF_LOSS[loss]]().targets  # type: ignore[attr-defined]
        if judged != trained:
            raise TaskError(
                f"loss={loss!r} is one of {trained}, metric={made.name!r} one of {judged}",
                fix=f"leave metric out: it is {METRIC_OF_LOSS[loss]!r} then",
                code="T003",
            )
    if isinstance(metric, str) and isinstance(made, _Classes):
        made.class_dimension = class_dimension
    return made
