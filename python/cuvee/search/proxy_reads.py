"""What each model of a batch of proxy runs reads: one stream of domains, whose shares follow the model's mixture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import as_numbers
from ..errors import MixtureError
from .domains import Domain, TextsDomain, gaps_of, generator, tokens_of, windows_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

F64 = NDArray[np.float64]
Unit = Literal["tokens", "windows"]
UNITS: tuple[Unit, ...] = ("tokens", "windows")
GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples, whole parts dropped, spread evenly over [0, 1) however many there are
NEVER = 1e-12  # shares below are rounding, and draw nothing
STEPS_AT_ONCE = 32


def unit_of(domains: Sequence[Domain]) -> Unit:
    """Return in what units domains are mixed if nobody says: tokens of streams, and windows of texts.

    A stream goes on where it was left off, however often others come between; a text that is cut up is none.
    """
    return "windows" if any(isinstance(domain, TextsDomain) for domain in domains) else "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What all mixtures share under one seed: each domain's text, and the numbers that turn shares into domains.

    Each step has as many numbers as it has units, evenly spaced in [0, 1), in random order, and moved by one offset; a
    unit is of the domain in whose part of [0, 1) its number falls. So a domain's units are within one of its share in
    every step, and two mixtures differ only where their parts do. A domain's text is read on without a gap.

    At the start of a window every domain skips some of its tokens: else the places in a window would give away where in
    its pattern a domain is whose period divides the window's length, unless other domains came between.

    Attributes:
        text: int32 of shape (K, units) for tokens, (K, units, block + 1) for windows.
        skipped: units of each domain's text that were skipped by each window, int64 of shape (K, windows).
        numbers: float64 of shape (steps, units of a step).
        batch_size: windows a step.
        block: tokens of a window that are read; one more is its last target.
    """

    text: NDArray[np.int32]
    skipped: NDArray[np.int64]
    numbers: F64
    batch_size: int
    block: int

    @classmethod
    def of(cls, domains: Sequence[Domain], steps: int, *, batch_size: int, block: int, unit: Unit, seed: int) -> Stream:
        """Return the stream of a seed.

        Raises:
            MixtureError: a domain has no such text.
        """
        windows, length = steps * batch_size, block + 1
        units = batch_size * (length if unit == "tokens" else 1)
        random = generator("proxy stream", seed)
        offsets = (random.random() + GOLDEN * np.arange(steps)) % 1.0
        order = np.argsort(random.random((steps, units)), axis=1)
        if unit == "tokens":
            skipped = np.stack([gaps_of(domain, windows, length, seed=seed, held_out=False) for domain in domains])
            size = windows * length + int(skipped.max())
            text = [tokens_of(domain, size, seed=seed, held_out=False) for domain in domains]
        else:
            skipped = np.zeros((len(domains), windows), dtype=np.int64)
            text = [windows_of(domain, windows, length, seed=seed, held_out=False) for domain in domains]
        return cls(
            text=np.stack(text).astype(np.int32),
            skipped=skipped,
            numbers=(order + offsets[:, None]) / units,
            batch_size=batch_size,
            block=block,
        )

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return self.text.nbytes + self.skipped.nbytes + self.numbers.nbytes

    def batches(self, mixtures: F64, start: int, stop: int) -> Iterator[NDArray[np.int64]]:
        """Yield what the models of M mixtures read at steps start, ..., stop - 1: int64 of shape (M, B, block + 1).

        Args:
            mixtures: shares, shape (M, K), sum 1.
            start: first step.
            stop: end of the steps.
        """
        ends = np.cumsum(mixtures, axis=1)
        ends[ends > 1 - NEVER] = np.inf
        read = np.zeros(mixtures.shape, dtype=np.int64)
        for first in range(0, stop, STEPS_AT_ONCE):
            last = min(first + STEPS_AT_ONCE, stop)
            tokens = self._read(ends, read, first, last)
            windows = tokens.reshape(len(mixtures), last - first, self.batch_size, self.block + 1)
            for step in range(max(first, start), last):
                yield windows[:, step - first].astype(np.int64)

    def _read(self, ends: F64, read: NDArray[np.int64], first: int, last: int) -> NDArray[np.int32]:
        """Return what is read in some steps, and move `read`, the units read before, of shape (M, K)."""
        numbers = self.numbers[first:last].reshape(-1)
        domain = np.stack([np.searchsorted(row, numbers, side="right") for row in ends])
        of_step = self.skipped[:, first * self.batch_size : last * self.batch_size]
        skipped = np.repeat(of_step, len(numbers) // of_step.shape[1], axis=1)
        place = np.empty_like(domain)
        for number in range(ends.shape[1]):
            here = domain == number
            count = np.cumsum(here, axis=1)
            place[here] = (read[:, number, None] + skipped[number] + count - 1)[here]
            read[:, number] += count[:, -1]
        found: NDArray[np.int32] = self.text[domain, place]
        return found


def checked_mixtures(mixtures: ArrayLike, domains: int, name: str = "weights", *, single: bool = False) -> F64:
    """Return mixtures scaled to sum 1, float64 of shape (M, K); of a single one of shape (K,) that with M = 1.

    Raises:
        MixtureError: another shape, or weights that are not finite, below 0 or all 0.
    """
    array = as_numbers(mixtures)
    if array is None or array.ndim != (1 if single else 2) or array.shape[-1] != domains:
        raise MixtureError(f"{name} must be {domains} numbers, one for each domain, but got {mixtures!r:.200}")
    array = np.atleast_2d(array)
    if not np.isfinite(array).all() or (array < 0).any() or not (array.max(axis=1, initial=0) > 0).all():
        raise MixtureError(f"{name} must be finite, at least 0 and not all 0, but got {mixtures!r:.200}")
    array /= array.max(axis=1, keepdims=True)  # so that no sum overflows
    scaled: F64 = array / array.sum(axis=1, keepdims=True)
    return scaled
