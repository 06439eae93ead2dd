"""grain `MapDataset.mix`: random access, O(K) a position; rows in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
from numpy.typing import NDArray

from peers import Schedule
from workload import positions

SOURCE_ROWS = 10**12  # so that a value tells its source: value // SOURCE_ROWS


def mix(weights: NDArray[np.float64]) -> Any:
    """Return a mix of ranges; `mix(w)[i]` is the value at position i."""
    ranges = [grain.MapDataset.range(k * SOURCE_ROWS, (k + 1) * SOURCE_ROWS) for k in range(len(weights))]
    return grain.MapDataset.mix(ranges, weights=weights.tolist())


def schedules(n: int, weights: NDArray[np.float64]) -> Iterator[Schedule]:
    """Yield `ds[i]` at random positions."""
    mixed = mix(weights)
    where = positions(20_000 if len(weights) < 1000 else 4_000, n)

    def run() -> list[int]:
        return [mixed[i] for i in where]

    def counts(values: Any) -> NDArray[np.int64]:
        return np.bincount(np.asarray(values) // SOURCE_ROWS, minlength=len(weights))

    yield Schedule(label="grain MapDataset.mix ds[i]", items=len(where), run=run, counts=counts, seconds=0.1)
