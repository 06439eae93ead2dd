"""The transfer law given runs: the mode, its covariance, and the deviations of the groups, all from the same runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .surrogate import scales

if TYPE_CHECKING:
    from ..laws.scale_terms import ScaleTerms
    from .surrogate import Floats
    from .transfer_terms import Terms

ROUNDS = 5  # of expectation and maximisation
FREEDOM = 3.0  # of the noise's Student-t distribution
NORMAL = 1.43  # deviation of the normal distribution with the same central 90%, in scales of that distribution
NOISE_RUNS = 4.0  # that the pooled noise of all losses counts for beside a loss's own
PRIOR_NOISE = 0.1  # of a loss, in its deviations over the runs, worth 4 numbers

LEVEL = 2.0  # deviation of each level around the first guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """Normal around the mode: `vector` (P,) and `covariance` (P, P) of the parameters, `noise` (D, D) of the losses."""

    terms: Terms | ScaleTerms
    lowest: Floats  # (D,), below which lie the floors
    vector: Floats
    covariance: Floats
    noise: Floats  # covariance of a run's losses around the law

    @classmethod
    def of(cls, terms: Terms | ScaleTerms, mixtures: Floats, table: Floats, known: Floats | None) -> Posterior:
        """Return the posterior of runs with positive losses.

        Args:
            terms: the law.
            mixtures: what the law is a function of, (n, K) or wider.
            table: losses, (n, D).
            known: the least noise that is believed, (D,).
        """
        search = _Search(terms, mixtures, table, known)
        for turn in range(ROUNDS):
            search.climb(steps=10 if turn == 0 else 3)
            search.learn()
        return cls(
            terms=terms,
            lowest=search.lowest,
            vector=search.vector,
            covariance=search.covariance,
            noise=search.noise_covariance(),
        )

    @classmethod
    def prior(cls, terms: Terms) -> Posterior:
        """Return what is believed before any run, of losses that are 1 or more and about 2 at equal weights."""
        equal = np.full((1, terms.domains), 1 / terms.domains)
        search = _Search(terms, equal, np.full((1, len(terms.own)), 2.0), None)
        lowest, noise = np.ones(len(terms.own)), PRIOR_NOISE**2 * np.eye(len(terms.own))
        return cls(terms=terms, lowest=lowest, vector=search.vector, covariance=search.covariance, noise=noise)

    def losses(self, mixtures: Floats) -> Floats:
        """Return the losses at the mode, (m, D)."""
        return self.terms.losses(self.vector, mixtures, self.lowest)

    def moments(self, mixtures: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the losses, both (m, D)."""
        mean, slopes = self.terms.slopes(self.vector, mixtures, self.lowest)
        return mean, variances(self.terms, slopes, self.covariance)

    def variance_of_mean(self, mixtures: Floats, shares: Floats) -> Floats:
        """Return the variance of the losses' mean with weights `shares` (D,), shape (m,)."""
        _, slopes = self.terms.slopes(self.vector, mixtures, self.lowest)
        whole = np.zeros((len(mixtures), self.terms.size))
        for loss, columns in enumerate(self.terms.columns):
            whole[:, columns] += shares[loss] * slopes[loss]
        variance: Floats = np.maximum(((whole @ self.covariance) * whole).sum(1), 0)
        return variance

    def draws(self, mixtures: Floats, count: int, rng: np.random.Generator) -> Floats:
        """Return losses of `count` laws from the posterior, (count, m, D)."""
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))
        steps = rng.standard_normal((count, self.terms.size)) @ root.T
        return np.stack([self.terms.losses(self.vector + step, mixtures, self.lowest) for step in steps])


def variances(terms: Terms | ScaleTerms, slopes: Floats, covariance: Floats) -> Floats:
    """Return the variance of each loss of each mixture, (m, D), from derivatives (D, m, P)."""
    found = [
        ((slopes[loss] @ covariance[np.ix_(columns, columns)]) * slopes[loss]).sum(1)
        for loss, columns in enumerate(terms.columns)
    ]
    result: Floats = np.maximum(np.stack(found, 1), 0)
    return result


