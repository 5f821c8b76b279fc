"""The levels of the engine: a folder of `cpp/` includes what stands before it in LEVELS, never what stands after."""

from __future__ import annotations

import re
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
