"""Weights by how fast losses still fall: rows are taken from sources that have nothing left to learn."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from ..checks import as_int
from ..errors import MixtureError, StateError
from .checks import as_number, checked_state, state_array, state_weights
from .loss_policy import LossPolicy

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MOST = 2**62
MOST_LOSS = 1e100  # larger ones are cut, so that squares stay finite
TINY = 1e-300  # what is below is 0
LEAST_SPREAD = 1e-9  # of the logarithms of rows that a line is put through

SETTINGS = ("warmup", "slow", "power", "rehearse", "least", "memory")  # that a state must be of


class LearningSpeed(LossPolicy):
    """Learning speed: rows are taken from sources that have nothing left to learn, and go to the others.

    Were a source's loss a power law of its own rows, loss = eps + beta * n ** -alpha, then the next row of it would
    lower its loss by speed / n, where

        speed = -d loss / d log n = alpha * (loss - eps) <= alpha * loss

    A source of noise has a low speed, and one that was learned a low loss. Speeds are noisy, and following them where
    they are much alike costs more than it gains. Therefore sources share as their priors say, but for those whose speed
    or loss is below `slow` times the mean:

        ratio = min(speed / sum(prior * speed), loss / sum(prior * loss))
        p     = prior * max(min(1, ratio / slow) ** power, rehearse * fallen / max(fallen), least) / sum(...)

    `fallen` is by how much a source's loss has come down: what was learned is rehearsed, so that it is not lost again.
    The speed is the slope of a line through (log n, lowest smoothed loss so far), in which an update counts by
    (its n / n now) ** memory: the last tenth or so of the rows, however long the run. The lowest one so far, because a
    loss that rises while a source is left out and falls again when it comes back is nothing new.

    The rule is our own. It needs training losses alone; what it was compared with, and where it does not help, is in
    the documentation.

    Args:
        initial: prior, positive, shape (K,); or K, for equal weights.
        warmup: updates at the prior before speeds are known, at least 2.
        slow: part of the mean below which a source is taken to have little left to learn, 0..1.
        power: how sharply its weight then falls, at least 0.
        rehearse: share of its prior that the source keeps whose loss has come down the most, 0..1; others less.
        least: share of its prior that every source keeps, 0..1.
        memory: how fast old losses are forgotten in the slope, at least 1.
        floor: least probability, a number or shape (K,), kept by scaling the others.
        cap: greatest probability, likewise.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    algorithm = "learning_speed"

    def __init__(
        self,
        initial: ArrayLike | int,
        *,
        warmup: int = 2,
        slow: float = 0.25,
        power: float = 3.0,
        rehearse: float = 0.4,
        least: float = 0.02,
        memory: float = 10.0,
        floor: ArrayLike | None = None,
        cap: ArrayLike | None = None,
    ) -> None:
        super().__init__(initial, floor, cap)
        self._warmup = as_int(warmup, "warmup", 2, MOST, MixtureError)
        self._slow = as_number(slow, "slow", 0, 1)
        self._power = as_number(power, "power", 0, 100)
        self._rehearse = as_number(rehearse, "rehearse", 0, 1)
        self._least = as_number(least, "least", 0, 1)
        self._memory = as_number(memory, "memory", 1, 1000)
        self._settings = {name: getattr(self, f"_{name}") for name in SETTINGS}
        self._curve = FallingLoss(self.sources, self._memory)

    @property
    def speeds(self) -> NDArray[np.float64]:
        """Loss lost per unit of log rows, at least 0, float64 of shape (K,); NaN where unknown."""
        return self._curve.speeds()

    def update(self, scores: ArrayLike, counts: ArrayLike | None = None) -> NDArray[np.float64]:
        """Learn from losses and return the new weights, float64 of shape (K,).

        Args:
            scores: training loss per source, shape (K,); what is not finite is not known.
            counts: rows of each source since the last update, integers of shape (K,); a source without rows has no new
                loss. None: every loss is new, and stands for one row.

        Raises:
            StateError: if their shape or dtype is another, or a count negative.
        """
        losses, rows = self._seen(scores, counts)
        self._curve.add(np.clip(losses, -MOST_LOSS, MOST_LOSS), np.where(np.isfinite(losses), rows, 0))
        self.updates += 1
        if self.updates >= self._warmup:
            self._p = self._limited(self._weights())
        return self.probabilities

    def state_dict(self) -> dict[str, Any]:
        """Return all that later updates depend on, as JSON values."""
        return {
            **self._identity(),
            "updates": self.updates,
            "probabilities": self._p.tolist(),
            "curve": self._curve.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            StateError: if it is of another algorithm, K or other settings, or broken.
        """
        checked_state(state, self._identity())
        p = state_weights(state, "probabilities", self.sources)
        updates = as_int(state.get("updates"), "state updates", 0, MOST, StateError)
        curve = FallingLoss(self.sources, self._memory)
        curve.load_state_dict(state.get("curve"))
        self._p, self.updates, self._curve = p, updates, curve

    def _weights(self) -> NDArray[np.float64]:
        """Return the weights that the losses ask for, float64 of shape (K,), sum 1."""
        curve = self._curve
        ratios = np.minimum(self._to_mean(curve.speeds()), self._to_mean(curve.losses()))
        follow = [self._follow(ratio) for ratio in ratios.tolist()]
        fallen = curve.fallen()
        rehearsed = self._rehearse * fallen / max(float(fallen.max()), TINY)
        weights = self._prior * np.maximum(np.maximum(follow, rehearsed), self._least)
        total = math.fsum(weights)
        return weights / total if total > 0 else self._prior

    def _to_mean(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values over their mean by the prior; 1 where one is unknown, and everywhere if the mean is 0."""
        known = np.isfinite(values)
        share = math.fsum(self._prior[known])
        mean = math.fsum((self._prior * values)[known]) / share if share > 0 else 0.0
        return np.where(known, values, mean) / mean if mean > TINY else np.ones(self.sources)

    def _follow(self, ratio: float) -> float:
        if ratio >= self._slow:
            return 1.0
        return _core.power(ratio / self._slow, self._power) if ratio > 0 else 0.0


class FallingLoss:
    """The losses of K sources over their own rows: how far they came down, and how fast they go down now."""

    kept = ("rows", "first", "smooth", "lowest")  # arrays of shape (K,), 0 until a source is seen

    def __init__(self, sources: int, memory: float) -> None:
        self._memory = memory
        self._rows, self._first, self._smooth, self._lowest = (np.zeros(sources) for _ in self.kept)
        self._sums = np.zeros((5, sources))  # weights, x, y, x x and x y of the line

    def add(self, losses: NDArray[np.float64], rows: NDArray[np.int64]) -> None:
        """Add the mean losses of `rows` more rows, float64 and int64 of shape (K,); nothing where there are none."""
        seen, before = rows > 0, self._rows
        new = seen & (before == 0)
        self._rows = before + rows
        self._first = np.where(new, losses, self._first)
        share = rows / np.maximum(rows + before / 4, 1)  # a mean over about the last quarter of the rows
        moved = self._smooth + share * (np.where(seen, losses, self._smooth) - self._smooth)
        self._smooth = np.where(new, losses, moved)
        self._lowest = np.where(new, losses, np.minimum(self._lowest, self._smooth))
        faded = np.maximum(before, 1) / np.maximum(self._rows, 1)
        faded = np.array([_core.power(x, self._memory) for x in faded.tolist()])
        x = np.array([_core.log(n) for n in np.maximum(before + rows / 2, 1).tolist()])
        y = self._lowest
        self._sums = self._sums * faded + rows * np.stack([np.ones_like(x), x, y, x * x, x * y])

    def speeds(self) -> NDArray[np.float64]:
        """Return -d lowest / d log rows, at least 0, float64 of shape (K,); NaN with less than two points."""
        weight, x, y, xx, xy = self._sums
        weight = np.where(weight > 0, weight, 1)
        spread = xx - x * x / weight
        enough = spread > LEAST_SPREAD * weight
        return np.where(enough, np.maximum((x * y / weight - xy) / np.where(enough, spread, 1), 0), np.nan)

    def losses(self) -> NDArray[np.float64]:
        """Return the lowest smoothed losses, at least 0, float64 of shape (K,); NaN of sources not seen."""
        return np.where(self._rows > 0, np.maximum(self._lowest, 0), np.nan)

    def fallen(self) -> NDArray[np.float64]:
        """Return by how much the losses came down in all, at least 0, float64 of shape (K,)."""
        return self._first - self._lowest

    def state_dict(self) -> dict[str, Any]:
        """Return the sums, as JSON values."""
        return {**{name: getattr(self, f"_{name}").tolist() for name in self.kept}, "sums": self._sums.tolist()}

    def load_state_dict(self, state: Any) -> None:
        """Go on where `state` was taken; StateError if it is broken."""
        if not isinstance(state, Mapping):
            raise StateError(f"state curve must be a mapping, but got {state!r:.60}")
        sources = self._sums.shape[1]
        arrays = [state_array(state, name, (sources,)) for name in self.kept]
        sums = state_array(state, "sums", (5, sources))
        if (arrays[0] < 0).any() or (sums[0] < 0).any() or any((np.abs(each) > MOST_LOSS).any() for each in arrays[1:]):
            raise StateError(f"state curve must be of rows at least 0 and losses up to {MOST_LOSS}, but got others")
        self._rows, self._first, self._smooth, self._lowest = arrays
        self._sums = sums
