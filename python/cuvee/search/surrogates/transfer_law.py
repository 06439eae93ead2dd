"""The transfer law: effective data for all losses at once, which few proxy runs can tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...errors import CuveeError
from .gaussian_process import Process, fitted
from .posterior import NORMAL, Posterior
from .surrogate import as_mixtures, as_noise, as_table
from .transfer_terms import Terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from .surrogate import Floats

OUTLIER = 3.0  # deviations, at which what the law leaves over is cut
REST_RUNS = 4  # runs a domain from which a process can tell what the law leaves over


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLaw:
    """Effective data with diminishing returns, and one transfer matrix for all losses, by hierarchical Bayes.

        loss_i(w) = E_i + A_i (e_i + w_own(i) ** g + sum_j t_ij w_j ** g) ** -b_i

    t_ij is what data of domain j is worth for loss i beside data of i's own domain. Its logarithm is a priori the same
    for all pairs, plus how much a domain gives and takes at all (one number, since what helps many is helped by many),
    plus the likeness of both domains (a product of short vectors, the same for i on j as for j on i), plus a rest of
    its own. Every group of parameters is normal around its mean; the groups' deviations and each loss's noise are
    learned from the same runs by expectation and maximisation around the mode (MacKay 1992; Rasmussen, Williams 2006,
    3.4), with Student-t noise, so that a run that went wrong for one domain spoils nothing. With four runs a domain or
    more a Gaussian process with lengths common to all losses takes what the law leaves over.

    A concave power is what published runs ask for: with g = 1 the law ranks RegMix's runs at .968 however many it has
    seen, with g free at .991.

    Args:
        own: the domain that each loss is measured on, (D,), -1 for none; None: domain i for loss i where D = K, and
            none for all losses elsewhere.
        rank: length of the vectors of likeness.
        rest: whether a process may take what the law leaves over.
    """

    own: Sequence[int] | None = None
    rank: int = 2
    rest: bool = True

    def fit(self, weights: ArrayLike, losses: ArrayLike, *, noise: ArrayLike | None = None) -> TransferModel:
        """Return the law given the runs, one or more; arguments and errors as `Surrogate.fit` has them.

        Raises:
            CuveeError: also if `own` is not one domain, or -1, for each loss.
        """
        mixtures, table = as_table(weights, losses)
        known = as_noise(noise, table.shape[1])
        terms = self.terms(mixtures.shape[1], table.shape[1])
        low = table.min(0)
        shift = np.where(low > 0, 0.0, np.ptp(table, 0) + 1 - low)  # the law is one of positive losses
        posterior = Posterior.of(terms, mixtures, table + shift, known)
        process = None
        if self.rest and len(table) >= REST_RUNS * mixtures.shape[1]:
            process = _process_of(posterior, mixtures, table + shift, known)
        return TransferModel(terms=terms, posterior=posterior, shift=shift, process=process, known=known)

    def prior(self, domains: int, losses: int) -> Posterior:
        """Return what the law believes before any run of K domains and D losses."""
        return Posterior.prior(self.terms(domains, losses))

    def terms(self, domains: int, losses: int) -> Terms:
        """Return the law's parameters for K domains and D losses."""
        return Terms(own=self._own(domains, losses), domains=domains, rank=self.rank)

    def _own(self, domains: int, losses: int) -> np.ndarray[tuple[int, ...], np.dtype[np.intp]]:
        given = range(losses) if domains == losses else [-1] * losses
        own = np.asarray(given if self.own is None else self.own)
        if own.shape != (losses,) or own.dtype.kind not in "iu" or (own < -1).any() or (own >= domains).any():
            raise CuveeError(f"own must be {losses} numbers of domains in [-1, {domains}), but got {self.own!r}")
        return own.astype(np.intp)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferModel:
    """A transfer law that was fitted, all losses jointly."""

    terms: Terms
    posterior: Posterior
    shift: Floats  # (D,), added to the losses before the fit
    process: Process | None  # of what the law leaves over
    known: Floats | None

    @property
    def noise(self) -> Floats:
        """Standard deviation of a run's losses around the law, (D,): seed noise, and what the law cannot say."""
        return np.sqrt(np.diag(self.posterior.noise))

    @property
    def transfer(self) -> Floats:
        """Worth of each domain's data for each loss beside the own domain's, (D, K)."""
        return self.terms.transfer(self.posterior.vector)

    def predict(self, weights: ArrayLike) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the noise-free losses, both (m, D).

        What the law leaves over counts as its error, not as noise, unless the noise was given or a process explains it.
        """
        mixtures = as_mixtures(weights, self.posterior.terms.domains)
        mean, variance = self.posterior.moments(mixtures)
        rest, extra = self._rest(mixtures)
        return mean - self.shift + rest, np.sqrt(variance + extra)

    def predict_mean(self, weights: ArrayLike, shares: ArrayLike | None = None) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of a weighted mean of the losses, both (m,).

        Args:
            weights: mixtures, (m, K).
            shares: weights of the losses, (D,); None: equal ones. They are normalised.
        """
        mixtures = as_mixtures(weights, self.posterior.terms.domains)
        part = as_shares(shares, len(self.shift))
        mean, extra = self._rest(mixtures)
        spread = (extra @ np.diag(part**2)).sum(1) if self.process is not None else part @ self._misfit() @ part
        variance = self.posterior.variance_of_mean(mixtures, part) + spread
        return (self.posterior.losses(mixtures) - self.shift + mean) @ part, np.sqrt(variance)

    def sample(self, weights: ArrayLike, draws: int, seed: int) -> Floats:
        """Return losses of `draws` laws from the posterior, (draws, m, D), without what no law can say."""
        mixtures = as_mixtures(weights, self.posterior.terms.domains)
        rest, _ = self._rest(mixtures)
        return self.posterior.draws(mixtures, draws, np.random.default_rng(seed)) - self.shift + rest

    def _rest(self, mixtures: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of what the law leaves over, both (m, D)."""
        if self.process is None:
            nothing = np.zeros((len(mixtures), len(self.shift)))
            return nothing, nothing + np.diag(self._misfit())
        mean, deviation = self.process.predict(mixtures)
        return mean, deviation**2

    def _misfit(self) -> Floats:
        """Return the covariance of what the law cannot say, (D, D): all that is left over, less the noise if known."""
        if self.known is None:
            return self.posterior.noise
        left = np.sqrt(np.maximum(1 - (NORMAL * self.known) ** 2 / np.diag(self.posterior.noise), 0))
        misfit: Floats = self.posterior.noise * np.outer(left, left)
        return misfit


def as_shares(shares: ArrayLike | None, losses: int) -> Floats:
    """Return weights of the losses, float64 of shape (D,) and sum 1.

    Raises:
        CuveeError: if they are negative, not finite, of another shape, or all 0.
    """
    given = np.ones(losses) if shares is None else np.asarray(shares, dtype=np.float64)
    if given.shape != (losses,) or not (np.isfinite(given) & (given >= 0)).all() or not given.sum() > 0:
        raise CuveeError(f"shares must be {losses} numbers of at least 0, not all 0, but got {shares!r}")
    normalised: Floats = given / given.sum()
    return normalised


def _process_of(posterior: Posterior, mixtures: Floats, table: Floats, known: Floats | None) -> Process:
    """Return the process of what the law leaves over, with lengths common to all losses."""
    limit = OUTLIER * np.sqrt(np.diag(posterior.noise))  # a run that went wrong is nothing to learn
    rest = np.clip(table - posterior.losses(mixtures), -limit, limit)
    spread = np.maximum(rest.std(0), 1e-12)
    noise = None if known is None else (known / spread) ** 2
    process = fitted(np.sqrt(mixtures), rest / spread, noise=noise, groups=[range(table.shape[1])], iterations=40)
    return process.scaled(np.zeros(len(spread)), spread)
