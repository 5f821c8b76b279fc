"""Spaces as users have them: made from layers, set, printed, kept, sampled, enumerated, searched."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from test_pipeline import OPTIONS
from torch import nn, randn
from typer.testing import CliRunner

import syno
from syno import _core
from syno.cli.main import app
from syno.cli.spaces import asked
from syno.errors import FormatError, SessionError, SpecError, UnknownName
from syno.searching.pipeline import search_task
from syno.searching.proposers import POLICIES
from syno.searching.space_settings import BUDGETS, EXTENSIONS, THRESHOLDS, Settings
from syno.session import Prune
from syno.session.config import read_config
from syno.torch.signatures import MOST_STEPS

NAMES = _core.spec_names()


@pytest.fixture(scope="module")
def groups() -> list[Any]:
    """A plain 3x3 group, one that strides, a 1x1 one and a linear one."""
    model = nn.Sequential(
        nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.Conv2d(32, 32, 1), nn.Flatten(), nn.Linear(32 * 64, 64),
    )  # fmt: skip
    return syno.sites(model, randn(1, 16, 16, 16)).groups()


def of(groups: list[Any], key: str) -> Any:
    return next(group for group in groups if group.key == key)


# --- what a space is


def test_every_name_of_the_engine_has_a_meaning() -> None:
    plain = json.loads(_core.spec_named("test").to_json())
    assert set(plain["budgets"]) == set(BUDGETS)
    assert set(plain["thresholds"]) == set(THRESHOLDS)
    assert set(_core.extension_names()) == set(EXTENSIONS)
    assert not set(BUDGETS) & set(THRESHOLDS) | set(BUDGETS) & set(EXTENSIONS)


@pytest.mark.parametrize("suffix", [".json", ".toml"])
@pytest.mark.parametrize("name", NAMES)
def test_a_space_comes_back_from_its_file(name: str, suffix: str, tmp_path: Path) -> None:
    space = syno.Space.load(name).with_(max_params=None, max_flops=2e15, tile=True)
    again = syno.Space.load(space.save(tmp_path / f"a{suffix}"))
    assert again == space == pickle.loads(pickle.dumps(space)) and hash(again) == hash(space)
    assert again == syno.Space.from_json(space.to_json()) != syno.Space.load(name)
    assert again.budgets["max_params"] is None and again.budgets["max_flops"] == 2e15
    assert again.spec == _core.Spec.from_json(space.to_json())
    assert space != name
    assert len(space.shapes()) == len(space.valuations)


def test_a_file_that_is_no_space_is_refused(tmp_path: Path) -> None:
    space = syno.Space.load("test")
    with pytest.raises(FormatError, match=r"must be one of \.json, \.toml"):
        space.save(tmp_path / "a.txt")
    assert not list(tmp_path.iterdir())
    for name, text in {
        "a.toml": "a = [",
        "b.toml": "name = 3",
        "c.toml": "budgets = 3",
        "a.json": "{}",
    }.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(FormatError):
            syno.Space.load(tmp_path / name)
    with pytest.raises(UnknownName, match="resnet18"):
        syno.Space.load("resnet81")
    with pytest.raises(SpecError, match="neither a file nor a name"):
        syno.Space.load(3)  # type: ignore[arg-type]


def test_a_space_of_layers_has_their_shapes_and_settings(groups: list[Any]) -> None:
    group = of(groups, "conv2d 3x3 s2")
    space = group.space(max_steps=6, rules={"pools-too-much": False}, extensions={"tile": True})
    assert space == syno.Space.of(
        group, max_steps=6, rules={"pools-too-much": False}, extensions={"tile": True}
    )
    assert space.shapes() == [((1, 16, 16, 16), (1, 32, 8, 8))]
    assert {"tile", "strided_inputs", "depthwise"} <= set(space.extensions)
    assert group.space(extensions=["tile"]).extensions == ["tile"]
    assert not space.rules["pools-too-much"] and space.rules["stride-large"]
    assert space.budgets["max_steps"] == 6 and space.budgets["max_flops"] == int(
        group.layer_flops * 0.9
    )
    back = space.with_(rules={"pools-too-much": True}, max_steps=12)
    assert back.rules["pools-too-much"] and back.budgets["max_steps"] == 12
    assert space.budgets["max_steps"] == 6  # immutable


def test_a_space_prints_what_it_holds(groups: list[Any]) -> None:
    space = of(groups, "conv2d 3x3").space(rules={"pools-too-much": False}, max_params=None)
    text = str(space)
    for name in (*BUDGETS, *THRESHOLDS, *EXTENSIONS, "pools-too-much", "C_out", "no limit"):
        assert name in text and name in space._repr_html_()
    assert "stride-above-split" not in text  # rules that are on are counted
    assert "conv2d 3x3" in repr(space)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"extensions": ["depthwice"]}, "did you mean 'depthwise'"),
        ({"extensions": {"depthwice": True}}, "did you mean 'depthwise'"),
        ({"rules": {"pools-to-much": False}}, "did you mean 'pools-too-much'"),
        ({"budgets": {"max_window": 3}}, "max_weights"),
        ({"thresholds": {"max_steps": 3}}, "max_window"),
        ({"max_step": 3}, "did you mean 'max_steps'"),
    ],
)
def test_an_unknown_name_lists_the_valid_ones(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UnknownName, match=words) as caught:
        syno.Space.load("test").with_(**settings)
    assert "Valid: " in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_steps": "9"}, "finite number"),
        ({"max_steps": True}, "finite number"),
        ({"max_steps": 2.5}, "integer"),
        ({"max_steps": 10**40}, "max_steps"),
        ({"max_steps": 99}, f"1 to {MOST_STEPS}"),
        ({"max_flops": float("nan")}, "finite number"),
        ({"max_flops": 10**400}, "finite number"),
        ({"min_flops": 1e30}, "min_flops"),
        ({"tile": 1}, "True .on. or False"),
        ({"rules": ["pools-too-much"]}, "dictionary"),
        ({"extensions": "tile"}, "list of names"),
        ({"extensions": 3}, "list of names"),
    ],
)
def test_a_wrong_value_is_named(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        syno.Space.load("test").with_(**settings)


def test_settings_come_back_from_plain_data_and_from_the_command_line() -> None:
    every = Settings.of({
        "extensions": ["tile", "repeat"], "rules": {"pools-too-much": False, "stride-large": True},
        "budgets": {"max_steps": 7, "max_params": None}, "max_window": 5.5, "max_flops": 1e20,
    })  # fmt: skip
    text = every.applied(_core.spec_named("test").to_json())
    assert Settings.of(json.loads(json.dumps(every.to_dict()))).applied(text) == text
    words = every.words()
    sets = [
        value for option, value in zip(words[::2], words[1::2], strict=True) if option == "--set"
    ]
    rules = [v for option, v in zip(words[::2], words[1::2], strict=True) if option == "--rule"]
    read = Settings.of(asked(sets, rules) or {})
    assert read.applied(_core.spec_named("test").to_json()) == text
    assert not Settings.of({}) and Settings.of({}).applied("{ }") == "{ }"


# --- settings reach the engine


def keys(found: Any) -> set[str]:
    return {graph.operator_key() for graph in found.graphs}


def test_a_rule_that_is_off_gives_more_operators() -> None:
    space = syno.Space.load("test")
    before = keys(syno.enumerate(space, max_steps=5))
    # Exact rules name operators that others equal; a futile one removes some for good.
    after = keys(syno.enumerate(space.with_(rules={"weight-without-matched": False}), max_steps=5))
    assert before < after


def test_an_extension_that_is_off_gives_none_of_its_primitive(groups: list[Any]) -> None:
    space = of(groups, "conv2d 3x3").space(max_steps=8)
    for on, strides in ((True, True), (False, False)):
        found = syno.sample(space.with_(dilated_windows=on, strided_inputs=on), 40)
        assert any(" = stride" in graph.text() for graph in found.graphs) is strides
    for on in (True, False):
        found = syno.enumerate(syno.Space.load("test").with_(negative_shifts=on, max_steps=5))
        assert any(" by -1" in graph.text() for graph in found.graphs) is on


def test_limits_hold() -> None:
    space = syno.Space.load("test")
    narrow = space.with_(max_weights=1, max_steps=7, max_params=30)
    found = syno.enumerate(narrow, max_steps=7)
    assert found.complete and len(found) and len(found) < len(syno.enumerate(space, max_steps=7))
    assert all(operator.params <= 30 for operator in found)
    nothing = space.with_(max_params=1, max_steps=5)
    assert len(syno.sample(nothing, 3)) == 0 and "max_params" in (nothing.why_empty() or "")


# --- sample and enumerate


@pytest.mark.parametrize("key", ["conv2d 3x3", "conv2d 3x3 s2", "conv2d 1x1", "linear"])
def test_samples_are_distinct_and_the_same_for_a_seed(groups: list[Any], key: str) -> None:
    space = of(groups, key).space(max_steps=7)
    found = syno.sample(space, 20, seed=3)
    assert len(keys(found)) == len(found) > 0
    assert found.graphs == syno.sample(space, 20, seed=3, threads=2).graphs
    assert all(_core.allowed(found.space.spec, graph) for graph in found.graphs)
    if len(found) == 20:
        assert found.graphs != syno.sample(space, 20, seed=4).graphs
    assert [one.expr for one in found][1] == found[1].expr == found[-len(found) + 1].expr
    assert len(found[2:5]) == len(found.graphs[2:5])


def test_a_time_bound_ends_a_sample_early_and_keeps_its_beginning() -> None:
    whole = syno.sample("test", 200, seed=1)
    begun = syno.sample("test", 200, seed=1, seconds=1e-6)
    assert len(whole) == 200 > len(begun)
    assert begun.graphs == whole.graphs[: len(begun)]
    steps = [syno.sample("test", 5, min_steps=4, max_steps=5).steps(i) for i in range(5)]
    assert set(steps) <= {4, 5}


def test_enumeration_is_the_engine_s() -> None:
    space = syno.Space.load("test")
    found = syno.enumerate(space, max_steps=6)
    own = _core.enumerate_operators(space.spec, max_steps=6)
    assert found.graphs == own.operators and not found.complete and found.max_steps == 6
    assert [found.steps(i) for i in range(len(found))] == list(own.steps)
    assert len(syno.enumerate(space, max_steps=6, limit=5)) == 5
    assert not syno.enumerate(space.with_(max_steps=6), max_steps=6, limit=5).complete
    assert json.dumps(found.to_dict()) and "more" in str(found) and "formula" in found._repr_html_()


def test_an_enumeration_looks_no_further_than_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    own = _core.enumerate_operators
    depths: list[int] = []

    def counted(*args: Any, **named: Any) -> Any:
        depths.append(named["max_steps"])
        return own(*args, **named)

    monkeypatch.setattr(_core, "enumerate_operators", counted)
    found = syno.enumerate("resnet18", max_steps=12)  # hours, were it all
    assert "so far" in repr(found) and not depths and found
    first = list(itertools.islice(found, 40))
    assert [one.expr for one in first] == [one.expr for one in found[:40]] and depths[-1] <= 5
    assert first[3] is found[3] and found.steps(39) <= depths[-1]
    assert "so far" in repr(found) and "more" in str(found) and depths[-1] <= 5
    assert first == syno.enumerate("resnet18", max_steps=5)[:40] or len(first) == 40
    assert not syno.enumerate(syno.Space.load("test").with_(max_params=1, max_steps=4))


def test_an_interrupted_enumeration_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    own = _core.enumerate_operators
    found = syno.enumerate("test", max_steps=6)
    assert len(found[:2]) == 2

    def stop(*args: Any, **named: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(_core, "enumerate_operators", stop)
    with pytest.raises(KeyboardInterrupt):
        len(found)
    monkeypatch.setattr(_core, "enumerate_operators", own)
    assert found.graphs == own(_core.spec_named("test"), max_steps=6).operators


@pytest.mark.parametrize("name", ["test", "resnet18", "attention"])
def test_those_of_fewer_primitives_come_first_and_are_the_same(name: str) -> None:
    deep = _core.enumerate_operators(_core.spec_named(name), max_steps=6).operators
    for steps in range(1, 6):
        found = _core.enumerate_operators(_core.spec_named(name), max_steps=steps).operators
        assert found == deep[: len(found)]


def test_enumeration_goes_as_deep_as_pays(groups: list[Any]) -> None:
    small = syno.Space.load("test").with_(max_steps=5)
    assert syno.enumerate(small).complete
    deep = syno.enumerate("resnet18")
    assert 2 <= deep.max_steps < 12 and not deep.complete and len(deep)
    assert deep.graphs == syno.enumerate("resnet18", max_steps=deep.max_steps).graphs
    # A first step has many choices, whatever follows: it says nothing of how the space grows.
    assert syno.enumerate(of(groups, "conv2d 3x3 s2")).max_steps > 3
    soon = syno.enumerate("test", seconds=0.01)
    assert soon.graphs == syno.enumerate("test", max_steps=soon.max_steps).graphs
    assert len(soon) and not soon.complete


def test_an_enumeration_goes_on_from_its_file(tmp_path: Path) -> None:
    first = syno.enumerate("test", max_steps=5, checkpoint=tmp_path / "kept")
    assert first.graphs == syno.enumerate("test", max_steps=5, checkpoint=tmp_path / "kept").graphs
    assert len(syno.enumerate("test", max_steps=6, checkpoint=tmp_path / "begun")[:2]) == 2
    assert not (tmp_path / "begun").exists()  # only the last look is long
    other = syno.enumerate("test", max_steps=6, checkpoint=tmp_path / "kept")
    with pytest.raises(SpecError, match="kept"):
        len(other)
    with pytest.raises(SpecError, match="give max_steps"):
        syno.enumerate("test", checkpoint=tmp_path / "kept")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"count": 0}, "count=0"),
        ({"count": 1.5}, "whole number"),
        ({"seed": -1}, "seed"),
        ({"seconds": 0}, "seconds=0"),
        ({"seconds": "soon"}, "seconds='soon'"),
        ({"max_steps": 13}, "at most 12"),
        ({"min_steps": 7, "max_steps": 5}, "min_steps"),
        ({"space": 3}, "no space"),
        ({"space": None}, "no space"),
    ],
)
def test_wrong_numbers_are_named(wrong: dict[str, Any], words: str) -> None:
    options: dict[str, Any] = {"space": "test", "count": 2, **wrong}
    with pytest.raises(SpecError, match=words):
        syno.sample(**options)
    options.pop("count")
    if "count" not in wrong and "seed" not in wrong and "min_steps" not in wrong:
        with pytest.raises(SpecError, match=words):
            syno.enumerate(**options)


# --- in a search

SPACE = {"extensions": {"tile": True}, "rules": {"pools-too-much": False}, "max_steps": 6}


def begin(directory: Path, space: Any = None, budget: int = 1) -> Any:
    return search_task(
        "digits", directory, options=OPTIONS, budget=budget, finalists=0, groups=1, batch_width=1,
        policy="random", workers=1, prune=Prune(), progress="off", space=space,
    )  # fmt: skip


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("runs") / "set"
    begin(directory, SPACE)
    return directory


def specs(directory: Path) -> list[syno.Space]:
    stages = read_config(directory / "session.toml").stages
    return [syno.Space.from_json(str(stage.proposer.options["spec"])) for stage in stages]


def test_a_search_keeps_its_space_and_goes_on_in_it(searched: Path) -> None:
    assert "random" in POLICIES
    for space in specs(searched):
        assert space.budgets["max_steps"] == 6 and "tile" in space.extensions
        assert not space.rules["pools-too-much"]
    note = read_config(searched / "session.toml").note
    for words in ("--set max_steps=6", "--set tile=on", "--rule pools-too-much=off"):
        assert words in note
    before = specs(searched)
    begin(searched)  # nothing asked: as it was
    begin(searched, dict(reversed(SPACE.items())))
    assert specs(searched) == before
    assert "--set max_steps=6" in read_config(searched / "session.toml").note


def test_a_search_that_goes_on_refuses_another_space(searched: Path) -> None:
    stored = (searched / "session.toml").read_text()
    for other in ({"max_steps": 7}, {}, {**SPACE, "tile": False}, {"spec": "conv", **SPACE}):
        with pytest.raises(SessionError, match=r"was made with space.* was asked for"):
            begin(searched, other)
    assert (searched / "session.toml").read_text() == stored


def test_a_space_in_a_file_is_searched_where_it_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from syno.searching.plan import default_sites
    from syno.training.tasks import load_task

    task = load_task("digits", dict(OPTIONS))
    group = default_sites(task.make_model(0), task.example(1)).groups()[-1]
    space = group.space(max_steps=7)
    path = space.save(tmp_path / "a.toml")
    begin(tmp_path / "run", path)
    config = read_config(tmp_path / "run" / "session.toml")
    assert [stage.name for stage in config.stages] == [group.key]
    assert specs(tmp_path / "run") == [space] and f"--space {path}" in config.note
    path.unlink()
    begin(tmp_path / "run")  # the session has it
    assert f"--space {path}" in read_config(tmp_path / "run" / "session.toml").note
    with pytest.raises(SessionError, match="space"):
        begin(tmp_path / "run", space.with_(max_steps=6))
    planned = []
    monkeypatch.setattr(
        "syno.searching.pipeline._run", lambda *args, **named: planned.append(args[3])
    )
    begin(tmp_path / "other", {"spec": space, "max_steps": 6})
    for stage, _ in planned[0]:
        text = str(stage.proposer.options["spec"])
        assert syno.Space.from_json(text) == space.with_(max_steps=6)


def test_what_cannot_be_searched_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no group of layers has all its shapes"):
        begin(tmp_path / "run", "gpt2")
    with pytest.raises(SpecError, match="1 to 18"):
        begin(tmp_path / "run", {"max_steps": 99})
    with pytest.raises(SpecError, match="is no space"):
        begin(tmp_path / "run", {"spec": 3})
    with pytest.raises(UnknownName, match="setting"):
        begin(tmp_path / "run", {"steps": 3})
    with pytest.raises(SpecError, match="give one of them"):
        search_task("digits", tmp_path / "run", budget=1, max_steps=5, space={"max_steps": 6})
    with pytest.raises(SpecError, match="beside a space"):
        search_task("digits", tmp_path / "run", budget=1, max_steps=5, space="conv")
    assert not list(tmp_path.iterdir())


def test_search_from_python_takes_a_space(
    groups: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.utils.data import DataLoader, TensorDataset

    planned: list[Any] = []
    monkeypatch.setattr(
        "syno.searching.pipeline._run", lambda *args, **named: planned.append(args[3])
    )
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 1))
    x = randn(1, 16, 16, 16)
    data = DataLoader(TensorDataset(randn(2, 16, 16, 16), randn(2, 16, 16, 16)))
    space = of(groups, "conv2d 3x3").space(max_steps=6)
    for given in (space, {"max_steps": 6}, {"extensions": []}, None):
        syno.search(model, x, data=(data, data), loss="mse", session=tmp_path / "run", space=given)
    found = [[syno.Space.from_json(s.proposer.options["spec"]) for s, _ in p] for p in planned]
    assert found[0] == [space]  # the 1x1 layer has the same shapes, and another name
    assert [one.budgets["max_steps"] for one in found[1]] == [6, 6]
    assert [one.extensions for one in found[2]] == [[], []]
    assert [one.budgets["max_steps"] for one in found[3]] == [12, 12]


def test_the_command_line_says_what_is_wrong_with_a_space(tmp_path: Path) -> None:
    for options, words in (
        (["--set", "max_step=3"], "max_steps"),
        (["--set", "max_steps"], "name=value"),
        (["--set", "max_steps=many"], "finite"),
        (["--set", "tile=3"], "on or off"),
        (["--rule", "pools-too-much=maybe"], "on or off"),
        (["--rule", "pool=off"], "Valid"),
        (["--space", "nowhere.json"], "neither"),
        (["--spec", "nowhere.json"], "neither"),
    ):
        result = CliRunner().invoke(app, ["search", "digits", "-o", str(tmp_path / "a"), *options])
        assert result.exit_code == 2, (options, result.output)
        assert words in result.output, (options, result.output)
    assert not list(tmp_path.iterdir())


def test_the_command_line_sets_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: dict[str, Any] = {}

    def stop(*args: Any, **named: Any) -> None:
        got.update(named)
        raise SessionError("enough was seen")

    monkeypatch.setattr("syno.searching.pipeline.search_task", stop)
    spec = syno.Space.load("test").save(tmp_path / "a.json")
    options = ["--set", "max_steps=9", "--set", "max_flops=1e9", "--set", "max_params=none"]
    options += ["--set", "extensions=tile,repeat", "--rule", "pools-too-much=off"]
    words = ["search", "digits", "-o", str(tmp_path / "b"), *options, "--space", str(spec)]
    assert "enough was seen" in CliRunner().invoke(app, words).output
    settings = dict(got["space"])
    assert settings.pop("spec") == str(spec)
    assert Settings.of(settings) == Settings.of({
        "max_steps": 9, "max_flops": 1e9, "max_params": None, "extensions": ["tile", "repeat"],
        "rules": {"pools-too-much": False},
    })  # fmt: skip
    got.clear()
    CliRunner().invoke(app, words[:4])
    assert got["space"] is None


# --- what a search would search

MODEL = """
from torch import nn

