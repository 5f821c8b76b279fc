"""Whoever watches a search: told of each event in turn, heard when it fails, and no hindrance to what comes after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_session import run, start, story

import syno
from syno.errors import SessionError, UnknownName
from syno.searching.pipeline import search_task
from syno.session import InlineExecutor, Prune
from syno.session.callbacks import EVENTS, as_callbacks

OFTEN = ("started", "measured", "trained", "folded", "finalist", "ended")


class Watcher:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_trained(self, candidate: Any, view: Any) -> None:
        self.seen.append(candidate.id)
        assert view.trained >= 0

    def on_ended(self, candidate: Any, view: Any) -> None:
        assert candidate is None
        self.seen.append("ended")


def test_objects_and_functions_are_told_the_same(tmp_path: Path) -> None:
    told: list[tuple[str, str | None]] = []
    watcher = Watcher()

    def function(what: str, candidate: Any, view: Any) -> None:
        told.append((what, candidate and candidate.id))

    with start(tmp_path) as session:
        run(session, budget=4, callbacks=as_callbacks([function, watcher]))
    assert {what for what, _ in told} <= set(EVENTS)
    assert watcher.seen == [
        c if w == "trained" else w for w, c in told if w in ("trained", "ended")
    ]
    assert len(watcher.seen) > 4 and watcher.seen[-1] == "ended"


@pytest.mark.parametrize("event", OFTEN)
@pytest.mark.parametrize("inline", [True, False])
def test_what_a_callback_raises_reaches_the_caller_and_nothing_is_lost(
    tmp_path: Path, event: str, inline: bool
) -> None:
    left = [3 if event in ("started", "measured", "trained") else 1]

    def fail(what: str, candidate: Any, view: Any) -> None:
        left[0] -= what == event
        if what == event and left[0] == 0:
            raise ZeroDivisionError("a watcher's\nmistake")

    options: dict[str, Any] = {"budget": 6, "finalists": 1, "final_seeds": 2}
    with start(tmp_path / "whole") as session:
        run(session, executor=InlineExecutor(), **options)
        expected = story(session)
    with start(tmp_path / "s") as session:
        more = {"executor": InlineExecutor()} if inline else {}
        with pytest.raises(ZeroDivisionError, match="a watcher's"):
            run(session, callbacks=[fail], **options, **more)
        (said,) = [e["what"] for e in session.events() if e["level"] == "error"]
        assert "the callback fail failed" in said and "ZeroDivisionError" in said
        assert repr(event) in said and "\n" not in said
        assert session.status()["ended"] == "error"
    with start(tmp_path / "s") as session:
        run(session, executor=InlineExecutor(), **options)
        assert story(session) == expected


class Misspelt:
    def on_traned(self, candidate: Any, view: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        (3, SessionError, "can neither be called nor"),
        (["started"], SessionError, "on_started"),
        (Watcher, SessionError, r"Watcher\(\)"),
        (Misspelt(), UnknownName, "did you mean 'on_trained'"),
    ],
)
def test_what_is_no_callback_is_refused_before_any_work(
    given: Any, error: type[Exception], words: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        as_callbacks(given)
    with pytest.raises(error, match=words):
        search_task("digits", tmp_path / "a", budget=1, callbacks=given)
    assert not list(tmp_path.iterdir())
    assert as_callbacks(None) == as_callbacks([]) == []


@pytest.mark.nightly
def test_a_search_tells_its_callbacks(tmp_path: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))
    data = [(torch.randn(8, 16), torch.randn(8, 16)) for _ in range(2)]
    watcher = Watcher()

    def search(callbacks: Any) -> Any:
        return syno.search(
            model, data[0][0], data=(data, data), loss="mse", budget=2, session=tmp_path / "run",
            policy="random", finalists=0, batch_width=1, prune=Prune(), progress="off", callbacks=callbacks,
        )  # fmt: skip

    def fail(what: str, candidate: Any, view: Any) -> None:
        if what == "measured":
            raise ZeroDivisionError("a watcher's mistake")

    with pytest.raises(ZeroDivisionError):
        search(fail)
    result = search([watcher])
    assert result.view.trained == 2
    assert watcher.seen == [
        "baseline",
        *(c.id for c in result.view.candidates() if c.value),
        "ended",
    ]
