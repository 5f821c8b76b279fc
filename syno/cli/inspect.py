"""``syno status`` and ``syno show``: reading a session, also while it runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import typer

from syno.cli.common import print_json, print_table
from syno.report.listed import left_out, listed, of_interest
from syno.session.records import COMBINED, Candidate
from syno.session.view import SessionView, open_view
from syno.support.numbers import significant


def _cells(view: SessionView, candidate: Candidate, front: set[str]) -> list[str]:
    def number(value: float | None) -> str:
        return "-" if value is None else format(value, ",")

    error = view.stderr(candidate)
    value = "-" if candidate.value is None else significant(candidate.value, 4)
    value += f" ± {significant(error, 2)}" if error is not None else ""
    return [
        candidate.id + (" *" if candidate.id in front else ""),
        candidate.state,
        candidate.origin,
        value,
        "-" if candidate.latency_us is None else significant(candidate.latency_us),
        *(
            "-" if us is None else significant(us)
            for us in (candidate.targets_us.get(name) for name in view.targets)
        ),
        "-" if candidate.op_latency_us is None else significant(candidate.op_latency_us),
        number(candidate.flops),
        number(candidate.params),
        candidate.reason or view.formula(candidate),
    ]


#: Candidates that a terminal lists, and how many of the best are among them; a report lists more.
_MOST, _BEST = 100, 40


def _columns(view: SessionView) -> list[str]:
    return [
        "id",
        "state",
        "origin",
        "metric",
        "latency µs",
        *(f"{name} µs" for name in view.targets),
        "sites µs",
        "FLOPs",
        "params",
        "formula or reason",
    ]


def _print_once(view: SessionView) -> bool:
    status = view.status()
    front = set(status["pareto"])
    verdict = status["verdict"]
    fronts = [status, *status["targets"].values()]
    leading = {id for one in fronts for id in (*one["pareto"], *one["pareto_test"])}
    leading |= {verdict["best"] or "", verdict["leader"] or ""}
    numbers, rewards = view.rewards()
    shown = view.chosen(listed(numbers, rewards, of_interest(view, leading), _MOST, _BEST))
    everyone = ([view.baseline] if view.baseline else []) + shown
    running = "running" if status["running"] else "not running"
    title = (
        f"{status['session']}: {running}, {status['trained']} trained, {status['elapsed_s']:.0f} s"
    )
    print_table(title, _columns(view), [_cells(view, c, front) for c in everyone])
    if remark := left_out(len(shown), len(numbers)):
        typer.echo(remark)
    for part, score in view.given.items():
        error = f" ± {significant(score.stderr, 2)}"
        typer.echo(
            f"the model as handed in: {score.metric} {significant(score.value, 4)}{error} on {part}"
        )
    for note in status["notes"]:
        typer.echo(note)
    if runner := view.runner_text():
        typer.echo(f"latencies of networks {runner}")
    times = [f"{name} {significant(us)} us" for name, us in status["original_us"].items()]
    if len(times) > 1:
        typer.echo(f"the original: {', '.join(times)}")
    for line in executor_lines(status["executor"]):
        typer.echo(line)
    typer.echo(f"repeatable {status['repeatable']}")
    if view.interrupted:
        typer.echo(f"{status['ended']}; the same command continues it")
    best = status["best"]
    typer.echo(f"best: {best['id'] if best else 'the original'}. {status['verdict']['sentence']}")
    for name, one in status["targets"].items():
        timed = f"{one['timed']} timed" + (f", {one['not_yet']} not yet" if one["not_yet"] else "")
        best_there = f"; front {', '.join(one['pareto'])}" if one["pareto"] else ""
        typer.echo(f"on {name}: {timed}{best_there}. {one['verdict']['sentence']}")
    return bool(status["running"])


def executor_lines(executor: dict[str, Any]) -> list[str]:
    """What an executor says of itself, for people; empty for processes of this machine."""
    if not executor:
        return []
    lines = [
        f"trained by {executor['kind']}: {executor['in_flight']} in flight, {executor['done']} done, "
        f"{executor['repeated']} repeated because their machine was gone"
    ]
    for node in executor.get("nodes", []):
        facts = [f"{name} {value}" for name, value in node.items() if name != "node" and value]
        lines.append(f"  {node['node']}" + (f": {', '.join(facts)}" if facts else ""))
    lines += [f"  not used: {why}" for why in executor.get("refused", [])]
    return lines


def print_status(directory: Path, *, watch: bool, json: bool) -> None:
    """The state of a session; with ``watch`` again every two seconds until it ends."""
    with open_view(directory) as view:
        if json:
            print_json(view.status())
            return
        while True:
            with view.one_moment():
                running = _print_once(view)
            if not (running and watch):
                return
            time.sleep(2.0)


def candidate_details(directory: Path, id: str) -> dict[str, Any]:
    """All that is known of one candidate, as plain data."""
    with open_view(directory) as view:
        candidate = view.candidate(id)
        details = candidate.to_dict()
        details["stderr"] = view.stderr(candidate)
        details["history"] = view.explain(candidate)
        if candidate.key:
            details["formulas"] = view.formulas(candidate)
            own = view.operators(candidate)
            if candidate.kind != COMBINED:
                own = {candidate.stage: own[candidate.stage]}
            graphs = {stage: one.pgraph for stage, one in own.items()}
            details["stages"] = _each({s: str(one.program.short_text()) for s, one in own.items()})
            details["pgraph"] = _each({s: str(g.text()) for s, g in graphs.items() if g}) or None
            details["loops"] = _each({s: one.at(0).compile().loops() for s, one in own.items()})
        return details


def _each(texts: dict[str, str]) -> str:
    """Texts by stage, each under its stage where there are several."""
    if len(texts) < 2:
        return "".join(texts.values())
    return "\n".join(f"# {stage}\n{text}" for stage, text in texts.items())


def print_details(details: dict[str, Any]) -> None:
    """The same for people."""
    typer.echo(details["history"])
    for title in ("stages", "pgraph", "loops"):
        if details.get(title):
            typer.echo(f"\n{title}:")
            typer.echo(details[title])
