"""How often a run of so many rows reads each source, at a mixture that was found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """A run and the sources that it reads.

    Args:
        rows: of each source, K of them.
        run_rows: of the run.
        row_tokens: mean tokens of a row of each source, if shares are of tokens; None if they are of rows.
        most: passes over a source that the run may make; None: any.
    """

    rows: tuple[float, ...]
    run_rows: float
    row_tokens: tuple[float, ...] | None = None
    most: float | None = None

    def of(self, weights: F64) -> F64:
        """Return how often the run reads each source at a mixture of shape (K,); shape (K,)."""
        shares = np.asarray(weights, dtype=np.float64)
        if self.row_tokens is not None:  # a share of tokens is one of fewer rows where rows are long
            shares = shares / np.array(self.row_tokens)
        passes: F64 = self.run_rows * shares / shares.sum() / np.array(self.rows)
        return passes
