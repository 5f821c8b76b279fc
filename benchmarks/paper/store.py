"""Results that grow: every run adds to a JSON file what it measured, with machine, date and command."""

from __future__ import annotations

import datetime
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from syno.support.files import write_whole
from syno.support.machine import describe_machine

RESULTS = Path(__file__).resolve().parents[1] / "results"


#: Options that say where things lie on a machine, and how many of its cores are used.
_LOCAL = ("--output", "--directory", "--data", "--workers")


def command() -> str:
    """The command that is running, as one would type it; where it reads and writes is left out."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if not skip and word != "--json" and word.partition("=")[0] not in _LOCAL:
            words.append(word)
        skip = word in _LOCAL
    return " ".join(["python benchmarks/paper_syno.py", *map(shlex.quote, words)])


def read(path: Path) -> dict[str, Any]:
    """What a results file holds; nothing when there is none yet.

    Raises:
        SystemExit: the file is no JSON object of rows.
    """
    if not path.exists():
        return {"rows": {}}
    try:
        document = json.loads(path.read_text())
        if not isinstance(document["rows"], dict):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise SystemExit(
            f"{path} is not a results file of this command (an object with 'rows'): "
            "move it away or give --output"
        ) from None
    return dict(document)


def add(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Adds rows by key, replacing those of the same key, and returns the whole document."""
    document = read(path)
    stamp = {
        "machine": msgspec.to_builtins(describe_machine()),
        "date": datetime.date.today().isoformat(),
        "command": command(),
    }
    for key, row in rows.items():
        document["rows"][key] = {**row, **stamp}
    document["rows"] = dict(sorted(document["rows"].items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(document, indent=1) + "\n")
    return document


def table(columns: list[str], rows: list[list[str]]) -> str:
    """Aligned text: the first column to the left, the others to the right."""
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    lines = []
    for row in [columns, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
