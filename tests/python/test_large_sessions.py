"""What is asked of a session with very many candidates by statements and arrays is what a plain look at every candidate gives."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import session_fakes as fakes
from test_session import start
from typer.testing import CliRunner

from syno import _core
from syno.cli import inspect
from syno.cli.main import app
from syno.errors import UnknownName
from syno.report.build import disturbed
from syno.report.details import why_finalists
from syno.report.listed import listed
from syno.session import Candidate, Session, SessionView
from syno.session.config import Rung
from syno.session.content import Content
from syno.session.protocols import Measurement
from syno.session.records import Passed, RungState, Score, mean_of
from syno.session.rungs import _report
from syno.session.verdict import _why_none

SEEDS = range(6)
STATES = ("queued", "running", "done", "done", "done", "pruned", "failed", "lost")
REASONS = ("", "it is slow.", "out  of\nmemory", "its loss is nan")
NOTES = ("other programs ran", "the clock changed", "it was warm")
TARGETS = ("pi", "phone")


def drawn_session(path: Path, seed: int) -> Session:
    """As nobody would search: every state, ties, gaps, several trainings, notes and targets, in any order."""
    draw = random.Random(seed)
    session = start(
        path,
        targets={name: "" for name in TARGETS},
        rungs=[Rung(share=0.1), Rung(share=0.5)],
    )
    store = session._store
    count = draw.randrange(1, 90)
    with store.transaction():
        for number in range(1, count):
            text = fakes.operator(number if draw.random() < 0.95 else max(1, number - 1))
            key = f"{draw.randrange(3):04x}{text.key}"
            store.add_candidate("proposed", "all", msgspec.structs.replace(text, key=key))
            if draw.random() < 0.05:
                store.name_known(key, f"grouped(g={number})")
        numbers = list(range(count))
        draw.shuffle(numbers)  # the order of rows says nothing
        for number in numbers:
            _drawn_candidate(draw, session, number)
        done = [c.number for c in store.candidates("WHERE c.state = 'done' AND c.number > 0")]
        store.set_finalists(draw.sample(numbers, k=min(len(numbers), 4)))
        rung = draw.sample(done, k=min(len(done), 12))
        passed = [
            Passed(stage="all", rung=1 + turn, seen=rung, best=rung[:3], drawn=rung[2:8])
            for turn in range(2)
        ]
        store.set_rung_state(RungState(passed=passed))
    return session


def _drawn_candidate(draw: random.Random, session: Session, number: int) -> None:
    store = session._store
    store.set_state(number, draw.choice(STATES), draw.choice(REASONS))
    store.execute(
        "UPDATE candidate SET reward = ?, trained = ? WHERE number = ?",
        draw.choice((None, 0.0, 0.5, draw.random())),
        draw.randrange(2),
        number,
    )
    if draw.random() < 0.6:
        latency = draw.choice((10.0, 20.0, 1e3 * draw.random()))
        store.add_measurement(number, Measurement(latency_us=latency), "cpu", 0.0)
    for target in TARGETS:
        if draw.random() < 0.4:
            found = Measurement(latency_us=1e3 * draw.random())
            store.add_timing_on(number, f"target:{target}", found)
        for reason in draw.sample(REASONS, k=draw.choice((0, 0, 1, 2))):
            store.add_note(number, "target", f"{target}: {reason}")
    for about in draw.sample(("timing", "load", "mixing", "node", "class"), k=2):
        store.add_note(number, about, draw.choice(NOTES))
    phases = {"search": 0.7, "final": 0.15, "rung1": 0.4, "rung2": 0.3}
    for phase, share in phases.items():
        for one in draw.sample(range(5), k=draw.randrange(1, 3) if draw.random() < share else 0):
            store.add_score(number, _score(draw, phase, one))


def _score(draw: random.Random, phase: str, seed: int) -> Score:
    return Score(
        phase=phase,
        seed=seed,
        part="test" if phase == "final" else "validation",
        metric="accuracy",
        higher_is_better=True,
        value=draw.choice((0.5, draw.random())),
        stderr=draw.choice((0.0, 0.01 * draw.random())),
        count=100,
        steps=1,
        total_steps=1,
        seconds=draw.random(),
        examples_per_s=1.0,
        threads=1,
    )


@pytest.fixture(params=SEEDS)
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    with drawn_session(tmp_path, request.param) as made:
        yield made


def others(view: SessionView) -> list[Candidate]:
    return [c for c in view._store.everyone() if c.kind != "baseline"]


def number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def test_the_numbers_of_all_are_those_of_each(session: Session) -> None:
    done = [c for c in session._store.everyone() if c.state == "done"]
    found = session.overview()
    assert found.numbers.tolist() == [c.number for c in done]
    assert found.original.tolist() == [c.kind == "baseline" for c in done]
    columns = {
        "flops": [c.flops for c in done],
        "latency_us": [c.latency_us for c in done],
        "validation": [c.validation for c in done],
        "stderr": [c.score.stderr if c.score else None for c in done],
        "test": [c.test for c in done],
    }
    for name, values in columns.items():
        expected = np.array([number(value) for value in values])
        assert np.array_equal(getattr(found, name), expected, equal_nan=True), name
    finals = {c.number: [s.value for s in c.finals] for c in session._store.everyone() if c.finals}
    assert found.finals == finals
    assert {n: mean_of(values) for n, values in found.finals.items()}.keys() == finals.keys()


def test_who_is_listed_and_why_finalists_are_ones(session: Session) -> None:
    candidates = others(session)
    numbers, rewards = session.rewards()
    assert numbers.tolist() == [c.number for c in candidates]
    ranked = sorted(candidates, key=lambda c: (-(c.reward or 0.0), c.number))
    for most in (1, 5, 20, 1_000):
        chosen = {c.number for c in candidates if c.finals or c.known}
        expected = [c.number for c in candidates]
        if len(candidates) > most:
            kept = chosen | {c.number for c in ranked[:100]}
            rest = [c.number for c in candidates if c.number not in kept]
            room = max(0, min(most - len(kept), len(rest)))
            kept |= {rest[place * len(rest) // room] for place in range(room)}
            expected = [c.number for c in candidates if c.number in kept]
        assert listed(numbers, rewards, chosen, most) == expected
    done = [c for c in ranked if c.state == "done"]
    places = {c.id: f"place {place} of {len(done)} by" for place, c in enumerate(done, 1)}
    wanted = [
        f"c{n}" for n in session.finalists if f"c{n}" in places and session.candidate(n).score
    ]
    said = why_finalists(session)
    assert list(said) == wanted
    assert all(said[id].startswith(places[id]) for id in wanted)


def test_status_prints_few_of_many(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that it and a report name in any case are among them."""
    count = len(others(session))
    for most in (5, 1_000):
        monkeypatch.setattr(inspect, "_MOST", most)
        printed = CliRunner().invoke(app, ["status", str(tmp_path)], env={"COLUMNS": "200"}).output
        rows = re.findall(r"^ *(c\d+|baseline)( \*)? ", printed, flags=re.MULTILINE)
        ids = [id for id, _ in rows if id != "baseline"]
        front = {c.id for c in session.pareto()}
        assert {id for id, starred in rows if starred} == front
        wanted = {c.id for c in others(session) if c.finals or c.known}
        wanted |= {c.id for c in session.pareto("test")} - {"baseline"}
        assert wanted <= set(ids) and rows[0][0] == "baseline"
        assert (f"{len(ids)} of {count} candidates are listed" in printed) == (len(ids) < count)
        assert (len(ids) == count) or most < count


