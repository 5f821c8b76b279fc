"""Batches that overlap: the same candidates whatever trainings take, whoever is lost, and whenever the process is killed."""

from __future__ import annotations

import concurrent.futures
import contextlib
import heapq
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_session import LIMITS, run, start, story

from syno.errors import SessionError
from syno.session import (
    Component,
    FuturesExecutor,
    InlineExecutor,
    ProcessExecutor,
    Prune,
    Rung,
    Session,
)
from syno.session.executors import Call, Outcome


class Killed(BaseException):
    """The process ends here."""


class Drawn:
    """Workers in virtual time: durations, losses and the moment of a kill are drawn; what a call gives is not."""

    def __init__(
        self, workers: int, draw: random.Random, *, losses: float = 0.0, kill_after: int = -1
    ) -> None:
        self.count = workers
        self._draw, self._losses, self._kill_after = draw, losses, kill_after
        self._inline = InlineExecutor()
        self._lost: set[tuple[str, int]] = set()
        self.most_running = 0

    def run(
        self,
        calls: Sequence[Call],
        *,
        started: Callable[[int, int], None] | None = None,
        reported: Callable[[int, int, dict[str, float]], None] | None = None,
        more: Callable[[], Sequence[Call]] | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        waiting = list(enumerate(calls))
        serial = len(waiting)
        ends: list[tuple[float, int, Call]] = []
        now = 0.0
        while True:
            if more is not None:
                for call in more():
                    waiting.append((serial, call))
                    serial += 1
            while waiting and len(ends) < self.count:
                index, call = waiting.pop(0)
                if started:
                    started(index, 0)
                heapq.heappush(ends, (now + self._draw.lognormvariate(0, 1.5), index, call))
            self.most_running = max(self.most_running, len(ends))
            if not ends:
                return
            now, index, call = heapq.heappop(ends)
            key = (call.kind, call.request.candidate)
            if self._draw.random() < self._losses and key not in self._lost:
                self._lost.add(key)
                yield index, Outcome(self._draw.choice(["node", "lost"]), reason="drawn")
                continue

            def heard(_: int, step: int, metrics: dict[str, float], _index: int = index) -> None:
                if reported:
                    reported(_index, step, metrics)

            outcomes = list(self._inline.run([call], reported=heard))
            if self._kill_after == 0:
                raise Killed
            self._kill_after -= 1
            yield index, outcomes[0][1]

    def close(self) -> None:
        pass


PRUNES = Prune(after=2, keep=0.5, max_latency_ratio=1.6)
FAULTS = {"raises": [12, 33], "nan": [27]}


def open_session(path: Path, lag: int | None = 9, width: int = 3, **options: Any) -> Session:
    return start(
        path,
        proposer=Component(reference="session_fakes:Wanderer"),
        batch_width=width,
        lag=lag,
        predicted_on="1",
        prune=PRUNES,
        trainer=FAULTS,
        **options,
    )


def whole_story(session: Session) -> list[Any]:
    return [(*row, c.reason, c.measured) for row, c in zip(story(session), session.candidates())]  # noqa: B905


def told(path: Path, executor: Any, *, budget: int = 24, **options: Any) -> list[Any]:
    with open_session(path, **options) as session:
        assert run(session, budget=budget, executor=executor).why == "budget"
        return whole_story(session)


@given(
    workers=st.sampled_from([1, 2, 4, 7]),
    lag=st.sampled_from([1, 4, 9, 30]),
    width=st.sampled_from([1, 3, 4]),
    seed=st.integers(0, 1 << 30),
    kills=st.lists(st.integers(0, 40), max_size=3),
)
@settings(max_examples=20, deadline=None)
def test_durations_losses_kills_and_workers_decide_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    workers: int,
    lag: int,
    width: int,
    seed: int,
    kills: list[int],
) -> None:
    folder = tmp_path_factory.mktemp("flow")
    options = {"lag": lag, "width": width}
    expected = told(folder / "one", InlineExecutor(), **options)
    draw = random.Random(seed)
    for kill_after in kills:
        killed = Drawn(workers, draw, losses=0.1, kill_after=kill_after)
        with contextlib.suppress(Killed):
            told(folder / "many", killed, **options)
    assert told(folder / "many", Drawn(workers, draw, losses=0.1), **options) == expected


def test_nothing_newer_than_the_lag_is_used(tmp_path: Path) -> None:
    """What a proposer is told between its asks, in the order of both."""
    seen: list[tuple[str, int]] = []

    def watched(**options: Any) -> Any:
        import session_fakes

        proposer = session_fakes.Wanderer(**options)
        ask, tell = proposer.ask, proposer.tell

        def asks(count: int) -> Any:
            found = ask(count)
            seen.extend(("ask", p.ticket) for p in found)
            return found

        def tells(ticket: int, reward: float, gains: Any) -> None:
            seen.append(("tell", ticket))
            tell(ticket, reward, gains)

        proposer.ask, proposer.tell = asks, tells
        return proposer

    lag, width = 8, 2
    with start(
        tmp_path,
        proposer=Component(reference="watched"),
        parts={"watched": watched},
        batch_width=width,
        lag=lag,
        predicted_on="1",
    ) as session:
        run(session, budget=30, executor=Drawn(5, random.Random(1)))
    tells = 0
    for what, ticket in seen:
        if what == "tell":
            assert ticket == tells  # in their order
            tells += 1
        elif ticket >= lag + width:
            assert ticket - lag - width < tells <= ticket - lag + 1  # no more, and no fewer


