"""The ``syno`` command. Only typer is imported here: ``syno --help`` must be instant."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from syno.cli.common import (
    Exit,
    guarded,
    interrupted,
    one_of,
    parsed_by,
    print_json,
    print_table,
    resumable,
    suffix_of,
    target_cpu,
)
from syno.cli.derive import derive
from syno.cli.networks import compile_network
from syno.policies import DEFAULT_POLICY

app = typer.Typer(
    name="syno",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Invents linear operators for a neural network and compiles them to native kernels.",
)
cache_app = typer.Typer(no_args_is_help=True, help="The cache of compiled kernels.")
app.add_typer(cache_app, name="cache")

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
SessionDir = Annotated[Path, typer.Argument(help="Session directory.")]
CandidateId = Annotated[str, typer.Argument(help="Candidate, as 'syno status' names it.")]
Seed = Annotated[int, typer.Option(min=0, max=2**62, help="Seed of everything random.")]
Threads = Annotated[int, typer.Option(min=1, max=1024, help="Threads of every contestant.")]
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


def _latencies() -> tuple[str, ...]:
    from syno.searching.pipeline import LATENCIES

    return LATENCIES


def _dtypes() -> list[str]:
    from syno.kernels.kernel import DTYPES

    return list(DTYPES)


def _gpu(name: str) -> None:
    from syno.gpu.models import gpu_named

    gpu_named(name)


def _formats() -> list[str]:
    from syno.export import FORMATS

    return list(FORMATS)


def _model_names() -> list[str]:
    from syno import models

    return models.names()


def _contestants() -> tuple[str, ...]:
    from syno.searching.revisit import CONTESTANTS

    return CONTESTANTS


def _cost_models() -> tuple[str, ...]:
    from syno.tuning.cost_model import MODELS

    return MODELS


def _schedule_policies() -> tuple[str, ...]:
    from syno.kernels.construct import policies

    return ("search", *policies())


def _proposals() -> tuple[str, ...]:
    from syno.tuning.layouts.proposals import PROPOSERS

    return tuple(PROPOSERS)


def _report_suffixes() -> tuple[str, ...]:
    from syno.report.render import SUFFIXES

    return SUFFIXES


def _task_options(texts: list[str] | None) -> dict[str, Any]:
    from syno.cli.targets import task_options

    return task_options(texts or [])


def _executor(text: str | None) -> None:
    from syno.executors import check_name

    if text is not None:
        check_name(text)


def _targets(texts: list[str] | None) -> None:
    from syno.executors import check_targets

    check_targets(texts or [])


def _named_options(texts: list[str]) -> dict[str, Any]:
    from syno.cli.targets import task_options

    return task_options(texts)


def _executor_options(texts: list[str] | None) -> None:
    _named_options(texts or [])


def _space(source: str | None) -> None:
    from syno.searching.space import Space

    if source is not None:
        Space.load(source)


def _settings(texts: list[str] | None) -> None:
    from syno.cli.spaces import asked

    asked(texts or [], [])


def _rules(texts: list[str] | None) -> None:
    from syno.cli.spaces import asked

    asked([], texts or [])


def _each_form(texts: Optional[list[str]]) -> None:  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
    _shapes(texts or [])


def _shapes(texts: list[str]) -> None:
    from syno.cli.targets import check_form

    for text in texts:
        check_form(text)


def _named_sizes(texts: list[str] | None) -> None:
    from syno.cli.explain import parse_sizes

    parse_sizes(texts or [])


def _size(texts: list[str]) -> None:
    from syno.cli.tune import parse_sizes

    parse_sizes(texts)


def _sizes(texts: Optional[list[str]]) -> None:  # noqa: UP045
    _size(texts or [])


def _names(texts: Optional[list[str]]) -> None:  # noqa: UP045
    from syno.cli.tune import check_name

    for text in texts or []:
        check_name(text)


def _forms(texts: Optional[list[str]]) -> None:  # noqa: UP045
    from syno.cli.targets import check_form

    for text in texts or []:
        check_form(text)


def _target(text: str | None) -> None:
    from syno.cli.tune import check_target

    if text is not None:
        check_target(text)


def _tune_budget(text: str | None) -> None:
    if text is not None:
        _budget(text)


def _selections() -> tuple[str, ...]:
    from syno.tuning.network import SELECTIONS

    return SELECTIONS


def _budget(text: str) -> None:
    from syno.session import Budget

    Budget.parse(text)


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
        callback=parsed_by(_budget), help="'10min', '2h' or a number of candidates, '40'."
    ),
]
Dtype = one_of("dtype", _dtypes)
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Import what the session names, though somebody else or an older syno made it; prints what.",
    ),
]
ModelName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="The original, 'package.module:factory': for sessions that were searched with a model, not a named task."
    ),
]


SpaceFile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--space",
        "--spec",
        metavar="FILE",
        callback=parsed_by(_space),
        help="Search this space, a file that Space.save wrote, in the layers that it fits.",
    ),
]
SpaceSettings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        callback=parsed_by(_settings),
        help="A limit of the space, 'max_steps=10' or 'max_window=none', or an extension, 'tile=on'; repeat.",
    ),
]
SpaceRules = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--rule",
        metavar="NAME=off",
        callback=parsed_by(_rules),
        help="A rule of the space, 'pools-too-much=off'; repeat.",
    ),
]
MixTokens = Annotated[
    bool,
    typer.Option(
        "--mix-tokens",
        help="Let operators in place of linear layers mix tokens; a causal model then sees the future.",
    ),
]


def _version(show: bool) -> None:
    if show:
        import syno

        typer.echo(f"syno {syno.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command()
@guarded
def doctor(
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure the machine's rates again.")
    ] = False,
    roofline: Annotated[
        Optional[Path],  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
        typer.Option(
            callback=suffix_of(lambda: (".png", ".svg")),
            help="Draw the machine's roofline: a .png or .svg to write.",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """What syno finds on this machine; compiles and checks kernels. Exit 1 when unusable."""
    from syno.cli.doctor import examine

    report = examine(measure=measure)
    if roofline is not None:
        from syno.machines.model import machine_model, plot_roofline

        plot_roofline(machine_model()).figure.savefig(roofline)
    if json:
        print_json(report)
    else:
        machine = report["machine"]
        rows = [
            ["machine", str(machine)],
            ["CPU target", f"{report['cpu']['name']}, {report['cpu']['vector_bits']}-bit vectors"],
            ["LLVM", report["llvm"]],
            [
                "kernel cache",
                report["cache_directory"] + ("" if report["cache_writable"] else " (not writable)")
                if report["cache_directory"]
                else "none: SYNO_CACHE is empty",
            ],
        ]
        model = report["machine_model"]
        rows.append(
            [
                "one core",
                f"{model['peak_gflops']:.1f} GFLOP/s: {model['ghz']:.2f} GHz, "
                f"{model['fma_per_cycle']:.2f} multiply-adds of {model['vector_bits']} bits a cycle",
            ]
        )
        if model["disturbed"]:
            rows.append(["disturbed", model["disturbed"]])
        rows += [
            [
                level["name"],
                f"{level['bytes'] / 1024:,.0f} KiB: read {level['read_gbs']:.0f} GB/s, "
                f"write {level['write_gbs']:.0f}, copy {level['copy_gbs']:.0f}, latency {level['latency_ns']:.1f} ns",
            ]
            for level in model["levels"]
        ]
        rows += [
            [
                f"kernel, {name}",
                ("verified, error " if check["ok"] else "FAILED: ") + check["detail"],
            ]
            for name, check in report["kernels"].items()
        ]
        torch = report["torch"]
        rows.append(
            [
                "torch",
                f"{torch['version']}, {torch['threads']} threads, CUDA {'yes' if torch['cuda'] else 'no'}"
                if torch
                else 'not installed: pip install "syno[torch]" for models and training',
            ]
        )
        print_table("syno doctor", ["", ""], rows)
    if not report["usable"]:
        raise typer.Exit(Exit.FAILED)


@app.command()
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


@app.command()
@guarded
def sites(
    model: Annotated[str, typer.Argument(help="'package.module:factory' of a torch module.")],
    example: Annotated[
        list[str],
        typer.Option(
            callback=parsed_by(_shapes),
            help="Shape of the example input: '1,3,32,32'; tokens: '1,128:int64'; once for each input, named where "
            "the model takes it by name: 'mask=1,128'.",
        ),
    ],
    spaces: Annotated[
        bool,
        typer.Option(
            "--spaces",
            help="Also what 'syno search' would search: the space of each group of layers, and how big it is.",
        ),
    ] = False,
    space: SpaceFile = None,
    settings: SpaceSettings = None,
    rules: SpaceRules = None,
    mix_tokens: MixTokens = False,
    json: AsJson = False,
) -> None:
    """What could be replaced in a model: layers, shapes, FLOPs, share of time; what cannot, and why."""
    from syno.cli.spaces import asked, sizes
    from syno.cli.targets import example_inputs
    from syno.searching.revisit import model_of
    from syno.torch import sites as find_sites

    made = model_of(model)
    inputs, named = example_inputs(example, made)
    wanted = asked(settings or [], rules or [], space)
    found = find_sites(made, *inputs, **named)
    searched = sizes(found, wanted, mix_tokens) if spaces or wanted or mix_tokens else None
    if json:
        more = {} if searched is None else {"spaces": searched.to_dict()}
        print_json({**found.to_dict(), **more})
    else:
        typer.echo(str(found))
        if searched is not None:
            typer.echo(f"\n{searched}")


@app.command()
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
            callback=parsed_by(_executor),
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
        int, typer.Option(min=0, help="Candidates trained again with more seeds.")
    ] = 3,
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
        finalists=finalists,
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


@app.command()
@guarded
def status(
    session: SessionDir,
    watch: Annotated[bool, typer.Option(help="Refresh until the session ends.")] = False,
    json: AsJson = False,
) -> None:
    """The state of a session; reads only, safe during a run."""
    from syno.cli.inspect import print_status

    print_status(session, watch=watch, json=json)


@app.command()
@guarded
def show(session: SessionDir, candidate: CandidateId, json: AsJson = False) -> None:
    """One candidate: formula, pGraph, numbers, loops."""
    from syno.cli.inspect import candidate_details, print_details

    details = candidate_details(session, candidate)
    if json:
        print_json(details)
    else:
        print_details(details)


@app.command()
@guarded
def help(
    topic: Annotated[str, typer.Argument(help="What to explain: 'expressions'.")] = "expressions",
) -> None:
    """Explains a topic at length: 'expressions' is the language of formulas."""
    from syno.errors import unknown_name
    from syno.operators.expressions import summary

    if topic != "expressions":
        raise unknown_name("topic", topic, ["expressions"])
    typer.echo(summary())


@app.command()
@guarded
def explain(
    operator: Annotated[
        str,
        typer.Argument(
            help="Session directory, operator file, named operator, or folder of a compiled network."
        ),
    ],
    candidate: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Candidate of the session."),
    ] = None,
    spec: Annotated[
        str, typer.Option(help="Outside a session: a spec's name, or its JSON file.")
    ] = "resnet18",
    size: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_named_sizes),
            help="Of a named operator: 'groups=g', 'kernel=k_1', 'shrink=s'; repeatable.",
        ),
    ] = None,
    neighbours: Annotated[
        int,
        typer.Option(
            min=0, max=10_000, help="Steps listed of each kind beside every step, with the reason."
        ),
    ] = 1,
    svg: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Also draw the derivation into this file."),
    ] = None,
    json: AsJson = False,
) -> None:
    """How an operator was derived: every step, the frontier, the distance left, what was pruned and why.

    Of the folder of a compiled network: its steps, its check, and the CPU that it was made for.
    """
    from syno.cli.explain import explained
    from syno.cli.networks import is_bundle, read_bundle
    from syno.errors import SessionError
    from syno.support.files import write_output

    if candidate is None and is_bundle(operator):
        network = read_bundle(operator, svg)
        print_json(network.to_dict()) if json else typer.echo(str(network))
        return

    history, way = explained(operator, candidate, spec, size or [], neighbours)
    if svg:
        if way is None:
            raise SessionError(
                f"[explain] {candidate} has no derivation to draw: it is the baseline, or was given "
                "as a formula; leave --svg away"
            )
        write_output(svg, way.to_svg(), "explain")
    if json:
        print_json({"id": candidate, "history": history, **(way.to_dict() if way else {})})
    else:
        typer.echo("\n\n".join(part for part in (history, str(way or "")) if part))


@app.command()
@guarded
def report(
    session: SessionDir,
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            callback=suffix_of(_report_suffixes),
            help=".html, .md, .csv, .json, .png or .svg",
        ),
    ] = Path("report.html"),
    json: AsJson = False,
) -> None:
    """Writes the report of a session, running or finished."""
    from syno.report import write_report
    from syno.searching.result import session_report

    made = session_report(session)
    write_report(made, output)
    if json:
        print_json(made)
    else:
        typer.echo(made.conclusion)
        typer.echo(f"written: {output}")


@app.command()
@guarded
def bench(
    session: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Argument(
            help="Session directory; or a model: 'package.module:factory', with --example."
        ),
    ] = None,
    candidate: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Candidate, as 'syno status' names it; none with a model."),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            callback=one_of("contestant", _contestants, many=True),
            help="Comma-separated: eager, whole (both compiled whole by syno), derived (the same with equal "
            "programs that are faster), compile (both by torch), and the original by onednn (a frozen graph packed "
            "for oneDNN), onnxruntime, openvino.",
        ),
    ] = "eager,whole,compile",
    example: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_each_form),
            help="Of a model: shape of its input, '1,3,224,224'; tokens: '1,128:int64'; once for each input.",
        ),
    ] = None,
    networks: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=one_of("network", _model_names, many=True),
            help="In place of a session: the package's networks, comma-separated, 'resnet18,mobilenet_v2'.",
        ),
    ] = None,
    threads: Threads = 1,
    trust: Trust = False,
    model: ModelName = None,
    json: AsJson = False,
) -> None:
    """Times the network with a candidate against the original, interleaved in one run; or one model, or networks of the
    package, each as it is, compiled whole and as others compile it."""
    from syno.cli.networks import bench_model, bench_named
    from syno.errors import ArgumentError
    from syno.searching.revisit import bench_candidate, model_of

    if networks is not None:
        if session is not None or example or model is not None:
            raise ArgumentError(
                "[bench] --networks with a session, a model or an example",
                fix="give one of them; the networks of the package have examples of their own",
            )
        several = bench_named(networks.split(","), against=against.split(","), threads=threads)
        print_json(several.to_dict()) if json else typer.echo(str(several))
        return
    if session is None:
        raise ArgumentError(
            "[bench] nothing to time",
            fix="name a session and a candidate, a model 'package.module:factory', or --networks resnet18",
        )
    if candidate is not None:
        if example:
            raise ArgumentError(
                "[bench] --example with a session, which keeps its own",
                fix="leave it out, or give a model 'package.module:factory' alone",
            )
        result = bench_candidate(
            session,
            candidate,
            against=against.split(","),
            threads=threads,
            model=None if model is None else model_of(model),
            trust=trust,
        )
    else:
        result = bench_model(
            session, example or [], against=against.split(","), threads=threads, other=model
        )
    if json:
        print_json(result.to_dict())
    else:
        typer.echo(str(result))


@app.command()
@resumable
def tune(
    expr: Annotated[
        Optional[str],  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
        typer.Argument(help="An operator, 'y[m,n] = sum[k] a[m,k] * b[k,n]'."),
    ] = None,
    size: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--size",
            "-s",
            callback=parsed_by(_sizes),
            help="Extent of an iterator, 'm=64'; repeat.",
        ),
    ] = None,
    network: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_target),
            help="Instead of an operator: all programs of 'package.module:factory', a torch module, or of an .onnx file.",
        ),
    ] = None,
    example: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_forms),
            help="Shape of the network's example input, as for 'syno compile'; repeat.",
        ),
    ] = None,
    selection: Annotated[
        str,
        typer.Option(
            callback=one_of("selection", _selections),
            help="Which programs are searched and which reuse others: bridges, greedy, no-bridges, each, st, constructed.",
        ),
    ] = "bridges",
    budget: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_tune_budget),
            help="Of a network: measurements in all, '300', or time, '20min'.",
        ),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Of a network: print the plan and stop.")
    ] = False,
    trials: Annotated[
        int, typer.Option(min=2, help="Schedules to measure, of each program that is searched.")
    ] = 64,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads of a call.")] = 1,
    dtype: Annotated[
        str, typer.Option(callback=Dtype, help="float32, float64 or bfloat16.")
    ] = "float32",
    policy: Annotated[
        str,
        typer.Option(
            callback=one_of("policy", _schedule_policies),
            help="Who chooses schedules of an operator: search measures; graph, tree, uniform, all and counted construct one and say why.",
        ),
    ] = "search",
    model: Annotated[
        str,
        typer.Option(
            callback=one_of("cost model", _cost_models), help="Cost model: linear or boosted."
        ),
    ] = "linear",
    layouts: Annotated[
        bool,
        typer.Option(
            "--layouts",
            help="Of a convolution or product: search the layouts of its tensors with the loops, too, beside loops alone.",
        ),
    ] = False,
    proposals: Annotated[
        str,
        typer.Option(
            callback=one_of("proposals", _proposals),
            help="Who proposes layouts: ppo, an actor that learns and needs torch, or random.",
        ),
    ] = "ppo",
    levels: Annotated[int, typer.Option(min=1, max=2, help="Of tiles in layouts.")] = 1,
    constant: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_names),
            help="With --layouts: an input that stays the same over calls, packed before them; repeat.",
        ),
    ] = None,
    executor: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_executor),
            help="Who measures schedules: ray or ray://HOST:PORT, several machines that are like this one.",
        ),
    ] = None,
    trust_network: Annotated[
        bool,
        typer.Option(
            "--trust-network",
            help="Connect to ray://HOST:PORT in no private network without TLS: who is on the way can run code here.",
        ),
    ] = False,
    time_limit: Annotated[
        Optional[float],  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
        typer.Option(min=0.0, help="Stop after so many seconds."),
    ] = None,
    seed: Seed = 0,
    json: AsJson = False,
) -> None:
    """Searches schedules of an operator, or of all programs of a network, by measuring; again: continues.

    Later kernels use the best. With another `--policy` nothing is measured, and nothing is kept.
    """
    from syno.cli.tune import check_layouts, check_what, constructed, run, run_network

    check_what(expr, size or [], network, example or [], plan, budget, policy)
    check_layouts(layouts, network, policy, constant or [], proposals, levels)
    if network is not None:
        done = run_network(
            network,
            example or [],
            budget=budget,
            trials=trials,
            threads=threads,
            selection=selection,
            plan_only=plan,
            seed=seed,
            executor=executor,
            trust_network=trust_network,
            show=not json,
        )
        print_json(done.to_dict()) if json else typer.echo(str(done))
        return
    assert expr is not None
    if policy != "search":
        made = constructed(expr, size or [], policy=policy, threads=threads, dtype=dtype, seed=seed)
        typer.echo(made.to_json() if json else str(made))
        return
    result = run(
        expr,
        size or [],
        trials=trials,
        threads=threads,
        dtype=dtype,
        model=model,
        time_limit_s=time_limit,
        seed=seed,
        executor=executor,
        trust_network=trust_network,
        show=not json,
        layouts=layouts,
        how={"proposals": proposals, "levels": levels, "constants": tuple(constant or ())},
    )
    print_json(result.to_dict()) if json else typer.echo(str(result))


app.command()(derive)
app.command("compile")(compile_network)


@app.command()
@guarded
def replay(
    session: SessionDir,
    candidate: CandidateId,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Accuracy may differ by this many points (of 100).")
    ] = 0.5,
    latency_tolerance: Annotated[
        float,
        typer.Option(min=0.0, help="Latency may differ by this share of the recorded one."),
    ] = 0.25,
    trust: Trust = False,
    task: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="'package.module:function' of the task: for sessions that were searched with objects of a process."
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Derives, trains and times one candidate again and compares. Exit 1 outside a tolerance."""
    from syno.searching.revisit import replay_candidate

    comparison = replay_candidate(
        session,
        candidate,
        tolerance=tolerance / 100,
        latency_tolerance=latency_tolerance,
        trust=trust,
        task=task,
    )
    if json:
        print_json(comparison)
    else:
        print_table(
            f"replay of {candidate}",
            ["quantity", "recorded", "again", "tolerance", "same"],
            [
                [
                    *(row[name] for name in ("quantity", "recorded", "again", "tolerance")),
                    {True: "yes", False: "NO", None: "not judged"}[row["same"]],
                ]
                for row in comparison["rows"]
            ],
        )
    if not comparison["same"]:
        raise typer.Exit(Exit.FAILED)


