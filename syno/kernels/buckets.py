"""Which sizes share one machine code, and what it is made for: as few buckets as are predicted to lose little time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from syno import _core
from syno.errors import ScheduleError
from syno.kernels.construct import choose_schedule, construct, for_ranges
from syno.kernels.families import VECTOR, Family, Sizes
from syno.machines.model import machine_model
from syno.operators.operator import Operator
from syno.support.notebook import Printed

#: By how much the time predicted for a bucket's code may exceed that of code for one size alone.
LOSS = 0.05

#: Buckets that no other one would divide further: their sizes differ by less than this part.
NARROW = 0.25

#: Seconds that a kernel is predicted to take at least, so that times can be divided by.
_LEAST_S = 1e-12


@dataclass(frozen=True)
class Bucket(Printed):
    """Sizes that one machine code computes."""

    least: Sizes
    greatest: Sizes
    predicted_loss: float
    """Of time at its sizes against code for each alone, as far as sizes were tried."""

    def holds(self, sizes: Sizes) -> bool:
        return all(
            low <= size <= high
            for low, size, high in zip(self.least, sizes, self.greatest, strict=True)
        )

    def __str__(self) -> str:
        ranges = ", ".join(
            f"{low}-{high}" for low, high in zip(self.least, self.greatest, strict=True)
        )
        return f"{ranges} (predicted loss {100 * self.predicted_loss:.0f} %)"


@dataclass(frozen=True)
class Plan:
    """What the code of a bucket is made for."""

    extents: Sizes
    """The greatest that it holds."""
    like: Sizes
    """Those whose schedule it has."""
    loss: float
    """How much longer than kernels for one size it is predicted to take at worst."""


class Plans:
    """What the code of buckets is made for, by prediction: nothing is compiled."""

    def __init__(self, family: Family, *, dtype: str, threads: int) -> None:
        self._family, self._dtype, self._threads = family, dtype, threads
        self._plans: dict[tuple[Sizes, Sizes], Plan] = {}
        self._alone: dict[Sizes, float] = {}

    def of(self, bucket: Bucket) -> Plan:
        """What the code of a bucket is made for.

        That is whole vectors; where they lose, perhaps the greatest sizes as they are, along another loop; or whole vectors with
        the schedule of sizes that leave a rest everywhere; or, where it will not be cut, of one it is compared at: 511 columns
        are summed in smaller steps than 512, and what is left of 417 is less of one.
        """
        key = bucket.least, bucket.greatest
        found = self._plans.get(key)
        if found is None:
            whole = self._family.representative(bucket.greatest)
            found = self._planned(whole, whole, bucket)
            ends = zip(bucket.least, bucket.greatest, strict=True)
            rest = tuple(max(low, high - (high % 2 == 0)) for low, high in ends)
            others = [bucket.greatest, rest, *(tried_in(bucket) if _is_narrow(bucket) else ())]
            for like in dict.fromkeys(others):
                if found.loss <= LOSS:
                    break
                if like != whole:
                    found = self._better(found, like, bucket)
            self._plans[key] = found
        return found

    def _better(self, found: Plan, like: Sizes, bucket: Bucket) -> Plan:
        """What was found, or the same with the schedule of other sizes where that loses less, by more than predictions are
        wrong by."""
        extents = like if like == bucket.greatest else self._family.representative(bucket.greatest)
        enough = max(LOSS, found.loss - LOSS)
        try:
            other = self._planned(extents, like, bucket, enough)
        except ScheduleError:  # a tile that these extents cannot have
            return found
        return other if other.loss <= enough else found

    def _planned(
        self, extents: Sizes, like: Sizes, bucket: Bucket, enough: float = math.inf
    ) -> Plan:
        plan = Plan(extents, like, 0.0)
        schedule = choose_schedule(
            self.scheduled(plan, bucket).program,
            self._dtype,
            self._threads,
            None,
            made_for="predictions",  # of which nobody has seen the code
        ).schedule
        nest = self.nest_of(plan, bucket)(schedule)
        return Plan(extents, like, self._loss(nest, bucket, enough))

    def scheduled(self, plan: Plan, bucket: Bucket) -> Operator:
        """The program whose schedule it is."""
        live = self._family.program(bucket.least, plan.extents)
        like = self._family.at(plan.like).program
        return Operator(for_ranges(like, live, self._ends(bucket), self._dtype, self._threads))

    def nest_of(self, plan: Plan, bucket: Bucket) -> Callable[[_core.Schedule], _core.LoopNest]:
        live = self._family.program(bucket.least, plan.extents)
        return lambda schedule: _core.apply_schedule(live, schedule, self._ends(bucket))

    def _ends(self, bucket: Bucket) -> list[tuple[str, int, int]]:
        return list(zip(self._family.names, bucket.least, bucket.greatest, strict=True))

    def _loss(self, nest: _core.LoopNest, bucket: Bucket, enough: float = math.inf) -> float:
        """Predicted, at worst, as far as it matters: more than enough is enough."""
        machine = machine_model()
        worst = 0.0
        for tried in tried_in(bucket):
            seconds = _core.predict_nest(nest.specialised(list(tried)), machine, threads=1).seconds
            worst = max(worst, seconds / self._predicted_alone(tried) - 1)
            if worst > enough:
                break
        return worst

    def _predicted_alone(self, sizes: Sizes) -> float:
        """Seconds of a kernel for these sizes alone."""
        if sizes not in self._alone:
            own = self._family.at(sizes)
            schedule = construct(
                own, dtype=self._dtype, threads=self._threads, explain=False
            ).schedule
            nest = _core.apply_schedule(own.program, schedule)
            self._alone[sizes] = _core.predict_nest(nest, machine_model(), threads=1).seconds
        return max(self._alone[sizes], _LEAST_S)

    def cut(self, bucket: Bucket) -> Iterator[Bucket]:
        """Buckets of which the code loses little at all of their sizes, by prediction."""
        loss = self.of(bucket).loss
        if loss <= LOSS:
            yield Bucket(bucket.least, bucket.greatest, loss)
        elif _is_narrow(bucket):
            whole = Bucket(bucket.least, bucket.greatest, loss)
            yield from self._vectors_apart(bucket, loss) or [whole]
        else:
            low, high = _ends(bucket)
            middle = _near_vectors(math.isqrt(low * high), low, high - 1)
            for ends in ((low, middle), (middle + 1, high)):
                yield from self.cut(_between(bucket, *ends))

    def _vectors_apart(self, bucket: Bucket, loss: float) -> list[Bucket]:
        """The buckets around a size of many whole vectors, such as 256, and that of its own, where it is what loses: sums of 256
        columns leave nothing over, those of 255 and 257 do. Else none."""
        low, high = _ends(bucket)
        size = 1 << (high.bit_length() - 1)
        if low == high or size < max(low, VECTOR):
            return []
        found = []
        for ends in ((low, size - 1), (size, size), (size + 1, high)):
            if ends[0] <= ends[1]:
                part = _between(bucket, *ends)
                found.append(Bucket(part.least, part.greatest, self.of(part).loss))
        enough = max(LOSS, loss - LOSS)
        return found if all(each.predicted_loss <= enough for each in found) else []


def _widest(bucket: Bucket) -> int:
    return max(range(len(bucket.least)), key=lambda p: bucket.greatest[p] / bucket.least[p])


def _ends(bucket: Bucket) -> tuple[int, int]:
    """Of the size that differs most."""
    widest = _widest(bucket)
    return bucket.least[widest], bucket.greatest[widest]


def _between(bucket: Bucket, low: int, high: int) -> Bucket:
    """The same for a part of that size."""
    widest = _widest(bucket)
    least, greatest = list(bucket.least), list(bucket.greatest)
    least[widest], greatest[widest] = low, high
    return Bucket(tuple(least), tuple(greatest), 0.0)


def _is_narrow(bucket: Bucket) -> bool:
    """Whether it is not cut, whatever it loses."""
    low, high = _ends(bucket)
    return high - low < max(2, NARROW * high)


def tried_in(bucket: Bucket) -> list[Sizes]:
    """Sizes at which a bucket's code is compared with code for them alone: both ends, those between, and whole vectors,
    which have other code alone."""
    between = [(low + high) // 2 for low, high in zip(bucket.least, bucket.greatest, strict=True)]
    found = [bucket.least, tuple(between), bucket.greatest]
    for position, (low, high) in enumerate(zip(bucket.least, bucket.greatest, strict=True)):
        size = VECTOR
        while size < high:
            if size > low:
                found.append((*between[:position], size, *between[position + 1 :]))
            size *= 2
    return list(dict.fromkeys(found))


def _near_vectors(size: int, low: int, high: int) -> int:
    """A size from low to high, whole vectors where there are such: code for one more computes another vector."""
    for vector in (VECTOR, VECTOR // 2, VECTOR // 4):
        near = max(1, round(size / vector)) * vector
        if low <= near <= high:
            return near
    return min(max(size, low), high)


__all__ = ["LOSS", "NARROW", "Bucket", "Plan", "Plans", "tried_in"]
