"""What a network's outputs should be, and whether they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from syno.graph.building import Array
from syno.support.notebook import Printed


@dataclass(frozen=True)
class Check(Printed):
    """A compiled network against float64 on an example; true when it passed."""

    passed: bool
    max_rel_err: float
    """The largest |y - reference|, of the largest |reference| of that output."""
    limit: float
    eager_rel_err: float
    """The same of the uncompiled network in its own precision; nan where there is none."""
    output: str
    """Where it is largest."""

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        return (
            f"{'verified' if self.passed else 'WRONG'}: max_rel_err {self.max_rel_err:.1e} in {self.output} (limit "
            f"{self.limit:.1e}; the network as it was: {self.eager_rel_err:.1e})"
        )


@dataclass(frozen=True)
class Expected:
    """What float64 says of one output."""

    name: str
    values: Array
    limit: float
    """Of the difference, as a part of the largest value."""
    eager_rel_err: float


@dataclass(frozen=True)
class Sample:
    """Inputs in order, copies of what was given, and what float64 says of the outputs."""

    inputs: list[Array]
    expected: list[Expected]

    def is_of(self, inputs: Sequence[Array]) -> bool:
        """Whether these are its inputs, to the last bit."""
        return len(inputs) == len(self.inputs) and all(map(same_bytes, inputs, self.inputs))


def same_bytes(one: Array, other: Array) -> bool:
    """Whether two arrays have the same shape, type and bytes."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    a, b = (np.ascontiguousarray(each).reshape(-1).view(np.uint8) for each in (one, other))
    return np.array_equal(a, b)


def judged(expected: Sequence[Expected], outputs: Sequence[Array]) -> Check:
    """The outputs, as many and in the same order, against what they should be."""
    rows = []
    for wanted, array in zip(expected, outputs, strict=True):
        error = relative_error(array, wanted.values)
        rows.append((error <= wanted.limit, error, wanted.limit, wanted.eager_rel_err, wanted.name))
    if not rows:
        return Check(True, 0.0, 0.0, 0.0, "no output that could be compared")
    failed = [row for row in rows if not row[0]]
    return Check(*max(failed or rows, key=lambda row: row[1]))


def relative_error(ours: Any, exact: Any) -> float:
    """The largest difference, of the largest finite exact value; infinite where one is no number and the other is."""
    if exact.size == 0:
        return 0.0
    a, b = ours.astype(np.float64), exact.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    apart = np.abs(a[finite] - b[finite]).max()
    if np.isnan(apart):
        return float("inf")
    scale = np.abs(b[finite]).max()
    return float(apart) / float(scale) if scale > 0 else float(apart)
