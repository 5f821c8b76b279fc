"""Tasks by name, and those that syno has.

A task is named in three ways: a built-in (``"fashion-mnist"``), ``"module:function"``, or
``"path/to/file.py:function"``; the function returns a :class:`Task`. Worker processes build theirs from
that name, so nothing has to be sent to them.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import SynoError, TaskError, shown, told, unknown_name
from syno.support.moved import now_at
from syno.support.streams import Stream
from syno.training.task import Task

if TYPE_CHECKING:
    from torch import nn


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
