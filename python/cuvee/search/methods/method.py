"""What a search method is: it asks for runs, is told their losses, and recommends a mixture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ...checks import as_int
from ...errors import MixtureError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from ..space import Space

F64 = NDArray[np.float64]
MOST_TRIALS = 1 << 20
SAME = 1e-9  # mixtures closer than this in every share are one


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run that a method asks for.

    Attributes:
        number: its place in the order of all runs asked for, from 0 on.
        weights: the mixture, float64 of shape (K,), sum 1.
        fidelity: part of the full proxy run, in (0, 1].
    """

    number: int
    weights: F64
    fidelity: float = 1.0


@dataclass(frozen=True, slots=True)
class Observation:
    """A trial and what came of it.

    Attributes:
        trial: what was run.
        losses: held-out losses, float64 of shape (D,), in nats.
    """

    trial: Trial
    losses: F64


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """The mixture a method would train on.

    Attributes:
        weights: float64 of shape (K,), sum 1, in the space.
        mean: its objective in nats, as the method expects it after a full run; NaN if no run was told.
        sd: standard deviation of `mean`, without the noise of a new run; NaN if the method has no idea.
        kind: "baseline" if it is a free one (uniform, prior), "trial" if it is a mixture that was run, else "model".
        confidence: probability that it is better than the best free baseline; NaN if the method has no idea.
    """

    weights: F64
    mean: float = math.nan
    sd: float = math.nan
    kind: str = "trial"
    confidence: float = math.nan


@runtime_checkable
class Method(Protocol):
    """Proposes mixtures. Lower is better: the objective is a weighted mean of a run's losses.

    All that it does is a function of its space, seed, settings and of the observations told, in the order of their
    numbers, whatever order they were told in. To go on with a search, make the method anew and tell it all
    observations.
    """

    name: str

    def ask(self, n: int = 1) -> list[Trial]:
        """Return n trials to run next. They may be run at once; asking changes nothing, so tell before asking again."""
        ...

    def tell(self, observations: Iterable[Observation]) -> None:
        """Take in what came of trials."""
        ...

    def recommend(self) -> Recommendation:
        """Return the mixture to train on."""
        ...


@dataclass(slots=True)
class History:
    """The observations of a search in the order of their numbers, and how losses become one objective.

    Args:
        space: where mixtures lie.
        targets: weight of each loss in the objective, shape (D,), at least 0; None: all the same.
        losses: names of the D losses; None: those of the domains, if there are as many.
    """

    space: Space
    targets: ArrayLike | None = None
    losses: Sequence[str] | None = None
    _told: dict[int, Observation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.targets is not None:
            self.targets = _checked_targets(self.targets)
            if self.losses is not None and len(self.losses) != len(self.targets):
                raise MixtureError(
                    f"targets must have one weight for each of {len(self.losses)} losses, but got {len(self.targets)}"
                )

    def __len__(self) -> int:
        return len(self._told)

    def add(self, observations: Iterable[Observation]) -> None:
        """Add observations; one of a number that is known replaces it.

        Raises:
            MixtureError: weights or losses of the wrong shape, or that are not finite.
        """
        for seen in observations:
            trial = seen.trial
            number = as_int(trial.number, "trial number", 0, MOST_TRIALS, MixtureError)
            weights, losses = np.array(trial.weights, dtype=np.float64), np.array(seen.losses, dtype=np.float64)
            if weights.shape != (self.space.size,) or not np.isfinite(weights).all():
                raise MixtureError(
                    f"weights of trial {number} must be finite, of shape ({self.space.size},), but got {weights!r:.200}"
                )
            if losses.shape != (self.dimension or losses.size,) or not losses.size or not np.isfinite(losses).all():
                wanted = f"({self.dimension or 'D'},)"
                raise MixtureError(
                    f"losses of trial {number} must be finite, of shape {wanted}, but got {losses!r:.200}"
                )
            if not 0 < trial.fidelity <= 1:
                raise MixtureError(f"fidelity of trial {number} must be in (0, 1], but got {trial.fidelity!r}")
            kept = Trial(number=number, weights=weights, fidelity=float(trial.fidelity))
            self._told[number] = Observation(kept, losses)

    @property
    def dimension(self) -> int:
        """D; 0 as long as nobody has said it."""
        for known in (self.losses, self.targets):
            if known is not None:
                return int(np.size(known)) if not isinstance(known, Sequence) else len(known)
        return next((observation.losses.size for observation in self._told.values()), 0)

    @property
    def next_number(self) -> int:
        """Number of the next trial: one more than the last that was told."""
        return max(self._told, default=-1) + 1

    @property
    def observations(self) -> list[Observation]:
        """All, in the order of their numbers."""
        return [self._told[number] for number in sorted(self._told)]

    @property
    def weights(self) -> F64:
        """Mixtures, shape (n, K)."""
        return np.array([seen.trial.weights for seen in self.observations]).reshape(-1, self.space.size)

    @property
    def fidelities(self) -> F64:
        """Fidelities, shape (n,)."""
        return np.array([seen.trial.fidelity for seen in self.observations])

    @property
    def all_losses(self) -> F64:
        """Losses, shape (n, D)."""
        return np.array([seen.losses for seen in self.observations]).reshape(len(self), -1)

    @property
    def target_weights(self) -> F64:
        """Weight of each loss in the objective, shape (D,), sum 1."""
        if self.targets is not None:
            return np.asarray(self.targets, dtype=np.float64)
        return np.full(self.dimension, 1.0 / max(1, self.dimension))

    @property
    def objective(self) -> F64:
        """Weighted mean of the losses of every observation, shape (n,)."""
        return self.all_losses @ self.target_weights if self._told else np.empty(0)

    @property
    def own(self) -> NDArray[np.int64]:
        """For each loss the domain of the same name, shape (D,); -1 where there is none."""
        if self.losses is None:
            same = self.dimension == self.space.size
            return np.arange(self.dimension) if same else np.full(self.dimension, -1)
        place = {name: domain for domain, name in enumerate(self.space.names)}
        return np.array([place.get(name, -1) for name in self.losses], dtype=np.int64)

    def rng(self, *purpose: int, seed: int) -> np.random.Generator:
        """Return a generator that depends on the seed, the next number and the purpose alone."""
        return np.random.default_rng([seed, self.next_number, *purpose])


def same_mixture(weights: F64, others: F64) -> NDArray[np.bool_]:
    """Tell which of `others`, shape (n, K), are the mixture `weights`, shape (K,)."""
    return np.asarray((np.abs(others - weights) < SAME).all(axis=-1))


def pooled(weights: F64, values: F64) -> tuple[F64, F64, NDArray[np.int64]]:
    """Return the distinct mixtures (m, K) in the order of their first run, means of their values, and counts (m,)."""
    rounded = np.round(weights / SAME)
    _, first, place = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    place = rank[place.reshape(-1)]
    counts = np.bincount(place, minlength=len(order))
    sums = np.zeros((len(order), *values.shape[1:]))
    np.add.at(sums, place, values)
    return weights[first[order]], (sums.T / counts).T, counts


def _checked_targets(targets: ArrayLike) -> F64:
    array = np.array(targets, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or (array < 0).any() or not array.any():
        raise MixtureError(f"targets must be finite weights, at least 0 and not all 0, but got {array.tolist()!r:.200}")
    scaled: F64 = array / array.sum()
    return scaled
