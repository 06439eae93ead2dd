"""Checks of what a bandit is given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import MAX_BANDIT_SOURCES
from ..checks import as_int
from ..errors import MixtureError, StateError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

STATE_VERSION = 1
MOST_ROWS = 2**62  # between two updates, so that their sum and the next are int64


def as_initial(initial: ArrayLike | int) -> NDArray[np.float64]:
    """Return weights to begin with, float64 of shape (K,), sum 1; an int is K equal ones."""
    if isinstance(initial, int):
        sources = as_int(initial, "initial", 1, MAX_BANDIT_SOURCES + 1, MixtureError)
        return np.full(sources, 1.0 / sources)
    weights = as_vector(initial, "initial", None)
    if not (np.isfinite(weights) & (weights > 0)).all():
        raise MixtureError(f"initial must be finite and positive weights, but got {weights.tolist()!r:.200}")
    if not 1 <= len(weights) <= MAX_BANDIT_SOURCES:
        raise MixtureError(f"initial must have 1 to {MAX_BANDIT_SOURCES} weights, but got {len(weights)}")
    scaled = normalised(weights)
    if not (scaled > 0).all():
        raise MixtureError(f"initial must be weights within a factor of 1e300, but got {weights.tolist()!r:.200}")
    return scaled


def normalised(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return finite weights, not all 0, scaled to a sum of 1; the sum is exact before it is rounded."""
    scaled = weights / float(weights.max())
    return scaled / math.fsum(scaled)


def as_vector(values: ArrayLike, name: str, sources: int | None) -> NDArray[np.float64]:
    """Return a copy of `values` as float64 of shape (K,)."""
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise MixtureError(f"{name} must be numbers of shape (K,), but got {values!r:.100}") from None
    if vector.ndim != 1 or (sources is not None and len(vector) != sources):
        wanted = "(K,)" if sources is None else f"({sources},)"
        raise MixtureError(f"{name} must have shape {wanted}, but got {vector.shape}")
    return vector


def as_number(value: object, name: str, low: float, high: float, *, above: bool = False) -> float:
    """Return `value` as a float in [low, high], or in (low, high] if it must be above."""
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        try:
            number = float(value)
        except OverflowError:  # an integer that no float is near
            number = math.inf
        if math.isfinite(number) and (low < number if above else low <= number) and number <= high:
            return number
    bounds = f"{'(' if above else '['}{low}, {high}{']' if math.isfinite(high) else ')'}"
    raise MixtureError(f"{name} must be a number in {bounds}, but got {value!r}")


def as_bounds(
    floor: ArrayLike | None, cap: ArrayLike | None, sources: int
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Return least and greatest probabilities, float64 of shape (K,) each, None where there are none."""
    low, high = _bound(floor, "floor", sources), _bound(cap, "cap", sources)
    least = np.zeros(sources) if low is None else low
    most = np.ones(sources) if high is None else high
    if not ((least >= 0) & (least <= most) & (most <= 1)).all():
        raise MixtureError(f"floor and cap must be 0 <= floor <= cap <= 1, but got {floor!r:.100} and {cap!r:.100}")
    if math.fsum(least) > 1 + 1e-12 or math.fsum(most) < 1 - 1e-12:
        raise MixtureError(
            f"floor must sum to at most 1 and cap to at least 1, but got {math.fsum(least)} and {math.fsum(most)}"
        )
    return low, high


def _bound(values: ArrayLike | None, name: str, sources: int) -> NDArray[np.float64] | None:
    if values is None:
        return None
    number = isinstance(values, Real) and not isinstance(values, bool | np.bool_)
    return as_vector(np.full(sources, as_number(values, name, 0, 1)) if number else values, name, sources)


def as_scores(scores: ArrayLike, sources: int) -> NDArray[np.float64]:
    """Return scores as float64 of shape (K,), C-contiguous."""
    try:
        array = np.ascontiguousarray(scores, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise StateError(f"scores must be numbers of shape ({sources},), but got {scores!r:.100}") from None
    if array.shape != (sources,):
        raise StateError(f"scores must have shape ({sources},), but got {np.shape(scores)}")
    return array


def as_counts(counts: ArrayLike | None, sources: int) -> NDArray[np.int64] | None:
    """Return rows per source as int64 of shape (K,), C-contiguous, each at least 0."""
    if counts is None:
        return None
    try:
        array = np.ascontiguousarray(counts)
    except ValueError:  # a ragged list
        array = np.empty(0, dtype=object)
    if array.shape != (sources,) or array.dtype.kind not in "iu":
        raise StateError(f"counts must be integers of shape ({sources},), but got {array.dtype} of {array.shape}")
    if array.dtype != np.int64:
        array = array.astype(np.int64)
    if array.min() < 0:
        raise StateError(f"counts must be at least 0, but got {counts!r:.100}")
    if sum(array.tolist()) > MOST_ROWS:
        raise StateError(f"counts must be at most 2^62 in all, but got {array.tolist()!r:.100}")
    return array


def checked_state(state: Mapping[str, Any], expected: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return `state` if it is a bandit's and has the values of `expected`, which name it and its settings."""
    if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
        raise StateError(f"state must be from a bandit's state_dict, but got {state!r:.60}")
    for name, value in expected.items():
        if state.get(name) != value:
            raise StateError(f"state {name} must be {value!r}, as this bandit's, but got {state.get(name)!r}")
    return state


def state_array(state: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return finite numbers of a state as float64."""
    try:
        array = np.array(state[name], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError):
        array = np.empty(0)
    if array.shape != shape or not np.isfinite(array).all():
        raise StateError(f"state {name} must be finite numbers of shape {shape}, but got {state.get(name)!r:.60}")
    return array


def state_weights(state: Mapping[str, Any], name: str, sources: int) -> NDArray[np.float64]:
    """Return weights of a state, float64 of shape (K,), at least 0 with sum 1."""
    weights = state_array(state, name, (sources,))
    if not ((weights >= 0).all() and abs(math.fsum(weights) - 1) < 1e-9):
        raise StateError(f"state {name} must be at least 0 with sum 1, but got {weights.tolist()!r:.100}")
    return weights
