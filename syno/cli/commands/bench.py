"""``syno bench``: candidates, models and the package's networks, timed beside others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from syno.cli.commands.options import AsJson, ModelName, Trust, check_forms
from syno.cli.common import guarded, one_of, parsed_by, print_json

Threads = Annotated[int, typer.Option(min=1, max=1024, help="Threads of every contestant.")]


def _model_names() -> list[str]:
    from syno import models

    return models.names()


def _contestants() -> tuple[str, ...]:
    from syno.searching.revisit import CONTESTANTS

    return CONTESTANTS


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
            callback=parsed_by(check_forms),
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
