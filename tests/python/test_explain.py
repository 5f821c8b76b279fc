"""Derivations: counts that add up, reasons that hold, drawings, and the command."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from syno import _core
from syno.cli.main import app
from syno.errors import SpecError, UnknownName
from syno.operators.explain import Explanation, explain, read_operator, read_spec
from syno.operators.operator import Operator

RUN = CliRunner()
SIZES = {"kernel": "k_1", "groups": "g", "shrink": "s"}
EVERYTHING = 10**6


def derivation_of(name: str, neighbours: int) -> Explanation:
    spec = _core.spec_named("resnet18")
    sizes = SIZES if name == "operator1" else {"kernel": "k_1", "groups": "s"}
    return explain(read_operator(name, spec, sizes), spec, neighbours=neighbours)


@pytest.mark.parametrize("name", ["conv1x1", "grouped_conv", "operator1"])
def test_every_neighbour_is_listed_with_a_reason(name: str) -> None:
    way = derivation_of(name, EVERYTHING)
    assert way.legal
    statements = {row["name"]: row["statement"] for row in _core.rules()}
    for here in way.steps:
        listed: dict[str, int] = {}
        for other in here["neighbours"]:
            reason = other["pruned_by"]
            listed[reason] = listed.get(reason, 0) + 1
            assert bool(reason) == bool(other["why"])
            if reason in statements:
                assert other["why"] == statements[reason]
            if reason == "distance":
                out_of_reach = other["distance"] < 0
                assert out_of_reach or other["distance"] > here["steps_left"] - 1
            if not reason:
                assert 0 <= other["distance"] <= here["steps_left"] - 1
        kept = listed.pop("", 0)
        assert kept == here["kept"]
        assert listed == here["pruned"]


def test_each_step_is_taken_by_the_one_before() -> None:
    way = derivation_of("operator1", 1)
    graph = _core.named_operator("operator1", _core.spec_named("resnet18"), SIZES)
    assert [step["step"] for step in way.steps] == ["", *graph.steps]
    for before, after in zip(way.steps, way.steps[1:], strict=False):
        taken = [other["step"] for other in before["neighbours"] if other["taken"]]
        assert taken == [after["step"]]
        assert after["steps_left"] == before["steps_left"] - 1
    assert way.steps[-1]["distance"] == 0


def test_at_most_so_many_neighbours_of_a_kind_are_listed() -> None:
    for here in derivation_of("grouped_conv", 2).steps:
        listed: dict[str, int] = {}
        for other in here["neighbours"]:
            if not other["taken"]:
                listed[other["pruned_by"]] = listed.get(other["pruned_by"], 0) + 1
        assert all(count <= 2 for count in listed.values())
    assert not any(here["neighbours"] for here in derivation_of("grouped_conv", 0).steps)


def test_the_text_says_why_with_the_values() -> None:
    text = str(derivation_of("operator1", 1))
    assert "max_reduction_ratio: c4 = reduce" in text
    assert "(beyond max_reduction_ratio = 4.0)" in text
    assert "(a Shift of channels permutes them)" in text
    assert "more steps from there" in text or "out of reach from there" in text


def test_a_drawing_is_valid_and_holds_every_step() -> None:
    way = derivation_of("operator1", 1)
    drawing = ElementTree.fromstring(way.to_svg())
    words = {element.text or "" for element in drawing.iter("{http://www.w3.org/2000/svg}text")}
    for number, step in enumerate(way.steps[1:], 1):
        assert f"{number}. {step['step']}" in words
    tips = "".join(e.text or "" for e in drawing.iter("{http://www.w3.org/2000/svg}title"))
    assert "shift-above-reduce" in tips and "a sum over all i" in tips
    assert len(drawing.findall("{http://www.w3.org/2000/svg}svg")) == 1  # the pGraph


def test_the_command_explains_named_operators_and_files(tmp_path: Path) -> None:
    drawing = tmp_path / "op.svg"
    done = RUN.invoke(app, ["explain", "conv1x1", "--svg", str(drawing), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    assert document["legal"] and document["steps"][-1]["distance"] == 0
    assert drawing.read_text().startswith("<svg")
    spec = _core.spec_named("simple")
    file = Operator.from_pgraph(_core.named_operator("conv1x1", spec)).save(tmp_path / "op.json")
    space = tmp_path / "space.json"
    space.write_text(spec.to_json())
    done = RUN.invoke(app, ["explain", str(file), "--spec", str(space), "--neighbours", "0"])
    assert done.exit_code == 0, done.output
    assert "kept: rules, budgets and distance allow every step" in done.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["operator9"], "none of the named operators"),
        (["."], "name one of its candidates"),
        (["operator1", "c1"], "no session directory"),
        (["operator1", "--size", "groups"], "'groups=g'"),
        (["operator1", "--size", "group=g"], "groups"),
        (["operator1", "--spec", "resnet19"], "resnet18"),
    ],
)
def test_bad_input_gets_a_sentence(words: list[str], said: str) -> None:
    done = RUN.invoke(app, ["explain", *words])
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())


def test_an_operator_without_a_derivation_or_of_another_spec_is_refused() -> None:
    plain: Any = Operator.parse("y[i,j] = sum[k] a[i,k] * b[k,j]", i=2, j=2, k=2)
    with pytest.raises(SpecError, match="no derivation"):
        explain(plain, _core.spec_named("simple"))
    other = _core.named_operator("conv1x1", _core.spec_named("simple"))
    with pytest.raises(SpecError, match="resnet18"):
        explain(other, _core.spec_named("resnet18"))
    with pytest.raises(UnknownName, match="neither a file nor"):
        read_spec("nothing")
