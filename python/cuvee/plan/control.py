"""What steers a stream: the shares asked for at every slot, and the controller that meets them in tokens."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .. import _core
from ..mixture import Interpolation, Mixture

F64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyframe:
    """A stage in slots of the stream."""

    slot: int
    shares: F64
    interpolation: Interpolation | None


class Curriculum:
    """The shares asked for, as a function of the slot: the mixture's own, its stages, and updates.

    A stage holds from its keyframe on. With an interpolation the shares move there from the keyframe before, in steps
    of `interval` slots, each with the shares at its middle. An update holds until the next keyframe.

    Args:
        mixture: gives its own shares, stages and the interval.
        shift: run position of slot 0.
    """

    def __init__(self, mixture: Mixture, *, shift: int = 0) -> None:
        self.interval = mixture.control_interval
        self._own = mixture.weights
        self._start = -shift
        self._keyframes = [
            Keyframe(slot=stage.at - shift, shares=mixture.stage_weights(stage), interpolation=stage.interpolation)
            for stage in mixture.stages
        ]
        self._keyframe_slots = [keyframe.slot for keyframe in self._keyframes]
        self._updates: list[F64] = []
        self._update_slots: list[int] = []

    def update(self, slot: int, shares: F64) -> None:
        """Ask for `shares`, shape (K,), from `slot` on; slots of updates never go back."""
        self._updates.append(shares)
        self._update_slots.append(slot)

    def starts_stage(self, slot: int) -> bool:
        """Return whether a stage begins at `slot`."""
        place = bisect_right(self._keyframe_slots, slot)
        return place > 0 and self._keyframe_slots[place - 1] == slot

    def asked(self, slot: int, sources: int) -> F64:
        """Return the shares asked for from `slot` to the next change, shape (sources,)."""
        shares = self._shares(slot)
        return shares if len(shares) == sources else np.pad(shares, (0, sources - len(shares)))

    def next_change(self, slot: int) -> int:
        """Return the first slot after `slot` at which a stage or an update begins; ENDLESS if there is none."""
        changes = [
            slots[place]
            for slots in (self._keyframe_slots, self._update_slots)
            if (place := bisect_right(slots, slot)) < len(slots)
        ]
        return min(changes, default=_core.ENDLESS)

    def moving(self, slot: int) -> bool:
        """Return whether an interpolation is running at `slot`."""
        upcoming = bisect_right(self._keyframe_slots, slot)
        return (
            upcoming < len(self._keyframes)
            and self._keyframes[upcoming].interpolation is not None
            and self._update_in_force(slot, upcoming) is None
        )

    def _shares(self, slot: int) -> F64:
        upcoming = bisect_right(self._keyframe_slots, slot)
        update = self._update_in_force(slot, upcoming)
        if update is not None:
            return update
        before = self._keyframes[upcoming - 1].shares if upcoming else self._own
        if not self.moving(slot):
            return before
        target = self._keyframes[upcoming]
        start = self._keyframe_slots[upcoming - 1] if upcoming else self._start
        middle = 0.5 * (slot + min(slot + self.interval, target.slot))
        way = (middle - start) / (target.slot - start)
        if target.interpolation == "cosine":
            way = 0.5 * (1.0 - _core.cos_pi(way))
        return before * (1.0 - way) + target.shares * way

    def _update_in_force(self, slot: int, upcoming: int) -> F64 | None:
        """Return the last update at or before `slot`, unless a stage has begun after it."""
        place = bisect_right(self._update_slots, slot)
        if place == 0 or (upcoming and self._update_slots[place - 1] < self._keyframe_slots[upcoming - 1]):
            return None
        return self._updates[place - 1]


class TokenControl:
    """Row rates that meet shares of tokens.

    Every source has a debt: the tokens it was owed less those it gave. At a control point the rates become
    proportional to q_k clip(1 + (rho_k - r_k) / (q_k interval), 1/2, 2): q_k the row rates that give the shares on
    average, rho_k the debts in rows, r_k the row residuals. Only + - * / and `math.fsum` on doubles, so that the rates
    have the same bits everywhere.

    Args:
        tokens_per_row: shape (K,).
        interval: least slots between two control points.
    """

    def __init__(self, tokens_per_row: F64, interval: int) -> None:
        self._tokens_per_row = tokens_per_row
        self._interval = float(interval)

    def settle(self, debts: F64, shares: F64, given: NDArray[np.int64]) -> F64:
        """Return the debts after `given` tokens were drawn under `shares`; all of shape (K,)."""
        total = float(sum(given.tolist()))
        settled: F64 = debts + (shares * total - given.astype(np.float64))
        return settled

    def rates(self, debts: F64, shares: F64, residuals: F64) -> F64:
        """Return the row rates for the next segment, shape (K,); 0 where the share is 0."""
        active = np.flatnonzero(shares > 0)
        tokens_per_row = self._tokens_per_row[active]
        base = shares[active] / tokens_per_row
        base = base / math.fsum(base)
        owed = debts[active] / tokens_per_row
        owed = owed - base * math.fsum(owed)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            factor = 1.0 + (owed - residuals[active]) / (base * self._interval)
        factor = np.where(np.isnan(factor), 1.0, np.minimum(np.maximum(factor, 0.5), 2.0))
        rates = np.zeros(len(shares))
        rates[active] = base * factor
        return rates
