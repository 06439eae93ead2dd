"""Sums per source that are exact: the same bits in any order, and however the rows were dealt to ranks and batches."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from torch import Tensor

    Parts = Mapping[str, Sequence[Sequence[float | None]]]  # per name and source, numbers whose exact sum is meant

HELD = 256  # batches whose values stay where they were computed before they are summed


class ExactSums:
    """Sums per name and source of values that may lie on a device: they are fetched when asked for, not before.

    Args:
        sources: number of sources, K.
    """

    def __init__(self, sources: int) -> None:
        self.sources = sources
        self._held: dict[str, list[tuple[NDArray[np.int64], Any]]] = {}
        self._parts: dict[str, list[list[float]]] = {}

    def add(self, name: str, source: NDArray[np.int64], values: ArrayLike | Tensor) -> None:
        """Add values.

        Args:
            name: of the sums.
            source: of each value, shape (n,); those below 0 are left out.
            values: of shape (n,).
        """
        held = self._held.setdefault(name, [])
        held.append((source, values))
        if len(held) == HELD:
            self._sum_up()

    def parts(self) -> dict[str, list[list[float | None]]]:
        """Return the sums as JSON values that `merge` and `total` take; None stands for a sum that is not finite."""
        self._sum_up()
        return {
            name: [[None if math.isnan(part) else part for part in parts] for parts in sources]
            for name, sources in self._parts.items()
        }

    def merge(self, parts: Parts) -> None:
        """Add sums that `parts` returned."""
        self._sum_up()
        for name, sources in parts.items():
            own = self._parts.setdefault(name, [[] for _ in range(self.sources)])
            self._parts[name] = [
                _condensed([*mine, *_numbers(theirs)]) for mine, theirs in zip(own, sources, strict=True)
            ]

    def _sum_up(self) -> None:
        for name, held in self._held.items():
            source, values = np.concatenate([ids for ids, _ in held]), _fetched([each for _, each in held])
            order = np.argsort(source, kind="stable")
            ends = np.searchsorted(source[order], np.arange(self.sources + 1))
            rows = values[order]
            sums = self._parts.setdefault(name, [[] for _ in range(self.sources)])
            for each, (first, end) in enumerate(itertools.pairwise(ends.tolist())):
                if first < end:
                    sums[each] = _condensed([*sums[each], *rows[first:end].tolist()])
        self._held = {}


def total(ranks: Sequence[Parts], sources: int) -> dict[str, NDArray[np.float64]]:
    """Return per name the sums over ranks, float64 of shape (K,), each rounded once; NaN where one is not finite.

    Args:
        ranks: what `ExactSums.parts` returned on each.
        sources: number of sources, K.
    """
    names = sorted(set().union(*ranks))
    nothing: Sequence[Sequence[float]] = [[]] * sources
    return {
        name: np.array([_sum(itertools.chain.from_iterable(map(_numbers, each))) for each in columns])
        for name in names
        for columns in [zip(*(rank.get(name, nothing) for rank in ranks), strict=True)]
    }


def _numbers(parts: Iterable[float | None]) -> list[float]:
    return [math.nan if part is None else float(part) for part in parts]


def _sum(values: Iterable[float]) -> float:
    """Return the sum of `values` rounded once; NaN if it is not finite."""
    try:
        rounded = math.fsum(values)
    except (OverflowError, ValueError):  # beyond any float; inf beside -inf
        return math.nan
    return rounded if math.isfinite(rounded) else math.nan


def _condensed(values: list[float]) -> list[float]:
    """Return few numbers whose exact sum is that of `values`: the sum rounded, what that lacks, and so on."""
    rest, parts = values, list[float]()
    while (rounded := _sum(rest)) != 0.0:
        parts.append(rounded)
        if math.isnan(rounded):
            return [math.nan]
        rest = [*values, *(-part for part in parts)]
    return parts


def _fetched(values: Sequence[Any]) -> NDArray[np.float64]:
    """Return values as one array; those that lie on a device come in one copy."""
    if all(hasattr(each, "detach") for each in values):
        import torch

        return np.asarray(torch.cat([each.detach() for each in values]).cpu().double().numpy())
    arrays = [each.detach().cpu().double().numpy() if hasattr(each, "detach") else each for each in values]
    return np.concatenate([np.asarray(each, dtype=np.float64) for each in arrays])