class _Search:
    """The state of the fit: parameters, deviations of groups, noise, and how far each number is trusted."""

    def __init__(self, terms: Terms | ScaleTerms, mixtures: Floats, table: Floats, known: Floats | None) -> None:
        self.terms, self.mixtures, self.table = terms, mixtures, table
        self.lowest = table.min(0)
        spread: Floats = scales(table)[1] if len(table) > 1 else 0.1 * table[0]
        self.variance = spread**2  # of each loss over the runs
        self.least = np.zeros(len(spread)) if known is None else known**2
        self.noise = np.maximum(0.09 * self.variance, self.least)
        self.trust = np.ones_like(table)
        self.prior, self.deviation = self._prior()
        self.vector = self.prior.copy()
        self._scatter()
        self.covariance = np.diag(self.deviation**2)
        self.damping = 1e-2

    def _prior(self) -> tuple[Floats, Floats]:
        mean, deviation = np.zeros(self.terms.size), np.ones(self.terms.size)
        for name, (centre, width) in self.terms.common.items():
            mean[self.terms.places[name]], deviation[self.terms.places[name]] = centre, width
        for name, (width, _) in self.terms.groups.items():
            deviation[self.terms.places[name]] = width
        return mean, deviation

    def _scatter(self) -> None:
        """Start from vectors of likeness off the saddle at 0, and from levels that fit the typical run."""
        where = self.terms.places
        count = where["embedding"].stop - where["embedding"].start
        self.vector[where["embedding"]] = 0.3 * np.random.default_rng(0).standard_normal(count)
        falling = self.terms.losses(self.vector, self.mixtures, np.zeros_like(self.lowest)).mean(0)
        wanted = np.median(self.table, 0) - 0.5 * self.lowest
        self.vector[where["level"]] = self.prior[where["level"]] = np.log(wanted / falling)
        self.deviation[where["level"]] = LEVEL

    def cost(self, vector: Floats) -> float:
        """Return the misfit in variances: of the runs, and of the parameters from their means."""
        rest = self.table - self.terms.losses(vector, self.mixtures, self.lowest)
        return float((self.trust * rest**2 / self.noise).sum() + (((vector - self.prior) / self.deviation) ** 2).sum())

    def normal(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the normal equations (P, P) and (P,), what is left over (n, D), and derivatives (D, n, P)."""
        mean, slopes = self.terms.slopes(self.vector, self.mixtures, self.lowest)
        rest = self.table - mean
        matrix = np.diag(self.deviation**-2)
        side = (self.prior - self.vector) / self.deviation**2
        for loss, columns in enumerate(self.terms.columns):
            weighted = slopes[loss] * (self.trust[:, loss] / self.noise[loss])[:, None]
            matrix[np.ix_(columns, columns)] += weighted.T @ slopes[loss]
            side[columns] += weighted.T @ rest[:, loss]
        return matrix, side, rest, slopes

    def climb(self, steps: int) -> None:
        """Take Levenberg-Marquardt steps toward the mode."""
        cost = self.cost(self.vector)
        for _ in range(steps):
            matrix, side, _, _ = self.normal()
            for _ in range(8):
                step = np.linalg.solve(matrix + self.damping * np.diag(np.diag(matrix)), side)
                trial = self.cost(self.vector + step)
                if trial < cost:
                    break
                self.damping *= 5
            else:
                return
            self.vector = self.vector + step
            self.damping = max(self.damping / 5, 1e-7)
            if cost - trial < 0.1:  # far below one deviation
                return
            cost = trial

    def learn(self) -> None:
        """Set covariance, trust in every number, noise of every loss, and deviations of the groups."""
        matrix, _, rest, slopes = self.normal()
        self.covariance = np.asarray(np.linalg.inv(matrix), dtype=np.float64)
        squares = rest**2 + variances(self.terms, slopes, self.covariance)
        self.trust = (FREEDOM + 1) / (FREEDOM + squares / self.noise)
        missed = (self.trust * squares).sum(0)
        count = len(rest)
        pooled = ((missed / self.variance).sum() + 4 * PRIOR_NOISE**2) / (count * len(missed) + 4)
        noise = (missed + NOISE_RUNS * pooled * self.variance) / (count + NOISE_RUNS)
        self.noise = np.maximum(noise, self.least)
        self._widen()

    def noise_covariance(self) -> Floats:
        """Return the covariance of a run's losses around the law, (D, D); correlations count as from D runs more."""
        rest = self.table - self.terms.losses(self.vector, self.mixtures, self.lowest)
        scaled = rest * np.sqrt(self.trust / self.noise)
        likeness = scaled.T @ scaled
        size = np.sqrt(np.maximum(np.diag(likeness), 1e-12))
        likeness = likeness / np.outer(size, size) * len(rest) / (len(rest) + len(size))
        np.fill_diagonal(likeness, 1)
        deviation = NORMAL * np.sqrt(self.noise)
        covariance: Floats = likeness * np.outer(deviation, deviation)
        return covariance

    def _widen(self) -> None:
        moved = (self.vector - self.prior) ** 2 + np.diag(self.covariance)
        for name, (width, weight) in self.terms.groups.items():
            where = self.terms.places[name]
            free = moved[where] if name != "rest" else moved[where][~self.terms.is_own.ravel()]
            self.deviation[where] = np.sqrt((free.sum() + weight * width**2) / (len(free) + weight))
