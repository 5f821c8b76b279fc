"""What may be said of a search: the one place that names a winner, for progress, status, reports and exit codes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from syno.operators.said import NEAREST
from syno.session.interval import LEVEL, Interval, Sample
from syno.session.protocols import RUNNERS
from syno.session.records import Candidate, allowed_drop
from syno.support.numbers import significant

if TYPE_CHECKING:
    from syno.session.view import SessionView

#: Of the metric, where nothing else is asked for: one point of accuracy, one percent of a loss.
DEFAULT_DROP = 0.01

#: One-sided 95 % of a normal error.
Z = 1.645

#: More candidates than this that were trained once are not all judged: only those that can win or lead.
MOST_JUDGED = 1_000

#: Of the width that a normal error gives an interval, what drawing it leaves at the least: by six standard errors of that.
NARROWEST = 0.9

#: A gain of more standard errors than this over the original is no gain before somebody knows why.
IMPLAUSIBLE = 5.0

Held = Literal["proven", "undecided", "worse", "implausible"]


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is faster than the original, and whether it holds the metric.

    Attributes:
        held: ``"proven"``: the lower end of the one-sided 95 % interval of ``gain`` is at least ``-allowed``;
            ``"worse"``: the upper end is below that; ``"implausible"``: it is too good, and nobody knows why.
        part, seeds, count: what it is judged on: trainings, and examples each.
        value, reference: the candidate's metric, and what it is compared with: ``against`` the original trained
            alike (``"trained"``) or the model as it was handed in (``"given"``), whichever is harder to hold.
        gain, lower, upper: of the candidate over the reference in units of the metric; negative is worse.
        allowed: how far below 0 ``lower`` may be.
        speedup: against the original, in turns with it; ``slowest`` is the lower end of its one-sided 95 % interval.
            Nothing is proven where that is not above 1.
        more_seeds, more_examples: what would decide it, if the difference stays as it is; ``None``: not known.
        paired: whether the interval compares example by example.
        why: why nothing is proven, where that is not the interval.
        strange: what is known of a gain of more than five standard errors.
        known: which known operator it is; empty for one that is found.
        nearest: of one that is found, the known operator that is most like it, and how they differ; empty until a run
            has ended.
        runner: who ran the candidate and the original in the speedup's measurement, where that was the same for both: of
            :data:`syno.session.protocols.RUNNERS`; else empty.
        target: the further machine that the speedup is of; empty: the session's own.
    """

    id: str
    held: Held
    part: str
    seeds: int
    count: int
    value: float
    reference: float
    against: Literal["trained", "given"]
    gain: float
    lower: float
    upper: float
    allowed: float
    speedup: float
    slowest: float
    more_seeds: int | None = None
    more_examples: int | None = None
    paired: bool = False
    why: str = ""
    strange: str = ""
    known: str = ""
    nearest: str = ""
    runner: str = ""
    target: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """``outcome``: ``"found"`` (``best`` is proven), ``"undecided"`` (``leader`` may be), ``"original"`` (nothing faster
    holds the metric), or ``"nothing"`` (nothing can be compared yet). ``sentence`` says it."""

    outcome: Literal["found", "undecided", "original", "nothing"]
    sentence: str
    metric: str
    higher_is_better: bool
    best: str | None = None
    leader: str | None = None
    max_drop: float = DEFAULT_DROP
    judged: list[Judgement] = []
    target: str = ""

    @property
    def judgement(self) -> Judgement | None:
        """Of the winner, else of who leads."""
        id = self.best or self.leader
        return next((one for one in self.judged if one.id == id), None)

    def short(self) -> str:
        """A few words for a line of progress."""
        if self.best is not None:
            return f"best {self.best}"
        return "" if self.leader is None else f"{self.leader} leads, undecided"


