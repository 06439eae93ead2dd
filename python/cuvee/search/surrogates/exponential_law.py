"""The exponential mixing law of Data Mixing Laws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .curve import Curves, fit_curves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from .surrogate import Floats

STARTS = 6
MOST_LOG = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialLaw:
    """loss(w) = c + exp(b + t . w) for each loss (Ye et al. 2024, Data Mixing Laws, section 3; also what Olmix fits).

    Args:
        ridge: weight of t . t beside the mean squared error in variances of the loss.
    """

    ridge: float = 1e-5

    def fit(self, weights: ArrayLike, losses: ArrayLike, *, noise: ArrayLike | None = None) -> Curves:
        """Return the law given the runs; arguments and errors as `Surrogate.fit` has them."""
        return fit_curves(ExponentialCurve(), weights, losses, noise, ridge=self.ridge)


class ExponentialCurve:
    """Parameters c, b, t: (2 + K,)."""

    def values(self, vector: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return losses (n,) and derivatives (n, 2 + K)."""
        growth = np.exp(np.clip(vector[1] + weights @ vector[2:], -MOST_LOG, MOST_LOG))
        slopes = np.column_stack([np.ones(len(weights)), growth, growth[:, None] * weights])
        return vector[0] + growth, slopes

    def starts(self, losses: Floats, domains: int) -> list[Floats]:
        """Return starts whose floors lie at different heights below the least loss."""
        rng = np.random.default_rng(0)
        found = []
        for share in np.linspace(0.2, 0.95, STARTS):
            floor = losses.min() - (1 - share) * abs(losses.min())
            level = np.log(max(losses.mean() - floor, 1e-2))
            found.append(np.concatenate([[floor, level], 0.3 * rng.standard_normal(domains)]))
        return found

    def bounds(self, losses: Floats, domains: int) -> Sequence[tuple[float | None, float | None]]:  # noqa: ARG002
        """Return no bounds."""
        return [(None, None)] * (2 + domains)

    def pull(self, vector: Floats) -> Floats:
        """Return t, beside zeros."""
        return np.concatenate([[0, 0], vector[2:]])
