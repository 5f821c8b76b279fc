"""From a model to a faster model: sites, spaces, a session, finalists side by side.

:func:`search` is ``syno.search``; the command line uses :func:`search_task`.
"""

from __future__ import annotations

import copy
import dataclasses
import logging
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import KernelError, SessionError, ShapeError, SpecError, TaskError, unknown_name
from syno.executors import resolve
from syno.executors import targets as lent_by
from syno.policies import DEFAULT_POLICY
from syno.report.build import FINAL_FILE, FinalBench, read_final
from syno.report.details import operators_in_words
from syno.searching.network import Network, NetworkEvaluator, NetworkMeasurer
from syno.searching.result import EVALUATOR, IN_PROCESS, MEASURER, Result
from syno.searching.search_space import SearchSpace
from syno.session import (
    Budget,
    Component,
    Executor,
    InlineExecutor,
    Limits,
    Prune,
    Rung,
    Session,
    SessionView,
    Stage,
    open_view,
)
from syno.session.callbacks import as_callbacks
from syno.session.combining import SHARE
from syno.session.config import read_config
from syno.session.network_file import FILES as NETWORK_FILES
from syno.session.network_file import keep_network, read_network
from syno.session.original_file import FILES as ORIGINAL_FILES
from syno.session.original_file import First, drawn_anew, keep_original, read_original
from syno.session.protocols import EAGER, Callback
from syno.session.remarks import BEGINS_GIVEN
from syno.session.require import required
from syno.session.targets import Lent
from syno.session.trust import check_trust
from syno.support.arguments import checked
from syno.support.files import write_whole
from syno.support.inputs import arguments, as_inputs, size, unwrapped
from syno.support.machine import describe_machine
from syno.support.numbers import MOST_SEED, MOST_THREADS, whole
from syno.support.streams import Stream
from syno.training.tasks import Task
from syno.training.train import TrainResult, judge

if TYPE_CHECKING:
    from torch import nn

    from syno.searching.space import Space
    from syno.torch import Site, SiteGroup, Sites

_log = logging.getLogger("syno.searching.pipeline")
_PROPOSER = "syno.searching.proposers:make"

#: What may decide which operators are proposed, pruned and chosen.
LATENCIES = ("predicted", "measured")

#: Candidates proposed together, unless something else is asked for.
BATCH_WIDTH = 4

#: Greatest number of finalists, seeds, groups and the like that a caller may ask for.
MOST_COUNT = 1 << 20

#: Layers with fewer channels than this leave an operator nothing to group or reduce: stems and heads.
LEAST_CHANNELS = 8

#: ... and with a smaller part of the network's multiply-adds than this, little to win.
LEAST_SHARE = 0.02


