"""The rows of a source that an index keeps, and the check that it is an index of the data it is used with."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import SourceError
from .fingerprint import arrow_kind
from .schemas import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Numbers of the rows to keep, and of which data they are.

    Args:
        rows: int64[n], rising.
        size: rows of all data that they were chosen from; None where that is not known.
        loaded: whether a loader function made that data; None where that is not known.
    """

    rows: NDArray[np.int64]
    size: int | None = None
    loaded: bool | None = None

    def content(self) -> bytes:
        """Return the bytes of a .npy file: the rows, and behind them a second array, int64[2], of size and loader."""
        file = io.BytesIO()
        np.save(file, self.rows)
        np.save(file, np.array([-1 if known is None else known for known in (self.size, self.loaded)], np.int64))
        return file.getvalue()


class KeptRows:
    """Some rows of map-style data, in their order: row i is row `rows[i]` of the data."""

    def __init__(self, data: Rows, rows: NDArray[np.int64]) -> None:
        self._data = data
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, row: int) -> object:
        return self._data[int(self._rows[row])]

    def __getitems__(self, rows: Sequence[int]) -> list[Any]:
        """Return several rows; at once where the data can."""
        wanted = self._rows[np.asarray(rows, np.int64)].tolist()
        read = getattr(self._data, "__getitems__", None)
        return [self._data[row] for row in wanted] if read is None else list(read(wanted))


def keep_rows(data: Rows, index: Path, *, name: str, loaded: bool | None = None) -> Rows:
    """Return the rows of `data` that the index keeps.

    Args:
        data: the whole source.
        index: .npy file of row numbers, int64[n], rising; `Index.content` says what may follow.
        name: the source's name, for errors.
        loaded: whether a loader function made the data; None where that is not known.

    Raises:
        SourceError: the file is no such index, or one of other data: of more rows or fewer, or of what a loader makes.
    """
    found = read_index(index, name=name)
    _check_origin(found, len(data), loaded=loaded, where=f"source {name!r}: rows {str(index)!r}")
    rows = found.rows
    if len(rows) and not 0 <= rows[0] <= rows[-1] < len(data):
        raise SourceError(
            f"source {name!r}: rows {str(index)!r} must be in 0..{len(data) - 1}, but got {int(rows[0])} to "
            f"{int(rows[-1])}; an index belongs to the data it was made from"
        )
    if arrow_kind(data) == "dataset":
        return cast(Rows, cast(Any, data).select(rows))
    return KeptRows(data, rows)


def _check_origin(index: Index, size: int, *, loaded: bool | None, where: str) -> None:
    if index.loaded and loaded is False:
        raise SourceError(
            f"{where} must be used with the loader function whose rows they number, but got none; give it "
            "(--dataset-loader-fn)"
        )
    if index.size is not None and index.size != size:
        cure = "give the same loader function (--dataset-loader-fn)" if index.loaded else "make the index anew"
        raise SourceError(f"{where} must be used with the {index.size} rows that they number, but got {size}; {cure}")


def read_index(index: Path, *, name: str) -> Index:
    """Return what a file of row numbers holds.

    Args:
        index: the .npy file.
        name: the source's name, for errors.

    Raises:
        SourceError: the file is no such index.
    """
    what = f"source {name!r}: rows must be a .npy file of row numbers, int64 and rising"
    try:
        with index.open("rb") as file:
            rows, rest = np.load(file, allow_pickle=False), file.read()
        origin = np.load(io.BytesIO(rest), allow_pickle=False) if rest else np.array([-1, -1])
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(f"{what}, but got {str(index)!r}: {' '.join(str(error).split())}") from None
    if not (_holds_numbers(rows) and _holds_numbers(origin) and len(origin) == 2):
        raise SourceError(f"{what}, but got {str(index)!r}, which holds something else")
    if np.any(rows[1:] <= rows[:-1]):
        at = int(np.argmax(rows[1:] <= rows[:-1]))
        raise SourceError(f"{what}, but got {str(index)!r}: {int(rows[at])} before {int(rows[at + 1])}")
    size, loaded = origin.tolist()
    return Index(rows=rows, size=None if size < 0 else size, loaded=None if loaded < 0 else bool(loaded))


def _holds_numbers(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.int64 and array.ndim == 1
