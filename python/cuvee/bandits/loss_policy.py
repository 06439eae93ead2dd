"""What policies that learn from training losses, and begin with a prior, have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import _core
from .checks import STATE_VERSION, as_bounds, as_counts, as_initial, as_scores

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


class LossPolicy:
    """A prior, weights within bounds, and the settings that a state must be of; `ADO` and `LearningSpeed` are two.

    Attributes:
        by_rows: as in `Curriculum`.
        updates: made so far.
    """

    algorithm: ClassVar[str]
    by_rows = True

    def __init__(self, initial: ArrayLike | int, floor: ArrayLike | None, cap: ArrayLike | None) -> None:
        self._prior = as_initial(initial)
        self._bounds = as_bounds(floor, cap, self.sources)
        self._settings: dict[str, Any] = {}  # by name, as given
        self._p = self._limited(self._prior)
        self.updates = 0

    @property
    def sources(self) -> int:
        """K."""
        return len(self._prior)

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """The weights in force, float64 of shape (K,), sum 1."""
        return self._p.copy()

    def _seen(self, scores: ArrayLike, counts: ArrayLike | None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return losses and rows, of shape (K,) each; one row of each source where none were counted."""
        losses, rows = as_scores(scores, self.sources), as_counts(counts, self.sources)
        return losses, np.ones(self.sources, dtype=np.int64) if rows is None else rows

    def _limited(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        limited = p.copy()
        _core.limit(limited, floor=self._bounds[0], cap=self._bounds[1])
        return limited

    def _identity(self) -> dict[str, Any]:
        settings = {
            "prior": self._prior.tolist(),
            **self._settings,
            "bounds": [None if bound is None else bound.tolist() for bound in self._bounds],
        }
        return {"version": STATE_VERSION, "algorithm": self.algorithm, "sources": self.sources, "settings": settings}
