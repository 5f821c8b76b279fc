"""What all commands share: printing, JSON, exit codes, errors as one sentence."""

from __future__ import annotations

import enum
import functools
import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import typer

from syno.cli import interrupts

F = TypeVar("F", bound=Callable[..., Any])


class Exit(enum.IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NO_IMPROVEMENT = 3


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    import msgspec

    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        encoded = msgspec.json.encode(_unicode(msgspec.to_builtins(value)))
    sys.stdout.write(msgspec.json.format(encoded, indent=1).decode() + "\n")


def _unicode(value: Any) -> Any:
    """Plain data in which what is not Unicode, such as a file's name, is written by its numbers."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_unicode(key): _unicode(item) for key, item in value.items()}
    return [_unicode(item) for item in value] if isinstance(value, list) else value


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table on standard output: boxed on a terminal, aligned text elsewhere."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    width = None if console.is_terminal else 200
    table = Table(title=title or None, box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=width).print(table, markup=False)


def guarded(command: F, continues: bool = False) -> F:
    """Turns the library's errors into a sentence on standard error and an exit code.

    Ctrl-C leaves with 130 and SIGTERM with 143 after saying so, and that the command can be continued where it can.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        interrupts.continues = continues
        try:
            from syno.cli.failures import sentence, wants_traceback

            try:
                return command(*args, **kwargs)
            except (typer.Exit, typer.Abort, typer.BadParameter):
                raise
            except BrokenPipeError:  # whoever read the output has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                raise typer.Exit(Exit.FAILED) from None
            except Exception as error:
                if wants_traceback():
                    raise
                typer.echo(sentence(error), err=True)
                raise typer.Exit(Exit.FAILED) from None
        except KeyboardInterrupt:
            raise interrupted() from None

    return wrapper  # type: ignore[return-value]


def resumable(command: F) -> F:
    """:func:`guarded`, for a command that goes on where it was when it is run again."""
    return guarded(command, continues=True)


def interrupted(details: str = "") -> typer.Exit:
    """Says on standard error that the command was interrupted and how to continue; the exit to raise."""
    typer.echo(interrupts.words() + (f" ({details})" if details else ""), err=True)
    return typer.Exit(interrupts.exit_code())
