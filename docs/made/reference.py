"""Pages of reference: the command line from typer, Python from docstrings, variables from their table."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import griffe
from sections import Sections

import syno
from syno._environment import VARIABLES

ROOT = Path(__file__).resolve().parents[2]

#: Page -> title, what it says first, and the names, public ones of syno or modules of it.
AREAS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "operators": (
        "Operators and kernels",
        "From a formula to machine code.",
        ("Operator", "Kernel", "Space", "derive", "sample", "enumerate", "predict", "latency", "load", "export", "config"),
    ),
    "networks": (
        "Networks",
        "Layers of a model, and models compiled whole.",
        ("sites", "replace", "compile", "load_onnx", "bench", "syno.nn"),
    ),
    "search": (
        "Searches",
        "Tasks, sessions, results.",
        ("search", "Result", "Task", "Budget", "Session", "syno.session.protocols", "syno.session.view", "syno.session.view_candidates",
         "syno.session.view_operators", "syno.session.view_whole", "syno.session.asking", "syno.report.model",
         "syno.training.metrics", "syno.training.train", "syno.policies.policy", "syno.known", "syno.executors", "syno.session.targets", "syno.tracking"),
    ),
    "tuning": (
        "Tuning and deriving",
        "Schedules by measuring, programs by rewriting.",
        ("tune", "tune_network", "syno.machines.model", "syno.kernels.construct", "syno.tuning.reuse", "syno.tuning.layouts.search", "syno.tuning.layouts.result",
         "syno.tuning.layouts.template", "syno.tuning.layouts.instance", "syno.tuning.layouts.proposals", "syno.deriving.search",
         "syno.deriving.derivations"),
    ),
    "engine": (
        "The engine and errors",
        "Levels below operators, as Python sees them, and what goes wrong.",
        ("Program", "PGraph", "Spec", "Schedule", "LoopNest", "SynoError", "syno.errors", "syno.synthesis"),
    ),
}  # fmt: skip


def where(name: str) -> str:
    """The dotted path of a public name of syno, or of a module."""
    if name.startswith("syno."):
        return name
    if name == "config":
        return "syno.config"
    return f"{syno._EXPORTS[name]}.{name}"


def python(area: str) -> str:
    """A page of the Python reference, for mkdocstrings."""
    title, first, names = AREAS[area]
    return f"# {title}\n\n{first}\n\n" + "\n".join(f"::: {where(name)}\n" for name in names)


def missing() -> set[str]:
    """Public names of syno that no page has."""
    shown = {name for _, _, names in AREAS.values() for name in names}
    return set(syno.__all__) - shown - {"__version__"}


@cache
def entries() -> dict[str, Any]:
    """What the pages show: functions, classes and methods by dotted path, as griffe reads them, which mkdocstrings draws."""
    loader = griffe.GriffeLoader(
        search_paths=[ROOT], extensions=griffe.load_extensions(Sections()), allow_inspection=False
    )
    package = loader.load("syno")
    loader.resolve_aliases(implicit=False, external=False)
    found: dict[str, Any] = {}
    for path in (where(name) for _, _, names in AREAS.values() for name in names):
        _collect(package[path.partition(".")[2]], path, found)
    return found


def _collect(entry: Any, path: str, found: dict[str, Any]) -> None:
    if not entry.is_module:
        found[path] = entry
    for name, member in entry.members.items():
        # As in mkdocs.yml: public names, of imported ones those in __all__, no modules in modules.
        if name.startswith("_") or (member.is_imported and not member.is_public):
            continue
        if member.is_function or member.is_class:
            _collect(member, f"{path}.{name}", found)


def undescribed() -> list[str]:
    """Functions, classes and methods of the reference without a docstring."""
    return [path for path, entry in entries().items() if not entry.docstring]


def unnamed_parameters(shown: Mapping[str, Any] | None = None) -> dict[str, list[str]]:
    """Parameters that the docstring of a function, method or class does not name, by its path; of those shown, all
    entries of the reference where nothing is given.

    Named is what has a line in a section (``name: …``) or stands in backticks, and what another entry names that the
    docstring refers to: ``as :meth:`Other.method```. Fields of a dataclass may have docstrings of their own. A class that is
    no dataclass and says that it is ``Made by`` something needs no word of its constructor's.
    """
    shown = entries() if shown is None else shown
    named = {path: _named_by(entry) for path, entry in shown.items()}
    found = {}
    for path, entry in shown.items():
        if entry.is_class and "dataclass" not in entry.labels and "Made by " in _said(entry):
            continue
        there = set(named[path])
        for other in _REFERENCE.findall(_said(entry)):
            for full in named:
                if f".{full}".endswith(f".{other}"):
                    there |= named[full]
        missing = [name for name in _parameters(entry) if name not in there]
        if missing:
            found[path] = missing
    return found


#: ``name``, or ``name=…``.
_QUOTED = re.compile(r"`\**(\w+)(?:=[^`]*)?`")
_REFERENCE = re.compile(r"\b[Aa]s (?:for )?(?::\w+:)?`+([\w.]+)`")


def _sections(entry: Any) -> list[Any]:
    """Of the docstring, of a class with its constructor's, as the pages have them."""
    docstrings = [entry.docstring]
    if entry.is_class and "__init__" in entry.members:
        docstrings.append(entry.members["__init__"].docstring)
    return [part for each in docstrings if each for part in each.parse("google", warnings=False)]


def _said(entry: Any) -> str:
    """In text and of values; what a function raises is no description of its parameters."""
    texts: list[str] = []
    for section in _sections(entry):
        if section.kind.value == "text":
            texts.append(section.value)
        elif section.kind.value in ("parameters", "attributes", "returns"):
            texts += [row.description for row in section.value]
    return "\n".join(texts)


def _named_by(entry: Any) -> set[str]:
    names = set(_QUOTED.findall(_said(entry)))
    for section in _sections(entry):
        if section.kind.value in ("parameters", "attributes"):
            names |= {row.name.lstrip("*") for row in section.value}
    if entry.is_class:
        names |= {name for name, field in entry.attributes.items() if field.docstring}
    return names


def _parameters(entry: Any) -> list[str]:
    """Those that a caller gives. What the engine's classes have without a constructor, ``(*args, **kwargs)``, has no types."""
    own = [
        each for each in entry.parameters if each.name not in ("self", "cls") and each.annotation
    ]
    return [each.name.lstrip("*") for each in own if not each.name.startswith("_")]


def command_line() -> str:
    """What ``syno --help`` and the help of every command say."""
    command = [
        sys.executable,
        "-m",
        "typer",
        "syno.cli.main",
        "utils",
        "docs",
        "--name",
        "syno",
        "--title",
        "Command line",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def environment() -> str:
    """The table of variables."""
    rows = "".join(f"| `{name}` | {what} |\n" for name, what in VARIABLES.items())
    return (
        "# Environment variables\n\n| variable | what it is |\n|---|---|\n"
        + rows
        + "\nAnother `SYNO_…` variable has no effect "
        'and is named in a warning. `with syno.config(cpu="generic"): …` sets the cache, the CPU, the machine and the progress for a block.\n'
    )
