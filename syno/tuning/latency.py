"""What an operator costs on this machine, known in a fraction of a second: predicted, or from its real kernels.

A search asks this of every candidate before it trains any: each distinct valuation is constructed,
compiled, verified and timed once, as the kernel that `syno.compile` makes of it alone: with the schedule of
another valuation some would be slower (`benchmarks/reuse.py candidates`).
"""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from syno.errors import ShapeError
from syno.support.arguments import checked
from syno.support.notebook import table
from syno.support.numbers import MOST_THREADS, significant, whole
from syno.tuning.predict import predict

if TYPE_CHECKING:
    from syno.operators.operator import Operator
    from syno.timing.bench import Timing

#: Passes of measurements at most, and what they may differ by.
_PASSES, _AGREE = 4, 0.1


@dataclass(frozen=True)
class ValuationLatency:
    """One distinct valuation: time of one call in microseconds, and how many valuations are equal to it."""

    shapes: dict[str, tuple[int, ...]]
    count: int
    predicted_us: float
    us: float | None
    """None where only the prediction was asked for."""
    iqr_us: float | None
    max_rel_err: float | None


_COLUMNS = ("shapes", "equal", "us", "IQR us", "predicted us", "max_rel_err")


@dataclass(frozen=True)
class OperatorLatency:
    """An operator's valuations together; `seconds` is what finding it out took."""

    valuations: tuple[ValuationLatency, ...]
    threads: int
    seconds: float

    @property
    def predicted_us(self) -> float:
        """Of one call at every valuation, by the machine model."""
        return sum(v.count * v.predicted_us for v in self.valuations)

    @property
    def us(self) -> float | None:
        """Of one call at every valuation, measured."""
        if any(v.us is None for v in self.valuations):
            return None
        return sum(v.count * (v.us or 0.0) for v in self.valuations)

    def rows(self) -> list[tuple[str, ...]]:
        """Of each distinct valuation: shapes, how many are equal, times and error."""

        def us(value: float | None) -> str:
            return "-" if value is None else significant(value)

        return [
            (
                ", ".join(f"{name} {list(shape)}" for name, shape in v.shapes.items()),
                str(v.count),
                us(v.us),
                us(v.iqr_us),
                us(v.predicted_us),
                "-" if v.max_rel_err is None else f"{v.max_rel_err:.1e}",
            )
            for v in self.valuations
        ]

    def __str__(self) -> str:
        rows = [_COLUMNS, *self.rows()]
        widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
        lines = [
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
        ]
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        measured = "" if self.us is None else f"{significant(self.us)} us measured, "
        return "\n".join(
            [*lines, f"together {measured}{significant(self.predicted_us)} us predicted; {threads}"]
        )

    def _repr_html_(self) -> str:
        return table(_COLUMNS, self.rows()) + f"<p>{html.escape(str(self).splitlines()[-1])}</p>"


def distinct(operators: Sequence[Operator]) -> list[tuple[Operator, int]]:
    """Operators of different programs, each with how often it is there; in order of appearance."""
    found: dict[str, tuple[Operator, int]] = {}
    for operator in operators:
        text = str(operator.program.text())
        first, count = found.get(text, (operator, 0))
        found[text] = (first, count + 1)
    return list(found.values())


def _valuations(operator: Operator) -> list[tuple[Operator, int]]:
    """The operator at its different valuations, each with how often it is there."""
    found: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for i, values in enumerate(operator.valuations):
        found.setdefault(tuple(sorted(values.items())), []).append(i)
    return [(operator.at(places[0]), len(places)) for places in found.values()]


@checked(but=("batch", "threads", "turns"))
def latency(
    operator: Operator | Sequence[Operator],
    *,
    batch: int | None = None,
    threads: int = 1,
    measured: bool = True,
    turns: int = 5,
) -> OperatorLatency:
    """Latency of an operator at each of its valuations.

    Args:
        operator: one with valuations, or concrete ones.
        batch: extent of the first dimension of the data, where it is another than the valuations'.
        threads: of a call (of the kernels that gain by them), of the compilations and the predictions.
        measured: compile, verify and time the kernels; else only predict, in milliseconds.
        turns: samples of each kernel's time in a pass; at least two passes, which have to agree.
    Raises:
        ShapeError: there is no operator, or it cannot have this batch.
        KernelError: a kernel computes something else than its operator.
    """
    start = time.perf_counter()
    given = _valuations(operator) if not isinstance(operator, Sequence) else distinct(operator)
    if not given:
        raise ShapeError("[latency] there is no operator to time")
    threads = whole("latency", "threads", threads, 1, MOST_THREADS)
    rows = given
    if batch is not None:
        rows = [(_at_batch(each, batch), count) for each, count in given]
    with ThreadPoolExecutor(max_workers=threads) as pool:
        guesses = pool.map(lambda row: predict(row[0], threads=threads), rows)
        predicted = [1e6 * guess.seconds for guess in guesses]
    times: list[tuple[float, float, float] | None] = [None] * len(rows)
    if measured:
        times = list(_times([each for each, _ in rows], threads, turns))
    valuations = tuple(
        ValuationLatency(
            shapes=dict(each.shapes),
            count=count,
            predicted_us=guess,
            us=found[0] if found else None,
            iqr_us=found[1] if found else None,
            max_rel_err=found[2] if found else None,
        )
        for (each, count), guess, found in zip(rows, predicted, times, strict=True)
    )
    return OperatorLatency(valuations, threads, time.perf_counter() - start)


def _at_batch(operator: Operator, batch: int) -> Operator:
    name = operator.data[0]
    shape = operator.shapes[name]
    return operator.for_shapes(
        {
            name: (batch, *shape[1:]),
            **{out: (batch, *operator.shapes[out][1:]) for out in operator.outputs},
        }
    )


def _times(
    operators: Sequence[Operator], threads: int, turns: int
) -> list[tuple[float, float, float]]:
    """Median and interquartile range in microseconds, and error, of each; all take turns."""
    from syno.kernels.kernel import compile
    from syno.timing.bench import measure

    with ThreadPoolExecutor(max_workers=threads) as pool:
        kernels = list(pool.map(lambda each: compile(each, threads=threads), operators))
    calls = {}
    rng = np.random.default_rng(0)
    held = []
    for i, kernel in enumerate(kernels):
        names = (*kernel.operator.inputs, *kernel.operator.outputs)
        arrays = [rng.random(kernel.shapes[name], dtype=np.float32) for name in names]
        held.append(arrays)
        pointers = [array.ctypes.data for array in arrays]
        calls[str(i)] = lambda k=kernel, p=pointers: k.call_pointers(p, k.runs_on)
    timings = _undisturbed(
        lambda: measure(calls, turns=turns, min_sample_s=5e-4, threads=threads, one_pool=True)
    )
    return [
        (t.median_us, t.iqr_us, k.verification.max_rel_err if k.verification else float("nan"))
        for t, k in zip(timings, kernels, strict=True)
    ]


def _undisturbed(take: Callable[[], list[Timing]]) -> list[Timing]:
    """Of each function, the least median of passes that are repeated until two agree.

    A pass takes so little time that another process may be busy over all of it, and a kernel of several
    threads then waits for one of them: several times as long.
    """
    least = take()
    for _ in range(_PASSES - 1):
        again = take()
        agree = all(
            abs(a.median_us - b.median_us) <= _AGREE * b.median_us
            for a, b in zip(again, least, strict=True)
        )
        least = [
            min(pair, key=lambda timing: timing.median_us)
            for pair in zip(least, again, strict=True)
        ]
        if agree:
            break
    return least
