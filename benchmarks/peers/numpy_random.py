"""NumPy: independent draws, a stored permutation, sums by `bincount`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peers import Schedule


def schedules(n: int, weights: NDArray[np.float64]) -> Iterator[Schedule]:
    """Yield the five-line answer: `choice`, then each draw's rank within its source by a stable sort."""
    k = len(weights)

    def run() -> tuple[NDArray[np.int16], NDArray[np.int64]]:
        source = np.random.default_rng(1).choice(k, size=n, p=weights).astype(np.int16)
        order = np.argsort(source, kind="stable")
        counts = np.bincount(source, minlength=k)
        row = np.empty(n, np.int64)
        row[order] = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        return source, row

    def counts(result: Any) -> NDArray[np.int64]:
        return np.bincount(result[0], minlength=k)

    yield Schedule(label="numpy choice + row by argsort", items=n, run=run, counts=counts, seconds=n * 40e-9)


def permutation(n: int) -> NDArray[np.int64]:
    """Return a stored permutation of [0, n)."""
    return np.random.default_rng(1).permutation(n)


def tally(source: NDArray[np.int32], values: NDArray[np.int64], k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (rows, sums) per source; the sums are float64, as `bincount` makes them."""
    return np.bincount(source, minlength=k), np.bincount(source, weights=values, minlength=k)
