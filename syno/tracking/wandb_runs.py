"""Weights & Biases: a run of a project for each session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syno.errors import SessionError, unknown_name
from syno.session.view import SessionView
from syno.tracking.tracker import Tracker, run_id

_MODES = ("online", "offline", "disabled")


class WandbRun(Tracker):
    """See :func:`syno.tracking.wandb`."""

    def __init__(self, project: str, mode: str | None, folder: Path | None) -> None:
        super().__init__()
        if mode not in (None, *_MODES):
            raise unknown_name("mode", mode, _MODES)
        try:
            import wandb
        except ImportError:
            raise SessionError(
                "runs of Weights & Biases need wandb", fix='pip install "syno[wandb]"', code="R013"
            ) from None
        self._wandb: Any = wandb
        self._project, self._mode, self._folder = project, mode, folder
        self._run: Any = None

    def begin(self, view: SessionView) -> None:
        config = view.config
        self._run = self._wandb.init(
            project=self._project,
            id=run_id(view),
            name=view.directory.name,
            resume="allow",
            mode=self._mode,
            dir=str(self._folder or view.directory),
            config={"seed": config.seed, "batch_width": config.batch_width, "lag": config.lag},
            settings=self._wandb.Settings(silent=True),
        )
        # Candidates end in another order than that of their numbers, and wandb's own steps only grow.
        self._run.define_metric("candidate")
        for name in ("search/*", "final/*", "original/*"):
            self._run.define_metric(name, step_metric="candidate")

    def values(self, step: int, values: dict[str, float]) -> None:
        self._run.log({**values, "candidate": step})

    def summary(self, values: dict[str, str | float]) -> None:
        self._run.summary.update({f"end/{name}": value for name, value in values.items()})
        self._run.finish()
