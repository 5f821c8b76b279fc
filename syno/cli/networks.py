"""Models, networks of the package and compiled networks that are named on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from syno.timing.bench import Comparison
    from syno.timing.bench_networks import NetworkComparisons


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
