"""The effective-data law: every domain's tokens count as so many of one kind of data."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectiveDataLaw:
    """loss(w) = E + (e + sum_j t_j w_j) ** -b for each loss, t_j >= 0: what a token of domain j is worth for it.

    The data term of L = E + A / N**a + B / D**b (Hoffmann et al. 2022, equation 2) at a fixed size, with D the tokens
    weighted by worth. `TransferLaw` is this law for all losses at once and with diminishing returns.

    Args:
        ridge: weight of the variance of log t beside the mean squared error in variances of the loss.
    """

    ridge: float = 1e-4

    def fit(self, weights: ArrayLike, losses: ArrayLike, *, noise: ArrayLike | None = None) -> Curves:
        """Return the law given the runs; arguments and errors as `Surrogate.fit` has them."""
        return fit_curves(EffectiveDataCurve(), weights, losses, noise, ridge=self.ridge)


class EffectiveDataCurve:
    """Parameters E, log b, log e, log t: (3 + K,)."""

    def values(self, vector: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return losses (n,) and derivatives (n, 3 + K)."""
        exponent, bare, worth = np.exp(vector[1]), np.exp(vector[2]), np.exp(vector[3:])
        data = bare + weights @ worth
        fall = data**-exponent
        by_data = -exponent * fall / data
        by_exponent = -exponent * fall * np.log(data)
        slopes = np.column_stack([np.ones(len(data)), by_exponent, by_data * bare, by_data[:, None] * weights * worth])
        return vector[0] + fall, slopes

    def starts(self, losses: Floats, domains: int) -> list[Floats]:
        """Return starts with floors from 0.3 to 0.9 of the least loss."""
        rng = np.random.default_rng(0)
        found = []
        for share in np.linspace(0.3, 0.9, STARTS):
            floor, exponent = losses.min() * share, 0.15 + 0.5 * rng.random()
            level = np.log(max(losses.mean() - floor, 1e-2)) / -exponent
            found.append(
                np.concatenate([[floor, np.log(exponent), level - 3], level + 0.5 * rng.standard_normal(domains)])
            )
        return found

    def bounds(self, losses: Floats, domains: int) -> Sequence[tuple[float | None, float | None]]:
        """Return a floor of at most the least loss, and an exponent between 0.02 and 3."""
        low = float(losses.min())
        return [(min(0.0, low), low), (float(np.log(0.02)), float(np.log(3.0)))] + [(-40.0, 40.0)] * (domains + 1)

    def pull(self, vector: Floats) -> Floats:
        """Return log t less its mean, beside zeros."""
        worth = vector[3:]
        return np.concatenate([[0, 0, 0], worth - worth.mean()])
