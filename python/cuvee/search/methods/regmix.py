"""RegMix: random mixtures first, then the best of many by regression."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .method import F64, Recommendation, Trial
from .searcher import Searcher, checked_count

if TYPE_CHECKING:
    from ..surrogates.surrogate import Surrogate

DRAWS = 20_000  # of mixtures to choose from; as released: 100,000
BEST = 128  # of which the mean is recommended
FOLDS = 4
FEWEST = 2 * FOLDS  # runs


class RegMix(Searcher):
    """Regression from random mixtures to losses (Liu et al. 2024, 2407.01492), with a law beside the trees.

    All runs are Dirichlet draws around the square roots of the prior, of strengths from 0.1 to 5, as released. Two
    models predict each loss: LightGBM with the released settings, and the exponential mixing law (Ye et al. 2024,
    2403.16952). They are averaged with weights in inverse proportion to their squared errors in the objective, by
    cross-validation. The mean of the 128 best of 20,000 fresh draws is recommended, moved into the bounds.

    Args:
        space, settings: as of `Searcher`.
    """

    name = "regmix"

    def ask(self, n: int = 1) -> list[Trial]:
        """Return the next draws; they do not depend on what was told."""
        first = self.history.next_number
        numbers = range(first, first + checked_count(n))
        return self._trials(self.space.sample(1, np.random.default_rng([self.seed, number]))[0] for number in numbers)

    def recommend(self) -> Recommendation:
        """Return the mean of the best draws by both models; with fewer than 8 full runs the best mixture that ran."""
        full = self.history.fidelities == 1
        if full.sum() < FEWEST:
            return super().recommend()
        weights, losses = self.history.weights[full], self.history.all_losses[full]
        targets, draws = self.history.target_weights, self.space.sample(DRAWS, self._rng())
        errors = _errors(weights, (losses @ targets)[:, None])
        trust = 1 / np.maximum(errors, 1e-12)
        trust /= trust.sum()
        fits = [model.fit(weights, losses) for model in _models()]

        def expected(mixtures: F64) -> F64:
            return np.asarray(trust @ np.array([fit.predict(mixtures)[0] @ targets for fit in fits]))

        best = draws[np.argsort(expected(draws), kind="stable")[:BEST]].mean(axis=0)
        mixture = self.space.project(best)
        return self._recommended(mixture, mean=float(expected(mixture[None])[0]), sd=float(np.sqrt(trust @ errors)))


def _models() -> list[Surrogate]:
    from ..surrogates import Boosted, ExponentialLaw

    return [Boosted(), ExponentialLaw()]


def _errors(weights: F64, objective: F64) -> F64:
    """Return the mean squared error of each model on runs it was not fitted to: every fourth is left out in turn."""
    trees, law = _models()
    told = trees.fit(weights, objective).predict(weights)[1]  # the deviation of runs left out, as trees have it
    squares = np.empty(len(weights))
    for fold in range(FOLDS):
        out = np.arange(len(weights)) % FOLDS == fold
        predicted = law.fit(weights[~out], objective[~out]).predict(weights[out])[0]
        squares[out] = ((predicted - objective[out]) ** 2)[:, 0]
    return np.array([float((told**2).mean()), float(squares.mean())])
