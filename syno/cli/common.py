"""What all commands share: printing, JSON, exit codes, errors as one sentence."""

from __future__ import annotations

import enum
import functools
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
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


def one_of(
    kind: str, names: Callable[[], Iterable[str]], *, many: bool = False
) -> Callable[..., str]:
    """A callback of an option whose value is one of ``names()``, or with ``many`` several with commas.

    Another value is a usage error that lists the valid ones. The names are asked for when the option is read, so
    that ``--help`` need not import what has them.
    """

    def check(context: typer.Context, value: str) -> str:
        if context.resilient_parsing or value is None:  # completion, or an option left out
            return value
        from syno.errors import unknown_name

        known = list(names())
        for part in value.split(",") if many else [value]:
            if part not in known:
                raise typer.BadParameter(_sentence(unknown_name(kind, part, known)))
        return value

    return check


def parsed_by(parse: Callable[[Any], Any]) -> Callable[..., str]:
    """A callback of an option whose text ``parse`` understands; what it raises is a usage error."""

    def check(context: typer.Context, value: str) -> str:
        from syno.errors import SynoError

        if not context.resilient_parsing and value is not None:
            try:
                parse(value)
            except SynoError as error:
                raise typer.BadParameter(_sentence(error)) from None
        return value

    return check


def target_cpu(
    context: typer.Context, parameter: typer.CallbackParam, value: str | None
) -> str | None:
    """The callback of ``--target`` and ``--cpu``; the former must be eager, for it says which CPUs there are."""
    from syno import _core
    from syno.errors import UnknownName

    if value is not None and not context.resilient_parsing:
        try:
            if parameter.name == "target":
                _core.cpu_named("generic", value)
            else:
                _core.cpu_named(value, context.params.get("target"))
        except UnknownName as error:
            raise typer.BadParameter(_sentence(error)) from None
    return value


def suffix_of(suffixes: Callable[[], Iterable[str]]) -> Callable[..., Path | None]:
    """A callback of an option that names a file to write, in a format that its suffix says."""

    def check(context: typer.Context, value: Path | None) -> Path | None:
        if value is not None and not context.resilient_parsing:
            known = list(suffixes())
            if value.suffix.lower() not in known:
                raise typer.BadParameter(f"'{value}': the suffix must be one of {', '.join(known)}")
        return value

    return check


def _sentence(error: Exception) -> str:
    """What an error says, without its code and on one line: the option is named before it."""
    text = str(error)
    if text.startswith("["):
        text = text.partition("] ")[2]
    return " ".join(text.replace("\n  fix: ", "; ").split())


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


#: Characters that a column of long texts needs; where it has fewer, its texts stand below the table.
_LEAST_ROOM = 40


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """A table on standard output: boxed on a terminal, aligned text elsewhere. What is too long for a narrow terminal
    stands below, row by row."""
    from rich.console import Console

    console = Console()
    draw_table(console if console.is_terminal else Console(width=200), title, columns, rows)


def draw_table(console: Any, title: str, columns: list[str], rows: list[list[str]]) -> None:
    """:func:`print_table` on a rich console."""
    from rich import box
    from rich.cells import cell_len
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    widths = [max(map(cell_len, texts)) for texts in zip(columns, *rows, strict=True)]
    long = max(range(len(columns)), key=widths.__getitem__)
    between = len(columns) + 2
    below = widths[long] > _LEAST_ROOM > console.width - sum(widths) + widths[long] - between
    kept = [n for n in range(len(columns)) if n != long or not below or long == 0]
    narrow = sum(widths[n] for n in kept) + 3 * len(kept) + 2 > console.width
    table = Table(
        title=title or None,
        box=box.SIMPLE_HEAD,
        title_justify="left",
        padding=(0, 0) if narrow else (0, 1),
    )
    for n in kept:
        table.add_column(columns[n], overflow="fold")
    for row in rows:
        table.add_row(*(row[n] for n in kept))
    console.print(table, markup=False)
    if len(kept) == len(columns):
        return
    console.print(Text(columns[long]))
    for row in rows:
        if row[long]:
            console.print(Padding(Text(f"{row[0]}: {row[long]}", overflow="fold"), (0, 0, 0, 2)))
    console.print()


def guarded(command: F, continues: bool = False) -> F:
    """Turns the library's errors into a sentence on standard error and an exit code.

    A name that does not exist and a budget that is not understood are usage errors. Ctrl-C leaves with 130 and SIGTERM
    with 143 after saying so, and that the command can be continued where it can.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        interrupts.continues = continues
        try:
            from syno.cli.failures import sentence, wants_traceback
            from syno.errors import BudgetError, UnknownName

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
                usage = isinstance(error, UnknownName | BudgetError)
                raise typer.Exit(Exit.USAGE if usage else Exit.FAILED) from None
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
