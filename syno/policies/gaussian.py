"""Gaussian-process regression over operators: predictions with uncertainty from a few dozen trainings.

Rasmussen and Williams, *Gaussian Processes for Machine Learning* (2006), algorithm 2.1 and §5.4.1. The
covariance of two operators adds what their features say and what their derivations share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
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
        """What the rewards of the operators ``known`` say about all of them."""
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
        if not len(self.known):
            return self.prior, np.sqrt(np.diag(self.covariance))
        rows = self.known
        lower = np.linalg.cholesky(
            self.covariance[np.ix_(rows, rows)] + self.noise * np.eye(len(rows))
        )
        half = np.linalg.solve(lower, self.covariance[rows])
        mean = self.prior + half.T @ np.linalg.solve(lower, self.target)
        variance = np.diag(self.covariance) - (half**2).sum(axis=0)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def believing(self, operator: int) -> Posterior:
        """As if ``operator`` had been trained and gave what is expected: for the others of a batch."""
        mean, _ = self.predict()
        return replace(
            self,
            known=np.append(self.known, operator),
            target=np.append(self.target, mean[operator] - self.prior[operator]),
        )


def _evidence(covariance: Matrix, noise: float, target: Vector) -> float:
    """Log marginal likelihood without its constant."""
    if not len(target):
        return 0.0
    lower = np.linalg.cholesky(covariance + noise * np.eye(len(target)))
    half = np.linalg.solve(lower, target)
    return float(-0.5 * half @ half - np.log(np.diag(lower)).sum())


__all__ = ["Posterior", "Surrogate", "squared_exponential", "standardized", "tanimoto"]
