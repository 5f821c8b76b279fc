"""``syno export``: the network of a candidate, or an operator of it, written for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from syno.cli.commands.options import AsJson, Dtype, ModelName, Trust
from syno.cli.common import guarded, one_of, parsed_by, print_json, target_cpu


def _gpu(name: str) -> None:
    from syno.gpu.models import gpu_named

    gpu_named(name)


def _formats() -> list[str]:
    from syno.export import FORMATS

    return list(FORMATS)


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
