"""Boosted trees, RegMix's regressor."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import CuveeError
from .surrogate import as_mixtures, as_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .surrogate import Floats

FOLDS = 4
FEWEST = 2  # runs that trees can be grown from


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosted:
    """LightGBM with RegMix's settings (Liu et al. 2024, section 3.3): 1000 rounds, rate 0.01, one model for each loss.

    No early stopping: the published notebook stops on the test split. Trees need some twenty runs to split at all, and
    hundreds to be good.

    Args:
        rounds: number of trees.
        rate: learning rate.
        seed: of LightGBM.
    """

    rounds: int = 1000
    rate: float = 0.01
    seed: int = 42

    def fit(self, weights: ArrayLike, losses: ArrayLike, *, noise: ArrayLike | None = None) -> Trees:  # noqa: ARG002
        """Return the trees given the runs; the deviation is that of runs left out in fourths, the same everywhere.

        Arguments and errors as `Surrogate.fit` has them, and an error for a single run; `noise` says nothing to trees.
        """
        mixtures, table = as_table(weights, losses)
        if len(table) < FEWEST:
            raise CuveeError(f"runs must be at least {FEWEST}, but got {len(table)}")
        models = tuple(self._grow(mixtures, table[:, loss]) for loss in range(table.shape[1]))
        return Trees(models=models, domains=mixtures.shape[1], deviation=self._missed(mixtures, table))

    def _grow(self, mixtures: Floats, losses: Floats) -> Any:
        trees = _regressor()(
            n_estimators=self.rounds,
            learning_rate=self.rate,
            random_state=self.seed,
            verbosity=-1,
            n_jobs=1,
            deterministic=True,
        )
        return trees.fit(mixtures, losses)

    def _missed(self, mixtures: Floats, table: Floats) -> Floats:
        if len(table) < 2 * FOLDS:
            deviation: Floats = table.std(0)
            return deviation
        fold = np.random.default_rng(self.seed).permutation(len(table)) % FOLDS
        rest = np.empty_like(table)
        for part in range(FOLDS):
            out = fold == part
            for loss in range(table.shape[1]):
                rest[out, loss] = table[out, loss] - self._grow(mixtures[~out], table[~out, loss]).predict(
                    mixtures[out]
                )
        missed: Floats = np.sqrt((rest**2).mean(0))
        return missed


def _regressor() -> Any:
    """Return LightGBM's class; what is imported with it for the first time draws from the process's generator."""
    state = random.getstate()
    try:
        from lightgbm import LGBMRegressor
    finally:
        random.setstate(state)
    return LGBMRegressor


@dataclass(frozen=True, slots=True, kw_only=True)
class Trees:
    """Trees of each loss, and how far they missed runs that they had not seen, (D,)."""

    models: tuple[Any, ...]
    domains: int
    deviation: Floats

    def predict(self, weights: ArrayLike) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the losses, both (m, D)."""
        mixtures = as_mixtures(weights, self.domains)
        mean = np.column_stack([model.predict(mixtures) for model in self.models])
        return mean, np.broadcast_to(self.deviation, mean.shape).copy()