def reach(view: SessionView, max_drop: float | None = None, target: str | None = None) -> Verdict:
    """The verdict on a session as it is recorded now; on a ``target`` by its latencies.

    Where candidates were trained again on further seeds, only those are judged, on the test part: the search's own scores
    chose them and favour who was lucky. Where a run is to train finalists and has not, nothing is proven yet.
    """
    drop = DEFAULT_DROP if max_drop is None else max_drop
    baseline = view.baseline
    scored = None if baseline is None else (baseline.finals or baseline.score)
    if baseline is None or baseline.value is None or not scored:
        sentence = "The original has not been trained yet: nothing can be compared."
        return Verdict(
            outcome="nothing", sentence=sentence, metric="", higher_is_better=True, max_drop=drop
        )
    first = baseline.finals[0] if baseline.finals else baseline.score
    assert first is not None
    metric, higher = first.metric, first.higher_is_better

    def made(outcome: Any, sentence: str, **more: Any) -> Verdict:
        return Verdict(
            outcome=outcome,
            sentence=sentence,
            metric=metric,
            higher_is_better=higher,
            max_drop=drop,
            target=target or "",
            **more,
        )

    everyone = view.overview()
    others = ~everyone.original
    again, once = others & ~np.isnan(everyone.test), others & ~np.isnan(everyone.value)
    finalists = bool(again.any())
    if finalists and not baseline.finals:
        return made("nothing", "The original has not been trained on the finalists' seeds yet.")
    places = np.flatnonzero(again if finalists else once)
    count = len(places)
    when = " so far" if (view.running and not view.ended) or view.interrupted else ""
    if not count:
        return made("nothing", f"No candidate has been trained to the end{when}{_why_none(view)}.")
    on = f" on {target}" if target else ""
    case = _Case(view, baseline, drop, count, target)
    if count > MOST_JUDGED and not finalists:
        judged, timed = _likeliest(case, places)
    else:
        chosen = view.chosen([int(number) for number in everyone.numbers[places]])
        speedups = view.speedups(chosen, target=target)
        timed = any(speedup is not None for speedup in speedups)
        judged = [
            _judge(case, candidate, speedup)
            for candidate, speedup in zip(chosen, speedups, strict=True)
            if speedup is not None and speedup > 1.0
        ]
    if target and not timed:
        return made("nothing", f"No candidate has been timed{on} beside the original yet.")
    among = set(everyone.numbers[places].tolist())
    known = [f"c{number}" for number, _ in view.known_numbers() if number in among]
    numbers = {one.id: int(one.id.removeprefix("c")) for one in judged}
    judged.sort(key=lambda one: (-one.speedup, numbers[one.id]))
    proven = [one for one in judged if one.held == "proven"]
    if proven:
        best = proven[0]
        sentence = _found(best, metric) + _beside(best, judged, known, metric)
        return made("found", sentence, best=best.id, judged=judged)
    open_ones = [one for one in judged if one.held == "undecided"]
    if open_ones:
        leader = max(open_ones, key=lambda one: one.lower + one.allowed)
        sentence = _undecided(leader, metric) + _beside(leader, judged, known, metric)
        return made("undecided", sentence, leader=leader.id, judged=judged)
    strange = [one for one in judged if one.held == "implausible"]
    if strange:
        return made("undecided", strange[0].strange, leader=strange[0].id, judged=judged)
    within = f"the {_amount(allowed_drop(drop, baseline.value, higher_is_better=higher), metric)} allowed"
    return made(
        "original",
        f"None of the {count} candidates {'trained again' if finalists else 'trained'}{when} is faster "
        f"than the original{on} and holds its {metric} within {within}: the original stays{when}.",
        judged=judged,
    )


