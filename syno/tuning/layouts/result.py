"""What a joint search of layouts and loops found, beside a search of loops alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syno import _core
from syno.support.notebook import facts
from syno.support.numbers import significant


@dataclass(frozen=True)
class LaidTuned:
    """What both searches found. Times are microseconds of one call, copies of arguments into their layouts included."""

    schedule: _core.Schedule
    """The better of the two: decisions `lay_out` come first."""
    best_us: float
    layouts: Mapping[str, str]
    """By tensor, of `schedule`; empty where loops alone are as fast."""
    choice: str
    """The template's parameters that made them, or empty."""
    joint_us: float
    """Of the best of the joint search."""
    joint_choice: str
    loops_us: float
    """Of the best of loops alone."""
    constructed_us: float
    gap: float
    """Time of the joint search's best / of loops alone, called in turns; 1 where the joint search found no other layout."""
    trials: int
    """Of each of the two searches."""
    joint_trials: int
    """Of the joint search's, those of its joint stage."""
    explored: int
    """Layouts that were measured."""
    proposed: int
    """Layouts that were proposed."""
    measured: int
    """Trials of this call; the others were on record, or of both searches."""
    outcomes: dict[str, int]
    rank_correlation: float
    seconds: float
    curve: tuple[tuple[int, float], ...] = ()
    """(trial, best microseconds so far) of the joint search."""
    loops_curve: tuple[tuple[int, float], ...] = ()
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        made = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **made,
            "schedule": str(self.schedule.text()),
            "layouts": dict(self.layouts),
            "outcomes": dict(self.outcomes),
            "curve": [list(point) for point in self.curve],
            "loops_curve": [list(point) for point in self.loops_curve],
        }

    def _repr_html_(self) -> str:
        return facts(
            {
                "loops alone, µs": significant(self.loops_us),
                "layouts and loops, µs": significant(self.joint_us),
                "the latter / the former, in turns": significant(self.gap),
                "constructed, µs": significant(self.constructed_us),
                "choice": self.choice or "as it lies",
                "layouts": "; ".join(f"{name}: {text}" for name, text in self.layouts.items()),
                "layouts measured, proposed": f"{self.explored}, {self.proposed}",
                "trials": f"{self.trials} each, {self.measured} measured in {self.seconds:.1f} s",
                "disturbed": self.note,
            }
        )

    def __str__(self) -> str:
        bad = ", ".join(f"{n} {name}" for name, n in sorted(self.outcomes.items()) if name != "ok")
        lines = [
            f"loops alone: {significant(self.loops_us)} us; layouts and loops: {significant(self.joint_us)} us, "
            f"{self.gap:.3f} of it in turns; constructed: {significant(self.constructed_us)} us",
            f"  {self.trials} trials each, {self.joint_trials} of the joint stage; {self.explored} layouts measured of "
            f"{self.proposed} proposed; {self.measured} trials measured in {self.seconds:.1f} s"
            + (f"; {bad}" if bad else "")
            + (f"; {self.note}" if self.note else ""),
        ]
        if self.layouts:
            lines.append(f"  {self.choice}")
            lines += [f"    {name}: {text}" for name, text in self.layouts.items()]
        else:
            lines.append("  tensors stay as they lie")
        return "\n".join(lines)
