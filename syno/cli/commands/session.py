"""``syno status``, ``show``, ``report`` and ``replay``: what a session holds, and whether it comes out again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from syno.cli.commands.options import AsJson, Trust
from syno.cli.common import Exit, guarded, print_json, print_table, suffix_of

SessionDir = Annotated[Path, typer.Argument(help="Session directory.")]
CandidateId = Annotated[str, typer.Argument(help="Candidate, as 'syno status' names it.")]


def _report_suffixes() -> tuple[str, ...]:
    from syno.report.render import SUFFIXES

    return SUFFIXES


@guarded
def status(
    session: SessionDir,
    watch: Annotated[bool, typer.Option(help="Refresh until the session ends.")] = False,
    json: AsJson = False,
) -> None:
    """The state of a session; reads only, safe during a run."""
    from syno.cli.inspect import print_status

    print_status(session, watch=watch, json=json)


@guarded
def show(session: SessionDir, candidate: CandidateId, json: AsJson = False) -> None:
    """One candidate: formula, pGraph, numbers, loops."""
    from syno.cli.inspect import candidate_details, print_details

    details = candidate_details(session, candidate)
    if json:
        print_json(details)
    else:
        print_details(details)


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
