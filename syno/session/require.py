"""What a candidate must keep to be trained at all: hard limits on costs known before training, as text."""

from __future__ import annotations

import re

import msgspec

from syno.errors import BudgetError
from syno.session.config import Prune

#: Fields of `Prune` by the word of the text.
LIMITS = {
    "latency": "max_latency_ratio",
    "flops": "max_flops_ratio",
    "params": "max_params_ratio",
}
_LIMIT = re.compile(r"(\w+)\s*<=\s*(\d+(?:\.\d+)?)\s*x")


def required(text: str, prune: Prune) -> Prune:
    """``"latency<=0.5x"``, ``"latency<=0.8x, flops<=0.5x"``: at most that many times the original's.

    Latency is the whole network's: as predicted before anything is trained, and as measured for finalists. Limits that
    the text does not name stay as ``prune`` has them.

    Raises:
        BudgetError: the text is something else; the message lists the valid words.
    """
    limits: dict[str, float] = {}
    for part in filter(None, (part.strip().lower() for part in text.split(","))):
        found = _LIMIT.fullmatch(part)
        if found is None or found[1] not in LIMITS or float(found[2]) <= 0:
            raise BudgetError(
                f"requirement {part!r} is not understood",
                fix=f"write 'latency<=0.5x'; there are: {', '.join(LIMITS)}",
                code="B003",
            )
        field = LIMITS[found[1]]
        limits[field] = min(float(found[2]), limits.get(field, float("inf")))
    return msgspec.structs.replace(prune, **limits)
