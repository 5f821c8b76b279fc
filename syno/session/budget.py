"""How much a search may spend: time, candidates, or both; always in total over a session's runs."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from syno.errors import BudgetError, KernelError
from syno.support.arguments import check_fields, checked
from syno.support.numbers import MOST_SEED, whole

_UNITS_S = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)")
_COUNT = re.compile(r"(\d+)\s*(candidates?|c)?")


@dataclass(frozen=True)
class Budget:
    """A search ends when any of these is used up. ``None``: no limit.

    Attributes:
        time_s: seconds of searching, trainings of the finalists included. What a time budget finds
            depends on the machine; a budget in candidates repeats.
        candidates: candidates whose training was started (the baseline is not counted).
    """

    time_s: float | None = None
    candidates: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, lambda what, fix: BudgetError(what, fix=fix, code="B001"))
        if self.time_s is None and self.candidates is None:
            raise BudgetError(
                "a budget without limits would never end",
                fix="give time_s, candidates, or both",
                code="B001",
            )
        if self.time_s is not None and not (self.time_s > 0 and math.isfinite(self.time_s)):
            raise BudgetError(f"time_s={self.time_s}", fix="give positive seconds", code="B001")
        if self.candidates is None:
            return
        try:
            whole("budget", "candidates", self.candidates, 1, MOST_SEED)
        except KernelError as error:
            raise BudgetError(
                str(error).removeprefix("[budget] "), fix="give a whole number", code="B001"
            ) from None

    @classmethod
    @checked()
    def parse(cls, text: str | int | float | Budget) -> Budget:
        """``"10min"``, ``"2h"``, ``"90s"``, ``"200 candidates"``, ``"2h,200"``; a plain integer counts candidates.

        Args:
            text: the limits, between commas where there are several (of two of a kind the smaller counts); or a budget.
        Raises:
            BudgetError: the text is none of these.
        """
        if isinstance(text, Budget):
            return text
        if isinstance(text, (bool, float)):
            raise _not_understood(repr(text))
        if isinstance(text, int):
            return cls(candidates=text)
        time_s: float | None = None
        candidates: int | None = None
        for part in text.lower().split(","):
            if found := _TIME.fullmatch(part.strip()):
                seconds = float(found[1]) * _UNITS_S[found[2]]
                time_s = seconds if time_s is None else min(time_s, seconds)
            elif found := _COUNT.fullmatch(part.strip()):
                count = int(found[1])
                candidates = count if candidates is None else min(candidates, count)
            else:
                raise _not_understood(repr(text))
        return cls(time_s, candidates)

    def __str__(self) -> str:
        parts = []
        if self.time_s is not None:
            parts.append(f"{self.time_s:g}s")
        if self.candidates is not None:
            parts.append(f"{self.candidates} candidates")
        return ", ".join(parts)


def parse_seconds(text: str) -> float:
    """``"90s"``, ``"10min"``, ``"2h"`` as seconds; a plain number is seconds.

    Raises:
        BudgetError: the text is no positive time.
    """
    found = _TIME.fullmatch(text.strip().lower())
    try:
        seconds = float(found[1]) * _UNITS_S[found[2]] if found else float(text)
    except ValueError:
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        raise BudgetError(
            f"time {text!r} is not understood", fix="write '90s' or '2h'", code="B002"
        )
    return seconds


def _not_understood(text: str) -> BudgetError:
    return BudgetError(
        f"budget {text} is not understood",
        fix="write '10min', '2h', '90s', '200 candidates', or two of them with a comma",
        code="B002",
    )
