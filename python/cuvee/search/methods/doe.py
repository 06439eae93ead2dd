"""Bayesian optimisation over the simplex: a Gaussian process with expected improvement."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from ..storage import quiet
from .coordinates import Sticks
from .method import F64, Trial
from .searcher import Searcher, checked_count

if TYPE_CHECKING:
    from optuna.study import Study

FEWEST = 4  # random mixtures before the first proposal, baselines aside


class Doe(Searcher):
    """Optuna's GPSampler on K - 1 free coordinates (Matérn 5/2 with a length each, log expected improvement).

    The prior and the uniform mixture are run first, then Dirichlet draws around the prior until a third of the budget
    or 2 K runs are spent, whichever is less, but 4 draws at least; then proposals of the process. Trials of one `ask`
    know of each other: a trial that is not told yet is believed to come out as the mean of the runs before it.

    Args:
        space, settings: as of `Searcher`.
    """

    name = "doe"

    def ask(self, n: int = 1) -> list[Trial]:
        """Return the baselines, then draws, then proposals of the process."""
        told = len(self.history)
        first = self._design()[told : told + checked_count(n)]
        rest = n - len(first)
        if rest == 0:
            return self._trials(first)
        return self._trials([*first, *self._proposals(rest, first)])

    def _design(self) -> F64:
        draws = max(FEWEST, min(2 * self.space.size, self.budget // 3) - len(self.baselines))
        return np.concatenate([self.baselines, self.space.sample(draws, np.random.default_rng(self.seed))])

    def _proposals(self, n: int, running: F64) -> list[F64]:
        """Return n proposals given the runs told and mixtures that run by then."""
        sticks = Sticks(self.space)
        if not sticks.count or len(self.history) < 2:
            return list(self.space.sample(n, self._rng()))
        with quiet(logging.ERROR):
            study = self._study(sticks)
            believed = float(self.history.objective.mean())
            self._add(study, sticks, running, np.full(len(running), believed))
            found: list[F64] = []
            for _ in range(n):
                trial = study.ask(_distributions(sticks.count))
                found.append(sticks.mixture(np.array(list(trial.params.values()))))
                study.tell(trial, believed)
        return found

    def _study(self, sticks: Sticks) -> Study:
        """Return a study in memory that holds all runs told."""
        import optuna

        seed = int(self._rng().integers(1 << 31))
        sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=1, deterministic_objective=False)
        study = optuna.create_study(sampler=sampler)
        self._add(study, sticks, self.history.weights, self.history.objective)
        return study

    @staticmethod
    def _add(study: Study, sticks: Sticks, weights: F64, values: F64) -> None:
        import optuna

        shapes = _distributions(sticks.count)
        for w, value in zip(weights, values.tolist(), strict=True):
            params = dict(zip(shapes, sticks.coordinates(w).tolist(), strict=True))
            study.add_trial(optuna.trial.create_trial(params=params, distributions=shapes, value=value))


def _distributions(count: int) -> dict[str, Any]:
    import optuna

    return {f"x{place:03d}": optuna.distributions.FloatDistribution(0.0, 1.0) for place in range(count)}
