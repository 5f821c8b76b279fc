"""Tables on terminals of any width: numbers are whole, and what is long is cut or stands below."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from test_session import start

from syno.cli.common import draw_table
from syno.session import open_view, progress
from syno.session.progress import progress_table

WORDS = "y[n,o,l] = sum[k_1,c] x[n,c+o/(C_out*s^-1),l+k_1-1] * w1[o,k_1,c]"


def drawn(width: int, show: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    show(console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    lines: list[str] = text.splitlines()
    assert all(len(line) <= width for line in lines), text
    return lines


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("width", [60, 66, 72, 80, 100, 200])
def test_tables_lose_nothing_and_long_texts_have_room(width: int, seed: int) -> None:
    draw = random.Random(seed)
    numbers = draw.randint(1, 4)
    columns = ["id", "state", *[f"number {n}" for n in range(numbers)], "formula", "other"]
    rows = []
    for n in range(draw.randint(1, 6)):
        some = [f"{draw.randrange(10**6):,}" for _ in range(numbers)]
        rows.append([f"c{n}", "done", *some, WORDS[: draw.randint(0, 66)], "b"])
    lines = drawn(width, lambda console: draw_table(console, "title", columns, rows))
    text = "".join("".join(lines).split())
    for row in rows:
        for cell in row[:-2] if width >= 80 else row[:1]:
            assert any(cell in line.split() for line in lines), (cell, lines)
    below = any(line.startswith("formula") for line in lines)
    longest = max(len(row[-2]) for row in rows)
    if below:  # nothing of it is lost
        assert all("".join(f"{row[0]}:{row[-2]}".split()) in text for row in rows if row[-2])
    elif longest > 40:  # it has as much room as it needs to be read
        assert len(lines) <= 6 + len(rows) * (1 + longest // 25), lines


def test_a_column_of_long_texts_alone_is_folded() -> None:
    lines = drawn(50, lambda console: draw_table(console, "", ["formula"], [[WORDS * 3]]))
    assert WORDS.split()[0] in "".join(lines)
    assert not any(line.startswith("formula:") for line in lines)


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_a_running_search_shows_its_numbers_whole(
    tmp_path: Path, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = progress._progress_rows

    def long(view: Any, rows: int) -> list[list[str]]:
        return [[row[0], WORDS, *row[2:]] for row in real(view, rows)]

    monkeypatch.setattr(progress, "_progress_rows", long)
    with start(tmp_path) as session:
        session.run(budget=4, progress="off")
    with open_view(tmp_path) as view:
        lines = drawn(width, lambda console: console.print(progress_table(view, width=width)))
        for candidate in view.candidates():
            (line,) = (one for one in lines if one.split()[:1] == [candidate.id])
            assert f"{candidate.value:.4g}" in line.split(), line
            assert candidate.flops is None or f"{candidate.flops:,}" in line.split(), line
            assert candidate.state in line
