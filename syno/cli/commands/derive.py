"""``syno derive``: programs that compute what an operator computes, on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from syno.cli.common import guarded, one_of, parsed_by, print_json, print_table, suffix_of

if TYPE_CHECKING:
    from syno.operators.operator import Operator


def _size(texts: list[str]) -> None:
    from syno.cli.tune import parse_sizes

    parse_sizes(texts)


def _rule_names() -> list[str]:
    from syno.deriving import rules

    return [name for name, _, _ in rules()]


def _rules(texts: Optional[list[str]]) -> None:  # noqa: UP045 (typer reads annotations at run time on Python 3.10)
    from syno.errors import unknown_name

    for text in texts or []:
        if text not in _rule_names():
            raise unknown_name("rule", text, _rule_names())


def _target(text: str) -> None:
    from syno.deriving.einnet import TARGETS
    from syno.errors import unknown_name

    name = text.partition(":")[0]
    if name not in TARGETS:  # its attributes are the engine's
        raise unknown_name("target", name, TARGETS)


@guarded
def derive(
    operator: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(help="An operator, 'y[m,n] = sum[k] a[m,k] * b[k,n]', or an operator file."),
    ] = None,
    size: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(
            "--size",
            "-s",
            callback=parsed_by(lambda texts: _size(texts or [])),
            help="Extent of an iterator, 'm=64'; repeat.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Of the search; 0: until nothing is left.")
    ] = 2.0,
    depth: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Most rewrites one after the other."),
    ] = None,
    states: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=1, help="Most programs; with --seconds 0 the result repeats."),
    ] = None,
    rule: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(callback=parsed_by(_rules), help="Only these rewrites; repeat. See --rules."),
    ] = None,
    preset: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=one_of("preset", lambda: ["einnet"]),
            help="einnet: EINNET's rules and amounts; every program up to --depth (7).",
        ),
    ] = None,
    target: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            callback=parsed_by(_target),
            help="Operator looked for with --preset einnet: matmul, bmm, conv, g2bmm, any, conv:kernel=3x3.",
        ),
    ] = None,
    converging: Annotated[
        int,
        typer.Option(
            min=0,
            max=64,
            help="With --preset einnet, after --depth steps those that come nearer, from programs so near; 0: none.",
        ),
    ] = 2,
    exact: Annotated[
        bool, typer.Option("--exact", help="Leave out what is equal over the reals only.")
    ] = False,
    training: Annotated[
        bool, typer.Option("--training", help="Weights change: their transformation counts.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, max=1024, help="Threads of a call.")] = 1,
    dtype: Annotated[
        str,
        typer.Option(
            callback=one_of("dtype", lambda: ["float32", "float64"]), help="float32 or float64."
        ),
    ] = "float32",
    measure: Annotated[
        int, typer.Option(min=0, max=1000, help="Derived programs that are compiled and timed.")
    ] = 3,
    growth: Annotated[
        float, typer.Option(min=1.0, help="Constants may take so many times their memory.")
    ] = 4.0,
    max_rel_err: Annotated[
        float, typer.Option(min=0.0, help="Largest error, as a part of the output's largest value.")
    ] = 1e-5,
    explain: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(min=0, help="Show each step of this row of the table."),
    ] = None,
    svg: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "--svg",
            callback=suffix_of(lambda: (".svg",)),
            help="Draw the steps of the row that --explain names, or of the best: an .svg to write.",
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            "-o", "--output", callback=suffix_of(lambda: (".json",)), help="A .json to write."
        ),
    ] = None,
    rules: Annotated[bool, typer.Option("--rules", help="List the rewrites and leave.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="One JSON document instead of text.")
    ] = False,
) -> None:
    """Finds faster programs for one operator by rewriting it; checks and times the best beside it."""
    import syno.deriving as deriving
    from syno.errors import ParseError

    if rules:
        listed = deriving.rules()
        if json:
            print_json(
                [{"rule": n, "statement": text, "exact": is_exact} for n, text, is_exact in listed]
            )
        else:
            rows = [
                [n, text, "" if is_exact else "for finite data"] for n, text, is_exact in listed
            ]
            print_table("", ["rule", "what it does", ""], rows)
        return
    if operator is None:
        raise ParseError(
            "[derive] which operator? 'syno derive \"y[i] = sum[k] a[i,k] * b[k]\" -s i=64 -s k=64'"
        )
    found = deriving.derive(
        _operator(operator, size or []),
        seconds=seconds,
        depth=depth,
        states=states,
        rules=rule or preset,
        target=target,
        converging=converging,
        reassociate=not exact,
        constants=() if training else None,
        dtype=dtype,
        threads=threads,
        measure=measure,
        growth=growth,
        max_rel_err=max_rel_err,
        progress=None if json else _on_terminal(),
    )
    shown = found if explain is None else found[explain]
    if output is not None:
        found.save(output)
    if svg is not None:
        (found.best() if explain is None else found[explain]).to_svg(svg)
    if json:
        print_json(shown.to_dict())
        return
    typer.echo(str(shown) if explain is None else found[explain].explain())
    if found.ended == "interrupted":
        typer.echo("interrupted: this is what there was", err=True)
        raise typer.Exit(130)


def _operator(text: str, size: list[str]) -> Operator:
    from syno.cli.tune import parse_sizes
    from syno.operators.operator import Operator

    if text.endswith(".json") and Path(text).is_file():
        return Operator.load(text)
    sizes: dict[str, Any] = dict(parse_sizes(size))
    return Operator.parse(text, **sizes)


def _on_terminal() -> Callable[[str], None] | None:
    """Shows one line that changes where standard error is a terminal; else nothing."""
    import sys

    if not sys.stderr.isatty():
        return None

    def show(line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line}" if line != "timing" else "\r\x1b[K")
        sys.stderr.flush()

    return show
