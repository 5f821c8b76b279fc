"""Gaussian-process regression over operators: predictions with uncertainty from a few dozen trainings.

Rasmussen and Williams, *Gaussian Processes for Machine Learning* (2006), algorithm 2.1 and §5.4.1. The
covariance of two operators adds what their features say and what their derivations share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Vector: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.float64]]"
Matrix: TypeAlias = "np.ndarray[tuple[int, int], np.dtype[np.float64]]"


def standardized(features: Matrix) -> Matrix:
    """Columns with mean 0 and variance 1, ``[n, F]``; those that are constant are left out."""
    spread = features.std(axis=0)
    varying = spread > 1e-9
    columns: Matrix = (features[:, varying] - features[:, varying].mean(axis=0)) / spread[varying]
    return columns


def squared_exponential(features: Matrix, length: float) -> Matrix:
    """``exp(-d^2 / (2 length^2))`` of the mean squared difference of the columns, ``[n, n]``."""
    squares = (features**2).sum(axis=1)
    distances = squares[:, None] + squares[None, :] - 2 * features @ features.T
    count = max(1, features.shape[1])
    kernel: Matrix = np.exp(-0.5 * np.maximum(distances, 0.0) / (count * length**2))
    return kernel


def tanimoto(sets: Sequence[Iterable[str]]) -> Matrix:
    """Shared steps over all steps of two derivations, ``[n, n]``; positive definite (Gower 1971)."""
    names = sorted({name for each in sets for name in each})
    index = {name: i for i, name in enumerate(names)}
    member = np.zeros((len(sets), max(1, len(names))))
    for row, each in enumerate(sets):
        for name in each:
            member[row, index[name]] = 1.0
    shared = member @ member.T
    sizes = member.sum(axis=1)
    union = sizes[:, None] + sizes[None, :] - shared
    similarity: Matrix = np.where(union > 0, shared / np.maximum(union, 1e-12), 1.0)
    return similarity


class Surrogate:
    """Regression over a fixed set of operators whose rewards become known one by one.

    The covariance is the best of a few, by their evidence; so is the noise of one reward.

    Args:
        covariances: ``[n, n]`` each, with a diagonal of about 1, to choose from.
        prior: expected rewards before any is known, ``[n]``, in standard deviations of the rewards.
        noises: variances of a reward's noise to choose from, as shares of the rewards' variance.
    """

    def __init__(
        self,
        covariances: Sequence[Matrix],
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
        ranked = [
            (_evidence(covariance[np.ix_(rows, rows)], noise, target), -i, -j)
            for i, covariance in enumerate(self.covariances)
            for j, noise in enumerate(self.noises)
        ]
        _, i, j = max(ranked)
        mean = self.prior + center
        return Posterior(self.covariances[-i], self.noises[-j], mean, rows, target, scale)


@dataclass(frozen=True)
class Posterior:
    """A fitted surrogate: predictions in standard deviations (``scale``) of the rewards."""

    covariance: Matrix
    noise: float
    prior: Vector
    known: np.ndarray[tuple[int], np.dtype[np.intp]]
    target: Vector
    scale: float

    def predict(self) -> tuple[Vector, Vector]:
        """Mean and standard deviation of every operator's noise-free reward, in units of ``scale``."""
        return self.believer().predict()

    def believer(self) -> Believer:
        """This, to be told one after the other of operators that are taken to give what is expected of them."""
        return Believer(self)


class Believer:
    """A posterior that grows by one operator at a time, in the time of one row of it (kriging believer).

    An operator that gives what is expected changes no mean; what is known of those like it, and so their deviation,
    grows.
    """

    def __init__(self, posterior: Posterior) -> None:
        self.scale = posterior.scale
        self._covariance, self._noise = posterior.covariance, posterior.noise
        rows, count = posterior.known, len(posterior.prior)
        self._mean = posterior.prior
        self._variance = np.diag(posterior.covariance).copy()
        self._half = np.zeros((max(8, 2 * len(rows)), count))
        self._rows = len(rows)
        if not len(rows):
            return
        lower = np.linalg.cholesky(
            self._covariance[np.ix_(rows, rows)] + self._noise * np.eye(len(rows))
        )
        both = np.column_stack([self._covariance[rows], posterior.target])
        solved = np.linalg.solve(lower, both)
        half = self._half[: len(rows)] = solved[:, :-1]
        self._mean = posterior.prior + half.T @ solved[:, -1]
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
        left = self._covariance[operator] - column @ half
        pivot = self._covariance[operator, operator] + self._noise - column @ column
        row = left / np.sqrt(max(float(pivot), 1e-12))
        self._half[self._rows] = row
        self._rows += 1
        self._variance = self._variance - row**2


#: Trainings that a surrogate is fitted to: its time grows with their third power.
MOST_KNOWN = 400


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


def _evidence(covariance: Matrix, noise: float, target: Vector) -> float:
    """Log marginal likelihood without its constant."""
    if not len(target):
        return 0.0
    lower = np.linalg.cholesky(covariance + noise * np.eye(len(target)))
    half = np.linalg.solve(lower, target)
    return float(-0.5 * half @ half - np.log(np.diag(lower)).sum())


__all__ = [
    "MOST_KNOWN",
    "Believer",
    "Posterior",
    "Surrogate",
    "squared_exponential",
    "standardized",
    "tanimoto",
    "telling",
]
