"""Networks to try things on, by name: ``models.make("fashion_resnet", widths=(32, 64, 128))``.

Importing this package does not import torch; making a model does.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syno.errors import TaskError, unknown_name

if TYPE_CHECKING:
    from torch import Tensor, nn

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


#: Channels, height and width of one image, or the length of one text, that a model is made for.
_EXAMPLES: dict[str, tuple[int, ...]] = {
    "cifar_resnet18": (3, 32, 32),
    "densenet121": (3, 224, 224),
    "efficientnet_v2_s": (3, 224, 224),
    "fashion_resnet": (1, 28, 28),
    "gpt": (64,),
    "mobilenet_v2": (3, 224, 224),
    "resnet18": (3, 224, 224),
    "resnet34": (3, 224, 224),
    "resnext29": (3, 32, 32),
}


def names() -> list[str]:
    """The models :func:`make` knows."""
    return sorted(_FACTORIES)


def register(
    name: str, factory: Callable[..., nn.Module], example: tuple[int, ...] | None = None
) -> None:
    """Makes ``factory`` known as ``name``, replacing what had that name.

    Args:
        example: the shape of one input without the batch, for :func:`example`; one extent is a text's length.
    """
    _FACTORIES[name] = factory
    _EXAMPLES.pop(name, None)
    if example is not None:
        _EXAMPLES[name] = tuple(example)


def example(name: str, batch: int = 1) -> Tensor:
    """A random input that a model takes: images of normal numbers, or texts of the first 50 tokens.

    Raises:
        UnknownName: no model of that name, or one whose inputs nobody named.
    """
    import torch

    if name not in _EXAMPLES:
        raise unknown_name("model with an example", name, _EXAMPLES)
    shape = (batch, *_EXAMPLES[name])
    return torch.randint(0, 50, shape) if len(shape) == 2 else torch.randn(shape)


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


__all__ = ["example", "make", "names", "register"]
