"""The rows of a source that an index keeps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ..errors import SourceError
from .fingerprint import arrow_kind
from .schemas import Rows


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


def keep_rows(data: Rows, index: Path, *, name: str) -> Rows:
    """Return the rows of `data` that the index keeps.

    Args:
        data: the whole source.
        index: .npy file of row numbers, int64[n], rising.
        name: the source's name, for errors.

    Raises:
        SourceError: the file is no such index, or one of other data: it names rows that are not there.
    """
    rows = _read(index, name)
    if len(rows) and not 0 <= rows[0] <= rows[-1] < len(data):
        raise SourceError(
            f"source {name!r}: rows {str(index)!r} must be in 0..{len(data) - 1}, but got {int(rows[0])} to "
            f"{int(rows[-1])}; an index belongs to the data it was made from"
        )
    if arrow_kind(data) == "dataset":
        return cast(Rows, cast(Any, data).select(rows))
    return KeptRows(data, rows)


def _read(index: Path, name: str) -> NDArray[np.int64]:
    what = f"source {name!r}: rows must be a .npy file of row numbers, int64 and rising"
    try:
        rows = np.load(index, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise SourceError(f"{what}, but got {str(index)!r}: {' '.join(str(error).split())}") from None
    if not isinstance(rows, np.ndarray) or rows.dtype != np.int64 or rows.ndim != 1:
        raise SourceError(f"{what}, but got {str(index)!r}, which holds something else")
    if np.any(rows[1:] <= rows[:-1]):
        at = int(np.argmax(rows[1:] <= rows[:-1]))
        raise SourceError(f"{what}, but got {str(index)!r}: {int(rows[at])} before {int(rows[at + 1])}")
    return rows
