"""The benchmark of reuse: its cases are what they say, and every way of spending measurements gives a schedule."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

pytest.importorskip("reusebench.measured", reason="benchmarks are not beside the tests")

from reusebench.candidates import _row, _shared
from reusebench.candidates import _summary as candidates_summary
from reusebench.changing import changing
from reusebench.measured import PAIRS, _summary, controls, pairs, program_of, sets, smaller
from reusebench.paper import counts, example_3, paper
from reusebench.ranged import ranged

from syno import _core
from syno.operators.operator import Operator
from syno.tuning.network import SELECTIONS
from syno.tuning.reuse import operator_set
from syno.tuning.reuse.shapes import comparable, shape_of


@pytest.mark.parametrize("name", PAIRS)
def test_pairs_satisfy_the_reuse_conditions(name: str) -> None:
    text, one, other = PAIRS[name]
    shapes = [shape_of(_core.Program.parse(text, sizes=sizes)) for sizes in (one, other)]
    assert comparable(*shapes) and shapes[0] != shapes[1]


@pytest.mark.parametrize(
    "name", ["ResNet50", "MobileNetV2", "ResNeSt50", "1D-IR", "R(2+1)D", "DCGAN", "BERT-Base"]
)
def test_programs_of_a_set_have_the_loops_of_its_operators(name: str) -> None:
    for operator in operator_set(name):
        less = smaller(operator, 4)
        program = program_of(less)
        assert program is not None
        assert program_points(program) == math.prod(less.extents)
        if less.groups == 1:
            assert sorted(shape_of(program).extents) == sorted(less.extents)
        assert all(a <= b for a, b in zip(less.extents, operator.extents, strict=True))


def program_points(program: _core.Program) -> int:
    """Multiplications of a program."""
    return math.prod(shape_of(program).extents)


def test_the_paper_part_is_json_with_what_is_printed() -> None:
    document = paper(small=True, show=False)
    row = document["sets"]["BERT-Base"]
    assert row["computed"]["pairs with bridges"] == row["printed"]["pairs with bridges"] == 24
    assert example_3()["threads"] == [112, 128, 224]
    assert counts("ResNet50")["bridges"] == 44
    json.dumps(document)


def test_every_way_of_a_pair_is_measured_and_compared() -> None:
    found = pairs(["FRB"], threads=1, trials=4, budget=2, show=False)
    assert list(found["pairs"]) == ["FRB", "FRB, the other way"]
    assert set(found["summary"]) == {"quality", "where a search gains a tenth", "there, reuse over"}
    for row in found["pairs"].values():
        assert set(row["quality"]) == set(row["measurements"]) == set(found["summary"]["quality"])
        assert row["measurements"]["constructed"] == 0
        assert all(count <= 5 for count in row["measurements"].values())
        assert all(quality > 0 for quality in row["quality"].values())
    assert found["pairs"]["FRB"]["sizes"] == found["pairs"]["FRB, the other way"]["sizes"][::-1]


def test_the_summary_of_pairs_compares_where_a_search_gains() -> None:
    def row(reuse: float, constructed: float) -> dict[str, dict[str, float]]:
        return {
            "quality": {"search": 1.0, "reuse": reuse, "top k": 0.5, "constructed": constructed}
        }

    found = _summary({"a": row(0.9, 0.8), "b": row(1.0, 0.95), "c": row(0.4, 0.5)})
    assert found["where a search gains a tenth"] == ["a", "c"]
    assert found["quality"]["reuse"]["least"] == 0.4
    assert found["there, reuse over"]["top k"] == {
        "geomean": pytest.approx((1.8 * 0.8) ** 0.5),
        "least": 0.8,
    }
    assert _summary({}) == {}


@pytest.mark.nightly
def test_every_selection_of_a_set_is_measured_and_compared() -> None:
    found = sets(["BERT-Base"], threads=1, trials=4, times=16, show=False)["sets"]["BERT-Base"]
    assert set(found["selections"]) == {*SELECTIONS, "searched, as many", "predicted, as many"}
    assert all(row["quality"] > 0 for row in found["selections"].values())


def test_some_selections_of_a_set_are_held_against_searching_each() -> None:
    found = sets(["DCGAN"], threads=1, trials=3, times=64, show=False, selections=["constructed"])[
        "sets"
    ]["DCGAN"]
    assert list(found["selections"]) == ["each", "constructed"]
    assert len(found["programs"]) == len(found["selections"]["constructed"]["qualities"]) == 5
    assert found["selections"]["each"]["quality"] == 1.0
    assert found["selections"]["constructed"]["measurements"] == 0


@pytest.mark.nightly
def test_contestants_at_changing_sizes_are_compared_with_each_other() -> None:
    pytest.importorskip("transformers")
    document = changing(
        ["bert-small"],
        threads=1,
        turns=1,
        show=False,
        few=2,
        contestants=["eager", "ONNX Runtime", "syno"],
    )
    found = document["changing"]["bert-small"]
    assert found["sizes"] == [24, 48]
    for row in found["rows"].values():
        assert row.get("error") is None
        assert set(row["ms"]) == set(row["first_s"]) == {"24", "48"}
    assert found["rows"]["syno"]["max_rel_err"] < 1e-4
    assert set(found["summary"]) == {
        "eager: ready", "eager: speed", "ONNX Runtime: ready", "ONNX Runtime: speed", "best peer of each size: speed",
    }  # fmt: skip


def test_kernels_for_ranges_are_compared_with_kernels_for_one_size() -> None:
    document = ranged(["mean", "mean of rows, both"], turns=1, show=False, few=2)
    row, both = document["kernels"].values()
    assert set(row["sizes"]) == {"j = 8", "j = 17"}
    assert set(both["sizes"]) == {"i = 4, j = 16", "i = 80, j = 165"}
    assert all(
        found["speed"] == found["static_us"] / found["us"] for found in row["sizes"].values()
    )
    assert len(row["first_made_ms"]) + len(row["first_there_ms"]) == 4
    assert document["summary"]["least speed"] == min(
        each["speed"] for of in (row, both) for each in of["sizes"].values()
    )
    json.dumps(document)


def test_a_candidate_is_taken_apart_by_stages_and_valuations() -> None:
    graph = _core.named_operator("conv1x1", _core.spec_named("conv"))
    row = _row(Operator.from_pgraph(graph))
    assert row["valuations"] >= 2 and len(row["sketch of the first"]) == row["valuations"] - 1
    assert set(row["stages_ms"]) == {"predict", "construct", "compile", "check"}
    assert all(ms > 0 for ms in row["stages_ms"].values())
    found = candidates_summary({"a": row, "b": row})
    assert found["measured, s a candidate"]["most"] == row["measured_s"] > row["predicted_s"] > 0
    json.dumps(found)


def test_a_valuation_that_is_the_first_one_loses_nothing_by_its_sketch() -> None:
    text = "y[o,h,w] = sum[c,r,s] x[c,h+r-1,w+s-1] * k[o,c,r,s]"
    sizes = {"o": 64, "c": 32, "h": 14, "w": 14, "r": 3, "s": 3}
    program = _core.Program.parse(text, sizes=sizes)
    (ratio,) = _shared([program, program])
    assert ratio <= 1.001


def test_what_a_search_makes_faster_in_a_set_is_tried_beside_controls(tmp_path: Path) -> None:
    """Of two products that a search gained a tenth on, the third one is nearest; one alone in its type has no parent."""
    texts = [
        str(_core.Program.parse("y[m,n] = sum[k] a[m,k] * b[k,n]", sizes={"m": m, "n": 16, "k": 8}).text())
        for m in (16, 32, 48)
    ]  # fmt: skip
    alone = str(_core.Program.parse("y[m] = sum[k] a[m,k]", sizes={"m": 16, "k": 8}).text())
    qualities = [0.5, 0.99, 0.8, 0.2]
    found = {"programs": [*texts, alone], "selections": {"constructed": {"qualities": qualities}}}
    file = tmp_path / "sets.json"
    file.write_text(json.dumps({"sets": {"mine": found}}))
    rows = controls([file], threads=1, trials=4, budget=2, show=False, few=None)["controls"]
    assert [row["program"] for row in rows.values()] == [texts[0].strip(), texts[2].strip()]
    assert {row["parent"] for row in rows.values()} == {texts[1].strip()}
    for row in rows.values():
        assert row["quality"].keys() == row["measurements"].keys()
        assert row["quality"]["search"] == 1 and row["quality"]["reuse"] > 0
