"""One fit of the scale law to one table of checkpoints: the law, and what mixtures leave over in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..surrogates.gaussian_process import GaussianProcess, Process
from ..surrogates.posterior import Posterior
from .repetition import effective_weights
from .scale_terms import ScaleTerms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from ..surrogates.surrogate import Floats
    from ..surrogates.transfer_terms import Terms

PASSES = 3  # between the law and what mixtures and evaluations have in common
FEWEST_MIXTURES = 8  # from which a process can tell what the law leaves over
FEWEST_RUNS = 4  # at one size and number of tokens, from which their common deviation is taken out


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Checkpoints, and which of them share a mixture, or a size and a number of tokens."""

    mixtures: Floats  # of each checkpoint, (n, K)
    inputs: Floats  # (n, K + 2)
    table: Floats  # (n, D)
    size: float  # N0: parameters are counted in it
    tokens: float  # D0
    unique: Sequence[float] | None
    mixture: NDArray[np.intp]  # its number, (n,)
    evaluation: NDArray[np.intp]  # the number of its size and tokens, (n,)

    @classmethod
    def of(cls, mixtures: Floats, sizes: Floats, counts: Floats, table: Floats, unique: Sequence[float] | None) -> Runs:
        """Return the checkpoints with sizes and tokens in units of their middle and their most."""
        size, tokens = float(np.exp(np.log(sizes).mean())), float(counts.max())
        return cls(
            mixtures=mixtures,
            inputs=_inputs(mixtures, sizes / size, counts, tokens, unique),
            table=table,
            size=size,
            tokens=tokens,
            unique=unique,
            mixture=numbers_of(mixtures),
            evaluation=numbers_of(np.column_stack([sizes, counts])),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Law and rest, fitted in turns."""

    posterior: Posterior
    size: float
    tokens: float
    unique: Sequence[float] | None
    rest: Process | None  # of what the law leaves over, over mixtures
    noise: Floats  # (D, D): covariance of a run's measured losses around law and rest

    def moments(self, mixtures: Floats, sizes: Floats, counts: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of noise-free losses, both (m, D)."""
        inputs = _inputs(mixtures, sizes / self.size, counts, self.tokens, self.unique)
        mean, variance = self.posterior.moments(inputs)
        if self.rest is None:
            return mean, variance
        rest, deviation = self.rest.predict(mixtures)
        return mean + rest, variance + deviation**2

    def variance_of_mean(self, mixtures: Floats, sizes: Floats, counts: Floats, shares: Floats) -> Floats:
        """Return the variance of the noise-free losses' mean with weights `shares` (D,), shape (m,)."""
        inputs = _inputs(mixtures, sizes / self.size, counts, self.tokens, self.unique)
        variance = self.posterior.variance_of_mean(inputs, shares)
        if self.rest is None:
            return variance
        total: Floats = variance + self.rest.predict(mixtures)[1] ** 2 @ shares**2
        return total


def fit_member(runs: Runs, mix: Terms, decay: tuple[float, float]) -> Member:
    """Return law and rest; `decay` is mean and deviation a priori of the parameters' log exponent."""
    terms = ScaleTerms(mix=mix, reference=runs.inputs[:, :-2].mean(0), decay=decay)
    _, first = np.unique(runs.mixture, return_index=True)
    target, rest = runs.table, None
    for _ in range(PASSES):
        posterior = Posterior.of(terms, runs.inputs, target, None)
        left = runs.table - posterior.losses(runs.inputs)
        common = _mean_of(left, runs.evaluation, FEWEST_RUNS)
        free = left - common[runs.evaluation]
        if len(first) >= FEWEST_MIXTURES:
            rest = GaussianProcess(shared=True).fit(runs.mixtures[first], _mean_of(free, runs.mixture, 1))
            free = free - rest.predict(runs.mixtures)[0]
        target = runs.table - (left - free)
    noise = free.T @ free / len(free) + common.T @ common / len(common)  # the next evaluation has its own
    return Member(posterior=posterior, size=runs.size, tokens=runs.tokens, unique=runs.unique, rest=rest, noise=noise)


def numbers_of(rows: Floats) -> NDArray[np.intp]:
    """Return the number of each row among the distinct ones, (n,)."""
    _, numbers = np.unique(rows, axis=0, return_inverse=True)
    return numbers.reshape(-1)


def _mean_of(values: Floats, numbers: NDArray[np.intp], fewest: int) -> Floats:
    """Return the mean of values (n, D) over checkpoints of one number, (groups, D); 0 for groups below `fewest`."""
    count = np.bincount(numbers)
    total = np.stack([np.bincount(numbers, weights=column) for column in values.T], axis=1)
    mean: Floats = np.where((count >= fewest)[:, None], total / count[:, None], 0)
    return mean


def _inputs(mixtures: Floats, sizes: Floats, counts: Floats, tokens: float, unique: Sequence[float] | None) -> Floats:
    """Return weights, log(N / N0) and log(D / D0) in one array, (n, K + 2)."""
    worth = mixtures if unique is None else effective_weights(mixtures, counts, unique)
    return np.column_stack([worth, np.log(sizes), np.log(counts / tokens)])
