"""The transfer law at any size and number of tokens: parameters, losses, and their exact derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..surrogates.transfer_terms import Terms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..surrogates.surrogate import Floats
    from ..surrogates.transfer_terms import Places

# Exponents a priori, as logarithms. Parameters: 0.22 lies between 0.16, what both tables of Data Mixing Laws show over
# three sizes, and Chinchilla's 0.34; two sizes say nothing of it, so it is held there and its doubt kept for intervals.
DECAY, DECAY_DOUBT = float(np.log(0.22)), 0.3
HELD = 1e-3  # deviation of what is not learned
COMMON = {"fall": (float(np.log(0.35)), 0.5), "shrink": (0.03, 0.03), "hasten": (0.0, 0.05)}
GROUPS = {
    "capacity": (2.0, 1000),
    "decay_of": (HELD, 10**6),
    "fall_of": (0.2, 8),
    "shrink_of": (0.005, 1000),
    "hasten_of": (0.02, 8),
}
CAPACITY = float(np.log(0.1))  # the part of the least loss that more parameters would take away, a priori
EXTRA = ("capacity", "decay_of", "fall_of", "shrink_of", "hasten_of")
SHARED = ("decay", "fall", "shrink", "hasten")


@dataclass(frozen=True, kw_only=True)
class ScaleTerms:
    """The law of `Terms`, moved by size and tokens; inputs are rows of K weights, log(N / N0) and log(D / D0).

        loss_i = floor_i + lowest_i exp(capacity_i - a_i n)
                 + exp(-b_i d - h_i n min(d, 0)) (f_i(v) + (f_i(w) - f_i(v)) exp(-s_i n))

    with f the part of the loss that data lowers, v the reference mixture, a_i = exp(decay_i + decay),
    b_i = exp(fall_i + fall), h_i = hasten_i + hasten: how much faster larger models fall, as far as runs
    show it, and s_i = shrink_i + shrink: how fast mixtures grow alike.
    """

    mix: Terms
    reference: Floats  # v, (K,)
    decay: tuple[float, float] = (DECAY, HELD)  # mean and deviation a priori of the parameters' log exponent

    @property
    def own(self) -> Places:
        """Domain of each loss, (D,)."""
        return self.mix.own

    @property
    def domains(self) -> int:
        """K."""
        return self.mix.domains

    @property
    def is_own(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """Whether domain j is the one that loss i is measured on, (D, K)."""
        return self.mix.is_own

    @property
    def common(self) -> Mapping[str, tuple[float, float]]:
        """Means and deviations a priori of the parameters that all losses share."""
        return {**self.mix.common, **COMMON, "decay": self.decay}

    @property
    def groups(self) -> Mapping[str, tuple[float, int]]:
        """First deviations of the parameters in each group, and how many parameters that guess counts for."""
        return {**self.mix.groups, **GROUPS}

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where every block lies in the vector."""
        found, start = dict(self.mix.places), self.mix.size
        for name in (*EXTRA, *SHARED):
            found[name] = slice(start, start + (len(self.own) if name in EXTRA else 1))
            start = found[name].stop
        return found

    @property
    def size(self) -> int:
        """Length of the vector."""
        return int(self.places["hasten"].stop)

    @cached_property
    def columns(self) -> Places:
        """Parameters that each loss depends on, (D, P), in the order of `slopes`."""
        mine = np.array([[self.places[name].start + loss for name in EXTRA] for loss in range(len(self.own))])
        shared = np.broadcast_to([self.places[name].start for name in SHARED], (len(self.own), len(SHARED)))
        return np.concatenate([self.mix.columns, mine, shared], axis=1)

    def losses(self, vector: Floats, inputs: Floats, lowest: Floats) -> Floats:
        """Return the law's losses of inputs (n, K + 2), float64 of shape (n, D)."""
        at = self._parts(vector, inputs, lowest)
        return at.floor + at.capacity + at.older * (at.middle + (at.falling - at.middle) * at.alike)

    def slopes(self, vector: Floats, inputs: Floats, lowest: Floats) -> tuple[Floats, Floats]:
        """Return the losses (n, D) and their derivatives by the parameters in `columns`, (D, n, P)."""
        at = self._parts(vector, inputs, lowest)
        _, both = self.mix.slopes(vector[: self.mix.size], self._weights(inputs), lowest)
        here, middle = both[:, :-1], both[:, -1:]
        moved = at.older.T[:, :, None] * (middle + (here - middle) * at.alike.T[:, :, None])
        floors = np.isin(self.mix.columns, np.r_[self.mix.places["floor_of"], self.mix.places["floor"]])
        mix = np.where(floors[:, None, :], here, moved)
        size, tokens = inputs[:, -2], inputs[:, -1]
        apart = at.older * (at.falling - at.middle) * at.alike
        by_decay = -at.capacity.T * at.decay[:, None] * size
        by_fall = -(at.older * at.middle + apart).T * at.fall[:, None] * tokens
        by_hasten = -(at.older * at.middle + apart).T * size * np.minimum(tokens, 0)
        by_shrink = -apart.T * size
        common = [by_decay, by_fall, by_shrink, by_hasten]
        extra = np.stack([at.capacity.T, *common, *common], axis=2)
        return at.floor + at.capacity + at.older * at.middle + apart, np.concatenate([mix, extra], axis=2)

    def _weights(self, inputs: Floats) -> Floats:
        """Return the mixtures of the inputs, and the reference last."""
        return np.vstack([inputs[:, :-2], self.reference])

    def _parts(self, vector: Floats, inputs: Floats, lowest: Floats) -> _Parts:
        mix = vector[: self.mix.size]
        parts = {name: vector[self.places[name]] for name in (*EXTRA, *SHARED)}
        decay = np.exp(parts["decay_of"] + parts["decay"])
        fall = np.exp(parts["fall_of"] + parts["fall"])
        falling = self.mix.losses(mix, self._weights(inputs), np.zeros_like(lowest))
        size, tokens = inputs[:, -2:-1], inputs[:, -1:]
        return _Parts(
            floor=self.mix.losses(mix, self.reference[None], lowest) - falling[-1:],
            capacity=lowest * np.exp(CAPACITY + parts["capacity"] - decay * size),
            falling=falling[:-1],
            middle=falling[-1:],
            older=np.exp(-fall * tokens - (parts["hasten_of"] + parts["hasten"]) * size * np.minimum(tokens, 0)),
            alike=np.exp(-(parts["shrink_of"] + parts["shrink"]) * size),
            decay=decay,
            fall=fall,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The terms of the losses of n inputs."""

    floor: Floats  # (1, D)
    capacity: Floats  # (n, D), what more parameters would take away
    falling: Floats  # (n, D), what data lowers
    middle: Floats  # (1, D), the same of the reference mixture
    older: Floats  # (n, D), the factor of tokens
    alike: Floats  # (n, D), the factor of size for differences between mixtures
    decay: Floats  # (D,), exponent of the parameters
    fall: Floats  # (D,), exponent of the tokens
