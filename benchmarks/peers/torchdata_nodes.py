"""torchdata `MultiNodeWeightedSampler`: independent draws, one `next()` a sample."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torchdata.nodes import IterableWrapper, MultiNodeWeightedSampler

from peers import Schedule

CALLS = 100_000


class _Endless:
    """Yields its source's id for ever."""

    def __init__(self, source: int) -> None:
        self.source = source

    def __iter__(self) -> Iterator[int]:
        return itertools.repeat(self.source)


def schedules(n: int, weights: NDArray[np.float64]) -> Iterator[Schedule]:
    """Yield successive `next()` calls over endless sources."""
    names = [f"s{index}" for index in range(len(weights))]
    node: Any = MultiNodeWeightedSampler(
        {name: IterableWrapper(_Endless(index)) for index, name in enumerate(names)},
        dict(zip(names, weights.tolist(), strict=True)),
        stop_criteria="CYCLE_FOREVER",
        rank=0,
        world_size=1,
        seed=1,
    )
    node.reset()
    calls = min(n, CALLS)

    def run() -> list[int]:
        return [next(node) for _ in range(calls)]

    def counts(sources: Any) -> NDArray[np.int64]:
        return np.bincount(sources, minlength=len(weights))

    yield Schedule(label="torchdata MultiNodeWeightedSampler", items=calls, run=run, counts=counts, seconds=0.05)
