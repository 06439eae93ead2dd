"""Adaptive data optimisation: a scaling law for each source's loss says where training learns fastest."""

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

MOST_POINTS = 128  # of the loss curves that are kept; then neighbours are merged
FEWEST_POINTS = 4  # that a law is fitted to
EXPONENTS = tuple(round(0.08 * step, 2) for step in range(1, 11))  # alpha on a grid: 0.08, 0.16, ..., 0.8
REFINEMENTS = (0.04, 0.02, 0.01, 0.005, 0.0025)  # steps from the best of the grid
HUBER = 1e-3  # of the logarithm: larger errors count in proportion, not squared
ROUNDS = 6  # of lines fitted, for each alpha
LEAST_EXPONENT = 0.05  # in the speed of learning
MOST_LOSS = 1e100  # larger ones are cut, and those below its inverse, so that squares stay finite
MOST = 2**62

SETTINGS = ("warmup", "refit", "ignore", "credit", "history", "newest", "least")  # that a state must be of


class ADO(LossPolicy):
    """Adaptive data optimisation (Jiang, Zhou, Feng, Malladi, Kolter 2024, algorithm 1).

    For each source a power law of the rows n that the run has trained on, over all sources, is fitted to its loss:

        loss(n) = eps + beta * n ** -alpha,      speed(n) = alpha * (loss(n) - eps) / n

    Sources are preferred by prior, by how much they were given lately (credit) and by how fast they are learned:

        h <- history * h + (1 - history) * rows / sum(rows)
        rho = prior * h ** credit * speed / sum(...), raised to `least`
        p = newest * rho + (1 - newest) * mean of rho so far

    The law minimises Huber's loss of the logarithm's error, its bend at 1e-3, as the authors' program does by L-BFGS:
    here alpha is sought on a grid that gets finer, and eps and beta by lines fitted again and again, so that the bits
    are the same on every machine. In the speed alpha is at least 0.05, as in that program. The loss curves kept are of
    at most 128 points, so that the state does not grow with the run.

    Args:
        initial: prior, the sources' natural shares, positive, shape (K,); or K, for equal ones.
        warmup: updates before the first fit, at the prior.
        refit: updates from fit to fit.
        ignore: first updates that no law is fitted to.
        credit: power of the recent shares, 0..1.
        history: decay of the recent shares, 0..1, 1 excluded.
        newest: share of the newest preference in the weights, 0..1.
        least: least preference of a source; at most 1 / (2 K) is used.
        floor: least probability, a number or shape (K,), kept by scaling the others.
        cap: greatest probability, likewise.

    Raises:
        MixtureError: naming the argument that is out of its range.
    """

    algorithm = "ado"

    def __init__(
        self,
        initial: ArrayLike | int,
        *,
        warmup: int = 50,
        refit: int = 10,
        ignore: int = 10,
        credit: float = 0.5,
        history: float = 0.9,
        newest: float = 0.1,
        least: float = 0.01,
        floor: ArrayLike | None = None,
        cap: ArrayLike | None = None,
    ) -> None:
        super().__init__(initial, floor, cap)
        self._warmup = as_int(warmup, "warmup", 1, MOST, MixtureError)
        self._refit = as_int(refit, "refit", 1, MOST, MixtureError)
        self._ignore = as_int(ignore, "ignore", 0, self._warmup, MixtureError)
        self._credit = as_number(credit, "credit", 0, 1)
        self._history = as_number(history, "history", 0, math.nextafter(1, 0))
        self._newest = as_number(newest, "newest", 0, 1)
        self._least = min(as_number(least, "least", 0, 1), 0.5 / self.sources)
        self._settings = {name: getattr(self, f"_{name}") for name in SETTINGS}
        self._recent = self._prior.copy()
        self._mean = self._prior.copy()
        self._laws: NDArray[np.float64] | None = None  # (3, K): eps, beta, alpha; NaN where there is none
        self._curve = LossCurve(self.sources)
        self._rows = 0

    @property
    def laws(self) -> NDArray[np.float64]:
        """eps, beta and alpha per source, float64 of shape (3, K); NaN where there is no law."""
        return np.full((3, self.sources), np.nan) if self._laws is None else self._laws.copy()

    def update(self, scores: ArrayLike, counts: ArrayLike | None = None) -> NDArray[np.float64]:
        """Learn from losses and return the new weights, float64 of shape (K,).

        Args:
            scores: training loss per source, shape (K,); what is not finite and positive is not known.
            counts: rows of each source since the last update, integers of shape (K,); a source without rows has no new
                loss. None: every loss is new, and stands for one row.

        Raises:
            StateError: if their shape or dtype is another, or a count negative.
        """
        losses, rows = self._seen(scores, counts)
        given = int(rows.sum())
        self._rows += given
        if given:
            self._recent = self._history * self._recent + (1 - self._history) * (rows / given)
        if self.updates >= self._ignore and self._rows:
            known = (rows > 0) & (losses > 0) & np.isfinite(losses)
            self._curve.add(self._rows, np.where(known, np.clip(losses, 1 / MOST_LOSS, MOST_LOSS), np.nan))
        self.updates += 1
        if self.updates >= self._warmup and (self.updates - self._warmup) % self._refit == 0:
            laws = self._curve.fit()
            if np.isfinite(laws).any():
                self._laws = laws
        if self._laws is not None:
            self._prefer(self._laws)
        return self.probabilities

    def state_dict(self) -> dict[str, Any]:
        """Return all that later updates depend on, as JSON values."""
        laws = None
        if self._laws is not None:
            laws = [[None if math.isnan(value) else value for value in row] for row in self._laws.tolist()]
        return {
            **self._identity(),
            "updates": self.updates,
            "rows": self._rows,
            "probabilities": self._p.tolist(),
            "recent": self._recent.tolist(),
            "mean": self._mean.tolist(),
            "laws": laws,
            "curve": self._curve.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken.

        Raises:
            StateError: if it is of another algorithm, K or other settings, or broken.
        """
        checked_state(state, self._identity())
        p, recent, mean = (state_weights(state, name, self.sources) for name in ("probabilities", "recent", "mean"))
        curve = LossCurve(self.sources)
        curve.load_state_dict(state.get("curve"))
        laws = _laws_of(state.get("laws"), self.sources)
        updates = as_int(state.get("updates"), "state updates", 0, MOST, StateError)
        self._rows = as_int(state.get("rows"), "state rows", 0, MOST, StateError)
        self._p, self._recent, self._mean = p, recent, mean
        self._curve, self._laws, self.updates = curve, laws, updates

    def _prefer(self, laws: NDArray[np.float64]) -> None:
        """Set the weights by the speeds of learning that the laws give."""
        _, beta, alpha = laws
        log_n = _core.log(self._rows)
        falling = np.array([_core.exp(-a * log_n) for a in np.nan_to_num(alpha).tolist()])
        speed = np.maximum(alpha, LEAST_EXPONENT) * beta * falling / self._rows
        known = np.isfinite(speed)
        speed[~known] = math.fsum(speed[known]) / max(1, known.sum())  # of the others, until it has a law
        rho = self._prior * power(self._recent, self._credit) * speed
        total = math.fsum(rho)
        rho = rho / total if total > 0 else self._prior.copy()  # no loss falls any more
        rho = np.maximum(rho, self._least)
        rho /= math.fsum(rho)
        p = self._newest * rho + (1 - self._newest) * self._mean
        self._mean += (rho - self._mean) / (self.updates + 1)
        self._p = self._limited(p / math.fsum(p))


class LossCurve:
    """The losses of K sources over rows trained on: at most `MOST_POINTS` points, each the mean of as many updates."""

    def __init__(self, sources: int) -> None:
        self._sources = sources
        self._stride = 1  # updates of a point
        self._filled = 0  # updates of the last one
        self._at: list[list[float]] = []  # per point: sum of rows, updates
        self._points: list[NDArray[np.float64]] = []  # per point: (2, K), sum of losses and how many

    def add(self, rows: int, losses: NDArray[np.float64]) -> None:
        """Add losses seen after `rows` rows, float64 of shape (K,), NaN where there is none."""
        if not self._points or self._filled == self._stride:
            if len(self._points) == MOST_POINTS:
                self._merge()
            self._at.append([0.0, 0.0])
            self._points.append(np.zeros((2, self._sources)))
            self._filled = 0
        seen = np.isfinite(losses)
        self._points[-1][0] += np.where(seen, losses, 0)
        self._points[-1][1] += seen
        self._at[-1][0] += rows
        self._at[-1][1] += 1
        self._filled += 1

    def fit(self) -> NDArray[np.float64]:
        """Return eps, beta and alpha of loss = eps + beta * rows ** -alpha per source, (3, K), NaN where unknown."""
        if not self._points:
            return np.full((3, self._sources), np.nan)
        sums, seen = np.stack(self._points, axis=1)
        losses = np.where(seen > 0, sums / np.maximum(seen, 1), 1.0)
        log_n = np.array([_core.log(rows / updates) for rows, updates in self._at])
        best = np.full(self._sources, np.inf)
        laws = np.full((3, self._sources), np.nan)
        for alpha in EXPONENTS:
            _better(laws, best, np.full(self._sources, alpha), log_n=log_n, losses=losses, seen=seen)
        for step in REFINEMENTS:
            middle = laws[2].copy()
            for alphas in (middle - step, middle + step):
                _better(laws, best, np.clip(alphas, 0, EXPONENTS[-1]), log_n=log_n, losses=losses, seen=seen)
        laws[:, (seen > 0).sum(axis=0) < FEWEST_POINTS] = np.nan
        return laws

    def state_dict(self) -> dict[str, Any]:
        """Return the points, as JSON values."""
        points = [point.tolist() for point in self._points]
        return {"stride": self._stride, "filled": self._filled, "at": self._at, "points": points}

    def load_state_dict(self, state: Any) -> None:
        """Go on where `state` was taken; StateError if it is broken."""
        if not isinstance(state, Mapping):
            raise StateError(f"state curve must be a mapping, but got {state!r:.60}")
        count = len(state["at"]) if isinstance(state.get("at"), list) else 0
        at = state_array(state, "at", (count, 2) if count else (0,))
        points = state_array(state, "points", (count, 2, self._sources) if count else (0,))
        if (at <= 0).any():
            raise StateError(f"state at must be of rows and updates above 0, but got {at.tolist()!r:.60}")
        self._stride = as_int(state.get("stride"), "state stride", 1, MOST, StateError)
        self._filled = as_int(state.get("filled"), "state filled", 0, self._stride + 1, StateError)
        self._at, self._points = at.tolist(), list(points)

    def _merge(self) -> None:
        """Make one point of every two."""
        firsts, seconds = slice(0, None, 2), slice(1, None, 2)
        self._at = [[a + c, b + d] for (a, b), (c, d) in zip(self._at[firsts], self._at[seconds], strict=True)]
        self._points = [a + b for a, b in zip(self._points[firsts], self._points[seconds], strict=True)]
        self._stride *= 2


def power(values: NDArray[np.float64], exponent: float) -> NDArray[np.float64]:
    """Return values ** exponent of values >= 0, the same bits on every machine."""
    if exponent == 0.5:
        return np.sqrt(values)
    return np.array([_core.power(x, exponent) if x > 0 else float(exponent == 0) for x in values.tolist()])


def _better(
    laws: NDArray[np.float64],
    best: NDArray[np.float64],
    alphas: NDArray[np.float64],
    *,
    log_n: NDArray[np.float64],
    losses: NDArray[np.float64],
    seen: NDArray[np.float64],
) -> None:
    """Replace the laws, and the errors in `best`, of sources that a law with their exponent in `alphas` fits better.

    Huber's loss is minimised by lines fitted again and again, each point weighed by how far the last line was off.
    """
    falling = {alpha: [_core.exp(-alpha * x) for x in log_n.tolist()] for alpha in set(alphas.tolist())}
    x = np.array([falling[alpha] for alpha in alphas.tolist()]).T
    eps, beta = _line(x, losses, seen / losses**2)
    for _ in range(ROUNDS):
        law = np.maximum(eps + beta * x, 1 / MOST_LOSS)
        off = _log_ratio(losses, law)
        weights = seen * np.minimum(1, HUBER / np.maximum(np.abs(off), HUBER)) / law**2
        eps, beta = _line(x, law * (1 + off), weights)
    off = np.abs(_log_ratio(losses, np.maximum(eps + beta * x, 1 / MOST_LOSS)))
    error = (seen * np.where(off > HUBER, HUBER * (off - HUBER / 2), off * off / 2)).sum(axis=0)
    better = error < best
    best[better] = error[better]
    laws[:, better] = np.stack([eps, beta, alphas])[:, better]


def _log_ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(above / below) by its series, the same bits on every machine; less than it far from 1."""
    s = (above - below) / (above + below)
    z = s * s
    series: NDArray[np.float64] = 2 * s * (1 + z * (1 / 3 + z * (1 / 5 + z * (1 / 7 + z / 9))))
    return series


def _line(
    x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a >= 0 and b >= 0 of the line y = a + b x with the least weighted squared error, per column.

    Sums run down the columns, one row at a time: the same bits on every machine.
    """
    total = np.maximum(weights.sum(axis=0), 1e-300)
    mean_x = (weights * x).sum(axis=0) / total
    mean_y = (weights * y).sum(axis=0) / total
    dx, dy = x - mean_x, y - mean_y
    spread = (weights * dx * dx).sum(axis=0)
    slope = (weights * dx * dy).sum(axis=0) / np.where(spread > 0, spread, 1)
    slope = np.maximum(slope, 0)
    start = mean_y - slope * mean_x
    # a loss does not fall below 0: the best line through the origin instead
    through = (weights * x * y).sum(axis=0) / np.maximum((weights * x * x).sum(axis=0), 1e-300)
    slope = np.where(start < 0, through, slope)
    return np.maximum(start, 0), slope


def _laws_of(laws: Any, sources: int) -> NDArray[np.float64] | None:
    if laws is None:
        return None
    try:
        array = np.array(laws, dtype=np.float64)  # None becomes NaN
    except (TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.shape != (3, sources) or np.isinf(array).any():
        raise StateError(f"state laws must be numbers of shape (3, {sources}), but got {laws!r:.60}")
    return array
