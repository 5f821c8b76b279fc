"""The best operators of different groups of layers together in one network, trained as candidates of their own.

Stages are searched one after the other, each on top of the best of those before it: which operator is best beside
which others is known of few pairs. What combinations are worth is guessed from what each operator changed in the network that
it was trained in; the most promising are trained, and what that gives decides.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from syno.session.files import operator_path
from syno.session.protocols import OperatorText
from syno.session.records import COMBINED, Candidate, Combination
from syno.session.rungs import WHOLE, train_in
from syno.support.files import write_whole

if TYPE_CHECKING:
    from syno.session.loop import Loop

#: Share of a search's candidates that combine the operators of several groups, where there are several.
SHARE = 0.2

#: Operators of each group that are put together with those of others, the best of it.
BEST = 3


#: Those of a batch that is not complete: to be trained, or trained and not rewarded yet.
_OPEN = (
    "WHERE c.kind = ? AND (c.state = 'queued'"
    " OR c.reward IS NULL AND c.trained = 1 AND c.state IN ('done', 'failed', 'lost'))"
)


def combination_text(operators: Mapping[str, OperatorText]) -> OperatorText:
    """A combination of operators, by stage, as a session keeps it beside operators."""
    keys = {stage: operator.key for stage, operator in operators.items()}
    content = msgspec.json.encode(Combination(keys)).decode()
    digest = hashlib.sha256(msgspec.json.encode(sorted(keys.items()))).hexdigest()
    return OperatorText(
        key=f"combination-{digest[:32]}",
        expr="; ".join(f"{stage}: {operator.expr}" for stage, operator in operators.items()),
        text=content,
    )


def trained_combinations(loop: Loop) -> int:
    """Combinations whose training was started."""
    row = loop.store.execute(
        "SELECT count(*) FROM candidate WHERE kind = ? AND trained = 1", COMBINED
    ).fetchone()
    return int(row[0])


def combine(loop: Loop, most: int) -> bool:
    """Trains combinations until ``most`` of the session's were trained, a batch at a time; False where there are no more.

    Which ones follows from what is recorded when they are added, all of a batch at once.
    """
    while True:
        waiting = loop.store.candidates(_OPEN, COMBINED)
        if not waiting:
            count = min(loop.config.batch_width, most - trained_combinations(loop))
            if count < 1:
                return True
            waiting = _add(loop, count)
            if not waiting:
                return False
        _evaluate(loop, [c.number for c in waiting])


def combine_in_time(loop: Loop, time_s: float) -> None:
    """Trains combinations, a batch at a time, while the session's account has time for one more."""
    while True:
        loop.spend()
        seconds = loop.store.seconds()
        rounds = math.ceil(loop.config.batch_width / loop.width())
        if not seconds or loop.view.elapsed_s + statistics.median(seconds) * rounds > time_s:
            return
        if not combine(loop, trained_combinations(loop) + loop.config.batch_width):
            return


def _evaluate(loop: Loop, numbers: Sequence[int]) -> None:
    """Costs first, then whole trainings of those that are worth it."""

    def rows() -> list[Candidate]:
        return [c for n in numbers if (c := loop.store.candidate(n)) is not None]

    for work in loop.costs(loop.baseline()):
        work(rows())
    train_in(loop, [c.number for c in rows() if c.state != "pruned"], WHOLE, 1.0)


def _add(loop: Loop, count: int) -> list[Candidate]:
    """Writes the most promising combinations down that were not trained yet."""
    chosen = promising(loop)[:count]
    numbers = []
    with loop.store.transaction():
        for operators, expected in chosen:
            made = combination_text(operators)
            why = f"combines the best of {len(operators)} groups: expected reward {expected:.3f}"
            numbers.append(loop.store.add_candidate(COMBINED, "", made, why=why))
            names = loop.store.known()
            known = [names.get(operator.key, "") for operator in operators.values()]
            if all(known):
                loop.store.name_known(made.key, " + ".join(known))
            write_whole(operator_path(loop.directory, made.key), made.text)
        if numbers:
            loop.store.event(f"{len(numbers)} combinations of the best of several groups")
        loop.spend()
    return [c for n in numbers if (c := loop.store.candidate(n)) is not None]


def promising(loop: Loop) -> list[tuple[dict[str, OperatorText], float]]:
    """Combinations of two groups or more that no candidate's network is, with the reward each is expected to have, the
    greatest first.

    An operator is expected to change metric and latency as it did in the network that it was trained in.
    """
    baseline = loop.decides_by(loop.baseline())
    everyone = [
        loop.decides_by(c)
        for c in loop.store.candidates("WHERE c.state = 'done'")
        if c.kind != "baseline" and c.score is not None
    ]
    networks = {c.number: loop.view.assignment(c) for c in everyone}
    by_network = {_frozen(networks[c.number]): c for c in everyone}
    by_network[frozenset()] = baseline
    known = {
        _frozen(loop.view.assignment(c))
        for c in loop.store.candidates("WHERE c.kind != 'baseline'")
    }
    options: list[list[tuple[str, str, float, float]]] = []
    for stage in loop.config.stages:
        own = [c for c in everyone if c.stage == stage.name]
        own.sort(key=lambda c: (-(c.reward or 0.0), c.number))
        rows = []
        for candidate in own[:BEST]:
            rest = {s: k for s, k in networks[candidate.number].items() if s != stage.name}
            without = by_network.get(_frozen(rest))
            if without is not None:
                rows.append((stage.name, candidate.key, *_changes(candidate, without)))
        options.append(rows)
    found = []
    for parts in itertools.product(*([None, *rows] for rows in options)):
        chosen = [part for part in parts if part is not None]
        keys = {stage: key for stage, key, _, _ in chosen}
        if len(chosen) < 2 or _frozen(keys) in known:
            continue
        reward = loop.reward(_expected(baseline, chosen), baseline)
        found.append((-reward, tuple(sorted(keys.items())), keys))
    found.sort(key=lambda row: row[:2])
    return [
        ({stage: loop.store.operator(key) for stage, key in keys.items()}, -negated)
        for negated, _, keys in found
    ]


def _frozen(network: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(network.items())


def _cost(candidate: Candidate) -> float | None:
    """Latency, where it decides; else multiply-adds."""
    cost = candidate.latency_us if candidate.latency_us is not None else candidate.flops
    return None if cost is None or not cost > 0 else float(cost)


def _changes(candidate: Candidate, without: Candidate) -> tuple[float, float]:
    """By how much an operator changes the metric, and by which factor the latency."""
    assert candidate.score is not None
    reference = without.score.value if without.score is not None else candidate.score.value
    own, its = _cost(candidate), _cost(without)
    same = (candidate.latency_us is None) == (without.latency_us is None)
    factor = own / its if own is not None and its is not None and same else 1.0
    return candidate.score.value - reference, factor


def _expected(baseline: Candidate, parts: Sequence[tuple[str, str, float, float]]) -> Candidate:
    """The original as it would be with all these changes."""
    score = baseline.score
    assert score is not None
    value = score.value + sum(change for _, _, change, _ in parts)
    factor = math.prod(factor for _, _, _, factor in parts)
    return msgspec.structs.replace(
        baseline,
        kind=COMBINED,
        score=msgspec.structs.replace(score, value=value),
        latency_us=None if baseline.latency_us is None else baseline.latency_us * factor,
        flops=None if baseline.flops is None else max(1, round(baseline.flops * factor)),
    )


__all__ = [
    "BEST",
    "SHARE",
    "combination_text",
    "combine",
    "combine_in_time",
    "promising",
    "trained_combinations",
]
