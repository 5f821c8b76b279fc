"""Pictures of derivations: every step is in them, whatever its rules and expressions are."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from typer.testing import CliRunner

import syno
from syno.cli.main import app
from syno.deriving import Derivations
from syno.errors import SynoError
from syno.operators.operator import Operator

WINDOW = "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]"
SIZES = {"o": 32, "c": 32, "h": 28, "w": 28, "r": 3, "s": 3}


def _found(**options: object) -> Derivations:
    given = {"seconds": 0.0, "measure": 0, **options}
    return syno.derive(Operator.parse(WINDOW, **SIZES), **given)  # type: ignore[arg-type]


def _titles(svg: str) -> list[str]:
    return [e.text or "" for e in ElementTree.fromstring(svg).iter() if e.tag.endswith("title")]


def _texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter() if element.text]


@pytest.mark.parametrize("options", [{"states": 200}, {"target": "matmul", "depth": 3}])
def test_every_step_is_drawn(options: dict[str, object], tmp_path: Path) -> None:
    found = _found(**options)
    assert len(found) > 3
    for one in found:
        svg = one.to_svg(tmp_path / "one.svg")
        assert (tmp_path / "one.svg").read_text() == svg
        texts = _texts(svg)
        _, _, *tips = _titles(svg)  # of the picture and of the original
        for step, tip in zip(one.steps, tips, strict=True):
            assert tip.startswith(f"{step.rule} at {step.where}\n{step.statement}")
            assert tip.endswith("\n".join(step.after))
            assert f"{step.multiply_adds[1]:,} multiply-adds" in texts
        assert "the original" in texts and f"{len(one.rules)} steps" in texts[0]


def test_expressions_are_escaped(tmp_path: Path) -> None:
    clamped = Operator.parse("y[i] = select(x[i] < 0, x[i], 1)", i=6)
    svg = syno.derive(clamped, states=1, seconds=0, measure=0)[0].to_svg()
    assert any("<" in text for text in _texts(svg))
    with pytest.raises(SynoError, match="derive"):
        _found(states=2)[0].to_svg(tmp_path)  # a directory


def test_the_command_line_draws_the_row_that_is_explained(tmp_path: Path) -> None:
    line = [
        "derive",
        WINDOW,
        *(part for name, size in SIZES.items() for part in ("-s", f"{name}={size}")),
    ]
    line += ["--seconds", "0", "--states", "60", "--measure", "0"]
    path = tmp_path / "drawn.svg"
    done = CliRunner().invoke(app, [*line, "--explain", "1", "--svg", str(path)])
    assert done.exit_code == 0, done.output
    first, *_ = _texts(path.read_text())
    assert not first.startswith("0 steps")
    done = CliRunner().invoke(app, [*line, "--svg", str(path)])
    assert done.exit_code == 0, done.output
    assert _texts(path.read_text())[0].startswith("0 steps")  # nothing was measured: the original
    assert CliRunner().invoke(app, [*line, "--svg", str(tmp_path / "one.png")]).exit_code == 2
