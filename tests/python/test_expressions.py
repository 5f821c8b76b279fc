"""The formula language is documented in one text, shown in three places, and every example in it runs."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from syno.cli.main import app
from syno.operators import expressions
from syno.operators.operator import Operator

ROOT = Path(__file__).resolve().parents[2]


def test_the_examples_give_what_they_show() -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    text = "\n".join(line for line in expressions.TEXT.splitlines() if not line.startswith("```"))
    runner.run(doctest.DocTestParser().get_doctest(text, {}, "expressions", None, 0))
    assert runner.tries >= 12 and runner.failures == 0


def _rows() -> list[list[str]]:
    rows = [
        line.strip("|").split(" | ")
        for line in expressions.TEXT.splitlines()
        if line.startswith("| ")
    ]
    return [[cell.strip(" |") for cell in row] for row in rows if row[0].strip() != "written"]


def test_every_operator_of_the_table_is_one() -> None:
    rows = [row for row in _rows() if len(row) == 3 and "=" in row[2]]
    assert len(rows) >= 5
    for _, formula, sizes in rows:
        given = dict(pair.split("=") for pair in sizes.strip("`").split())
        op = Operator.parse(formula.strip("`"), **{name: int(n) for name, n in given.items()})
        assert op.compile().verification


@pytest.mark.parametrize(
    "body", [b for row in _rows() if len(row) == 2 for b in re.findall(r"`([^`]+)`", row[0])]
)
def test_every_body_of_the_tables_is_one(body: str) -> None:
    """Reductions and functions, as the right side of a formula over the iterators that it leaves free."""
    bound = re.match(r"\w+\[([\w,]+)\]", body)
    reduced = set(bound[1].split(",")) if bound and not body.startswith("x[") else set()
    free = sorted(set(re.findall(r"\b[a-z]\b(?!\[)", body)) - reduced)
    op = Operator.parse(
        f"y[{','.join(free)}] = {body}", **dict.fromkeys([*free, *sorted(reduced)], 3)
    )
    assert op.outputs == ["y"]


def test_every_word_of_the_language_is_explained() -> None:
    for word in [
        "sum",
        "max",
        "min",
        "prod",
        "mean",
        "fill",
        "index(",
        "select(",
        "inside(",
        "ratio(",
        "size(",
    ]:
        assert word in expressions.TEXT
    for word in [
        "+=",
        ";",
        "return",
        "input ",
        "weight ",
        "constant ",
        "and",
        "or",
        "inf",
        "**",
        "%",
        "@" * 0,
    ]:
        assert word in expressions.TEXT


def test_it_is_shown_where_people_look() -> None:
    assert (ROOT / "docs/expressions.md").read_text(encoding="utf-8") == expressions.TEXT
    shown = CliRunner().invoke(app, ["help", "expressions"])
    assert shown.exit_code == 0 and shown.output.strip() == expressions.summary().strip()
    assert expressions.summary() in (Operator.parse.__doc__ or "")
    wrong = CliRunner().invoke(app, ["help", "expression"])
    assert wrong.exit_code == 2 and "did you mean 'expressions'?" in wrong.output
