"""Rungs: short trainings rank many candidates, longer ones fewer; who goes on, and what that costs.

Each rung is a training of its own, with the whole learning-rate schedule over its steps; the last is the whole training.
Beside the best of a rung some go on at random, all the way: their ranks at the end say what the rung's ranks are
worth, and which of the best it would have lost.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from syno.session.records import Candidate, Passed, RungState, Score
from syno.support.streams import seed_of

if TYPE_CHECKING:
    from syno.session.config import Rung, SessionConfig, Stage
    from syno.session.loop import Loop
    from syno.session.view import SessionView

#: Phase of the whole training in a session's record.
WHOLE = "search"

#: At least this share of a rung's candidates goes on at random beside the best, and at least so many where there are.
RANDOM_SHARE, RANDOM_LEAST = 0.1, 8

#: A rung is left out from then on when its rank correlation with whole trainings is below this with 97.5 % confidence.
USELESS = 0.4

#: Of those trained to the end, so many with the greatest rewards are the top: it is said which of them a rung would have lost.
TOP = 3

_RESAMPLES = 2_000
_LEAST_PAIRS = 4


class RungReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a rung did and what its ranks are worth.

    Attributes:
        share: of the steps of a whole training.
        trained, best, drawn: who finished it, who went on for their rank, and at random beside them.
        correlation, low, high: Spearman's rank correlation with whole trainings over ``pairs`` candidates that were
            drawn at random, and its 95 % interval by bootstrap; ``None`` for fewer than four pairs.
        lost: of the three best at the end, those who went on at random alone.
        useless: whether the rung is left out from here on.
    """

    rung: int
    share: float
    trained: int
    best: int
    drawn: int
    pairs: int
    correlation: float | None
    low: float | None
    high: float | None
    lost: list[str]
    useless: bool

    def sentence(self) -> str:
        """It in words."""
        text = (
            f"rung {self.rung} ({self.share:.0%} of the steps): {self.trained} trained, {self.best} went on as the "
            f"best and {self.drawn} at random; "
        )
        if self.correlation is None:
            text += (
                f"{self.pairs} pairs are too few to tell its rank correlation with whole trainings"
            )
        else:
            text += (
                f"rank correlation with whole trainings {self.correlation:.2f} (95 %: {self.low:.2f} to "
                f"{self.high:.2f}, {self.pairs} pairs)"
            )
        if self.lost:
            text += f"; of the {TOP} best at the end it would have lost {', '.join(self.lost)}"
        return text + ("; it is left out from here on" if self.useless else "")


def phase_of(rung: int) -> str:
    """The name in a record of the trainings of a rung, from 1."""
    return f"rung{rung}"


def phases(config: SessionConfig, state: RungState) -> list[tuple[str, float]]:
    """Phases of the trainings a candidate may go through now, the whole one last, each with its share of the steps."""
    rungs = [
        (phase_of(number), rung.share)
        for number, rung in enumerate(config.rungs or (), 1)
        if number not in state.useless
    ]
    return [*rungs, (WHOLE, 1.0)]


def at_phase(candidate: Candidate, phase: str) -> Candidate:
    """The candidate as the trainings of a phase see it: their score is its score."""
    if phase == WHOLE:
        return candidate
    return msgspec.structs.replace(candidate, score=score_at(candidate, phase))


def score_at(candidate: Candidate, phase: str) -> Score | None:
    """Of its training in a phase."""
    if phase == WHOLE:
        return candidate.score
    return next((score for score in candidate.rungs if score.phase == phase), None)


def choose_passed(ranked: Sequence[int], keep: float, key: Sequence[object]) -> Passed:
    """Who of ``ranked``, the best first, goes on: the best share ``keep``, and some at random beside them.

    ``key`` is what the random order follows from, and nothing else does: the same on every machine.
    """
    count = len(ranked)
    best = list(ranked[: max(1, math.floor(keep * count))]) if count else []
    wanted = min(count - len(best), max(math.ceil(RANDOM_SHARE * count), RANDOM_LEAST))
    order = np.random.default_rng(seed_of(*key)).permutation(count)
    everyone = sorted(ranked)
    drawn: list[int] = []
    beside = 0
    for place in order:
        if beside == wanted:
            break
        drawn.append(everyone[place])
        beside += everyone[place] not in best
    return Passed(stage="", rung=0, seen=list(ranked), best=best, drawn=drawn)


