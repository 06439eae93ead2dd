"""Fits of one parametric curve for each loss: many starts, L-BFGS, and the normal approximation at the best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from .surrogate import as_mixtures, as_noise, as_table, scales

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from .surrogate import Floats

STEPS = {"maxiter": 800, "maxfun": 1200}


class Curve(Protocol):
    """A loss as a function of the mixture with a vector of P parameters."""

    def values(self, vector: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return the losses (n,) and their derivatives by the parameters (n, P)."""

    def starts(self, losses: Floats, domains: int) -> Sequence[Floats]:
        """Return vectors (P,) to start from, given one loss of the runs (n,)."""

    def bounds(self, losses: Floats, domains: int) -> Sequence[tuple[float | None, float | None]]:
        """Return P pairs of least and greatest values."""

    def pull(self, vector: Floats) -> Floats:
        """Return what the ridge makes small, (P,): linear in the vector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """One curve for each loss; `vectors` is (D, P), `covariances` (D, P, P), `noise` (D,)."""

    curve: Curve
    domains: int
    vectors: Floats
    covariances: Floats
    noise: Floats

    def predict(self, weights: ArrayLike) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the noise-free losses, both (m, D)."""
        mixtures = as_mixtures(weights, self.domains)
        mean, deviation = np.empty((2, len(mixtures), len(self.noise)))
        for loss, (vector, covariance) in enumerate(zip(self.vectors, self.covariances, strict=True)):
            mean[:, loss], slopes = self.curve.values(vector, mixtures)
            deviation[:, loss] = np.sqrt(np.maximum(((slopes @ covariance) * slopes).sum(1), 0))
        return mean, deviation


def fit_curves(curve: Curve, weights: ArrayLike, losses: ArrayLike, noise: ArrayLike | None, *, ridge: float) -> Curves:
    """Fit the curve to every loss by least squares with a ridge, in units of each loss's variance over the runs."""
    mixtures, table = as_table(weights, losses)
    known = as_noise(noise, table.shape[1])
    spread = scales(table)[1]
    fits = [_fit(curve, mixtures, table[:, i], ridge, float(spread[i])) for i in range(table.shape[1])]
    vectors = np.array([vector for vector, _, _ in fits])
    found = np.array([sigma for _, _, sigma in fits])
    sigma = found if known is None else np.maximum(found, known)
    covariances = np.array([matrix for _, matrix, _ in fits]) * sigma[:, None, None] ** 2
    return Curves(curve=curve, domains=mixtures.shape[1], vectors=vectors, covariances=covariances, noise=sigma)


def _fit(curve: Curve, mixtures: Floats, losses: Floats, ridge: float, spread: float) -> tuple[Floats, Floats, float]:
    """Return the best vector (P,), the inverse of its normal matrix (P, P), and the deviation of what is left."""
    from scipy.optimize import minimize

    runs, domains = mixtures.shape
    bounds = curve.bounds(losses, domains)
    pulls = np.array([curve.pull(unit) for unit in np.eye(len(bounds))])

    def cost(vector: Floats) -> tuple[float, Floats]:
        values, slopes = curve.values(vector, mixtures)
        rest = (values - losses) / spread
        small = curve.pull(vector)
        gradient = 2 * slopes.T @ rest / (spread * runs) + 2 * ridge * pulls @ small
        return float(rest @ rest / runs + ridge * small @ small), gradient

    results = [
        minimize(cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options=STEPS)
        for start in curve.starts(losses, domains)
    ]
    best = min((r for r in results if np.isfinite(r.fun)), key=lambda r: float(r.fun)).x
    values, slopes = curve.values(best, mixtures)
    normal = slopes.T @ slopes + ridge * runs * spread**2 * pulls @ pulls.T
    inverse = np.linalg.pinv(normal, hermitian=True)
    spent = float(np.trace(inverse @ (slopes.T @ slopes)))  # effective number of parameters
    return best, inverse, float(np.sqrt(((values - losses) ** 2).sum() / max(runs - spent, 1.0)))