@checked(
    but=(
        "seed",
        "workers",
        "finalists",
        "final_seeds",
        "batch_width",
        "lag",
        "groups",
        "max_steps",
        "budget",
    )
)
def search(
    model: nn.Module,
    example: Any,
    *,
    data: Task | str | tuple[Iterable[Any], Iterable[Any]],
    sites: Sites | None = None,
    budget: str | int | Budget = "10min",
    session: str | Path = "runs/search",
    seed: int = 0,
    policy: str = DEFAULT_POLICY,
    flops_ratio: float = 0.9,
    min_flops_ratio: float = 0.15,
    params_ratio: float | None = None,
    max_steps: int | None = None,
    groups: int | None = None,
    mix_tokens: bool = False,
    space: Space | str | Path | Mapping[str, Any] | None = None,
    known: str | Sequence[str] | None = None,
    finalists: int | Mapping[str, int | Sequence[int]] = 3,
    final_seeds: int = 3,
    batch_width: int = BATCH_WIDTH,
    lag: int | None = None,
    workers: int | None = None,
    executor: Any = None,
    targets: Mapping[str, Any] | Sequence[str] | None = None,
    native: bool = True,
    pretrained: bool | None = None,
    require: str = "",
    prune: Prune | None = None,
    latency: str | None = None,
    rungs: Sequence[float | Rung] | None = None,
    combine: float | None = None,
    timeout_s: float | None = None,
    callbacks: Any = None,
    progress: str = "auto",
    trust: bool = False,
    deterministic: bool = False,
    **recipe: Any,
) -> Result:
    """Searches operators for the layers of ``model``, trains, times and ranks them.

    The session's directory is created, or resumed if it exists; Ctrl-C leaves it resumable and returns
    what there is (:attr:`Result.interrupted` says so). A group of sites whose space has no operator is skipped,
    which the result's report says.

    Args:
        model: is not changed. Float32, float64, bfloat16 and half models are searched in their own dtype.
        example: inputs of one call, ``[N, ...]``; latencies are at its batch size N. A tensor or NumPy array,
            a tuple of several, or a dictionary of named ones.
        data: ``(train_loader, validation_loader)`` of ``(inputs, targets)`` batches, inputs like the example,
            tensors or NumPy arrays; a :class:`Task`, or ``"module:function"`` of one. A name lets workers train in processes of their own; objects
            are trained in this process, one after the other.
        sites: the layers to replace; default all convolutions and linear layers with at least
            8 channels either way and 2 % of the multiply-adds.
        budget: ``"10min"``, ``"2h"``, a number of candidates, or a :class:`Budget`.
        session: directory that everything is kept in: operators, weights, what was measured. It is made, or gone on with.
        seed: of all that is drawn: proposals, first weights, the order of data. The same seed, budget in candidates and machine
            file search the same.
        policy: which operator to train next, by name: ``"bayesian"`` (a surrogate over structural features;
            needs the fewest trainings), ``"evolution"``, ``"hypervolume"`` (the same surrogate for quality and
            speed apart, to extend their front), ``"mcts"`` (the paper's tree search) or ``"random"``.
        require: hard limits, such as ``"latency<=0.5x"`` of the original network's latency, ``"flops<=0.8x,
            params<=1x"``; over those of ``prune``. They are kept before any training by what is predicted, and by
            finalists as measured.
        prune: when a candidate is given up early; default also before training, when its network is
            slower than the original.
        latency: what decides which operators are proposed, pruned and chosen. ``"predicted"`` (default): latencies that
            follow from programs and the machine file at the session's beginning (:mod:`syno.timing.predicting`), so that the
            same seed and file search the same whatever the machine does meanwhile; measured latencies, of the whole network
            compiled as :meth:`Found.apply` gives it, in turns with the original, decide the finalists and the verdict.
            ``"measured"``: the network's, which repeats from the session's record only.
        rungs: shares of the steps, such as ``(0.1, 0.3)``, of short trainings that come before whole ones: every candidate is
            trained on the first, the best quarter and some at random go on; see :class:`syno.session.Rung`. What ranks
            of a rung are worth is in ``status`` and the report. Default: every candidate is trained as a whole.
        combine: where several groups of layers are searched, the share of the budget for networks that have the best
            operators of different groups together, trained as candidates of their own; default a fifth.
        flops_ratio, min_flops_ratio, params_ratio: of an operator against the layers it replaces. The
            least FLOPs are the paper's (0.15): below them, operators without any window crowd out
            the others.
        max_steps: most primitives of an operator; default 12, more where layers stride or see volumes, at most 16.
        groups: most groups of sites to search, those with the most multiply-adds first; default all.
        mix_tokens: lets operators in place of linear layers mix tokens (or patches), which the layers do not: a
            causal model then sees the future. Default: they treat every token alike.
        space: settings over those that follow from the layers, such as ``{"extensions": ["depthwise"],
            "rules": {"pools-too-much": False}, "max_steps": 10}`` (see :meth:`Space.with_`); or a
            :class:`Space`, its file or its name, for the group of layers it was made from, else all groups that
            have its shapes: the other layers stay, and the ratios count for nothing; or both: ``{"spec":
            "a.json", "max_steps": 10}``. Default: as in the session that is there.
        known: operators that people have named, to be trained and timed beside those found, at the values that the
            layers' sizes allow: names of :data:`syno.known.NAMES`, ``"all"`` or ``()``; default grouped, bottleneck
            and separable, or as before. They take a quarter of the trainings at most, and what they are worth is told to
            the policy. What turns out to be a known operator is called so in any case.
        finalists, final_seeds: the best are trained again, with the original, on that many new seeds; or those that are
            named, each on so many seeds: ``finalists={"c7": 8, "c3": 3, "baseline": 8}``.
        batch_width: candidates proposed together; decides the search, ``workers`` does not.
        lag: candidates that may be under way while further ones are proposed, so that no worker waits for the slowest of
            a batch: at least twice as many as are trained at the same time, and more keep more of them at work, who learn
            later. Decides the search, as ``batch_width`` does. Needs predicted latencies; latencies are then measured
            when a group of layers was searched, of candidates that were trained to their end. Default: none, or as before.
        native: train on native kernels, else on emitted PyTorch functions. Timing is always native.
        pretrained: whether every training, the original's too, begins with the model's weights, operators fitted to
            the layers they replace (:mod:`syno.training.fitting`); else with freshly drawn ones. Default: with the
            model's where ``data`` is loaders, with what the task's model function returns where it is a task.
        workers: processes that train at the same time; default one a usable core.
        executor: who trains, by name or as :mod:`syno.executors` makes it: ``"local"`` (default: ``workers`` processes of this
            machine), ``"package.module:make"`` of a :class:`concurrent.futures.Executor`, or such a pool. It decides
            nothing; give a ``lag``, or a ``batch_width`` of at least as many candidates as it trains at the same time. Latencies are this
            machine's. Needs ``data`` by name.
        targets: further machines whose latencies are recorded, and who lends them: ``{"pi": "ray"}`` (the nodes with the label
            ``syno-target=pi``), or see :func:`syno.executors.targets`. All networks trained to the end are timed there, before
            finalists are trained; ``best(target="pi")``, a front, a column each. They decide nothing of the search, and
            may be added to a session that is there. Needs ``data`` by name.
        timeout_s: seconds after which one training is ended and counts as failed; default an hour. It and
            ``workers`` stay as they are in a session that goes on, unless they are given again.
        callbacks: watch the search: a function ``(what, candidate, view)``, an object with methods such as
            ``on_trained(candidate, view)``, or a list of them. ``what`` is one of
            :data:`syno.session.callbacks.EVENTS`, ``candidate`` the one it is about or None, ``view`` the session, to be
            read. What they raise ends the search and reaches the caller; the session notes it and stays resumable.
            KeyboardInterrupt ends it as Ctrl-C does.
        progress: ``"bar"``, ``"log"`` (lines on standard error), ``"off"``, or ``"auto"``: as ``SYNO_PROGRESS`` says, else a bar
            where somebody watches, and lines elsewhere.
        trust: a session that is there is resumed though it was made by somebody else, or by an older syno: it
            names what is imported, which is printed.
        deterministic: kernels depend on program, machine file and seed only (see :mod:`syno.config`); the machine
            model is kept in the session, and going back to a candidate uses the same.
        recipe: fields of :class:`Task` to replace (``epochs=5``, ``loss="mse"``; the metric follows the loss).
    Raises:
        ShapeError: the model has nothing to replace.
        BudgetError: ``budget`` or ``require`` is not understood.
        SpecError: no space of operators fits the sites, or ``space`` fits none of them or contradicts itself.
        UnknownName: a policy, or a setting of ``space``, that does not exist.
        SessionError: the session was made with other settings.
        TrustError: the session was made by somebody else.
        TaskError: model, data and loss do not fit together, or there is no device as ``recipe`` names.
    """
    runner, lent = resolve(executor), lent_by(targets)
    _check_numbers(
        seed=(seed, 0, MOST_SEED),
        workers=(workers, 1, MOST_THREADS),
        finalists=(len(finalists) if isinstance(finalists, Mapping) else finalists, 0, MOST_COUNT),
        final_seeds=(final_seeds, 1, MOST_COUNT),
        batch_width=(batch_width, 1, MOST_COUNT),
        lag=(lag, 1, MOST_COUNT),
        groups=(groups, 1, MOST_COUNT),
        max_steps=(max_steps, 1, MOST_COUNT),
    )
    allowed = Budget.parse(budget)
    watchers = as_callbacks(callbacks)
    model, example = unwrapped(model), as_inputs(example)
    reference, task, first = _task_of(model, data, pretrained, recipe, Path(session))
    _require_device(task, runner)
    if reference is None and not isinstance(runner, int | None):
        raise SessionError(
            "an executor trains elsewhere, and data were given as objects of this process",
            fix="give data='package.module:function' of a syno.Task, which other processes can make",
            code="R020",
        )
    if reference is None and targets:
        raise SessionError(
            "targets time networks elsewhere, and data were given as objects of this process",
            fix="give data='package.module:function' of a syno.Task, which other processes can make",
            code="R020",
        )
    if sites is None:
        sites = default_sites(model, example)
    asked = (
        SearchSpace(
            policy, flops_ratio, min_flops_ratio, params_ratio, max_steps, groups, mix_tokens
        )
        .asked(space, Path(session))
        .with_known(known, Path(session))
    )
    return _run(
        task,
        reference,
        {} if reference is None else recipe,
        stored_plan(Path(session), trust=trust) or plan_stages(sites.groups(), asked),
        asked,
        Path(session),
        batch=size(example),
        budget=allowed,
        seed=seed,
        finalists=finalists,
        final_seeds=final_seeds,
        batch_width=batch_width,
        lag=lag,
        workers=workers,
        runner=runner,
        lent=lent,
        native=native,
        prune=required(require, prune or DEFAULT_PRUNE),
        timeout_s=timeout_s,
        callbacks=watchers,
        progress=progress,
        trust=trust,
        deterministic=deterministic,
        latency=latency,
        rungs=rungs,
        combine=combine,
        note="syno.search(...)",
        first=first,
        given=model,
    )


