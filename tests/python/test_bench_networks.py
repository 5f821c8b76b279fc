"""Networks of the package timed together: what is asked for, what is told, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

torch = pytest.importorskip("torch")

from syno import models  # noqa: E402
from syno.cli.main import app  # noqa: E402
from syno.errors import ArgumentError, UnknownName  # noqa: E402
from syno.timing.bench_networks import NetworkComparisons, bench_networks  # noqa: E402


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two small networks of the user's own."""
    monkeypatch.setattr(models, "_FACTORIES", dict(models._FACTORIES))
    monkeypatch.setattr(models, "_EXAMPLES", dict(models._EXAMPLES))

    def dense() -> Any:
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 8), torch.nn.ReLU())

    models.register("dense", dense, example=(3, 4, 4))
    models.register("filter", lambda: torch.nn.Conv2d(3, 4, 3), example=(3, 9, 9))
    return ["dense", "filter"]


def test_networks_are_timed_and_taken_together(tiny: list[str]) -> None:
    told: list[str] = []
    made = bench_networks(tiny, batch=2, progress=lambda name, comparison: told.append(name))
    assert list(made) == tiny == told and len(made) == 2
    assert made.contestants()[0] == "original" and len(made.contestants()) == 2
    whole = made.contestants()[1]
    ratios = [made[name][whole].speed_up for name in tiny]
    assert made.geomean(whole) == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    assert made.geomean("original") == 1
    text, page = str(made), made._repr_html_()
    for part in (*tiny, "geometric mean", whole):
        assert part in text and part in page
    document = json.loads(json.dumps(made.to_dict()))
    assert set(document["networks"]) == set(tiny) and set(document["geomean"]) == {
        "original",
        whole,
    }


def test_the_command_times_networks(tiny: list[str]) -> None:
    words = ["bench", "--networks", ",".join(tiny), "--against", "whole"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert set(json.loads(done.stdout)["networks"]) == set(tiny)
    printed = CliRunner().invoke(app, words)
    assert printed.exit_code == 0 and "geometric mean" in printed.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--networks", "resnet19"], "resnet18"),
        (["--networks", "gpt,gpt"], "once"),
        (["some/session", "--networks", "gpt"], "one of them"),
        (["--networks", "gpt", "--example", "1,8:int64"], "one of them"),
        ([], "nothing to time"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["bench", *words])
    assert done.exit_code != 0 and says in done.output.replace("\n", " ")


def test_a_part_that_could_not_run_is_told(tiny: list[str]) -> None:
    made = bench_networks(tiny[:1])
    comparison = made[tiny[0]]
    without = NetworkComparisons(
        {tiny[0]: type(comparison)(comparison.timings[:1], comparison.machine, {"derived": "no"})}
    )
    assert "dense without derived: no" in str(without)


def test_examples_fit_the_models() -> None:
    for name in models.names():
        x = models.example(name, 2)
        assert x.shape[0] == 2
    with torch.no_grad():
        assert models.make("gpt")(models.example("gpt", 2)).shape[:2] == (2, 64)
        assert models.make("fashion_resnet")(models.example("fashion_resnet")).shape == (1, 10)
    with pytest.raises(UnknownName, match="resnet18"):
        models.example("resnet19")


def test_bad_arguments() -> None:
    with pytest.raises(UnknownName, match="resnet18"):
        bench_networks(["resnet19"])
    with pytest.raises(UnknownName, match="openvino"):
        bench_networks(["gpt"], against=["tvm"])
    for names, batch in (([], 1), (["gpt", "gpt"], 1), (["gpt"], 0)):
        with pytest.raises(ArgumentError):
            bench_networks(names, batch=batch)
