"""Options and arguments that several commands have."""

from __future__ import annotations

from typing import Annotated, Optional

import typer

from syno.cli.common import one_of, parsed_by

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document instead of text.")]
Seed = Annotated[int, typer.Option(min=0, max=2**62, help="Seed of everything random.")]


def _dtypes() -> list[str]:
    from syno.kernels.kernel import DTYPES

    return list(DTYPES)


def check_executor(text: str | None) -> None:
    from syno.executors import check_name

    if text is not None:
        check_name(text)


def _space(source: str | None) -> None:
    from syno.searching.space import Space

    if source is not None:
        Space.load(source)


def _settings(texts: list[str] | None) -> None:
    from syno.cli.spaces import asked

    asked(texts or [], [])


def _rules(texts: list[str] | None) -> None:
    from syno.cli.spaces import asked

    asked([], texts or [])


def check_forms(texts: list[str] | None) -> None:
    from syno.cli.targets import check_form

    for text in texts or []:
        check_form(text)


def check_budget(text: str) -> None:
    from syno.session import Budget

    Budget.parse(text)


Dtype = one_of("dtype", _dtypes)
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Import what the session names, though somebody else or an older syno made it; prints what.",
    ),
]
ModelName = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        help="The original, 'package.module:factory': for sessions that were searched with a model, not a named task."
    ),
]


SpaceFile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--space",
        "--spec",
        metavar="FILE",
        callback=parsed_by(_space),
        help="Search this space, a file that Space.save wrote, in the layers that it fits.",
    ),
]
SpaceSettings = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        callback=parsed_by(_settings),
        help="A limit of the space, 'max_steps=10' or 'max_window=none', or an extension, 'tile=on'; repeat.",
    ),
]
SpaceRules = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option(
        "--rule",
        metavar="NAME=off",
        callback=parsed_by(_rules),
        help="A rule of the space, 'pools-too-much=off'; repeat.",
    ),
]
MixTokens = Annotated[
    bool,
    typer.Option(
        "--mix-tokens",
        help="Let operators in place of linear layers mix tokens; a causal model then sees the future.",
    ),
]
