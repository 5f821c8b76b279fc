"""A task is tried before any search starts: its model, data, loss and metric on a batch, here or in a fresh process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syno.errors import SynoError, TaskError, told
from syno.support.fresh import python_command, python_environment
from syno.support.inputs import batch_of, call, described, moved, tensors, why_not
from syno.training.task import Task
from syno.training.tasks import load_task

if TYPE_CHECKING:
    from torch import nn


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
        "from syno.training.checking import _main; sys.exit(_main(sys.argv[1:]))",
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
