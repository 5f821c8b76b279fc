"""Which derived programs are compiled, in what order."""

from __future__ import annotations

import math

from syno.deriving.derivations import Derived
from syno.deriving.judge import Judge
from syno.errors import SynoError
from syno.kernels.prepack import PrepackedKernel

#: Programs compiled for each that is asked for, where others prove too inaccurate.
_TRIES = 4
#: Programs predicted to take longer than so many times the best accurate one are not measured.
HOPELESS = 1.5
#: Programs of so nearly the same roughness round alike.
_ALIKE = 1.05
#: Errors expected to be so many times what is allowed may still turn out to be less: of those that round alike, of others.
_HOPED_FOR = (1.1, 2.0)


class Trial:
    """Which programs are compiled, in what order, until enough of them are accurate.

    Args:
        judge: measures the errors of a kernel.
        original: what programs are compared with; compiled first.
        measure: accurate programs that are wanted.
        max_rel_err: that is allowed; twice the original's always is.
        hopeless: programs predicted to take longer than so many times the original's time are not compiled.
    """

    def __init__(
        self, judge: Judge, original: Derived, measure: int, max_rel_err: float, hopeless: float
    ) -> None:
        self.tries = -1  # the original is none of those asked for
        self.accurate = 0
        self._judge, self._original, self._measure = judge, original, measure
        self._max_rel_err, self._hopeless = max_rel_err, hopeless
        self._fastest = math.inf  # predicted, of those found accurate
        self._errors: list[tuple[float, float]] = []  # roughness and error of those compared

    def next(self, waiting: list[Derived]) -> list[Derived]:
        """Takes those that are compiled next from the front of `waiting`; none: it is enough."""
        batch = [waiting.pop(0)] if self.tries < 0 else []
        wanted = min(self._measure - self.accurate, _TRIES * self._measure - max(self.tries, 0))
        wanted += len(batch)
        before = self._original.predicted_us or math.inf
        later = []
        while waiting and len(batch) < wanted:
            one = waiting.pop(0)
            limit = min(HOPELESS * min(self._fastest, before), self._hopeless * before)
            known = self._nearest(one)
            alike = known is not None and _alike(known[0], one)
            hoped_for = _HOPED_FOR[0 if alike else 1] * self._allowed
            if (one.predicted_us or 0.0) > limit:
                waiting.clear()
            elif known and known[1] * one.roughness > hoped_for * known[0]:
                one.note = "rounds like one that is too inaccurate"
            elif not alike and any(_alike(o.roughness, one) for o in batch if not o.exact):
                later.append(one)  # the other one tells whether it is worth a try
            else:
                batch.append(one)
        waiting[:0] = later
        return batch

    @property
    def _allowed(self) -> float:
        return max(self._max_rel_err, 2 * (self._original.max_rel_err or 0.0))

    def _nearest(self, one: Derived) -> tuple[float, float] | None:
        """Roughness and error of the program compared that rounds most like one; None for exact ones, and before any is."""
        if one.exact:
            return None
        return min(
            self._errors, key=lambda known: abs(math.log(known[0] / one.roughness)), default=None
        )

    def failed(self, one: Derived, error: SynoError) -> None:
        """There is no kernel of a program.

        Args:
            one: of those that `next` gave.
            error: why.
        """
        self.tries += 1
        one.note = f"no kernel: {error}"

    def compared(self, one: Derived, kernel: PrepackedKernel) -> bool:
        """Measures the errors of a program; whether there are any.

        Args:
            one: of those that `next` gave.
            kernel: its own.
        """
        try:
            one.errors = self._judge.errors(kernel)
        except SynoError as error:
            self.failed(one, error)
            return False
        self.tries += 1
        if one is self._original:
            return True
        error_of = one.max_rel_err or 0.0
        if not one.exact:
            self._errors.append((one.roughness, error_of))
        if error_of <= self._allowed:
            self.accurate += 1
            self._fastest = min(self._fastest, one.predicted_us or 0.0)
        else:
            one.note = f"error {error_of:.2e} above {self._allowed:.2e}"
        return True


def _alike(roughness: float, one: Derived) -> bool:
    return max(roughness, one.roughness) <= _ALIKE * min(roughness, one.roughness)
