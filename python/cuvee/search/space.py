"""The mixtures a search may choose from: the simplex with bounds, repetition limits and fixed shares."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..checks import as_int, as_name, as_numbers, as_weight, nearest
from ..errors import MixtureError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

F64 = NDArray[np.float64]
Shares = Mapping[str, float] | Sequence[float] | NDArray[np.float64] | None

SLACK = 1e-9  # by which a share may be outside its bounds, and a sum off 1
MOST_DOMAINS = 100_000
MOST_LATTICE = 1_000_000
STRENGTHS = (0.1, 5.0)  # of Dirichlet draws, spread evenly in the log: RegMix (2407.01492), released settings
LEAST_SHAPE = 1e-3  # of a domain in such a draw


class Space:
    """The mixtures w with sum(w) = 1 and lower <= w <= upper.

    Args:
        names: the K domains.
        lower, upper: least and greatest shares by name (others: 0 and 1), or K of them.
        fixed: shares that are not searched, by name.
        rows: rows, or tokens, of the domains; all K of them.
        target_rows: how many, in the same unit, the run trains on that the mixture is for.
        max_repetition: how often that run may see a row; bounds shares by `max_repetition * rows / target_rows`.
        prior: mixture to draw around and to fall back on, in any scale; None: in proportion to `rows`, or all the same.

    Attributes:
        names: the domains.
        lower, upper: bounds, float64 of shape (K,), as tight as the others make them.
        prior, uniform: the mixture given, and the uniform one, moved into the bounds.

    Raises:
        MixtureError: a bound is no share, a name is unknown, or no mixture keeps all bounds.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        lower: Shares = None,
        upper: Shares = None,
        fixed: Mapping[str, float] | None = None,
        rows: Shares = None,
        target_rows: float | None = None,
        max_repetition: float | None = None,
        prior: Shares = None,
    ) -> None:
        self.names = _checked_names(names)
        low = self._shares(lower, "lower", missing=0.0)
        high = self._shares(upper, "upper", missing=1.0)
        have = None if rows is None else self.amounts(rows, "rows")
        if max_repetition is not None:
            high = np.minimum(high, _limit(have, target_rows, max_repetition))
        self.lower, self.upper = self._with_fixed(low, high, {} if fixed is None else fixed)
        self._check_feasible()
        self.uniform = self.project(np.full(self.size, 1.0 / self.size))
        given = have if prior is None else self.amounts(prior, "prior")
        self.prior = self.uniform if given is None else self.fit(given)

    @property
    def size(self) -> int:
        """K."""
        return len(self.names)

    @property
    def free(self) -> NDArray[np.bool_]:
        """Which shares may vary, shape (K,)."""
        result: NDArray[np.bool_] = self.upper - self.lower > SLACK
        return result

    def contains(self, weights: ArrayLike) -> NDArray[np.bool_]:
        """Tell of mixtures, shape (..., K), which are in the space, shape (...)."""
        w = np.asarray(weights, dtype=np.float64)
        inside = ((w >= self.lower - SLACK) & (w <= self.upper + SLACK)).all(axis=-1)
        result: NDArray[np.bool_] = inside & (np.abs(w.sum(axis=-1) - 1) < SLACK * self.size)
        return result

    def project(self, weights: ArrayLike) -> F64:
        """Return the mixtures nearest to points of shape (..., K), by Euclidean distance: clip(v - shift, bounds)."""
        points = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        ends = np.concatenate([points - self.lower, points - self.upper], axis=1)  # where a share leaves a bound
        shift = _crossing(-ends, lambda at: np.clip(points + at[:, None], self.lower, self.upper).sum(axis=1))
        return self._exact(np.clip(points + shift[:, None], self.lower, self.upper)).reshape(np.shape(weights))

    def fit(self, weights: ArrayLike) -> F64:
        """Return points of shape (..., K), all >= 0, scaled into the space: w = clip(scale * v, bounds).

        Of all mixtures in the space w has the least relative entropy to v, so ratios are kept where bounds allow.
        Shares of zero stay at their lower bounds unless the others cannot fill the mixture.
        """
        points = np.atleast_2d(np.asarray(weights, dtype=np.float64))
        highest = np.maximum(points.max(axis=1, keepdims=True), 1e-300)
        points = np.maximum(points / highest, 1e-12)
        ends = np.concatenate([np.maximum(self.lower, 1e-15) / points, self.upper / points], axis=1)
        scale = _crossing(ends, lambda at: np.clip(points * at[:, None], self.lower, self.upper).sum(axis=1))
        w = self._exact(np.clip(points * scale[:, None], self.lower, self.upper))
        return w.reshape(np.shape(weights))

    def sample(
        self, n: int, rng: np.random.Generator, *, around: F64 | None = None, strengths: tuple[float, float] = STRENGTHS
    ) -> F64:
        """Return Dirichlet draws, shape (n, K): around a mixture, each of a strength drawn evenly in the log.

        RegMix (2407.01492) as released: shapes are strength * centre, with the centre the square roots of the prior.

        Args:
            n: how many.
            rng: what to draw from.
            around: the centre, shape (K,); None: square roots of the prior.
            strengths: least and greatest; at 0.1 most of a draw is one domain, at 100 it is near the centre.
        """
        centre = np.sqrt(self.prior) if around is None else np.asarray(around)
        strength = np.exp(rng.uniform(math.log(strengths[0]), math.log(strengths[1]), n))
        shapes = np.maximum(strength[:, None] * centre / centre.sum(), LEAST_SHAPE)
        return self.fit(rng.standard_gamma(shapes) + 1e-300)

    def moves(self, weights: F64, n: int, rng: np.random.Generator, *, size: float = 0.3) -> F64:
        """Return n mixtures near one of shape (K,): shares times log-normal factors of about `size`, a few set to 0."""
        reach = size * rng.choice([0.3, 1.0, 3.0], (n, 1))
        moved = (weights + 1e-4) * np.exp(reach * rng.standard_normal((n, self.size)))
        return self.fit(np.where(rng.random((n, self.size)) < 0.05, 0.0, moved))

    def corner(self, domains: Sequence[int]) -> F64:
        """Return the mixture, shape (K,), that gives all it can to some domains, in proportion to the prior."""
        most = np.zeros(self.size)
        most[list(domains)] = np.maximum(self.prior[list(domains)], 1e-6)
        return self.fit(np.maximum(most, 1e-9 * self.prior))

    def corners(self) -> F64:
        """Return for every free domain the mixture that gives it all it can, shape (number of free ones, K)."""
        found = [self.corner([domain]) for domain in np.flatnonzero(self.free).tolist()]
        return np.array(found).reshape(-1, self.size)

    def lattice(self, degree: int) -> F64:
        """Return all mixtures of shares i / degree, moved into the bounds, without doubles, shape (n, K).

        Raises:
            MixtureError: there are more than a million.
        """
        as_int(degree, "degree", 1, MOST_LATTICE, MixtureError)
        count = math.comb(self.size + degree - 1, degree)
        if count > MOST_LATTICE:
            raise MixtureError(f"degree must give at most {MOST_LATTICE} mixtures of the lattice, but got {count}")
        chosen = np.array(list(itertools.combinations_with_replacement(range(self.size), degree)))
        points = np.zeros((count, self.size))
        np.add.at(points, (np.arange(count)[:, None], chosen), 1.0 / degree)
        _, first = np.unique(np.round(self.project(points), 9), axis=0, return_index=True)
        return self.project(points[np.sort(first)])

    def _exact(self, weights: F64) -> F64:
        """Take the last rounding error out of sums: spread it over shares that are off their bounds."""
        rest = 1.0 - weights.sum(axis=1, keepdims=True)
        room = np.where(rest > 0, self.upper - weights, weights - self.lower)
        result: F64 = weights + rest * room / np.maximum(room.sum(axis=1, keepdims=True), 1e-300)
        return result

    def _shares(self, values: Shares, name: str, *, missing: float) -> F64:
        """Return bounds as float64 of shape (K,) in [0, 1]."""
        shares = self._numbers(values, name, missing)
        for domain, share in zip(self.names, shares.tolist(), strict=True):
            if not 0 <= share <= 1:
                raise MixtureError(f"{name} of {domain!r} must be in [0, 1], but got {share!r}")
        return shares

    def amounts(self, values: Shares, name: str) -> F64:
        """Return sizes of the domains, by name or K of them, as float64 of shape (K,).

        Raises:
            MixtureError: naming them, if one is missing or negative, or all are 0.
        """
        numbers = self._numbers(values, name, None)
        for domain, number in zip(self.names, numbers.tolist(), strict=True):
            if not (math.isfinite(number) and number >= 0):
                raise MixtureError(f"{name} of {domain!r} must be finite and at least 0, but got {number!r}")
        if not numbers.any():
            raise MixtureError(f"{name} must not all be 0, but got {numbers.tolist()!r:.200}")
        return numbers

    def _numbers(self, values: Shares, name: str, missing: float | None) -> F64:
        if values is None:
            return np.full(self.size, missing, dtype=np.float64)
        if isinstance(values, Mapping):
            known = set(self.names)
            for key in values:
                if key not in known:
                    raise MixtureError(
                        f"{name} must be of domains {list(self.names)}, but got {key!r}{nearest(key, self.names)}"
                    )
            lacking = [key for key in self.names if key not in values]
            if missing is None and lacking:
                raise MixtureError(f"{name} must be given for every domain, but got none for {lacking}")
            values = [values[key] if key in values else float(missing or 0) for key in self.names]
        numbers = as_numbers(values)
        if numbers is None:
            raise MixtureError(f"{name} must be numbers, but got {values!r:.200}")
        if numbers.shape != (self.size,):
            raise MixtureError(f"{name} must have shape ({self.size},), but got {numbers.shape}")
        return numbers

    def _with_fixed(self, low: F64, high: F64, fixed: Mapping[str, float]) -> tuple[F64, F64]:
        if not isinstance(fixed, Mapping):
            raise MixtureError(f"fixed must be shares by name, but got {fixed!r:.200}")
        shares = self._shares(fixed, "fixed", missing=0.0)
        for domain, name in enumerate(self.names):
            if name not in fixed:
                continue
            if not low[domain] <= shares[domain] <= high[domain]:
                bounds = f"[{low[domain]:g}, {high[domain]:g}]"
                raise MixtureError(f"fixed of {name!r} must be within its bounds {bounds}, but got {shares[domain]:g}")
            low[domain] = high[domain] = shares[domain]
        return low, high

    def _check_feasible(self) -> None:
        low, high = self.lower, self.upper
        for domain in np.flatnonzero(low > high):
            raise MixtureError(
                f"lower of {self.names[domain]!r} must be at most its upper bound {high[domain]:g}, but got "
                f"{low[domain]:g}; upper bounds come from upper, fixed and max_repetition"
            )
        if math.fsum(low) > 1 + SLACK:
            raise MixtureError(
                f"lower bounds must sum to at most 1, but got {math.fsum(low):.6g}; give less to lower or fixed"
            )
        if math.fsum(high) < 1 - SLACK:
            raise MixtureError(
                f"upper bounds must sum to at least 1, but got {math.fsum(high):.6g}; raise upper or max_repetition, "
                "or lower target_rows"
            )
        rest_low, rest_high = math.fsum(low) - low, math.fsum(high) - high
        self.lower, self.upper = np.maximum(low, 1 - rest_high), np.minimum(high, 1 - rest_low)
        self.lower = np.minimum(self.lower, self.upper)  # where rounding made them cross