def test_sentences_are_of_the_candidates_they_name(session: Session) -> None:
    everyone = session._store.everyone()
    notes: dict[str, list[str]] = {}
    for candidate in everyone:
        for note in candidate.notes:
            notes.setdefault(note, []).append(candidate.id)
    assert disturbed(session, None) == [
        f"Measured although {note}: {', '.join(ids[:20])}"
        + (f" and {len(ids) - 20} more." if len(ids) > 20 else ".")
        for note, ids in notes.items()
    ]
    ends: dict[str, list[Candidate]] = {}
    for candidate in others(session):
        if candidate.state in ("pruned", "failed", "lost"):
            ends.setdefault(candidate.state, []).append(candidate)
    parts = []
    for state, ones in sorted(ends.items(), key=lambda item: -len(item[1])):
        reason = " ".join(ones[-1].reason.split()).rstrip(". ")
        parts.append(f"{len(ones)} {state}" + (f" ({ones[-1].id}: {reason})" if reason else ""))
    assert _why_none(session) == (": " + ", ".join(parts) if parts else "")
    first = next((c.score for c in everyone if c.score), None)
    assert session.metric == (first.metric if first else "")
    assert session.trained_again() == [c for c in others(session) if c.finals]
    seconds = [c.score.seconds for c in everyone if c.score]
    assert sorted(session._store.seconds()) == sorted(seconds)


