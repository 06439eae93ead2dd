"""EXP3 as it is published, once with an array operation for each of its lines, once with a loop over the sources.

Online mixing adds to it: rewards are divided by the rows they are of. Both keep weights as they stand in the papers, in
linear space, so that they overflow after some thousands of updates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]


@dataclass(slots=True)
class Arrays:
    """One NumPy operation for each step of the rule."""

    weights: Float64
    eta: float = 0.3
    gamma: float = 0.1

    def probabilities(self) -> Float64:
        """Return p = (1 - gamma) w / sum(w) + gamma / K."""
        return (1 - self.gamma) * self.weights / self.weights.sum() + self.gamma / len(self.weights)

    def update(self, rewards: Float64, counts: NDArray[np.int64]) -> Float64:
        """Return the new probabilities: w <- w exp(eta (reward / count) / p / K)."""
        estimates = rewards / counts / self.probabilities()
        self.weights = self.weights * np.exp(self.eta * estimates / len(self.weights))
        return self.probabilities()


@dataclass(slots=True)
class Loop:
    """The same in plain Python, source by source."""

    weights: list[float]
    eta: float = 0.3
    gamma: float = 0.1

    def probabilities(self) -> list[float]:
        """Return p."""
        total = sum(self.weights)
        even = self.gamma / len(self.weights)
        return [(1 - self.gamma) * weight / total + even for weight in self.weights]

    def update(self, rewards: list[float], counts: list[int]) -> list[float]:
        """Return the new probabilities."""
        p = self.probabilities()
        for source, (reward, count) in enumerate(zip(rewards, counts, strict=True)):
            self.weights[source] *= math.exp(self.eta * (reward / count) / p[source] / len(self.weights))
        return self.probabilities()
