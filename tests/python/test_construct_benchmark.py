"""The construction benchmark: its cases are the paper's, its numbers add up, its networks agree."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

cases = pytest.importorskip("constructbench.cases")
operators = pytest.importorskip("constructbench.operators")

import construct  # noqa: E402
from constructbench import curve  # noqa: E402

from syno.machines.model import machine_model  # noqa: E402


@pytest.mark.parametrize("case", [*cases.PAPER, *cases.UNBALANCED], ids=lambda c: c.name)
def test_every_case_is_an_operator_of_its_shapes(case: Any) -> None:
    operator = case.operator()
    for name, shape in (case.shapes or {}).items():
        assert operator.shapes[name] == shape
    assert operator.flops > 0


def test_a_case_is_constructed_in_every_way_and_timed() -> None:
    case = cases.Case("small", "y[m,n] = sum[k] a[m,k] * b[k,n]", {"m": 33, "n": 65, "k": 17})
    row = operators.run_case(case, turns=3, trials=3, seed=0, peers=True)
    assert set(row["us"]) == {*operators.METHODS, "eager"}
    assert row["max_rel_err"] < 1e-5 and row["search"]["trials"] == 3
    totals = operators.summary([row])
    assert totals["speed_over_tree"]["tree"] == pytest.approx(1)
    assert 0 < totals["best_found_over_constructed"] <= 1


def test_an_interruption_keeps_the_cases_that_are_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_case, left = construct.run_case, [2]

    def until_the_third(case: Any, **options: Any) -> Any:
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        small = cases.Case(case.name, "y[m] = sum[k] a[m,k]", {"m": 9, "k": 5})
        return run_case(small, **options)

    monkeypatch.setattr(construct, "run_case", until_the_third)
    monkeypatch.setattr(construct, "machine_model", lambda measure: machine_model())
    monkeypatch.setattr(sys, "argv", ["construct.py", "all", "--turns", "3", "--json"])
    construct.main()
    made = json.loads(capsys.readouterr().out)
    assert made["interrupted"] == f"2 of {len(construct.ALL)} cases"
    assert [row["name"] for row in made["cases"]] == [case.name for case in construct.ALL[:2]]
    assert made["summary"]
    left[0] = 0  # nothing is done: there is nothing to keep
    with pytest.raises(KeyboardInterrupt):
        construct.main()


def test_shares_are_of_the_gain_in_logarithms() -> None:
    row: dict[str, Any] = {
        name: dict.fromkeys(operators.METHODS, 1.0) for name in ("construct_ms",)
    }
    row["us"] = {**dict.fromkeys(operators.METHODS, 1.0), "tree": 4.0}
    row["us"]["graph, no virtual threads"] = 2.0
    row["predicted_us"] = dict(row["us"])
    totals = operators.summary([row])
    assert totals["share_of_graph"] == pytest.approx(0.5)
    assert totals["prediction_error"] == pytest.approx(1)


def test_networks_give_what_pytorch_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = pytest.importorskip("constructbench.networks")
    monkeypatch.setattr(networks.Bert, "layers", 1)
    monkeypatch.setattr(networks.Bert, "inner", 64)
    made = networks.run_network(
        "bert", lengths=[5, 8], images=1, peers=["eager"], trials=0, show=False
    )
    assert {row["shape"] for row in made["rows"]} == {"length 5", "length 8"}
    assert set(made["summary"]["total_s"]) == {"eager", "tree", "graph", "packed"}


def test_strided_windows_of_a_network_see_whole_images(monkeypatch: pytest.MonkeyPatch) -> None:
    networks = pytest.importorskip("constructbench.networks")
    monkeypatch.setattr(networks.MobileNet, "blocks", ((1, 16, 1, 1), (6, 24, 2, 2)))
    made = networks.run_network(
        "mobilenet", lengths=[], images=1, peers=["eager"], trials=0, show=False
    )
    assert len(made["rows"]) == 12 and max(row["max_abs_err"] for row in made["rows"]) < 1e-3


def test_searches_are_drawn_at_the_speed_they_found(tmp_path: Path) -> None:
    plots = pytest.importorskip("constructbench.plots")
    row: dict[str, Any] = {
        "name": "one",
        "us": {**dict.fromkeys(operators.METHODS, 2.0), "tree": 4.0},
        "construct_ms": dict.fromkeys(operators.METHODS, 1.0),
        "search": {"gap": 0.5, "seconds": 30.0, "trials": 64},
    }
    points = plots.build_against_speed([row, row])
    assert points["constructed"] == pytest.approx((1e-3, 2))
    assert points["search, 64 trials"] == pytest.approx((30, 4))
    plots.plot_operators([row, row], str(tmp_path / "operators.svg"))
    network = {
        "network": "bert",
        "images": 5,
        "rows": [{"shape": "length 5", "contestant": "tree", "ready_s": 1.0, "total_s": 2.0}],
        "summary": {"total_s": {"tree": 2.0}},
    }
    plots.plot_network(network, str(tmp_path / "network.svg"))
    assert all("<svg" in file.read_text() for file in tmp_path.iterdir())


def searched(us: float, points: list[list[float]], count: int) -> dict[str, Any]:
    return {
        "count": count,
        "us": {**dict.fromkeys(operators.METHODS, us), "tree": 2 * us},
        "construct_ms": dict.fromkeys(operators.METHODS, 5.0),
        "search": {"gap": 0.5, "seconds": 30.0, "trials": 10, "curve": points},
    }


def test_a_networks_curve_counts_each_program_as_often_as_the_network_has_it(
    tmp_path: Path,
) -> None:
    rows = [
        searched(
            100.0, [[0, 40.0], [6, 20.0]], 3
        ),  # half of the constructed time after seven trials
        searched(1000.0, [[4, 900.0]], 1),  # nothing before five
    ]
    made = curve.curve_of(rows)
    assert made["tree"] == [[pytest.approx(0.01), pytest.approx(2.6)]]
    assert made["constructed"][0][1] == pytest.approx(1.3)
    points = {round(seconds): ms for seconds, ms in made["search"]}
    assert points == {
        6: pytest.approx((3 * 100 + 1000) / 1e3),
        30: pytest.approx((3 * 100 + 500) / 1e3),
        42: pytest.approx((3 * 50 + 500) / 1e3),
        60: pytest.approx((3 * 50 + 500) / 1e3),
    }
    document = {"networks": [{"network": "made up", "curve": made}]}
    curve.plot_curves(document, str(tmp_path / "curve.svg"))
    assert "<svg" in (tmp_path / "curve.svg").read_text()


def test_a_network_is_constructed_in_every_way_and_searched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import networks
    from torch import nn, zeros

    net = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.Conv1d(8, 8, 3))
    monkeypatch.setitem(networks._NETWORKS, "tiny", (lambda: net, lambda: zeros(1, 4, 40)))
    made = curve.run_curve("tiny", turns=3, trials=2, seed=0)
    assert sum(row["count"] for row in made["programs"]) >= 1
    assert set(made["curve"]) == {*operators.METHODS, "search"}
    assert all(ms > 0 for points in made["curve"].values() for _, ms in points)
