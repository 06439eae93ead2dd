"""Gaussian process on the square roots of the weights, one length a domain: the best interpolator of many runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from .surrogate import as_mixtures, as_noise, as_table, scales

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from .surrogate import Floats

JITTER = 1e-8
AMPLITUDES = (1e-3, 1e3)  # variance of the process, in variances of the loss
LENGTHS = (5e-2, 1e2)
NOISES = (1e-7, 1.0)  # variance of the noise, in variances of the loss


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProcess:
    """Matern-5/2 on sqrt(w) with a length for each domain, by marginal likelihood (Rasmussen, Williams 2006, 5.4.1).

        k(w, v) = s (1 + r + r**2 / 3) exp(-r),     r**2 = 5 sum_k (sqrt(w_k) - sqrt(v_k))**2 / length_k**2

    Every loss has its own amplitude s, lengths and noise. Square roots, because a domain's first per cent is worth more
    than its last, and because they make mixtures points of a sphere.

    Args:
        shared: one set of lengths for all losses, which is what few runs can tell.
        iterations: most steps of L-BFGS.
    """

    shared: bool = False
    iterations: int = 80

    def fit(self, weights: ArrayLike, losses: ArrayLike, *, noise: ArrayLike | None = None) -> Process:
        """Return the process given the runs; arguments and errors as `Surrogate.fit` has them."""
        mixtures, table = as_table(weights, losses)
        centre, spread = scales(table)
        sigma = as_noise(noise, table.shape[1])
        return fitted(
            np.sqrt(mixtures),
            (table - centre) / spread,
            noise=None if sigma is None else (sigma / spread) ** 2,
            groups=[range(table.shape[1])] if self.shared else [[loss] for loss in range(table.shape[1])],
            iterations=self.iterations,
        ).scaled(centre, spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Processes given runs; `length` is (D, K), `amplitude`, `noise` (variances), `centre` and `spread` are (D,)."""

    inputs: Floats  # (n, K), square roots
    length: Floats
    amplitude: Floats
    noise: Floats
    solved: Floats  # (D, n): inverse covariance times the standardised losses
    factor: Floats  # (D, n, n): inverse of the lower Cholesky factor of the covariance
    centre: Floats
    spread: Floats

    def predict(self, weights: ArrayLike) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the noise-free losses, both (m, D)."""
        points = np.sqrt(as_mixtures(weights, self.inputs.shape[1]))
        mean, variance = np.empty((2, len(points), len(self.centre)))
        for loss, length in enumerate(self.length):
            cross = self.amplitude[loss] * matern(distances(points / length, self.inputs / length))
            mean[:, loss] = cross @ self.solved[loss]
            variance[:, loss] = self.amplitude[loss] - ((cross @ self.factor[loss].T) ** 2).sum(1)
        return self.centre + self.spread * mean, self.spread * np.sqrt(np.maximum(variance, 0))

    def scaled(self, centre: Floats, spread: Floats) -> Process:
        """Return the process of losses that were standardised by these, shape (D,) each."""
        parts = {name: getattr(self, name) for name in ("inputs", "length", "amplitude", "noise", "solved", "factor")}
        return Process(**parts, centre=centre, spread=spread)


def fitted(
    inputs: Floats, targets: Floats, *, noise: Floats | None, groups: list[range] | list[list[int]], iterations: int
) -> Process:
    """Return processes of standardised targets (n, D); each group of losses has its lengths in common."""
    losses, domains = targets.shape[1], inputs.shape[1]
    length, amplitude, level = np.empty((losses, domains)), np.empty(losses), np.empty(losses)
    for group in groups:
        members = list(group)
        known = None if noise is None else noise[members]
        length[members], amplitude[members], level[members] = likeliest(inputs, targets[:, members], known, iterations)
    solved, factor = np.empty((losses, len(inputs))), np.empty((losses, len(inputs), len(inputs)))
    for loss in range(losses):
        kernel = amplitude[loss] * matern(distances(inputs / length[loss], inputs / length[loss]))
        factor[loss] = inverse_factor(kernel, level[loss])
        solved[loss] = factor[loss].T @ (factor[loss] @ targets[:, loss])
    parts = {"inputs": inputs, "length": length, "amplitude": amplitude, "noise": level}
    return Process(**parts, solved=solved, factor=factor, centre=np.zeros(losses), spread=np.ones(losses))


def likeliest(inputs: Floats, targets: Floats, noise: Floats | None, iterations: int) -> tuple[Floats, Floats, Floats]:
    """Return the lengths (K,), amplitudes (D,) and noises (D,) of largest marginal likelihood."""
    from scipy.optimize import minimize

    domains, losses = inputs.shape[1], targets.shape[1]
    start = np.concatenate([np.zeros(domains + losses), np.full(losses, np.log(1e-3))])
    bounds = [LENGTHS] * domains + [AMPLITUDES] * losses + [NOISES] * losses
    limits = [(float(np.log(low)), float(np.log(high))) for low, high in bounds]
    if noise is not None:
        start[domains + losses :] = np.clip(np.log(noise), *limits[-1])
        limits[domains + losses :] = [(value, value) for value in start[domains + losses :].tolist()]
    squares = (inputs[:, None, :] - inputs[None, :, :]) ** 2
    found = minimize(
        evidence,
        start,
        args=(squares, targets),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"maxiter": iterations},
    ).x
    return np.exp(found[:domains]), np.exp(found[domains : domains + losses]), np.exp(found[domains + losses :])


def evidence(logs: Floats, squares: Floats, targets: Floats) -> tuple[float, Floats]:
    """Return minus the log marginal likelihood, summed over losses, and its gradient in the logarithms.

    Args:
        logs: logarithms of K lengths, D amplitudes, D noise variances.
        squares: squared differences of the inputs, (n, n, K).
        targets: standardised losses, (n, D).
    """
    domains, losses = squares.shape[2], targets.shape[1]
    runs = len(targets)
    weight = np.exp(-2 * logs[:domains])
    r = np.sqrt(5 * np.maximum(squares @ weight, 0))
    correlation, slope = matern(r), (5 / 3) * (1 + r) * np.exp(-r)  # d correlation / d log length_k = slope * d2_k
    total, gradient, pull = 0.0, np.zeros_like(logs), np.zeros((runs, runs))
    for loss in range(losses):
        amplitude, noise = np.exp(logs[domains + loss]), np.exp(logs[domains + losses + loss])
        factor = inverse_factor(amplitude * correlation, noise)
        inverse = factor.T @ factor
        solved = inverse @ targets[:, loss]
        total += 0.5 * float(targets[:, loss] @ solved) - float(np.log(np.diag(factor)).sum())
        error = 0.5 * (inverse - np.outer(solved, solved))  # derivative by the covariance
        gradient[domains + loss] = amplitude * float((error * correlation).sum())
        gradient[domains + losses + loss] = noise * float(np.trace(error))
        pull += amplitude * error * slope
    gradient[:domains] = np.tensordot(pull, squares, axes=2) * weight
    return total, gradient


def inverse_factor(kernel: Floats, noise: float) -> Floats:
    """Return the inverse of the lower Cholesky factor of kernel + noise, (n, n)."""
    from scipy.linalg import cholesky, solve_triangular

    size = len(kernel)
    covariance = kernel + (noise + JITTER * (1 + kernel[0, 0])) * np.eye(size)
    inverse: Floats = solve_triangular(cholesky(covariance, lower=True), np.eye(size), lower=True)
    return inverse


def distances(left: Floats, right: Floats) -> Floats:
    """Return sqrt(5) times the Euclidean distances between rows, (len(left), len(right))."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2 * left @ right.T
    result: Floats = np.sqrt(5 * np.maximum(squares, 0))
    return result


def matern(r: Floats) -> Floats:
    """Return the Matern-5/2 correlation at r, distances times sqrt(5)."""
    result: Floats = (1 + r + r * r / 3) * np.exp(-r)
    return result
