"""What every model of losses over the simplex is: `fit` gives a model, and a model predicts means and deviations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ...errors import CuveeError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

LEAST_SPREAD = 1e-9  # of a loss, below which all runs are taken to be equal


class Model(Protocol):
    """Losses as a function of the mixture, fitted to runs."""

    def predict(self, weights: ArrayLike) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation of the noise-free losses, both float64 of shape (m, D), in nats.

        Args:
            weights: mixtures, shape (m, K).
        """


class Surrogate(Protocol):
    """A way of fitting; holds options only, so that one object may fit any number of tables."""

    def fit(self, weights: ArrayLike, losses: ArrayLike, *, noise: ArrayLike | None = None) -> Model:
        """Return the model of these runs.

        Args:
            weights: mixtures, shape (n, K), each row of sum 1.
            losses: their losses in nats, shape (n, D); all finite.
            noise: known standard deviations of the losses' noise in nats, a number or shape (D,); None: estimated.
        """


def as_floats(values: ArrayLike, name: str) -> Floats:
    """Return values as float64.

    Raises:
        CuveeError: they are no numbers, or rows of different lengths.
    """
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise CuveeError(f"{name} must be numbers, but got {values!r:.200}") from None


def as_table(weights: ArrayLike, losses: ArrayLike) -> tuple[Floats, Floats]:
    """Return the runs as float64 arrays of shapes (n, K) and (n, D).

    Raises:
        CuveeError: if a shape is wrong, a row of weights is no mixture, or a loss is not finite.
    """
    mixtures = as_mixtures(weights)
    table = as_floats(losses, "losses")
    if table.ndim != 2 or len(table) != len(mixtures) or not table.size:
        raise CuveeError(f"losses must be of shape ({len(mixtures)}, D), a row for each run, but got {table.shape}")
    if not np.isfinite(table).all():
        run, loss = np.argwhere(~np.isfinite(table))[0].tolist()
        raise CuveeError(
            f"losses must be finite, but got {table[run, loss]} in run {run}, loss {loss}; leave the run out"
        )
    return mixtures, table


def as_mixtures(weights: ArrayLike, domains: int | None = None) -> Floats:
    """Return mixtures as a float64 array of shape (n, K).

    Raises:
        CuveeError: if they are not of that shape, or a row is negative or does not sum to 1.
    """
    mixtures = as_floats(weights, "weights")
    if mixtures.ndim != 2 or not mixtures.size or (domains is not None and mixtures.shape[1] != domains):
        raise CuveeError(f"weights must be of shape (runs, {domains or 'K'}), but got {mixtures.shape}")
    good = np.isfinite(mixtures).all(1) & (mixtures >= 0).all(1)
    good &= np.abs(np.where(np.isfinite(mixtures), mixtures, 0).sum(1) - 1) <= 1e-6
    if not good.all():
        row = int(np.argmin(good))
        raise CuveeError(f"weights must be at least 0 and of sum 1, but got {mixtures[row].tolist()} in row {row}")
    return mixtures


def as_noise(noise: ArrayLike | None, losses: int) -> Floats | None:
    """Return the noise of each loss as float64 of shape (D,), or None.

    Raises:
        CuveeError: if it is not positive and finite, or of another shape.
    """
    if noise is None:
        return None
    given = as_floats(noise, "noise")
    if given.shape not in ((), (losses,)) or not (np.isfinite(given) & (given > 0)).all():
        raise CuveeError(f"noise must be positive numbers, one or {losses}, but got {noise!r}")
    return np.broadcast_to(given, (losses,)).copy()


def scales(losses: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of each loss over the runs, shape (D,) each; a deviation of 0 becomes 1."""
    spread = losses.std(0)
    return losses.mean(0), np.where(spread > LEAST_SPREAD, spread, 1.0)