def _check_numbers(**numbers: tuple[object, int, int]) -> None:
    """Holds each ``(value, least, most)`` against its range, before any work; ``None`` is what may be left out."""
    for name, (value, least, most) in numbers.items():
        try:
            if value is not None:
                whole("search", name, value, least, most)
        except KernelError as error:
            raise SessionError(
                str(error).removeprefix("[search] "),
                fix=f"give a whole number from {least} to {most}",
                code="R017",
            ) from None


@checked(
    but=(
        "seed",
        "workers",
        "finalists",
        "final_seeds",
        "batch",
        "batch_width",
        "lag",
        "groups",
        "max_steps",
    )
)
def search_task(
    reference: str,
    directory: Path,
    *,
    options: Mapping[str, Any] | None = None,
    budget: str | int | Budget,
    seed: int = 0,
    workers: int | None = None,
    executor: Any = None,
    executor_options: Mapping[str, Any] | None = None,
    targets: Mapping[str, Any] | Sequence[str] | None = None,
    finalists: int | Mapping[str, int | Sequence[int]] = 3,
    final_seeds: int = 3,
    batch: int = 1,
    groups: int | None = None,
    policy: str = DEFAULT_POLICY,
    flops_ratio: float = 0.9,
    min_flops_ratio: float = 0.15,
    max_steps: int | None = None,
    mix_tokens: bool = False,
    space: Space | str | Path | Mapping[str, Any] | None = None,
    known: str | Sequence[str] | None = None,
    batch_width: int = BATCH_WIDTH,
    lag: int | None = None,
    native: bool = True,
    require: str = "",
    prune: Prune | None = None,
    latency: str | None = None,
    rungs: Sequence[float | Rung] | None = None,
    combine: float | None = None,
    timeout_s: float | None = None,
    callbacks: Any = None,
    progress: str = "auto",
    command: str | None = None,
    trust: bool = False,
    deterministic: bool = False,
) -> Result:
    """:func:`search` for a task by name: its model, its data, its example.

    Raises:
        TaskError: the task cannot be made in a fresh process.
        TrustError: the session that is there was made by somebody else.
    """
    from syno.training.tasks import load_task

    runner = resolve(executor, executor_options)
    lent = lent_by(targets, **_trusted(executor_options))
    _check_numbers(
        seed=(seed, 0, MOST_SEED),
        workers=(workers, 1, MOST_THREADS),
        finalists=(len(finalists) if isinstance(finalists, Mapping) else finalists, 0, MOST_COUNT),
        final_seeds=(final_seeds, 1, MOST_COUNT),
        batch=(batch, 1, MOST_COUNT),
        batch_width=(batch_width, 1, MOST_COUNT),
        lag=(lag, 1, MOST_COUNT),
        groups=(groups, 1, MOST_COUNT),
        max_steps=(max_steps, 1, MOST_COUNT),
    )
    watchers = as_callbacks(callbacks)
    task = load_task(reference, dict(options or {}))
    _require_device(task, runner)
    asked = (
        SearchSpace(policy, flops_ratio, min_flops_ratio, None, max_steps, groups, mix_tokens)
        .asked(space, directory)
        .with_known(known, directory)
    )
    plan = stored_plan(directory, trust=trust)
    if plan is None:
        sites = default_sites(task.make_model(seed), task.example(batch))
        plan = plan_stages(sites.groups(), asked)
    if command is None and asked.given and asked.origin is None:
        # Nothing on the command line is this space.
        command = f"syno.searching.pipeline.search_task({reference!r}, ..., space=Space)"
        if (directory / "session.toml").exists():
            command = read_config(directory / "session.toml").note or command
    if command is None:
        command = (
            f"syno search {shlex.quote(reference)} -o {shlex.quote(str(directory))} --seed {seed}"
        )
        for name, value in (options or {}).items():
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            command += f" -O {shlex.quote(f'{name}={text}')}"
        if not isinstance(budget, Budget):
            command += f" --budget {shlex.quote(str(budget))}"
        if isinstance(finalists, int) and finalists != 3:
            command += f" --finalists {finalists}"
        if policy != DEFAULT_POLICY:
            command += f" --policy {policy}"
        if batch_width != BATCH_WIDTH:
            command += f" --batch-width {batch_width}"
        if lag is not None:
            command += f" --lag {lag}"
        if require:
            command += f" --require {shlex.quote(require)}"
        if timeout_s is not None:
            command += f" --train-limit {timeout_s:g}s"
        command += " --mix-tokens" if mix_tokens else ""
        for word in asked.words():
            command += f" {shlex.quote(word)}"
        command += " --deterministic" if deterministic else ""
        command += f" --latency {latency}" if latency is not None else ""
        command += f" --combine {combine:g}" if combine is not None else ""
        if rungs is not None:
            command += " --rungs " + ",".join(f"{rung.share:g}" for rung in _rungs(rungs) or ())
    return _run(
        task,
        reference,
        dict(options or {}),
        plan,
        asked,
        directory,
        batch=batch,
        budget=budget,
        seed=seed,
        finalists=finalists,
        final_seeds=final_seeds,
        batch_width=batch_width,
        lag=lag,
        workers=workers,
        runner=runner,
        lent=lent,
        native=native,
        prune=required(require, prune or DEFAULT_PRUNE),
        timeout_s=timeout_s,
        callbacks=watchers,
        progress=progress,
        trust=trust,
        deterministic=deterministic,
        latency=latency,
        rungs=rungs,
        combine=combine,
        note=command,
    )


