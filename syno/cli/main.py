"""The ``syno`` command: which commands it has, and what is done before one begins. ``syno --help`` must be instant."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from syno.cli.commands.bench import bench
from syno.cli.commands.cache import cache_app
from syno.cli.commands.compile import compile_network
from syno.cli.commands.derive import derive
from syno.cli.commands.doctor import doctor
from syno.cli.commands.explain import explain, help
from syno.cli.commands.export import export
from syno.cli.commands.search import demo, search
from syno.cli.commands.session import replay, report, show, status
from syno.cli.commands.sites import sites
from syno.cli.commands.tune import tune
from syno.cli.common import Exit

app = typer.Typer(
    name="syno",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="Invents linear operators for a neural network and compiles them to native kernels.",
)
app.add_typer(cache_app, name="cache")


def _version(show: bool) -> None:
    if show:
        import syno

        typer.echo(f"syno {syno.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


# In the order of `syno --help`.
app.command()(doctor)
app.command()(demo)
app.command()(sites)
app.command()(search)
app.command()(status)
app.command()(show)
app.command()(help)
app.command()(explain)
app.command()(report)
app.command()(bench)
app.command()(tune)
app.command()(derive)
app.command("compile")(compile_network)
app.command()(replay)
app.command()(export)


def main() -> None:
    """Entry point of the ``syno`` command. Modules in the working directory can be named, too."""
    from syno.support.fresh import importable, leave_sessions

    leave_sessions()
    # Last, so that a source checkout of syno does not hide the installed package.
    if "" not in sys.path and importable(""):
        sys.path.append("")
    for stream in (sys.stdout, sys.stderr):
        # Names of files need not be Unicode: what cannot be shown is shown by its number.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except Exception as error:  # before a command has begun: where its options are read
        from syno.cli.failures import sentence, wants_traceback

        if wants_traceback():
            raise
        typer.echo(sentence(error), err=True)
        sys.exit(Exit.FAILED)


if __name__ == "__main__":
    main()
