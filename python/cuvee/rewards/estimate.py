"""The last estimate of each source, from reports that may leave sources out."""

from __future__ import annotations

import math
import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from ..errors import CuveeError, StateError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Report = Mapping[str, ArrayLike | None]

STATE_VERSION = 1


class LastEstimate(ABC):
    """Base of rewards whose score of a source is the value measured last; a new one says only how to measure.

    Args:
        sources: number of sources, K.

    Attributes:
        needs: what a report must hold; the class's, unless an object's options say otherwise.
        from_training: whether the scores come from the rows trained on, and not from evaluation data; likewise.
        keeps: names of the arrays of shape (K,) that make up the state; NaN at first.
    """

    needs: frozenset[str] = frozenset()
    from_training: bool = True
    keeps: ClassVar[tuple[str, ...]] = ("scores",)

    def __init__(self, sources: int) -> None:
        self.sources = sources
        self._kept = {name: np.full(sources, math.nan) for name in self.keeps}

    @abstractmethod
    def measure(self, report: Report) -> NDArray[np.float64]:
        """Return what a report says of each source, float64 of shape (K,), NaN if nothing; it changes no state."""

    def observe(self, report: Report) -> None:
        """Learn from a report; sources that it says nothing of keep their scores.

        Raises:
            CuveeError: if something is missing in the report, or has another shape or a meaningless value.
        """
        self.keep("scores", as_column(self.measure(report), f"{type(self).__name__}.measure()", self.sources))

    def keep(self, name: str, values: NDArray[np.float64]) -> None:
        """Take the finite ones of `values`, float64 of shape (K,), over into the array of that name."""
        np.copyto(self._kept[name], values, where=np.isfinite(values))

    def kept(self, name: str) -> NDArray[np.float64]:
        """Return a copy of the array of that name, float64 of shape (K,)."""
        return self._kept[name].copy()

    def scores(self) -> NDArray[np.float64]:
        """Return each source's score, float64 of shape (K,); NaN of those that nothing is known of yet."""
        return self.kept("scores")

    def state_dict(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        kept = {name: _without_nan(values) for name, values in self._kept.items()}
        return {"version": STATE_VERSION, "reward": type(self).__name__, **kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Raises:
            StateError: if it is of another reward or of another number of sources; nothing has changed then.
        """
        check_state(state, self)
        self._kept = {name: _with_nan(state.get(name), name, self.sources) for name in self.keeps}


def report_mean(report: Report, total: str, count: str, sources: int) -> NDArray[np.float64]:
    """Return `report[total] / report[count]` of each source, float64 of shape (K,); NaN where the count is 0.

    Raises:
        CuveeError: if one is missing or has another shape, or a count is negative or not finite.
    """
    totals, counts = report_column(report, total, sources), report_column(report, count, sources)
    wrong = counts[~(np.isfinite(counts) & (counts >= 0))]
    if len(wrong):
        raise CuveeError(f"report[{count!r}] must be finite and at least 0, but got {wrong[0].item()!r}")
    mean = np.full(sources, math.nan)
    np.divide(totals, counts, out=mean, where=counts > 0)
    return mean


def report_column(report: Report, key: str, sources: int) -> NDArray[np.float64]:
    """Return `report[key]` as float64 of shape (K,).

    Raises:
        CuveeError: if it is missing, is not made of numbers or has another shape.
    """
    return as_column(_found(report, key), f"report[{key!r}]", sources)


def report_number(report: Report, key: str) -> float | None:
    """Return `report[key]`, one finite number >= 0; None if that is what it holds.

    Raises:
        CuveeError: if it is missing or something else.
    """
    value = _found(report, key)
    if value is None:
        return None
    number = as_column(np.reshape(np.asarray(value), (-1,)), f"report[{key!r}]", 1)[0]
    if not (math.isfinite(number) and number >= 0):
        raise CuveeError(f"report[{key!r}] must be finite and at least 0, but got {value!r}")
    return float(number)


def as_column(value: object, name: str, sources: int) -> NDArray[np.float64]:
    """Return `value` as float64 of shape (K,); anything but K numbers is an error."""
    try:
        given = np.asarray(value)
        column = given.astype(np.float64, casting="same_kind")
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor that needs a gradient
        raise CuveeError(f"{name} must be an array of {sources} numbers, but got {reprlib.repr(value)}") from None
    if column.shape != (sources,):
        raise CuveeError(f"{name} must have shape ({sources},), one value per source, but got {column.shape}")
    return column


def check_state(state: Mapping[str, Any], reward: object) -> None:
    """Raise StateError unless `state` is of this version and of a reward of the same class."""
    if not isinstance(state, Mapping):
        raise StateError(f"reward's state must be a mapping, but got {type(state).__name__}")
    if state.get("version") != STATE_VERSION:
        raise StateError(f"reward's state must be of version {STATE_VERSION}, but got {state.get('version')!r}")
    if state.get("reward") != type(reward).__name__:
        raise StateError(f"reward's state must be of {type(reward).__name__}, but got one of {state.get('reward')!r}")


def _found(report: Report, key: str) -> ArrayLike | None:
    if not isinstance(report, Mapping):
        raise CuveeError(f"report must be a mapping, but got {type(report).__name__}")
    if key not in report:
        raise CuveeError(f"report must hold {key!r}, but got only {sorted(report)}")
    return report[key]


def _without_nan(values: NDArray[np.float64]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _with_nan(values: object, name: str, sources: int) -> NDArray[np.float64]:
    if not isinstance(values, list) or len(values) != sources:
        _refuse(name, sources, values)
    kept = [math.nan if value is None else value for value in values]
    if not all(type(value) in (int, float) and not math.isinf(value) for value in kept):
        _refuse(name, sources, values)
    return np.array(kept, dtype=np.float64)


def _refuse(name: str, sources: int, values: object) -> NoReturn:
    raise StateError(
        f"{name} in a reward's state must be {sources} numbers or None, one per source, but got {reprlib.repr(values)}"
    )
