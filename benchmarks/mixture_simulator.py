"""A stand-in for proxy runs, fitted on 768 runs of 1M parameters that RegMix published: 17 Pile domains, 13 losses.

Each loss is the mean of a Gaussian process, boosted trees and an effective-data law, so that no searcher meets its own
model again. A run's noise has the size of the simulator's error on 256 runs that it was not fitted on. No mixture asks
for more of a domain than any of the 768 did. Fitting takes minutes; the result is kept in the folder for temporary
files.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from cuvee.search.space import Space

F64 = NDArray[np.float64]
TABLES = "CUVEE_TABLES"  # the folder that holds regmix/*.csv
OBJECTIVES = ("pile_cc", "mean13")
PARTS = ("gp", "lgbm", "law")
FORMAT = 3  # of what is kept


def tables_folder() -> Path | None:
    """Return where the published tables are; None if nobody says."""
    folder = os.environ.get(TABLES)
    return Path(folder) if folder else None


def load_runs(folder: Path, kind: str) -> tuple[F64, F64, list[str], list[str]]:
    """Return mixtures (n, 17), losses (n, 13), names of the domains and of the losses."""
    weights, domains = _columns(folder / "regmix" / f"{kind}_mixture_1m.csv", "train_the_pile_", "")
    losses, names = _columns(folder / "regmix" / f"{kind}_pile_loss_1m.csv", "metric/the_pile_", "_val_loss")
    return weights / weights.sum(axis=1, keepdims=True), losses, domains, names


def _columns(path: Path, prefix: str, suffix: str) -> tuple[F64, list[str]]:
    with path.open(encoding="utf-8") as file:
        heads = file.readline().strip().split(",")
        rows = np.loadtxt(file, delimiter=",", ndmin=2)
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    return rows[:, 1:], [head.removeprefix(prefix).removesuffix(suffix) for head in heads[1:]]


# ------------------------------------------------------------------------------------------------ parts of a simulator
@dataclass(frozen=True)
class Process:
    """Gaussian process of Matérn 5/2 on square roots of weights, a length for each domain."""

    x: F64
    alpha: F64
    log_lengths: F64
    scale: tuple[float, float, float]  # variance of the process; mean and sd of the losses

    def __call__(self, weights: F64) -> F64:
        variance, mean, sd = self.scale
        kernel, _ = _matern(_distances(np.sqrt(weights), self.x, self.log_lengths))
        result: F64 = mean + sd * variance * (kernel @ self.alpha)
        return result


def _distances(a: F64, b: F64, log_lengths: F64) -> F64:
    a, b = a / np.exp(log_lengths), b / np.exp(log_lengths)
    squares = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    return np.maximum(squares, 0)


def _matern(squares: F64) -> tuple[F64, F64]:
    """Return Matérn 5/2 of squared distances, and -2 times its derivative by them."""
    r = np.sqrt(5 * squares)
    e = np.exp(-r)
    return (1 + r + r * r / 3) * e, 5 / 3 * (1 + r) * e


def fit_process(weights: F64, losses: F64, *, iterations: int = 40) -> Process:
    """Fit a process by its marginal likelihood: L-BFGS from lengths 1 and noise 0.001, lengths in [0.05, 100]."""
    x, mean, sd = np.sqrt(weights), float(losses.mean()), float(losses.std())
    y = (losses - mean) / sd

    def negative(theta: F64) -> tuple[float, F64]:
        variance, noise, log_lengths = np.exp(theta[0]), np.exp(theta[-1]), theta[1:-1]
        kernel, slope = _matern(_distances(x, x, log_lengths))
        factor = cho_factor(variance * kernel + (noise + 1e-10) * np.eye(len(x)), lower=True)
        alpha = cho_solve(factor, y)
        inner = np.outer(alpha, alpha) - cho_solve(factor, np.eye(len(x)))
        value = -0.5 * y @ alpha - np.log(np.diag(factor[0])).sum() - 0.5 * len(y) * np.log(2 * np.pi)
        both = inner * slope * variance
        z = x / np.exp(log_lengths)
        by_length = both.sum(1) @ (z * z) - np.einsum("ij,ij->j", z, both @ z)
        grad = np.r_[0.5 * (inner * kernel).sum() * variance, by_length, 0.5 * np.trace(inner) * noise]
        return -value, -grad

    k = x.shape[1]
    box = [(np.log(1e-3), np.log(1e3)), *[(np.log(5e-2), np.log(1e2))] * k, (np.log(1e-7), 0.0)]
    start = np.r_[0.0, np.zeros(k), np.log(1e-3)]
    best = minimize(negative, start, jac=True, method="L-BFGS-B", bounds=box, options={"maxiter": iterations}).x
    kernel, _ = _matern(_distances(x, x, best[1:-1]))
    noisy = np.exp(best[0]) * kernel + (np.exp(best[-1]) + 1e-10) * np.eye(len(x))
    return Process(x, cho_solve(cho_factor(noisy, lower=True), y), best[1:-1], (float(np.exp(best[0])), mean, sd))


@dataclass
class Trees:
    """LightGBM with RegMix's settings, kept as text."""

    text: str
    _booster: Any = field(default=None, repr=False)

    def __call__(self, weights: F64) -> F64:
        import lightgbm

        if self._booster is None:
            self._booster = lightgbm.Booster(model_str=self.text)
        return np.asarray(self._booster.predict(weights, num_threads=1))

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "_booster": None}


def fit_trees(weights: F64, losses: F64) -> Trees:
    """Fit all 1000 rounds."""
    from lightgbm import LGBMRegressor

    model = LGBMRegressor(n_estimators=1000, learning_rate=0.01, random_state=42, verbosity=-1, n_jobs=1)
    return Trees(model.fit(weights, losses).booster_.model_to_string())


