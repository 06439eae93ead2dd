"""K - 1 free coordinates of a mixture, each in [0, 1], under which uniform coordinates are uniform mixtures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..space import Space
    from .method import F64

EDGE = 1e-9


class Sticks:
    """Stick breaking: a domain takes its part of what the domains before it left.

    Where k domains are left, the part x of the next has the distribution function 1 - (1 - x) ** (k - 1) if mixtures
    are uniform, so that is the coordinate. Fixed shares have none.

    Args:
        space: where mixtures lie.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        self._free = np.flatnonzero(space.free)
        self._powers = np.arange(len(self._free) - 1, 0, -1)
        self._whole = 1.0 - space.lower.sum()

    @property
    def count(self) -> int:
        """How many coordinates there are."""
        return len(self._powers)

    def mixture(self, coordinates: F64) -> F64:
        """Return the mixture, shape (K,), of coordinates of shape (count,), moved into the bounds."""
        parts = 1 - (1 - np.clip(coordinates, 0, 1)) ** (1 / self._powers)
        left = np.concatenate([[1.0], np.cumprod(1 - parts)])
        weights = self._space.lower.copy()
        weights[self._free] += self._whole * left * np.append(parts, 1.0)
        return self._space.project(weights)

    def coordinates(self, weights: F64) -> F64:
        """Return the coordinates, shape (count,), of a mixture of shape (K,)."""
        over = np.maximum(weights - self._space.lower, 0)[self._free]
        left = np.cumsum(over[::-1])[::-1]
        parts = np.clip(over[:-1] / np.maximum(left[:-1], EDGE), 0, 1)
        result: F64 = 1 - (1 - parts) ** self._powers
        return result
