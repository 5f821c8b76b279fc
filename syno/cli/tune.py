"""``syno tune``: a search on the command line, that goes on where it was interrupted."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from syno.cli.targets import check_form, one_example
from syno.errors import ArgumentError, ShapeError, shown
from syno.executors import resolve
from syno.kernels.construct import Constructed, construct
from syno.operators.operator import Operator
from syno.tuning.search import Tuned, session_file, tune

if TYPE_CHECKING:
    from syno.tuning.layouts.result import LaidTuned
    from syno.tuning.network import NetworkTuned


def parse_sizes(texts: list[str]) -> dict[str, int]:
    """``["m=64", "n=32"]`` as numbers.

    Raises:
        ShapeError: says which text is no size.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not re.fullmatch(r"\s*[0-9]{1,15}\s*", value):
            raise ShapeError(
                f"[tune] --size {shown(text)}: write an iterator and its extent, 'm=64'"
            )
        sizes[name.strip()] = int(value)
    return sizes


def run(
    expr: str,
    size: list[str],
    *,
    show: bool,
    executor: str | None,
    trust_network: bool,
    layouts: bool = False,
    how: dict[str, Any] | None = None,
    **options: Any,
) -> Tuned | LaidTuned:
    """Parses, searches with progress on the terminal, and returns what was found."""
    sizes: dict[str, Any] = dict(parse_sizes(size))
    operator = Operator.parse(expr, **sizes)
    session = session_file(operator.program, options["threads"], options["dtype"])
    options["progress"] = "auto" if show else "off"
    with _made(executor, trust_network) as made:
        if layouts:
            from syno.tuning.layouts.search import Layouts

            wanted = Layouts(**(how or {}))
            return tune(operator, session=session, executor=made, layouts=wanted, **options)
        return tune(operator, session=session, executor=made, **options)


def constructed(expr: str, size: list[str], **options: Any) -> Constructed:
    """What a policy makes of an operator without measuring, and why."""
    sizes: dict[str, Any] = dict(parse_sizes(size))
    return construct(Operator.parse(expr, **sizes), **options)


def check_target(text: str) -> None:
    """Raises ArgumentError where a text is neither 'package.module:factory' nor an .onnx file."""
    if not text.endswith(".onnx") and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", text):
        raise ArgumentError(
            f"[tune] --network {shown(text)} names no network",
            fix="give 'package.module:factory' or an .onnx file",
        )


def check_what(
    expr: str | None,
    size: list[str],
    network: str | None,
    example: list[str],
    plan: bool,
    budget: str | None,
    policy: str = "search",
) -> None:
    """Raises typer.BadParameter where it is not said what to tune, or said twice."""
    if (expr is None) == (network is None):
        raise typer.BadParameter(
            "give an operator with its sizes, or --network package.module:factory"
        )
    if network is not None and size:
        raise typer.BadParameter("--size is for an operator; give --example with the network")
    if network is not None and policy != "search":
        raise typer.BadParameter(f"--policy {policy} is for an operator; a network is searched")
    if network is None and (example or plan or budget):
        raise typer.BadParameter("--example, --plan and --budget are for a network; give --network")


def check_name(text: str) -> None:
    """Raises ArgumentError where a text is no name of an input."""
    if not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII):
        raise ArgumentError(
            f"[tune] --constant {shown(text)} is no name", fix="give an input of the operator, 'k'"
        )


def check_layouts(
    layouts: bool,
    network: str | None,
    policy: str,
    constants: list[str],
    proposals: str,
    levels: int,
) -> None:
    """Raises typer.BadParameter where layouts are asked for a network, or said how without being asked for."""
    if layouts and network is not None:
        raise typer.BadParameter(
            "--layouts is for an operator; a network's are chosen by 'syno compile --layouts'"
        )
    if layouts and policy != "search":
        raise typer.BadParameter(
            f"--layouts are searched by measuring; leave --policy {policy} out"
        )
    if not layouts and (constants or proposals != "ppo" or levels != 1):
        raise typer.BadParameter("--constant, --proposals and --levels are for --layouts; add it")


@contextlib.contextmanager
def _made(executor: str | None, trust_network: bool) -> Iterator[Any]:
    """Who measures, closed at the end."""
    made = resolve(executor, {"trust_network": True} if trust_network else {})
    try:
        yield made
    finally:
        if made is not None and not isinstance(made, int):
            made.close()


def run_network(
    target: str,
    example: list[str],
    *,
    show: bool,
    executor: str | None,
    trust_network: bool,
    **options: Any,
) -> NetworkTuned:
    """Tunes the programs of a network that is named on the command line."""
    with _made(executor, trust_network) as made:
        return _tuned(target, example, show=show, executor=made, **options)


def _tuned(target: str, example: list[str], *, show: bool, **options: Any) -> NetworkTuned:
    from syno.tuning.network import tune_network

    options["progress"] = "auto" if show else "off"
    if target.endswith(".onnx"):
        from syno.graph.from_onnx import load_onnx

        shapes: dict[str, list[int]] = {}
        for text in example:
            form = check_form(text)
            if not form["name"]:
                raise ArgumentError(
                    f"[tune] --example {text} names no input of the file",
                    fix=f"write 'name={text}'",
                )
            shapes[form["name"]] = [int(n) for n in form["shape"].split(",")]
        return tune_network(load_onnx(target, shapes=shapes or None), **options)
    from syno.searching.revisit import model_of

    made = model_of(target).eval()
    if not example:
        raise ArgumentError(
            "[tune] a module is tuned for the shapes of an example",
            fix="add --example 1,3,224,224",
        )
    inputs = one_example(example, made)
    return tune_network(made, inputs, **options)
