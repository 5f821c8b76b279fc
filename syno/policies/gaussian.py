"""Gaussian-process regression over operators: predictions with uncertainty from a few dozen trainings.

Rasmussen and Williams, *Gaussian Processes for Machine Learning* (2006), algorithm 2.1 and §5.4.1. The
covariance of two operators adds what their features say and what their derivations share.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")

Vector: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"
Matrix: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.float64]]"
Rows: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.intp]] | slice"

ALL = slice(None)


def standardized(features: Matrix) -> Matrix:
    """Columns with mean 0 and variance 1, ``[n, F]``; those that are constant are left out."""
    spread = features.std(axis=0)
    varying = spread > 1e-9
    columns: Matrix = (features[:, varying] - features[:, varying].mean(axis=0)) / spread[varying]
    return columns


_computing = threading.RLock()


@functools.cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


def on_one_thread(choose: Callable[P, R]) -> Callable[P, R]:
    """Computes on one thread: matrices are small, where threads that wait for each other cost more than the work; and what
    is chosen is the same on any number of cores."""

    @functools.wraps(choose)
    def alone(*args: P.args, **named: P.kwargs) -> R:
        with _computing, _libraries().limit(limits=1, user_api="blas"):
            return choose(*args, **named)

    return alone


class Covariance(Protocol):
    """Of ``n`` operators, each of which has about 1 with itself. Blocks are made when they are asked for: all ``[n, n]`` of
    it is never needed, and grows with the square of what is looked at."""

    def block(self, rows: Rows, columns: Rows = ALL) -> Matrix:
        """Of the operators ``rows`` with ``columns``, ``[len(rows), len(columns)]``."""
        ...

    def __len__(self) -> int: ...


class SquaredExponential:
    """``exp(-d^2 / (2 length^2))`` of the mean squared difference of the columns of ``features``, ``[n, F]``."""

    def __init__(self, features: Matrix, length: float) -> None:
        self._features, self._squares = features, (features**2).sum(axis=1)
        self._scale = max(1, features.shape[1]) * length**2

    def __len__(self) -> int:
        return len(self._features)

    def block(self, rows: Rows, columns: Rows = ALL) -> Matrix:
        """See :class:`Covariance`."""
        own, other = self._features[rows], self._features[columns]
        sums = self._squares[rows][:, None] + self._squares[columns][None, :]
        kernel: Matrix = np.exp(-0.5 * np.maximum(sums - 2 * own @ other.T, 0.0) / self._scale)
        return kernel


class Tanimoto:
    """Shared steps over all steps of two derivations; positive definite (Gower 1971)."""

    def __init__(self, sets: Sequence[Iterable[str]]) -> None:
        names = sorted({name for each in sets for name in each})
        index = {name: i for i, name in enumerate(names)}
        # Numbers of steps are exact in single precision.
        self._holders = np.zeros((max(1, len(names)), len(sets)), dtype=np.float32)
        for row, each in enumerate(sets):
            for name in each:
                self._holders[index[name], row] = 1.0
        self._sizes = self._holders.sum(axis=0, dtype=np.float64)

    def __len__(self) -> int:
        return len(self._sizes)

    def block(self, rows: Rows, columns: Rows = ALL) -> Matrix:
        """See :class:`Covariance`."""
        shared: Matrix = self._shared(rows, columns).astype(np.float64)
        union = self._sizes[rows][:, None] + self._sizes[columns][None, :] - shared
        similarity: Matrix = np.where(union > 0, shared / np.maximum(union, 1e-12), 1.0)
        return similarity

    def _shared(self, rows: Rows, columns: Rows) -> np.ndarray[Any, np.dtype[np.float32]]:
        own = self._holders[:, rows]
        if own.shape[1] == 1:  # of the few steps that there are in one derivation
            steps = np.flatnonzero(own[:, 0])
            shared: np.ndarray[Any, np.dtype[np.float32]] = self._holders[steps][:, columns].sum(
                axis=0, keepdims=True
            )
            return shared
        made: np.ndarray[Any, np.dtype[np.float32]] = own.T @ self._holders[:, columns]
        return made


@dataclass(frozen=True)
class Mixture:
    """``1 - share`` of one covariance and ``share`` of another."""

    one: Covariance
    other: Covariance
    share: float

    def __len__(self) -> int:
        return len(self.one)

    def block(self, rows: Rows, columns: Rows = ALL) -> Matrix:
        """See :class:`Covariance`."""
        own, other = self.one.block(rows, columns), self.other.block(rows, columns)
        return (1 - self.share) * own + self.share * other


class Surrogate:
    """Regression over a fixed set of operators whose rewards become known one by one.

    The covariance is the best of a few, by the evidence of at most :data:`MOST_ASKED` rewards; so is the noise of one reward.

    Args:
        covariances: of ``n`` operators each, to choose from.
        prior: expected rewards before any is known, ``[n]``, in standard deviations of the rewards.
        noises: variances of a reward's noise to choose from, as shares of the rewards' variance.
    """

    def __init__(
        self,
        covariances: Sequence[Covariance],
        prior: Vector,
        noises: Sequence[float] = (0.03, 0.1, 0.3),
    ) -> None:
        self.covariances = tuple(covariances)
        self.prior = prior
        self.noises = tuple(noises)

    def fit(self, known: Sequence[int], rewards: Sequence[float]) -> Posterior:
        """What the rewards of the operators ``known`` say about all of them; at most about :data:`MOST_KNOWN` of them."""
        rows = np.asarray(known, dtype=np.intp)
        values = np.asarray(rewards, dtype=np.float64)
        spread = float(values.std()) if len(values) > 1 else 0.0
        # Two or three rewards say little of the scale; with one, any scale fits.
        scale = spread if spread > 1e-9 else 1.0
        center = float((values / scale - self.prior[rows]).mean()) if len(values) else 0.0
        target = values / scale - center - self.prior[rows]
        asked = slice(None, None, max(1, math.ceil(len(rows) / MOST_ASKED)))
        some = rows[asked]
        ranked = [
            (_evidence(block, noise, target[asked]), -i, -j)
            for i, block in enumerate(one.block(some, some) for one in self.covariances)
            for j, noise in enumerate(self.noises)
        ]
        _, i, j = max(ranked)
        mean = self.prior + center
        return Posterior(self.covariances[-i], self.noises[-j], mean, rows, target, scale)


@dataclass(frozen=True)
class Posterior:
    """A fitted surrogate: predictions in standard deviations (``scale``) of the rewards."""

    covariance: Covariance
    noise: float
    prior: Vector
    known: np.ndarray[tuple[int], np.dtype[np.intp]]
    target: Vector
    scale: float

    def predict(self) -> tuple[Vector, Vector]:
        """Mean and standard deviation of every operator's noise-free reward, in units of ``scale``."""
        return self.believer().predict()

    def believer(self, awaited: Sequence[int] = ()) -> Believer:
        """This, to be told one after the other of operators that are taken to give what is expected of them; of those
        ``awaited``, from the beginning."""
        return Believer(self, awaited)


