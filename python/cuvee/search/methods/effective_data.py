"""Effective-data laws with diminishing returns, one a loss, all fitted at once: what `auto` believes of losses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

CONCAVITY = 0.65  # power of a share: the second per cent of a domain is worth less than the first
OWN_WORTH = (0.0, 0.5)  # log worth of data of the domain that a loss is measured on: mean and sd, a priori
FOREIGN_WORTH = (-4.0, 1.5)  # of other domains' data
UNKNOWN_WORTH = (-1.5, 1.5)  # of any, where it is not known what a loss is measured on
EXPONENT = (-1.4, 0.5)  # log beta: 0.25 times or divided by 1.6
SCALE_SD, FLOOR_SD = 1.0, 3.0  # of log A; of E, in sd of the losses
FIRST_NOISE = (0.05, 0.3)  # in nats; in sd of the losses, if that is less
NOISE_RUNS = 4.0  # that this guess counts for
STEPS = 25  # of Levenberg and Marquardt
NOISE_STEPS = (6, 11, 16, 20)  # after which noise is estimated anew
LONGEST_STEP = 1.5
LOGS = (-12.0, 8.0)  # in which logarithms are searched
FIXED = 3  # parameters before the worths: E, log A, log beta


@dataclass(frozen=True, slots=True, kw_only=True)
class Laws:
    """For each of D losses a law of the mixture w and a normal prior of its P = K + 3 parameters.

        loss(w) = E + A * (sum_j worth_j * w_j ** 0.65) ** -beta

    Attributes:
        mode: E, log A, log beta and K log worths at the posterior's mode, shape (D, P).
        mean, sd: of the parameters a priori, shape (D, P).
        noise: standard deviation of a full run around the law, shape (D,).
    """

    mode: F64
    mean: F64
    sd: F64
    noise: F64

    def losses(self, weights: F64) -> F64:
        """Return the losses of mixtures (m, K) at the mode, shape (D, m)."""
        return _values(self.mode, weights**CONCAVITY)

    def slopes(self, weights: F64) -> F64:
        """Return derivatives of the losses by the parameters at the mode, shape (D, m, P)."""
        return _slopes(self.mode, weights**CONCAVITY)

    @property
    def offset(self) -> F64:
        """How far the mode is from the prior's mean, shape (D, P)."""
        return self.mode - self.mean


def fit_laws(weights: F64, losses: F64, own: NDArray[np.bool_], variances: F64) -> Laws:
    """Return the laws of the greatest posterior density, by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963).

    Args:
        weights: mixtures, shape (n, K).
        losses: shape (n, D).
        own: whether a loss is measured on a domain, shape (D, K); a row of False where that is not known.
        variances: of each run's noise, in those of a full run, shape (n,).
    """
    saturated, table = weights**CONCAVITY, losses.T
    spread = np.maximum(table.std(axis=1), 1e-6 + 1e-3 * np.abs(table).max(axis=1))
    mean, sd = _prior(saturated, table, own, spread)
    first = np.minimum(FIRST_NOISE[0], FIRST_NOISE[1] * spread)
    mode, noise, damping = mean.copy(), first, np.full(len(table), 1e-2)

    def cost(p: F64) -> F64:
        off = (table - _values(p, saturated)) / noise[:, None]
        result: F64 = (off * off / variances).sum(axis=1) + (((p - mean) / sd) ** 2).sum(axis=1)
        return result

    now = cost(mode)
    for step in range(STEPS):
        slopes = _slopes(mode, saturated)
        scaled = slopes / (noise[:, None] * np.sqrt(variances))[:, :, None]
        off = (table - _values(mode, saturated)) / (noise[:, None] * np.sqrt(variances))
        normal = scaled.swapaxes(1, 2) @ scaled + _diagonal(1 / sd**2)
        side = (scaled.swapaxes(1, 2) @ off[:, :, None])[:, :, 0] - (mode - mean) / sd**2
        if step in NOISE_STEPS:
            noise = _noise(off * noise[:, None], scaled, normal, first)
            now = cost(mode)
            continue
        moved = _moved(
            mode, np.linalg.solve(normal + _diagonal(damping[:, None] * _diagonals(normal)), side[:, :, None])
        )
        then = cost(moved)
        better = then <= now  # false for NaN
        mode = np.where(better[:, None], moved, mode)
        damping = np.where(better, 0.3 * damping, np.minimum(8 * damping, 1e6))
        now = np.where(better, then, now)
    return Laws(mode=mode, mean=mean, sd=sd, noise=noise)