def test_targets_and_rungs_count_what_each_candidate_says(session: Session) -> None:
    done = [c for c in session._store.everyone() if c.state == "done"]
    status = session.status()
    for target in TARGETS:
        unfit = {}
        for candidate in done:
            own = [what for what in candidate.unfit if what.startswith(f"{target}: ")]
            if own and (why := own[0].removeprefix(f"{target}: ")):
                unfit[candidate.id] = why
        timed = {c.id for c in done if c.timing_on(target) is not None}
        found = status["targets"][target]
        assert found["timed"] == len(timed)
        assert list(found["cannot"].items()) == list(unfit.items())
        assert found["not_yet"] == sum(c.id not in timed and c.id not in unfit for c in done)
    everyone = {c.number: c for c in others(session)}
    assert session.rungs() == [
        _report(place, rung, session.rung_state, everyone, session.config.seed)
        for place, rung in enumerate(session.config.rungs or (), 1)
    ]


def test_a_candidate_is_found_by_what_names_it(session: Session) -> None:
    everyone = session._store.everyone()
    keys = {c.key for c in everyone if c.key}
    for text in {*keys, *(key[:6] for key in keys), "0001", "000", "c0", "baseline", "c00001"}:
        named = [c for c in everyone if text in (c.id, str(c.number))]
        if not named and len(text) >= 4:
            named = [c for c in everyone if c.key.startswith(text)]
        if len(named) == 1:
            assert session.candidate(text) == named[0]
        else:
            with pytest.raises(UnknownName, match="candidate"):
                session.candidate(text)


def test_rows_that_are_wrong_are_named_wherever_they_lie() -> None:
    columns = ("key", "value")
    good = [(f"k{i}", "x") for i in range(250)]
    for at, row, said in (
        (0, ("elapsed_s", "soon"), "could not convert string to float"),
        (120, ("k", None), "Expected `str`, got `null`"),
        (249, (1, "x"), "Expected `str`, got `int`"),
    ):
        rows = [*good[:at], row, *good[at:]]
        content = Content()
        for begin in range(0, len(rows), 100):
            content.look("meta", columns, rows[begin : begin + 100])
        assert content._found["meta"].startswith(f"row {at + 1} of the table 'meta': {said}")
    content = Content()
    content.look("meta", columns, good)
    content.look("of_no_session", columns, good)
    assert content._found == {}


def test_a_digest_is_of_all_bytes_in_any_pieces() -> None:
    content = random.Random(0).randbytes(100_000)
    whole, parts = _core.ContentDigest(), _core.ContentDigest()
    whole.update(content)
    for begin in range(0, len(content), 999):
        parts.update(memoryview(bytearray(content))[begin : begin + 999])
    assert whole.digits() == parts.digits() != _core.ContentDigest().digits()
    assert len(whole.digits()) == 64
    with pytest.raises(_core.ShapeError, match="give contiguous bytes"):
        whole.update(memoryview(content)[::2])
    with pytest.raises(_core.ShapeError, match="give contiguous bytes"):
        whole.update(np.zeros((2, 2)))
