"""``syno compile``: a whole network compiled, checked and shown step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from syno.cli.commands.options import check_forms
from syno.cli.common import guarded, one_of, parsed_by, print_json, suffix_of
from syno.cli.ranges import check_ranges, of_module, of_onnx
from syno.graph.layout_names import LAYOUTS, ROW_MAJOR


def _free(place: Path | None) -> None:
    from syno.export import require_free

    if place is not None:
        require_free(place)


@guarded
def compile_network(
    model: Annotated[
        str, typer.Argument(help="'package.module:factory' of a torch module, or an .onnx file.")
    ],
    example: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            callback=parsed_by(check_forms),
            help="Shape of the example input of a module: '1,3,224,224'; tokens: '1,128:int64'; once for each input, "
            "named where the model takes it by name: 'mask=1,128'. Of an .onnx file: 'name=1,3,224,224' where it leaves "
            "extents open.",
        ),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads of a call.")] = 1,
    derive: Annotated[
        bool,
        typer.Option(
            "--derive", help="Use equal programs found by 'syno derive' where they are faster."
        ),
    ] = False,
    seconds: Annotated[float, typer.Option(min=0.0, help="For all derivations together.")] = 30.0,
    max_rel_err: Annotated[
        float,
        typer.Option(min=0.0, help="Of a derived kernel, as a part of its output's largest value."),
    ] = 1e-5,
    no_fuse: Annotated[bool, typer.Option("--no-fuse", help="One kernel for each node.")] = False,
    layouts: Annotated[
        str,
        typer.Option(
            callback=one_of("layouts", lambda: LAYOUTS),
            help="Of tensors between kernels: row-major, channels-last, blocked (channels by vectors), auto (the least "
            "predicted time), measured (the fastest of these).",
        ),
    ] = ROW_MAJOR,
    dynamic: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--dynamic",
            callback=parsed_by(check_ranges),
            help="A size that calls bring along, from the least to the greatest: 'x:0=batch:1..8' (argument, dimension, "
            "name), once for each dimension; of an .onnx file by the name of an open dimension, 'batch=1..64'.",
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Time each step on the example.")
    ] = False,
    dot: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--dot",
            callback=suffix_of(lambda: (".dot", ".gv")),
            help="Also write the fused graph, in Graphviz's language: a .dot.",
        ),
    ] = None,
    svg: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--svg",
            callback=suffix_of(lambda: (".svg",)),
            help="Also draw the steps: an .svg; with their measured times where --profile is given.",
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "-o",
            "--output",
            callback=parsed_by(_free),
            help="Also write it as a folder, 'net.syno', that syno.load reads without LLVM and torch.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON document instead of text.")
    ] = False,
) -> None:
    """Compiles a whole network for this CPU, compares it with float64, and shows its steps."""
    from syno.compiling import compile as compiled
    from syno.support.files import write_output

    options: dict[str, Any] = {
        "threads": threads, "derive": derive, "seconds": seconds, "max_rel_err": max_rel_err, "fuse": not no_fuse,
        "layouts": layouts,
    }  # fmt: skip
    ranged: Any = None
    if model.endswith(".onnx"):
        made = network = _onnx(model, example or [], dynamic or [], options)
    else:
        made = _module(model, example or [], dynamic or [], compiled, options)
        network = made.network
    if dynamic:  # its steps are those of the greatest sizes
        ranged = made.network
        network = ranged.at(ranged.ranges.greatest).network
    written = None
    if output is not None:
        from syno.export import export

        written = export(made, output)
    times = network.profile(*network.example()) if profile else None
    if dot is not None:
        write_output(dot, network.dot().encode(), "compile")
    if svg is not None:
        (times or network).to_svg(svg)
    if json:
        more = {"profile": times, "exported": written, "dynamic": ranged}
        print_json(
            {**network.to_dict(), **{name: each.to_dict() for name, each in more.items() if each}}
        )
    else:
        if ranged is not None:
            typer.echo(str(made))
        typer.echo(str(times if times is not None else network))
        if written is not None:
            typer.echo(str(written))


def _module(
    model: str, example: list[str], dynamic: list[str], compiled: Any, options: dict[str, Any]
) -> Any:
    from syno.cli.targets import one_example
    from syno.errors import ArgumentError
    from syno.searching.revisit import model_of

    made = model_of(model).eval()
    if not example:
        raise ArgumentError(
            "a module is compiled for the shapes of an example",
            fix="add --example 1,3,224,224",
        )
    inputs = one_example(example, made)
    if dynamic:
        return compiled(made, inputs, dynamic=of_module(dynamic), **options)
    return compiled(made, inputs, **options)


def _onnx(path: str, example: list[str], dynamic: list[str], options: dict[str, Any]) -> Any:
    from syno.cli.targets import check_form
    from syno.errors import ArgumentError
    from syno.graph.from_onnx import load_onnx

    shapes: dict[str, list[int]] = {}
    for text in example:
        form = check_form(text)
        if not form["name"]:
            raise ArgumentError(
                f"[compile] --example {text} names no input of the file", fix=f"write 'name={text}'"
            )
        shapes[form["name"]] = [int(n) for n in form["shape"].split(",")]
    if dynamic:
        options = {**options, "dynamic": of_onnx(dynamic)}
    return load_onnx(path, shapes=shapes or None).compile(**options)
