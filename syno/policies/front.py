"""Two objectives at once: the front of the best compromises, its hypervolume, and what an operator may add.

Points are ``[n, 2]`` with both objectives to be great; hypervolumes are areas above the reference ``(0, 0)``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from syno.policies.gaussian import Matrix, Vector

_erf = np.vectorize(math.erf, otypes=[np.float64])


def front(points: Matrix) -> Matrix:
    """The points above the reference that no other beats in both, ``[m, 2]``, the first objective ascending."""
    best = 0.0
    kept = []
    for x, y in points[np.lexsort((-points[:, 1], -points[:, 0]))]:
        if x > 0 and y > best:
            kept.append((x, y))
            best = y
    return np.array(kept[::-1], dtype=np.float64).reshape(-1, 2)


def hypervolume(points: Matrix) -> float:
    """Area that the points dominate."""
    kept = front(points)
    widths = np.diff(kept[:, 0], prepend=0.0)
    return float(widths @ kept[:, 1])


def expected_gain(kept: Matrix, mean: Matrix, std: Matrix) -> Vector:
    """Expected hypervolume that a point adds to a front, ``[n]`` (Emmerich, Deutz and Klinkenberg 2011).

    The objectives are independent and normal. What is not dominated yet falls into upright strips between two
    neighbours of the front; a point adds the part of a strip that lies below it and to its left, and the
    expected area of that is a product of two expected improvements.

    Args:
        kept: a :func:`front`.
        mean, std: of the points' objectives, ``[n, 2]``.
    """
    edges = np.append(0.0, kept[:, 0])
    floors = np.append(kept[:, 1], 0.0)
    beyond = _expected_improvement(mean[:, :1], std[:, :1], edges)
    widths = beyond - np.append(beyond[:, 1:], np.zeros((len(beyond), 1)), axis=1)
    gain: Vector = (widths * _expected_improvement(mean[:, 1:], std[:, 1:], floors)).sum(axis=1)
    return gain


def _expected_improvement(mean: Matrix, std: Matrix, threshold: Vector) -> Matrix:
    """``E[max(0, z - threshold)]`` of normal ``z``: ``[n, 1]`` and ``[m]`` give ``[n, m]``."""
    spread = np.maximum(std, 1e-12)
    distance = (mean - threshold) / spread
    density = np.exp(-0.5 * distance**2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + _erf(distance / math.sqrt(2)))
    improvement: Matrix = spread * (density + distance * below)
    return np.maximum(improvement, 0.0)


__all__ = ["expected_gain", "front", "hypervolume"]