@app.command()
@guarded
def export(
    session: Annotated[
        Path,
        typer.Argument(help="Session directory; or a folder that 'syno compile -o' wrote, for C."),
    ],
    candidate: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="Candidate of the session, as 'syno status' names it."),
    ] = None,
    *,
    format: Annotated[
        str,
        typer.Option(
            callback=one_of("format", _formats),
            help="c, torch, onnx, triton, safetensors or bundle.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Directory or file to write.")],
    dtype: Annotated[
        str,
        typer.Option(callback=Dtype, help="Of weights and results: float32, float64 or bfloat16."),
    ] = "float32",
    trust: Trust = False,
    operator: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="A site such as 'layer1.0.conv1': exports the operator in it alone, at its sizes."
        ),
    ] = None,
    seed: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Of the finalists' trainings whose weights to take; default the first."),
    ] = None,
    target: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=target_cpu,
            is_eager=True,
            help="Triple that C is for: aarch64-linux-gnu or x86_64-linux-gnu; default this machine's.",
        ),
    ] = None,
    cpu: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=target_cpu,
            help="CPU that C is for, such as cortex-a76, neoverse-v1, generic+sve256; default this one, "
            "with --target generic.",
        ),
    ] = None,
    gpu: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_gpu),
            help="GPU that Triton's tiles are for: h200 (default), a100, or the path of a GPU file.",
        ),
    ] = None,
    model: ModelName = None,
    json: AsJson = False,
) -> None:
    """Exports the trained network of a candidate, or one of its operators (--operator), and says which.

    torch, onnx, safetensors and bundle (a compiled network, which 'syno compile -o' writes, too) hold the whole
    network. C and Triton hold its operators, one function or module for each site with the weights trained there; the
    other layers have no such form. Of the folder of a compiled network, C holds the whole. Every export checks itself before it
    says so.
    """
    from syno.cli.networks import export_bundle
    from syno.searching.revisit import export_candidate, model_of

    if candidate is None:
        given = {
            "--operator": operator,
            "--seed": seed,
            "--target": target,
            "--cpu": cpu,
            "--gpu": gpu,
            "--model": model,
        }
        made = export_bundle(
            session, output, format, [name for name, v in given.items() if v is not None]
        )
        print_json(made.to_dict()) if json else typer.echo(str(made))
        return
    written = export_candidate(
        session,
        candidate,
        format=format,
        output=output,
        dtype=dtype,
        model=None if model is None else model_of(model),
        operator=operator,
        seed=seed,
        trust=trust,
        target=target,
        cpu=cpu,
        gpu=gpu,
    )
    print_json(written.to_dict()) if json else typer.echo(str(written))


