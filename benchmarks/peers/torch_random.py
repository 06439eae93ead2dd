"""PyTorch: independent draws, a stored permutation, and its samplers in a DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from peers import Schedule

torch.set_num_threads(1)


def schedules(n: int, weights: NDArray[np.float64]) -> Iterator[Schedule]:
    """Yield `torch.multinomial` with replacement: source ids only, no rows."""
    probabilities = torch.from_numpy(weights.copy())

    def run() -> torch.Tensor:
        return torch.multinomial(probabilities, n, True, generator=torch.Generator().manual_seed(1))

    def counts(source: Any) -> NDArray[np.int64]:
        return np.bincount(source.numpy(), minlength=len(weights))

    yield Schedule(label="torch multinomial, source only", items=n, run=run, counts=counts, seconds=n * 30e-9)


def permutation(n: int) -> torch.Tensor:
    """Return a stored permutation of [0, n)."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(1))
