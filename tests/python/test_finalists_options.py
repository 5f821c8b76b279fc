"""What the command line says of finalists and groups, as `syno.search` takes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from syno.cli.main import app
from syno.searching import pipeline


class Asked(Exception):
    """Instead of a search."""


def asked(monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    """The arguments of the search that a command line begins."""

    asked: list[dict[str, Any]] = []

    def search(*_: Any, **given: Any) -> Any:
        asked.append(given)
        raise Asked

    monkeypatch.setattr(pipeline, "search_task", search)
    CliRunner().invoke(app, ["search", "digits", "-o", "nowhere", *options])
    (given,) = asked
    return given


@pytest.mark.parametrize(
    ("text", "finalists"),
    [
        ("0", 0),
        ("5", 5),
        ("c7=8", {"c7": 8}),
        ("c7=8,baseline=2", {"c7": 8, "baseline": 2}),
        (" c7=8 , c3=1", {"c7": 8, "c3": 1}),
    ],
)
def test_finalists_are_counted_or_named(
    monkeypatch: pytest.MonkeyPatch, text: str, finalists: Any
) -> None:
    given = asked(monkeypatch, "--finalists", text, "--final-seeds", "7", "--groups", "2")
    assert (given["finalists"], given["final_seeds"], given["groups"]) == (finalists, 7, 2)


def test_without_them_the_defaults_are_those_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    import inspect

    given = asked(monkeypatch)
    defaults = inspect.signature(pipeline.search).parameters
    for name in ("finalists", "final_seeds", "groups"):
        assert given[name] == defaults[name].default, name


@pytest.mark.parametrize(
    ("option", "text"),
    [
        *(("--finalists", text) for text in ("-1", "a", "", "c7=", "c7=0", "=3", "c7=1.5", "c7")),
        ("--final-seeds", "0"),
        ("--groups", "0"),
    ],
)
def test_others_are_refused_before_any_work(tmp_path: Path, option: str, text: str) -> None:
    outcome = CliRunner().invoke(
        app, ["search", "nowhere:nothing", "-o", str(tmp_path / "s"), option, text]
    )
    assert outcome.exit_code == 2
    assert option.strip("-") in outcome.output
    assert not (tmp_path / "s").exists()


def test_a_session_s_command_says_them(tmp_path: Path) -> None:
    from syno.session.config import read_config

    for finalists, said in ((2, "--finalists 2"), ({"baseline": 1}, "--finalists baseline=1")):
        path = tmp_path / str(len(said))
        with pytest.raises(Asked):
            pipeline.search_task(
                "digits",
                path,
                budget=1,
                finalists=finalists,
                final_seeds=1,
                groups=1,
                callbacks=stop,
                progress="off",
                workers=1,
            )
        note = read_config(path / "session.toml").note or ""
        assert f"{said} --final-seeds 1 --groups 1" in note


def stop(what: str, candidate: Any, view: Any) -> None:
    raise Asked
