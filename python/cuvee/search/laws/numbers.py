"""The gate for what laws are given: arrays of numbers of one shape, named in the error when they are not."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING

import numpy as np

from ...errors import CuveeError
from ..surrogates.surrogate import as_floats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..surrogates.surrogate import Floats

# Sizes, tokens and losses are in [LEAST, MOST], where their ratios, squares and sums are numbers, too.
LEAST, MOST = 1e-30, 1e30


def as_column(values: ArrayLike, name: str, rows: int | None = None) -> Floats:
    """Return positive numbers, float64 of shape (n,); with `rows` that many, or one number for all of them.

    Raises:
        CuveeError: they are of another shape, or not in [LEAST, MOST].
    """
    given = as_floats(values, name)
    if given.ndim != 1 and rows is None:
        raise CuveeError(f"{name} must be of shape (n,), but got {given.shape}")
    if rows is not None and given.shape not in ((), (rows,)):
        raise CuveeError(f"{name} must be positive numbers, one or {rows}, but got shape {given.shape}")
    check_range(given, name)
    return given if rows is None else np.broadcast_to(given, (rows,)).copy()


def check_range(given: Floats, name: str) -> None:
    """Raise unless all numbers are positive, finite, and in [LEAST, MOST].

    Raises:
        CuveeError: naming the first that is not.
    """
    good = np.isfinite(given) & (given > 0)
    if not good.all():
        raise CuveeError(f"{name} must be positive and finite, but got {given[~good].flat[0]}")
    good = (given >= LEAST) & (given <= MOST)
    if not good.all():
        raise CuveeError(f"{name} must be in [{LEAST:g}, {MOST:g}], but got {given[~good].flat[0]}")


def as_number(value: object, name: str, rule: str, *, low: float, end: float, open_low: bool = False) -> float:
    """Return a number in [low, end), or in (low, end).

    Args:
        value: what was given.
        name: of it.
        rule: what it must be, in words.
        low: begin of the interval.
        end: of the interval, itself out of it.
        open_low: whether `low` is out of it, too.

    Raises:
        CuveeError: it is no number, or out of the interval.
    """
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if low <= number < end and not (open_low and number == low):
            return number
    raise CuveeError(f"{name} must be {rule}, but got {value!r:.100}")
