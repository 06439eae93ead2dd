"""Which sources a chart shows: each by itself, or the largest ones and all others together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .history import F64, I64, Run
from .owed import requested

MOST_SHOWN = 16  # lines in a chart, "others" included
COLOURS = 8  # that stay apart for every kind of colour vision; from the ninth line on they return dotted


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The lines of a chart.

    Attributes:
        labels: one per line.
        of: the line that each source belongs to, int64 of shape (K,).
        others: how many sources the last line stands for; 0 if each line is one source.
        dwarfing: whether the others together are so many that single sources would lie flat beside them.
    """

    labels: tuple[str, ...]
    of: I64
    others: int
    dwarfing: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def colour(self, line: int) -> str:
        """Return the name of a line's colour in the style sheet."""
        return "others" if self.others and line == len(self) - 1 else f"s{line % COLOURS}"

    def dotted(self, line: int) -> bool:
        """Tell whether a line is dotted, which sets it apart from the one of the same colour."""
        return line >= COLOURS and self.colour(line) != "others"

    def summed(self, values: I64 | F64) -> F64:
        """Return sums per line: values of shape (..., K) as float64 of shape (..., lines)."""
        sums = np.zeros((*values.shape[:-1], len(self)))
        for source, line in enumerate(self.of.tolist()):
            sums[..., line] += values[..., source]
        return sums

    def losses(self, run: Run) -> F64:
        """Return the mean loss per token of each line since the point before, shape (T, lines); NaN where none is."""
        tokens = np.diff(run.points.counts[3], axis=0, prepend=0).astype(np.float64)
        known = np.isfinite(run.points.losses)
        weights = np.where(known, np.maximum(tokens, 1.0), 0.0)
        sums = self.summed(np.where(known, run.points.losses, 0.0) * weights)
        totals = self.summed(weights)
        losses: F64 = np.where(totals > 0, sums / np.maximum(totals, 1.0), np.nan)
        return losses


def groups_of(run: Run) -> Groups:
    """Return the lines that a run's charts have: its sources in their order, or if they are many, the largest first."""
    if len(run.names) <= MOST_SHOWN:
        return Groups(labels=run.names, of=np.arange(len(run.names)), others=0)
    shares = requested(run.plans[-1], run.names) if run.plans else run.points.counts[0, -1].astype(np.float64)
    largest = np.argsort(-shares, kind="stable")[: MOST_SHOWN - 1]
    of = np.full(len(run.names), MOST_SHOWN - 1)
    of[largest] = np.arange(MOST_SHOWN - 1)
    others = len(run.names) - len(largest)
    dwarfing = bool(shares.sum() - shares[largest].sum() > 2 * shares[largest].max())
    labels = (*_picked(run.names, largest), f"{others:,} others")
    return Groups(labels=labels, of=of, others=others, dwarfing=dwarfing)


def _picked(names: Sequence[str], places: I64) -> list[str]:
    return [names[place] for place in places.tolist()]