class Believer:
    """A posterior that grows by one operator at a time, in the time of one row of it (kriging believer).

    An operator that gives what is expected changes no mean; what is known of those like it, and so their deviation,
    grows.
    """

    def __init__(self, posterior: Posterior, awaited: Sequence[int] = ()) -> None:
        self.scale = posterior.scale
        self._covariance, self._noise = posterior.covariance, posterior.noise
        known, count = len(posterior.known), len(posterior.prior)
        rows = np.concatenate([posterior.known, np.asarray(awaited, dtype=np.intp)])
        self._mean = posterior.prior
        self._variance = np.ones(count)
        self._half = np.zeros((max(8, 2 * len(rows)), count))
        self._rows = len(rows)
        if not len(rows):
            return
        block = self._covariance.block(rows)
        lower = np.linalg.cholesky(block[:, rows] + self._noise * np.eye(len(rows)))
        target = np.zeros(len(rows))
        target[:known] = posterior.target
        both: Matrix = np.concatenate([block, target[:, None]], axis=1)
        solved = _solved(lower, both)
        half = self._half[: len(rows)] = solved[:, :-1]
        # Those awaited come after those known: what is expected follows from these alone.
        self._mean = posterior.prior + half[:known].T @ solved[:known, -1]
        self._variance -= (half**2).sum(axis=0)

    def predict(self) -> tuple[Vector, Vector]:
        """As :meth:`Posterior.predict`."""
        return self._mean, np.sqrt(np.maximum(self._variance, 1e-12))

    def believe(self, operator: int) -> None:
        """As if ``operator`` had been trained and gave what is expected."""
        if self._rows == len(self._half):
            self._half = np.concatenate([self._half, np.zeros_like(self._half)])
        half = self._half[: self._rows]
        column = half[:, operator]
        own = self._covariance.block(np.array([operator]))[0]
        left = own - column @ half
        pivot = own[operator] + self._noise - column @ column
        row = left / np.sqrt(max(float(pivot), 1e-12))
        self._half[self._rows] = row
        self._rows += 1
        self._variance = self._variance - row**2


#: Trainings that a surrogate is fitted to: its time grows with their third power.
MOST_KNOWN = 400

#: Of them those, evenly among them, that are asked which covariance and noise fit.
MOST_ASKED = 200


def telling(rewards: Sequence[float], most: int = MOST_KNOWN) -> list[int]:
    """Which of many trainings, in the order told, a surrogate is fitted to: a quarter of ``most`` are the best, a quarter
    the newest, and the rest lie evenly among all others. All of them where there are no more."""
    count = len(rewards)
    if count <= most:
        return list(range(count))
    best = sorted(range(count), key=lambda i: (-rewards[i], i))[: most // 4]
    chosen = {*best, *range(count - most // 4, count)}
    others = [i for i in range(count) if i not in chosen]
    left = most - len(chosen)
    chosen |= {others[i * len(others) // left] for i in range(left)}
    return sorted(chosen)


_BLOCK = 256


def _solved(lower: np.ndarray[Any, Any], right: Matrix) -> Matrix:
    """Of a lower triangular system, by blocks: half the work of a general one."""
    solved = np.empty_like(right)
    for begin in range(0, len(lower), _BLOCK):
        rows = slice(begin, begin + _BLOCK)
        rest = right[rows] - lower[rows, :begin] @ solved[:begin]
        solved[rows] = np.linalg.solve(lower[rows, rows], rest)
    return solved


def _evidence(covariance: Matrix, noise: float, target: Vector) -> float:
    """Log marginal likelihood without its constant."""
    if not len(target):
        return 0.0
    count = len(target)
    # The last row of the factor of a system that the target borders is what solving for it gives; its corner is large
    # enough for the whole to stay positive definite, as no eigenvalue is below the noise.
    bordered = np.empty((count + 1, count + 1))
    bordered[:count, :count] = covariance + noise * np.eye(count)
    bordered[count, :count] = bordered[:count, count] = target
    bordered[count, count] = 1.0 + 2.0 * float(target @ target) / noise
    factor = np.linalg.cholesky(bordered)
    lower, half = factor[:count, :count], factor[count, :count]
    return float(-0.5 * half @ half - np.log(np.diag(lower)).sum())


__all__ = [
    "MOST_KNOWN",
    "Believer",
    "Covariance",
    "Mixture",
    "Posterior",
    "SquaredExponential",
    "Surrogate",
    "Tanimoto",
    "standardized",
    "telling",
]
