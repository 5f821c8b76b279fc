"""``syno compile``: a whole network compiled, checked and shown step by step, on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from syno.cli.common import guarded, parsed_by, print_json, suffix_of


def _shapes(texts: Optional[list[str]]) -> None:  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
    from syno.cli.targets import check_form

    for text in texts or []:
        check_form(text)


@guarded
def compile_network(
    model: Annotated[
        str, typer.Argument(help="'package.module:factory' of a torch module, or an .onnx file.")
    ],
    example: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_shapes),
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
    json: Annotated[
        bool, typer.Option("--json", help="One JSON document instead of text.")
    ] = False,
) -> None:
    """Compiles a whole network for this CPU, compares it with float64, and shows its steps."""
    from syno.compiling import compile as compiled
    from syno.files import write_output

    options: dict[str, Any] = {
        "threads": threads, "derive": derive, "seconds": seconds, "max_rel_err": max_rel_err, "fuse": not no_fuse,
    }  # fmt: skip
    if model.endswith(".onnx"):
        network = _onnx(model, example or [], options)
    else:
        network = _module(model, example or [], compiled, options)
    times = network.profile(*network.example()) if profile else None
    if dot is not None:
        write_output(dot, network.dot().encode(), "compile")
    if json:
        print_json({**network.to_dict(), **({"profile": times.to_dict()} if times else {})})
    else:
        typer.echo(str(times if times is not None else network))


def _module(model: str, example: list[str], compiled: Any, options: dict[str, Any]) -> Any:
    from syno.cli.targets import example_inputs
    from syno.errors import ArgumentError
    from syno.revisit import model_of

    made = model_of(model).eval()
    if not example:
        raise ArgumentError(
            "[compile] a module is compiled for the shapes of an example",
            fix="add --example 1,3,224,224",
        )
    inputs, named = example_inputs(example, made)
    return compiled(made, named or tuple(inputs), **options).network


def _onnx(path: str, example: list[str], options: dict[str, Any]) -> Any:
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
    return load_onnx(path, shapes=shapes or None).compile(**options)
