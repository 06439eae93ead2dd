"""What runs say of mixtures that did not run: the laws and a Gaussian process on what they leave over, as one."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..surrogates.gaussian_process import distances, matern
from .effective_data import F64, Laws, fit_laws

LENGTHS = (0.2, 0.35, 0.7, 1.4)  # of the process on square roots of shares, which are points of a sphere
ALIKE = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)  # part of what the laws leave over that is a function of the mixture, no noise
WIDTHS = (0.7, 1.0, 1.4)  # of that, in what the laws' fit says
LENGTH_PRIOR, ALIKE_PRIOR = (0.7, 0.7), (0.4, 0.3)  # log-normal, and normal
JITTER = 1e-9
MOST_RUNS = 200  # that these are learned from: evenly spaced ones of more


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """A Gaussian process for each loss, with a mean and a covariance of laws and what they leave over.

        mean(w) = law(w; prior mean),      cov(w, v) = J(w) S J(v)' + rest * matern(sqrt(w), sqrt(v))

    J being the derivative of the law by its parameters at their mode, S their prior covariance, and the law taken as
    linear around its mode: given the runs the first term is what is still unknown of the law (Laplace's approximation),
    the second what no law says. The length, the part of what the laws leave over that is the process's, and the size of
    that are those of the greatest evidence, common to all losses (Rasmussen and Williams 2006, 2.7 and 5.4).

    Attributes:
        laws: at their modes.
        weights: mixtures of the runs, (n, K).
        slopes: J at the runs, (D, n, P).
        length: of the process.
        rest: variance of the process, (D,).
        noise: variance of a full run's noise, (D,).
        factor: inverse of the Cholesky factor of the runs' covariance, (D, n, n).
        solved: inverse covariance times what the prior mean leaves over, (D, n).
    """

    laws: Laws
    weights: F64
    slopes: F64
    length: float
    rest: F64
    noise: F64
    factor: F64
    solved: F64

    @classmethod
    def of(cls, weights: F64, losses: F64, own: NDArray[np.bool_], variances: F64) -> Self:
        """Return the belief after runs; arguments as of `fit_laws`, n at least 2."""
        laws = fit_laws(weights, losses, own, variances)
        slopes = laws.slopes(weights)
        off = losses.T - laws.losses(weights) + (slopes @ laws.offset[:, :, None])[:, :, 0]
        scaled = slopes * laws.sd[:, None, :]
        of_laws = scaled @ scaled.swapaxes(1, 2)
        some = np.linspace(0, len(weights) - 1, min(len(weights), MOST_RUNS)).astype(np.intp)
        fewer = of_laws[:, some[:, None], some]
        length, part, total = _likeliest(fewer, weights[some], off[:, some], laws.noise, variances[some])
        alike = alikeness(weights, weights, length)
        lower = np.linalg.cholesky(_covariance(of_laws, alike, part=part, total=total, variances=variances))
        factor = np.asarray(np.linalg.inv(lower), np.float64)
        white = factor @ off[:, :, None]
        return cls(
            laws=laws,
            weights=weights,
            slopes=slopes,
            length=length,
            rest=part * total,
            noise=(1 - part) * total,
            factor=factor,
            solved=(factor.swapaxes(1, 2) @ white)[:, :, 0],
        )

    def mean(self, weights: F64, targets: F64) -> F64:
        """Return the expected objective of mixtures (m, K), weights of the losses (D,), shape (m,)."""
        slopes = self.laws.slopes(weights)
        return self._mean(weights, slopes, self._cross(weights, slopes), targets)

    def joint(self, weights: F64, targets: F64) -> Joint:
        """Return mean and covariance of the objective of mixtures (m, K)."""
        slopes = self.laws.slopes(weights)
        cross = self._cross(weights, slopes)
        known = (self.factor @ cross.swapaxes(1, 2)) * targets[:, None, None]
        prior = slopes * (self.laws.sd * targets[:, None])[:, None, :]
        return Joint(
            weights=weights,
            mean=self._mean(weights, slopes, cross, targets),
            prior=prior.swapaxes(0, 1).reshape(len(weights), -1),
            known=known.reshape(-1, len(weights)).T,
            rest=float(self.rest @ targets**2),
            noise=float(self.noise @ targets**2),
            length=self.length,
        )

    def _cross(self, weights: F64, slopes: F64) -> F64:
        """Return covariances of mixtures (m, K) with the runs, shape (D, m, n)."""
        of_laws = (slopes * self.laws.sd[:, None, :] ** 2) @ self.slopes.swapaxes(1, 2)
        result: F64 = of_laws + self.rest[:, None, None] * alikeness(weights, self.weights, self.length)
        return result

    def _mean(self, weights: F64, slopes: F64, cross: F64, targets: F64) -> F64:
        prior = self.laws.losses(weights) - (slopes @ self.laws.offset[:, :, None])[:, :, 0]
        result: F64 = targets @ (prior + (cross @ self.solved[:, :, None])[:, :, 0])
        return result


@dataclass(slots=True, kw_only=True)
class Joint:
    """The objective of m mixtures, jointly normal.

    Attributes:
        weights: the mixtures, (m, K).
        mean: expected objectives, (m,).
        prior, known: parts of the covariance: prior @ prior' + rest * matern - known @ known'; (m, D P) and (m, n D).
        rest, noise: variance of the process, and of a full run's noise.
        length: of the process.
    """

    weights: F64
    mean: F64
    prior: F64
    known: F64
    rest: float
    noise: float
    length: float

    @property
    def variance(self) -> F64:
        """Variances, (m,)."""
        squares = (self.prior**2).sum(axis=1) + self.rest - (self.known**2).sum(axis=1)
        return np.asarray(np.maximum(squares, 1e-14))

    def covariance(self, chosen: NDArray[np.int64]) -> F64:
        """Return covariances of chosen mixtures with all, shape (c, m)."""
        alike = alikeness(self.weights[chosen], self.weights, self.length)
        result: F64 = self.prior[chosen] @ self.prior.T + self.rest * alike - self.known[chosen] @ self.known.T
        return result

    def run(self, place: int, variance: float = 1.0) -> None:
        """Take a run of one mixture as made, its result as expected; its noise in variances of a full run."""
        row = self.covariance(np.array([place]))[0]
        total = max(row[place], 0) + self.noise * variance + 1e-14
        self.known = np.concatenate([self.known, (row / np.sqrt(total))[:, None]], axis=1)


def alikeness(left: F64, right: F64, length: float) -> F64:
    """Return Matérn-5/2 correlations of mixtures (l, K) and (r, K) by their square roots, shape (l, r)."""
    return matern(distances(np.sqrt(left) / length, np.sqrt(right) / length))


def _covariance(of_laws: F64, alike: F64, *, part: float, total: F64, variances: F64) -> F64:
    """Return the runs' covariance (D, n, n): of laws, and of what they leave over, of which a part is alike."""
    left_over = part * alike + np.diag((1 - part) * variances + JITTER)
    result: F64 = of_laws + total[:, None, None] * left_over
    return result


def _likeliest(of_laws: F64, weights: F64, off: F64, noise: F64, variances: F64) -> tuple[float, float, F64]:
    """Return length, part and total of the greatest evidence, for runs that are `off` the prior mean by (D, n)."""
    best, chosen = -np.inf, (LENGTHS[0], 0.0, noise**2)
    for length in LENGTHS:
        alike = alikeness(weights, weights, length)
        for part, width in itertools.product(ALIKE, WIDTHS):
            total = (noise * width) ** 2
            lower = np.linalg.cholesky(_covariance(of_laws, alike, part=part, total=total, variances=variances))
            white = np.linalg.solve(lower, off[:, :, None])[:, :, 0]
            levels = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum()
            evidence = float(-0.5 * (white * white).sum() - levels) + _log_prior(length, part)
            if evidence > best:
                best, chosen = evidence, (length, part, total)
    return chosen


def _log_prior(length: float, part: float) -> float:
    by_length = (np.log(length / LENGTH_PRIOR[0]) / LENGTH_PRIOR[1]) ** 2
    return float(-0.5 * by_length - 0.5 * ((part - ALIKE_PRIOR[0]) / ALIKE_PRIOR[1]) ** 2)
