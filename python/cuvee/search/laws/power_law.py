"""Chinchilla's law of one loss over parameters and tokens, with repetition, and intervals by bootstrap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from ...checks import as_int
from ...errors import CuveeError
from ..surrogates.surrogate import as_floats
from .numbers import as_column, as_number, check_range
from .repetition import REPEATS, effective_tokens

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..surrogates.surrogate import Floats

STARTS = tuple(product((0.2, 0.5, 0.8), (0.2, 0.4), (0.2, 0.4)))  # floor in least losses, exponents a and b
FEWEST = 6  # runs: one more than parameters
BOUNDS = [(-10.0, 10.0), (-25.0, 10.0), (-25.0, 10.0), (-4.0, 1.0), (-4.0, 1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLaw:
    """loss = E + A N ** -a + B D' ** -b (Hoffmann et al. 2022, equation 2), D' the effective tokens of repeated data.

    Fitted by Huber's loss of the errors of log loss (their equation 3), by L-BFGS from several starts.

    Args:
        huber: where Huber's loss turns from square to linear, in log loss.
        repeats: R* of `effective_tokens`.
        draws: bootstrap samples of whole runs; 0: no intervals.
        seed: of the bootstrap.
    """

    huber: float = 1e-3
    repeats: float = REPEATS
    draws: int = 0
    seed: int = 0

    def fit(
        self, parameters: ArrayLike, tokens: ArrayLike, losses: ArrayLike, *, unique: ArrayLike | None = None
    ) -> PowerModel:
        """Return the law of one loss given finished runs.

        Args:
            parameters: sizes, (n,).
            tokens: tokens trained on, (n,).
            losses: nats, (n,), positive.
            unique: tokens of the data set that each run draws from, (n,); None: nothing repeats.

        Raises:
            CuveeError: if an argument is out of its range, or there are fewer than six runs.
        """
        columns = {"parameters": parameters, "tokens": tokens, "losses": losses}
        table = _table_of({name: as_column(values, name) for name, values in columns.items()})
        draws, seed = as_int(self.draws, "draws", 0, 10**6, CuveeError), as_int(self.seed, "seed", 0, 2**63, CuveeError)
        huber = as_number(self.huber, "huber", "above 0 and at most 1000", low=0, end=1000.0001, open_low=True)
        as_number(self.repeats, "repeats", "positive and finite", low=0, end=math.inf, open_low=True)
        if unique is not None:
            table[:, 1] = _worth(table[:, 1], unique, self.repeats)
        size, count = np.exp(np.log(table[:, :2]).mean(0)).tolist()
        points = np.column_stack([np.log(table[:, 0] / size), np.log(table[:, 1] / count), np.log(table[:, 2])])
        low = float(table[:, 2].min())
        starts = [
            np.array([np.log(low * e), np.log(low / 5), np.log(low / 5), np.log(a), np.log(b)]) for e, a, b in STARTS
        ]
        best = _likeliest(points, starts, huber)
        rng = np.random.default_rng(seed)
        picks = [rng.integers(0, len(points), len(points)) for _ in range(draws)]
        resampled = tuple(_likeliest(points[pick], [best], huber) for pick in picks)
        return PowerModel(size=size, tokens=count, repeats=self.repeats, best=best, resampled=resampled)


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """A law of one loss; vectors hold the logarithms of E, A, B (at N0 and D0), a and b."""

    size: float
    tokens: float
    repeats: float
    best: Floats
    resampled: tuple[Floats, ...]

    @property
    def exponents(self) -> tuple[float, float]:
        """Exponents a and b."""
        return float(np.exp(self.best[3])), float(np.exp(self.best[4]))

    @property
    def floor(self) -> float:
        """E, nats."""
        return float(np.exp(self.best[0]))

    def predict(self, parameters: ArrayLike, tokens: ArrayLike, *, unique: ArrayLike | None = None) -> Floats:
        """Return the losses of such runs, (m,).

        Raises:
            CuveeError: if sizes or tokens are out of their range, or of different shapes.
        """
        return np.exp(_log_losses(self.best, *self._places(parameters, tokens, unique))[0])

    def interval(
        self, parameters: ArrayLike, tokens: ArrayLike, *, unique: ArrayLike | None = None, level: float = 0.9
    ) -> tuple[Floats, Floats]:
        """Return the bootstrap's central interval of the losses' expectation, both ends (m,).

        Raises:
            CuveeError: if `level` is not in (0, 1), or the law was fitted without samples.
        """
        level = as_number(level, "level", "in (0, 1)", low=0, end=1, open_low=True)
        if not self.resampled:
            raise CuveeError("draws must be at least 1 for an interval, but got 0")
        at = self._places(parameters, tokens, unique)
        found = np.array([np.exp(_log_losses(vector, *at)[0]) for vector in self.resampled])
        low, high = np.quantile(found, [0.5 - level / 2, 0.5 + level / 2], axis=0)
        return low, high

    def _places(self, parameters: ArrayLike, tokens: ArrayLike, unique: ArrayLike | None) -> tuple[Floats, Floats]:
        sizes, counts = as_floats(parameters, "parameters"), as_floats(tokens, "tokens")
        try:
            sizes, counts = np.broadcast_arrays(sizes, counts)
        except ValueError:
            raise CuveeError(f"tokens must be as many as parameters, {sizes.shape}, but got {counts.shape}") from None
        check_range(sizes, "parameters")
        check_range(counts, "tokens")
        worth = counts if unique is None else _worth(counts, unique, self.repeats)
        return np.log(sizes / self.size), np.log(worth / self.tokens)


def _table_of(columns: dict[str, Floats]) -> Floats:
    """Return columns of one length as a table of runs, (n, 3)."""
    count = len(columns["parameters"])
    for name, column in columns.items():
        if len(column) != count:
            raise CuveeError(f"{name} must be {count} numbers, as many as parameters, but got {len(column)}")
    if count < FEWEST:
        raise CuveeError(f"runs must be at least {FEWEST}, but got {count}")
    return np.column_stack(list(columns.values()))


def _worth(tokens: Floats, unique: ArrayLike, repeats: float) -> Floats:
    """Return effective tokens of the shape of `tokens`."""
    fresh = as_floats(unique, "unique")
    if fresh.shape not in ((), tokens.shape):
        raise CuveeError(f"unique must be of shape {tokens.shape}, or one number, but got {fresh.shape}")
    worth = effective_tokens(tokens, fresh, repeats=repeats)
    check_range(worth, "effective tokens")
    return worth


def _log_losses(vector: Floats, size: Floats, tokens: Floats) -> tuple[Floats, Floats]:
    """Return log losses (n,) and their derivatives (n, 5) at log(N / N0) and log(D / D0)."""
    floor, capacity, data, a, b = np.exp(vector)
    by_size, by_tokens = capacity * np.exp(-a * size), data * np.exp(-b * tokens)
    loss = floor + by_size + by_tokens
    slopes = np.stack([np.full_like(loss, floor), by_size, by_tokens, -a * size * by_size, -b * tokens * by_tokens], -1)
    return np.log(loss), slopes / loss[..., None]


def _likeliest(points: Floats, starts: list[Floats], huber: float) -> Floats:
    """Return the vector with the least Huber loss of log losses; `points` are log N, log D, log loss, (n, 3)."""
    from scipy.optimize import minimize

    def cost(vector: Floats) -> tuple[float, Floats]:
        values, slopes = _log_losses(vector, points[:, 0], points[:, 1])
        rest = values - points[:, 2]
        away = np.abs(rest)
        total = np.where(away <= huber, 0.5 * rest**2, huber * (away - 0.5 * huber)).sum() / huber**2
        return float(total), slopes.T @ np.clip(rest, -huber, huber) / huber**2

    found = [minimize(cost, start, jac=True, method="L-BFGS-B", bounds=BOUNDS) for start in starts]
    best: Floats = min(found, key=lambda result: float(result.fun)).x
    return best
