"""Into which ranges the sizes of a network are cut: as few as are predicted to lose little time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from syno import _core
from syno.errors import ScheduleError, ShapeError
from syno.kernels.construct import constructed_schedule, for_ranges
from syno.kernels.ranged import Asked
from syno.machines.model import machine_model
from syno.support.together import together

#: Of a network's time, by how much it may be longer at a size than with code for that size alone, by prediction.
LOSS = 0.05

#: A bucket that loses more is as narrow as that its greatest size is so many times its least, or the root of that where it
#: loses less then.
_NARROW = 2

#: Elements of the widest vector: fewer sizes are no bucket of their own, and buckets end where vectors do.
_FEW = 16


def cut(least: int, greatest: int, loss: Callable[[int, int], float]) -> list[tuple[int, int]]:
    """Ranges of one size that hold each of its values once, ascending.

    Args:
        loss: predicted, of the code made for sizes up to the first argument, at the second one.
    """
    found = []
    high = greatest
    while high >= least:
        low = lower = _half(least, high, high)
        lost = loss(high, lower) if lower < high else math.inf
        if LOSS < lost < math.inf:
            nearer = _near(math.isqrt(lower * high), lower, high)
            wide = min(high - nearer, nearer - lower) >= _FEW
            if wide and loss(high, nearer) < lost - LOSS / 2:
                low = nearer
        while lost <= LOSS:
            low = lower
            lower = _half(least, low - 1, high)
            if lower >= low:
                break
            lost = loss(high, lower)
        if low - least < _FEW:
            low = least
        found.append((low, high))
        high = low - 1
    return found[::-1]


def looked_at(least: int, greatest: int) -> list[int]:
    """The sizes at which the loss is asked for where it is little, descending: most cuts ask for few others."""
    found: list[int] = []
    size = _half(least, greatest, greatest)
    while size < (found[-1] if found else greatest):
        found.append(size)
        size = _half(least, size - 1, greatest)
    return found


def _half(least: int, size: int, high: int) -> int:
    """The least size behind half of another one, where whole vectors end."""
    vectors = -(-(size // _NARROW) // _FEW) * _FEW
    return max(least, min((vectors if vectors < size else size // _NARROW) + 1, high))


def _near(size: int, low: int, high: int) -> int:
    """One behind the end of whole vectors, between two sizes."""
    return max(low, min(-(-size // _FEW) * _FEW + 1, high))


class Predicted:
    """Predicted seconds of kernels, for ranges of sizes and for single ones; kept for programs seen before."""

    def __init__(self) -> None:
        self._alone: dict[tuple[object, ...], float] = {}
        self._nests: dict[tuple[object, ...], _core.LoopNest | None] = {}
        self._shared: dict[tuple[object, ...], float] = {}

    def alone(self, program: _core.Program, like: Asked) -> float:
        """Of a kernel for the sizes of a program alone."""
        key = _key(program, like)
        if key not in self._alone:
            schedule = self._schedule(program, like)
            nests = _core.apply_prepacked(program, schedule)
            nest = _core.apply_schedule(program, schedule) if nests is None else nests[1]
            self._alone[key] = _predicted(nest, like)
        return self._alone[key]

    def together(self, wanted: Iterable[tuple[_core.Program, Asked]]) -> None:
        """Predicts what `alone` will be asked for, on as many cores as there are."""
        keyed = {_key(*each): each for each in wanted}
        different = {key: each for key, each in keyed.items() if key not in self._alone}
        if len(different) < 2:
            return
        together(lambda each: self.alone(*each), different.values())

    def shared(self, asked: Asked, sizes: Sequence[int]) -> float | None:
        """Of a kernel for ranges, at sizes within; None where each size has a kernel of its own."""
        key = asked.key()
        if key not in self._nests:
            self._nests[key] = self._nest(asked)
        nest = self._nests[key]
        if nest is None:
            return None
        at = (key, *sizes)  # equal layers are predicted once
        if at not in self._shared:
            self._shared[at] = _predicted(nest.specialised(list(sizes)), asked)
        return self._shared[at]

    def _schedule(self, program: _core.Program, like: Asked) -> _core.Schedule:
        return constructed_schedule(program, like.dtype, like.threads, like.constants)

    def _nest(self, asked: Asked) -> _core.LoopNest | None:
        ends = [(each.name, each.least, each.greatest) for each in asked.ranges]
        given = [(list(sizes), program) for sizes, program in asked.instances]
        try:
            live = _core.with_live_ends(given, [each.name for each in asked.ranges])
            about = asked.dtype, asked.threads, asked.constants
            schedule = self._schedule(for_ranges(asked.instances[0][1], live, ends, *about), asked)
            nests = _core.apply_prepacked(live, schedule, ends)
            return _core.apply_schedule(live, schedule, ends) if nests is None else nests[1]
        except (ShapeError, ScheduleError):
            return None


def _key(program: _core.Program, like: Asked) -> tuple[object, ...]:
    return str(program.text()), tuple(like.constants), like.dtype, like.threads


def _predicted(nest: _core.LoopNest, like: Asked) -> float:
    return float(_core.predict_nest(nest, machine_model(), threads=like.threads).seconds)


__all__ = ["LOSS", "Predicted", "cut", "looked_at"]
