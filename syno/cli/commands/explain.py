"""``syno explain`` and ``syno help``: how an operator came to be, and the language of formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from syno.cli.commands.options import AsJson
from syno.cli.common import guarded, parsed_by, print_json


def _named_sizes(texts: list[str] | None) -> None:
    from syno.cli.explain import parse_sizes

    parse_sizes(texts or [])


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
