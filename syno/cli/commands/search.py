"""``syno search`` and ``syno demo``: a search, and what is said at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from syno.cli.commands.options import (
    AsJson,
    MixTokens,
    Seed,
    SpaceFile,
    SpaceRules,
    SpaceSettings,
    Trust,
    check_budget,
    check_executor,
)
from syno.cli.common import Exit, interrupted, one_of, parsed_by, print_json, print_table, resumable
from syno.policies import DEFAULT_POLICY

Workers = Annotated[
    Optional[int],  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
    typer.Option(min=1, max=1024, help="Training processes; default: one a usable core."),
]


def _modes() -> tuple[str, ...]:
    from syno.support.live import MODES

    return MODES


def _policies() -> list[str]:
    from syno.searching.proposers import POLICIES

    return sorted(POLICIES)


def _shares(text: str) -> list[float]:
    """``"0.1,0.3"``: shares that ascend between 0 and 1. Raises BudgetError for another text."""
    from syno.errors import BudgetError

    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(a < b for a, b in zip([0.0, *shares], [*shares, 1.0], strict=True)):
        raise BudgetError(
            f"rungs {text!r} are not understood",
            fix="write shares of the steps that ascend between 0 and 1, such as '0.1,0.3'",
            code="B004",
        )
    return shares


def _finalists(text: str) -> int | dict[str, int]:
    """``"3"``, or ``"c7=8,baseline=8"``: seeds of each. Raises BudgetError for another text."""
    from syno.errors import BudgetError

    try:
        if "=" not in text:
            count = int(text)
            if count >= 0:
                return count
        else:
            named = {
                name.strip(): int(seeds)
                for name, _, seeds in (part.partition("=") for part in text.split(","))
            }
            if all(named) and all(seeds >= 1 for seeds in named.values()):
                return named
    except ValueError:
        pass
    raise BudgetError(
        f"finalists {text!r} are not understood",
        fix="write how many, such as '3', or which with how many seeds each, such as 'c7=8,baseline=8'",
        code="B005",
    )


def _latencies() -> tuple[str, ...]:
    from syno.searching.continuing import LATENCIES

    return LATENCIES


def _task_options(texts: list[str] | None) -> dict[str, Any]:
    from syno.cli.targets import task_options

    return task_options(texts or [])


def _targets(texts: list[str] | None) -> None:
    from syno.executors import check_targets

    check_targets(texts or [])


def _named_options(texts: list[str]) -> dict[str, Any]:
    from syno.cli.targets import task_options

    return task_options(texts)


def _executor_options(texts: list[str] | None) -> None:
    _named_options(texts or [])


def _seconds(text: str | None) -> None:
    from syno.session.budget import parse_seconds

    if text is not None:
        parse_seconds(text)


def _known(text: str | None) -> None:
    from syno.known import chosen

    chosen(text)


def _tracked(texts: list[str]) -> None:
    from syno.tracking import named

    for text in texts:
        named(text)


def _requirement(text: str) -> None:
    from syno.session import Prune
    from syno.session.require import required

    required(text, Prune())


Progress = Annotated[
    str, typer.Option(callback=one_of("progress", _modes), help="auto, bar, log or off.")
]
BudgetText = Annotated[
    str,
    typer.Option(
        callback=parsed_by(check_budget), help="'10min', '2h' or a number of candidates, '40'."
    ),
]


@resumable
def demo(
    output: Annotated[Path, typer.Option("-o", "--output", help="Session directory.")] = Path(
        "runs/demo"
    ),
    data: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Directory of Fashion-MNIST's four idx files."),
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Operators to train.")] = 12,
    seed: Seed = 0,
    workers: Workers = None,
    progress: Progress = "auto",
    json: AsJson = False,
) -> None:
    """The whole path on Fashion-MNIST: invent, train, rank, compile, swap, report. About five minutes."""
    from syno.demo import run_demo

    report = run_demo(
        output, data=data, candidates=candidates, seed=seed, workers=workers, progress=progress
    )
    _finish(report, output, json)


@resumable
def search(
    task: Annotated[
        str,
        typer.Argument(
            help="'package.module:function' or 'file.py:function' that returns a syno.Task, or a task of syno: "
            "cifar10, cifar100, digits, fashion-mnist, image-folder, text."
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Session directory.")],
    task_options: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "-O",
            "--task-option",
            callback=parsed_by(_task_options),
            help="Argument of the task's function, 'path=photos' or 'epochs=5'; repeat.",
        ),
    ] = None,
    budget: BudgetText = "10min",
    seed: Seed = 0,
    workers: Workers = None,
    executor: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=parsed_by(check_executor),
            help="Who trains: local (default), ray or ray://HOST:PORT (a Ray cluster), slurm, or 'package.module:make' of a "
            "concurrent.futures.Executor.",
        ),
    ] = None,
    executor_options: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "-E",
            "--executor-option",
            callback=parsed_by(_executor_options),
            help="Argument of the executor, 'memory=8GiB' or 'ship=photos'; repeat.",
        ),
    ] = None,
    target: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_targets),
            help="A further machine whose latencies are recorded, and who lends it: 'pi=ray' (nodes with the label syno-target=pi), "
            "'pi=ray,send=bundle' (a machine without torch), "
            "'pi=package.module:make,machine=pi.json'; repeat.",
        ),
    ] = None,
    trust_network: Annotated[
        bool,
        typer.Option(
            "--trust-network",
            help="Connect to ray://HOST:PORT in no private network without TLS: who is on the way can run code here.",
        ),
    ] = False,
    batch_width: Annotated[
        int,
        typer.Option(
            min=1,
            max=1 << 20,
            help="Candidates proposed together: at least as many as are trained at the same time. Decides the search.",
        ),
    ] = 4,
    track: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_tracked),
            help="Experiment tracker that watches: 'tensorboard:FOLDER', 'mlflow[:EXPERIMENT]' or 'wandb[:PROJECT]'; repeat.",
        ),
    ] = None,
    lag: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            max=1 << 20,
            help="Candidates under way while further ones are proposed, so that no worker waits for the slowest of a batch: "
            "at least twice as many as are trained at the same time. Decides the search.",
        ),
    ] = None,
    train_limit: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_seconds),
            help="End a training after this long: '90s', '2h'; default 1h, or as before.",
        ),
    ] = None,
    finalists: Annotated[
        str,
        typer.Option(
            callback=parsed_by(_finalists),
            help="Candidates trained again with more seeds: how many, '3', or which and with how many, 'c7=8,baseline=8'.",
        ),
    ] = "3",
    final_seeds: Annotated[
        int,
        typer.Option(min=1, max=1 << 20, help="Seeds of each finalist, and of the original."),
    ] = 3,
    groups: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(
            min=1,
            max=1 << 20,
            help="Search so many groups of layers, those with most multiply-adds; default all.",
        ),
    ] = None,
    policy: Annotated[
        str,
        typer.Option(
            callback=one_of("policy", _policies),
            help="Which operator to train next: bayesian, evolution, hypervolume, mcts, random.",
        ),
    ] = DEFAULT_POLICY,
    require: Annotated[
        str,
        typer.Option(
            callback=parsed_by(_requirement),
            help="Hard limits, before training as predicted, for finalists as measured: 'latency<=0.5x, flops<=0.8x'.",
        ),
    ] = "",
    latency: Annotated[
        str | None,
        typer.Option(
            callback=one_of("latency", _latencies),
            help="What decides what is proposed and pruned: predicted (default; repeats from the seed) or measured.",
        ),
    ] = None,
    rungs: Annotated[
        str | None,
        typer.Option(
            callback=parsed_by(_shares),
            help="Short trainings that come first, as shares of the steps: '0.1,0.3'. The best of each go on.",
        ),
    ] = None,
    combine: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            min=0.0,
            max=0.99,
            help="Share of the budget for networks with the best operators of several groups together; default 0.2.",
        ),
    ] = None,
    mix_tokens: MixTokens = False,
    space: SpaceFile = None,
    settings: SpaceSettings = None,
    rules: SpaceRules = None,
    known: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_known),
            help="Known operators to train beside those found: 'grouped,separable', 'all' or 'none'; "
            "default grouped,bottleneck,separable.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(help="Continue a session that exists (the default); --no-resume refuses."),
    ] = True,
    progress: Progress = "auto",
    trust: Trust = False,
    deterministic: Annotated[
        bool,
        typer.Option(
            "--deterministic",
            help="Kernels, and so results to the last digit, depend on program, machine file and seed only.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Searches operators for a task's model. Run it again to continue. Exit 3: nothing better is proven."""
    from syno.cli.spaces import asked
    from syno.errors import SessionError
    from syno.searching.pipeline import search_task
    from syno.session.budget import parse_seconds
    from syno.tracking import tracker

    if not resume and (output / "session.sqlite").exists():
        raise SessionError(
            f"[search] {output} holds a session; give another directory or drop --no-resume"
        )
    result = search_task(
        task,
        output,
        options=_task_options(task_options),
        budget=budget,
        seed=seed,
        workers=workers,
        executor=executor,
        executor_options={
            **_named_options(executor_options or []),
            **({"trust_network": True} if trust_network else {}),
        },
        targets=target,
        batch_width=batch_width,
        lag=lag,
        callbacks=[tracker(text) for text in track or []],
        finalists=_finalists(finalists),
        final_seeds=final_seeds,
        groups=groups,
        policy=policy,
        require=require,
        mix_tokens=mix_tokens,
        space=asked(settings or [], rules or [], space),
        known=known,
        timeout_s=None if train_limit is None else parse_seconds(train_limit),
        progress=progress,
        trust=trust,
        deterministic=deterministic,
        latency=latency,
        rungs=None if rungs is None else _shares(rungs),
        combine=combine,
    )
    _finish(result.report, output, json)


def _finish(report: Any, output: Path, json: bool) -> None:
    from syno.report import rows, write_report
    from syno.report.render import columns_of, side_by_side

    if report.ended == "interrupted":
        trained = sum(e.accuracy is not None for e in report.candidates)
        if json:
            print_json({"session": str(output), "ended": report.ended, "trained": trained})
        raise interrupted(f"{trained} candidates trained so far; 'syno status {output}' shows them")
    for name in ("report.html", "report.json"):
        write_report(report, output / name)
    if json:
        print_json(report)
    else:
        shown = columns_of(report, "mark", "verified", "formula")
        columns, heads = list(shown), ["id" if c == "id" else h for c, h in shown.items()]
        print_table(report.title, heads, [[row[c] for c in columns] for row in rows(report)])
        if beside := side_by_side(report):
            print_table("found beside known", list(beside[0]), [[*row.values()] for row in beside])
        typer.echo(report.conclusion)
        typer.echo(f"report: {output / 'report.html'}")
    if report.best is None:
        raise typer.Exit(Exit.NO_IMPROVEMENT)