def model():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.Flatten(), nn.Linear(32 * 16, 4),
    )
"""


def sites_of(tmp_path: Path, *options: str) -> Any:
    (tmp_path / "own.py").write_text(MODEL)
    words = ["sites", f"{tmp_path / 'own.py'}:model", "--example", "1,3,8,8", *options]
    return CliRunner().invoke(app, words)


def test_sites_show_the_spaces_that_a_search_searches(tmp_path: Path) -> None:
    text = sites_of(tmp_path, "--spaces").output
    assert "conv2d 3x3 s2" in text and "strided_inputs" in text and "14 primitives" in text
    assert "not searched: 0, 4: fewer than 8 channels" in text
    assert "operators" not in sites_of(tmp_path).output
    plain = json.loads(sites_of(tmp_path, "--json", "--set", "max_steps=4").output)
    groups = plain["spaces"]["groups"]
    assert [group["group"] for group in groups] == ["conv2d 3x3", "conv2d 3x3 s2"]
    assert groups[0]["sites"] == ["1"] and groups[0]["counted_to"] == groups[0]["max_steps"] == 4
    space = syno.Space.from_json(json.dumps(groups[0]["space"]))
    assert len(syno.enumerate(space)) == groups[0]["operators"] > 0
    assert "all counted" in sites_of(tmp_path, "--spaces", "--set", "max_steps=4").output
    assert set(plain["spaces"]["not_searched"]) == {"0", "4"}


def test_sites_show_the_spaces_of_a_search_that_mixes_tokens(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from torch import nn\n\ndef model():\n    return nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))\n"
    )
    words = ["sites", f"{tmp_path / 'own.py'}:model", "--example", "2,16,32", "--json"]
    words += ["--set", "max_steps=3"]

    def variables(*options: str) -> list[str]:
        plain = json.loads(CliRunner().invoke(app, [*words, *options]).output)
        return [v["name"] for v in plain["spaces"]["groups"][0]["space"]["variables"]]

    # A window over tokens belongs to the space of a search that mixes them.
    assert "k" in variables("--mix-tokens") and "k" not in variables()


def test_sites_show_spaces_that_hold_nothing_or_are_for_some_layers(tmp_path: Path) -> None:
    options = ("--set", "max_params=1", "--set", "max_steps=4")
    assert "max_params is at least" in sites_of(tmp_path, "--spaces", *options).output
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1))
    path = (
        syno.sites(model, randn(1, 16, 8, 8))
        .groups()[0]
        .space(max_steps=4)
        .save(tmp_path / "a.toml")
    )
    text = sites_of(tmp_path, "--space", str(path)).output
    assert "conv2d 3x3 " in text and "not searched: 2: the space is for other layers" in text
    odd = syno.Space.load("gpt2").save(tmp_path / "odd.json")
    assert "no group of layers has all its" in sites_of(tmp_path, "--space", str(odd)).output
