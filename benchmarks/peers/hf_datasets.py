"""Hugging Face `interleave_datasets`: independent draws, an index table of the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets.table import InMemoryTable
from numpy.typing import NDArray

from peers import Schedule
from workload import apportion

LARGEST = 2_000_000  # about 1 us a sample


def _in_memory(rows: int) -> Any:
    return datasets.Dataset(InMemoryTable(pa.table({"row": pa.array(np.arange(rows))})))


def _counts(mixed: Any, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    index = mixed._indices.column(0).to_numpy()
    return np.bincount(np.searchsorted(starts, index, side="right") - 1, minlength=len(starts))


def schedules(n: int, weights: NDArray[np.float64]) -> Iterator[Schedule]:
    """Yield a mix of in-memory datasets whose sizes follow the weights; it decides its own length, near n."""
    n = min(n, LARGEST)
    rows = apportion(n, weights)
    parts = [_in_memory(int(count)) for count in rows]
    starts = np.cumsum(rows) - rows

    def run() -> Any:
        return datasets.interleave_datasets(
            parts, probabilities=weights.tolist(), seed=1, stopping_strategy="all_exhausted"
        )

    yield Schedule(
        label="datasets interleave_datasets",
        items=len(run()),
        run=run,
        counts=lambda mixed: _counts(mixed, starts),
        seconds=n * 1e-6,
    )
