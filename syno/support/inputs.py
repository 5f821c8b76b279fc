"""What a model is called with: a tensor, several in a tuple or list, or named ones in a dictionary.

A tuple or list is spread over the model's parameters where it has that many, else given as it is; a
dictionary is given by name where the model has such parameters, else as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from syno.errors import ShapeError, TaskError, told

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

T = TypeVar("T")

#: What a tensor can be made of where NumPy has the dtype and torch has it, too.
_OF_NUMPY = "biuf"


def as_inputs(value: Any, what: str = "example") -> Any:
    """The inputs of one call, NumPy arrays as tensors of the same memory.

    Raises:
        ShapeError: there is no tensor in it; a shape was given where a tensor is wanted.
    """
    import torch

    if _is_shape(value):
        shape = ", ".join(map(str, value))
        raise ShapeError(
            f"[{what}] ({shape}) is a shape; the model runs on values: "
            f"pass torch.randn({shape}), or torch.zeros({shape}, dtype=torch.int64) for tokens"
        )
    made = mapped(value, lambda leaf: _tensor_of(leaf, what))
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves(made)):
        raise ShapeError(
            f"[{what}] {_short(value)} holds no tensor; pass a tensor such as torch.randn(1, 3, 32, 32), "
            "a tuple of several, or a dictionary of named ones"
        )
    return made


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, (tuple, list))
        and len(value) > 0
        and all(isinstance(n, int) and not isinstance(n, bool) for n in value)
    )


def _short(value: Any) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text[:60]}{'…' if len(text) > 60 else ''}"


def _tensor_of(leaf: Any, what: str) -> Any:
    import torch

    if isinstance(leaf, np.generic):
        leaf = np.asarray(leaf)
    if not isinstance(leaf, np.ndarray):
        return leaf
    if leaf.dtype.kind not in _OF_NUMPY:
        raise ShapeError(
            f"[{what}] an array of dtype {leaf.dtype} is no tensor: pass numbers, such as "
            "array.astype('float32')"
        )
    if not leaf.flags.writeable or any(stride < 0 for stride in leaf.strides):
        leaf = leaf.copy()  # torch knows neither
    return torch.from_numpy(leaf)


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same structure of tuples, lists and dictionaries with every leaf replaced."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(each, function) for each in value))
    if isinstance(value, (tuple, list)):
        made = [mapped(each, function) for each in value]
        return made if isinstance(value, list) else tuple(made)
    if isinstance(value, Mapping):
        return {key: mapped(each, function) for key, each in value.items()}
    return function(value)


def leaves(value: Any) -> Iterator[Any]:
    """What tuples, lists and dictionaries hold, in order."""
    if isinstance(value, (tuple, list)):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from leaves(each)
    else:
        yield value


def tensors(value: Any) -> list[Tensor]:
    """The tensors among the leaves."""
    import torch

    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def described(value: Any) -> str:
    """Dtypes and shapes for people: ``(float32 [1, 3, 8, 8], int64 [1, 5])``."""
    import torch

    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {described(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return "(" + ", ".join(map(described, value)) + ")"
    return _short(value)


def moved(value: Any, device: torch.device | str) -> Any:
    """Inputs or targets as tensors on a device; NumPy arrays become tensors."""
    import torch

    def place(leaf: Any) -> Any:
        made = _tensor_of(leaf, "batch")
        return made.to(device) if isinstance(made, torch.Tensor) else made

    return mapped(value, place)


def size(value: Any) -> int:
    """Examples in a batch: the leading extent of its first tensor; 1 where there is none."""
    return next((int(t.shape[0]) for t in tensors(moved(value, "cpu")) if t.dim()), 1)


def first(value: Any, count: int) -> Any:
    """The first ``count`` examples of a batch; what has another leading extent is the same for all of them."""
    import torch

    whole = size(value)

    def part(leaf: Any) -> Any:
        made = _tensor_of(leaf, "batch")
        batched = isinstance(made, torch.Tensor) and made.dim() > 0 and made.shape[0] == whole
        return made[:count] if batched else made

    return mapped(value, part)


def batch_of(batch: Any, task: str) -> tuple[Any, Any]:
    """Inputs and targets of what a loader yields.

    Raises:
        TaskError: it is no pair.
    """
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        return batch[0], batch[1]
    if isinstance(batch, (tuple, list)):
        found = f"a {type(batch).__name__} of {len(batch)}"
    elif isinstance(batch, Mapping):
        found = f"a dictionary of {', '.join(map(str, batch))}"
    else:
        found = f"a {type(batch).__name__}"
    raise TaskError(
        f"a batch of task {task!r} is {found}",
        fix="let the loader yield (inputs, targets); several inputs of the model are a tuple or a dictionary: "
        "((a, b), targets) or ({'name': a}, targets), for example "
        "train=[((a, b), y) for a, b, y in loader]",
        code="T011",
    )


def arguments(model: Any, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of a call of ``model`` on these inputs."""
    if isinstance(inputs, (tuple, list)):
        return (tuple(inputs), {}) if _binds(model, inputs, {}) else ((inputs,), {})
    if isinstance(inputs, Mapping):
        named = {str(key): value for key, value in inputs.items()}
        return ((), named) if _binds(model, (), named) else ((inputs,), {})
    return (inputs,), {}


