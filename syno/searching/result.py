"""What a search found: read from a session's directory, applied to a model, drawn, reported."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syno.config import deterministic
from syno.errors import SessionError, SynoError
from syno.machines.model import fixed_kernels
from syno.report.build import build_report
from syno.searching.network import Network, NetworkEvaluator, place
from syno.session import Candidate, SessionView, open_view, original_file
from syno.session.network_file import FILES, KeptNetwork, read_network
from syno.session.original_file import KeptOriginal
from syno.session.records import COMBINED
from syno.session.trust import check_trust
from syno.session.verdict import Verdict
from syno.support.arguments import checked
from syno.support.inputs import arguments, as_inputs, call, dtype_of, mapped, unwrapped
from syno.support.numbers import significant

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from syno.operators.operator import Operator
    from syno.report import Report
    from syno.torch import Sites
    from syno.training.task import Task

_log = logging.getLogger("syno.searching.result")

EVALUATOR = "syno.searching.network:NetworkEvaluator"
MEASURER = "syno.searching.network:NetworkMeasurer"

#: What a session has for a task's name where the task was objects of the process that searched.
IN_PROCESS = "(in this process)"


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
        """The :class:`syno.Operator`, with all its valuations.

        Raises:
            SessionError: it combines operators of several groups of layers: :attr:`operators` are these.
        """
        return self._result.view.operator(self.candidate)

    @property
    def operators(self) -> dict[str, Operator]:
        """By stage, what this candidate's network has in its sites: its own operator, and those chosen for the
        stages before."""
        return self._result.operators(self.candidate)

    @checked()
    def apply(
        self,
        model: nn.Module | None = None,
        *,
        example: Any = None,
        seed: int | None = None,
        measured: bool = True,
        compile: bool = True,
        derive: bool = False,
    ) -> nn.Module:
        """The network with this operator in its sites; a new module, ``model`` is left alone.

        Its calls in inference (evaluation mode, no gradient asked for, shapes of the example) are answered by the whole
        network compiled (:func:`syno.compile`): the operator's programs and the layers around them fused, memory planned,
        one native call. Everything else is as in any module: parameters, ``state_dict``, training, other shapes, hooks; then
        its layers run one by one. Values of weights that change are seen. Where the network cannot be compiled, the log of
        `syno` says why, and its layers always run. Copies of it (``copy.deepcopy``, pickles) have the layers alone.

        Of the layers, each site runs on native kernels or as plain PyTorch, whichever is faster in its place; printing
        the network says why. A network of images computes in channels-last where that makes the whole
        faster (the log of `syno` says so); inputs of any memory format are taken, and images returned
        are contiguous, in either case.

        Args:
            model: default the task's own, or what a session without a named task keeps of the model
                (see :meth:`Result.original`). It must have the sites the search was made for; with the session's
                trained weights it needs nothing else of the task.
            example: inputs to time the ways on; default those the session keeps.
            seed: of the finalists' training whose weights to load; default the first. Where the
                candidate was no finalist, the operator's weights are random and want training.
            measured: time the ways at the example now; else all run on native kernels, in the
                format of the input. In a deterministic session nothing is timed.
            compile: False leaves the layers alone.
            derive: the compiled network takes equal programs found by :func:`syno.derive` where they are faster in
                their place, up to rounding and for finite data: at most 30 s, kept in the cache.
        Raises:
            SessionError: there are no trained weights of this seed, or they are of another model; the
                session has no named task and keeps no model, and none was given.
            ShapeError, UnknownName: the model does not have these sites.
        """
        return self._result.apply(
            self.candidate,
            model,
            example=example,
            seed=seed,
            measured=measured,
            compile=compile,
            derive=derive,
        )

    def _repr_html_(self) -> str:
        """For notebooks: formula, numbers, and the picture of the pGraph."""
        import html

        c = self.candidate
        facts = {
            c.score.metric if c.score else "metric": c.value and significant(c.value, 4),
            "latency, µs": c.latency_us and significant(c.latency_us),
            "FLOPs": c.flops and f"{c.flops:,}",
            "parameters": c.params and f"{c.params:,}",
            "state": c.state + (f": {c.reason}" if c.reason else ""),
        }
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>"
            for name, value in facts.items()
            if value is not None
        )
        own = self.operators if c.kind == COMBINED else {c.stage: self.operator} if c.key else {}
        picture = "".join(operator._repr_svg_() or "" for operator in own.values())
        return f"<p>{c.id}: <code>{html.escape(c.expr)}</code></p><table>{rows}</table>{picture}"

    def __repr__(self) -> str:
        c = self.candidate
        value = "not judged" if c.value is None else significant(c.value, 4)
        latency = "" if c.latency_us is None else f", {significant(c.latency_us)} us"
        return f"Found({c.id}: {value}{latency}; {self._result.view.formula(c)})"


class Result:
    """What a search found; reads the session's directory and can be asked while it still runs. Made by `syno.search` and
    :meth:`load`."""

    def __init__(
        self,
        view: SessionView,
        network: Network | None = None,
        *,
        trust: bool = False,
        task: Task | str | None = None,
    ) -> None:
        self.view = view
        self._network = network
        self._trust = trust
        self._task = task
        self._kept: KeptNetwork | None = None
        self._original: KeptOriginal | None = None

    @classmethod
    @checked()
    def load(
        cls, directory: str | Path, *, trust: bool = False, task: Task | str | None = None
    ) -> Result:
        """The result kept in a session's directory.

        Args:
            directory: the ``session`` of the search, or ``--output`` of the command line.
            trust: the task that the session names may be imported though the session was made by somebody
                else, or by an older syno; says what that is, and signs the session.
            task: a :class:`Task` or ``"module:function"``, instead of the one that the session names. A session of
                objects of its process names none; models, operators and weights can be used without it, and
                training again needs it.
        Raises:
            SessionError: there is no session.
        """
        return cls(open_view(directory), trust=trust, task=task)

    @property
    def interrupted(self) -> bool:
        """Whether the search was interrupted or killed: the same call again continues it."""
        return self.view.interrupted

    @property
    def network(self) -> Network:
        """The task's network builder, made from the session's settings where need be.

        Raises:
            SessionError: the session names no task, and none was given.
            TrustError: the session was made by somebody else (see :meth:`load`).
        """
        if self._network is None:
            options = self.view.config.evaluator.options
            settings = {
                k: v for k, v in options.items() if k in ("stages", "batch", "native", "fit")
            }
            if self._task is not None:
                self._network = NetworkEvaluator(self._given_task(self._task), **settings)
                return self._network
            if not self._names_task():
                directory = self.view.directory
                original = self.kept_original
                why = ""
                if original is not None and original.why_none:
                    why = f", and keeps no model: {original.why_none}"
                elif original is not None:
                    why = "; it keeps the model for inference, and no task to train it by"
                raise SessionError(
                    f"{directory} was searched with objects of its process, not with a named task{why}",
                    fix="give what is needed: the model, as apply(model) or --model 'module:function', or the task, "
                    f"as Result.load({str(directory)!r}, task=...) or --task 'module:function'",
                    code="R012",
                )
            check_trust(self.view.directory, self.view.config, trust=self._trust)
            self._network = NetworkEvaluator(**options)
        return self._network

    @property
    def kept(self) -> KeptNetwork | None:
        """Example and sites as the session keeps them; ``None`` where an older syno made it."""
        if self._kept is None:
            directory = self.view.directory
            if all((directory / name).exists() for name in FILES):
                for name in FILES:
                    self.view.check_file(directory / name)
            self._kept = read_network(directory)
        return self._kept

    @property
    def sites(self) -> Sites:
        """The sites that were searched, with all others of the model."""
        return self.network.sites() if self.kept is None else self.kept.sites

    @property
    def example(self) -> Any:
        """The inputs that latencies refer to."""
        if self.kept is not None:
            return self.kept.example
        return self.network.task.example(self.network.batch)

    @property
    def kept_original(self) -> KeptOriginal | None:
        """What the session keeps of a model that was an object; ``None`` where a task is named, and in older ones."""
        if self._original is None:
            directory = self.view.directory
            if all((directory / name).exists() for name in original_file.FILES):
                for name in original_file.FILES:
                    self.view.check_file(directory / name)
            self._original = original_file.read_original(directory)
        return self._original

    def _names_task(self) -> bool:
        options = self.view.config.evaluator.options
        named = self.view.config.evaluator.now_at == EVALUATOR and "task" in options
        return named and not str(options["task"]).startswith(IN_PROCESS)

    def _given_task(self, task: Task | str) -> Task:
        """The task instead of a session's that names none, its trainings begun as the session's were."""
        from syno.training.tasks import load_task

        made = load_task(task) if isinstance(task, str) else task
        if self._names_task() or self.kept_original is None:
            return made
        return original_file.task_as_begun(made, self.kept_original)

    def original(self) -> nn.Module:
        """The task's model as it was before the search; where the session names no task, what it keeps of the model:
        the same functions and weights, in inference, for the shapes of :attr:`example`.

        Raises:
            SessionError: neither is there.
        """
        if self._network is None and self._task is None and not self._names_task():
            kept = self.kept_original
            if kept is not None and kept.recorded is not None:
                return self._checked(kept)
        network = self.network
        return network.task.make_model(network.task.seeds[0])

    def _checked(self, kept: KeptOriginal) -> nn.Module:
        """The kept model, after it ran once: what a file says need not fit together."""
        import torch

        try:
            model = kept.model()
            with torch.no_grad():
                call(model, self.example)
        except (SynoError, RuntimeError, TypeError, ValueError, IndexError, KeyError) as error:
            raise SessionError(
                f"{self.view.directory / original_file.FILE} cannot be used: {' '.join(str(error).split())[:300]}",
                fix="give the model, as apply(model) or --model 'module:function'",
                code="R005",
            ) from error
        return model

    def operators(self, candidate: Candidate) -> dict[str, Operator]:
        """By stage, what a candidate's network has in its sites: its own operator, and those chosen for the stages before.

        Args:
            candidate: of this session; the original has none.
        """
        return self.view.operators(candidate)

    def assigned(self, candidate: Candidate) -> dict[str, Operator]:
        """Which operator serves which site in a candidate's network, by the site's name.

        Args:
            candidate: of this session; the original has none.
        """
        stages = self.view.config.evaluator.options.get("stages", {})
        return {
            site: operator
            for stage, operator in self.operators(candidate).items()
            for site in stages.get(stage, ())
        }

    @checked()
    def best(self, max_accuracy_drop: float | None = None) -> Found | None:
        """The fastest candidate that is proven not to be worse than the original: the lower end of the one-sided 95 %
        interval of the difference, over seeds and examples, is at least ``-max_accuracy_drop``.

        Args:
            max_accuracy_drop: how much of the metric it may lose (0.01: one point of accuracy; of a metric to
                be made small, such as a loss, that share of the original's: 0.01 is one percent);
                default 0.01. It is counted from the better of the original trained alike and the model as
                it was handed in.
        Returns:
            ``None`` when the original is best, or nothing is proven: :meth:`verdict` says which, and how many
            more seeds or examples would decide it.
        """
        found = self.view.best(max_drop=max_accuracy_drop)
        return None if found is None else Found(self, found)

    @checked()
    def verdict(self, max_accuracy_drop: float | None = None) -> Verdict:
        """What may be said of the search, in a sentence and in numbers; :meth:`best` and the report say the same.

        Args:
            max_accuracy_drop: how much of the metric may be lost, as of :meth:`best`; default 0.01.
        """
        return self.view.verdict(max_accuracy_drop)

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
        example: Any = None,
        seed: int | None = None,
        measured: bool = True,
        compile: bool = True,
        derive: bool = False,
    ) -> nn.Module:
        """The network with a candidate's operator in its sites: :meth:`Found.apply` of the candidate.

        Args:
            candidate: whose operators are put in; of a :class:`Found` its ``candidate``.
            model: the network to make a new one of; default the one that was searched.
            example: inputs to time the ways on; default those the session keeps.
            seed: of the trained weights to load; default the first. Those of no finalist are random.
            measured: time the ways at the example now; else all run on native kernels.
            compile: whether calls in inference are answered by the whole network compiled.
            derive: whether that takes derived programs where they are faster, as in :meth:`Found.apply`.
        Raises:
            SessionError: there are no trained weights of this seed, or they are of another model; no model is known.
            ShapeError, UnknownName: the model does not have these sites.
        """
        import torch

        from syno.torch import sites as find_sites

        base = self.original() if model is None else unwrapped(model)
        given = None if example is None else as_inputs(example)
        if self.kept is None and given is not None:
            args, named = arguments(base, given)
            sites = find_sites(base, *args, repeats=1, **named)
        else:
            sites = self.sites
        native = bool(self.view.config.evaluator.options.get("native", True))
        faster = place(base, sites, self.assigned(candidate), native)
        chosen_seed = self.trained_seed(candidate, seed)
        if chosen_seed is not None:
            path = self.view.weights(candidate)[chosen_seed]
            self.view.check_file(path)
            load_weights(faster, path, candidate.id)
        else:
            _log.warning(
                "%s was no finalist: the weights of its operators are random; train the network before you use it",
                candidate.id,
            )
        if deterministic() or self.view.config.machine is not None:
            measured = False  # a choice by timing changes the last digits
        here = all(p.device.type == "cpu" for p in faster.parameters())
        inputs = in_dtype_of(faster, self.example if given is None else given)
        if measured and native and here:
            from syno.torch.images import fastest

            args, named = arguments(base, inputs)
            chosen = fastest(faster, *args, **named)
            _log.info("%s: %s", candidate.id, chosen.why)
            faster = chosen.network
        if compile and here:
            from syno.graph.serving import compiled_or_why

            with fixed_kernels(self.view.config.machine):
                made = compiled_or_why(
                    faster, inputs, threads=torch.get_num_threads(), derive=derive
                )
            if isinstance(made, str):
                _log.warning("%s runs layer by layer: %s", candidate.id, made)
            else:
                _log.info("%s: %s", candidate.id, repr(made)[1:-1])
        return faster.train(base.training)

    def trained_seed(self, candidate: Candidate, seed: int | None = None) -> int | None:
        """The seed of the trained weights that are used; ``None`` where the candidate was no finalist.

        Args:
            candidate: whose weights are wanted.
            seed: the one asked for; default the least of those that there are.
        Raises:
            SessionError: there are none of ``seed``.
        """
        trained = self.view.weights(candidate)
        if seed is not None and seed not in trained:
            raise SessionError(
                f"{candidate.id} has no trained weights of seed {seed}",
                fix=f"there are: {', '.join(map(str, sorted(trained))) or 'none (it was no finalist)'}",
                code="R012",
            )
        return seed if seed is not None else min(trained, default=None)

    def __repr__(self) -> str:
        more = "; interrupted: the same call again continues it" if self.interrupted else ""
        return f"Result of {self.view!r}{more}"

    def _repr_html_(self) -> str:
        return self.report._repr_html_()


def load_weights(model: nn.Module, path: Path, id: str) -> None:
    """Fills in trained weights. Raises SessionError where they are of another model."""
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    try:
        load_model(model, str(path))
    except (RuntimeError, SafetensorError, OSError) as error:
        said = " ".join(str(error).split())[:300]
        raise SessionError(
            f"the weights of {id} do not fit {type(model).__name__}: {said}",
            fix="give the model that was searched: the same layers at the same sizes",
            code="R012",
        ) from error


def in_dtype_of(model: nn.Module, example: Any) -> Any:
    """The example with its real numbers in the dtype that the model computes in."""
    import torch

    dtype = dtype_of(model)

    def cast(leaf: Any) -> Any:
        real = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.to(dtype) if real and dtype is not None else leaf

    return mapped(example, cast)


def report_of(view: SessionView) -> Report:
    """The report of an open session."""
    options = view.config.evaluator.options
    sites = options.get("stages", {})
    where = "; ".join(f"{name}: {', '.join(names)}" for name, names in sites.items())
    notes = [
        "A winner is named only where the lower end of the one-sided 95 % interval of the difference, over seeds and "
        "paired examples, is within what is allowed. Validation chose the finalists; test judges them.",
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
