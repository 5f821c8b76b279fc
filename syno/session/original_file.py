"""What a session keeps of a model that was given as an object, so that it can be used where that object is not: the
functions it calls on the example, as data, and the weights that its trainings began with.

``original.json`` holds the record (:mod:`syno.torch.graph`), ``original.safetensors`` the tensors; neither names any code.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from syno.errors import FormatError, TaskError
from syno.support.kept_files import KeptFiles
from syno.support.streams import Stream

if TYPE_CHECKING:
    from torch import Tensor, nn

    from syno.torch import Sites
    from syno.torch.graph import Graph, Recorded
    from syno.training.task import Task

_log = logging.getLogger("syno.session")

FILE, VALUES = FILES = "original.json", "original.safetensors"

#: Where trainings begin: with the kept weights; with those, and drawn anew where a layer can be; with what the task draws.
First = Literal["kept", "drawn", "task"]


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    version: int
    first: First
    graph: Any
    why_none: str = ""


_FILES = KeptFiles(
    FILE, VALUES, _File, "syno-original", 1, (256 << 20, 64 << 30),
    "the model (apply(model), --model) or the task (--task)",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class KeptOriginal:
    """``graph`` is ``None`` where the model could not be recorded: ``why_none`` says why."""

    first: First
    tensors: Mapping[str, Tensor]
    recorded: Recorded | None
    why_none: str

    def model(self) -> Graph:
        """The model as it was before the search, in inference, for the example's shapes.

        Raises:
            FormatError: the record is damaged.
        """
        from syno.torch.graph import Graph

        assert self.recorded is not None
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        return Graph(self.recorded, tensors)


def drawn_anew(model: nn.Module) -> nn.Module:
    """The same model, its layers' weights drawn from the stream of the moment; other tensors stay."""
    for module in model.modules():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
    return model


def keep_original(
    directory: Path, model: nn.Module, example: Any, sites: Sites, first: First
) -> None:
    """Writes what is kept, unless it is there. What cannot be recorded is left out, and why is written."""
    from syno.torch.graph import CannotRecord, record

    if (directory / FILE).exists():
        return
    why, graph = "", None
    try:
        recorded, tensors = record(model, example, sites)
        graph = msgspec.to_builtins(recorded)
    except (CannotRecord, FormatError) as error:
        why = str(error)
        _log.info("the session keeps the model's weights alone: %s", why)
        tensors = {name: t.detach() for name, t in model.state_dict().items()}
    content = _File(
        format=_FILES.format, version=_FILES.version, first=first, graph=graph, why_none=why
    )
    _FILES.write(directory, content, tensors)


def read_original(directory: Path) -> KeptOriginal | None:
    """What is kept; ``None`` where nothing is.

    Raises:
        SessionError: a file is damaged, of another kind or newer.
    """
    from syno.torch.graph import Recorded

    def kept(content: _File, tensors: dict[str, Tensor]) -> KeptOriginal:
        graph = None if content.graph is None else msgspec.convert(content.graph, Recorded)
        return KeptOriginal(content.first, tensors, graph, content.why_none)

    return _FILES.read(directory, kept)


def task_as_begun(task: Task, kept: KeptOriginal) -> Task:
    """A task whose trainings begin with the weights of the session's, whatever its own model begins with.

    Raises:
        TaskError: when its model is made and is another than the session's.
    """
    if kept.first == "task":
        return task
    make: Callable[[], nn.Module] = lambda: task.make_model(task.seeds[0])  # noqa: E731

    def begun() -> nn.Module:
        with Stream("the model whose weights are not used"):
            model = make()
        state = model.state_dict()
        missing = sorted(set(state) - set(kept.tensors) - _doubles(state))
        try:
            if missing:
                raise RuntimeError(f"{missing[0]} is not kept")
            model.load_state_dict(
                {name: t for name, t in kept.tensors.items() if name in state}, strict=False
            )
        except RuntimeError as error:
            said = " ".join(str(error).split())[:300]
            raise TaskError(
                f"the model of task {task.name!r} is not the one that was searched: {said}",
                fix="give the task with the same model",
                code="T013",
            ) from error
        return drawn_anew(model) if kept.first == "drawn" else model

    return task.but(model=begun)


def _doubles(state: Mapping[str, Tensor]) -> set[str]:
    """Names of tensors that have an earlier name, too."""
    seen: set[tuple[int, object]] = set()
    found = set()
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tensor.shape)
        if place in seen and tensor.numel():
            found.add(name)
        seen.add(place)
    return found
