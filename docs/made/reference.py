"""Pages of reference: the command line from typer, Python from docstrings, variables from their table."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from types import ModuleType

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
        ("search", "Result", "Task", "Budget", "Session", "syno.session.protocols", "syno.session.view", "syno.report.model",
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


def undescribed() -> list[str]:
    """Functions, classes and methods of the reference without a docstring."""
    found = []
    for name in (where(name) for _, _, names in AREAS.values() for name in names):
        module = sys.modules.get(name) or _module(name)
        if module is None:
            above, _, last = name.rpartition(".")
            rows = {name: getattr(importlib.import_module(above), last)}
        else:
            rows = {f"{name}.{key}": value for key, value in vars(module).items()
                    if not key.startswith("_") and getattr(value, "__module__", "") == name}  # fmt: skip
        for key, value in list(rows.items()):
            if inspect.isclass(value):
                rows |= {f"{key}.{method}": made for method, made in vars(value).items()
                         if not method.startswith("_") and getattr(made, "__name__", "") == method}  # fmt: skip
        found += [
            key for key, value in rows.items() if callable(value) and not inspect.getdoc(value)
        ]
    return found


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:  # a name in one
        return None


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