def _likeliest(case: _Case, places: Any) -> tuple[list[Judgement], bool]:
    """Judges of very many candidates, each trained once, only those that can win or lead, and known operators; and whether
    any was timed beside the original.

    The fastest first that may be proven, until one is; where none is, those that come nearest to it. How wide an interval is
    at the least follows from the two standard errors that it is made of, and from how many candidates it is one of.
    """
    view = case.view
    everyone = view.overview()
    speedup = view.speedups_of(everyone, case.target)[places]
    numbers = everyone.numbers[places]
    speeds = dict(zip(numbers.tolist(), speedup.tolist(), strict=True))
    score = case.baseline.score
    assert score is not None
    higher = score.higher_is_better
    sign = 1.0 if higher else -1.0
    far = statistics.NormalDist().inv_cdf(1 - (1 - LEVEL) / case.among)
    margin = np.full(len(places), np.inf)
    for other in (score, view.given.get("validation")):
        if other is not None:
            allowed = allowed_drop(case.drop, other.value, higher_is_better=higher)
            wide = NARROWEST * far * np.hypot(everyone.stderr[places], other.stderr)
            gain = sign * (everyone.validation[places] - other.value)
            margin = np.minimum(margin, gain + allowed - wide)
    faster = speedup > 1.0
    known = [number for number, _ in view.known_numbers()]
    judged: dict[int, Judgement] = {}

    def judge(chosen: Sequence[int]) -> None:
        new = [number for number in chosen if number not in judged]
        for candidate in view.chosen(new):
            judged[candidate.number] = _judge(case, candidate, speeds[candidate.number])

    judge(numbers[faster & np.isin(numbers, known)].tolist())
    able = np.flatnonzero(faster & (margin >= 0))
    able = able[np.lexsort((numbers[able], -speedup[able]))][: 4 * MOST_JUDGED]
    for begin in range(0, 0 if case.planned else len(able), 50):
        if any(one.held == "proven" for one in judged.values()):
            break
        judge(numbers[able[begin : begin + 50]].tolist())
    if not any(one.held == "proven" for one in judged.values()):
        near = np.flatnonzero(faster)
        near = near[np.lexsort((numbers[near], -margin[near]))]
        judge(numbers[near[: MOST_JUDGED // 4]].tolist())
    return list(judged.values()), bool((~np.isnan(speedup)).any())


def _why_none(view: SessionView) -> str:
    """What became of the candidates where none was trained to the end: the latest of each end speaks for its kind."""
    parts = []
    for state, count in view.ends():
        (last,) = view.latest(1, state)
        reason = " ".join(last.reason.split())[:300].rstrip(". ")
        parts.append(f"{count} {state}" + (f" ({last.id}: {reason})" if reason else ""))
    return ": " + ", ".join(parts) if parts else ""


class _Case:
    """What candidates are judged by, of which there are ``among``; what all of them are compared with is read once."""

    def __init__(
        self, view: SessionView, baseline: Candidate, drop: float, among: int, target: str | None
    ) -> None:
        self.view, self.baseline, self.drop = view, baseline, drop
        self.among, self.target = among, target
        self.planned = view.finals_planned
        self.speeds = view.speeds()
        self.words = view.words
        self._compared: dict[bool, list[tuple[Literal["trained", "given"], Sample]]] = {}

    def references(self, final: bool) -> list[tuple[Literal["trained", "given"], Sample]]:
        """The original trained alike, and the model as it was handed in, where that was judged on the same part."""
        if final not in self._compared:
            found = self._compared[final] = [("trained", self.view.sample(self.baseline))]
            given = self.view.given_sample("test" if final else "validation")
            if given is not None:
                found.append(("given", given))
        return self._compared[final]


def _judge(case: _Case, candidate: Candidate, speedup: float) -> Judgement:
    final = bool(candidate.finals)
    slowest = max(0.0, speedup - Z * case.speeds.stderr(candidate, case.target))
    own = case.view.sample(candidate)
    higher = own.scores[0].higher_is_better
    rows = []
    for against, other in case.references(final):
        found = case.view.interval(
            own,
            other,
            fixed=against == "given",
            tests=1 if final else case.among,
            key=(candidate.key, against),
        )
        allowed = allowed_drop(case.drop, other.value, higher_is_better=higher)
        rows.append((found.lower + allowed, against, other, found, allowed))
    margin, against, other, found, allowed = min(rows, key=lambda row: row[0])
    lowest = min(rows, key=lambda row: row[3].gain)[3]
    spread = math.hypot(lowest.examples_std, lowest.seeds_std)
    held: Held = "proven" if margin >= 0 else "undecided"
    why = strange = ""
    if found.upper + allowed < 0:
        held = "worse"
    elif not final and case.planned:
        held = "undecided"
        why = "it was trained once, on the seed and the validation data that it is chosen by"
    elif final and len(candidate.finals) < 2:
        held = "undecided"
        why = "one training says nothing of how trainings differ"
    elif held == "proven" and not slowest > 1.0:
        held = "undecided"
        why = f"by its times, which vary, it may be {slowest:.2f} times as fast, too: measure it on a quieter machine"
    if lowest.gain > IMPLAUSIBLE * spread and spread > 0:
        checked = candidate.mixing
        sigmas = lowest.gain / spread
        strange = (
            f"{candidate.id} is implausible: its {own.scores[0].metric} is {sigmas:.0f} standard errors better than "
            f"the original's. {checked or 'Nobody has looked why'}"
        )
        if checked.startswith(MIXES):
            held = "implausible"
    seeds, examples = (
        _more(found, allowed, own, other, against)
        if held == "undecided" and (margin < 0 or len(own.scores) < 2)
        else (None, None)
    )
    if why and held == "undecided" and not final and case.planned:
        seeds, examples = max(2, case.planned), None
    return Judgement(
        id=candidate.id,
        held=held,
        part=own.scores[0].part,
        seeds=len(own.scores),
        count=own.scores[0].count,
        value=own.value,
        reference=other.value,
        against=against,
        gain=found.gain,
        lower=found.lower,
        upper=found.upper,
        allowed=allowed,
        speedup=speedup,
        slowest=slowest,
        more_seeds=seeds,
        more_examples=examples,
        paired=found.paired,
        why=why,
        strange=strange,
        known=candidate.known,
        nearest="" if candidate.known else nearest_of(case.words.get(candidate.key, "")),
        runner="" if case.target else case.speeds.same_runner(candidate),
        target=case.target or "",
    )


#: How the record of a check begins that found a network to mix what the original keeps apart.
MIXES = "It mixes"


def _more(
    found: Interval, allowed: float, own: Sample, other: Sample, against: str
) -> tuple[int | None, int | None]:
    """Further seeds, or examples, at which an interval of this gain no longer reaches the limit."""
    needed = abs(found.gain + allowed) / Z
    if not 0 < needed < math.inf:
        return None, None
    seeds, count = len(own.scores), own.scores[0].count
    if found.seed_std == 0.0 and seeds < 2:
        return 2, None
    # Variances as parts of what is needed: a metric may have values whose squares are no numbers.
    of_examples = _square(found.examples_std / needed)
    one = _square(found.seeds_std / needed) * seeds  # of a single training, of both networks
    room = 1.0 - of_examples
    if room > 0.1:
        return _count(max(1.0, one / room - seeds)), None
    # Both parts get half of what is allowed.
    more = _count(max(0.0, one / 0.5 - seeds))
    return (more or None), _count(max(1.0, count * (of_examples / 0.5 - 1)))


def _square(value: float) -> float:
    return value * value


def _count(value: float) -> int | None:
    """``None`` where nobody would do so many."""
    return math.ceil(value) if value < 1e9 else None


def _amount(value: float, metric: str) -> str:
    if metric == "accuracy":
        return f"{100 * value:.2f} points"
    return significant(value, 2)


def _value(value: float, metric: str) -> str:
    return f"{100 * value:.2f} %" if metric == "accuracy" else significant(value, 4)


def _numbers(one: Judgement, metric: str) -> str:
    who = (
        "the original trained alike"
        if one.against == "trained"
        else "the model as it was handed in"
    )
    on = f"{one.seeds} seed{'s' if one.seeds > 1 else ''}, {one.count:,} examples of {one.part}"
    return (
        f"its {metric} is {_value(one.value, metric)}, that of {who} {_value(one.reference, metric)} ({on}); "
        f"it may be worse by {_amount(max(0.0, -one.lower), metric)} (one-sided 95 %), where "
        f"{_amount(one.allowed, metric)} are allowed"
    )


def _called(one: Judgement) -> str:
    return f"{one.id}, {f'a known operator ({one.known})' if one.known else 'a found operator'},"


def nearest_of(words: str) -> str:
    """What an operator's description says of the nearest known one."""
    return words.partition(NEAREST)[2].rstrip(". ")


def _beside(one: Judgement, judged: list[Judgement], known: list[str], metric: str) -> str:
    """What is to be said of known operators, among those that could be judged, beside the one that leads."""
    text = f" {NEAREST}{one.nearest}." if one.nearest else ""
    if one.known or not known:
        return text
    rows = [other for other in judged if other.known and other.id != one.id]
    order = {"proven": 0, "undecided": 1, "implausible": 2, "worse": 3}
    if not rows:
        return f"{text} No known operator that was judged with it is faster than the original."
    best = min(rows, key=lambda other: (order[other.held], -other.speedup))
    return (
        f"{text} The best known operator beside it, {best.known} ({best.id}), is {best.speedup:.2f} times as fast at "
        f"{metric} {_value(best.value, metric)} ({best.held})."
    )


def _found(one: Judgement, metric: str) -> str:
    text = f"{_called(one)} runs the network {_speed(one)} times as fast as the original{_both(one)}; {_numbers(one, metric)}."
    return f"{text} {one.strange}." if one.strange else text


def _speed(one: Judgement) -> str:
    least = f" ({one.slowest:.2f} or more)" if f"{one.slowest:.2f}" != f"{one.speedup:.2f}" else ""
    return f"{one.speedup:.2f}{least}"


def _undecided(one: Judgement, metric: str) -> str:
    wanted = []
    if one.more_seeds:
        wanted.append(
            f"{one.more_seeds} more seed{'s' if one.more_seeds > 1 else ''} (final_seeds={_seeds(one)}, --final-seeds {_seeds(one)})"
        )
    if one.more_examples:
        wanted.append(f"{one.more_examples:,} more {one.part} examples")
    tell = f" To decide it: {' and '.join(wanted)}." if wanted else ""
    because = f" ({one.why})" if one.why else ""
    numbers = _numbers(one, metric)
    more = f" {one.strange}." if one.strange else ""
    return f"Undecided{because}: {_called(one)} is {_speed(one)} times as fast{_both(one)}; {numbers}.{tell}{more}"


def _both(one: Judgement) -> str:
    """How candidate and original were run, where they were compiled."""
    if one.target:
        return f" on {one.target}"
    return f", both {RUNNERS['compiled']}" if one.runner == "compiled" else ""


def _seeds(one: Judgement) -> int:
    return (one.more_seeds or 0) + (one.seeds if one.part == "test" else 0)
