"""A file of `syno/` holds one idea: none is longer than what is read in one sitting."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES = 600

#: Longer files that nobody has split along their ideas yet; only ever fewer.
LONG: set[str] = set()


def longer(root: Path) -> set[str]:
    """Files of `root/syno` that have more than MOST_LINES lines."""
    return {
        file.relative_to(root).as_posix()
        for file in (root / "syno").rglob("*.py")
        if len(file.read_text("utf-8").splitlines()) > MOST_LINES
    }


def test_no_other_file_is_long() -> None:
    found = longer(ROOT)
    assert found - LONG == set(), "split it along its ideas"
    assert LONG - found == set(), "no longer long: strike it off LONG"


def test_a_long_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "syno/graph").mkdir(parents=True)
    (tmp_path / "syno/graph/long.py").write_text("x = 1\n" * (MOST_LINES + 1))
    (tmp_path / "syno/graph/short.py").write_text("x = 1\n" * MOST_LINES)
    assert longer(tmp_path) == {"syno/graph/long.py"}
