"""What trainings begin with: a model that was handed in, one drawn anew, or what the task makes; written down once."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.errors import SessionError, TaskError
from syno.searching.network import Network
from syno.session import Session
from syno.session.config import read_config
from syno.session.network_file import FILES as NETWORK_FILES
from syno.session.network_file import keep_network, read_network
from syno.session.original_file import FILES as ORIGINAL_FILES
from syno.session.original_file import First, drawn_anew, keep_original, read_original
from syno.session.remarks import BEGINS_GIVEN
from syno.support.streams import Stream
from syno.training.task import Task
from syno.training.train import TrainResult, judge

if TYPE_CHECKING:
    from torch import nn

_log = logging.getLogger("syno.searching.beginning")


def task_of(
    model: nn.Module,
    data: Task | str | tuple[Iterable[Any], Iterable[Any]],
    pretrained: bool | None,
    recipe: dict[str, Any],
    directory: Path,
) -> tuple[str | None, Task, First | None]:
    """The task, its name where workers can make it from that, and what trainings begin with where that is decided here.

    Raises:
        TaskError: there is no such task, or it cannot begin as asked.
        SessionError: the session that is there was begun otherwise.
    """
    from syno.training.tasks import load_task

    if isinstance(data, str):
        if pretrained:
            raise TaskError(
                f"pretrained=True with the task {data!r}: its trainings begin with what its model function returns",
                fix="return the trained model from there, or give data=(train_loader, validation_loader)",
                code="T002",
            )
        return data, load_task(data, recipe), None
    base = copy.deepcopy(model)
    if isinstance(data, Task):
        made = data.but(**recipe) if recipe else data
        if pretrained:
            return None, made.but(model=lambda: copy.deepcopy(base)), "kept"
        return None, made, None
    first = _first_of(directory, pretrained)
    try:
        train, validation = data
    except (TypeError, ValueError):
        raise TaskError(
            f"data is a {type(data).__name__}",
            fix="give (train_loader, validation_loader), a syno.Task or 'module:function'",
            code="T002",
        ) from None

    def fresh() -> nn.Module:
        made = copy.deepcopy(base)
        return made if first == "kept" else drawn_anew(made)

    fields = {
        "name": type(model).__name__,
        "model": fresh,
        "train": train,
        "validation": validation,
    }
    return None, Task(**{**fields, **recipe}), first


def _first_of(directory: Path, pretrained: bool | None) -> First:
    """What trainings of a model that is an object begin with: as they did in the session that is there."""
    asked: First | None = None if pretrained is None else "kept" if pretrained else "drawn"
    if not (directory / "session.sqlite").exists():
        return asked or "kept"
    kept = read_original(directory)
    before: First = "drawn" if kept is None or kept.first != "kept" else "kept"
    if asked not in (None, before):
        raise SessionError(
            f"{directory} was begun with pretrained={before == 'kept'}; {pretrained} was asked for",
            fix="use another directory, or leave pretrained as it was",
            code="R003",
        )
    return before


def fit_of(directory: Path, task: Task, first: First | None) -> int:
    """Batches that operators are fitted on: where trainings begin with what a model has learned, and as in the session
    that is there."""
    from syno.training.fitting import STEPS

    path = directory / "session.toml"
    if path.exists():
        return int(read_config(path).evaluator.options.get("fit", 0))
    if first is None:
        first = "kept" if _begins_alike(task) else "task"
    return STEPS if first == "kept" else 0


def _begins_alike(task: Task) -> bool:
    """Whether a task's model function returns the same weights whatever is drawn: somebody trained them."""
    model = task.make_model(task.seeds[0])
    other = task.make_model(task.seeds[0] + 1)
    return _same_state(model, other)


def keep(session: Session, network: Network, named: bool, first: First | None) -> None:
    """Writes down what later uses of the session need of the network, once."""
    directory = session.directory
    if read_network(directory) is not None:
        return
    example = network.task.example(network.batch)
    if not named:
        model = network.task.make_model(network.task.seeds[0])
        if first is None:
            other = network.task.make_model(network.task.seeds[0] + 1)
            first = "kept" if _same_state(model, other) else "task"
        with Stream("keep", of=[model]):
            keep_original(directory, model, example, network.sites(), first)
        for name in ORIGINAL_FILES:
            session.record_file(directory / name)
    if keep_network(directory, network.batch, example, network.sites()):
        for name in NETWORK_FILES:
            session.record_file(directory / name)
        return
    _log.warning(
        "%s keeps no example: its inputs are no tensors, numbers or texts; later uses want apply(example=x)",
        directory,
    )


def keep_recipe(session: Session, task: Task, fit: int) -> None:
    """Writes down, once, how trainings go."""
    if session.recipe:
        return
    kept = read_original(session.directory)
    if fit:
        begins = BEGINS_GIVEN
    elif kept is not None and kept.first == "drawn":
        begins = "weights drawn anew"
    else:
        begins = "what the task's model function draws"
    recipe = {"begins with": begins, **task.recipe()}
    if fit:
        recipe["operators"] = f"fitted to the layers they replace, on {fit} batches, then trained"
    session.record_recipe(recipe)


def judged(
    task: Task, model: nn.Module | None, parts: Sequence[str], *, seed: int, threads: int
) -> list[TrainResult]:
    """The model as it was handed in, or as the task makes it, on each part."""
    own = task.make_model(seed) if model is None else model
    found: list[TrainResult] = []
    for part in parts:
        if part == "test" and task.test is None:
            found.append(dataclasses.replace(found[0], part="test"))
        else:
            found.append(judge(task, own, part, seed=seed, threads=threads))
    return found


def _same_state(model: nn.Module, other: nn.Module) -> bool:
    import torch

    state, its = model.state_dict(), other.state_dict()
    return state.keys() == its.keys() and all(torch.equal(state[n], its[n]) for n in state)
