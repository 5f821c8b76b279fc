"""The experiment `transfer`: operators in other networks, found ones and known ones, written again for each group of layers."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from paper import transfer  # noqa: E402

import syno  # noqa: E402
from syno import _core  # noqa: E402
from syno.errors import SynoError  # noqa: E402
from syno.operators.operator import Operator  # noqa: E402


def group_of(*layers: Any, size: int = 12) -> Any:
    model = torch.nn.Sequential(*layers)
    channels = layers[0].in_channels
    return syno.sites(model, torch.zeros(1, channels, size, size), repeats=1).groups()[0]


def conv(inputs: int, outputs: int, kernel: int = 3) -> Any:
    return torch.nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)


@pytest.mark.parametrize("name", ["grouped_conv", "operator1", "separable_conv", "bottleneck_conv"])
def test_an_operator_written_for_other_layers_is_the_same_operator_there(name: str) -> None:
    here, there = group_of(conv(16, 32)), group_of(conv(64, 64), conv(64, 128), size=8)
    sizes = {"kernel": "k", "groups": "g", "shrink": "s"}
    graph = _core.named_operator(name, here.spec(), sizes)
    wanted = _core.named_operator(name, there.spec(), sizes)
    made = transfer.written_for(graph.text(), there.spec())
    assert Operator.from_pgraph(made).canonical_hash == Operator.from_pgraph(wanted).canonical_hash


def test_an_operator_that_fits_no_other_layers_says_why() -> None:
    graph = _core.named_operator(
        "grouped_conv", group_of(conv(16, 32)).spec(), {"kernel": "k", "groups": "g"}
    )
    linear = syno.sites(torch.nn.Linear(16, 16), torch.zeros(2, 5, 16), repeats=1).groups()[0]
    with pytest.raises(SynoError):
        transfer.written_for(graph.text(), linear.spec())
    said, assigned = transfer.placed(partial(transfer.from_text, graph.text()), [linear])
    assert not assigned and said[linear.key].startswith("- ")


def test_found_operators_are_timed_in_other_networks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = _core.named_operator(
        "operator1", group_of(conv(16, 32)).spec(), {"kernel": "k", "groups": "g", "shrink": "s"}
    )
    (tmp_path / "mine.pgraph").write_text(graph.text())
    parser = argparse.ArgumentParser()
    transfer.arguments(parser)
    made = parser.parse_args(
        [
            "--found",
            str(tmp_path / "mine.pgraph"),
            "--networks",
            "fashion_resnet",
            "--peers",
            "--turns",
            "3",
            "--beside",
            "conv1d",
        ]
    )
    made.output = tmp_path / "rows.json"
    document = transfer.run(made)
    original, mine = (document["rows"][f"fashion_resnet/{n}"] for n in ("original", "mine"))
    assert mine["flops"] < original["flops"] and mine["params"] < original["params"]
    assert mine["groups"]["conv2d 3x3"] == "legal" and mine["replaced"] > 0.5
    assert mine["ms"] > 0 and mine["max_rel_err"] < 1e-3
    rows = document["rows"]
    assert {"original, whole", "mine, whole", "conv1d, whole"} <= {
        row["contestant"] for row in rows.values()
    }
    whole = rows["fashion_resnet/mine, whole"]
    assert whole["flops"] == mine["flops"] and whole["max_rel_err"] < 1e-3
    assert whole["of_best_peer"] == pytest.approx(original["ms"] / whole["ms"])
    transfer.plot(document, tmp_path / "rows.svg")
    (tmp_path / "none.json").write_text('{"rows": {}}')
    with pytest.raises(SystemExit, match="no found operator that was tested"):
        transfer.operators_of(tmp_path / "none.json")


def test_known_operators_stand_beside_the_found_ones_that_none_beats(tmp_path: Path) -> None:
    def row(origin: str, test: float, us: float) -> dict[str, Any]:
        return {
            "origin": origin,
            "metric": "accuracy",
            "test": test,
            "us": us,
            "operators": {"3x3": f"{origin} {test}"},
        }

    rows = {
        "baseline": row("original", 0.9, 100),
        "a": row("found", 0.8, 50),
        "beaten": row("found", 0.7, 60),
        "b": row("found", 0.85, 90),
        "g2": row("known: grouped(g=2)", 0.86, 70),
        "g4": row("known: grouped(g=4)", 0.82, 40),
    }
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": rows}))
    assert list(transfer.operators_of(path)) == ["a", "b"]
    made = transfer.operators_of(path, ["grouped"])
    assert list(made) == ["a", "b", "grouped"] and made["grouped"].endswith("0.86")
    with pytest.raises(SystemExit, match=r"no known operator 'stacked'.*it has: grouped"):
        transfer.operators_of(path, ["stacked"])


def test_named_operators_are_written_by_each_group_strided_ones_with_a_stride() -> None:
    layers = [conv(32, 32), torch.nn.Conv2d(32, 32, 3, padding=1, stride=2), conv(32, 32, 1)]
    model = torch.nn.Sequential(*layers)
    groups = syno.sites(model, torch.zeros(1, 32, 12, 12), repeats=1).groups()
    write = partial(transfer.from_name, "Operator 1(g=2, s=2)")
    said, assigned = transfer.placed(write, groups)
    assert len(assigned) == 3, said
    for site, operator in assigned.items():
        assert ("stride" in operator.pgraph.text()) == (site.name == "1")
    swapped = syno.replace(model, assigned)
    assert swapped(torch.zeros(1, 32, 12, 12)).shape == model(torch.zeros(1, 32, 12, 12)).shape
    with pytest.raises(SynoError, match="no known operator 'Operator 3' here; there are grouped"):
        transfer.from_name("Operator 3", groups[0])
    with pytest.raises(SynoError, match="the layers have no window"):
        transfer.from_name("dilated", group_of(layers[2]))


def test_an_operator_that_costs_more_than_the_layers_is_not_placed() -> None:
    layers = group_of(conv(16, 16, 1))
    graph = _core.named_operator("conv", group_of(conv(16, 32)).spec(), {"kernel": "k"})
    said, assigned = transfer.placed(partial(transfer.from_text, graph.text()), [layers])
    assert not assigned and said[layers.key] == "dearer"
