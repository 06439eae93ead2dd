"""The transfer law's parameters, its losses, and their exact derivatives: what `TransferLaw` fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from .surrogate import Floats

    Places = NDArray[np.intp]

LEAST_WEIGHT = 1e-6  # whose logarithm is taken; a weight of 0 gives no data at all
MOST_LOG = 30.0


# Means and deviations a priori of what is common to all losses. Broad: an exponent of 0.25 times or divided by 1.5, own
# data worth e**3 times foreign data, times or divided by e**1.5; see docs/laws.md.
COMMON = {"worth": (-3, 1.5), "concave": (0.5, 0.7), "bare": (-4, 1.5), "slope": (-1.4, 0.4), "floor": (0, 1)}
# First deviations within the groups, and the number of parameters that this guess counts for when they are learned.
GROUPS = {
    "rest": (0.7, 4),
    "give": (0.5, 4),
    "take": (0.4, 4),
    "bare_of": (1.0, 4),
    "slope_of": (0.3, 8),
    "floor_of": (0.5, 8),
    "embedding": (0.7, 8),
    "shift": (0.3, 8),
}


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Where each parameter lies in one vector, and what the law says at one.

    For loss i of D and domain j of K, with own(i) the domain that loss i is measured on, or none:

        loss_i(w) = lowest_i sigmoid(floor_i + floor) + exp(level_i - b_i log S_i(w)),   b_i = exp(slope_i + slope)
        S_i(w)    = exp(bare_i + bare) + sum_j exp(r_ij) w_j ** g,                       g = sigmoid(concave)
        r_ij      = worth + give_j + give_own(i) + take_i + e_own(i) . e_j + shift_i . e_j + rest_ij,    r_i,own(i) = 0

    Args:
        own: domain of each loss, (D,); -1 where there is none.
        domains: K.
        rank: length of the vectors e_j and shift_i.
    """

    own: Places
    domains: int
    rank: int

    @property
    def common(self) -> Mapping[str, tuple[float, float]]:
        """Means and deviations a priori of the parameters that all losses share."""
        return COMMON

    @property
    def groups(self) -> Mapping[str, tuple[float, int]]:
        """First deviations of the parameters in each group, and how many parameters that guess counts for."""
        return GROUPS

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every block of parameters, in their order."""
        losses, domains, rank = len(self.own), self.domains, self.rank
        per_loss = {"rest": (losses, domains), "shift": (losses, rank), "take": (losses,)}
        per_loss |= dict.fromkeys(("level", "floor_of", "slope_of", "bare_of"), (losses,))
        shared = {"give": (domains,), "embedding": (domains, rank)}
        return per_loss | shared | dict.fromkeys(("worth", "concave", "floor", "slope", "bare"), (1,))

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where every block lies in the vector."""
        found, start = {}, 0
        for name, shape in self.shapes.items():
            found[name] = slice(start, start + int(np.prod(shape)))
            start = found[name].stop
        return found

    @property
    def size(self) -> int:
        """Length of the vector."""
        return int(self.places["bare"].stop)

    @cached_property
    def columns(self) -> Places:
        """Parameters that each loss depends on, int of shape (D, P), in the order of `slopes`."""
        rows = []
        shared = np.arange(self.places["give"].start, self.size)
        for loss in range(len(self.own)):
            mine = [np.arange(self.size)[self.places[name]].reshape(len(self.own), -1)[loss] for name in PER_LOSS]
            rows.append(np.concatenate([*mine, shared]))
        return np.array(rows)

    @cached_property
    def is_own(self) -> NDArray[np.bool_]:
        """Whether domain j is the one that loss i is measured on, (D, K)."""
        flags: NDArray[np.bool_] = self.own[:, None] == np.arange(self.domains)
        return flags

    def blocks(self, vector: Floats) -> dict[str, Floats]:
        """Return views of the vector's blocks in their shapes."""
        return {name: vector[self.places[name]].reshape(shape) for name, shape in self.shapes.items()}

    def partners(self, parts: dict[str, Floats]) -> Floats:
        """Return each loss's vector that is multiplied with the domains', (D, rank)."""
        mine: Floats = self.is_own @ parts["embedding"] + parts["shift"]
        return mine

    def transfer(self, vector: Floats) -> Floats:
        """Return the worth of each domain's data for each loss, the own domain's being 1; (D, K)."""
        parts = self.blocks(vector)
        row = parts["worth"] + parts["take"] + self.is_own @ parts["give"]
        logs = row[:, None] + parts["give"] + parts["rest"] + self.partners(parts) @ parts["embedding"].T
        worth: Floats = np.exp(np.clip(np.where(self.is_own, 0, logs), -MOST_LOG, MOST_LOG))
        return worth

    def losses(self, vector: Floats, weights: Floats, lowest: Floats) -> Floats:
        """Return the law's losses of mixtures (n, K), float64 of shape (n, D)."""
        parts = self.blocks(vector)
        powers, _ = self._powers(parts, weights)
        data = powers @ self.transfer(vector).T + self._bare(parts)
        floor = lowest * sigmoid(parts["floor_of"] + parts["floor"])
        return floor + _falling(parts, np.log(data))

    def slopes(self, vector: Floats, weights: Floats, lowest: Floats) -> tuple[Floats, Floats]:
        """Return the losses (n, D) and their derivatives by the parameters in `columns`, (D, n, P)."""
        parts = self.blocks(vector)
        powers, logs = self._powers(parts, weights)
        worth, bare, g = self.transfer(vector), self._bare(parts), sigmoid(parts["concave"][0])
        data = powers @ worth.T + bare
        fall = _falling(parts, np.log(data))
        share = sigmoid(parts["floor_of"] + parts["floor"])
        by_exponent = -fall * np.exp(parts["slope_of"] + parts["slope"]) * np.log(data)
        by_data = -fall * np.exp(parts["slope_of"] + parts["slope"]) / data
        partners = self.partners(parts)
        found = np.empty((len(self.own), len(weights), self.columns.shape[1]))
        for loss in range(len(self.own)):
            each = by_data[:, loss, None] * powers * worth[loss]
            others = np.where(self.is_own[loss], 0, each)
            whole = others.sum(1)
            floor = np.full(len(weights), lowest[loss] * share[loss] * (1 - share[loss]))
            start = by_data[:, loss] * bare[loss]
            dot = others @ parts["embedding"]
            mine = [others, dot, whole, fall[:, loss], floor, by_exponent[:, loss], start]
            give = others + np.outer(whole, self.is_own[loss])
            vectors = others[:, :, None] * partners[loss] + self.is_own[loss][:, None] * dot[:, None, :]
            concave = (each * logs).sum(1) * g * (1 - g)
            shared = [give, vectors.reshape(len(weights), -1), whole, concave, floor, by_exponent[:, loss], start]
            found[loss] = np.column_stack([*mine, *shared])
        return share * lowest + fall, found

    def _bare(self, parts: dict[str, Floats]) -> Floats:
        bare: Floats = np.exp(np.clip(parts["bare_of"] + parts["bare"], -MOST_LOG, MOST_LOG))
        return bare

    def _powers(self, parts: dict[str, Floats], weights: Floats) -> tuple[Floats, Floats]:
        """Return w ** g, 0 at a weight of 0, and log w."""
        logs = np.log(np.maximum(weights, LEAST_WEIGHT))
        return np.where(weights > 0, np.exp(sigmoid(parts["concave"][0]) * logs), 0), logs


PER_LOSS = ("rest", "shift", "take", "level", "floor_of", "slope_of", "bare_of")


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)), without overflow."""
    result: Floats = 0.5 * (1 + np.tanh(0.5 * x))
    return result


def _falling(parts: dict[str, Floats], log_data: Floats) -> Floats:
    """Return the part of the losses that data lowers."""
    exponent = np.exp(parts["slope_of"] + parts["slope"])
    fall: Floats = np.exp(np.clip(parts["level"] - exponent * log_data, -MOST_LOG, MOST_LOG))
    return fall