def default_sites(model: nn.Module, example: Any) -> Sites:
    """The layers worth replacing: enough channels to work with, and enough of the multiply-adds to matter.

    The same layers at every run: measured times decide nothing.

    Raises:
        ShapeError: there is none.
    """
    from syno.torch import sites

    found = sites(model, example)
    whole = sum(site.flops for site in found)
    worth = found.where(predicate=lambda site: not why_not_worth(site, whole))
    if not len(worth):
        refused = [f"{site.name or 'the model'}: {site.reason}" for site in found if site.reason]
        why = f" Of those that cannot: {'; '.join(refused[:3])}." if refused else ""
        raise ShapeError(
            f"[search] none of the {len(found)} layers of the model is worth replacing: each has fewer "
            f"than {LEAST_CHANNELS} channels, under {LEAST_SHARE:.0%} of the multiply-adds, or cannot be replaced.{why} "
            "Give sites=syno.sites(model, x).where(...) to choose yourself"
        )
    return worth


def why_not_worth(site: Site, whole: int) -> str:
    """Why a layer is not searched unless it is asked for; empty for one that is. ``whole``: the network's multiply-adds."""
    if not site.replaceable or site.layer is None:
        return site.reason or "it is no layer"
    if min(site.layer.in_channels, site.layer.out_channels) < LEAST_CHANNELS:
        return f"fewer than {LEAST_CHANNELS} channels"
    if site.flops < LEAST_SHARE * whole:
        return f"less than {LEAST_SHARE:.0%} of the multiply-adds"
    return ""


