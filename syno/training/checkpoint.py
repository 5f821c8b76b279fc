"""A long training written down at the end of an epoch, so that one that was killed goes on to the same digits.

What a training depends on: weights and buffers, the optimizer and the schedule, where every random generator stands, and
the plain numbers and texts that model and loader keep in attributes, such as a counter of epochs. It is kept as one
safetensors file with JSON beside the tensors; nothing in it is code. What has no such form (an optimizer with
other state, loaders whose worker processes go on from epoch to epoch) is trained from its beginning again.
"""

from __future__ import annotations

import base64
import json
import logging
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from syno.support.files import not_a_file, write_whole

_log = logging.getLogger("syno.training.checkpoint")

#: A training that takes longer than this, in seconds, is written down after each epoch.
LONG_S = 300.0

_PLAIN = (bool, int, float, str, type(None))
_VERSION = 1


class CannotKeep(Exception):
    """Something has no form in a checkpoint; says what."""


@dataclass
class Checkpoint:
    """Where a training is written down, and for which one it is.

    Attributes:
        path: of the file; its folder is made.
        key: what the training follows from; a file of another one is left aside.
        long_s: only a training that takes longer is written down, 0: every one.
    """

    path: Path
    key: list[Any] = field(default_factory=list)
    long_s: float = LONG_S
    broken: bool = False
    """It could not be written: nobody tries again."""

    def write(self, state: Any) -> None:
        """Writes ``state`` whole or not at all; that it cannot be is no reason to end a training."""
        from safetensors.torch import save

        tensors: dict[str, Any] = {}
        try:
            content = {"version": _VERSION, "key": self.key, "state": _packed(state, tensors)}
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, save(tensors, {"state": json.dumps(content)}))
        except (CannotKeep, OSError, ValueError) as error:
            self.broken = True
            _log.warning("no checkpoint of this training is written: %s", error)

    def read(self) -> Any:
        """The state that was written for this training; ``None`` where there is none that is whole."""
        from safetensors import SafetensorError, safe_open

        if not_a_file(self.path) or not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as file:
                content = json.loads((file.metadata() or {})["state"])
                if content["version"] != _VERSION or content["key"] != json.loads(
                    json.dumps(self.key)
                ):
                    return None
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                return _unpacked(content["state"], tensors)
        except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            _log.warning("%s is left aside, the training begins again: %s", self.path, error)
            return None

    def remove(self) -> None:
        """It is not needed any more."""
        self.path.unlink(missing_ok=True)


def _packed(value: Any, tensors: dict[str, Any]) -> Any:
    """As JSON, with the names of tensors that are put into ``tensors``."""
    import torch

    if isinstance(value, torch.Tensor):
        name = f"t{len(tensors)}"
        # A copy: tensors of a model may share their memory, those of a file may not.
        tensors[name] = value.detach().cpu().clone().contiguous()
        return {"tensor": name}
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        text = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": [value.dtype.str, list(value.shape), text]}
    if isinstance(value, dict):
        pairs = [[_packed(k, tensors), _packed(v, tensors)] for k, v in value.items()]
        return {"dict": pairs}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_packed(one, tensors) for one in value]}
    raise CannotKeep(f"a {type(value).__name__} has no form in it")


def _unpacked(value: Any, tensors: dict[str, Any]) -> Any:
    if not isinstance(value, dict):
        if type(value) not in _PLAIN:
            raise ValueError(f"a {type(value).__name__} in its place")
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "array":
        dtype, shape, text = content
        return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape).copy()
    if kind == "dict":
        return {_unpacked(k, tensors): _unpacked(v, tensors) for k, v in content}
    if kind in ("list", "tuple"):
        made = [_unpacked(one, tensors) for one in content]
        return made if kind == "list" else tuple(made)
    raise ValueError(f"{kind!r} in its place")


class Attributes:
    """Plain attributes of objects: counters and the like, which decide what comes next as weights do.

    Args:
        objects: in an order that is the same in every process; those met here are kept alive.
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        self._objects = [one for one in objects if _has_attributes(one)]

    def state(self) -> list[Any]:
        """Of each object its type's name, and its plain attributes; of modules of torch tensors that are no
        buffers, too."""
        return [(type(one).__qualname__, dict(_plain_of(one))) for one in self._objects]

    def restore(self, state: list[Any]) -> None:
        """Back to a :meth:`state`. Raises ValueError where it is of other objects."""
        names = [type(one).__qualname__ for one in self._objects]
        if [name for name, _ in state] != names:
            raise ValueError("model or loader keep other objects than they did")
        for one, (_, plain) in zip(self._objects, state, strict=True):
            vars(one).update(plain)


def _has_attributes(one: Any) -> bool:
    if isinstance(one, (type, types.FunctionType, types.MethodType, types.ModuleType)):
        return False
    return isinstance(getattr(one, "__dict__", None), dict)


def _plain_of(one: Any) -> Iterator[tuple[str, Any]]:
    import torch

    module = isinstance(one, torch.nn.Module)
    for name, value in vars(one).items():
        if type(value) in _PLAIN or (module and type(value) is torch.Tensor):
            yield name, value


__all__ = ["LONG_S", "Attributes", "CannotKeep", "Checkpoint"]
