"""The texts of a column, block by block, and the terms that tell one group of them from the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from .._core import xxh3_128
from ..errors import CuveeError
from ..sources.fingerprint import arrow_kind, fingerprint_of
from ..sources.schemas import Rows, check_column, columns_of

if TYPE_CHECKING:
    from datasets import Dataset
    from numpy.typing import NDArray

    from .config import AutoCategorizeConfig

BLOCK = 1024  # rows read at a time
TERMS = 3  # in a category's name
READ = 1_000  # texts of each category that terms are taken from, evenly spread
READ_LENGTH = 2_000  # characters of each
WORD = re.compile(r"[^\W\d_]{3,24}")


class Texts:
    """The texts in a column of map-style rows; lists of tokens go through the tokenizer.

    Args:
        data: the rows.
        config: column and tokenizer.

    Raises:
        CuveeError: if there are no rows or no such column, or its values are neither texts nor, with a tokenizer,
            tokens.
    """

    def __init__(self, data: Rows, config: AutoCategorizeConfig) -> None:
        if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
            raise CuveeError(
                f"data must have __len__ and __getitem__ to be categorised, but got {type(data).__name__}; a stream "
                "must be read into a dataset first"
            )
        if len(data) == 0:
            raise CuveeError("data must have rows to be categorised, but got none")
        self.column = config.input_column
        check_column(
            self.column, columns_of(data) or (), where="auto_categorize_config", what="the column in input_column"
        )
        self._tokenizer = config.tokenizer
        self._data = data
        self._view: Dataset | None = None
        if arrow_kind(data) == "dataset":
            self._view = cast("Dataset", data).select_columns([self.column]).with_format(None)
        self.tokens = not isinstance(self._values([0])[0], str)
        if self.tokens and not hasattr(self._tokenizer, "batch_decode"):
            raise CuveeError(
                f"tokenizer must have batch_decode where column {self.column!r} holds no texts but "
                f"{type(self._values([0])[0]).__name__}, but got {self._tokenizer!r:.60}; give the tokenizer that made "
                "them, or name a column of texts in input_column"
            )

    def __len__(self) -> int:
        return len(self._data)

    def at(self, rows: Sequence[int]) -> list[str]:
        """Return the texts of these rows."""
        values = self._values(rows)
        if self.tokens:
            lists = [value.tolist() if hasattr(value, "tolist") else value for value in values]
            return list(self._tokenizer.batch_decode(lists, skip_special_tokens=True))
        for row, value in zip(rows, values, strict=True):
            if not isinstance(value, str):
                raise CuveeError(f"column {self.column!r} must hold texts, but row {row} has {value!r:.60}")
        return values

    def blocks(self) -> Iterator[tuple[int, list[str]]]:
        """Yield (first row, texts) of all rows in order."""
        for start in range(0, len(self), BLOCK):
            yield start, self.at(range(start, min(start + BLOCK, len(self))))

    def identity(self) -> str | None:
        """Return a digest of all that decides the texts; None where it cannot be known."""
        content = fingerprint_of(self._data if self._view is None else self._view)
        if content is None or not self.tokens:
            return content and f"{content} {self.column}"
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return None if backend is None else f"{content} {self.column} {xxh3_128(backend.to_str().encode())}"

    def _values(self, rows: Sequence[int]) -> list[Any]:
        if self._view is not None:
            return list(self._view[list(rows)][self.column])
        return [cast("Mapping[str, Any]", self._data[row]).get(self.column) for row in rows]


def top_terms(texts: Texts, labels: NDArray[np.int32], categories: int) -> list[tuple[str, ...]]:
    """Return for each category the words that tell it from the others, the most telling first.

    A word's weight is p log(p / q): p, the part of the category's texts that have it; q, that of all texts read.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    found: list[Counter[str]] = []
    sizes: list[int] = []
    for category in range(categories):
        members = np.flatnonzero(labels == category)
        spread = members[np.linspace(0, len(members) - 1, min(len(members), READ)).astype(np.int64)]
        counts: Counter[str] = Counter()
        for text in texts.at(spread.tolist()):
            counts.update(set(WORD.findall(text[:READ_LENGTH].lower())) - ENGLISH_STOP_WORDS)
        found.append(counts)
        sizes.append(len(spread))
    total: Counter[str] = Counter()
    for counts in found:
        total.update(counts)
    return [_telling(counts, size, total, sum(sizes)) for counts, size in zip(found, sizes, strict=True)]


def _telling(counts: Counter[str], size: int, total: Counter[str], texts: int) -> tuple[str, ...]:
    weights = {
        word: count / size * np.log((count / size) / (total[word] / texts))
        for word, count in counts.items()
        if count / size >= total[word] / texts
    }
    return tuple(sorted(weights, key=lambda word: (-weights[word], word))[:TERMS])
