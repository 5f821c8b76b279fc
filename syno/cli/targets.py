"""Example inputs and arguments of tasks on the command line."""

from __future__ import annotations

import inspect
import json
import re
from typing import TYPE_CHECKING, Any

from syno.errors import TaskError

if TYPE_CHECKING:
    import torch
    from torch import nn

_FORM = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>[0-9]+(?:,[0-9]+)*)(?::(?P<dtype>\w+))?")
_DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool")
#: Of one input: a shape beyond it is a slip.
_MOST_ELEMENTS = 1 << 30


def check_form(text: str) -> re.Match[str]:
    """The parts of such a form. Raises TaskError for another, sizes below 1, and unknown dtypes."""
    form = _FORM.fullmatch(text.replace(" ", ""))
    if form is None or any(int(n[:12]) < 1 for n in form["shape"].split(",")):
        raise TaskError(
            f"[example] '{text[:80]}' is not a shape; write positive integers: '1,3,32,32', and "
            "'1,128:int64' for tokens"
        )
    dtype = form["dtype"]
    if dtype is not None and dtype not in _DTYPES:
        raise TaskError(f"[example] '{dtype[:80]}' is no dtype; there are {', '.join(_DTYPES)}")
    return form


def example_inputs(texts: list[str], model: nn.Module) -> tuple[list[Any], dict[str, Any]]:
    """Random inputs, positional and named, of forms such as '1,3,32,32', '1,128:int64' and 'mask=1,128:bool'.

    Without a dtype: the model's own. Integers are 0 or 1, which every table of embeddings has.

    Raises:
        TaskError: a text has another form.
    """
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for text in texts:
        form = check_form(text)
        made = _tensor(text, form["shape"], form["dtype"], model)
        if form["name"]:
            named[form["name"]] = made
        else:
            positional.append(made)
    return positional, named


def one_example(texts: list[str], model: nn.Module) -> tuple[Any, ...] | dict[str, Any]:
    """The same as one value: positional inputs, or all of them by name where any is given by name.

    Raises:
        TaskError: a text has another form, or the model takes no such inputs.
    """
    positional, named = example_inputs(texts, model)
    if not named:
        return tuple(positional)
    try:
        bound = inspect.signature(model.forward).bind_partial(*positional, **named)
    except (TypeError, ValueError) as error:
        raise TaskError(
            f"[example] {type(model).__name__} does not take these inputs: {error}",
            fix="name them as its forward() does: 'x=1,3,32,32'",
        ) from error
    made: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            made.update(value)
        elif kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY):
            raise TaskError(
                f"[example] {type(model).__name__} takes {name} by position only",
                fix="give all inputs by position: '1,3,32,32'",
            )
        else:
            made[name] = value
    return made


def _tensor(text: str, extents: str, dtype: str | None, model: nn.Module) -> torch.Tensor:
    import math

    import torch

    from syno.support.inputs import dtype_of

    shape = [int(n[:12]) for n in extents.split(",")]
    if min(shape) < 1 or math.prod(shape) > _MOST_ELEMENTS:
        raise TaskError(
            f"[example] '{text[:80]}' is not a shape of 1 to {_MOST_ELEMENTS:,} elements; write "
            "positive integers: '1,3,32,32'"
        )
    kind = getattr(torch, dtype) if dtype else dtype_of(model) or torch.float32
    generator = torch.Generator().manual_seed(0)
    if kind.is_floating_point:
        return torch.randn(shape, generator=generator).to(kind)
    return torch.randint(2, shape, generator=generator).to(kind)


def task_options(texts: list[str]) -> dict[str, Any]:
    """``["epochs=5", "path=photos"]`` as arguments: values as JSON has them, else the text itself.

    Raises:
        TaskError: a text is not of the form ``name=value``, or names an argument twice.
    """
    options: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in options:
            raise TaskError(
                f"{text!r} is not of the form name=value, each name once",
                fix="write for example -O path=photos -O epochs=5",
                code="T006",
            )
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    return options
