"""Ways to search for a mixture that others use, written anew: each spends a budget of runs and names a mixture.

Two of them (`softmax_ei`, `lattice_ts`) are the rules that an earlier open-source toy search has, faults and all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtr

from mixture_simulator import F64, Simulator, fit_law, fit_trees


@dataclass
class Runs:
    """Hands out losses with noise and keeps them; `noise` in those of the simulator."""

    simulator: Simulator
    budget: int
    seed: int
    noise: float = 1.0
    weights: list[F64] = field(default_factory=list)
    losses: list[F64] = field(default_factory=list)
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(10_000 + self.seed)

    def __call__(self, weights: F64) -> float:
        assert len(self.losses) < self.budget, "the budget is spent"
        w = self.simulator.space.fit(weights)
        stray = self.noise * self.simulator.noise * self._rng.standard_normal(len(self.simulator.noise))
        self.weights.append(w)
        self.losses.append(self.simulator.losses(w)[0] + stray)
        return float(self.losses[-1].mean())

    @property
    def objective(self) -> F64:
        return np.array(self.losses).mean(axis=1)

    def best(self, among: int) -> F64:
        """Return the best of the first runs as seen."""
        return self.weights[int(np.argmin(self.objective[:among]))]

    def design(self, rng: np.random.Generator) -> tuple[F64, F64]:
        """Spend everything on Dirichlet draws; return mixtures (n, K) and losses (n, D)."""
        for w in self.simulator.space.sample(self.budget, rng):
            self(w)
        return np.array(self.weights), np.array(self.losses)


Answer = Callable[[int], F64]  # number of runs -> what would have been recommended after so many


# -------------------------------------------------------------------------- anytime: one course answers for all budgets
def random(run: Runs, rng: np.random.Generator) -> Answer:
    run.design(rng)
    return run.best


def tpe(run: Runs, rng: np.random.Generator) -> Answer:
    from optuna.samplers import TPESampler

    return _by_optuna(run, TPESampler(seed=int(rng.integers(2**31))))


def optuna_gp(run: Runs, rng: np.random.Generator) -> Answer:
    import torch
    from optuna.samplers import GPSampler

    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sampler = GPSampler(seed=int(rng.integers(2**31)), deterministic_objective=False)
    return _by_optuna(run, sampler)


def _by_optuna(run: Runs, sampler: Any) -> Answer:
    """Search over one exponential for each domain: uniform on the simplex."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial: Any) -> float:
        u = [trial.suggest_float(f"u{i}", 1e-6, 1 - 1e-6) for i in range(run.simulator.space.size)]
        e = -np.log(u)
        return run(e / e.sum())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.create_study(sampler=sampler).optimize(objective, n_trials=run.budget)
    return run.best


def gp_seq(run: Runs, rng: np.random.Generator) -> Answer:
    """Eight draws, then expected improvement over draws and small moves; the least posterior mean of what ran."""
    space, answers = run.simulator.space, {}
    for w in space.sample(min(8, run.budget), rng):
        run(w)
    while True:
        tried = np.sqrt(np.array(run.weights))
        process = _process(tried, run.objective)
        expected = process.predict(tried)
        top = run.weights[int(np.argmin(expected))]
        answers[len(run.losses)] = top
        if len(run.losses) >= run.budget:
            return lambda runs: answers[max(min(answers), runs)]
        pool = np.concatenate([space.sample(600, rng), space.moves(top, 600, rng, size=0.4)])
        mean, sd = process.predict(np.sqrt(pool), return_std=True)
        run(pool[int(np.argmax(_improvement(mean, sd, expected.min())))])


# ------------------------------------------------------------------------------------------------ planned for a budget
def lattice_ts(run: Runs, rng: np.random.Generator) -> Answer:
    """Thompson sampling over a lattice of degree 2 cut to the budget; arms that never ran have the mean 0."""
    arms, mean, _ = _thompson(run, rng)
    return lambda _: arms[int(np.argmax(mean))]


def lattice_ts2(run: Runs, rng: np.random.Generator) -> Answer:
    """Return only arms that ran."""
    arms, mean, pulls = _thompson(run, rng)
    return lambda _: arms[int(np.argmax(np.where(pulls > 0, mean, -np.inf)))]


