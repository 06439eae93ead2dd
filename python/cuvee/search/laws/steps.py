"""Losses of proxy runs extrapolated to the steps of the target: one curve for all mixtures, intervals by bootstrap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...checks import as_int
from ...errors import CuveeError
from ..surrogates.surrogate import as_floats
from .numbers import LEAST, MOST, as_number, check_range

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..surrogates.surrogate import Floats

EXPONENTS = np.exp(np.linspace(np.log(0.05), np.log(2.0), 40))
PRIOR = (float(np.log(0.4)), 0.7)  # of the exponent's logarithm
FEWEST = 3  # checkpoints of a run
FAITH = 0.5  # in a run's own height: the errors of its checkpoints are alike, which their scatter does not show


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLaw:
    """One exponent for each loss, floors and heights for each run m (Data Mixing Laws, Ye et al. 2024, section 3).

        loss_mi(t) = E_mi + B_mi t ** -b_i

    The exponent is the best of a grid under a broad prior, E and B follow in closed form. A short run tells its own
    height B poorly, so heights are drawn to their mean over runs, by as much as their noise explains their spread
    (one-way random effects; Efron, Morris 1973): what differs between mixtures is then mostly the level at which they
    run, averaged over all their checkpoints.

    Args:
        burn_in: first share of every run that is left out, 0..1, 1 excluded.
        draws: bootstrap samples, of whole checkpoints; 0: no deviations.
        seed: of the bootstrap.
    """

    burn_in: float = 0.2
    draws: int = 100
    seed: int = 0

    def fit(self, steps: ArrayLike, losses: ArrayLike) -> StepModel:
        """Return the law given the losses of M runs at the same T checkpoints.

        Args:
            steps: steps or tokens, positive and increasing, (T,).
            losses: nats, (M, T, D), positive.

        Raises:
            CuveeError: if an argument is out of its range, or fewer than three checkpoints are left.
        """
        times, table = as_floats(steps, "steps"), as_floats(losses, "losses")
        if times.ndim != 1 or not len(times) or not (times > 0).all() or not (np.diff(times) > 0).all():
            raise CuveeError(f"steps must be positive and increasing, but got {steps!r:.200}")
        check_range(times, "steps")
        if table.ndim != 3 or table.shape[1] != len(times) or not table.size:
            raise CuveeError(f"losses must be positive and of shape (M, {len(times)}, D), but got shape {table.shape}")
        check_range(table, "losses")
        burn_in = as_number(self.burn_in, "burn_in", "in [0, 1)", low=0, end=1)
        draws, seed = as_int(self.draws, "draws", 0, 10**6, CuveeError), as_int(self.seed, "seed", 0, 2**63, CuveeError)
        late = times >= burn_in * times[-1] * (1 - 1e-12)  # whatever the unit of steps rounds to
        if late.sum() < FEWEST:
            raise CuveeError(f"checkpoints after the burn-in must be at least {FEWEST}, but got {late.sum()}")
        times, table = times[late], table[:, late]
        rng = np.random.default_rng(seed)
        best = _fit(times, table, np.ones(len(times)))
        counts = [rng.multinomial(len(times), np.full(len(times), 1 / len(times))) for _ in range(draws)]
        # a resample of one or two checkpoints has no curve: every one keeps a little weight
        resampled = tuple(_fit(times, table, np.asarray(0.05 + count, dtype=np.float64)) for count in counts)
        return StepModel(last=float(times[-1]), best=best, resampled=resampled)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepModel:
    """Curves of M runs and D losses, and of the bootstrap's samples."""

    last: float
    best: tuple[Floats, Floats, Floats]  # floors (M, D), heights (M, D), exponents (D,), of steps / last
    resampled: tuple[tuple[Floats, Floats, Floats], ...]

    @property
    def exponents(self) -> Floats:
        """Exponents b of the losses, (D,)."""
        return self.best[2].copy()

    def predict(self, target_steps: float) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the losses at `target_steps`, both (M, D); no samples, no deviation."""
        samples = self.samples(target_steps)
        mean = _at(self.best, target_steps / self.last)
        return mean, samples.std(0) if len(samples) else np.zeros_like(mean)

    def samples(self, target_steps: float) -> Floats:
        """Return the losses at `target_steps` of every bootstrap sample, (draws, M, D).

        A sample takes the same checkpoints of all runs, so that differences between runs are sharper than losses.

        Raises:
            CuveeError: if `target_steps` is not positive and finite.
        """
        rule = f"positive and finite, in [{LEAST:g}, {MOST:g}]"
        target_steps = as_number(target_steps, "target_steps", rule, low=LEAST, end=np.nextafter(MOST, np.inf))
        found = [_at(curves, target_steps / self.last) for curves in self.resampled]
        return np.array(found).reshape(len(found), *self.best[0].shape)

    def better(self, target_steps: float, first: int, second: int) -> float:
        """Return the share of samples in which run `first` has the lower mean loss at `target_steps`, 0..1; ties half.

        Raises:
            CuveeError: also if the law was fitted without samples, or has no such run.
        """
        runs = len(self.best[0])
        first, second = as_int(first, "first", 0, runs, CuveeError), as_int(second, "second", 0, runs, CuveeError)
        means = self.samples(target_steps).mean(2)
        if not len(means):
            raise CuveeError("draws must be at least 1 to compare runs, but got 0")
        difference = means[:, second] - means[:, first]
        return float(np.mean((difference > 0) + 0.5 * (difference == 0)))


def _at(curves: tuple[Floats, Floats, Floats], time: float) -> Floats:
    floors, heights, exponents = curves
    losses: Floats = floors + heights * time**-exponents
    return losses


def _fit(times: Floats, table: Floats, counts: Floats) -> tuple[Floats, Floats, Floats]:
    """Return floors, heights and exponents; `counts` (T,) says how much each checkpoint counts."""
    fits = [_lines((times / times[-1]) ** -b, table, counts / counts.sum()) for b in EXPONENTS]
    misfit = np.array([rest for _, _, rest in fits])  # (exponents, D)
    scale = np.maximum(misfit.min(0), 1e-18)
    # What a checkpoint is off by is common to all runs, which share text and schedule: they count as one.
    doubt = len(times) * misfit / scale + (((np.log(EXPONENTS) - PRIOR[0]) / PRIOR[1]) ** 2)[:, None]
    best = np.argmin(doubt, axis=0)
    floors = np.stack([fits[choice][0][:, loss] for loss, choice in enumerate(best)], 1)
    heights = np.stack([fits[choice][1][:, loss] for loss, choice in enumerate(best)], 1)
    return floors, heights, EXPONENTS[best]


def _lines(curve: Floats, table: Floats, shares: Floats) -> tuple[Floats, Floats, Floats]:
    """Return floors and heights (M, D) of E + B curve, and the mean square left over (D,); `shares` (T,) sum to 1."""
    runs, count, _ = table.shape
    middle = shares @ curve
    centred = curve - middle
    level = np.einsum("t,mtd->md", shares, table)
    room = max(float(shares @ centred**2), 1e-300)
    slopes = np.einsum("t,mtd->md", shares * centred, table) / room
    rest = table - level[:, None] - slopes[:, None] * centred[:, None]
    noise = np.einsum("t,mtd->d", shares, rest**2) / runs * count / (count - 2)  # of a checkpoint
    between = slopes.var(0, ddof=1) if runs > 1 else np.zeros_like(noise)
    with np.errstate(over="ignore"):  # of runs that are all the same, noise explains everything
        own = np.clip(1 - noise / (count * room) / np.maximum(between, 1e-300), 0, 1) if runs > 1 else 1.0
    heights = np.maximum(slopes.mean(0) + FAITH * own * (slopes - slopes.mean(0)), 0)
    rest = table - level[:, None] - heights[:, None] * centred[:, None]
    return level - heights * middle, heights, np.einsum("t,mtd->d", shares, rest**2) / runs
