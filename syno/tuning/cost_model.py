"""Cost models learned from measurements: what a candidate takes, from the features of its loop nest.

They learn the ratio of measured to predicted time, so that without data they say what the machine
model says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from syno.errors import KernelError, unknown_name

Array = NDArray[np.float64]


class CostModel(Protocol):
    """Learns log2(measured / predicted) from features."""

    def fit(self, features: Array, targets: Array) -> None:
        """Learns from all data: features (n, f), targets (n,)."""

    def predict(self, features: Array) -> Array:
        """Targets (n,) for features (n, f); zeros before there is anything to learn from."""


class LinearModel:
    """Ridge regression on standardised features: the default, for it needs few measurements."""

    def __init__(self, strength: float = 1.0) -> None:
        self._strength = strength
        self._weights: Array | None = None

    def fit(self, features: Array, targets: Array) -> None:
        if len(targets) < 4:
            return
        self._mean, deviation = features.mean(axis=0), features.std(axis=0)
        self._scale = np.where(deviation > 1e-9, deviation, 1.0)
        x = np.column_stack([(features - self._mean) / self._scale, np.ones(len(targets))])
        penalty = self._strength * np.eye(x.shape[1])
        penalty[-1, -1] = 0
        self._weights = np.linalg.solve(x.T @ x + penalty, x.T @ targets)

    def predict(self, features: Array) -> Array:
        if self._weights is None:
            return np.zeros(len(features))
        x = np.column_stack([(features - self._mean) / self._scale, np.ones(len(features))])
        result: Array = x @ self._weights
        return result


class BoostedModel:
    """Gradient-boosted trees of scikit-learn, for searches of hundreds of trials."""

    def __init__(self, seed: int = 0) -> None:
        try:
            from sklearn.ensemble import GradientBoostingRegressor
        except ImportError:
            raise KernelError(
                '[tune] model="boosted" needs scikit-learn: pip install "syno[tune]"'
            ) from None

        self._trees = GradientBoostingRegressor(
            n_estimators=80, learning_rate=0.1, max_depth=4, random_state=seed
        )
        self._fitted = False

    def fit(self, features: Array, targets: Array) -> None:
        if len(targets) < 12:
            return
        self._trees.fit(features, targets)
        self._fitted = True

    def predict(self, features: Array) -> Array:
        if not self._fitted:
            return np.zeros(len(features))
        result: Array = self._trees.predict(features)
        return result


MODELS = ("linear", "boosted")


def make_model(name: str, seed: int = 0) -> CostModel:
    """A new model.

    Raises:
        UnknownName: not one of `MODELS`.
    """
    if name == "linear":
        return LinearModel()
    if name == "boosted":
        return BoostedModel(seed)
    raise unknown_name("cost model", name, MODELS)


def rank_correlation(a: Sequence[float] | Array, b: Sequence[float] | Array) -> float:
    """Spearman's, of two sequences of the same length; equal values share their mean rank.

    0 where either is constant.
    """
    ranks = [_mean_ranks(np.asarray(values)) for values in (a, b)]
    if len(a) < 2 or any(r.std() == 0 for r in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _mean_ranks(values: NDArray[Any]) -> Array:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Array = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks
