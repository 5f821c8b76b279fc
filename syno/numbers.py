"""Measured numbers as text: as many digits as say something, however small the number."""

from __future__ import annotations

import math


def significant(value: float, digits: int = 3) -> str:
    """``value`` with at least ``digits`` significant digits, no exponent between 1e-9 and 1e15.

    0.0312 for 0.03124, 12.3 for 12.34, 1,235 for 1234.6: what stands before the point is never rounded.
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    power = math.floor(math.log10(abs(value)))
    if not -9 <= power < 15:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - power)}f}"