#: A network slower than the original is no answer, however accurate; the rest is noise of one measurement.
DEFAULT_PRUNE = Prune(max_latency_ratio=1.05)

#: Each stage with the names of its sites.
Plan = list[tuple[Stage, list[str]]]


def plan_stages(groups: Sequence[SiteGroup], space: SearchSpace) -> Plan:
    """One stage a group of sites, the most multiply-adds first; several of a group that has no space for all of its sites.

    The session skips those whose space is empty or contradicts itself. Raises SpecError where all do.
    """
    from syno.searching.proposers import POLICIES, space_problem

    if space.policy not in POLICIES:
        raise unknown_name("policy", space.policy, POLICIES)
    if not groups:
        raise SpecError("[search] no group of sites to search; give sites that can be replaced")
    plan = []
    whole = sum(group.flops for group in groups)
    known: dict[str, str | None] = {}

    def problem_of(spec: str) -> str | None:
        if spec not in known:
            known[spec] = space_problem(spec)
        return known[spec]

    for group, spec in space.chosen(groups, problem_of):
        options: dict[str, Any] = {"spec": spec, "policy": space.policy}
        beside = space.beside(group, spec)
        options |= {} if beside is None else {"known": beside}
        stage = Stage(
            name=group.key,
            proposer=Component(reference=_PROPOSER, options=options),
            share=max(group.flops / whole, 1e-6),
        )
        plan.append((stage, [site.name for site in group.sites]))
    problems = []
    for stage, _ in plan:
        problem = problem_of(str(stage.proposer.options["spec"]))
        if problem is None:
            return plan
        problems.append(f"{stage.name}: {problem}")
    raise SpecError("[search] no group has a space with operators. " + " ".join(problems))