def _binds(model: Any, args: Any, named: dict[str, Any]) -> bool:
    function = getattr(unwrapped(model), "forward", model)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True  # nothing known: as most models are called
    try:
        signature.bind(*args, **named)
    except TypeError:
        return False
    return True


def call(model: Callable[..., T], inputs: Any) -> T:
    """The model of these inputs."""
    args, named = arguments(model, inputs)
    return model(*args, **named)


def unwrapped(model: T) -> T:
    """The module that ``torch.compile`` was given, where this is what it returned."""
    import torch

    while isinstance(model, torch.nn.Module) and "_orig_mod" in model._modules:
        model = model._modules["_orig_mod"]  # type: ignore[assignment]
    return model


def plain(value: Any, held: list[Tensor]) -> dict[str, Any]:
    """The structure as JSON; the tensors go to ``held``.

    Raises:
        TypeError: it holds what has no such form.
    """
    import torch

    if isinstance(value, torch.Tensor):
        held.append(value)
        return {"tensor": len(held) - 1}
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [plain(each, held) for each in value]}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a dictionary's names are texts")
        return {"dict": {key: plain(each, held) for key, each in value.items()}}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"value": value}
    raise TypeError(f"{type(value).__name__} has no form in a file")


def structured(content: Any, values: Mapping[str, Tensor]) -> Any:
    """The other way round, with the tensors by their numbers.

    Raises:
        ValueError: it is no such structure.
        KeyError: a tensor is missing.
    """
    if not isinstance(content, dict) or len(content) != 1:
        raise ValueError("the example has no structure that is known")
    ((kind, inner),) = content.items()
    if kind == "tensor":
        return values[f"{inner}"]
    if kind in ("tuple", "list") and isinstance(inner, list):
        made = [structured(each, values) for each in inner]
        return tuple(made) if kind == "tuple" else made
    if kind == "dict" and isinstance(inner, dict):
        return {key: structured(each, values) for key, each in inner.items()}
    if kind == "value" and (inner is None or isinstance(inner, (bool, int, float, str))):
        return inner
    raise ValueError(f"the example has no structure that is known: {kind!r}")


def dtype_of(model: nn.Module) -> torch.dtype | None:
    """The floating dtype of the model's parameters and buffers; None without any."""
    tensors = (*model.parameters(), *model.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), None)


def why_not(model: nn.Module, inputs: Any, error: BaseException) -> str:
    """In a sentence why the model fails on inputs, and what to pass instead."""
    import torch

    said = (str(error).strip().splitlines() or [""])[0]
    text = f"{type(model).__name__} does not run on {described(inputs)}: {told(error)}"
    wanted = dtype_of(model)
    given = {t.dtype for t in tensors(inputs) if t.is_floating_point()}
    integers = [
        m for m in model.modules() if isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag))
    ]
    no_numbers = not given and not integers and "type" in said  # an image of bytes, or tokens
    if wanted is not None and (no_numbers or (given and given != {wanted})):
        name = str(wanted).removeprefix("torch.")
        return f"{text}. The model computes in {name}: pass inputs of it, x.to(torch.{name})"
    if given and integers and isinstance(error, RuntimeError) and "indices" in said:
        most = integers[0].num_embeddings
        return f"{text}. Tokens are integers: pass torch.randint({most}, shape)"
    missing = isinstance(error, TypeError) and "argument" in said
    if missing:
        names = list(inspect.signature(unwrapped(model).forward).parameters)
        return f"{text}. Its inputs are {', '.join(names)}: pass one tensor for each"
    return f"{text}. Pass inputs of the shapes that the model takes"


#: What PyTorch raises when inputs do not fit a model.
MISFITS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
)