def test_what_was_trained_short_is_not_timed(tmp_path: Path) -> None:
    """Timing goes one by one: of many that a first rung sees, only those count that were trained to their end."""
    with open_session(tmp_path, rungs=[Rung(share=0.2), Rung(share=0.5)]) as session:
        run(session, budget=40, executor=Drawn(5, random.Random(1)))
        everyone = session.candidates()
    short = [c for c in everyone if c.rungs and c.score is None]
    whole = [c for c in everyone if c.score is not None and c.state == "done"]
    assert short and whole
    assert not any(c.measured for c in short) and all(c.measured for c in whole)


def test_workers_do_not_wait_for_the_slowest_of_a_batch(tmp_path: Path) -> None:
    executor = Drawn(6, random.Random(2))
    told(tmp_path / "a", executor, lag=13)
    assert executor.most_running == 6  # of batches of 3
    barrier = Drawn(6, random.Random(2))
    told(tmp_path / "b", barrier, lag=None)
    assert barrier.most_running == 3


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: ProcessExecutor(3), id="processes"),
        pytest.param(
            lambda: FuturesExecutor(concurrent.futures.ThreadPoolExecutor(3)), id="thread pool"
        ),
    ],
)
def test_executors_take_calls_while_others_run(tmp_path: Path, make: Any) -> None:
    expected = told(tmp_path / "a", InlineExecutor(), budget=9)
    executor = make()
    try:
        assert told(tmp_path / "b", executor, budget=9) == expected
    finally:
        executor.close()


def test_a_lost_ticket_is_repeated_before_later_ones_begin(tmp_path: Path) -> None:
    order: list[int] = []

    class Once(Drawn):
        def run(self, calls: Any, *, started: Any = None, **options: Any) -> Any:
            running: dict[int, int] = {}
            more = options.pop("more", None)

            def fed() -> Any:
                found = more()
                running.update(
                    {len(running) + i: call.request.candidate for i, call in enumerate(found)}
                )
                order.extend(call.request.candidate for call in found if call.kind == "train")
                return found

            fed_options = {"more": fed} if more else {}
            yield from super().run(calls, started=started, **fed_options, **options)

    told(tmp_path, Once(1, random.Random(5), losses=0.3), budget=12)
    repeated = [b for a, b in itertools.pairwise(order) if b < a]
    assert repeated  # lost ones are handed over again
    places = {number: [i for i, n in enumerate(order) if n == number] for number in repeated}
    assert all(later[1] - later[0] <= 6 for later in places.values() if len(later) > 1)


def test_a_space_that_runs_out_is_searched_to_its_end(tmp_path: Path) -> None:
    with start(
        tmp_path,
        proposer=Component(reference="session_fakes:Wanderer", options={"size": 17}),
        batch_width=4,
        lag=9,
        predicted_on="1",
    ) as session:
        summary = run(session, budget=60, executor=Drawn(4, random.Random(0)))
        assert summary.why == "exhausted"
        assert len(session.candidates()) == 17
        assert all(c.state in ("done", "pruned") for c in session.candidates())


def test_ask_and_tell_overlap_batches(tmp_path: Path) -> None:
    with start(
        tmp_path,
        proposer=Component(reference="session_fakes:Wanderer"),
        measurer=None,
        batch_width=2,
        lag=5,
    ) as session:
        first = session.ask()
        assert first is not None
        session.tell(first, accuracy=0.5)
        trials = [session.ask() for _ in range(6)]  # three batches
        with pytest.raises(SessionError, match=r"(?s)all 6 candidates of batch 1 to 3 .*lag"):
            session.ask()
        for trial in (trials[3], trials[1], trials[0]):
            assert trial is not None
            session.tell(trial, accuracy=0.5)
        assert session.ask() is not None  # the first batch is told


def test_settings_that_cannot_go_together_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match=r"(?s)lag=0.*at least 1"):
        open_session(tmp_path / "a", lag=0)
    with pytest.raises(
        SessionError, match=r"(?s)lag=8 with latencies that are measured.*predicted"
    ):
        start(tmp_path / "b", lag=8)
    open_session(tmp_path / "c", lag=8).close()
    with pytest.raises(SessionError, match="was made with lag=8"):
        open_session(tmp_path / "c", lag=16)

    class Rounds(InlineExecutor):
        def run(self, calls: Any, *, started: Any = None, reported: Any = None) -> Any:  # type: ignore[override]
            return super().run(calls, started=started, reported=reported)

    with (
        open_session(tmp_path / "d") as session,
        pytest.raises(SessionError, match=r"Rounds\.run\(\) takes no calls while others run"),
    ):
        run(session, executor=Rounds())


def test_sessions_without_a_lag_are_what_they_were(tmp_path: Path) -> None:
    """Its absence is no field of what a session was made with."""
    with open_session(tmp_path, lag=None) as session:
        assert "lag" not in session._store.meta("fixed")
        assert session.config.batches_open == 1 and session.config.limits == LIMITS
