"""``syno tune``: schedules of an operator or of a network's programs."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from syno.cli.commands.options import AsJson, Dtype, Seed, check_budget, check_executor, check_forms
from syno.cli.common import one_of, parsed_by, print_json, resumable


def _cost_models() -> tuple[str, ...]:
    from syno.tuning.cost_model import MODELS

    return MODELS


def _schedule_policies() -> tuple[str, ...]:
    from syno.kernels.construct import policies

    return ("search", *policies())


def _proposals() -> tuple[str, ...]:
    from syno.tuning.layouts.proposals import PROPOSERS

    return tuple(PROPOSERS)


def _size(texts: list[str]) -> None:
    from syno.cli.tune import parse_sizes

    parse_sizes(texts)


def _sizes(texts: Optional[list[str]]) -> None:  # noqa: UP045
    _size(texts or [])


def _names(texts: Optional[list[str]]) -> None:  # noqa: UP045
    from syno.cli.tune import check_name

    for text in texts or []:
        check_name(text)


def _target(text: str | None) -> None:
    from syno.cli.tune import check_target

    if text is not None:
        check_target(text)


def _tune_budget(text: str | None) -> None:
    if text is not None:
        check_budget(text)


def _selections() -> tuple[str, ...]:
    from syno.tuning.network import SELECTIONS

    return SELECTIONS


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
            callback=parsed_by(check_forms),
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
            callback=parsed_by(check_executor),
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