def stored_plan(directory: Path, *, trust: bool = False) -> Plan | None:
    """The plan of the session that is there; it does not depend on how the layers' times fall today.

    Raises:
        TrustError: the session was made by somebody else: its plan names what is imported.
    """
    path = directory / "session.toml"
    if not path.exists():
        return None
    config = read_config(path)
    check_trust(directory, config, trust=trust)
    sites = config.evaluator.options.get("stages", {})
    return [(stage, list(sites.get(stage.name, []))) for stage in config.stages]


def _task_of(
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


def _fit_of(directory: Path, task: Task, first: First | None) -> int:
    """Batches that operators are fitted on: where trainings begin with what a model has learned, and as in the session
    that is there."""
    from syno.training.fitting import STEPS

    path = directory / "session.toml"
    if path.exists():
        return int(read_config(path).evaluator.options.get("fit", 0))
    if first is None:
        first = "kept" if _begins_alike(task) else "task"
    return STEPS if first == "kept" else 0


def _mixing_of(directory: Path, space: SearchSpace) -> str:
    """What becomes of networks that mix tokens; as in the session that is there."""
    path = directory / "session.toml"
    if not path.exists():
        return "tell" if space.mix_tokens else "refuse"
    measurer = read_config(path).measurer
    return "" if measurer is None else str(measurer.options.get("mixing", ""))


def _compiled_in(directory: Path) -> bool:
    """Whether latencies are those of compiled networks: in new sessions, and where the session that is there has them."""
    path = directory / "session.toml"
    if not path.exists():
        return True
    measurer = read_config(path).measurer
    return measurer is not None and bool(measurer.options.get("compiled", False))


def _begins_alike(task: Task) -> bool:
    """Whether a task's model function returns the same weights whatever is drawn: somebody trained them."""
    model = task.make_model(task.seeds[0])
    other = task.make_model(task.seeds[0] + 1)
    return _same_state(model, other)


def _limits(directory: Path, asked: Mapping[str, float | None]) -> Limits:
    """The limits of the session that is there, or the usual ones, with those replaced that were asked for."""
    path = directory / "session.toml"
    before = read_config(path).limits if path.exists() else Limits()
    given = {name: value for name, value in asked.items() if value is not None}
    return msgspec.structs.replace(before, **given)


def _fixed_machine(directory: Path, asked: bool) -> str | None:
    """The machine file of a deterministic session: the one it was begun with, else today's."""
    from syno.config import config, deterministic
    from syno.machines.model import machine_model

    if not asked and not deterministic():
        return None
    path = directory / "session.toml"
    if path.exists() and (kept := read_config(path).machine) is not None:
        return kept
    with config(deterministic="1"):
        return machine_model().to_json()


def _predicted_on(directory: Path, latency: str | None, fixed: str | None) -> str | None:
    """The machine file that latencies are predicted from: the one the session was begun with, else today's.

    Raises:
        UnknownName: ``latency`` is neither predicted nor measured.
        SessionError: the session that is there goes by the other one.
    """
    from syno.machines.model import machine_model

    if latency not in (None, *LATENCIES):
        raise unknown_name("latency", latency, LATENCIES)
    path = directory / "session.toml"
    if path.exists():
        kept = read_config(path).predicted_on
        before = LATENCIES[kept is None]
        if latency not in (None, before):
            raise SessionError(
                f"{directory} was begun with latency={before!r}; {latency!r} was asked for",
                fix="use another directory, or leave latency as it was",
                code="R003",
            )
        return kept
    if latency == "measured":
        return None
    return machine_model().to_json() if fixed is None else fixed


def _combined(directory: Path, asked: float | None) -> float | None:
    """The share of combinations: as in the session that is there, else what was asked for, or the usual one."""
    path = directory / "session.toml"
    if asked is not None:
        return asked
    return read_config(path).combine if path.exists() else SHARE


def _trusted(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """What was said of the network holds for whoever lends targets, too."""
    return {n: v for n, v in (options or {}).items() if n == "trust_network"}


def _rungs(given: Sequence[float | Rung] | None) -> list[Rung] | None:
    """Rungs by their shares alone, or as they are."""
    if given is None:
        return None
    return [rung if isinstance(rung, Rung) else Rung(share=float(rung)) for rung in given]


def _run(
    task: Task,
    reference: str | None,
    task_options: dict[str, Any],
    plan: Plan,
    space: SearchSpace,
    directory: Path,
    *,
    batch: int,
    budget: str | int | Budget,
    seed: int,
    finalists: int | Mapping[str, int | Sequence[int]],
    final_seeds: int,
    batch_width: int,
    lag: int | None,
    workers: int | None,
    runner: Executor | int | None,
    lent: Mapping[str, Lent],
    native: bool,
    prune: Prune,
    timeout_s: float | None,
    callbacks: Sequence[Callback],
    progress: str,
    trust: bool,
    deterministic: bool,
    latency: str | None,
    rungs: Sequence[float | Rung] | None,
    combine: float | None,
    note: str,
    first: First | None = None,
    given: nn.Module | None = None,
) -> Result:
    allowed = Budget.parse(budget)
    stages = {stage.name: sites for stage, sites in plan}
    options: dict[str, Any] = {"stages": stages, "batch": batch}
    if reference is None:
        options["task"] = f"{IN_PROCESS} {task.name}"
    else:
        options["task"] = reference
        options["task_options"] = dict(task_options)
    if not (directory / "session.sqlite").exists():
        _check(task)
    fit = _fit_of(directory, task, first)
    network = NetworkEvaluator(task, stages=stages, batch=batch, native=native, fit=fit)
    mixing = _mixing_of(directory, space)
    compiled = _compiled_in(directory)
    timing: dict[str, Any] = {"mixing": mixing} if mixing else {}
    timing |= {"compiled": True} if compiled else {}
    executor: Executor | None = None
    if isinstance(runner, int):
        workers = runner or workers
    elif runner is not None:
        executor = runner
    if reference is None:
        measurer = NetworkMeasurer(
            task, stages=stages, batch=batch, mixing=mixing, compiled=compiled
        )
        executor = InlineExecutor({EVALUATOR: network, MEASURER: measurer})
    machine = _fixed_machine(directory, deterministic)
    limits = _limits(directory, {"workers": workers, "train_limit_s": timeout_s})
    session = Session.open(
        directory,
        stages=[stage for stage, _ in plan],
        evaluator=Component(
            reference=EVALUATOR,
            options={**options, "native": native, **({"fit": fit} if fit else {})},
        ),
        measurer=Component(reference=MEASURER, options={**options, **timing}),
        seed=seed,
        batch_width=batch_width,
        lag=lag,
        prune=prune,
        space=space.recorded(),
        rungs=_rungs(rungs),
        combine=_combined(directory, combine),
        limits=limits,
        note=note,
        machine=machine,
        predicted_on=_predicted_on(directory, latency, machine),
        targets={name: one.machine for name, one in lent.items()} or None,
        trust=trust,
    )
    try:
        _keep(session, network, reference is not None, first)
        _keep_recipe(session, task, fit)
        parts = ("validation", "test") if finalists else ("validation",)
        summary = session.run(
            budget=allowed,
            finalists=finalists,
            final_seeds=final_seeds,
            executor=executor,
            callbacks=callbacks,
            progress=progress,
            given=lambda: _judged(
                task, given, parts, seed=seed, threads=session.config.threads_per_training
            ),
            compare=lambda: compare_finalists(session, network),
            targets=lent,
        )
        if not summary.interrupted:
            session.record_words(operators_in_words(session))
    finally:
        session.close()
        for one in [executor, *(each.executor for each in lent.values())]:
            if one is not None:
                one.close()
    return Result(open_view(directory), network)


def _keep(session: Session, network: Network, named: bool, first: First | None) -> None:
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


def _keep_recipe(session: Session, task: Task, fit: int) -> None:
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


def _judged(
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


def _require_device(task: Task, runner: object) -> None:
    """Raises TaskError where trainings run on this machine and it has no such device as the task names."""
    if runner is None or isinstance(runner, int):
        task.here()


def _check(task: Task) -> None:
    """Runs model and loss on a batch before any work starts; what that draws changes nothing else."""
    from syno.training.tasks import check_task

    with Stream("check", of=[task.train, task.validation, task.test]):
        check_task(task)


def compare_finalists(view: SessionView, network: Network) -> None:
    """Times finalists and original in turns, each as it will be used: compiled whole where it can be. Beside them the
    original in eager and under ``torch.compile``. Kept in the session."""
    known = read_final(view)
    finalists = view.trained_again()
    if not finalists:
        return
    if known is not None and {"baseline", *(c.id for c in finalists)} == set(known.latencies_us):
        return
    from syno.graph.serving import compiled_or_why
    from syno.training.train import torch_threads

    threads = view.config.threads_per_measurement
    result = Result(view, network)
    original = network.task.make_model(network.task.seeds[0]).eval()
    example = network.task.example(network.batch)
    with torch_threads(threads):
        models, runners = {"baseline": original}, {}
        if view.compiles:
            models["baseline"] = copy.deepcopy(original)
            made = compiled_or_why(models["baseline"], example, threads=threads)
            runners["baseline"] = f"layers: {made}" if isinstance(made, str) else "compiled"
        for candidate in finalists:
            faster = result.apply(candidate, compile=False).eval()
            if view.compiles:
                made = compiled_or_why(faster, example, threads=threads)
                runners[candidate.id] = f"layers: {made}" if isinstance(made, str) else "compiled"
            models[candidate.id] = faster
    from syno.timing.bench import bench

    args, named = arguments(original, example)
    eager = EAGER if runners.get("baseline") == "compiled" else "baseline"
    peers = {EAGER: original} if eager == EAGER else {}
    timed = bench({**models, **peers}, *args, named=named, compile=eager, threads=threads)
    own = {name: timed[name] for name in models}
    by_torch = {
        "baseline" if label == f"{eager}, torch.compile" else label: timed[label].median_us
        for label in timed
        if label.endswith(", torch.compile")
    }
    final = FinalBench(
        latencies_us={name: timing.median_us for name, timing in own.items()},
        iqrs_us={name: timing.iqr_us for name, timing in own.items()},
        speedups={name: timing.speed_up for name, timing in own.items()},
        speedup_iqrs={name: timing.speed_up_iqr for name, timing in own.items()},
        samples=min(timing.samples for timing in own.values()),
        compiled_us=by_torch,
        skipped={name.replace(EAGER, "baseline"): why for name, why in timed.skipped.items()},
        threads=threads,
        batch=network.batch,
        runners=runners,
        eager_us=timed[EAGER].median_us if peers else None,
        note=next((timing.note for timing in own.values() if timing.note), ""),
        machine=describe_machine(),
    )
    text = msgspec.json.format(msgspec.json.encode(final), indent=1).decode()
    write_whole(view.directory / FINAL_FILE, text + "\n")
    view.record_file(view.directory / FINAL_FILE)
