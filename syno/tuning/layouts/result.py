"""What a joint search of layouts and loops found, beside a search of loops alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from syno.support.notebook import facts
from syno.support.numbers import significant
from syno.tuning.search import Tuned


@dataclass(frozen=True)
class LaidTuned(Tuned):
    """What both searches found, the better of the two: times hold copies of arguments into their layouts.

    `trials` are those of each of the two; `gap` is best / constructed, `ratio` layouts and loops / loops alone.

    Attributes:
        schedule, origin: the better one's, and where it comes from.
        best_us, constructed_us, counted_us: microseconds of a call: of `schedule`, and of what was constructed and counted for
            the tensors as they lie.
        outcomes: how many trials of both ended how: "ok", or why not.
        seconds: that both took.
        joint_choice: the template's parameters of the best of the joint search, or "as it lies".
    """

    layouts: Mapping[str, str] = field(default_factory=dict)
    """By tensor, of `schedule`, whose decisions `lay_out` come first; empty where loops alone are as fast."""
    choice: str = ""
    """The template's parameters that made them, or empty."""
    joint_us: float = math.inf
    """Of the best of the joint search."""
    joint_choice: str = ""
    loops_us: float = math.inf
    """Of the best of loops alone."""
    ratio: float = 1.0
    """Time of the joint search's best / of loops alone, called in turns; 1 where it found no other layout."""
    joint_trials: int = 0
    """Of the joint search's, those of its joint stage."""
    explored: int = 0
    """Layouts that were measured."""
    proposed: int = 0
    """Layouts that were proposed."""
    loops_curve: tuple[tuple[int, float], ...] = ()
    """`curve` is that of the joint search."""

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data; times in microseconds."""
        own = (
            "choice", "joint_us", "joint_choice", "loops_us", "ratio", "joint_trials", "explored", "proposed",
        )  # fmt: skip
        return {
            **super().to_dict(),
            **{name: getattr(self, name) for name in own},
            "layouts": dict(self.layouts),
            "loops_curve": [list(point) for point in self.loops_curve],
        }

    def _repr_html_(self) -> str:
        return facts(
            {
                "loops alone, µs": significant(self.loops_us),
                "layouts and loops, µs": significant(self.joint_us),
                "the latter / the former, in turns": significant(self.ratio),
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
            f"{self.ratio:.3f} of it in turns; constructed: {significant(self.constructed_us)} us",
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
