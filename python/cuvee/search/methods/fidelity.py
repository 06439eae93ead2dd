"""Runs that stop early: what they say of full ones, and which of them go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .method import F64, History, Trial, same_mixture

if TYPE_CHECKING:
    from .belief import Joint

PART = 3  # of this many runs at a rung, one goes on to the next
SLOPE = 1.5  # of early losses by final ones: published runs have 1.5 to 1.9 at 30 % of the tokens
STRAY = 0.15  # of a final loss around what an early one says, in sd of the losses over mixtures: likewise
STRAY_PAIRS = 4.0  # that this guess counts for
FULL_NOISE = 0.1  # of a full run, in the same unit, which variances are given in


@dataclass(frozen=True, slots=True)
class Rungs:
    """The ladder of successive halving.

    Args:
        low: fidelities below 1, rising; empty if all runs are full ones.
    """

    low: tuple[float, ...]

    @property
    def first(self) -> float:
        """Fidelity that new mixtures run at."""
        return self.low[0] if self.low else 1.0

    def as_full(self, history: History) -> tuple[F64, F64, F64]:
        """Return all runs as if they were full ones: mixtures (n, K), losses (n, D), variances of noise (n,).

        The losses of an early run are moved along a line, early = a + b * final, with b common to all losses and a of
        each, from the mixtures that ran at both fidelities. Variances are in those of a full run. Of a mixture that ran
        in full its early runs are left out: they are part of the same run.
        """
        weights, losses, fidelities = history.weights, history.all_losses, history.fidelities
        variances, keep = np.ones(len(weights)), np.ones(len(weights), dtype=bool)
        full = fidelities == 1
        for rung in sorted({*fidelities.tolist()} - {1.0}):
            early = fidelities == rung
            pairs = _pairs(weights, early, full)
            line = _line(losses, pairs)
            keep[[low for low, _ in pairs]] = False
            if line is None:
                keep[early] = bool(full.sum() == 0)
                continue
            centre_low, centre_full, slope = line
            losses[early] = centre_full + (losses[early] - centre_low) / slope
            variances[early] = self.variance(history, rung)
        return weights[keep], losses[keep], variances[keep]

    def variance(self, history: History, fidelity: float) -> float:
        """Return the variance of what a run of a fidelity says of a full one's losses, in that of a full run."""
        if fidelity == 1:
            return 1.0
        weights, losses, fidelities = history.weights, history.all_losses, history.fidelities
        pairs = _pairs(weights, fidelities == fidelity, fidelities == 1)
        line = _line(losses, pairs)
        spread = np.maximum(losses[fidelities == 1].std(axis=0), 1e-9) if (fidelities == 1).any() else np.ones(1)
        squares, count = STRAY_PAIRS * STRAY**2, STRAY_PAIRS
        if line is not None and len(pairs) > 2:
            low, full = (losses[[pair[side] for pair in pairs]] for side in (0, 1))
            off = (line[1] + (low - line[0]) / line[2] - full) / spread
            squares, count = squares + float((off**2).mean(axis=1).sum()), count + len(pairs) - 2
        return 1.0 + squares / count / FULL_NOISE**2

    def promoted(self, history: History, joint: Joint, asked: Sequence[Trial]) -> tuple[int, float] | None:
        """Return which mixture of `joint` goes on, and to which fidelity; None as long as too few have run.

        Args:
            history: the runs told.
            joint: the belief in candidates, among them all that ran.
            asked: trials of this `ask` so far.
        """
        ladder = [*self.low, 1.0]
        for low, high in reversed(list(pairwise(ladder))):
            at_low = history.weights[history.fidelities == low]
            above = [*history.weights[history.fidelities >= high], *(t.weights for t in asked if t.fidelity >= high)]
            waiting = [w for w in at_low if not (above and same_mixture(w, np.array(above)).any())]
            gone = len(at_low) - len(waiting)
            if waiting and len(at_low) >= PART * (gone + 1):
                places = [int(np.flatnonzero(same_mixture(w, joint.weights))[0]) for w in waiting]
                return min(places, key=lambda place: float(joint.mean[place])), high
        return None


def _pairs(weights: F64, early: NDArray[np.bool_], full: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return places of runs of the same mixture, early and in full."""
    pairs = []
    places = np.flatnonzero(full)
    for low in np.flatnonzero(early).tolist():
        same = places[same_mixture(weights[low], weights[places])]
        if len(same):
            pairs.append((low, int(same[0])))
    return pairs


def _line(losses: F64, pairs: Sequence[tuple[int, int]]) -> tuple[F64, F64, float] | None:
    """Return mean early losses (D,), mean final ones (D,), and the slope of early by final; None without pairs."""
    if not pairs:
        return None
    low, full = (losses[[pair[side] for pair in pairs]] for side in (0, 1))
    centre_low, centre_full = low.mean(axis=0), full.mean(axis=0)
    x, y = full - centre_full, low - centre_low
    prior = max(float((x * x).mean()), 1e-12)  # counts for one loss of one pair
    slope = (float((x * y).sum()) + prior * SLOPE) / (float((x * x).sum()) + prior)
    return centre_low, centre_full, max(slope, 0.2)
