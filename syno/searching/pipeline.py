"""From a model to a faster model: sites, spaces, a session, finalists side by side.

:func:`search` is ``syno.search``; the command line uses :func:`search_task`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from syno.errors import KernelError, SessionError
from syno.executors import resolve
from syno.executors import targets as lent_by
from syno.policies import DEFAULT_POLICY
from syno.report.details import operators_in_words
from syno.searching.beginning import fit_of, judged, keep, keep_recipe, task_of
from syno.searching.continuing import (
    combined,
    compiled_in,
    fixed_machine,
    limits_of,
    mixing_of,
    predicted_on,
)
from syno.searching.finalists import compare_finalists
from syno.searching.network import NetworkEvaluator, NetworkMeasurer
from syno.searching.plan import Plan, default_sites, plan_stages, stored_plan
from syno.searching.result import EVALUATOR, IN_PROCESS, MEASURER, Result
from syno.searching.search_space import SearchSpace
from syno.session import (
    Budget,
    Component,
    Executor,
    InlineExecutor,
    Prune,
    Rung,
    Session,
    open_view,
)
from syno.session.callbacks import as_callbacks
from syno.session.config import read_config
from syno.session.original_file import First
from syno.session.protocols import Callback
from syno.session.require import required
from syno.session.targets import Lent
from syno.support.arguments import checked
from syno.support.inputs import as_inputs, size, unwrapped
from syno.support.numbers import MOST_SEED, MOST_THREADS, whole
from syno.support.streams import Stream
from syno.training.task import Task

if TYPE_CHECKING:
    from torch import nn

    from syno.searching.space import Space
    from syno.torch import Sites

#: Candidates proposed together, unless something else is asked for.
BATCH_WIDTH = 4

#: Greatest number of finalists, seeds, groups and the like that a caller may ask for.
MOST_COUNT = 1 << 20

#: A network slower than the original is no answer, however accurate; the rest is noise of one measurement.
DEFAULT_PRUNE = Prune(max_latency_ratio=1.05)


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
        max_steps: most primitives of an operator; default 12, more where layers stride or see volumes, at most 18.
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
    reference, task, first = task_of(model, data, pretrained, recipe, Path(session))
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
        elif isinstance(finalists, Mapping) and all(isinstance(n, int) for n in finalists.values()):
            named = ",".join(f"{name}={seeds}" for name, seeds in finalists.items())
            command += f" --finalists {shlex.quote(named)}"
        if final_seeds != 3:
            command += f" --final-seeds {final_seeds}"
        if groups is not None:
            command += f" --groups {groups}"
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
    fit = fit_of(directory, task, first)
    network = NetworkEvaluator(task, stages=stages, batch=batch, native=native, fit=fit)
    mixing = mixing_of(directory, space)
    compiled = compiled_in(directory)
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
    machine = fixed_machine(directory, deterministic)
    limits = limits_of(directory, {"workers": workers, "train_limit_s": timeout_s})
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
        combine=combined(directory, combine),
        limits=limits,
        note=note,
        machine=machine,
        predicted_on=predicted_on(directory, latency, machine),
        targets={name: one.machine for name, one in lent.items()} or None,
        trust=trust,
    )
    try:
        keep(session, network, reference is not None, first)
        keep_recipe(session, task, fit)
        parts = ("validation", "test") if finalists else ("validation",)
        summary = session.run(
            budget=allowed,
            finalists=finalists,
            final_seeds=final_seeds,
            executor=executor,
            callbacks=callbacks,
            progress=progress,
            given=lambda: judged(
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


def _require_device(task: Task, runner: object) -> None:
    """Raises TaskError where trainings run on this machine and it has no such device as the task names."""
    if runner is None or isinstance(runner, int):
        task.here()


def _check(task: Task) -> None:
    """Runs model and loss on a batch before any work starts; what that draws changes nothing else."""
    from syno.training.checking import check_task

    with Stream("check", of=[task.train, task.validation, task.test]):
        check_task(task)
