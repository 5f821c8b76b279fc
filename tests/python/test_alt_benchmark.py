"""The benchmark of layouts: its fields are there and agree, what it times computes the same, unknown names are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from machines import written_machine

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

alt: Any = pytest.importorskip("alt")
operators: Any = pytest.importorskip("altbench.operators")
networks: Any = pytest.importorskip("altbench.networks")
joint: Any = pytest.importorskip("altbench.joint")

from altbench import misses  # noqa: E402

from syno.machines.model import fixed_kernels  # noqa: E402


@pytest.mark.parametrize("kind", operators.KINDS)
def test_configurations_are_of_their_kind_and_size(kind: str) -> None:
    cases = operators.drawn(kind, 3, 0, 2e8)
    assert len(cases) == 3 and [c.name for c in cases] == [
        c.name for c in operators.drawn(kind, 3, 0, 2e8)
    ]
    for case in cases:
        assert case.name.startswith(kind)
        with torch.no_grad():
            assert case.module(torch.zeros(case.shape)).numel() > 0


def test_an_operator_is_timed_in_each_layout_and_searched() -> None:
    case = operators.Case("small", torch.nn.Conv2d(32, 64, 3, padding=1, bias=False), (1, 32, 6, 6))
    row = operators.run_case(case, trials=2, seed=0)
    assert set(row["us"]) == {"row-major", "channels last"} | (
        {"blocked 16", "blocked 8", "blocked 4"} & set(row["us"])
    )
    assert row["predicted_us"].keys() == row["us"].keys() == row["searched"].keys()
    assert row["gain_of_best"] >= 1 >= row["us"][row["best"]] / row["us"]["row-major"]
    assert row["gain_of_chosen"] <= row["gain_of_best"]


def test_joint_searches_are_held_against_loops_alone(tmp_path: Path) -> None:
    case = operators.Case("small", torch.nn.Conv2d(4, 8, 3, padding=1, bias=False), (1, 4, 6, 6))
    how = {"proposals": "random", "levels": 1, "share": 0.6, "top": 2}
    row = joint.run_joint(case, list(joint.METHODS), 4, 0, **how)
    assert "failures" not in row, row
    assert row["us"].keys() == {"constructed", "loops", *joint.METHODS}
    assert row["over_loops"].keys() == set(joint.METHODS) == {*row["layouts"], "ALT-OL"}
    for method, ratio in row["over_loops"].items():
        assert ratio == pytest.approx(row["us"]["loops"] / row["us"][method])
    assert "failed" in joint.run_joint(
        operators.Case("none", torch.nn.ReLU(), (1, 4, 6, 6)), ["ALT"], 4, 0, **how
    )


def test_the_stem_lies_in_all_layouts_of_the_table() -> None:
    row = operators.stem(16 * 2, 64)
    assert not row.get("failed") and len(row["us"]) == 5


def test_table_2_has_the_papers_predictions_where_a_tile_lies_together() -> None:
    for row in misses.table_2():
        predicted = row["paper"][0]
        # The result's line is one more.
        assert row["together"] == predicted + 1
        assert row["together, a line a miss"] == misses.LINES * predicted + 1
        assert row["apart"] >= max(512, predicted) + 1


def test_table_3_counts_what_the_kernels_of_each_layout_ask_for() -> None:
    with fixed_kernels(written_machine().to_json()):
        rows = misses.table_3(32, counted=False)
    assert [row["layout"] for row in rows][:2] == ["NHWO", "NOHW"]
    results = 64 * 16 * 16 // 16  # vectors
    lines = results + (3 * 32 * 32 + 64 * 3 * 49) // 16
    for row in rows:
        assert row["stores"] >= results and row["loads"] > 0
        assert lines // 2 < row["misses"][0] and row["misses"][1] <= row["misses"][0]


def test_counters_are_read_from_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "perf"
    events = "\n".join(
        f'echo "$((1000 + 7 * n)),,{event},100,1.0,," >&2' for event in misses.EVENTS
    )
    fake.write_text(f'#!/bin/sh\nfor last in "$@"; do n=$last; done\n{events}\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert misses.perf(["x"]) == dict.fromkeys(misses.EVENTS, 7.0)
    fake.write_text("#!/bin/sh\necho '<not supported>,,instructions:u,0,100.00,,' >&2\n")
    assert misses.perf(["x"]) == "this machine does not count instructions:u"
    fake.write_text("#!/bin/sh\necho 'no permission' >&2\nexit 255\n")
    assert misses.perf(["x"]) == "perf does not count here: no permission"
    fake.write_text("#!/bin/sh\n")
    assert misses.perf(["x"]) == "perf counted nothing"
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert misses.perf(["x"]) == "perf is not installed"


def test_networks_are_timed_by_every_method_and_checked() -> None:
    row = networks.run_network("study", *networks.study(1, 32), list(networks.METHODS), rounds=1)
    assert row["us"].keys() == networks.METHODS.keys()
    assert max(row["max_rel_err"].values()) < 1e-5
    assert row["auto_over_best_uniform"] == pytest.approx(
        min(row["us"]["row-major"], row["us"]["ALT-OL"]) / row["us"]["auto"]
    )


def test_the_document_is_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        sys,
        "argv",
        ["alt.py", "operators", "--kinds", "C1D", "--configs", "1", "--most", "1e6", "--json"],
    )
    assert alt.main() == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["operators"]) == 1 and told["operators_geomean"]["gain_of_best"] >= 1
    for wrong in (
        ["figure9"],
        ["operators", "--kinds", "C4D"],
        ["propagation", "--methods", "ALT"],
    ):
        monkeypatch.setattr(sys, "argv", ["alt.py", *wrong])
        assert alt.main() == 2
        assert "unknown" in capsys.readouterr().err
