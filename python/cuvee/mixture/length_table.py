"""Token lengths of every row of a mixture: which rows pass the length filter, and what they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .. import _core

if TYPE_CHECKING:
    from .source import Source


class LengthTable:
    """Target tokens of every row of every source, end to end.

    Args:
        sources: all with lengths.
        max_length: rows with more tokens do not pass and count 0 tokens; None passes all.
    """

    def __init__(self, sources: Sequence[Source], max_length: int | None) -> None:
        empty = np.zeros(0, dtype=np.int32)
        parts = [empty if source.lengths is None else source.lengths for source in sources]
        self._lengths = np.concatenate([empty, *parts])
        self._offsets = np.cumsum([0, *(source.rows for source in sources)], dtype=np.int64)
        self.max_length = max_length

    def of(self, source: NDArray[np.int32], row: NDArray[np.int64]) -> NDArray[np.int32]:
        """Return the tokens of each draw, shape (n,)."""
        return _core.gather_lengths(source, row, lengths=self._lengths, offsets=self._offsets)

    def passes(self, source: NDArray[np.int32], row: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which draws are within the limit, shape (n,)."""
        if self.max_length is None:
            return np.ones(len(source), dtype=np.bool_)
        return self.of(source, row) <= self.max_length

    def tokens(self, source: NDArray[np.int32], row: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens of the draws that pass, per source, shape (K,)."""
        lengths = self.of(source, row).astype(np.int64)
        if self.max_length is not None:
            lengths[lengths > self.max_length] = 0
        return _core.tally(source, lengths, k=len(self._offsets) - 1)[1]

    @cached_property
    def tokens_per_row(self) -> NDArray[np.float64]:
        """Per source the tokens of its passing rows over all its rows, shape (K,); 0 for an empty source."""
        means = np.zeros(len(self._offsets) - 1)
        for k, (first, end) in enumerate(pairwise(self._offsets.tolist())):
            part = self._lengths[first:end]
            if self.max_length is not None:
                part = part[part <= self.max_length]
            if end > first:
                means[k] = float(part.sum(dtype=np.int64)) / float(end - first)
        return means