def ranks(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Ranks from 0, equal values sharing the mean of theirs."""
    array = np.asarray(values, dtype=np.float64)
    below = (array[None, :] < array[:, None]).sum(axis=1)
    equal = (array[None, :] == array[:, None]).sum(axis=1)
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = below + (equal - 1) / 2.0
    return found


def rank_correlation(cohorts: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """Spearman's, of pairs that are ranked within their cohort; ``None`` where either side does not vary."""
    parts = []
    for cohort in cohorts:
        if cohort:
            sides = [ranks([pair[side] for pair in cohort]) for side in (0, 1)]
            parts.append(np.stack([side - side.mean() for side in sides]))
    if not parts:
        return None
    own, end = np.concatenate(parts, axis=1)
    scale = math.sqrt(float(own @ own) * float(end @ end))
    return None if scale == 0 else float(own @ end) / scale


@functools.lru_cache(maxsize=64)
def correlation_interval(
    cohorts: tuple[tuple[tuple[float, float], ...], ...], key: tuple[object, ...]
) -> tuple[float | None, float | None, float | None]:
    """The rank correlation and its 95 % interval: quantiles over resampled pairs, each cohort by itself."""
    middle = rank_correlation(cohorts)
    if middle is None or sum(map(len, cohorts)) < _LEAST_PAIRS:
        return None, None, None
    draw = np.random.default_rng(seed_of(*key))
    found = []
    for _ in range(_RESAMPLES):
        again = [
            [cohort[i] for i in draw.integers(len(cohort), size=len(cohort))]
            for cohort in cohorts
            if cohort
        ]
        one = rank_correlation(again)
        if one is not None:
            found.append(one)
    if not found:
        return middle, -1.0, 1.0
    low, high = np.quantile(found, [0.025, 0.975])
    return middle, float(low), float(high)


def rung_reports(view: SessionView) -> list[RungReport]:
    """What every rung of a session did so far, the shortest first."""
    state = view.rung_state
    config = view.config
    decided = {number for passed in state.passed for number in (*passed.drawn, *passed.on)}
    everyone = {c.number: c for c in view.candidates(decided)} if config.rungs else {}
    return [
        _report(number, rung, state, everyone, config.seed)
        for number, rung in enumerate(config.rungs or (), 1)
    ]


def _report(
    number: int, rung: Rung, state: RungState, everyone: dict[int, Candidate], seed: int
) -> RungReport:
    decisions = [passed for passed in state.passed if passed.rung == number]
    cohorts, lost = [], []
    for passed in decisions:
        pairs = []
        for one in passed.drawn:
            if one not in everyone:
                continue
            own, end = score_at(everyone[one], phase_of(number)), everyone[one].score
            if own is not None and end is not None and everyone[one].state == "done":
                pairs.append((own.value, end.value))
        cohorts.append(tuple(pairs))
        lost += [
            everyone[one].id for one in _top(passed, state, everyone) if one not in passed.best
        ]
    middle, low, high = correlation_interval(tuple(cohorts), ("correlation", seed, number))
    beside = [set(passed.drawn) - set(passed.best) for passed in decisions]
    return RungReport(
        rung=number,
        share=rung.share,
        trained=sum(len(passed.seen) for passed in decisions),
        best=sum(len(passed.best) for passed in decisions),
        drawn=sum(map(len, beside)),
        pairs=sum(map(len, cohorts)),
        correlation=middle,
        low=low,
        high=high,
        lost=lost,
        useless=number in state.useless,
    )


def _top(passed: Passed, state: RungState, everyone: dict[int, Candidate]) -> list[int]:
    """The best at the end of those who went on from a decision."""
    ended = [c for n in passed.on if (c := everyone.get(n)) and c.state == "done" and c.score]
    ended.sort(key=lambda c: (-(c.reward or 0.0), c.number))
    return [c.number for c in ended[:TOP]]


# --- going on, in a session


def climb(loop: Loop, stage: Stage) -> None:
    """Takes a stage's candidates, those found since it was last climbed, from rung to rung to the whole training.

    Who goes on is decided once and recorded before anyone does; it follows from what is recorded of all who
    finished the rung and from (session seed, stage, rung), whatever the workers and whenever the process was killed.
    """
    if not loop.config.rungs:
        return
    steps = phases(loop.config, loop.view.rung_state)
    for (phase, _), (following, share) in itertools.pairwise(steps):
        number = int(phase.removeprefix("rung"))
        _decide(loop, stage, number)
        decisions = [
            p for p in loop.view.rung_state.passed if (p.stage, p.rung) == (stage.name, number)
        ]
        on = {n for passed in decisions for n in passed.on}
        train_in(loop, sorted(on), following, share)
    _leave_out_useless(loop)


def _decide(loop: Loop, stage: Stage, number: int) -> None:
    """Decides who of a rung goes on, of those not decided before."""
    assert loop.config.rungs is not None
    state, phase = loop.view.rung_state, phase_of(number)
    before = [p for p in state.passed if (p.stage, p.rung) == (stage.name, number)]
    decided = {n for passed in before for n in passed.seen}
    seen = [
        loop.decides_by(c, phase)
        for c in loop.store.candidates("WHERE c.state = 'done' AND c.stage = ?", stage.name)
        if c.number not in decided and score_at(c, phase) is not None
    ]
    if not seen:
        return
    baseline = loop.decides_by(loop.baseline(), phase)
    rewards = {c.number: loop.reward(c, baseline) for c in seen}
    ranked = sorted(rewards, key=lambda n: (-rewards[n], n))
    key = ("rung", loop.config.seed, stage.name, number, len(before))
    keep = loop.config.rungs[number - 1].keep
    drawn_before = {n for p in state.passed if p.stage == stage.name for n in p.drawn}
    passed = msgspec.structs.replace(
        choose_passed(ranked, keep, key),
        stage=stage.name,
        rung=number,
        before=sorted(drawn_before & set(ranked)),
    )
    on = set(passed.on)
    with loop.store.transaction():
        loop.store.set_rung_state(msgspec.structs.replace(state, passed=[*state.passed, passed]))
        for place, one in enumerate(ranked, 1):
            if one not in on:
                reason = f"rung {number}: ranks {place} of {len(ranked)}, of which the best {len(passed.best)} go on"
                loop.store.set_state(one, "pruned", reason)
        loop.store.event(
            f"rung {number} of stage {stage.name}: {len(passed.best)} best and "
            f"{len(on - set(passed.best))} at random go on, of {len(ranked)}"
        )
        loop.spend()
    loop.tell_callbacks("rung")


def train_in(loop: Loop, numbers: Sequence[int], phase: str, share: float) -> None:
    """Trains those who went on and have not been trained in this phase yet; their rewards are then those of it."""
    chosen = []
    for number in numbers:
        candidate = loop.store.candidates("WHERE c.number = ?", number)[0]
        if candidate.state in ("done", "queued") and score_at(candidate, phase) is None:
            chosen.append(candidate)
    seed = loop.config.seed
    calls = [
        loop.training_call(candidate, seed, "validation", [], "", share=share)
        for candidate in chosen
    ]
    ids = [candidate.number for candidate in chosen]
    for index, outcome in loop.run_calls(calls, ids, phase, seed):
        loop.record_training(ids[index], outcome, phase)
    baseline = loop.decides_by(loop.baseline(), phase)
    with loop.store.transaction():
        for number in numbers:
            candidate = loop.store.candidates("WHERE c.number = ?", number)[0]
            if score_at(candidate, phase) is not None or candidate.state in ("failed", "lost"):
                reward = loop.reward(loop.decides_by(candidate, phase), baseline)
                loop.store.execute(
                    "UPDATE candidate SET reward = ? WHERE number = ?", reward, number
                )


def _leave_out_useless(loop: Loop) -> None:
    """Leaves out the rungs whose ranks say too little of the end, from here on."""
    state = loop.view.rung_state
    useless = [
        report.rung
        for report in rung_reports(loop.view)
        if report.high is not None and report.high < USELESS
    ]
    new = sorted({*state.useless, *useless})
    if new != sorted(state.useless):
        with loop.store.transaction():
            loop.store.set_rung_state(msgspec.structs.replace(state, useless=new))
            loop.store.event(f"rungs {new} rank too badly: left out from here on", "warning")


def climb_cost_s(loop: Loop, stage: Stage) -> float:
    """Seconds that taking a stage's candidates up to the whole training is likely to take."""
    if not loop.config.rungs:
        return 0.0
    state = loop.view.rung_state
    steps = phases(loop.config, state)
    decided = {n for p in state.passed if p.stage == stage.name for n in p.seen}
    first, first_share = steps[0]
    one = loop.durations.median_s(first, original=True)
    if one is None:
        return 0.0
    # Who was decided of had been trained in the first phase, too.
    count = max(0, loop.durations.count(first, stage.name) - len(decided))
    count += loop.config.batch_width
    whole, total = one / first_share, 0.0
    for (phase, _), (_, share) in itertools.pairwise(steps):
        keep = loop.config.rungs[int(phase.removeprefix("rung")) - 1].keep
        best = max(1, math.floor(keep * count))
        count = best + min(count - best, max(math.ceil(RANDOM_SHARE * count), RANDOM_LEAST))
        total += whole * share * math.ceil(count / loop.width())
    return 1.2 * total


__all__ = [
    "Passed",
    "RungReport",
    "RungState",
    "choose_passed",
    "climb",
    "climb_cost_s",
    "correlation_interval",
    "phases",
    "rank_correlation",
    "rung_reports",
]