def _prior(saturated: F64, table: F64, own: NDArray[np.bool_], spread: F64) -> tuple[F64, F64]:
    """Return mean and standard deviation of the parameters: worths as above, levels such that they fit the runs."""
    losses, domains = own.shape
    known = np.asarray(own.any(axis=1), dtype=np.intp)
    other = np.array([UNKNOWN_WORTH, FOREIGN_WORTH])[known][:, None, :]
    worth = np.asarray(np.where(own[:, :, None], OWN_WORTH, other))
    mean, sd = np.empty((losses, FIXED + domains)), np.empty((losses, FIXED + domains))
    mean[:, FIXED:], sd[:, FIXED:] = worth[:, :, 0], worth[:, :, 1]
    mean[:, 2], sd[:, 2] = EXPONENT
    power = (np.exp(mean[:, FIXED:]) @ saturated.T) ** -np.exp(mean[:, 2:3])
    off = power - power.mean(axis=1, keepdims=True)
    rise = (off * table).sum(axis=1) / np.maximum((off * off).sum(axis=1), 1e-12)
    scale = np.maximum(rise, 0.1 * spread / np.maximum(power.std(axis=1), 0.05 * power.mean(axis=1)))
    mean[:, 0], sd[:, 0] = table.mean(axis=1) - scale * power.mean(axis=1), FLOOR_SD * spread
    mean[:, 1], sd[:, 1] = np.log(scale), SCALE_SD
    return mean, sd


def _noise(off: F64, scaled: F64, normal: F64, first: F64) -> F64:
    """Return the noise of each loss from what is left over, and the degrees of freedom that the law took."""
    taken = np.einsum("dnp,dpn->d", scaled, np.linalg.solve(normal, scaled.swapaxes(1, 2)))
    left = np.maximum(off.shape[1] - taken, 0)
    result: F64 = np.sqrt((NOISE_RUNS * first**2 + (off * off).sum(axis=1)) / (NOISE_RUNS + left))
    return result


def _moved(mode: F64, step: F64) -> F64:
    step = step[:, :, 0]
    moved: F64 = mode + np.concatenate([step[:, :1], np.clip(step[:, 1:], -LONGEST_STEP, LONGEST_STEP)], axis=1)
    moved[:, 1:] = np.clip(moved[:, 1:], *LOGS)
    return moved


def _values(p: F64, saturated: F64) -> F64:
    data = np.exp(p[:, FIXED:]) @ saturated.T
    result: F64 = p[:, :1] + np.exp(p[:, 1:2] - np.exp(p[:, 2:3]) * np.log(data))
    return result


def _slopes(p: F64, saturated: F64) -> F64:
    worth, beta = np.exp(p[:, FIXED:]), np.exp(p[:, 2:3])
    data = worth @ saturated.T
    logs = np.log(data)
    fall = np.exp(p[:, 1:2] - beta * logs)
    levels = np.stack([np.ones_like(fall), fall, -fall * logs * beta], axis=2)
    worths = (-fall * beta / data)[:, :, None] * saturated * worth[:, None, :]
    return np.concatenate([levels, worths], axis=2)


def _diagonal(values: F64) -> F64:
    result: F64 = values[:, :, None] * np.eye(values.shape[1])
    return result


def _diagonals(matrices: F64) -> F64:
    return np.diagonal(matrices, axis1=1, axis2=2)
