"""The finalists of a search: chosen once by what is on record, trained again on further seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from syno.errors import SessionError
from syno.session.files import checkpoint_path, weights_path
from syno.session.pruning import not_worth_training
from syno.session.records import Candidate
from syno.training.train import TrainResult

if TYPE_CHECKING:
    from syno.session.loop import Loop
    from syno.session.view import SessionView


def finals_cost_s(loop: Loop, finalists: int, seeds: int) -> float:
    """Seconds that the finalists' trainings are likely to take."""
    seconds = loop.store.seconds()
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
    chosen = [loop.baseline(), *choose_finalists(loop, count)]
    train_again(loop, [(candidate, seed) for seed in seeds for candidate in chosen])


def chosen_seeds(
    view: SessionView, chosen: Mapping[str, int | Sequence[int]]
) -> dict[int, list[int]]:
    """The seeds of candidates that a caller chose, each with so many or those themselves; the original has those of all
    where it is not named.

    Raises:
        UnknownName: there is no such candidate.
        SessionError: one of them cannot be trained, or has no seed.
    """
    seeds: dict[int, list[int]] = {}
    for name, wanted in chosen.items():
        candidate = view.candidate(name)
        own = further_seeds(view.config.seed, wanted)
        if not own:
            raise SessionError(
                f"{candidate.id} is to be trained again on {wanted!r} seeds",
                fix="give a number of seeds, at least 1, or the seeds themselves, 0 or more",
                code="R017",
            )
        if candidate.state in ("failed", "lost"):
            raise SessionError(
                f"{candidate.id} cannot be trained again: {candidate.reason or candidate.state}",
                fix="leave it out of the finalists",
                code="R012",
            )
        seeds[candidate.number] = own
    baseline = view.baseline
    if baseline is not None and baseline.number not in seeds:
        everyone = [seed for own in seeds.values() for seed in own]
        seeds[baseline.number] = list(dict.fromkeys(everyone))
    return seeds


def train_chosen(loop: Loop, chosen: Mapping[str, int | Sequence[int]]) -> None:
    """Trains candidates that a caller chose on their seeds, judged on the test part; the first seeds of all come first.

    Raises:
        UnknownName, SessionError: see :func:`chosen_seeds`.
    """
    seeds = chosen_seeds(loop.view, chosen)
    rows = {c.number: c for c in loop.view.chosen(list(seeds))}
    before = loop.store.finalists()
    new = [n for n in seeds if n not in before and n != loop.baseline().number]
    if new:
        with loop.store.transaction():
            loop.store.set_finalists([*before, *new])
            for number in new:
                loop.store.event(f"candidate {number} is a finalist: it was asked for")
    most = max(len(own) for own in seeds.values())
    train_again(
        loop,
        [
            (rows[number], own[turn])
            for turn in range(most)
            for number, own in sorted(seeds.items())
            if turn < len(own)
        ],
    )


def further_seeds(seed: int, wanted: int | Sequence[int]) -> list[int]:
    """The seeds themselves, or so many that begin after the session's; empty where that makes none."""
    if isinstance(wanted, int):
        return [] if isinstance(wanted, bool) else [seed + 1 + i for i in range(wanted)]
    if any(isinstance(s, bool) or s < 0 for s in wanted):
        return []
    return list(dict.fromkeys(wanted))


def train_again(loop: Loop, pairs: Sequence[tuple[Candidate, int]]) -> None:
    """Trains candidates on seeds, in this order, those that were not trained on them before."""
    rows = [
        (candidate, seed)
        for candidate, seed in pairs
        if seed not in {score.seed for score in candidate.finals}
    ]
    calls = []
    for candidate, seed in rows:
        weights = weights_path(loop.directory, candidate.files, seed)
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
                    files = rows[index][0].files
                    loop.store.add_file(weights_path(loop.directory, files, own_seeds[index]))
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
