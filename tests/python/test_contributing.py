"""CONTRIBUTING.md tells where to change what: every file and folder that it and the README name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("cpp/", "syno/", "tests/", "benchmarks/", "scripts/", "docs/", "cmake/")


def is_there(name: str, beside: str | None = None) -> bool:
    """Whether a path or pattern of the repository, or of a folder in it, matches something.

    >>> is_there("`cpp/support`".strip("`")), is_there("hash*", "cpp/support"), is_there("cpp/nothing")
    (True, True, False)
    """
    folder = ROOT / beside if beside else ROOT
    return any(folder.glob(name.rstrip("/")))


def missing_paths(text: str) -> list[str]:
    """The names in `backquotes` that are paths of folders of ours, and lead nowhere."""
    named = re.findall(r"`([\w./*-]+)`", text) + re.findall(r"\]\(([\w./-]+)\)", text)
    return sorted({name for name in named if name.startswith(FOLDERS) and not is_there(name)})


def where_to_change() -> list[tuple[str, str]]:
    """The rows (what, where) of the table "Where do I change"."""
    part = (
        (ROOT / "CONTRIBUTING.md")
        .read_text("utf-8")
        .split("## Where do I change", 1)[1]
        .split("\n## ")[0]
    )
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", part, re.MULTILINE)
    return [row for row in rows if "`" in row[1]]


@pytest.mark.parametrize("file", ["CONTRIBUTING.md", "README.md", "benchmarks/README.md"])
def test_paths_that_documents_name_are_there(file: str) -> None:
    text = (ROOT / file).read_text("utf-8")
    assert missing_paths(text) == []


def test_a_path_that_leads_nowhere_is_found() -> None:
    assert missing_paths("see `cpp/gone`, [it](syno/gone.py) and `cpp/support`") == [
        "cpp/gone",
        "syno/gone.py",
    ]


def test_every_row_names_a_place_and_files_in_it() -> None:
    rows = where_to_change()
    assert len(rows) >= 10
    for what, where in rows:
        places = re.findall(r"`([^`]+)`", where)
        assert places[0].startswith(FOLDERS), f"{what}: {places[0]}"
        folder = places[0] if (ROOT / places[0]).is_dir() else None
        for place in places[1:]:
            assert is_there(place) or (folder and is_there(place.rstrip("*") + "*", folder)), (
                f"{what}: {place}"
            )


def test_every_folder_of_the_engine_is_an_answer() -> None:
    answers = " ".join(where for _, where in where_to_change())
    folders = {path.name for path in (ROOT / "cpp").iterdir() if path.is_dir()}
    assert {name for name in folders if f"`cpp/{name}" not in answers} == set()
