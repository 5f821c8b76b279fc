"""Experiment trackers that watch a search: give one as ``callbacks=``, alone or in a list.

>>> syno.search(model, x, data="pkg.task:make", callbacks=syno.tracking.tensorboard("runs/board"))   # doctest: +SKIP

Each candidate is a point at its number: what it was worth, how fast it is, the best so far. A session that goes on continues
what it wrote before. A tracker decides nothing, and one that cannot be reached ends no search: it says so once, as a warning.
"""

from __future__ import annotations

from pathlib import Path

from syno.errors import SessionError, unknown_name
from syno.tracking.tracker import Tracker

#: Names that ``syno search --track`` takes, each an extra of the package.
NAMES = ("tensorboard", "mlflow", "wandb")


def tensorboard(folder: str | Path) -> Tracker:
    """Event files for TensorBoard: ``tensorboard --logdir FOLDER``.

    Args:
        folder: where they are written; it is made where it is not there. Sessions want a folder each.
    Raises:
        SessionError: there is no tensorboard, or the folder cannot be written.
    """
    from syno.tracking.event_files import EventFiles

    return EventFiles(Path(folder))


def mlflow(experiment: str = "syno", *, uri: str | None = None, run: str | None = None) -> Tracker:
    """A run of MLflow's, found again by the session's directory when the session goes on.

    Args:
        experiment: made where there is none of this name.
        uri: of the tracking server; default as MLflow is told (``MLFLOW_TRACKING_URI``). Files, ``file:///…``, need the
            variable ``MLFLOW_ALLOW_FILE_STORE=true``, databases the whole package ``mlflow``.
        run: its name; default the directory's.
    Raises:
        SessionError: there is no mlflow.
    """
    from syno.tracking.mlflow_runs import MlflowRun

    return MlflowRun(experiment, uri, run)


def wandb(
    project: str = "syno", *, mode: str | None = None, folder: str | Path | None = None
) -> Tracker:
    """A run of Weights & Biases, found again by the session's directory when the session goes on.

    Args:
        project: that the run belongs to.
        mode: ``"online"``, ``"offline"`` (files, to be sent by ``wandb sync``) or ``"disabled"``; default as wandb is told
            (``WANDB_MODE``).
        folder: where its files lie; default the session's directory.
    Raises:
        SessionError: there is no wandb.
        UnknownName: another mode.
    """
    from syno.tracking.wandb_runs import WandbRun

    return WandbRun(project, mode, None if folder is None else Path(folder))


def named(text: str) -> tuple[str, str]:
    """Name and place of a tracker, of what ``--track`` takes.

    Args:
        text: ``"tensorboard:FOLDER"``, ``"mlflow"``, ``"mlflow:EXPERIMENT"``, ``"wandb"`` or ``"wandb:PROJECT"``.
    Returns:
        One of :data:`NAMES`, and what stands behind the colon, which may be empty.
    Raises:
        UnknownName: there is no such tracker.
        SessionError: TensorBoard without a folder.
    """
    name, _, where = text.partition(":")
    if name not in NAMES:
        raise unknown_name("tracker", name, NAMES)
    if name == "tensorboard" and not where:
        raise SessionError(
            "tensorboard without a folder", fix="give one: tensorboard:FOLDER", code="R017"
        )
    return name, where


def tracker(text: str) -> Tracker:
    """By what ``--track`` takes: a name, and after a colon the folder, experiment or project.

    Raises:
        UnknownName, SessionError: as :func:`named`, and where it is not installed.
    """
    name, where = named(text)
    if name == "tensorboard":
        return tensorboard(where)
    if name == "mlflow":
        return mlflow(where or "syno")
    return wandb(where or "syno")


__all__ = ["NAMES", "Tracker", "mlflow", "named", "tensorboard", "tracker", "wandb"]
