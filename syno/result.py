"""What a search found: read from a session's directory, applied to a model, drawn, reported."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.config import deterministic
from syno.errors import SessionError
from syno.network import Network, NetworkEvaluator, place
from syno.report.build import build_report
from syno.session import Candidate, SessionView, open_view
from syno.session.trust import check_trust

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from syno.report import Report

_log = logging.getLogger("syno.result")

EVALUATOR = "syno.network:NetworkEvaluator"
MEASURER = "syno.network:NetworkMeasurer"


class Found:
    """One candidate of a finished or running search, and what can be done with it."""

    def __init__(self, result: Result, candidate: Candidate) -> None:
        self._result = result
        self.candidate = candidate

    @property
    def id(self) -> str:
        """As in ``syno status``."""
        return self.candidate.id

    @property
    def operator(self) -> Any:
        """The :class:`syno.Operator`, with all its valuations."""
        return self._result.view.operator(self.candidate)

    def apply(
        self, model: nn.Module | None = None, *, seed: int | None = None, measured: bool = True
    ) -> nn.Module:
        """The network with this operator in its sites; a new module, ``model`` is left alone.

        Each site runs on native kernels or as plain PyTorch, whichever is faster in its place; printing
        the network says why. A network of images computes in channels-last where that makes the whole
        faster (the log of `syno` says so); inputs of any memory format are taken, and images returned
        are contiguous, in either case.

        Args:
            model: default the task's own. It must have the sites the search was made for.
            seed: of the finalists' training whose weights to load; default the first. Where the
                candidate was no finalist, the operator's weights are random and want training.
            measured: time the ways at the task's example now; else all run on native kernels, in the
                format of the input. In a deterministic session nothing is timed.
        Raises:
            SessionError: there are no trained weights of this seed.
            ShapeError, UnknownName: the model does not have these sites.
        """
        return self._result.apply(self.candidate, model, seed=seed, measured=measured)

    def __repr__(self) -> str:
        c = self.candidate
        value = "not judged" if c.value is None else f"{c.value:.4f}"
        latency = "" if c.latency_us is None else f", {c.latency_us:.0f} us"
        return f"Found({c.id}: {value}{latency}; {c.expr})"


class Result:
    """What a search found; reads the session's directory and can be asked while it still runs."""

    def __init__(
        self, view: SessionView, network: Network | None = None, *, trust: bool = False
    ) -> None:
        self.view = view
        self._network = network
        self._trust = trust

    @classmethod
    def load(cls, directory: str | Path, *, trust: bool = False) -> Result:
        """The result kept in a session's directory.

        Args:
            trust: the task that the session names may be imported though the session was made by somebody
                else, or by an older syno; says what that is, and signs the session.
        Raises:
            SessionError: there is no session.
        """
        return cls(open_view(directory), trust=trust)

    @property
    def interrupted(self) -> bool:
        """Whether the search was interrupted or killed: the same call again continues it."""
        return self.view.interrupted

    @property
    def network(self) -> Network:
        """The task's network builder, made from the session's settings where need be.

        Raises:
            SessionError: the session's task was an object of its process.
            TrustError: the session was made by somebody else (see :meth:`load`).
        """
        if self._network is None:
            options = self.view.config.evaluator.options
            if self.view.config.evaluator.reference != EVALUATOR or "task" not in options:
                raise SessionError(
                    f"{self.view.directory} was searched with objects of its process, not a named task",
                    fix="use the result of syno.search() there, or a task='module:function'",
                    code="R012",
                )
            check_trust(self.view.directory, self.view.config, trust=self._trust)
            self._network = NetworkEvaluator(**options)
        return self._network

    def best(self, max_accuracy_drop: float | None = None) -> Found | None:
        """The fastest candidate that is not worse than the original.

        Args:
            max_accuracy_drop: how much of the metric it may lose (0.01: one point of accuracy);
                default what the uncertainty of the comparison covers.
        Returns:
            ``None`` when the original is best.
        """
        found = self.view.best(max_drop=max_accuracy_drop)
        return None if found is None else Found(self, found)

    def pareto(self) -> list[Found]:
        """The candidates no other beats in both metric and latency, fastest first."""
        return [Found(self, c) for c in self.view.pareto() if c.key]

    def __getitem__(self, id: str) -> Found:
        return Found(self, self.view.candidate(id))

    @property
    def report(self) -> Report:
        """Everything, as a report that prints, saves and draws."""
        return report_of(self.view)

    def plot(self) -> Figure:
        """Metric against latency, the original marked; needs matplotlib."""
        from syno.report.plot import pareto_figure

        return pareto_figure(self.report)

    def to_dataframe(self) -> Any:
        """Candidates and original as a pandas table."""
        return self.view.to_dataframe()

    def apply(
        self,
        candidate: Candidate,
        model: nn.Module | None = None,
        *,
        seed: int | None = None,
        measured: bool = True,
    ) -> nn.Module:
        """See :meth:`Found.apply`."""
        network = self.network
        keys = self.view.assignment(candidate)
        texts = {stage: self.view._store.operator(key) for stage, key in keys.items()}
        base = network.task.make_model(network.task.seeds[0]) if model is None else model
        faster = place(base, network.sites(), network.assigned(texts))
        trained = self.view.weights(candidate)
        if seed is not None and seed not in trained:
            raise SessionError(
                f"{candidate.id} has no trained weights of seed {seed}",
                fix=f"there are: {', '.join(map(str, sorted(trained))) or 'none (it was no finalist)'}",
                code="R012",
            )
        if trained:
            from safetensors.torch import load_model

            chosen_weights = trained[min(trained) if seed is None else seed]
            self.view.check_file(chosen_weights)
            load_model(faster, str(chosen_weights))
        if deterministic() or self.view.config.machine is not None:
            measured = False  # a choice by timing changes the last digits
        if measured and network.native and all(p.device.type == "cpu" for p in faster.parameters()):
            from syno.torch.images import fastest

            chosen = fastest(faster, network.task.example(network.batch))
            _log.info("%s: %s", candidate.id, chosen.why)
            faster = chosen.network
        return faster.train(base.training)

    def __repr__(self) -> str:
        more = "; interrupted: the same call again continues it" if self.interrupted else ""
        return f"Result of {self.view!r}{more}"

    def _repr_html_(self) -> str:
        return self.view._repr_html_()


def report_of(view: SessionView) -> Report:
    """The report of an open session."""
    options = view.config.evaluator.options
    sites = options.get("stages", {})
    where = "; ".join(f"{name}: {', '.join(names)}" for name, names in sites.items())
    notes = [
        "A candidate is called better or worse only where the difference exceeds two standard errors "
        "(test examples and seeds together).",
        "FLOPs are multiply-adds of the whole network's convolutions and linear layers at the batch given.",
    ]
    return build_report(
        view,
        title=f"syno: operators for {options.get('task', 'a network')}",
        task=f"Replaced sites: {where}" if where else "",
        command=view.config.note,
        notes=notes,
    )


def session_report(directory: Path) -> Report:
    """The report of a session by its directory, running or not."""
    with open_view(directory) as view:
        return report_of(view)
