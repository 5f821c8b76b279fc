"""``syno sites``: what could be replaced in a model."""

from __future__ import annotations

from typing import Annotated

import typer

from syno.cli.commands.options import (
    AsJson,
    MixTokens,
    SpaceFile,
    SpaceRules,
    SpaceSettings,
    check_forms,
)
from syno.cli.common import guarded, parsed_by, print_json


@guarded
def sites(
    model: Annotated[str, typer.Argument(help="'package.module:factory' of a torch module.")],
    example: Annotated[
        list[str],
        typer.Option(
            callback=parsed_by(check_forms),
            help="Shape of the example input: '1,3,32,32'; tokens: '1,128:int64'; once for each input, named where "
            "the model takes it by name: 'mask=1,128'.",
        ),
    ],
    spaces: Annotated[
        bool,
        typer.Option(
            "--spaces",
            help="Also what 'syno search' would search: the space of each group of layers, and how big it is.",
        ),
    ] = False,
    space: SpaceFile = None,
    settings: SpaceSettings = None,
    rules: SpaceRules = None,
    mix_tokens: MixTokens = False,
    json: AsJson = False,
) -> None:
    """What could be replaced in a model: layers, shapes, FLOPs, share of time; what cannot, and why."""
    from syno.cli.spaces import asked, sizes
    from syno.cli.targets import example_inputs
    from syno.searching.revisit import model_of
    from syno.torch import sites as find_sites

    made = model_of(model)
    inputs, named = example_inputs(example, made)
    wanted = asked(settings or [], rules or [], space)
    found = find_sites(made, *inputs, **named)
    searched = sizes(found, wanted, mix_tokens) if spaces or wanted or mix_tokens else None
    if json:
        more = {} if searched is None else {"spaces": searched.to_dict()}
        print_json({**found.to_dict(), **more})
    else:
        typer.echo(str(found))
        if searched is not None:
            typer.echo(f"\n{searched}")