def mixture(weights: Sequence[float] | F64) -> tuple[float, ...]:
    """Return weights as mixtures are told apart: to a millionth."""
    return tuple(np.round(np.asarray(weights, dtype=np.float64), 6).tolist())


def _checked_names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise MixtureError(f"names must be a sequence of names, but got {names!r:.200}")
    checked = tuple(as_name(name, MixtureError, of="domain") for name in names)
    as_int(len(checked), "number of domains", 1, MOST_DOMAINS, MixtureError)
    if len(set(checked)) < len(checked):
        twice = next(name for name, times in Counter(checked).items() if times > 1)
        raise MixtureError(f"names must be different, but got {twice!r} twice")
    return checked


def _limit(rows: F64 | None, target_rows: float | None, max_repetition: float) -> F64:
    """Return the greatest shares under which no row is seen more often than `max_repetition` times."""
    if rows is None or target_rows is None:
        raise MixtureError(
            f"max_repetition must come with rows and target_rows, but got rows={rows!r:.60} and "
            f"target_rows={target_rows!r}"
        )
    passes, total = _above_zero(max_repetition, "max_repetition"), _above_zero(target_rows, "target_rows")
    with np.errstate(over="ignore"):  # a share may be as large as it likes: it is cut at 1
        return np.minimum(1.0, passes * rows / total)


def _above_zero(value: object, name: str) -> float:
    try:
        number = as_weight(value, name, MixtureError)
    except MixtureError:
        number = 0.0
    if number == 0:
        raise MixtureError(f"{name} must be finite and above 0, but got {value!r:.100}")
    return number


def _crossing(ends: F64, total: Callable[[F64], F64]) -> F64:
    """Return where rising piecewise linear functions, one a row, reach 1.

    Args:
        ends: ends of their pieces, shape (m, n).
        total: returns their values, shape (m,), at places of shape (m,).
    """
    ends = np.sort(ends, axis=1)
    rows = np.arange(len(ends))
    low, high = np.zeros(len(ends), dtype=np.int64), np.full(len(ends), ends.shape[1] - 1)
    while (high - low > 1).any():
        middle = (low + high) // 2
        below = total(ends[rows, middle]) <= 1
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    left, right = ends[rows, low], ends[rows, high]
    at_left, at_right = total(left), total(right)
    rise = at_right - at_left
    share = np.clip((1 - at_left) / np.where(rise > 0, rise, 1.0), 0.0, 1.0)
    result: F64 = left + share * (right - left)
    return result
