"""Scores for tests of searches: a bowl over the simplex in place of training, so that the answer is known."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

NAMES = ("a", "b", "c")
BEST = (0.6, 0.35, 0.05)


def bowl(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
    """Return losses that are lowest at BEST, that fall with the budget, and that a seed moves all alike."""
    shift = float(np.random.default_rng(seed).normal(scale=0.01))
    return {
        name: 2 + (share - best) ** 2 + 0.2 * (1 - budget) + shift
        for (name, share), best in zip(weights.items(), BEST, strict=True)
    }


def noise(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
    """Return losses that have nothing to do with the mixture but that every one has others."""
    draw = np.random.default_rng([seed, *(int(1e9 * share) for share in weights.values())])
    return {name: float(2 + draw.normal(scale=0.1)) for name in weights}


def slow_bowl(weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
    """Return what `bowl` does, a moment later."""
    time.sleep(0.3)
    return bowl(weights, budget, seed)


class Breaking:
    """A bowl that raises in its n-th run, once."""

    def __init__(self, after: int, error: BaseException) -> None:
        self.left, self.error = after, error

    def __call__(self, weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        self.left -= 1
        if self.left == 0:
            raise self.error
        return bowl(weights, budget, seed)


class Noting:
    """A score that writes a line to a file for each run it begins, so that runs in any process can be counted."""

    def __init__(self, file: Path, score: Callable[..., dict[str, float]] = bowl) -> None:
        self.file, self.score = file, score

    def __call__(self, weights: Mapping[str, float], budget: float, seed: int) -> dict[str, float]:
        with self.file.open("a") as file:
            file.write(f"{[round(share, 9) for share in weights.values()]} {budget} {seed}\n")
        return self.score(weights, budget, seed)
