"""One named dataset of a mix: rows, weight, lengths, limits, each checked when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .. import _core
from ..checks import as_int, as_name, as_weight
from ..errors import MixtureError

Exhaustion = Literal["stop", "cycle", "renormalize"]
Unit = Literal["rows", "tokens"]

MAX_ROWS = 2**62
MAX_CYCLES = 2**31


@dataclass(frozen=True, slots=True, init=False, eq=False)
class Source:
    """One named map-style dataset and its share of the mix.

    Args:
        name: unique, non-empty, printable, without surrounding white space. The order of its rows depends on it.
        data: anything with `__len__` and `__getitem__`; None for a plan without data (then give `rows`).
        weight: requested share, finite and >= 0; only the ratios between sources matter.
        rows: number of rows; taken from `len(data)` when data is given.
        lengths: integers of shape (rows,): target tokens of each row.
        max_epochs: how often each row may be drawn; None is once, but without limit under `cycle`.
        fingerprint: identity of the content, checked when a run is resumed.

    Raises:
        MixtureError: naming the source, the field and the value.
        SourceError: row 0 of the data cannot be read, or has the reserved field `__cuvee_meta__`.
    """

    name: str
    data: Any
    weight: float
    rows: int
    lengths: NDArray[np.int32] | None
    max_epochs: int | None
    fingerprint: str | None
    lengths_digest: str | None

    def __init__(
        self,
        name: str,
        data: object = None,
        weight: float = 1.0,
        *,
        rows: int | None = None,
        lengths: ArrayLike | None = None,
        max_epochs: int | None = None,
        fingerprint: str | None = None,
    ) -> None:
        def assign(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        assign("name", as_name(name, MixtureError))
        label = f"source {name!r}: "
        assign("data", data)
        assign("weight", as_weight(weight, f"{label}weight", MixtureError))
        assign("rows", _row_count(data, rows, label))
        if data is not None:
            from ..sources import check_rows

            check_rows(data, name=name, allow_empty=True)
        assign("lengths", None if lengths is None else _row_lengths(lengths, self.rows, label))
        assign("lengths_digest", None if self.lengths is None else _core.xxh3_128(self.lengths.data))
        if max_epochs is not None:
            max_epochs = as_int(max_epochs, f"{label}max_epochs", 1, MAX_CYCLES, MixtureError)
            if self.rows * max_epochs >= _core.ENDLESS:
                raise MixtureError(f"{label}rows * max_epochs must be below 2**63, but got {self.rows} * {max_epochs}")
        assign("max_epochs", max_epochs)
        if fingerprint is not None and not (isinstance(fingerprint, str) and fingerprint):
            raise MixtureError(f"{label}fingerprint must be a non-empty string, but got {fingerprint!r}")
        assign("fingerprint", fingerprint)

    def cap(self, exhaustion: Exhaustion, rows: int | None = None) -> int:
        """Return the number of draws this source may give, ENDLESS if unlimited; with other `rows` if given."""
        if self.max_epochs is None and exhaustion == "cycle":
            return _core.ENDLESS
        return (self.rows if rows is None else rows) * (self.max_epochs or 1)

    def spec(self, exhaustion: Exhaustion, *, with_lengths: bool) -> dict[str, Any]:
        """Return what of this source determines the order, its weight aside; lengths do only in some mixtures."""
        return {
            "name": self.name,
            "rows": self.rows,
            "cap": self.cap(exhaustion),
            "fingerprint": self.fingerprint,
            "lengths": self.lengths_digest if with_lengths else None,
        }


def check_lengths(
    sources: Sequence[Source], *, unit: Unit, max_length: int | None, weights: NDArray[np.float64]
) -> None:
    """Check that lengths are known where they are needed, and that each source that is ever owed tokens has some."""
    if max_length is None and unit == "rows":
        return
    setting = 'unit="tokens"' if unit == "tokens" else f"max_length={max_length}"
    for source, weight in zip(sources, weights.tolist(), strict=True):
        if source.lengths is None and source.rows:
            raise MixtureError(
                f"source {source.name!r}: lengths must be known with {setting}, but got None; pass lengths= with the "
                "tokens of each row (cuvee.sources.lengths_of counts them)"
            )
        if weight > 0 and passing_tokens(source, max_length) == 0 and unit == "tokens":
            raise MixtureError(
                f"source {source.name!r}: lengths must have a row of 1 or more tokens within "
                f"max_length={max_length}, but got {_range_of(source.lengths)}"
            )


def passing_tokens(source: Source, max_length: int | None) -> int:
    """Return the tokens of all rows of a source that pass the length filter."""
    if source.lengths is None:
        return 0
    lengths = source.lengths if max_length is None else source.lengths[source.lengths <= max_length]
    return int(lengths.sum(dtype=np.int64))


def _row_count(data: object, rows: int | None, label: str) -> int:
    if rows is not None:
        as_int(rows, f"{label}rows", 0, MAX_ROWS + 1, MixtureError)
    if data is None:
        if rows is None:
            raise MixtureError(f"{label}rows must be given when data is not, but got None")
        return int(rows)
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise MixtureError(
            f"{label}data must have __len__ and __getitem__ (a map-style dataset), but got {type(data).__name__}"
        )
    if rows is not None and rows != len(data):
        raise MixtureError(f"{label}rows must equal len(data) = {len(data)}, but got {rows}")
    return len(data)


def _row_lengths(lengths: ArrayLike, rows: int, label: str) -> NDArray[np.int32]:
    array = np.asarray(lengths)
    if array.size == 0 and array.ndim == 1:
        array = array.astype(np.int32)
    if array.dtype.kind not in "iu":
        raise MixtureError(f"{label}lengths must be integers, but got dtype {array.dtype}")
    if array.shape != (rows,):
        raise MixtureError(f"{label}lengths must have shape ({rows},), one per row, but got {array.shape}")
    if rows and (int(array.min()) < 0 or int(array.max()) >= 2**31):
        raise MixtureError(f"{label}lengths must be in [0, 2**31), but got {_range_of(array)}")
    checked = np.array(array, dtype=np.int32, order="C")  # a copy: what the caller does with its own changes no order
    checked.flags.writeable = False
    return checked


def _range_of(array: NDArray[Any] | None) -> str:
    return "none" if array is None or not array.size else f"values from {array.min()} to {array.max()}"
