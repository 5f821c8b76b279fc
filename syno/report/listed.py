"""Which of very many candidates a report lists: all that matters for its conclusions, and an even sample of the others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from syno.session.view import SessionView

#: Candidates that a report lists; of more, a sample.
MOST_LISTED = 500

#: Of a sample: those with the greatest rewards.
BEST_LISTED = 100

#: Ids that one sentence names.
MOST_NAMED = 20


def by_reward(numbers: Any, rewards: Any) -> Any:
    """Places of candidates in the order of their rewards, the greatest first, and of their numbers among equal ones."""
    return np.lexsort((numbers, -rewards))


def listed(
    numbers: Any,
    rewards: Any,
    chosen: Collection[int],
    most: int = MOST_LISTED,
    best: int = BEST_LISTED,
) -> list[int]:
    """All of few candidates. Of many: those that are ``chosen``, the best by reward, and of the others as many as there is
    room for, spread evenly over the search.

    Args:
        numbers, rewards: of all candidates, arrays in the order of their numbers.
        chosen: numbers of those that are listed in any case.
        most: more than these are many.
        best: so many of the best are listed.
    Returns:
        Numbers, in their order.
    """
    if len(numbers) <= most:
        return [int(number) for number in numbers]
    kept = np.isin(numbers, list(chosen))
    kept[by_reward(numbers, rewards)[:best]] = True
    others = np.flatnonzero(~kept)
    room = max(0, min(most - int(kept.sum()), len(others)))
    kept[[others[place * len(others) // room] for place in range(room)]] = True
    return [int(number) for number in numbers[kept]]


def of_interest(view: SessionView, leading: Collection[str]) -> set[int]:
    """Numbers of candidates that are listed in any case: those ``leading`` by id, finalists, and known operators."""
    found = {int(id.removeprefix("c")) for id in leading if id not in ("", "baseline")}
    again = set(view.overview().finals)
    return found | again | {number for number, _ in view.known_numbers()}


def left_out(shown: int, count: int) -> str:
    """That not all of ``count`` candidates are listed, in a sentence; empty where all are."""
    if shown == count:
        return ""
    return (
        f"{shown:,} of {count:,} candidates are listed: the fronts, finalists, known operators, those with the "
        f"greatest rewards, and of the others every {count / shown:.0f}th or so, evenly over the search. "
        "syno.session.open_view(…).to_dataframe() has all."
    )


def named(ids: Sequence[str]) -> str:
    """Ids in a sentence; of many the first ones."""
    more = len(ids) - MOST_NAMED
    return ", ".join(ids[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
