"""Which of very many candidates a report lists: all that matters for its conclusions, and an even sample of the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from syno.session.records import Candidate

#: Candidates that a report lists; of more, a sample.
MOST_LISTED = 500

#: Of a sample: those with the greatest rewards.
BEST_LISTED = 100

#: Ids that one sentence names.
MOST_NAMED = 20


def listed(
    candidates: Sequence[Candidate], chosen: Collection[str], most: int = MOST_LISTED
) -> list[Candidate]:
    """All of few. Of many: those that are ``chosen`` by id, finalists, known operators, the best by reward, and of the others
    as many as there is room for, spread evenly over the search; in their order."""
    if len(candidates) <= most:
        return list(candidates)
    ranked = sorted(candidates, key=lambda c: (-(c.reward or 0.0), c.number))
    best = {c.number for c in ranked[:BEST_LISTED]}
    kept = {
        c.number for c in candidates if c.id in chosen or c.finals or c.known or c.number in best
    }
    others = [c.number for c in candidates if c.number not in kept]
    room = max(0, min(most - len(kept), len(others)))
    kept |= {others[place * len(others) // room] for place in range(room)}
    return [c for c in candidates if c.number in kept]


def named(ids: Sequence[str]) -> str:
    """Ids in a sentence; of many the first ones."""
    more = len(ids) - MOST_NAMED
    return ", ".join(ids[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
