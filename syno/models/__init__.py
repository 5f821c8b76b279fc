"""Networks to try things on, by name: ``models.make("fashion_resnet", widths=(32, 64, 128))``.

Importing this package does not import torch; making a model does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syno.errors import TaskError, unknown_name

if TYPE_CHECKING:
    from torch import nn

_FACTORIES: dict[str, str | Callable[..., Any]] = {
    "cifar_resnet18": "syno.models.resnet:cifar_resnet18",
    "densenet121": "syno.models.densenet:densenet121",
    "efficientnet_v2_s": "syno.models.efficientnet:efficientnet_v2_s",
    "fashion_resnet": "syno.models.fashion:fashion_resnet",
    "gpt": "syno.models.gpt:gpt",
    "mobilenet_v2": "syno.models.mobilenet:mobilenet_v2",
    "resnet18": "syno.models.resnet:resnet18",
    "resnet34": "syno.models.resnet:resnet34",
    "resnext29": "syno.models.resnext:resnext29",
}


def names() -> list[str]:
    """The models :func:`make` knows."""
    return sorted(_FACTORIES)


def register(name: str, factory: Callable[..., nn.Module]) -> None:
    """Makes ``factory`` known as ``name``, replacing what had that name."""
    _FACTORIES[name] = factory


def make(name: str, **options: Any) -> nn.Module:
    """A new model with random weights, drawn from torch's global generator.

    Raises:
        UnknownName: no model of that name.
        TaskError: the model does not take these options.
    """
    try:
        factory = _FACTORIES[name]
    except KeyError:
        raise unknown_name("model", name, _FACTORIES) from None
    if isinstance(factory, str):
        module, _, function = factory.partition(":")
        factory = getattr(importlib.import_module(module), function)
    try:
        model: nn.Module = factory(**options)
    except TypeError as error:
        raise TaskError(
            f"model {name!r} cannot be made with {options}: {error}",
            fix="see its docstring for the options it has",
            code="T003",
        ) from None
    return model


__all__ = ["make", "names", "register"]
