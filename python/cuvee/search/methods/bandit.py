"""Gaussian Thompson sampling over a lattice of mixtures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from .method import F64, Recommendation, Trial, same_mixture
from .searcher import Searcher, Settings, checked_count

if TYPE_CHECKING:
    from ..space import Space

FINEST = 12  # degree of a lattice if nobody says
PRIOR_RUNS = 0.1  # that an arm's prior mean counts for
PRIOR_SHAPE = 1.0  # and its prior variance, which is 1, as rewards are standardised


class Bandit(Searcher):
    """Thompson sampling with a normal-gamma posterior for each arm (Honda and Takemura 2014, equation 2).

    Arms are the prior, the uniform mixture, and a lattice over the simplex: shares of i / degree. Rewards are negative
    objectives, standardised over all runs so far, so that an arm that never ran is an average one, whatever the scale
    of the losses. Only mixtures that ran are recommended: the one of the greatest posterior mean.

    Args:
        space, settings: as of `Searcher`.
        degree: of the lattice; None: the finest whose arms the budget can all try, at least 1 (single domains).
    """

    name = "bandit"

    def __init__(self, space: Space, *, degree: int | None = None, **settings: Unpack[Settings]) -> None:
        super().__init__(space, **settings)
        lattice = space.lattice(_degree(space.size, self.budget) if degree is None else degree)
        new = [not same_mixture(point, self.baselines).any() for point in lattice]
        self.arms = np.concatenate([self.baselines, lattice[new]])

    def ask(self, n: int = 1) -> list[Trial]:
        """Return the baselines first, then for each trial the arm of the greatest reward in a posterior draw."""
        chosen: list[int] = []
        pulls, *posterior = self._posterior()
        waiting = [arm for arm in range(len(self.baselines)) if not pulls[arm]]
        for place in range(checked_count(n)):
            if waiting:
                chosen.append(waiting.pop(0))
                continue
            reward = _draw(posterior, self._rng(place))
            reward[[arm for arm in chosen if not pulls[arm]]] = -np.inf  # once is enough until it is known
            chosen.append(int(np.argmax(reward)))
        return self._trials(self.arms[chosen])

    def recommend(self) -> Recommendation:
        """Return the arm of the greatest posterior mean among those that ran; the prior before any did."""
        pulls, mean, runs, shape, rate = self._posterior()
        if not pulls.any():
            return super().recommend()
        best = int(np.argmax(np.where(pulls > 0, mean, -np.inf)))
        centre, scale = self._scale()
        sd = scale * math.sqrt(rate[best] / (shape[best] * runs[best]))
        return self._recommended(self.arms[best], mean=centre - scale * float(mean[best]), sd=sd)

    def _scale(self) -> tuple[float, float]:
        """Return mean and standard deviation of the objective over all full runs."""
        objective = self.history.objective[self.history.fidelities == 1]
        return float(objective.mean()), float(objective.std()) or 1.0

    def _posterior(self) -> tuple[NDArray[np.int64], F64, F64, F64, F64]:
        """Return by arm: runs, and posterior mean, runs it counts for, shape and rate of the precision; (A,) each."""
        full = self.history.fidelities == 1
        rewards: list[list[float]] = [[] for _ in self.arms]
        if full.any():
            centre, scale = self._scale()
            for w, y in zip(self.history.weights[full], self.history.objective[full].tolist(), strict=True):
                for arm in np.flatnonzero(same_mixture(w, self.arms)):
                    rewards[arm].append((centre - y) / scale)
        pulls = np.array([len(of_arm) for of_arm in rewards])
        average = np.array([np.mean(of_arm) if of_arm else 0.0 for of_arm in rewards])
        squares = np.array([np.sum((np.array(of_arm) - np.mean(of_arm)) ** 2) if of_arm else 0.0 for of_arm in rewards])
        runs = PRIOR_RUNS + pulls
        rate = PRIOR_SHAPE + 0.5 * squares + 0.5 * PRIOR_RUNS * pulls / runs * average**2
        return pulls, pulls * average / runs, runs, PRIOR_SHAPE + pulls / 2, rate


def _draw(posterior: Sequence[F64], rng: np.random.Generator) -> F64:
    mean, runs, shape, rate = posterior
    variance = rate / rng.standard_gamma(shape)
    return mean + np.sqrt(variance / runs) * rng.standard_normal(len(mean))


def _degree(domains: int, budget: int) -> int:
    """Return the finest degree of a lattice with no more arms than there are runs."""
    fits = [degree for degree in range(1, FINEST + 1) if math.comb(domains + degree - 1, degree) <= budget]
    return max(fits, default=1)
