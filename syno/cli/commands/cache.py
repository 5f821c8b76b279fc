"""``syno cache``: the kernels kept on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syno.cli.commands.options import AsJson
from syno.cli.common import guarded, print_json

cache_app = typer.Typer(no_args_is_help=True, help="The cache of compiled kernels.")


@cache_app.command("info")
@guarded
def cache_info(json: AsJson = False) -> None:
    """Where the cache is and how much it holds."""
    from syno.cli.cache import info

    facts = info()
    if json:
        print_json(facts)
    else:
        typer.echo(f"{facts['directory']}: {facts['kernels']} kernels, {facts['bytes']:,} bytes")


@cache_app.command("clear")
@guarded
def cache_clear(json: AsJson = False) -> None:
    """Removes every kernel of the cache."""
    from syno.cli.cache import clear

    removed = clear()
    print_json({"removed": removed}) if json else typer.echo(f"removed {removed} kernels")


@cache_app.command("export")
@guarded
def cache_export(
    archive: Annotated[Path, typer.Argument(help="A .zip to write.")], json: AsJson = False
) -> None:
    """Packs the cache, to be used on a machine with the same CPU."""
    from syno.cli.cache import pack

    count = pack(archive)
    print_json({"kernels": count}) if json else typer.echo(f"packed {count} kernels")


@cache_app.command("import")
@guarded
def cache_import(
    archive: Annotated[Path, typer.Argument(help="A .zip of 'syno cache export'.")],
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Take machine code of another user or machine: it runs with your rights.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Unpacks kernels into the cache; each is checked when it is first used."""
    from syno.cli.cache import unpack

    count = unpack(archive, trust=trust)
    print_json({"kernels": count}) if json else typer.echo(f"imported {count} kernels")