@cache_app.command("info")
@guarded
def cache_info(json: AsJson = False) -> None:
    """Where the cache is and how much it holds."""
    from syno.cli.cache import info

    facts = info()
    if json:
        print_json(facts)
    else:
        typer.echo(f"{facts['directory']}: {facts['kernels']} kernels, {facts['bytes']:,} bytes")


@cache_app.command("clear")
@guarded
def cache_clear(json: AsJson = False) -> None:
    """Removes every kernel of the cache."""
    from syno.cli.cache import clear

    removed = clear()
    print_json({"removed": removed}) if json else typer.echo(f"removed {removed} kernels")


@cache_app.command("export")
@guarded
def cache_export(
    archive: Annotated[Path, typer.Argument(help="A .zip to write.")], json: AsJson = False
) -> None:
    """Packs the cache, to be used on a machine with the same CPU."""
    from syno.cli.cache import pack

    count = pack(archive)
    print_json({"kernels": count}) if json else typer.echo(f"packed {count} kernels")


@cache_app.command("import")
@guarded
def cache_import(
    archive: Annotated[Path, typer.Argument(help="A .zip of 'syno cache export'.")],
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Take machine code of another user or machine: it runs with your rights.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Unpacks kernels into the cache; each is checked when it is first used."""
    from syno.cli.cache import unpack

    count = unpack(archive, trust=trust)
    print_json({"kernels": count}) if json else typer.echo(f"imported {count} kernels")


def main() -> None:
    """Entry point of the ``syno`` command. Modules in the working directory can be named, too."""
    from syno.support.fresh import importable, leave_sessions

    leave_sessions()
    # Last, so that a source checkout of syno does not hide the installed package.
    if "" not in sys.path and importable(""):
        sys.path.append("")
    for stream in (sys.stdout, sys.stderr):
        # Names of files need not be Unicode: what cannot be shown is shown by its number.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except Exception as error:  # before a command has begun: where its options are read
        from syno.cli.failures import sentence, wants_traceback

        if wants_traceback():
            raise
        typer.echo(sentence(error), err=True)
        sys.exit(Exit.FAILED)


if __name__ == "__main__":
    main()
