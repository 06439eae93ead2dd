"""The mixtures that are timed, and the checks on what comes out of a schedule."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


def zipf(k: int) -> Float64:
    """Return Zipf(1.0) weights, largest first, shape (k,), sum 1."""
    weights: Float64 = np.reciprocal(np.arange(1, k + 1, dtype=np.float64))
    weights /= weights.sum()
    return weights


def apportion(total: int, weights: Float64) -> Int64:
    """Return `total` rows split by weight (largest remainder), each at least 1, shape (k,)."""
    quota = weights * total
    rows = np.floor(quota).astype(np.int64)
    rows[np.argsort(rows - quota, kind="stable")[: total - int(rows.sum())]] += 1
    return np.maximum(rows, 1)


def positions(count: int, below: int, seed: int = 7) -> list[int]:
    """Return `count` random positions in [0, below)."""
    generator = random.Random(seed)
    return [generator.randrange(below) for _ in range(count)]


def check_shares(counts: Int64, weights: Float64, within: float | None = None) -> None:
    """Raise AssertionError if counts stray from the weights: beyond `within` rows, or 6 standard deviations."""
    total = int(counts.sum())
    allowed = within if within is not None else 6 * np.sqrt(total * weights * (1 - weights)) + 6
    error = np.abs(counts - total * weights)
    if np.any(error > allowed):
        raise AssertionError(f"counts must follow the weights, but are off by {error.max():.1f} rows of {total}")