@dataclass(frozen=True)
class Law:
    """Effective-data law: loss = floor + (common + worth . w) ** -beta."""

    floor: float
    beta: float
    common: float
    worth: F64

    def __call__(self, weights: F64) -> F64:
        result: F64 = self.floor + (self.common + weights @ self.worth) ** -self.beta
        return result


def fit_law(weights: F64, losses: F64, *, ridge: float = 1e-4, starts: int = 6) -> Law:
    """Fit a law by least squares from several starts, with a pull of the log worths towards their mean."""
    k, rng, low = weights.shape[1], np.random.default_rng(0), float(losses.min())

    def error(p: F64) -> tuple[float, F64]:
        floor, beta, common, logs = p[0], np.exp(p[1]), np.exp(p[2]), p[3:]
        worth = np.exp(logs)
        data = common + weights @ worth
        power = data**-beta
        off = floor + power - losses
        by_data = 2 * off / len(losses) * power * -beta / data
        spread = logs - logs.mean()
        by_beta = (2 * off / len(losses) * power * -np.log(data)).sum() * beta
        by_logs = (weights.T @ by_data) * worth + 2 * ridge * spread
        grad = np.r_[2 * off.mean(), by_beta, by_data.sum() * common, by_logs]
        return float(np.mean(off * off) + ridge * spread @ spread), grad

    box = [(0.0, low), (np.log(0.02), np.log(3.0)), *[(-40.0, 40.0)] * (k + 1)]
    best = None
    for start in range(starts):
        floor, beta = low * (0.3 + 0.6 * start / max(starts - 1, 1)), 0.15 + 0.5 * rng.random()
        level = np.log(max(losses.mean() - floor, 1e-2)) / -beta
        p = np.r_[floor, np.log(beta), level - 3, level + 0.5 * rng.standard_normal(k)]
        options = {"maxiter": 800, "maxfun": 1200}
        found = minimize(error, p, jac=True, method="L-BFGS-B", bounds=box, options=options)
        if np.isfinite(found.fun) and (best is None or found.fun < best.fun):
            best = found
    assert best is not None
    return Law(float(best.x[0]), float(np.exp(best.x[1])), float(np.exp(best.x[2])), np.exp(best.x[3:]))


FITS: dict[str, Callable[[F64, F64], Callable[[F64], F64]]] = {"gp": fit_process, "lgbm": fit_trees, "law": fit_law}


# ------------------------------------------------------------------------------------------------------- the simulator
@dataclass(frozen=True)
class Simulator:
    """Losses of mixtures: `names` of the D losses, their `models`, the `noise` of a run (D,), and where it is least."""

    space: Space
    names: tuple[str, ...]
    models: tuple[tuple[Callable[[F64], F64], ...], ...]
    noise: F64
    best_weights: F64
    best: float

    def losses(self, weights: F64) -> F64:
        """Return losses without noise, shape (n, D), of mixtures (n, K); what is over a cap goes to the others."""
        w = self.space.fit(np.atleast_2d(weights))
        return np.stack([np.mean([model(w) for model in models], axis=0) for models in self.models], axis=1)

    def regret(self, weights: F64) -> float:
        """Return the mean loss of a mixture over the least that there is, without noise."""
        return float(self.losses(weights).mean()) - self.best


def simulator(folder: Path, objective: str, kind: str = "blend") -> Simulator:
    """Return the simulator of an objective; `kind` is blend, gp, lgbm or law."""
    path = Path(tempfile.gettempdir()) / f"cuvee-simulator-{FORMAT}-{_digest(folder)}-{objective}-{kind}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())  # written below, by this user
    made = _fitted(folder, objective, PARTS if kind == "blend" else (kind,))
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(pickle.dumps(made))
    fresh.replace(path)
    return made


def _digest(folder: Path) -> str:
    files = sorted((folder / "regmix").glob("*_1m.csv"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _fitted(folder: Path, objective: str, parts: Sequence[str]) -> Simulator:
    w, y, domains, names = load_runs(folder, "train")
    v, z, _, _ = load_runs(folder, "test")
    every, losses = np.r_[w, v], np.r_[y, z]
    chosen = [names.index("pile_cc")] if objective == "pile_cc" else list(range(len(names)))
    off = [np.mean([FITS[part](w, y[:, c])(v) for part in parts], axis=0) - z[:, c] for c in chosen]
    centre = every.mean(axis=0)
    space = Space(domains, upper=np.minimum(1.0, every.max(axis=0) * 1.02 + 1e-3), prior=centre)
    models = tuple(tuple(FITS[part](every, losses[:, c]) for part in parts) for c in chosen)
    partial = Simulator(space, tuple(names[c] for c in chosen), models, np.std(off, axis=1), centre, 0.0)
    weights, best = _optimum(partial, every)
    return Simulator(space, partial.names, models, partial.noise, weights, best)


def _optimum(simulator: Simulator, tried: F64) -> tuple[F64, float]:
    """Return where the mean loss is least: the best of many draws, then shrinking moves from eight of them."""
    rng, space = np.random.default_rng(0), simulator.space
    pool = np.r_[tried, space.sample(60_000, rng)]
    values = simulator.losses(pool).mean(axis=1)
    found: list[tuple[float, F64]] = []
    for start in np.argsort(values)[:8]:
        at, value = pool[start], float(values[start])
        for step in range(40):
            near = space.moves(at, 300, rng, size=0.25 * 0.93**step)
            means = simulator.losses(near).mean(axis=1)
            if means.min() < value:
                at, value = near[means.argmin()], float(means.min())
        found.append((value, at))
    value, at = min(found, key=lambda pair: pair[0])
    return at, value
