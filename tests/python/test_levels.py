"""The order of the sources: a folder of `cpp/` includes what stands before it in LEVELS, and a folder of `syno/` imports, when
it is imported, what stands before it in ROOMS; never what stands after."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
LEVELS = [
    "support",
    "symbolic",
    "program",
    "equality",
    "pgraph",
    "lower",
    "synth",
    "derive",
    "nest",
    "machine",
    "schedule",
    "construct",
    "jit",
    "tune",
    "graph",
    "emit",
    "bindings",
]

#: Arrows against the order that nobody has cut yet, with the reason; only ever fewer.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def arrows(root: Path) -> set[tuple[str, str]]:
    """(folder, folder it includes from) of every `#include "folder/..."` below `root`."""
    return {
        (file.parent.relative_to(root).parts[0], included)
        for file in [*root.rglob("*.cpp"), *root.rglob("*.hpp")]
        for included in re.findall(r'^#include "(\w+)/', file.read_text("utf-8"), re.MULTILINE)
    }


def against_the_order(found: set[tuple[str, str]]) -> set[tuple[str, str]]:
    return {(a, b) for a, b in found if LEVELS.index(a) < LEVELS.index(b)}


def test_every_arrow_points_to_a_level_before() -> None:
    folders = {path.name for path in (ROOT / "cpp").iterdir() if path.is_dir()}
    assert folders <= set(LEVELS), "a new folder takes its place in LEVELS"
    assert against_the_order(arrows(ROOT / "cpp")) == set(EXCEPTIONS)


def test_an_arrow_back_is_found(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program/a.cpp").write_text(
        '#include "support/error.hpp"\n#include "jit/kernel.hpp"\n'
    )
    assert against_the_order(arrows(tmp_path)) == {("program", "jit")}


def test_libraries_are_linked_in_this_order() -> None:
    linked = re.findall(
        r"^syno_level\((\w+)", (ROOT / "CMakeLists.txt").read_text("utf-8"), re.MULTILINE
    )
    assert linked == [level for level in LEVELS if level in linked]


#: Folders of `syno/`, and files beside them. An import inside a function may point anywhere: it runs at the call.
ROOMS = [
    "errors", "config", "support", "data", "models", "timing", "operators", "training", "known", "machines", "policies",
    "kernels", "deriving", "torch", "session", "gpu", "graph", "report", "tracking", "tuning", "executors", "export",
    "searching", "synthesis", "loading", "compiling", "nn", "onnx_backend", "demo", "cli",
]  # fmt: skip


def room_of(module: str) -> str | None:
    """`syno.kernels.cache` is of `kernels`; the package itself, and what begins with `_`, of no room."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and not parts[1].startswith("_") else None


def imported(body: list[ast.stmt]) -> Iterator[str]:
    """Modules of syno that the statements import when they run: none inside functions, none for type checkers alone."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "syno":
            yield from (f"syno.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
        elif isinstance(node, ast.If):
            if "TYPE_CHECKING" not in ast.unparse(node.test):
                yield from imported(node.body)
            yield from imported(node.orelse)
        elif isinstance(node, (ast.Try, ast.With, ast.ClassDef)):
            yield from imported(node.body)


def rooms_imported(package: Path) -> set[tuple[str, str]]:
    """(room, another room it imports from) of every file of a package."""
    found = set()
    for file in package.rglob("*.py"):
        place = file.relative_to(package.parent).with_suffix("")
        room = room_of(".".join(place.parts))
        for module in imported(ast.parse(file.read_text("utf-8")).body):
            other = room_of(module) if module.startswith("syno.") else None
            if room and other and room != other:
                found.add((room, other))
    return found


def test_every_import_points_to_a_room_before() -> None:
    here = {p.stem for p in (ROOT / "syno").iterdir() if p.suffix in (".py", "")}
    named = {room for room in here if not room.startswith("_")}
    assert named == set(ROOMS), "a new folder takes its place in ROOMS"
    back = {(a, b) for a, b in rooms_imported(ROOT / "syno") if ROOMS.index(a) < ROOMS.index(b)}
    assert back == set()


def test_an_import_back_is_found(tmp_path: Path) -> None:
    package = tmp_path / "syno"
    (package / "support").mkdir(parents=True)
    (package / "support/files.py").write_text(
        "from typing import TYPE_CHECKING\nfrom syno.kernels import cache\nfrom syno import errors, tuning\n"
        "if TYPE_CHECKING:\n    from syno.graph import axes\ndef later():\n    from syno.report import build\n"
    )
    assert rooms_imported(package) == {
        ("support", "kernels"), ("support", "errors"), ("support", "tuning")
    }  # fmt: skip
