"""The finalists of a search: chosen once by what is on record, trained again on further seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from syno.session.files import checkpoint_path, weights_path
from syno.session.pruning import not_worth_training
from syno.session.records import Candidate
from syno.train import TrainResult

if TYPE_CHECKING:
    from syno.session.loop import Loop


def finals_cost_s(loop: Loop, finalists: int, seeds: int) -> float:
    """Seconds that the finalists' trainings are likely to take."""
    seconds = [c.score.seconds for c in loop.store.candidates() if c.score is not None]
    if not seconds:
        return 0.0
    rounds = math.ceil((finalists + 1) * seeds / loop.width())
    return 1.2 * statistics.median(seconds) * rounds


def best_of(done: Sequence[Candidate], count: int, rewards: Mapping[int, float]) -> list[Candidate]:
    """The ``count`` best by their rewards. Of two or more one is known and one is found, where there are both:
    what is found is judged beside what is known."""
    ranked = sorted(done, key=lambda c: (-rewards[c.number], c.number))
    chosen = ranked[:count]
    if count < 2:
        return chosen
    for known in (True, False):
        if all(bool(c.known) != known for c in chosen):
            best = next((c for c in ranked if bool(c.known) == known), None)
            chosen = [*chosen[:-1], best] if best is not None else chosen
    return chosen


def choose_finalists(loop: Loop, count: int) -> list[Candidate]:
    """:func:`best_of` what is on record, and whoever was chosen before: a finalist stays one.

    The first choice that reads measured latencies where the session predicts them: the rewards are those with the
    latencies as measured, and who is slower than allowed is left out.
    """
    done = [c for c in loop.store.candidates("WHERE c.state = 'done'") if c.kind != "baseline"]
    done = [c for c in done if loop.was_whole(c)]
    rewards = {c.number: c.reward or 0.0 for c in done}
    fast = done
    if loop.config.predicted_on is not None:
        baseline = loop.baseline()
        rewards = {c.number: loop.reward(c, baseline) for c in done}
        fast = [c for c in done if _fast_enough(loop, c, baseline)]
    ranked = best_of(fast, count, rewards)
    # Sessions made before finalists were recorded have their trainings alone.
    before = loop.store.finalists() or [c.number for c in done if c.finals]
    new = [c for c in ranked if c.number not in before]
    if new:
        with loop.store.transaction():
            loop.store.set_finalists([*before, *(c.number for c in new)])
            for candidate in new:
                loop.store.event(
                    f"candidate {candidate.number} is a finalist: reward {rewards[candidate.number]:.4g}"
                )
    chosen = {*before, *(c.number for c in new)}
    return [c for c in done if c.number in chosen]


def _fast_enough(loop: Loop, candidate: Candidate, baseline: Candidate) -> bool:
    """Whether its measured costs are within the limits that its predicted ones were held against."""
    if not candidate.measured:
        return not baseline.measured  # where nothing can be timed, nothing is asked
    return not_worth_training(candidate, baseline, loop.config.prune) is None


def train_finalists(loop: Loop, count: int, seeds: Sequence[int]) -> None:
    """Trains the best candidates and the original once for each seed, judged on the test part.

    The search's own score chose them, so it is not counted again.
    """
    chosen = choose_finalists(loop, count)
    rows = []
    for seed in seeds:
        for candidate in [loop.baseline(), *chosen]:
            if seed not in {score.seed for score in candidate.finals}:
                rows.append((candidate, seed))
    calls = []
    for candidate, seed in rows:
        weights = weights_path(loop.directory, candidate.key, seed)
        calls.append(loop.training_call(candidate, seed, "test", [], "", weights))
    numbers = [candidate.number for candidate, _ in rows]
    own_seeds = [seed for _, seed in rows]
    for index, outcome in loop.run_calls(calls, numbers, "final", seeds=own_seeds):
        number = numbers[index]
        with loop.store.transaction():
            if outcome.state == "ok":
                result = msgspec.convert(outcome.value, TrainResult)
                if result.state == "done":
                    loop.add_result(number, "final", result)
                    key = rows[index][0].key
                    loop.store.add_file(weights_path(loop.directory, key, own_seeds[index]))
                else:
                    loop.store.event(
                        f"candidate {number}, seed {own_seeds[index]}: {result.reason}", "warning"
                    )
            else:
                loop.store.event(
                    f"candidate {number}, seed {own_seeds[index]}: {outcome.reason}", "warning"
                )
            loop.spend()
        path = checkpoint_path(loop.directory, number, "test", 1.0, own_seeds[index])
        path.unlink(missing_ok=True)
        loop.tell_callbacks("finalist", number)
