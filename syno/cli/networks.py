"""``syno compile``: a whole network compiled, checked and shown step by step, on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from syno.cli.common import guarded, one_of, parsed_by, print_json, suffix_of
from syno.cli.ranges import check_ranges, of_module, of_onnx
from syno.graph.layout_names import LAYOUTS, ROW_MAJOR

if TYPE_CHECKING:
    from syno.timing.bench import Comparison
    from syno.timing.bench_networks import NetworkComparisons


def _shapes(texts: Optional[list[str]]) -> None:  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
    from syno.cli.targets import check_form

    for text in texts or []:
        check_form(text)


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


def bench_model(
    model: Path, example: list[str], *, against: Sequence[str], threads: int, other: str | None
) -> Comparison:
    """Times a model as it is, compiled whole, and as others compile it, in turns.

    Raises:
        ArgumentError: it is no name of a model, or there is no example.
    """
    from syno.cli.targets import one_example
    from syno.errors import ArgumentError
    from syno.searching.revisit import bench_original, model_of

    name = str(model)
    if ":" not in name or other is not None:
        raise ArgumentError(
            f"[bench] {name} without a candidate",
            fix=f"syno bench {name} c1 (syno status names candidates), or 'package.module:factory' of a model",
        )
    made = model_of(name).eval()
    if not example:
        raise ArgumentError(
            "[bench] a model is timed on an example", fix="add --example 1,3,224,224"
        )
    inputs = one_example(example, made)
    return bench_original(made, inputs, against=against, threads=threads)


def bench_named(names: list[str], *, against: Sequence[str], threads: int) -> NetworkComparisons:
    """Times networks of the package; each is told on the standard error stream once it is there.

    Raises:
        ArgumentError: one is named twice.
    """
    from syno.timing.bench_networks import bench_networks

    def told(name: str, made: Comparison) -> None:
        typer.echo(f"{name}\n{made}\n", err=True)

    return bench_networks(names, against=against, threads=threads, progress=told)


def _module(
    model: str, example: list[str], dynamic: list[str], compiled: Any, options: dict[str, Any]
) -> Any:
    from syno.cli.targets import one_example
    from syno.errors import ArgumentError
    from syno.searching.revisit import model_of

    made = model_of(model).eval()
    if not example:
        raise ArgumentError(
            "[compile] a module is compiled for the shapes of an example",
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


def is_bundle(text: str) -> bool:
    """Whether this is the folder of a compiled network."""
    from syno.graph import bundle

    return bundle.is_bundle(Path(text))


def read_bundle(text: str, svg: Path | None = None) -> Any:
    """What a folder of a compiled network holds, for people: also of one that is for another CPU.

    Args:
        svg: its steps are drawn there.
    Raises:
        FormatError: it is none, or damaged; or the picture cannot be written.
    """
    from syno.graph.loaded import describe_folder

    network = describe_folder(Path(text))
    if svg is not None:
        at_greatest = getattr(network, "described_at", None)
        (network if at_greatest is None else at_greatest(*network.ranges.greatest)).to_svg(svg)
    return network


def export_bundle(folder: Path, output: Path, format: str, given: list[str]) -> Any:
    """Writes the folder of a compiled network as C.

    Raises:
        ArgumentError: it is none, or an option that is a candidate's is given.
    """
    from syno.errors import ArgumentError
    from syno.export import export
    from syno.graph import bundle
    from syno.graph.loaded import load_native

    if not bundle.is_bundle(folder):
        raise ArgumentError(
            f"[export] {folder} is no folder of a compiled network, and no candidate is named",
            fix=f"name a candidate of the session, such as c1: 'syno status {folder}' lists them",
        )
    if given:
        raise ArgumentError(
            f"[export] {', '.join(given)} is of a session's candidate; {folder} is a compiled network",
            fix="leave it out",
        )
    return export(load_native(folder), output, format=format)