def _thompson(run: Runs, rng: np.random.Generator) -> tuple[F64, F64, F64]:
    k = run.simulator.space.size
    pairs = [(i, j) for i in range(k) for j in range(i, k)]
    arms = np.array([0.5 * (np.eye(k)[i] + np.eye(k)[j]) for i, j in pairs])
    arms = arms[np.lexsort(arms.T[::-1])]
    if len(arms) > run.budget:
        arms = arms[np.unique(np.round(np.linspace(0, len(arms) - 1, run.budget)).astype(int))]
    n = len(arms)
    mean, count, shape, rate, pulls = np.zeros(n), np.full(n, 0.01), np.full(n, 0.5), np.full(n, 0.5), np.zeros(n)
    for _ in range(run.budget):
        arm = int(np.argmax(rng.normal(mean, np.sqrt(rate / rng.gamma(shape) / count))))
        reward = -run(arms[arm])
        rate[arm] += 0.5 * count[arm] * (reward - mean[arm]) ** 2 / (count[arm] + 1)
        mean[arm] = (count[arm] * mean[arm] + reward) / (count[arm] + 1)
        count[arm], shape[arm], pulls[arm] = count[arm] + 1, shape[arm] + 0.5, pulls[arm] + 1
    return arms, mean, pulls


def softmax_ei(run: Runs, rng: np.random.Generator) -> Answer:
    """A process on K logits in [-3, 3]: Latin hypercube, then expected improvement over 512 Latin points."""
    k = run.simulator.space.size
    tried: list[F64] = []

    def tell(logits: F64) -> None:
        e = np.exp(logits - logits.max())
        tried.append(logits)
        run(e / e.sum())

    for point in _latin(min(2 * k + 1, max(run.budget - 1, 2)), k, rng):
        tell(-3 + 6 * point)
    while len(run.losses) < run.budget:
        process = _process(np.array(tried), run.objective, kernel="rbf")
        pool = -3 + 6 * _latin(512, k, rng)
        mean, sd = process.predict(pool, return_std=True)
        tell(pool[int(np.argmax(_improvement(mean, sd, run.objective.min())))])
    return run.best


def regmix_as_released(run: Runs, rng: np.random.Generator) -> Answer:
    """LightGBM on the objective, the mean of the 128 best of 100,000 draws."""
    weights, losses = run.design(rng)
    pool = run.simulator.space.sample(100_000, rng)
    return _mean_of_best(pool, fit_trees(weights, losses.mean(axis=1))(pool))


def law(run: Runs, rng: np.random.Generator) -> Answer:
    """An effective-data law for each loss, the mean of the 128 best of 100,000 draws."""
    weights, losses = run.design(rng)
    pool = run.simulator.space.sample(100_000, rng)
    laws = [fit_law(weights, column, ridge=1 / len(weights)) for column in losses.T]
    return _mean_of_best(pool, np.mean([each(pool) for each in laws], axis=0))


def gp_fit(run: Runs, rng: np.random.Generator) -> Answer:
    """A process on square roots of weights, the best of 20,000 draws."""
    weights, losses = run.design(rng)
    pool = run.simulator.space.sample(20_000, rng)
    best = pool[int(np.argmin(_process(np.sqrt(weights), losses.mean(axis=1)).predict(np.sqrt(pool))))]
    return lambda _: best


def _mean_of_best(pool: F64, expected: F64) -> Answer:
    best = pool[np.argsort(expected, kind="stable")[:128]].mean(axis=0)
    return lambda _: best


def _latin(n: int, k: int, rng: np.random.Generator) -> F64:
    return (np.argsort(rng.random((k, n)), axis=1).T + rng.random((n, k))) / n


def _improvement(mean: F64, sd: F64, best: float) -> F64:
    z = (best - mean) / np.maximum(sd, 1e-12)
    return (best - mean) * ndtr(z) + sd * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)


def _process(x: F64, y: F64, kernel: str = "matern") -> Any:
    from scipy.optimize import minimize
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

    def optimizer(objective: Any, start: F64, bounds: F64) -> tuple[F64, float]:
        options = {"maxiter": 30}
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return found.x, found.fun

    shape = RBF(1.0, (5e-2, 5e1)) if kernel == "rbf" else Matern(1.0, (5e-2, 5e1), nu=2.5)
    whole = ConstantKernel(1.0, (1e-2, 1e2)) * shape + WhiteKernel(1e-2, (1e-5, 1e0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GaussianProcessRegressor(whole, normalize_y=True, optimizer=optimizer).fit(x, y)


ANYTIME = {"random": random, "tpe": tpe, "optuna_gp": optuna_gp, "gp_seq": gp_seq}
PLANNED = {
    "lattice_ts": lattice_ts,
    "lattice_ts2": lattice_ts2,
    "softmax_ei": softmax_ei,
    "regmix_as_released": regmix_as_released,
    "law": law,
    "gp_fit": gp_fit,
}
