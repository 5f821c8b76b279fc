"""Measured numbers as text, as many digits as say something; and a caller's whole numbers, held against their range."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from syno.errors import SynoError


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


#: What a seed may be, how many threads a call may ask for, and which level of a machine it may name.
MOST_SEED, MOST_THREADS, MOST_LEVELS = 2**62, 1024, 16


def whole(
    where: str,
    name: str,
    value: object,
    least: int,
    most: int,
    error: type[SynoError] | None = None,
) -> int:
    """A caller's number.

    Raises:
        KernelError: it is no whole number, or outside its range; ``error`` instead where it is given.
    """
    from syno.errors import KernelError, shown

    kind = KernelError if error is None else error
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise kind(f"[{where}] {name}={shown(value)} is no whole number") from None
    if not least <= number <= most:
        bound = f"at least {least}" if number < least else f"at most {most}"
        raise kind(f"[{where}] {name}={shown(number)} must be {bound}")
    return number
