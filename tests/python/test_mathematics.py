"""Formulas as LaTeX say what programs compute, and browsers can draw them."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from latex_reader import LatexReader
from test_emit import ACCUMULATING, CASES, index_maps, program_of, random_inputs

import syno
from syno import _core
from syno._core import Program
from syno.operators.mathematics import mathml

MORE = {
    "powers": ("y[i] = (x[i] - 2) ** 2 - -(x[i] + 1) * 3 - (x[i] - (x[i] - 1))", {"x": [5]}, {}),
    "quotients": ("y[i] = 2 / (x[i] + 3) / 4 * (1 - x[i] / 0.5)", {"x": [5]}, {}),
    "logic": ("y[i] = (x[i] < 1 and x[i] != 0 or b[i] <= x[i]) - (x[i] == b[i])", {"x": [5], "b": [5]}, {}),
    "numbers of places": ("y[i,j] = x[i] * index(2*i - 3) + index(j/2) * (j + 1)", {"x": [4]}, {"j": 6}),
    "the same names": ("w_1[i] = sum[k] x[i,k]; w1[i] = max[k] x[i,k] * w_1[i]", {"x": [3, 4]}, {}),
    "words": ("C_in[i] = sum[k_1,k1] data[i+k_1,k1] * weight_2[k1]", {"data": [6, 3], "weight_2": [3]}, {"i": 4}),
    "scattered": ("y[2*h + r] += x[h] * w1[r]", {"x": [4], "w1": [3]}, {}),
    "offset ranges": ("y[i: -1..3] = sum[j: 1..4] x[i + j]", {"x": [8]}, {}),
}  # fmt: skip


def of(name: str) -> Program:
    if name in CASES:
        return program_of(name)
    if name == "accumulation":
        return Program.parse(ACCUMULATING)
    text, shapes, sizes = MORE[name]
    return Program.parse(text, shapes=shapes, sizes=sizes)


def read_back(program: Program) -> Program:
    """The program that its LaTeX says, over the same inputs."""
    latex = _core.emit_latex(program)
    lines = program.text().split("\n")
    given = [line for line in lines if re.match("input|weight|constant", line)]
    scopes = [line for line in lines if line not in given and re.search(r"\] \+?= ", line)]
    ranges = [dict(re.findall(r"(\w+): ([^,\]]+)", line)) for line in scopes]
    text = LatexReader(latex, ranges, re.findall(r"\w+", program.text())).text()
    for at, line in enumerate(
        scopes
    ):  # which of its iterators come from where, an accumulation does not say
        if " += " in line:
            lines = text.split("\n")
            right = lines[at].split("[", 1)[1]
            text = "\n".join([*lines[:at], f"{line.split('][')[0]}][{right}", *lines[at + 1 :]])
    try:
        return Program.parse("\n".join([*given, text, f"return {', '.join(program.outputs)}"]))
    except syno.SynoError as error:
        raise AssertionError(f"{latex}\n{text}") from error


def same(program: Program) -> None:
    inputs = random_inputs(program)
    expected, got = program.interpret(inputs), read_back(program).interpret(inputs)
    for name in program.outputs:
        np.testing.assert_allclose(
            got[name], expected[name], rtol=1e-12, atol=1e-12, err_msg=_core.emit_latex(program)
        )


@pytest.mark.parametrize("name", [*CASES, *MORE, "accumulation"])
def test_latex_says_what_the_program_computes(name: str) -> None:
    same(of(name))


@settings(deadline=None, max_examples=100)
@given(index_maps())
def test_latex_says_any_index(program: Program) -> None:
    same(program)


def test_constants_show_their_values() -> None:
    latex = _core.emit_latex(of("accumulation"))
    assert r"c &= \left(1, \frac{1}{2}\right) \\" in latex
    many = Program.parse(f"constant c[40] = {{{', '.join(['1'] * 40)}}}\ny[i: 40] = c[i]\nreturn y")
    assert r"\dots\right)" in _core.emit_latex(many)


def test_names_that_look_alike_are_told_apart() -> None:
    latex = _core.emit_latex(of("the same names"))
    assert r"w_{1}[i]" in latex
    assert r"\mathtt{w1}[i]" in latex


@pytest.mark.parametrize("name", [*CASES, *MORE, "accumulation"])
def test_formulas_are_drawn(name: str) -> None:
    drawn = mathml(_core.emit_latex(of(name)))
    root = ElementTree.fromstring(f"<p>{drawn}</p>")
    assert {part.tag.split("}")[-1] for part in root} == {"math"}
    assert "\\" not in "".join(root.itertext())


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{<script>alert(1)</script>}",
        r"x<img src=y onerror=alert(1)>",
        r"\href{javascript:alert(1)}{x}",
        r"\style{color:red}{x}",
        "&lt;script&gt;",
        r"\frac{1",
        r"\left(" * 3000,
        "x" * 30_000,
        "",
    ],
)
def test_what_a_stranger_s_file_calls_a_formula_becomes_no_element(latex: str) -> None:
    drawn = mathml(latex)
    root = ElementTree.fromstring(f"<p>{drawn}</p>")
    for part in root.iter():
        assert part.tag.split("}")[-1] not in {"script", "img", "a", "style"}
        assert not {"href", "style", "class", "onerror"} & set(part.attrib)


def test_operators_show_their_formula() -> None:
    operator = syno.Operator.parse("y[i] = sum[k] x[i,k] * w[k]", i=2, k=3)
    assert operator.latex() == r"y[i] = \sum_{k} x[i, k] \cdot w[k]"
    assert "<math" in operator._repr_html_()
