"""Checks of single values, shared by everything a user fills in: `NAME must be RULE, but got VALUE`."""

from __future__ import annotations

import difflib
import json
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from .errors import CuveeError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

NO_NUMBERS = bool | np.bool_ | str | bytes | complex  # though float() may take them
Choice = TypeVar("Choice", bound=str)


def as_int(value: object, name: str, low: int, end: int, error: type[CuveeError]) -> int:
    """Return `value` as an int in [low, end); bool is no number."""
    if not isinstance(value, bool | np.bool_):
        try:
            number = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            if low <= number < end:
                return number
    raise error(f"{name} must be an integer in [{low}, {bound_text(end)}), but got {value!r}")


def as_weight(value: object, name: str, error: type[CuveeError]) -> float:
    """Return `value` as a finite float >= 0; bool is no number."""
    if isinstance(value, Real) and not isinstance(value, bool | np.bool_):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number) and number >= 0:
            return number
    raise error(f"{name} must be a finite number and at least 0, but got {value!r}")


def as_flag(value: object, name: str, error: type[CuveeError]) -> bool:
    """Return `value` if it is True or False."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise error(f"{name} must be True or False, but got {value!r}")


def as_choice(value: object, name: str, choices: Sequence[Choice], error: type[CuveeError]) -> Choice:
    """Return `value` if it is one of `choices`."""
    for choice in choices:
        if isinstance(value, str) and value == choice:
            return choice
    raise error(f"{name} must be one of {list(choices)}, but got {value!r}{nearest(value, choices)}")


def as_numbers(values: ArrayLike) -> NDArray[np.float64] | None:
    """Return numbers as a new array of float64; None if not all are numbers: bool, text and complex are none."""
    given = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    if given.dtype.kind not in "iufO" or any(
        isinstance(value, NO_NUMBERS) for value in given.flat if given.dtype == object
    ):
        return None
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def as_name(value: object, error: type[CuveeError], *, of: str = "source") -> str:
    """Return `value` if it can name a source, or what `of` says: non-empty, printable, no white space around it."""
    if isinstance(value, str) and value and value.isprintable() and value == value.strip():
        return value
    raise error(f"{of} name must be printable text without surrounding white space, but got {value!r}")


def nearest(value: object, choices: Iterable[str], *, quoted: Callable[[str], str] = repr) -> str:
    """Return `; did you mean 'X'?` for the choice most like `value`, case aside, or nothing if none is like it."""
    by_lower = {choice.lower(): choice for choice in choices}
    found = difflib.get_close_matches(value.lower(), by_lower, n=1) if isinstance(value, str) else []
    return f"; did you mean {quoted(by_lower[found[0]])}?" if found else ""


def bound_text(end: int) -> str:
    """Return a bound as people write it: powers of two above 2**20 as powers."""
    exponent = end.bit_length() - 1
    return f"2**{exponent}" if exponent > 20 and end == 1 << exponent else str(end)


def canonical_json(value: object) -> bytes:
    """Return `value` as compact JSON with sorted keys; floats by repr, so that equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
