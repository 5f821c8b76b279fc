"""MLflow: a run of an experiment for each session."""

from __future__ import annotations

from typing import Any

from syno.errors import SessionError
from syno.session.view import SessionView
from syno.tracking.tracker import Tracker, run_id

#: The tag that a session's run is found by.
_SESSION = "syno.session"


class MlflowRun(Tracker):
    """See :func:`syno.tracking.mlflow`."""

    def __init__(self, experiment: str, uri: str | None, run: str | None) -> None:
        super().__init__()
        try:
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise SessionError(
                "runs of MLflow need mlflow", fix='pip install "syno[mlflow]"', code="R013"
            ) from None
        self._make, self._uri = MlflowClient, uri
        self._experiment, self._run_name = experiment, run
        self._client: Any = None
        self._run = ""

    def begin(self, view: SessionView) -> None:
        client = self._client = self._make(tracking_uri=self._uri)
        known = client.get_experiment_by_name(self._experiment)
        experiment = (
            client.create_experiment(self._experiment) if known is None else known.experiment_id
        )
        own = run_id(view)
        found = client.search_runs([experiment], f"tags.`{_SESSION}` = '{own}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            client.update_run(self._run, status="RUNNING")
            return
        name = self._run_name or view.directory.name
        self._run = client.create_run(experiment, run_name=name, tags={_SESSION: own}).info.run_id
        config = view.config
        for key, value in (
            ("seed", config.seed),
            ("batch_width", config.batch_width),
            ("lag", config.lag or 0),
            ("policy", config.stages[0].proposer.options.get("policy", "")),
            ("threads_per_training", config.threads_per_training),
        ):
            client.log_param(self._run, key, value)

    def values(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._client.log_metric(self._run, name, value, step=step)

    def summary(self, values: dict[str, str | float]) -> None:
        for name, value in values.items():
            if isinstance(value, str):
                self._client.set_tag(self._run, f"syno.{name}", value[:4_000])
            else:
                self._client.log_metric(self._run, f"end/{name}", value)
        self._client.set_terminated(self._run)
